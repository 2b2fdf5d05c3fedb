/* System calls and constants that the C library of Debian 12 does not carry. Thin inline wrappers:
 * they return what the kernel returns through syscall(2) (-1 and errno). */
#ifndef BASE_SYS_H
#define BASE_SYS_H

#include <linux/openat2.h>
#include <linux/sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

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
#define SYS_LANDLOCK_FS_REFER (1ULL << 13)     /* ABI 2 */
#define SYS_LANDLOCK_FS_TRUNCATE (1ULL << 14)  /* ABI 3 */
#define SYS_LANDLOCK_FS_IOCTL_DEV (1ULL << 15) /* ABI 5 */
#define SYS_LANDLOCK_NET_BIND_TCP (1ULL << 0)    /* ABI 4 */
#define SYS_LANDLOCK_NET_CONNECT_TCP (1ULL << 1) /* ABI 4 */
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

/* ---- processes ---- */
static inline pid_t sys_clone3(struct clone_args *args)
{
    return (pid_t)syscall(SYS_clone3, args, sizeof(*args));
}

static inline int sys_pidfd_send_signal(int pidfd, int sig)
{
    return (int)syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0);
}

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

#endif
