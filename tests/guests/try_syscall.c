/* Tries system calls by name and prints what the kernel answered: `NAME: OK`, `NAME: EPERM`,
 * `NAME: SIGNAL 31`. Arguments are chosen so that a call that does get through does no harm: wrong
 * magic numbers, empty structs, descriptors that do not exist.
 *
 * usage: try_syscall NAME... | try_syscall --all | try_syscall --list | try_syscall --number N...
 */
#include "guest.h"

#include <linux/perf_event.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/timex.h>
#include <sys/uio.h>

struct probe {
    const char *name;
    long (*fn)(void);
} __attribute__((aligned(16)));

#define PROBE(id, ...)                                                                             \
    static long try_##id(void)                                                                     \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }                                                                                              \
    static const struct probe probe_##id                                                           \
        __attribute__((section("probes"), used, aligned(16))) = {#id, try_##id};
#define CALL(id, ...) PROBE(id, return syscall(__VA_ARGS__);)

extern const struct probe __start_probes[], __stop_probes[];

static char zeros[4096];

/* Numbers Debian 12's headers lack. */
#define NR_futex_waitv 449
#define NR_set_mempolicy_home_node 450
#define NR_cachestat 451
#define NR_fchmodat2 452
#define NR_map_shadow_stack 453
#define NR_statmount 457
#define NR_listmount 458
#define NR_lsm_get_self_attr 459
#define NR_lsm_set_self_attr 460
#define NR_lsm_list_modules 461
#define NR_setxattrat 463
#define NR_open_tree_attr 467
#define NR_memfd_secret 447

/* What a raw clone() gives when it works: the child ends at once, the parent reaps it. */
static long reap(long pid)
{
    if (pid == 0)
        _exit(0);
    if (pid > 0)
        waitpid((pid_t)pid, NULL, __WALL);
    return pid;
}

/* An attach that works must not leave the victim stopped: it may be the init of a bare run. */
static long detach(long ret)
{
    if (ret != -1) {
        waitpid(1, NULL, __WALL | WNOHANG);
        sleep_ms(50);
        waitpid(1, NULL, __WALL | WNOHANG);
        ptrace(PTRACE_DETACH, 1, 0, 0);
        kill(1, SIGCONT);
    }
    return ret;
}

/* K1, K8: namespaces */
CALL(unshare_user, SYS_unshare, CLONE_NEWUSER)
CALL(unshare_mount, SYS_unshare, CLONE_NEWNS)
CALL(unshare_pid, SYS_unshare, CLONE_NEWPID)
CALL(unshare_net, SYS_unshare, CLONE_NEWNET)
CALL(unshare_ipc, SYS_unshare, CLONE_NEWIPC)
CALL(unshare_uts, SYS_unshare, CLONE_NEWUTS)
CALL(unshare_cgroup, SYS_unshare, CLONE_NEWCGROUP)
CALL(unshare_time, SYS_unshare, 0x80)
PROBE(clone_user, return reap(syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0));)
PROBE(clone_user_high,
      return reap(syscall(SYS_clone, 0x700000000UL | CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0));)
PROBE(clone_mount, return reap(syscall(SYS_clone, CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0));)
PROBE(clone_net, return reap(syscall(SYS_clone, CLONE_NEWNET | SIGCHLD, 0, 0, 0, 0));)
PROBE(clone_plain, return reap(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));)
PROBE(clone_untraced, return reap(syscall(SYS_clone, CLONE_UNTRACED | SIGCHLD, 0, 0, 0, 0));)
PROBE(clone3, uint64_t args[8] = {0}; args[4] = SIGCHLD;
      return reap(syscall(SYS_clone3, args, 64));)
PROBE(clone3_user, uint64_t args[8] = {CLONE_NEWUSER}; args[4] = SIGCHLD;
      return reap(syscall(SYS_clone3, args, 64));)
PROBE(setns, int fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
      return syscall(SYS_setns, fd, 0);)
PROBE(setns_pidfd, int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
      return syscall(SYS_setns, fd, CLONE_NEWUTS);)

/* K2: io_uring */
CALL(io_uring_setup, SYS_io_uring_setup, 1, zeros)
CALL(io_uring_enter, SYS_io_uring_enter, -1, 0, 0, 0, 0, 0)
CALL(io_uring_register, SYS_io_uring_register, -1, 0, 0, 0)

/* K3, F16: mounting */
CALL(mount, SYS_mount, "none", "/tmp", "tmpfs", 0, 0)
CALL(mount_remount, SYS_mount, "none", "/", 0, MS_REMOUNT | MS_BIND, 0)
CALL(mount_bind, SYS_mount, "/tmp", "/etc", 0, MS_BIND, 0)
CALL(mount_move, SYS_mount, "/tmp", "/etc", 0, MS_MOVE, 0)
CALL(mount_shared, SYS_mount, "none", "/", 0, MS_SHARED | MS_REC, 0)
CALL(umount2, SYS_umount2, "/tmp", MNT_DETACH)
CALL(pivot_root, SYS_pivot_root, ".", ".")
CALL(chroot, SYS_chroot, "/tmp")
CALL(fsopen, SYS_fsopen, "tmpfs", 0)
CALL(fsconfig, SYS_fsconfig, -1, 0, 0, 0, 0)
CALL(fsmount, SYS_fsmount, -1, 0, 0)
CALL(fspick, SYS_fspick, AT_FDCWD, "/", 0)
CALL(open_tree, SYS_open_tree, AT_FDCWD, "/tmp", 1)
CALL(move_mount, SYS_move_mount, -1, "", AT_FDCWD, "/tmp", 4)
CALL(mount_setattr, SYS_mount_setattr, AT_FDCWD, "/", 0, zeros, 32)
CALL(open_tree_attr, NR_open_tree_attr, AT_FDCWD, "/tmp", 1, zeros, 32)

/* K4: the machine. Each has an argument the kernel refuses even for root. */
CALL(bpf, SYS_bpf, 0, zeros, 0)
PROBE(perf_event_open, struct perf_event_attr a = {.type = PERF_TYPE_SOFTWARE, .size = sizeof(a)};
      a.config = PERF_COUNT_SW_TASK_CLOCK; return syscall(SYS_perf_event_open, &a, 0, -1, -1, 0);)
CALL(userfaultfd, SYS_userfaultfd, 0)
CALL(kexec_load, SYS_kexec_load, 0, 99, 0, 0)
CALL(kexec_file_load, SYS_kexec_file_load, -1, -1, 0, 0, 0xff00)
CALL(init_module, SYS_init_module, zeros, 0, "")
CALL(finit_module, SYS_finit_module, -1, "", 0)
CALL(delete_module, SYS_delete_module, "cordon_no_such_module", O_NONBLOCK)
CALL(iopl, SYS_iopl, 3)
CALL(ioperm, SYS_ioperm, 0x80, 1, 1)
CALL(swapon, SYS_swapon, "/nonexistent", 0)
CALL(swapoff, SYS_swapoff, "/nonexistent")
CALL(reboot, SYS_reboot, 1, 2, 3, 0)
CALL(acct, SYS_acct, "/nonexistent/acct")
CALL(quotactl, SYS_quotactl, 0x7fffff00, "/nonexistent", 0, 0)
CALL(syslog, SYS_syslog, 3, zeros, sizeof(zeros))
CALL(lookup_dcookie, SYS_lookup_dcookie, 0, zeros, sizeof(zeros))
CALL(vhangup, SYS_vhangup)
CALL(nfsservctl, SYS_nfsservctl, 0, 0, 0)
CALL(sethostname, SYS_sethostname, "", -1)
CALL(setdomainname, SYS_setdomainname, "", -1)
CALL(landlock_create_ruleset, SYS_landlock_create_ruleset, 0, 0, 1)

/* K5: keyrings */
CALL(add_key, SYS_add_key, "user", "cordon-e2e", "x", 1, -3)
CALL(request_key, SYS_request_key, "user", "cordon-e2e", 0, 0)
CALL(keyctl, SYS_keyctl, 0, -3, 0)

/* K6: other processes, here init and the parent */
PROBE(ptrace_attach_init, return detach(syscall(SYS_ptrace, PTRACE_ATTACH, 1, 0, 0));)
PROBE(ptrace_seize_init, return detach(syscall(SYS_ptrace, PTRACE_SEIZE, 1, 0, 0));)
PROBE(process_vm_readv, struct iovec a = {zeros, 8};
      return syscall(SYS_process_vm_readv, 1, &a, 1, &a, 1, 0);)
PROBE(process_vm_writev, struct iovec a = {zeros, 8};
      return syscall(SYS_process_vm_writev, 1, &a, 1, &a, 1, 0);)
PROBE(pidfd_getfd_init, int fd = (int)syscall(SYS_pidfd_open, 1, 0);
      return fd < 0 ? -1 : syscall(SYS_pidfd_getfd, fd, 0, 0);)
CALL(kcmp, SYS_kcmp, 1, getpid(), 0, 0, 0)
PROBE(process_madvise, int fd = (int)syscall(SYS_pidfd_open, 1, 0); struct iovec a = {zeros, 4096};
      return syscall(SYS_process_madvise, fd, &a, 1, 21, 0);)
CALL(migrate_pages, SYS_migrate_pages, 1, 8, zeros, zeros)
CALL(move_pages_init, SYS_move_pages, 1, 0, 0, 0, 0, 0)

/* K12, K21 */
CALL(modify_ldt, SYS_modify_ldt, 1, zeros, 16)
CALL(personality_query, SYS_personality, 0xffffffff)
CALL(personality_0, SYS_personality, 0)
CALL(personality_exec, SYS_personality, 0x0400000)
PROBE(clock_settime, struct timespec ts = {-1, -1}; return syscall(SYS_clock_settime, 0, &ts);)
PROBE(settimeofday, long tv[2] = {-1, -1}; return syscall(SYS_settimeofday, tv, 0);)
PROBE(adjtimex, struct timex t = {.modes = ADJ_TICK, .tick = 1}; return syscall(SYS_adjtimex, &t);)
PROBE(clock_adjtime, struct timex t = {.modes = ADJ_TICK, .tick = 1};
      return syscall(SYS_clock_adjtime, 0, &t);)

/* K18, K19: privileges */
CALL(setuid_0, SYS_setuid, 0)
CALL(setgid_0, SYS_setgid, 0)
CALL(setreuid_0, SYS_setreuid, 0, 0)
CALL(setresuid_0, SYS_setresuid, 0, 0, 0)
CALL(setresgid_0, SYS_setresgid, 0, 0, 0)
PROBE(setgroups, gid_t g[2] = {0, 4}; return syscall(SYS_setgroups, 2, g);)
PROBE(setfsuid_0, syscall(SYS_setfsuid, 0); if (syscall(SYS_setfsuid, -1) == 0) return 0;
      errno = EPERM; return -1;)
PROBE(capset, uint32_t h[2] = {0x20080522, 0}; uint32_t d[6] = {~0u, ~0u, ~0u, ~0u, ~0u, ~0u};
      return syscall(SYS_capset, h, d);)
CALL(prctl_set_mm, SYS_prctl, PR_SET_MM, PR_SET_MM_BRK, 1, 0, 0)
CALL(prctl_ambient_raise, SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 21, 0, 0)
CALL(prctl_securebits, SYS_prctl, PR_SET_SECUREBITS, 1, 0, 0, 0)
CALL(prctl_keepcaps, SYS_prctl, PR_SET_KEEPCAPS, 1, 0, 0, 0)
CALL(prctl_unset_nnp, SYS_prctl, PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0)

/* K22 and the rest of the odd corners */
CALL(fanotify_init, SYS_fanotify_init, 0, 0)
PROBE(
    name_to_handle_at,
    struct {
        unsigned n;
        int t;
        char b[128];
    } h = {.n = 128};
    int id; return syscall(SYS_name_to_handle_at, AT_FDCWD, "/", &h, &id, 0);)
PROBE(
    open_by_handle_at,
    struct {
        unsigned n;
        int t;
        uint64_t ino;
    } h = {8, 1, 2};
    int fd = open("/", O_RDONLY); return syscall(SYS_open_by_handle_at, fd, &h, O_RDONLY);)
CALL(memfd_secret, NR_memfd_secret, 0)
CALL(remap_file_pages, SYS_remap_file_pages, zeros, 0, 0, 0, 0)
CALL(mbind, SYS_mbind, 0, 0, 0, 0, 0, 0)
CALL(pkey_alloc, SYS_pkey_alloc, 0, 0)
CALL(process_mrelease, 448, -1, 0)
CALL(vmsplice, SYS_vmsplice, -1, 0, 0, 0)
CALL(statmount, NR_statmount, zeros, zeros, 0, 0)
CALL(listmount, NR_listmount, zeros, zeros, 0, 0)
CALL(lsm_get_self_attr, NR_lsm_get_self_attr, 0, 0, 0, 0)
CALL(lsm_set_self_attr, NR_lsm_set_self_attr, 0, 0, 0, 0)
CALL(uselib, SYS_uselib, "/nonexistent")
CALL(_sysctl, SYS__sysctl, 0)
CALL(ustat, SYS_ustat, 0, zeros)
CALL(sysfs, SYS_sysfs, 3)

/* Twins: calls every ordinary program needs */
CALL(getpid, SYS_getpid)
CALL(futex_wake, SYS_futex, zeros, 1, 1, 0, 0, 0)
PROBE(memfd_create, return syscall(SYS_memfd_create, "x", 0);)
PROBE(memfd_create_huge, return syscall(SYS_memfd_create, "x", 4);)
CALL(eventfd2, SYS_eventfd2, 0, 0)
CALL(getrandom, SYS_getrandom, zeros, 16, 0)
CALL(rseq_unregister, SYS_membarrier, 0, 0, 0)
PROBE(sched_getaffinity, return syscall(SYS_sched_getaffinity, 0, 128, zeros);)
CALL(prctl_set_name, SYS_prctl, PR_SET_NAME, "renamed", 0, 0, 0)

static void print_child(const char *name, pid_t pid)
{
    int status = 0;
    if (waitpid(pid, &status, 0) == pid && WIFSIGNALED(status))
        say(name, "SIGNAL %d", WTERMSIG(status));
}

/* In a child, so that a filter that kills is told from one that answers. */
static void run_probe(const struct probe *p)
{
    pid_t pid = fork();
    if (pid == 0) {
        guest_deadline(5);
        TRY(p->name, p->fn());
        _exit(0);
    }
    if (pid < 0)
        say(p->name, "NOFORK %s", errname(errno));
    else
        print_child(p->name, pid);
}

static void run_number(const char *text)
{
    long nr = strtol(text, NULL, 0);
    pid_t pid = fork();
    if (pid == 0) {
        guest_deadline(5);
        TRY(text, syscall(nr, -1, 0, 0, 0, 0, 0));
        _exit(0);
    }
    if (pid > 0)
        print_child(text, pid);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "--list")) {
        for (const struct probe *p = __start_probes; p < __stop_probes; p++)
            say("probe", "%s", p->name);
        return 0;
    }
    if (argc > 1 && !strcmp(argv[1], "--number")) {
        for (int i = 2; i < argc; i++)
            run_number(argv[i]);
        return 0;
    }
    bool all = argc > 1 && !strcmp(argv[1], "--all");
    for (const struct probe *p = __start_probes; p < __stop_probes; p++) {
        bool wanted = all;
        for (int i = 1; i < argc; i++)
            wanted |= !strcmp(argv[i], p->name);
        if (wanted)
            run_probe(p);
    }
    return 0;
}
