/* The mount namespaces of a pool: the spawner's own, which has a /proc; the template that guests'
 * are copied from, which has none; and, for an ordinary user's guests with granted paths, the
 * host's. Runs in the spawner and in guests' pid 1 on their way in. */
#include "backend/native/warm_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/sys.h"
#include "base/util.h"

int warm_root_split(struct native_child *c)
{
    _cleanup_close_ int self = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);
    _cleanup_close_ int own = openat(self, "ns/mnt", O_RDONLY | O_CLOEXEC);
    if (own < 0 || unshare(CLONE_NEWNS) < 0 || umount2("/proc", MNT_DETACH) < 0)
        native_child_fail(c, "root", errno, "template");
    int fd = openat(self, "ns/mnt", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(own, CLONE_NEWNS) < 0)
        native_child_fail(c, "root", errno, "template");
    return fd;
}

int warm_root_host(struct native_child *c)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        native_child_fail(c, "propagation", errno, "/");
    int fd = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || unshare(CLONE_NEWNS) < 0)
        native_child_fail(c, "root", errno, "host");
    return fd;
}

static void root_open_grants(struct native_child *c, int host_fd)
{
    if (setns(host_fd, CLONE_NEWNS) < 0)
        native_child_fail(c, "root", errno, "host");
    for (size_t i = 0; i < c->plan->n_ops; i++)
        if (plan_is_grant(&c->plan->ops[i]))
            c->mount_fds[i] = native_open_source(&c->plan->ops[i]);
}

void warm_root_copy(struct native_child *c, int template_fd, int host_fd)
{
    static const char *const none[] = {NULL};
    _cleanup_close_ int fs = native_new_fs(
        "proc", none, SYS_MOUNT_ATTR_NOSUID | SYS_MOUNT_ATTR_NOEXEC | SYS_MOUNT_ATTR_NODEV);
    if (fs < 0)
        native_child_fail(c, "proc", errno, "proc");
    if (host_fd >= 0)
        root_open_grants(c, host_fd);
    if (setns(template_fd, CLONE_NEWNS) < 0 || unshare(CLONE_NEWNS) < 0 ||
        sys_move_mount(fs, "", AT_FDCWD, "/proc", SYS_MOVE_MOUNT_F_EMPTY_PATH) < 0)
        native_child_fail(c, "proc", errno, "proc");
}
