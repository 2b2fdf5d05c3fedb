/* The guest's network namespace: empty but for its own loopback.
 *
 * Making one takes the kernel about 0.4 ms, as long as all mounts of the root together, so it is
 * made while pid 1 builds the root: by the process that becomes the guest, or where that cannot
 * work beside pid 1 by a helper. The helper shares pid 1's memory and descriptors, has the rights
 * of the guest's user namespace only, and is gone before the guest exists. A guest with a way out
 * gets more than that (netns_gate.c): its helper has memory of its own, since it looks at errno. */
#include "backend/native/native_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/raw.h"
#include "base/sys.h"
#include "base/util.h"

int native_netns_loopback_up(void)
{
    struct ifreq ifr = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    long fd = raw_call(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return (int)fd;
    long r = raw_call(SYS_ioctl, fd, SIOCSIFFLAGS, &ifr);
    raw_call(SYS_close, fd);
    return (int)r;
}

/* Runs beside pid 1 in the same memory: nothing but bare system calls and stores into *net. */
static int netns_make(void *arg)
{
    struct native_netns *net = arg;
    long r = raw_call(SYS_unshare, CLONE_NEWNET);
    if (r >= 0)
        r = native_netns_loopback_up();
    if (r >= 0)
        r = raw_call(SYS_openat, net->proc_fd, "self/ns/net", O_RDONLY | O_CLOEXEC);
    if (r < 0)
        net->error = (int)-r;
    else
        net->ns_fd = (int)r;
    return 0;
}

void native_netns_begin(struct native_child *c, struct native_netns *net)
{
    static char stack[32768] __attribute__((aligned(64)));
    /* held: a prepared guest changes what lies at the name meanwhile */
    *net = (struct native_netns){
        .c = c, .ns_fd = -1, .proc_fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC)};
    if (c->plan->net)
        net->pid = clone(native_gate_make, stack + sizeof(stack), CLONE_FILES | SIGCHLD, c);
    else
        net->pid = clone(netns_make, stack + sizeof(stack), CLONE_VM | CLONE_FILES | SIGCHLD, net);
    if (net->pid < 0)
        native_child_fail(c, "network namespace", errno, "clone");
}

void native_netns_enter(struct native_child *c, struct native_netns *net)
{
    int status;
    while (waitpid(net->pid, &status, __WALL) < 0)
        if (errno != EINTR)
            native_child_fail(c, "network namespace", errno, "wait");
    if (c->plan->net) {
        if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
            _exit(1); /* the helper has said why */
        net->ns_fd = c->status->net_ns_fd;
        util_close(&c->broker_fd);
    }
    if (net->error || !WIFEXITED(status))
        native_child_fail(c, "network namespace", net->error, "unshare");
    if (setns(net->ns_fd, CLONE_NEWNET) < 0)
        native_child_fail(c, "network namespace", errno, "setns");
    close(net->ns_fd);
    close(net->proc_fd);
}

/* Without its file in /proc, which the kernel would make for the first look at it. */
static bool netns_join_process(pid_t pid)
{
    _cleanup_close_ int fd = sys_pidfd_open(pid);
    return fd >= 0 && setns(fd, CLONE_NEWNET) == 0;
}

static void netns_join_file(struct native_child *c, pid_t pid)
{
    char path[48];
    snprintf(path, sizeof(path), "proc/%d/ns/net", (int)pid); /* of the new root */
    _cleanup_close_ int fd = sys_open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) < 0)
        native_child_fail(c, "network namespace", errno, fd < 0 ? "open" : "setns");
}

/* pid 1 must not stay in the host's network: /proc/1/net would show it. And the guest's process has
 * more to do than pid 1 while the root is built. */
void native_netns_join(struct native_child *c, pid_t pid)
{
    if (!netns_join_process(pid)) /* refused by a filter outside */
        netns_join_file(c, pid);
    int r = native_netns_loopback_up();
    if (r < 0)
        native_child_fail(c, "network namespace", -r, "lo");
}
