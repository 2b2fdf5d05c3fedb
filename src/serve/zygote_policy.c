/* Runs in the supervisor for cold starts, and in the zygote: both make the same plans. */
#include "serve/zygote.h"

#include "base/util.h"

#define TESTS_PROCESSES 64
#define TESTS_OUTPUT ((uint64_t)64 << 10)

static void set_number(struct policy *p, enum field_id id, uint64_t num)
{
    p->values[id] = (struct policy_value){.set = true, .num = num, .written = (char *)""};
}

/* Ports and limits that are built in grant nothing by themselves; `none` and `false` are no
 * network.
 */
static bool is_said(const struct policy *p, enum field_id id)
{
    const struct policy_value *v = &p->values[id];
    bool grants = id == FIELD_NETWORK || id == FIELD_ALLOW_NETWORK;
    if (!v->set || (v->origin.source == FROM_BUILTIN && !grants))
        return false;
    return v->n_items > 0 || v->num != 0 || policy_fields[id].type == FT_STRING;
}

bool zygote_has_network(const struct policy *policy)
{
    bool said = is_said(policy, FIELD_ALLOW_NETWORK);
    for (size_t i = 0; i < FIELD_COUNT_; i++)
        said |= policy_fields[i].table == TABLE_NETWORK && is_said(policy, (enum field_id)i);
    return said;
}

void zygote_policy(enum zygote_role role, const struct policy *from, struct policy *ret)
{
    static const enum field_id none[] = {FIELD_CPU_TIME,      FIELD_KILL_ON_OUTPUT_LIMIT,
                                         FIELD_NETWORK,       FIELD_ALLOW_NETWORK,
                                         FIELD_ALLOW_DOMAINS, FIELD_ALLOW_PATTERNS,
                                         FIELD_PUBLISH,       FIELD_ALLOW_HOST_PORT,
                                         FIELD_LOG_NETWORK,   FIELD_OUTPUT,
                                         FIELD_WORKSPACE,     FIELD_UNSAFE_HOST_NETWORK,
                                         FIELD_ALLOW_WRITE,   FIELD_MOUNTS};
    *ret = *from;
    ret->values[FIELD_TIME_LIMIT] = (struct policy_value){0};
    ret->values[FIELD_ALLOWED_BINARIES] = (struct policy_value){0};
    if (role != ZYGOTE_TESTS)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(none); i++)
        ret->values[none[i]] = (struct policy_value){0};
    if (policy_num(ret, FIELD_PROCESSES) < TESTS_PROCESSES)
        set_number(ret, FIELD_PROCESSES, TESTS_PROCESSES);
    set_number(ret, FIELD_MAX_OUTPUT, TESTS_OUTPUT);
}
