/* A plan as people and programs read it: `cordon explain`. Pure. */
#ifndef PLAN_PLAN_PRINT_H
#define PLAN_PLAN_PRINT_H

#include "base/buf.h"
#include "base/jsonw.h"
#include "plan/plan.h"

/* Sections with a title each: wall, mounts, files, network, system calls, Landlock, rlimits,
 * control groups, environment. The policy says where a value comes from, and which variables were
 * taken from the caller's environment: their values are not shown. */
void plan_print_text(const struct plan *plan, const struct policy *policy, struct buf *out);

/* The same as members of an object the caller opened. */
void plan_print_json(const struct plan *plan, const struct policy *policy, struct jsonw *out);

/* ---- shared by the two ---- */

enum plan_print_call {
    PLAN_CALL_ALLOWED,
    PLAN_CALL_CHECKED,
    PLAN_CALL_REFUSED,
    PLAN_CALL_NARROWED
};

/* What becomes of a call: the table's answer, and NARROWED where it allows what the program (by a
 * profile of the caller's, or by the tier) does not. False: no such call, ENOSYS. */
bool plan_print_call(const struct plan *plan, int nr, enum plan_print_call *ret_call);
#define PLAN_PRINT_CALLS 512 /* one past every number with a name */

const char *plan_print_rlimit(int resource);
const char *plan_print_op(enum plan_op_kind kind);

/* One value that a group of the guest gets. */
struct plan_print_group {
    const char *file;   /* "memory.max" */
    const char *folder; /* where the guest's group is made */
    char value[48];
    enum field_id field;
};
#define PLAN_PRINT_GROUPS_MAX 8
size_t plan_print_groups(const struct plan *plan, struct plan_print_group *ret_rows);
/* Where limits go that no group holds, or NULL when all of them are held. */
const char *plan_print_fallback(const struct plan *plan);

/* "user", "mount" ...; NULL past the last. */
const char *plan_print_namespace(const struct plan *plan, size_t index);
const char *plan_print_network(const struct plan *plan);
/* plan_print_net.c: the network's section and keys */
void plan_print_net_text(const struct plan *plan, struct buf *out);
void plan_print_net_json(const struct plan *plan, struct jsonw *out);

/* The value of a variable was taken from the caller's environment: secrets live there. */
bool plan_print_is_taken(const struct policy *policy, const char *assignment);

#endif
