/* Namespaces of the guest that must be made before the runtime starts, because the runtime could
 * not make them as they have to be. The launcher enters them, the bundle does not name them, and
 * the container inherits them. Same process as launch.c.
 *
 * Network: a guest with a way out gets the native wall's gate (netns_gate.c). gVisor gets an empty
 * one in any case: runsc talks to its sandbox by the name of an abstract socket, and there is one
 * such name per network.
 *
 * Control groups: a namespace shows groups from the one it was made in, and only the guest itself
 * may be in the groups that hold its limits. A helper goes there, makes the namespace and leaves.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/oci/oci.h"
#include "base/raw.h"
#include "base/util.h"

/* Beside the launcher in the same memory: bare calls, and stores into *arg. */
static int spaces_group(void *arg)
{
    struct oci_spaces *s = arg;
    const struct native_child *c = s->c;
    long r = cgroup_enter(c->entries, c->n_entries);
    if (r >= 0 && c->oci->v2_fd >= 0)
        r = cgroup_enter(&c->oci->v2_fd, 1);
    if (r >= 0)
        r = raw_call(SYS_unshare, CLONE_NEWCGROUP);
    if (r >= 0)
        r = raw_call(SYS_openat, AT_FDCWD, "/proc/thread-self/ns/cgroup", O_RDONLY | O_CLOEXEC);
    s->group_fd = (int)r;
    return 0;
}

static void spaces_group_begin(struct native_child *c, struct oci_spaces *s)
{
    static char stack[16384] __attribute__((aligned(64)));
    s->c = c;
    s->group_fd = -ESRCH; /* should it die without a word */
    s->group_pid = clone(spaces_group, stack + sizeof(stack), CLONE_VM | CLONE_FILES | SIGCHLD, s);
    if (s->group_pid < 0)
        native_child_fail(c, "cgroup namespace", errno, "clone");
}

static void spaces_group_enter(struct native_child *c, struct oci_spaces *s)
{
    while (waitpid(s->group_pid, NULL, __WALL) < 0)
        if (errno != EINTR)
            native_child_fail(c, "cgroup namespace", errno, "wait");
    if (s->group_fd < 0)
        native_child_fail(c, "cgroup namespace", -s->group_fd, "helper");
    if (setns(s->group_fd, CLONE_NEWCGROUP) < 0)
        native_child_fail(c, "cgroup namespace", errno, "setns");
    close(s->group_fd);
}

void oci_spaces_begin(struct native_child *c, struct oci_spaces *s)
{
    if (c->plan->net)
        native_netns_begin(c, &s->net);
    /* a move between v2 groups waits for the kernel, and everything it takes is here already */
    if (c->plan->oci->group_view && c->plan->cgroups.kind == HOST_CGROUP_V2)
        spaces_group_begin(c, s);
}

void oci_spaces_enter(struct native_child *c, struct oci_spaces *s)
{
    if (c->plan->oci->group_view && !s->group_pid)
        spaces_group_begin(c, s);
    if (c->plan->net)
        native_netns_enter(c, &s->net);
    else if (oci_is_gvisor(c) && !c->plan->host_network && unshare(CLONE_NEWNET) < 0)
        native_child_fail(c, "network namespace", errno, "unshare");
    if (s->group_pid)
        spaces_group_enter(c, s);
}
