/* Makes named system calls fail with named errors in a program and everything it starts.
 *
 * usage: inject CALL[@N:VALUE|@N&MASK]=ERRNO... [--] CMD [ARG...]
 *   CALL=ERRNO          every use of CALL fails
 *   CALL@N:VALUE=ERRNO  only where argument N (0 to 5) is VALUE
 *   CALL@N&MASK=ERRNO   only where argument N has a bit of MASK
 * Arguments are compared in their low 32 bits. Exit status 125: the launcher itself failed.
 *
 * The filter is inherited, so what CMD runs has it as well. The launcher starts CMD by execveat, so
 * that execve can be among the failing calls. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RULES_MAX 64
#define CODE_MAX (4 + RULES_MAX * 4)
#define LENGTH(a) (sizeof(a) / sizeof(*(a)))

struct name {
    const char *name;
    long value;
};

/* clang-format off */
#define CALL(n) {#n, SYS_##n}
static const struct name calls[] = {
    CALL(accept4), CALL(access), CALL(bpf), CALL(brk), CALL(capget), CALL(capset), CALL(chdir), CALL(chmod),
    CALL(chown), CALL(clock_gettime), CALL(clone), CALL(clone3), CALL(close), CALL(close_range), CALL(connect),
    CALL(dup2), CALL(dup3), CALL(epoll_create1), CALL(epoll_ctl), CALL(epoll_pwait), CALL(epoll_wait),
    CALL(eventfd2), CALL(execve), CALL(faccessat2), CALL(fchdir), CALL(fchmod), CALL(fchmodat), CALL(fchown),
    CALL(fcntl), CALL(flock), CALL(fsconfig), CALL(fsmount), CALL(fsopen), CALL(fstat), CALL(fstatfs), CALL(getcpu),
    CALL(getdents64),
    CALL(getpid), CALL(getrandom), CALL(getrusage), CALL(ioctl), CALL(keyctl), CALL(kill), CALL(lseek), CALL(lstat),
    CALL(madvise), CALL(memfd_create), CALL(mkdir), CALL(mkdirat), CALL(mknodat), CALL(mmap), CALL(mount),
    CALL(move_mount), CALL(mprotect), CALL(munmap), CALL(nanosleep), CALL(newfstatat), CALL(open_tree),
    CALL(openat), CALL(openat2), CALL(pidfd_open), CALL(pidfd_send_signal), CALL(pipe2), CALL(pivot_root),
    CALL(poll), CALL(ppoll), CALL(prctl), CALL(prlimit64), CALL(read), CALL(readlink), CALL(readlinkat),
    CALL(recvmsg), CALL(rename), CALL(rmdir), CALL(rt_sigaction), CALL(rt_sigprocmask),
    CALL(sched_getaffinity), CALL(sched_setaffinity), CALL(seccomp),
    CALL(sendmsg), CALL(sendto), CALL(setgroups), CALL(sethostname), CALL(setns), CALL(setresgid),
    CALL(setresuid), CALL(setsid), CALL(signalfd4), CALL(socket), CALL(socketpair), CALL(splice), CALL(stat),
    CALL(statfs), CALL(statx), CALL(symlinkat), CALL(timerfd_create), CALL(timerfd_settime), CALL(umask),
    CALL(umount2), CALL(uname), CALL(unlink), CALL(unlinkat), CALL(unshare), CALL(wait4), CALL(waitid),
    CALL(write), CALL(writev),
    {"mount_setattr", 442}, {"landlock_create_ruleset", 444}, {"landlock_add_rule", 445},
    {"landlock_restrict_self", 446},
};

#define ERROR(n) {#n, n}
static const struct name errors[] = {
    ERROR(EPERM), ERROR(ENOENT), ERROR(EIO), ERROR(EAGAIN), ERROR(ENOMEM), ERROR(EACCES), ERROR(EBUSY),
    ERROR(EINVAL), ERROR(ENFILE), ERROR(EMFILE), ERROR(ENOSPC), ERROR(EROFS), ERROR(ENOSYS), ERROR(EOPNOTSUPP),
    ERROR(EUSERS), ERROR(EINTR),
};
/* clang-format on */

static struct sock_filter code[CODE_MAX];
static unsigned short code_len;

static void emit(unsigned short op, unsigned char jt, unsigned char jf, unsigned k)
{
    code[code_len++] = (struct sock_filter){op, jt, jf, k};
}

static bool find(const struct name *table, size_t n, const char *text, size_t len, long *ret)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(table[i].name) == len && memcmp(table[i].name, text, len) == 0) {
            *ret = table[i].value;
            return true;
        }
    return false;
}

/* One rule: number, perhaps an argument, answer. Falls through to the next where it does not match.
 */
static bool add_rule(const char *text)
{
    const char *eq = strchr(text, '=');
    size_t len = strcspn(text, "@=");
    long nr, error;
    if (!find(calls, LENGTH(calls), text, len, &nr) ||
        !find(errors, LENGTH(errors), eq + 1, strlen(eq + 1), &error) || code_len + 8 > CODE_MAX)
        return false;
    emit(BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr));
    if (text[len] == '=') {
        emit(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, (unsigned)nr);
    } else {
        char *end;
        unsigned long arg = strtoul(text + len + 1, &end, 10);
        char how = *end;
        unsigned long value = strtoul(how ? end + 1 : end, &end, 0);
        if (arg > 5 || (how != ':' && how != '&') || end != eq)
            return false;
        emit(BPF_JMP | BPF_JEQ | BPF_K, 0, 3, (unsigned)nr);
        emit(BPF_LD | BPF_W | BPF_ABS, 0, 0,
             (unsigned)(offsetof(struct seccomp_data, args) + arg * 8));
        emit((unsigned short)(BPF_JMP | (how == ':' ? BPF_JEQ : BPF_JSET) | BPF_K), 0, 1,
             (unsigned)value);
    }
    emit(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | (unsigned)error);
    return true;
}

static int fail(const char *what)
{
    fprintf(stderr, "inject: %s: %s\n", what, strerror(errno));
    return 125;
}

int main(int argc, char **argv)
{
    int at = 1;
    emit(BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, arch));
    emit(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, AUDIT_ARCH_X86_64);
    emit(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
    for (; at < argc && strchr(argv[at], '=') && argv[at][0] != '/'; at++)
        if (!add_rule(argv[at])) {
            fprintf(stderr, "inject: %s: not CALL[@N:VALUE|@N&MASK]=ERRNO\n", argv[at]);
            return 125;
        }
    if (at < argc && strcmp(argv[at], "--") == 0)
        at++;
    if (at >= argc) {
        fprintf(stderr, "usage: inject CALL[@N:VALUE|@N&MASK]=ERRNO... [--] CMD [ARG...]\n");
        return 125;
    }
    emit(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);

    extern char **environ;
    struct sock_fprog prog = {code_len, code};
    /* Root needs no no_new_privs for this, and the program under test is to set its own. */
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0 &&
        (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
         syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0))
        return fail("filter");
    syscall(SYS_execveat, AT_FDCWD, argv[at], argv + at, environ, 0);
    return fail(argv[at]);
}
