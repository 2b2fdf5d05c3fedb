/* The guest's network namespace: empty but for its own loopback.
 *
 * Making one takes the kernel about 0.4 ms, as long as all mounts of the root together, so a helper
 * makes it while pid 1 builds the root. The helper shares pid 1's memory and descriptors, has the
 * rights of the guest's user namespace only, and is gone before the guest exists. */
#include "backend/native/native_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sys.h"
#include "base/util.h"

static int netns_loopback_up(void)
{
    _cleanup_close_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq ifr = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    return fd < 0 ? -1 : ioctl(fd, SIOCSIFFLAGS, &ifr);
}

/* Runs beside pid 1 in the same memory: nothing but system calls and stores into *net. errno is
 * pid 1's own, so it is never looked at. */
static int netns_make(void *arg)
{
    struct native_netns *net = arg;
    if (unshare(CLONE_NEWNET) < 0 || netns_loopback_up() < 0 ||
        (net->ns_fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC)) < 0)
        net->error = EPERM;
    return 0;
}

void native_netns_begin(struct native_child *c, struct native_netns *net)
{
    static char stack[16384] __attribute__((aligned(64)));
    *net = (struct native_netns){.c = c, .ns_fd = -1};
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
    if (net->error || !WIFEXITED(status))
        native_child_fail(c, "network namespace", net->error, "unshare");
    if (setns(net->ns_fd, CLONE_NEWNET) < 0)
        native_child_fail(c, "network namespace", errno, "setns");
    close(net->ns_fd);
}
