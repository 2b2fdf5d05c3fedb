/* What the broker gives up: at its start all rights but two, the rest with its policy, before it
 * looks at a single byte of the guest's. Runs in the broker.
 *
 * It keeps: sockets of the Internet families, pipes, its memory, the clock. It cannot open a file,
 * start or trace a process, or make a socket of any other kind. Anything else ends it, and with it
 * the guest's way out. */
#include <errno.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "base/util.h"
#include "net/broker_internal.h"

/* Next to those of root's guests (PLAN_ID_BASE), and nobody's. */
#define LOCK_ID 1999999999u
#define LOCK_ID_SMALL 65534u /* where this user namespace has no such id */
#define LOCK_FDS_OTHER 960   /* listeners, published ports, questions to the resolver */
#define LOCK_FDS_PER_CONN 4  /* two sockets, and a pipe in half of the cases */

int broker_lock_files(size_t *ret_max_conns)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return -1;
    rlim_t wanted = LOCK_FDS_OTHER + (rlim_t)BROKER_CONNS_MAX * LOCK_FDS_PER_CONN;
    files.rlim_max = MIN(files.rlim_max, wanted);
    files.rlim_cur = files.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &files) < 0)
        return -1;
    rlim_t other = MIN((rlim_t)LOCK_FDS_OTHER, files.rlim_max / 4 * 3);
    *ret_max_conns =
        MIN((size_t)BROKER_CONNS_MAX, (size_t)((files.rlim_max - other) / LOCK_FDS_PER_CONN));
    return 0;
}

/* Bare system calls: one thread, and no talk with others that do not exist. */
static int lock_ids(void)
{
    if (getuid() != 0)
        return 0;
    unsigned id = LOCK_ID;
    if (syscall(SYS_setgroups, 0, NULL) < 0)
        return -1;
    if (syscall(SYS_setresgid, id, id, id) < 0) {
        id = LOCK_ID_SMALL;
        if (syscall(SYS_setresgid, id, id, id) < 0)
            return -1;
    }
    return (int)syscall(SYS_setresuid, id, id, id);
}

/* Of what we have, no more than these of the first 32. */
static int lock_capabilities(uint32_t keep)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[2] = {0};
    if (keep && syscall(SYS_capget, &head, caps) < 0)
        return -1;
    keep &= caps[0].permitted;
    const struct __user_cap_data_struct rest[2] = {{.effective = keep, .permitted = keep}};
    return (int)syscall(SYS_capset, &head, rest);
}

#define NR_LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define IF_NOT(value, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, (skip))
#define RET(action) BPF_STMT(BPF_RET | BPF_K, (action))

static const int lock_calls[] = {
    SYS_read,        SYS_write,         SYS_readv,          SYS_writev,
    SYS_close,       SYS_recvfrom,      SYS_recvmsg,        SYS_sendto,
    SYS_sendmsg,     SYS_accept4,       SYS_connect,        SYS_bind,
    SYS_getsockname, SYS_getpeername,   SYS_getsockopt,     SYS_setsockopt,
    SYS_shutdown,    SYS_epoll_wait,    SYS_epoll_pwait,    SYS_epoll_ctl,
    SYS_splice,      SYS_pipe2,         SYS_fcntl,          SYS_poll,
    SYS_ppoll,       SYS_clock_gettime, SYS_gettimeofday,   SYS_getrandom,
    SYS_brk,         SYS_munmap,        SYS_mremap,         SYS_madvise,
    SYS_futex,       SYS_rt_sigreturn,  SYS_rt_sigprocmask, SYS_restart_syscall,
    SYS_exit,        SYS_exit_group,    SYS_getpid,         SYS_gettid,
};

static int lock_filter(void)
{
    /* Memory may be asked for but never made executable, and sockets are Internet ones. Every
     * comparison below looks at the low half of an argument, where all of these values are. */
    static struct sock_filter program[12 + 2 * sizeof(lock_calls) / sizeof(lock_calls[0]) + 16];
    unsigned n = 0;
    program[n++] = (struct sock_filter)NR_LOAD(arch);
    program[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
    program[n++] = (struct sock_filter)RET(SECCOMP_RET_KILL_PROCESS);
    program[n++] = (struct sock_filter)NR_LOAD(nr);
    for (size_t i = 0; i < ARRAY_SIZE(lock_calls); i++) {
        program[n++] = (struct sock_filter)IF_NOT((uint32_t)lock_calls[i], 1);
        program[n++] = (struct sock_filter)RET(SECCOMP_RET_ALLOW);
    }
    const struct sock_filter rest[] = {
        IF_NOT(SYS_mmap, 4),
        NR_LOAD(args[2]),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
        RET(SECCOMP_RET_KILL_PROCESS),
        RET(SECCOMP_RET_ALLOW),
        IF_NOT(SYS_socket, 5),
        NR_LOAD(args[0]),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 1, 0),
        RET(SECCOMP_RET_ERRNO | EAFNOSUPPORT),
        RET(SECCOMP_RET_ALLOW),
        RET(SECCOMP_RET_KILL_PROCESS),
    };
    for (size_t i = 0; i < ARRAY_SIZE(rest); i++)
        program[n++] = rest[i];
    struct sock_fprog prog = {.len = (unsigned short)n, .filter = program};
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog);
}

#ifdef __SANITIZE_ADDRESS__
#define LOCK_DATA RLIM_INFINITY /* its map of all memory is counted as ours */
#else
#define LOCK_DATA ((rlim_t)1 << 30)
#endif

static int lock_limits(void)
{
    const struct rlimit core = {1, 1}, none = {0, 0}, memory = {LOCK_DATA, LOCK_DATA};
    return setrlimit(RLIMIT_CORE, &core) < 0 || setrlimit(RLIMIT_FSIZE, &none) < 0 ||
                   setrlimit(RLIMIT_NPROC, &none) < 0 || setrlimit(RLIMIT_DATA, &memory) < 0
               ? -1
               : 0;
}

/* Root's can become somebody else, and read what is root's own: the resolver's files. */
int broker_lock_first(void)
{
    if (lock_limits() < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_DUMPABLE, 0) < 0)
        return -1;
    return lock_capabilities(1u << CAP_SETUID | 1u << CAP_SETGID);
}

int broker_lock_down(void)
{
    /* another user may be looked into again, as far as the host's fs.suid_dumpable says */
    if (lock_ids() < 0 || lock_capabilities(0) < 0 || prctl(PR_SET_DUMPABLE, 0) < 0)
        return -1;
    return lock_filter();
}
