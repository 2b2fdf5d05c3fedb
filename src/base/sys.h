/* System calls and constants that the C library of Debian 12 does not carry. Thin inline wrappers:
 * they return what the kernel returns through syscall(2) (-1 and errno). */
#ifndef BASE_SYS_H
#define BASE_SYS_H

#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* As open(2), for who must not wait: musl's own sets the close-on-exec flag a second time. */
static inline int sys_open(const char *path, int flags)
{
    return openat(AT_FDCWD, path, flags);
}

#define SYS_MADV_POPULATE_WRITE 23 /* since Linux 5.14; musl has no name for it */

/* ---- Landlock: Debian 12's header is that of 6.1; these are the later additions ---- */
struct sys_landlock_ruleset_attr {
    uint64_t handled_access_fs;
    uint64_t handled_access_net;
    uint64_t scoped;
};

struct sys_landlock_path_beneath {
    uint64_t allowed_access;
    int32_t parent_fd;
} __attribute__((packed));

struct sys_landlock_net_port {
    uint64_t allowed_access;
    uint64_t port;
};

#define SYS_LANDLOCK_CREATE_RULESET_VERSION (1U << 0)
#define SYS_LANDLOCK_RULE_PATH_BENEATH 1
#define SYS_LANDLOCK_RULE_NET_PORT 2

#define SYS_LANDLOCK_FS_EXECUTE (1ULL << 0)
#define SYS_LANDLOCK_FS_WRITE_FILE (1ULL << 1)
#define SYS_LANDLOCK_FS_READ_FILE (1ULL << 2)
#define SYS_LANDLOCK_FS_READ_DIR (1ULL << 3)
#define SYS_LANDLOCK_FS_REMOVE_DIR (1ULL << 4)
#define SYS_LANDLOCK_FS_REMOVE_FILE (1ULL << 5)
#define SYS_LANDLOCK_FS_MAKE_CHAR (1ULL << 6)
#define SYS_LANDLOCK_FS_MAKE_DIR (1ULL << 7)
#define SYS_LANDLOCK_FS_MAKE_REG (1ULL << 8)
#define SYS_LANDLOCK_FS_MAKE_SOCK (1ULL << 9)
#define SYS_LANDLOCK_FS_MAKE_FIFO (1ULL << 10)
#define SYS_LANDLOCK_FS_MAKE_BLOCK (1ULL << 11)
#define SYS_LANDLOCK_FS_MAKE_SYM (1ULL << 12)
#define SYS_LANDLOCK_FS_REFER (1ULL << 13)           /* ABI 2 */
#define SYS_LANDLOCK_FS_TRUNCATE (1ULL << 14)        /* ABI 3 */
#define SYS_LANDLOCK_FS_IOCTL_DEV (1ULL << 15)       /* ABI 5 */
#define SYS_LANDLOCK_FS_RESOLVE_UNIX (1ULL << 16)    /* ABI 9 */
#define SYS_LANDLOCK_NET_BIND_TCP (1ULL << 0)        /* ABI 4 */
#define SYS_LANDLOCK_NET_CONNECT_TCP (1ULL << 1)     /* ABI 4 */
#define SYS_LANDLOCK_SCOPE_ABSTRACT_UNIX (1ULL << 0) /* ABI 6 */
#define SYS_LANDLOCK_SCOPE_SIGNAL (1ULL << 1)        /* ABI 6 */

static inline int sys_landlock_create_ruleset(const struct sys_landlock_ruleset_attr *attr,
                                              size_t size, uint32_t flags)
{
    return (int)syscall(444, attr, size, flags);
}

static inline int sys_landlock_add_rule(int fd, int type, const void *attr)
{
    return (int)syscall(445, fd, type, attr, 0);
}

static inline int sys_landlock_restrict_self(int fd)
{
    return (int)syscall(446, fd, 0);
}

/* ---- mounts: glibc has wrappers since 2.36, musl has none; ours serve both ---- */
#define SYS_FSOPEN_CLOEXEC 0x1
#define SYS_FSMOUNT_CLOEXEC 0x1
#define SYS_FSCONFIG_SET_STRING 1
#define SYS_FSCONFIG_CMD_CREATE 6
#define SYS_OPEN_TREE_CLONE 1
#define SYS_OPEN_TREE_CLOEXEC 02000000 /* O_CLOEXEC */
#define SYS_MOVE_MOUNT_F_EMPTY_PATH 0x4
#define SYS_MOVE_MOUNT_T_EMPTY_PATH 0x40
#define SYS_MOUNT_ATTR_RDONLY 0x1
#define SYS_MOUNT_ATTR_NOSUID 0x2
#define SYS_MOUNT_ATTR_NODEV 0x4
#define SYS_MOUNT_ATTR_NOEXEC 0x8
#define SYS_MOUNT_ATTR_IDMAP 0x100000

struct sys_mount_attr {
    uint64_t attr_set, attr_clr, propagation, userns_fd;
};

static inline int sys_fsopen(const char *type, unsigned flags)
{
    return (int)syscall(430, type, flags);
}

static inline int sys_fsconfig(int fd, unsigned cmd, const char *key, const char *value, int aux)
{
    return (int)syscall(431, fd, cmd, key, value, aux);
}

static inline int sys_fsmount(int fd, unsigned flags, unsigned attr)
{
    return (int)syscall(432, fd, flags, attr);
}

static inline int sys_open_tree(int dirfd, const char *path, unsigned flags)
{
    return (int)syscall(428, dirfd, path, flags);
}

static inline int sys_move_mount(int from, const char *from_path, int to, const char *to_path,
                                 unsigned flags)
{
    return (int)syscall(429, from, from_path, to, to_path, flags);
}

static inline int sys_mount_setattr(int dirfd, const char *path, unsigned flags,
                                    const struct sys_mount_attr *attr)
{
    return (int)syscall(442, dirfd, path, flags, attr, attr ? sizeof(*attr) : 0);
}

/* ---- files ---- */
#ifndef STATX_TYPE
#include <linux/stat.h>
#endif

static inline int sys_statx(int dirfd, const char *path, int flags, unsigned mask,
                            struct statx *stx)
{
    return (int)syscall(SYS_statx, dirfd, path, flags, mask, stx);
}

/* ---- processes ---- */
static inline pid_t sys_clone3(struct clone_args *args)
{
    return (pid_t)syscall(SYS_clone3, args, sizeof(*args));
}

static inline int sys_pidfd_send_signal(int pidfd, int sig)
{
    return (int)syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0);
}

/* linux/pidfd.h of Linux 6.11: _IO(PIDFS_IOCTL_MAGIC, ...) */
#define SYS_PIDFD_GET_IPC_NAMESPACE 0xff02
#define SYS_PIDFD_GET_MNT_NAMESPACE 0xff03

static inline int sys_pidfd_open(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

static inline int sys_close_range(unsigned first, unsigned last)
{
    return (int)syscall(SYS_close_range, first, last, 0);
}

static inline int sys_pivot_root(const char *new_root, const char *put_old)
{
    return (int)syscall(SYS_pivot_root, new_root, put_old);
}

static inline int sys_openat2(int dirfd, const char *path, const struct open_how *how)
{
    return (int)syscall(SYS_openat2, dirfd, path, how, sizeof(*how));
}

#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif
#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif
#ifndef P_PIDFD
#define P_PIDFD 3
#endif

/* ---- scheduling ---- */

/* The calling process works in short pieces, and asks to be woken in time for them rather than to
 * have long turns: a slice of a tenth of a millisecond (Linux 6.12; before, nothing changes). What
 * it starts is as it was. No right is needed, and no share of a core gained. */
static inline void sys_brief_slices(int nice)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attr = {.size = sizeof(attr),
              .flags = 1 /* SCHED_FLAG_RESET_ON_FORK */,
              .nice = nice,
              .runtime = 100000};
    if (syscall(SYS_sched_getscheduler, 0) == 0) /* who is of another kind stays so */
        syscall(SYS_sched_setattr, 0, &attr, 0);
}

#endif
