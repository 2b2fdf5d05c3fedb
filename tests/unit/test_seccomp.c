/* The system-call filter: each rule by the user-space evaluator with its allow twin, the whole
 * table against its invariants, profiles, and one round through the real kernel. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/util.h"
#include "plan/seccomp.h"

#define OK SECCOMP_RET_ALLOW
#define NOTIFY SECCOMP_RET_USER_NOTIF
#define FAIL(e) (SECCOMP_RET_ERRNO | (e))
#define HIGH 0xdeadbeef00000000ULL

static uint32_t answer_arch(const struct seccomp_prog *prog, uint32_t arch, uint32_t nr,
                            const uint64_t args[6])
{
    struct seccomp_data data = {.nr = (int)nr, .arch = arch};
    memcpy(data.args, args, sizeof(data.args));
    return seccomp_eval(prog, &data);
}

static uint32_t answer(const struct seccomp_prog *prog, const char *call, const uint64_t args[6])
{
    int nr = seccomp_call_number(call);
    if (nr < 0)
        fail_msg("no call %s", call);
    return answer_arch(prog, AUDIT_ARCH_X86_64, (uint32_t)nr, args);
}

static struct seccomp_prog build(const struct seccomp_options *options)
{
    struct seccomp_prog prog;
    struct cordon_err err;
    assert_int_equal(seccomp_build(options, &prog, &err), 0);
    return prog;
}

struct call_case {
    const char *call;
    uint64_t args[6];
    uint32_t expected;
};

static void run_cases(const struct seccomp_options *options, const struct call_case *cases,
                      size_t n)
{
    struct seccomp_prog prog = build(options);
    for (size_t i = 0; i < n; i++) {
        uint32_t got = answer(&prog, cases[i].call, cases[i].args);
        if (got != cases[i].expected)
            fail_msg("%s(%#llx, %#llx, %#llx): got %#x, expected %#x", cases[i].call,
                     (unsigned long long)cases[i].args[0], (unsigned long long)cases[i].args[1],
                     (unsigned long long)cases[i].args[2], got, cases[i].expected);
    }
    seccomp_done(&prog);
}

static const struct seccomp_options loud = {.notify = true};

/* clang-format off */
static void test_constant_answers(void **state)
{
    (void)state;
    static const char *const allowed[] = {
        "read", "write", "openat", "openat2", "mmap", "mprotect", "execve", "execveat", "fork",
        "vfork", "wait4", "futex", "rseq", "sched_getaffinity", "rt_sigaction", "tgkill",
        "epoll_wait", "eventfd2", "statx", "prlimit64", "memfd_create", "pidfd_open",
        "pidfd_getfd", "pidfd_send_signal", "close_range", "landlock_create_ruleset",
        "process_vm_readv", "kcmp", "shmget", "semget", "mq_open", "setsid", "setpgid", "mlock",
        "setpriority", "membarrier", "get_mempolicy", "splice", "tee", "fchmodat2", "mseal",
        "map_shadow_stack", "futex_waitv", "recvfrom", "recvmsg", "connect", "bind",
        "inotify_init1", "capset", "setgroups"};
    static const char *const refused[] = {
        "mount", "umount2", "pivot_root", "chroot", "setns", "bpf", "perf_event_open",
        "userfaultfd", "keyctl", "add_key", "request_key", "kexec_load", "kexec_file_load",
        "init_module", "finit_module", "delete_module", "iopl", "ioperm", "swapon", "swapoff",
        "reboot", "acct", "quotactl", "quotactl_fd", "syslog", "lookup_dcookie", "vhangup",
        "fanotify_init", "open_by_handle_at", "modify_ldt", "settimeofday", "clock_settime",
        "sethostname", "setdomainname"};
    static const char *const missing[] = {
        "clone3", "fsopen", "fsconfig", "fsmount", "fspick", "open_tree", "move_mount",
        "mount_setattr", "open_tree_attr", "io_uring_setup", "io_uring_enter",
        "io_uring_register", "statmount", "listmount", "memfd_secret", "vmsplice", "io_setup",
        "remap_file_pages"};
    static const char *const plain[] = {
        "adjtimex", "clock_adjtime", "set_mempolicy", "mbind", "move_pages", "migrate_pages"};
    static const uint64_t none[6];
    static const struct seccomp_options silent = {0};
    struct seccomp_prog prog = build(&loud), quiet = build(&silent);
    for (size_t i = 0; i < ARRAY_SIZE(allowed); i++)
        if (answer(&prog, allowed[i], none) != OK)
            fail_msg("%s is not allowed", allowed[i]);
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
        assert_int_equal(answer(&prog, refused[i], none), NOTIFY);
        assert_int_equal(answer(&quiet, refused[i], none), FAIL(EPERM));
    }
    for (size_t i = 0; i < ARRAY_SIZE(missing); i++)
        assert_int_equal(answer(&prog, missing[i], none), FAIL(ENOSYS));
    for (size_t i = 0; i < ARRAY_SIZE(plain); i++)
        assert_int_equal(answer(&prog, plain[i], none), FAIL(EPERM));
    assert_int_equal(answer(&prog, "name_to_handle_at", none), FAIL(EOPNOTSUPP));
    seccomp_done(&prog);
    seccomp_done(&quiet);
}
/* clang-format on */

static void test_foreign_entries(void **state)
{
    (void)state;
    static const uint64_t none[6];
    struct seccomp_prog prog = build(&loud);
    for (uint32_t nr = 0; nr < 1000; nr++) {
        assert_int_equal(answer_arch(&prog, AUDIT_ARCH_I386, nr, none), FAIL(ENOSYS));
        assert_int_equal(answer_arch(&prog, 0, nr, none), FAIL(ENOSYS));
        assert_int_equal(answer_arch(&prog, AUDIT_ARCH_X86_64, 0x40000000 | nr, none),
                         FAIL(ENOSYS));
    }
    for (uint32_t nr = 470; nr < 1000; nr++)
        assert_int_equal(answer_arch(&prog, AUDIT_ARCH_X86_64, nr, none), FAIL(ENOSYS));
    assert_int_equal(answer_arch(&prog, AUDIT_ARCH_X86_64, 0xffffffff, none), FAIL(ENOSYS));
    assert_int_equal(answer_arch(&prog, AUDIT_ARCH_X86_64, 0x80000000, none), FAIL(ENOSYS));
    seccomp_done(&prog);
}

static void test_namespaces(void **state)
{
    (void)state;
    static const struct call_case cases[] = {
        {"clone", {SIGCHLD}, OK},
        {"clone", {0x3d0f00 /* a thread of glibc's */}, OK},
        {"clone", {HIGH | SIGCHLD}, OK},
        {"clone", {CLONE_VM | CLONE_VFORK | SIGCHLD}, OK},
        {"clone", {CLONE_NEWUSER | SIGCHLD}, NOTIFY},
        {"clone", {CLONE_NEWNS}, NOTIFY},
        {"clone", {CLONE_NEWPID}, NOTIFY},
        {"clone", {CLONE_NEWNET}, NOTIFY},
        {"clone", {CLONE_NEWIPC}, NOTIFY},
        {"clone", {CLONE_NEWUTS}, NOTIFY},
        {"clone", {CLONE_NEWCGROUP}, NOTIFY},
        {"unshare", {CLONE_FILES | CLONE_FS | CLONE_SYSVSEM}, OK},
        {"unshare", {0}, OK},
        {"unshare", {CLONE_NEWUSER}, NOTIFY},
        {"unshare", {CLONE_FILES | CLONE_NEWNS}, NOTIFY},
        {"unshare", {0x80 /* CLONE_NEWTIME */}, NOTIFY},
        {"setns", {3, 0}, NOTIFY},
        {"seccomp", {1, 0}, OK},
        {"seccomp", {1, 1 /* TSYNC */}, OK},
        {"seccomp", {1, SECCOMP_FILTER_FLAG_NEW_LISTENER}, NOTIFY},
        {"seccomp", {1, HIGH | SECCOMP_FILTER_FLAG_NEW_LISTENER | 1}, NOTIFY},
        {"ptrace", {0x10, 1, 0, 1 << 21}, OK},
        {"ptrace", {0x4206, 1, 0, 1}, OK},
        {"ptrace", {0x4206, 1, 0, 1 << 21}, NOTIFY},
        {"ptrace", {HIGH | 0x4200, 1, 0, 1 << 21}, NOTIFY},
    };
    run_cases(&loud, cases, ARRAY_SIZE(cases));
}

static void test_sockets(void **state)
{
    (void)state;
    static const struct call_case cases[] = {
        {"socket", {AF_UNIX, SOCK_STREAM, 0}, OK},
        {"socket", {AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0}, OK},
        {"socket", {AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0}, OK},
        {"socket", {AF_UNIX, SOCK_RAW, 0}, NOTIFY},
        {"socket", {AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0}, OK},
        {"socket", {AF_INET, SOCK_STREAM, IPPROTO_TCP}, OK},
        {"socket", {AF_INET6, SOCK_DGRAM, IPPROTO_UDP}, OK},
        {"socket", {AF_INET6, SOCK_DGRAM, 0}, OK},
        {"socket", {HIGH | AF_INET, HIGH | SOCK_STREAM, HIGH}, OK},
        {"socket", {AF_INET, SOCK_STREAM, IPPROTO_UDP}, FAIL(EPROTONOSUPPORT)},
        {"socket", {AF_INET, SOCK_DGRAM, IPPROTO_TCP}, FAIL(EPROTONOSUPPORT)},
        {"socket", {AF_INET, SOCK_STREAM, 262 /* MPTCP */}, FAIL(EPROTONOSUPPORT)},
        {"socket", {AF_INET, SOCK_STREAM, 132 /* SCTP */}, FAIL(EPROTONOSUPPORT)},
        {"socket", {AF_INET, SOCK_DGRAM, 1 /* ICMP */}, FAIL(EPROTONOSUPPORT)},
        {"socket", {AF_INET, SOCK_RAW, 1}, NOTIFY},
        {"socket", {AF_INET6, SOCK_RAW | SOCK_CLOEXEC, 58}, NOTIFY},
        {"socket", {AF_INET, SOCK_SEQPACKET, 132}, NOTIFY},
        {"socket", {AF_NETLINK, SOCK_RAW, 0}, FAIL(EAFNOSUPPORT)},
        {"socket", {AF_PACKET, SOCK_RAW, 0}, NOTIFY},
        {"socket", {38 /* ALG */, SOCK_SEQPACKET, 0}, NOTIFY},
        {"socket", {40 /* VSOCK */, SOCK_STREAM, 0}, NOTIFY},
        {"socket", {44 /* XDP */, SOCK_RAW, 0}, NOTIFY},
        {"socket", {0xffffffff, SOCK_STREAM, 0}, NOTIFY},
        {"socketpair", {AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0}, OK},
        {"socketpair", {AF_INET, SOCK_STREAM, 0}, NOTIFY},
        {"socketpair", {30 /* TIPC */, SOCK_STREAM, 0}, NOTIFY},
        {"sendto", {3, 0, 0, MSG_NOSIGNAL}, OK},
        {"sendto", {3, 0, 0, MSG_OOB | MSG_NOSIGNAL}, FAIL(EOPNOTSUPP)},
        {"sendmsg", {3, 0, 0, MSG_OOB /* not its flags */}, OK},
        {"sendmsg", {3, 0, HIGH | MSG_OOB}, FAIL(EOPNOTSUPP)},
        {"sendmmsg", {3, 0, 1, MSG_OOB}, FAIL(EOPNOTSUPP)},
        {"sendmmsg", {3, 0, 1, 0}, OK},
    };
    run_cases(&loud, cases, ARRAY_SIZE(cases));
}

static void test_socket_options(void **state)
{
    (void)state;
    static const struct call_case cases[] = {
        {"setsockopt", {3, SOL_SOCKET, SO_REUSEADDR}, OK},
        {"setsockopt", {3, SOL_SOCKET, 26 /* SO_ATTACH_FILTER */}, OK},
        {"setsockopt", {3, SOL_SOCKET, 50}, NOTIFY},
        {"setsockopt", {3, SOL_SOCKET, 52}, NOTIFY},
        {"setsockopt", {3, 6, 1 /* TCP_NODELAY */}, OK},
        {"setsockopt", {3, 6, 31 /* TCP_ULP */}, FAIL(EPERM)},
        {"setsockopt", {3, HIGH | 6, HIGH | 31}, FAIL(EPERM)},
        {"setsockopt", {3, 6, 38 /* TCP_AO_ADD_KEY */}, FAIL(EPERM)},
        {"setsockopt", {3, 17, 103 /* UDP_SEGMENT */}, OK},
        {"setsockopt", {3, 17, 100 /* UDP_ENCAP */}, NOTIFY},
        {"setsockopt", {3, 0, 1 /* IP_TOS */}, OK},
        {"setsockopt", {3, 0, 33 /* IP_MULTICAST_TTL */}, OK},
        {"setsockopt", {3, 0, 49 /* IP_MULTICAST_ALL */}, OK},
        {"setsockopt", {3, 0, 35}, NOTIFY},
        {"setsockopt", {3, 0, 39}, NOTIFY},
        {"setsockopt", {3, 0, 42}, NOTIFY},
        {"setsockopt", {3, 0, 46}, NOTIFY},
        {"setsockopt", {3, 0, 64}, NOTIFY},
        {"setsockopt", {3, 0, 200}, NOTIFY},
        {"setsockopt", {3, 41, 26 /* IPV6_V6ONLY */}, OK},
        {"setsockopt", {3, 41, 67 /* IPV6_TCLASS */}, OK},
        {"setsockopt", {3, 41, 20}, NOTIFY},
        {"setsockopt", {3, 41, 42}, NOTIFY},
        {"setsockopt", {3, 41, 64}, NOTIFY},
    };
    run_cases(&loud, cases, ARRAY_SIZE(cases));
}

static void test_small_checks(void **state)
{
    (void)state;
    static const struct call_case cases[] = {
        {"ioctl", {0, TCGETS}, OK},
        {"ioctl", {0, TIOCGWINSZ}, OK},
        {"ioctl", {0, FIONREAD}, OK},
        {"ioctl", {0, TIOCSTI}, NOTIFY},
        {"ioctl", {0, 0x100000000ULL | TIOCSTI}, NOTIFY},
        {"ioctl", {0, HIGH | TIOCLINUX}, NOTIFY},
        {"ioctl", {0, TIOCCONS}, NOTIFY},
        {"ioctl", {0, TIOCSETD}, NOTIFY},
        {"prctl", {PR_SET_NAME}, OK},
        {"prctl", {PR_SET_DUMPABLE}, OK},
        {"prctl", {PR_SET_SECCOMP}, OK},
        {"prctl", {PR_SET_NO_NEW_PRIVS}, OK},
        {"prctl", {PR_SET_PTRACER}, OK},
        {"prctl", {0x53564d41}, OK},
        {"prctl", {PR_SET_MM}, NOTIFY},
        {"prctl", {HIGH | PR_SET_MM}, NOTIFY},
        {"prctl", {62 /* SCHED_CORE */}, FAIL(EINVAL)},
        {"prctl", {67 /* MEMORY_MERGE */}, FAIL(EINVAL)},
        {"prctl", {0}, FAIL(EINVAL)},
        {"prctl", {0xffffffff}, FAIL(EINVAL)},
        {"arch_prctl", {0x1002}, OK},
        {"arch_prctl", {0x1023}, OK},
        {"arch_prctl", {0x2001 /* ARCH_MAP_VDSO_X32 */}, FAIL(EINVAL)},
        {"personality", {0}, OK},
        {"personality", {8}, OK},
        {"personality", {0x20000}, OK},
        {"personality", {0x20008}, OK},
        {"personality", {0xffffffff}, OK},
        {"personality", {0x40000}, FAIL(EPERM)},
        {"personality", {HIGH | 0x400000}, FAIL(EPERM)},
        {"mknod", {0, S_IFIFO | 0600}, OK},
        {"mknod", {0, 0600}, OK},
        {"mknod", {0, S_IFSOCK | 0600}, OK},
        {"mknod", {0, S_IFCHR | 0600}, NOTIFY},
        {"mknod", {0, S_IFBLK | 0600}, NOTIFY},
        {"mknodat", {0, 0, S_IFIFO | 0600}, OK},
        {"mknodat", {0, 0, HIGH | S_IFCHR}, NOTIFY},
    };
    run_cases(&loud, cases, ARRAY_SIZE(cases));
}

static void test_suid_bits(void **state)
{
    (void)state;
    static const struct seccomp_options on = {.notify = true, .refuse_suid_bits = true};
    static const struct call_case cases[] = {
        {"chmod", {0, 0755}, OK},
        {"chmod", {0, 04755}, NOTIFY},
        {"chmod", {0, HIGH | 02755}, NOTIFY},
        {"chmod", {0, 01777}, OK},
        {"fchmod", {0, 06000}, NOTIFY},
        {"fchmodat", {04755, 04755, 0644}, OK},
        {"fchmodat", {0, 0, 04755}, NOTIFY},
        {"fchmodat2", {0, 0, 02755}, NOTIFY},
        {"fchmodat2", {0, 0, 0755}, OK},
        {"creat", {0, 04755}, NOTIFY},
        {"creat", {0, 0644}, OK},
        {"open", {0, O_RDONLY, 04755 /* garbage: nothing is created */}, OK},
        {"open", {0, O_WRONLY | O_CREAT, 0644}, OK},
        {"open", {0, O_WRONLY | O_CREAT, 04755}, NOTIFY},
        {"open", {0, O_DIRECTORY, 04755}, OK},
        {"openat", {0, 0, O_RDONLY, 06777}, OK},
        {"openat", {0, 0, O_RDWR | O_CREAT | O_EXCL, 0600}, OK},
        {"openat", {0, 0, HIGH | O_CREAT, HIGH | 02755}, NOTIFY},
        {"openat", {0, 0, O_RDWR | O_TMPFILE, 04700}, NOTIFY},
        {"openat", {0, 0, O_RDWR | O_TMPFILE, 0700}, OK},
        {"openat2", {0}, FAIL(ENOSYS)},
        {"mkdir", {0, 0755}, OK},
        {"mkdir", {0, 02755}, NOTIFY},
        {"mkdirat", {0, 0, 0755}, OK},
        {"mkdirat", {0, 0, 02755}, NOTIFY},
        {"mknod", {0, S_IFREG | 0644}, OK},
        {"mknod", {0, S_IFREG | 04755}, NOTIFY},
        {"mknod", {0, S_IFCHR | 0644}, NOTIFY},
        {"mknodat", {0, 0, S_IFREG | 02755}, NOTIFY},
        {"mknodat", {0, 0, S_IFIFO | 0644}, OK},
    };
    run_cases(&on, cases, ARRAY_SIZE(cases));
    struct call_case twins[ARRAY_SIZE(cases)];
    memcpy(twins, cases, sizeof(cases));
    for (size_t i = 0; i < ARRAY_SIZE(twins); i++)
        if (!(strstr(twins[i].call, "mknod") && (twins[i].args[1] & S_IFMT) == S_IFCHR))
            twins[i].expected = OK;
    run_cases(&loud, twins, ARRAY_SIZE(twins));
}

/* Pages set aside by the administrator: no control group counts them. With and without the other
 * checks of the same calls; the high word of a flag is not the kernel's. */
static void test_huge_pages(void **state)
{
    (void)state;
    static const struct call_case cases[] = {
        {"mmap", {0, 1 << 21, 3, 0x40022}, FAIL(ENOMEM)},
        {"mmap", {0, 1 << 21, 3, 0x54040022}, FAIL(ENOMEM)}, /* a size of its own */
        {"mmap", {0, 1 << 21, 3, 0x22}, OK},
        {"mmap", {0, 4096, 1, UINT64_C(0x4000000000002)}, OK},
        {"memfd_create", {0, 4}, FAIL(ENOMEM)},
        {"memfd_create", {0, 0x54000005}, FAIL(ENOMEM)},
        {"memfd_create", {0, 3}, OK},
        {"shmget", {0, 1 << 21, 04600}, FAIL(ENOMEM)},
        {"shmget", {0, 1 << 21, 01600}, OK},
    };
    static const struct seccomp_options ways[] = {
        {0}, {.notify = true}, {.map_limit = UINT64_C(1) << 30}, {.refuse_suid_bits = true}};
    for (size_t i = 0; i < ARRAY_SIZE(ways); i++)
        run_cases(&ways[i], cases, ARRAY_SIZE(cases));
}

/* One call per option: refused with it, allowed without it. */
static void test_options(void **state)
{
    (void)state;
    static const struct {
        struct seccomp_options on;
        struct call_case with;
    } cases[] = {
        {{.notify = true, .refuse_memfd = true}, {"memfd_create", {0}, NOTIFY}},
        {{.refuse_memfd = true}, {"memfd_create", {0}, FAIL(EPERM)}},
        {{.refuse_inet = true}, {"socket", {AF_INET, SOCK_STREAM, 0}, FAIL(EACCES)}},
        {{.refuse_inet = true}, {"socket", {AF_INET6, SOCK_DGRAM, 17}, FAIL(EACCES)}},
        {{.refuse_shared_ipc = true}, {"shmget", {0}, FAIL(EPERM)}},
        {{.refuse_shared_ipc = true}, {"shmat", {0}, FAIL(EPERM)}},
        {{.refuse_shared_ipc = true}, {"semget", {0}, FAIL(EPERM)}},
        {{.refuse_shared_ipc = true}, {"msgget", {0}, FAIL(EPERM)}},
        {{.refuse_shared_ipc = true}, {"mq_open", {0}, FAIL(EPERM)}},
        {{.refuse_new_session = true}, {"setsid", {0}, FAIL(EPERM)}},
        {{.refuse_new_session = true}, {"setpgid", {0}, FAIL(EPERM)}},
        {{.refuse_fork = true}, {"fork", {0}, FAIL(EAGAIN)}},
        {{.refuse_fork = true}, {"vfork", {0}, FAIL(EAGAIN)}},
        {{.refuse_fork = true}, {"clone", {SIGCHLD}, FAIL(EAGAIN)}},
        {{.notify = true, .refuse_fork = true}, {"clone", {SIGCHLD}, NOTIFY}},
        {{.notify = true, .refuse_fork = true}, {"vfork", {0}, NOTIFY}},
        {{.refuse_suid_bits = true}, {"fchmod", {3, 04711}, FAIL(EPERM)}},
        {{.refuse_affinity = true}, {"sched_setaffinity", {0}, FAIL(EPERM)}},
        {{.refuse_rulesets = true}, {"landlock_create_ruleset", {0}, FAIL(ENOSYS)}},
        {{.refuse_rulesets = true}, {"landlock_add_rule", {3, 1}, FAIL(ENOSYS)}},
        {{.own_limits_only = true}, {"prlimit64", {7}, FAIL(EPERM)}},
        {{.map_limit = 1 << 20}, {"mmap", {0, (1 << 20) + 1, 3, 0x22}, FAIL(ENOMEM)}},
        {{.map_limit = 1 << 20}, {"mmap", {0, UINT64_C(1) << 40, 3, 0x22}, FAIL(ENOMEM)}},
        {{.notify = true, .map_limit = 1 << 20}, {"mmap", {0, 1 << 21, 2, 0x20022}, NOTIFY}},
        {{.map_limit = 1 << 20}, {"mremap", {0, 0, 1 << 21}, FAIL(ENOMEM)}},
    };
    static const struct seccomp_options off = {.notify = true};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        run_cases(&cases[i].on, &cases[i].with, 1);
        struct call_case twin = cases[i].with;
        twin.expected = OK;
        run_cases(&off, &twin, 1);
    }
    static const struct seccomp_options no_fork = {.refuse_fork = true},
                                        no_inet = {.refuse_inet = true},
                                        nested = {.allow_listener_setup = true};
    static const struct call_case thread = {"clone", {0x3d0f00}, FAIL(EAGAIN)},
                                  escape = {"clone", {CLONE_THREAD | CLONE_NEWUSER}, FAIL(EPERM)},
                                  local = {"socket", {AF_UNIX, SOCK_STREAM, 0}, OK},
                                  listener = {"seccomp", {1, 8}, OK};
    static const struct call_case own = {"prlimit64", {0}, OK},
                                  init = {"prlimit64", {1}, FAIL(EPERM)};
    static const struct seccomp_options alone = {.own_limits_only = true}, plain_options = {0};
    run_cases(&alone, &own, 1);
    run_cases(&plain_options, &own, 1);
    run_cases(&plain_options, &init, 1);
    run_cases(&no_fork, &thread, 1);
    run_cases(&no_fork, &escape, 1);
    run_cases(&no_inet, &local, 1);
    run_cases(&nested, &listener, 1);
}

/* Lengths are compared whole; what only reserves address space is none of its business. */
static void test_large_mappings(void **state)
{
    (void)state;
    const uint64_t limit = (UINT64_C(5) << 32) + 1000;
    const struct seccomp_options o = {.map_limit = limit};
    const struct call_case cases[] = {
        {"mmap", {0, limit, 3, 0x22}, OK},
        {"mmap", {0, limit + 1, 3, 0x22}, FAIL(ENOMEM)},
        {"mmap", {0, (UINT64_C(6) << 32), 3, 0x22}, FAIL(ENOMEM)},
        {"mmap", {0, (UINT64_C(4) << 32) + 0xffffffff, 3, 0x22}, OK},
        {"mmap", {0, UINT64_MAX, 3, 0x22}, FAIL(ENOMEM)},
        {"mmap", {0, limit + 1, 0, 0x22}, OK},     /* PROT_NONE */
        {"mmap", {0, limit + 1, 1, 0x22}, OK},     /* PROT_READ */
        {"mmap", {0, limit + 1, 3, 0x4022}, OK},   /* MAP_NORESERVE */
        {"mmap", {0, limit + 1, 3, 0x32}, OK},     /* MAP_FIXED */
        {"mmap", {0, limit + 1, 3, 0x100022}, OK}, /* MAP_FIXED_NOREPLACE */
        {"mmap", {0, limit + 1, 3, 0x02}, OK},     /* a file */
        {"mmap", {0, limit + 1, 3, 0x21}, OK},     /* shared: held by what is touched */
        {"mremap", {0, UINT64_MAX, limit}, OK},
        {"mremap", {0, 0, limit + 1}, FAIL(ENOMEM)},
    };
    run_cases(&o, cases, ARRAY_SIZE(cases));
}

/* For every set of options: the program agrees with the table about every number, kills nobody, and
 * has the shape that installs quickly. */
static void test_every_set_of_options(void **state)
{
    (void)state;
    static const uint64_t none[6];
    for (unsigned bits = 0; bits < 256; bits++) {
        struct seccomp_options o = {
            .notify = bits & 1,
            .refuse_memfd = bits & 2,
            .refuse_suid_bits = bits & 4,
            .refuse_inet = bits & 8,
            .refuse_shared_ipc = bits & 16,
            .refuse_new_session = bits & 32,
            .refuse_fork = bits & 64,
            .allow_listener_setup = bits & 128,
        };
        struct seccomp_prog prog = build(&o);
        assert_in_range(prog.len, 100, 400);
        for (size_t i = 0; i < prog.len; i++)
            if (prog.insns[i].code == (BPF_RET | BPF_K)) {
                uint32_t k = prog.insns[i].k;
                assert_true(k == OK || k == NOTIFY ||
                            (k & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_ERRNO);
                assert_true(k != NOTIFY || o.notify);
            }
        for (uint32_t nr = 0; nr < 500; nr++) {
            uint32_t got = answer_arch(&prog, AUDIT_ARCH_X86_64, nr, none);
            switch (seccomp_call_verdict(&o, (int)nr)) {
            case SECCOMP_ALLOWED: assert_int_equal(got, OK); break;
            case SECCOMP_UNKNOWN: assert_int_equal(got, FAIL(ENOSYS)); break;
            case SECCOMP_REFUSED: assert_true(got != OK && got != FAIL(ENOSYS)); break;
            case SECCOMP_CHECKED: break;
            }
        }
        struct seccomp_prog quiet;
        struct cordon_err err;
        assert_int_equal(seccomp_quiet(&prog, &quiet, &err), 0);
        for (uint32_t nr = 0; nr < 500; nr++) {
            uint32_t was = answer_arch(&prog, AUDIT_ARCH_X86_64, nr, none);
            assert_int_equal(answer_arch(&quiet, AUDIT_ARCH_X86_64, nr, none),
                             was == NOTIFY ? FAIL(EPERM) : was);
        }
        seccomp_done(&quiet);
        seccomp_done(&prog);
    }
}

static void test_names(void **state)
{
    (void)state;
    for (int nr = 0; nr < 470; nr++) {
        const char *name = seccomp_call_name(nr);
        if (name)
            assert_int_equal(seccomp_call_number(name), nr);
        else
            assert_in_range(nr, 337, 423);
    }
    static const struct {
        const char *name;
        int nr;
    } known[] = {{"read", SYS_read},
                 {"clone3", SYS_clone3},
                 {"rseq", SYS_rseq},
                 {"landlock_create_ruleset", 444},
                 {"set_mempolicy_home_node", 450},
                 {"file_setattr", 469}};
    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        assert_int_equal(seccomp_call_number(known[i].name), known[i].nr);
    assert_null(seccomp_call_name(-1));
    assert_null(seccomp_call_name(470));
    assert_int_equal(seccomp_call_number(""), -1);
    assert_int_equal(seccomp_call_number("no_such_call"), -1);
}

static void test_eval(void **state)
{
    (void)state;
    struct seccomp_data data = {.nr = 7, .args = {0x1122334455667788ULL}};
    struct sock_filter all[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_STMT(BPF_ST, 3),
        BPF_STMT(BPF_LDX | BPF_MEM, 3),
        BPF_STMT(BPF_ALU | BPF_ADD | BPF_X, 0), /* 14 */
        BPF_STMT(BPF_ALU | BPF_LSH | BPF_K, 4),
        BPF_STMT(BPF_ALU | BPF_OR | BPF_K, 1), /* e1 */
        BPF_STMT(BPF_MISC | BPF_TAX, 0),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 20),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x11223344, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, 1),
        BPF_STMT(BPF_MISC | BPF_TXA, 0),
        BPF_STMT(BPF_JMP | BPF_JA, 1),
        BPF_STMT(BPF_RET | BPF_K, 2),
        BPF_STMT(BPF_RET | BPF_A, 0),
    };
    struct seccomp_prog prog = {all, ARRAY_SIZE(all)};
    assert_int_equal(seccomp_eval(&prog, &data), 0xe1);

    struct sock_filter bad[][1] = {
        {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 64)},
        {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 2)},
        {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0xfffffffc)},
        {BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0)},
        {BPF_STMT(BPF_ST, 16)},
        {BPF_STMT(BPF_ALU | BPF_DIV | BPF_K, 0)},
        {BPF_STMT(BPF_JMP | BPF_JA, 0xffffffff)},
        {BPF_STMT(BPF_LD | BPF_W | BPF_IND, 0)},
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        prog = (struct seccomp_prog){bad[i], 1};
        assert_int_equal(seccomp_eval(&prog, &data), SECCOMP_RET_KILL_PROCESS);
    }
}

/* Exit status of a child: 0, or the line of the first call that was not answered as expected. */
#define EXPECT(call, error)                                                                        \
    do {                                                                                           \
        errno = 0;                                                                                 \
        long r_ = (call);                                                                          \
        if ((error) ? r_ != -1 || errno != (error) : r_ == -1)                                     \
            return __LINE__;                                                                       \
    } while (0)

static long i386_getpid(void)
{
    long r;
    __asm__ volatile("int $0x80" : "=a"(r) : "a"(20L) : "memory", "r8", "r9", "r10", "r11");
    return r;
}

static int guest(const struct seccomp_prog *prog)
{
    struct sock_fprog fprog = {prog->len, prog->insns};
    EXPECT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    EXPECT(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &fprog), 0);
    EXPECT(syscall(SYS_getpid), 0);
    EXPECT(open("/dev/null", O_RDONLY), 0);
    EXPECT(mount("none", "/", "tmpfs", 0, NULL), EPERM);
    EXPECT(unshare(CLONE_NEWUSER), EPERM);
    EXPECT(unshare(CLONE_FILES), 0);
    EXPECT(syscall(SYS_clone3, NULL, 0), ENOSYS);
    EXPECT(syscall(425 /* io_uring_setup */, 1, NULL), ENOSYS);
    EXPECT(syscall(469, 0), ENOSYS);
    EXPECT(syscall(1000), ENOSYS);
    EXPECT(syscall(0x40000000 | SYS_getpid), ENOSYS);
    EXPECT(syscall(SYS_ioctl, 0, 0x100000000UL | TIOCSTI, ""), EPERM);
    EXPECT(socket(AF_NETLINK, SOCK_RAW, 0), EAFNOSUPPORT);
    EXPECT(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), 0);
    EXPECT(socket(AF_INET, SOCK_RAW, 1), EPERM);
    EXPECT(prctl(PR_SET_NAME, "guest", 0, 0, 0), 0);
    EXPECT(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &fprog), 0);
    /* a kernel without 32-bit entry answers with a signal of its own: checked by the caller */
    long r = i386_getpid();
    if (r != -ENOSYS)
        return __LINE__;
    pid_t pid = fork();
    EXPECT(pid, 0);
    if (pid == 0)
        _exit(0);
    EXPECT(waitpid(pid, NULL, 0), 0);
    return 0;
}

static void test_real_kernel(void **state)
{
    (void)state;
    static const struct seccomp_options options = {0};
    struct seccomp_prog prog = build(&options);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int line = guest(&prog);
        if (line)
            fprintf(stderr, "guest: line %d: %s\n", line, strerror(errno));
        _exit(line ? 1 : 0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status))
        assert_int_equal(WTERMSIG(status), SIGSEGV); /* int 0x80 where the kernel has none */
    else
        assert_int_equal(WEXITSTATUS(status), 0);
    seccomp_done(&prog);
}

/* ---- the door for who starts guests ---- */

static const uint64_t right_key[2] = {0x0123456789abcdefULL, 0xfedcba9876543210ULL};
static const char *const keyed_names[] = {"clone3", "unshare", "setns", "prctl"};

static bool is_keyed(uint32_t nr)
{
    for (size_t i = 0; i < ARRAY_SIZE(keyed_names); i++)
        if ((int)nr == seccomp_call_number(keyed_names[i]))
            return true;
    return false;
}

/* Without the key: what the program says, but for what is noted. */
static void check_keyed(const struct seccomp_prog *plain, const struct seccomp_prog *keyed,
                        uint32_t arch, uint32_t nr, const uint64_t args[6])
{
    struct seccomp_data data = {.nr = (int)nr, .arch = arch};
    memcpy(data.args, args, sizeof(data.args));
    uint32_t wanted = seccomp_note_of(&data) ? NOTIFY : seccomp_eval(plain, &data);
    assert_int_equal(seccomp_eval(keyed, &data), wanted);
}

static void test_keyed(void **state)
{
    (void)state;
    struct seccomp_options options = {.notify = true};
    struct seccomp_prog plain = build(&options), keyed, none;
    static struct sock_filter room[BPF_MAXINSNS];
    assert_int_equal(seccomp_keyed(&plain, right_key, true, room, ARRAY_SIZE(room), &keyed), 0);
    assert_int_equal(seccomp_keyed(&plain, right_key, true, room, plain.len, &none), -1);
    assert_int_equal(seccomp_keyed(&plain, right_key, true, room, ARRAY_SIZE(room), &keyed), 0);

    static const uint64_t firsts[] = {0,           1,     2,       10, 16, 24, 40, CLONE_NEWUSER,
                                      CLONE_NEWNS, ~0ULL, HIGH | 2};
    static const uint32_t archs[] = {AUDIT_ARCH_X86_64, AUDIT_ARCH_I386};
    for (uint32_t nr = 0; nr < 700; nr++)
        for (size_t i = 0; i < ARRAY_SIZE(firsts); i++)
            for (size_t k = 0; k < ARRAY_SIZE(archs); k++) {
                check_keyed(&plain, &keyed, archs[k], nr, (uint64_t[6]){firsts[i], 1});
                check_keyed(&plain, &keyed, archs[k], nr | 0x40000000, (uint64_t[6]){firsts[i], 1});
                /* with the key: the four of them, and nothing else */
                const uint64_t with[6] = {firsts[i], 1, 0, 0, right_key[0], right_key[1]};
                if (archs[k] == AUDIT_ARCH_X86_64 && is_keyed(nr))
                    assert_int_equal(answer_arch(&keyed, archs[k], nr, with), OK);
                else
                    check_keyed(&plain, &keyed, archs[k], nr, with);
            }
    /* nearly the key, in every bit */
    for (int bit = 0; bit < 128; bit++) {
        uint64_t args[6] = {CLONE_NEWUSER, 0, 0, 0, right_key[0], right_key[1]};
        args[4 + bit / 64] ^= 1ULL << (bit % 64);
        for (size_t i = 0; i < ARRAY_SIZE(keyed_names); i++)
            assert_int_equal(answer(&keyed, keyed_names[i], args),
                             answer(&plain, keyed_names[i], args));
    }
    uint64_t swapped[6] = {CLONE_NEWUSER, 0, 0, 0, right_key[1], right_key[0]};
    assert_int_equal(answer(&keyed, "unshare", swapped), NOTIFY);
    /* where the network is looked at anyway, sockets are left alone */
    assert_int_equal(answer(&keyed, "socket", (uint64_t[6]){AF_INET, SOCK_STREAM}), NOTIFY);
    assert_int_equal(seccomp_keyed(&plain, right_key, false, room, ARRAY_SIZE(room), &keyed), 0);
    assert_int_equal(answer(&keyed, "socket", (uint64_t[6]){AF_INET, SOCK_STREAM}), OK);
    assert_int_equal(answer(&keyed, "socket", (uint64_t[6]){AF_INET, SOCK_RAW}),
                     answer(&plain, "socket", (uint64_t[6]){AF_INET, SOCK_RAW}));
    assert_int_equal(answer(&keyed, "shmget", (uint64_t[6]){0}), NOTIFY);
    seccomp_done(&plain);
}

static void test_notes(void **state)
{
    (void)state;
    const struct {
        const char *call;
        uint64_t first;
        enum seccomp_note note;
    } cases[] = {
        {"shmget", 0, SECCOMP_NOTE_OBJECT},        {"semget", 7, SECCOMP_NOTE_OBJECT},
        {"msgget", 0, SECCOMP_NOTE_OBJECT},        {"mq_open", 0, SECCOMP_NOTE_OBJECT},
        {"socket", AF_INET, SECCOMP_NOTE_SOCKET},  {"socket", AF_INET6, SECCOMP_NOTE_SOCKET},
        {"socket", AF_UNIX, SECCOMP_NOTE_NONE},    {"socket", HIGH | AF_INET, SECCOMP_NOTE_SOCKET},
        {"socket", AF_NETLINK, SECCOMP_NOTE_NONE}, {"socketpair", AF_INET, SECCOMP_NOTE_NONE},
        {"connect", 0, SECCOMP_NOTE_NONE},         {"read", AF_INET, SECCOMP_NOTE_NONE},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct seccomp_data data = {.nr = seccomp_call_number(cases[i].call),
                                    .arch = AUDIT_ARCH_X86_64,
                                    .args = {cases[i].first}};
        assert_int_equal(seccomp_note_of(&data), cases[i].note);
        data.arch = AUDIT_ARCH_I386;
        assert_int_equal(seccomp_note_of(&data), SECCOMP_NOTE_NONE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constant_answers),
        cmocka_unit_test(test_foreign_entries),
        cmocka_unit_test(test_namespaces),
        cmocka_unit_test(test_sockets),
        cmocka_unit_test(test_socket_options),
        cmocka_unit_test(test_small_checks),
        cmocka_unit_test(test_suid_bits),
        cmocka_unit_test(test_huge_pages),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_large_mappings),
        cmocka_unit_test(test_every_set_of_options),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_eval),
        cmocka_unit_test(test_real_kernel),
        cmocka_unit_test(test_keyed),
        cmocka_unit_test(test_notes),
    };
    return cmocka_run_group_tests_name("seccomp", tests, NULL, NULL);
}
