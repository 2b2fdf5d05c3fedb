/* What one process that makes many guests of one plan uses again: v1 groups (cgroup_again.c) and
 * network namespaces (warm_netns.c), each under its own rule for being as new, and what guests
 * cannot write to of their root (root_template.c). Runs in the zygote
 * that guests are copied from, with the rights of its caller: without those of root there is no
 * store, and each guest makes its own.
 *
 * The maker goes into a network namespace of the store for the moment of the clone: the guest's own
 * user namespace has no rights in it, and so has none to change it. */
#include "backend/native/native_internal.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "backend/backend.h"
#include "backend/native/warm_internal.h"
#include "base/util.h"

#define AGAIN_GROUPS 8

static struct {
    const struct plan *plan;
    struct cgroup *cgroup;
} groups[AGAIN_GROUPS];
static unsigned last_slot;

static const struct plan *root_plan;

/* Has it nothing that is mounted for one guest only? */
static bool again_is_common(const struct plan *plan)
{
    for (size_t i = 0; i < plan->n_ops; i++) {
        const struct plan_op *op = &plan->ops[i];
        if (op->kind == PLAN_OP_OVERLAY ||
            (op->kind == PLAN_OP_BIND &&
             (op->flags & (PLAN_BIND_GRANT | PLAN_BIND_HELD | PLAN_BIND_KERNELS))))
            return false;
    }
    return true;
}

/* A failure behind the unshare ends the process: its guests start cold. */
static void again_root(const struct plan *plan)
{
    static struct native_status status;
    struct native_child c = {.plan = plan, .status = &status};
    if (!plan->own_host_ids || !again_is_common(plan) || !native_root_has_new_api(plan))
        return;
    _cleanup_free_ int *none = calloc(plan->n_ops + 1, sizeof(int));
    if (!none || access(NATIVE_BESIDE, X_OK) < 0 || unshare(CLONE_NEWNS) < 0)
        return;
    for (size_t i = 0; i < plan->n_ops; i++)
        none[i] = -1;
    c.mount_fds = none;
    native_root_beside(&c);
    root_plan = plan;
}

bool native_again_has_root(const struct plan *plan)
{
    return plan == root_plan;
}

void native_again_init(const struct plan *plan)
{
    warm_netns_init();
    again_root(plan);
}

void native_again_done(void)
{
    for (size_t i = 0; i < AGAIN_GROUPS; i++) {
        cgroup_destroy(groups[i].cgroup);
        groups[i].cgroup = NULL;
    }
}

struct cgroup *native_again_groups(const struct plan *plan)
{
    for (size_t i = 0; plan->enter && i < AGAIN_GROUPS; i++)
        if (groups[i].cgroup && groups[i].plan == plan)
            return TAKE_PTR(groups[i].cgroup);
    return NULL;
}

bool native_again_keep(const struct plan *plan, struct cgroup *cgroup)
{
    size_t i = 0;
    while (i < AGAIN_GROUPS && groups[i].cgroup)
        i++;
    if (!plan->enter || i == AGAIN_GROUPS || !cgroup_again(cgroup, &plan->limits))
        return false;
    groups[i].plan = plan;
    groups[i].cgroup = cgroup;
    return true;
}

bool native_again_netns_begin(const struct plan *plan, unsigned *ret_slot)
{
    if (!plan->enter || plan->host_network || plan->net)
        return false;
    if (++last_slot == 0) /* 0 is nobody; no number comes twice while its guest lives */
        last_slot = 1;
    unsigned slot = last_slot;
    int fd = warm_netns_take(slot);
    if (fd < 0) {
        warm_netns_refill(); /* for the next one */
        return false;
    }
    if (setns(fd, CLONE_NEWNET) < 0) {
        warm_netns_return(slot);
        return false;
    }
    *ret_slot = slot;
    return true;
}

void native_again_netns_end(void)
{
    warm_netns_leave();
}

void native_again_netns_return(unsigned slot)
{
    if (slot)
        warm_netns_return(slot);
}
