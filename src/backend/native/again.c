/* What one process that makes many guests of one plan uses again: v1 groups (cgroup_again.c) and
 * network namespaces (warm_netns.c), each under its own rule for being as new. Runs in the zygote
 * that guests are copied from, with the rights of its caller: without those of root there is no
 * store, and each guest makes its own.
 *
 * The maker goes into a network namespace of the store for the moment of the clone: the guest's own
 * user namespace has no rights in it, and so has none to change it. */
#include "backend/native/native_internal.h"

#include <sched.h>
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

void native_again_init(void)
{
    warm_netns_init();
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
