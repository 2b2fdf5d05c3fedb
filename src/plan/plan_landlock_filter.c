/* What tier landlock adds in front of the built-in filter: calls that reach host objects Landlock
 * does not watch over, and that a root or a uid of its own answers elsewhere. Pure, runs in the
 * supervisor.
 *
 * Each row is a few instructions that jump only within themselves; what no row takes goes on to the
 * built-in filter, which begins by loading what it needs. A row that goes to the listener is
 * carried out by the keeper where it is harmless (keeper_serve.c). */
#include "plan/plan_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/err.h"
#include "base/util.h"
#include "plan/seccomp_asm.h"

#define ROWS_MAX 512
#define NR_FCHMODAT2 452
#define NR_SETXATTRAT 463
#define NR_GETXATTRAT 464
#define NR_LISTXATTRAT 465
#define NR_REMOVEXATTRAT 466

struct rows {
    struct sock_filter insns[ROWS_MAX];
    unsigned n;
};

static void put(struct rows *r, uint16_t code, uint32_t k, uint8_t yes, uint8_t no)
{
    if (r->n < ROWS_MAX)
        r->insns[r->n] = (struct sock_filter){code, yes, no, k};
    r->n++;
}

static void put_load(struct rows *r, size_t offset)
{
    put(r, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static void put_if(struct rows *r, uint32_t k, uint8_t yes, uint8_t no)
{
    put(r, BPF_JMP | BPF_JEQ | BPF_K, k, yes, no);
}

static void put_ret(struct rows *r, uint32_t action)
{
    put(r, BPF_RET | BPF_K, action, 0, 0);
}

static uint32_t plain(int error)
{
    return SECCOMP_RET_ERRNO | (uint32_t)error;
}

/* Every use of a call. */
static void row(struct rows *r, int nr, uint32_t action)
{
    put_if(r, (uint32_t)nr, 0, 1);
    put_ret(r, action);
}

/* (argument & mask) == value; only the low word: the kernel takes these as int. */
static void row_if(struct rows *r, int nr, unsigned arg, uint32_t mask, uint32_t value,
                   uint32_t action)
{
    put_if(r, (uint32_t)nr, 0, 5);
    put_load(r, SECCOMP_ARG_LOW(arg));
    put(r, BPF_ALU | BPF_AND | BPF_K, mask, 0, 0);
    put_if(r, value, 0, 1);
    put_ret(r, action);
    put_load(r, offsetof(struct seccomp_data, nr));
}

/* argument != 0 */
static void row_unless_zero(struct rows *r, int nr, unsigned arg, uint32_t action)
{
    put_if(r, (uint32_t)nr, 0, 4);
    put_load(r, SECCOMP_ARG_LOW(arg));
    put_if(r, 0, 1, 0);
    put_ret(r, action);
    put_load(r, offsetof(struct seccomp_data, nr));
}

/* Landlock does not look at connections to unix sockets that have a path, and the host's message
 * buses, agents and daemons listen on such. The address is behind a pointer, so no connection can
 * be let through; pairs remain. Datagrams carry their address in each message: none of those. */
static void rows_sockets(struct rows *r)
{
    row(r, SYS_connect, plain(EACCES));
    row_if(r, SYS_socket, 1, 0xf, SOCK_DGRAM, plain(EACCES));
    row_if(r, SYS_socketpair, 1, 0xf, SOCK_DGRAM, plain(EACCES));
    /* watching shows the names and the use of files the guest may not open */
    row(r, SYS_inotify_add_watch, plain(EACCES));
}

/* Attributes of files are changed by their owner or by whoever may write to them, whatever Landlock
 * allows: with the caller's uid that is every file of the caller, with any uid those open to all.
 * The keeper changes modes and times inside writable paths. */
static void rows_attributes(struct rows *r, uint32_t served)
{
    static const int serve[] = {SYS_chmod, SYS_fchmod, SYS_fchmodat,  NR_FCHMODAT2,
                                SYS_utime, SYS_utimes, SYS_futimesat, SYS_utimensat};
    /* reading them needs no open file either */
    static const int no_xattr[] = {
        SYS_setxattr,    SYS_lsetxattr,    SYS_fsetxattr,    NR_SETXATTRAT,
        SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr, NR_REMOVEXATTRAT,
        SYS_getxattr,    SYS_lgetxattr,    SYS_fgetxattr,    NR_GETXATTRAT,
        SYS_listxattr,   SYS_llistxattr,   SYS_flistxattr,   NR_LISTXATTRAT};
    static const int no_owner[] = {SYS_chown, SYS_fchown, SYS_lchown, SYS_fchownat};
    /* FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, FS_IOC_SETVERSION, FS_IOC_ENABLE_VERITY,
     * FS_IOC_SET_ENCRYPTION_POLICY: a descriptor for reading is enough for these */
    static const uint32_t no_ioctl[] = {0x40086602, 0x401c5820, 0x40087602, 0x40806685, 0x800c6613};
    for (size_t i = 0; i < ARRAY_SIZE(serve); i++)
        row(r, serve[i], served);
    for (size_t i = 0; i < ARRAY_SIZE(no_xattr); i++)
        row(r, no_xattr[i], plain(EOPNOTSUPP)); /* as on a file system that has none */
    for (size_t i = 0; i < ARRAY_SIZE(no_owner); i++)
        row(r, no_owner[i], plain(EPERM));
    for (size_t i = 0; i < ARRAY_SIZE(no_ioctl); i++)
        row_if(r, SYS_ioctl, 1, ~0u, no_ioctl[i], plain(EPERM));
    /* btrfs makes subvolumes through a folder that was opened for reading; copying falls back */
    row_if(r, SYS_ioctl, 1, 0xff00, 0x9400, plain(EOPNOTSUPP));
}

/* Limits, priorities and cores of other processes of the same uid (the keeper has it too): only
 * one's own. */
static void rows_processes(struct rows *r)
{
    static const int first[] = {SYS_prlimit64, SYS_sched_setaffinity, SYS_sched_setscheduler,
                                SYS_sched_setparam, SYS_sched_setattr};
    for (size_t i = 0; i < ARRAY_SIZE(first); i++)
        row_unless_zero(r, first[i], 0, plain(EPERM));
    row_if(r, SYS_setpriority, 0, ~0u, 2 /* PRIO_USER */, plain(EPERM));
    row_unless_zero(r, SYS_setpriority, 1, plain(EPERM));
    row_if(r, SYS_ioprio_set, 0, ~0u, 3 /* IOPRIO_WHO_USER */, plain(EPERM));
    row_unless_zero(r, SYS_ioprio_set, 1, plain(EPERM));
}

/* What older Landlock does not know yet. */
static void rows_old(struct rows *r, int abi, uint32_t served)
{
    if (abi < 3) { /* truncation, also by an open for reading */
        row(r, SYS_truncate, plain(EACCES));
        row_if(r, SYS_open, 1, O_TRUNC | O_ACCMODE, O_TRUNC | O_RDONLY, plain(EACCES));
        row_if(r, SYS_openat, 2, O_TRUNC | O_ACCMODE, O_TRUNC | O_RDONLY, plain(EACCES));
    }
    if (abi >= 6)
        return;
    /* Signals: the keeper sends them, within the guest's process group. Without the listener there
     * is no telling whose processes are meant. */
    row(r, SYS_kill, served);
    row(r, SYS_tkill, served);
    row(r, SYS_tgkill, served);
    row(r, SYS_rt_sigqueueinfo, plain(EPERM));
    row(r, SYS_rt_tgsigqueueinfo, plain(EPERM));
    row(r, SYS_pidfd_send_signal, plain(EPERM));
    row_if(r, SYS_fcntl, 1, ~0u, 8 /* F_SETOWN */, plain(EPERM));
    row_if(r, SYS_fcntl, 1, ~0u, 15 /* F_SETOWN_EX */, plain(EPERM));
    row_if(r, SYS_ioctl, 1, ~0u, 0x8901 /* FIOSETOWN */, plain(EPERM));
    row_if(r, SYS_ioctl, 1, ~0u, 0x8902 /* SIOCSPGRP */, plain(EPERM));
}

int plan_landlock_filter(struct plan *p, struct cordon_err *err)
{
    struct seccomp_prog *prog = &p->filter;
    struct rows body = {.n = 0};
    uint32_t served = p->filter_options.notify ? SECCOMP_RET_USER_NOTIF : plain(EPERM);
    put_load(&body, offsetof(struct seccomp_data, nr));
    rows_sockets(&body);
    rows_attributes(&body, served);
    rows_processes(&body);
    rows_old(&body, p->landlock_abi, served);

    /* Another architecture's numbers mean other calls: the built-in filter refuses them all. */
    struct rows head = {.n = 0};
    put_load(&head, offsetof(struct seccomp_data, arch));
    put_if(&head, AUDIT_ARCH_X86_64, 1, 0);
    put(&head, BPF_JMP | BPF_JA, body.n, 0, 0);

    unsigned n = head.n + body.n + prog->len;
    if (body.n > ROWS_MAX || n > BPF_MAXINSNS)
        return err_set(err, CORDON_ERR_CONFIG, "plan", 0,
                       "system-call filter: more than %d instructions", BPF_MAXINSNS);
    struct sock_filter *insns = malloc(n * sizeof(*insns));
    if (!insns)
        return err_nomem(err, "plan");
    memcpy(insns, head.insns, head.n * sizeof(*insns));
    memcpy(insns + head.n, body.insns, body.n * sizeof(*insns));
    memcpy(insns + head.n + body.n, prog->insns, prog->len * sizeof(*insns));
    free(prog->insns);
    *prog = (struct seccomp_prog){insns, (unsigned short)n};
    return 0;
}
