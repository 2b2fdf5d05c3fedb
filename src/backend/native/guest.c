/* The process that becomes the guest's program.
 *
 * It shares pid 1's memory and descriptors until its execve, so that no page table is copied, and
 * so that the filter's listener, made here, appears in pid 1 and vanishes from the guest. errno and
 * the rest of the C library's thread data are pid 1's: every call here is a bare one, and it stores
 * only into the status page, *g and its own stack.
 *
 * Where the kernel lets it (native_guest_begin) it works beside pid 1: the network namespace and
 * the filter cost as much as all mounts of the root. Elsewhere (native_guest_clone) pid 1 does its
 * part first and waits. */
#include "backend/native/native_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/raw.h"
#include "base/sys.h"
#include "base/util.h"

#define GUEST_STACK 32768
#define GUEST_LOOKS 100 /* 50 us */
#define GUEST_LOOK_NS 60000
#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE (1U << 1)
#endif

static char guest_stack[GUEST_STACK] __attribute__((aligned(4096)));

/* ---- pid 1 and the guest's process wait for each other ---- */

static void guest_tell(_Atomic uint32_t *word, uint32_t value)
{
    atomic_store(word, value);
    raw_call(SYS_futex, word, FUTEX_WAKE, 1);
}

void native_guest_limited(struct native_status *status)
{
    guest_tell(&status->limited, 1);
}

/* The other one is nearly there, on the other core: to be woken would take longer than to look for
 * a while. Who shares its core with us goes first at each look, which may be for a whole slice:
 * then it is the last one. */
static bool guest_look(_Atomic uint32_t *word, uint32_t value)
{
    for (uint64_t end = clock_ns() + GUEST_LOOK_NS; clock_ns() < end;) {
        if (atomic_load(word) >= value)
            return true;
        raw_call(SYS_sched_yield);
    }
    return atomic_load(word) >= value;
}

static void guest_wait(_Atomic uint32_t *word, uint32_t value)
{
    uint32_t now;
    while ((now = atomic_load(word)) < value)
        raw_call(SYS_futex, word, FUTEX_WAIT, now);
}

static void guest_wait_near(struct native_guest *g, uint32_t step)
{
    if (!g->looks || !guest_look(&g->step, step))
        guest_wait(&g->step, step);
}

/* ---- steps, in the guest's process ---- */

static void guest_check(struct native_child *c, long r, const char *stage, const char *what)
{
    if (r < 0)
        native_child_fail(c, stage, (int)-r, what);
}

static void guest_session(struct native_child *c)
{
    guest_check(c, raw_call(SYS_setsid), "session", "setsid");
    if (c->plan->terminal)
        guest_check(c, native_pty_control(), "session", "controlling terminal");
}

static const uint64_t no_signals[4]; /* SIG_DFL, no flags, no restorer, empty mask */

static void guest_unblock_signals(void)
{
    raw_call(SYS_rt_sigprocmask, SIG_SETMASK, no_signals, NULL, 8);
}

/* What the caller, or we, ignore or block is nothing the guest should know of. */
void native_guest_forget_signals(void)
{
    for (int sig = 1; sig < 65; sig++) /* fails for the two that have no other */
        raw_call(SYS_rt_sigaction, sig, no_signals, NULL, 8);
}

static void guest_reset_signals(void)
{
    native_guest_forget_signals();
    guest_unblock_signals();
}

/* pid 0: the calling process */
static void guest_limits_of(struct native_child *c, pid_t pid)
{
    const struct plan *p = c->plan;
    for (size_t i = 0; i < p->n_rlimits; i++) {
        int resource = p->rlimits[i].resource;
        uint64_t lim[2] = {p->rlimits[i].value, p->rlimits[i].value};
        uint64_t old[2];
        long r = raw_call(SYS_prlimit64, pid, resource, lim, old);
        if (r == 0)
            continue;
        /* not ours to raise: what stands is tighter than what was asked for */
        if (r != -EPERM || raw_call(SYS_prlimit64, pid, resource, NULL, old) < 0 || old[1] > lim[0])
            native_child_fail(c, "rlimit", (int)-r, "setrlimit");
        if (old[0] == old[1])
            continue;
        old[0] = old[1];
        guest_check(c, raw_call(SYS_prlimit64, pid, resource, old, NULL), "rlimit", "setrlimit");
    }
}

void native_guest_limits(struct native_child *c)
{
    guest_limits_of(c, 0);
}

/* Only now are we in the groups that hold the limits, so only now is their root ours to hide: a
 * namespace made by the clone would show the host's path. */
static void guest_groups(struct native_child *c)
{
    guest_check(c, cgroup_enter(c->entries, c->n_entries), "cgroup", "enter");
    if (c->plan->tier == TIER_FULL && !c->plan->oci)
        guest_check(c, raw_call(SYS_unshare, CLONE_NEWCGROUP), "cgroup namespace", "unshare");
}

/* The supervisor writes them after it handed the groups over. Should it die before, pid 1 goes with
 * it, and we with pid 1; unless it died before pid 1 had asked the kernel for that. */
static void guest_wait_limited(struct native_child *c)
{
    static const struct timespec glance = {.tv_nsec = 10000000};
    struct pollfd lifeline = {.fd = c->go_fd};
    if (!c->tells_begun || c->plan->cgroups.kind != HOST_CGROUP_V1)
        return;
    while (atomic_load(&c->status->limited) == 0) {
        raw_call(SYS_futex, &c->status->limited, FUTEX_WAIT, 0, &glance);
        if (raw_call(SYS_poll, &lifeline, 1, 0) > 0)
            guest_check(c, -EPIPE, "cgroup", "limits");
    }
}

static int guest_filter(const struct seccomp_prog *prog, unsigned flags)
{
    struct sock_fprog fprog = {.len = prog->len, .filter = prog->insns};
    return (int)raw_call(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &fprog);
}

/* Under a listener of somebody outside the kernel answers EBUSY, under a filter of somebody's that
 * keeps listeners to itself whatever that says, and with few descriptors there is none for it:
 * refusals are then plain errors, and the result says that they were not observed. */
static void guest_seal(struct native_child *c)
{
    const struct plan *p = c->plan;
    if (!p->filter_options.notify) {
        guest_check(c, guest_filter(&p->filter, 0), "seccomp", "filter");
        return;
    }
    if (p->own_kernel) {
        /* gVisor's kernel has filters, but nobody to tell */
        guest_check(c, guest_filter(&p->quiet_filter, 0), "seccomp", "filter");
        return;
    }
    /* The keeper carries some calls out: a signal must not start them a second time (since 5.19).
     */
    unsigned flags = SECCOMP_FILTER_FLAG_NEW_LISTENER;
    int fd = -EINVAL;
    if (p->tier == TIER_LANDLOCK)
        fd = guest_filter(&p->filter, flags | NATIVE_WAIT_KILLABLE);
    if (fd == -EINVAL)
        fd = guest_filter(&p->filter, flags);
    if (fd >= 0) {
        atomic_store(&c->status->listener_fd, fd);
        return;
    }
    if (fd == -ENOMEM)
        native_child_fail(c, "seccomp", -fd, "filter");
    atomic_store(&c->status->no_listener, 1);
    guest_check(c, guest_filter(&p->quiet_filter, 0), "seccomp", "filter");
}

static int guest_exec(const struct plan *p, const char *path, void *unused)
{
    (void)unused;
    int e = (int)-raw_call(SYS_execve, path, p->argv, p->env);
    /* the kernel says the same of a file that is not there and of one whose interpreter is not */
    if (e == ENOENT && raw_call(SYS_faccessat, AT_FDCWD, path, F_OK) == 0)
        return ELIBACC;
    return e;
}

/* The last capability goes, the fence closes. Only the guest is fenced, pid 1 is not: the kernel
 * then also refuses it to trace or signal anything outside its own domain, pid 1 included. */
static void guest_fence(struct native_guest *g)
{
    struct native_child *c = g->child;
    const struct plan *p = c->plan;
    if (p->tier == TIER_FULL)
        native_drop_last_capability(c);
    /* before Landlock, which would refuse the file */
    if (p->apparmor)
        guest_check(c, native_fence_apparmor(p->apparmor), "apparmor", p->apparmor);
    if (p->tier == TIER_LANDLOCK)
        native_keeper_guest(g);
    if (g->fence_fd >= 0)
        guest_check(c, raw_call(446, g->fence_fd, 0), "landlock", "restrict_self");
}

/* No execve takes away what the guest must not have: the status page, pid 1's descriptors (of
 * which it gets a table of its own first), and the flag that hides it from itself. */
static void guest_enter(struct native_child *c)
{
    const struct plan *p = c->plan;
    /* before pid 1 is told: it closes its standard streams next */
    guest_check(c, raw_call(SYS_close_range, 3, ~0U, CLOSE_RANGE_UNSHARE), "descriptors",
                "close_range");
    guest_tell(&c->status->state, NATIVE_STARTED);
    raw_call(SYS_munmap, c->status, sizeof(*c->status));
    raw_call(SYS_prctl, PR_SET_DUMPABLE, 1);
    p->enter(p->enter_data);
    for (;;)
        raw_call(SYS_exit_group, 127);
}

/* Who may not share memory with us on the way into a time namespace (before Linux 6.3) is in it
 * already, where the clock has begun anew. */
static void guest_note_start(struct native_guest *g)
{
    struct native_child *c = g->child;
    uint64_t now_ns = clock_ns();
    c->status->started_ns = now_ns < g->cloned_ns ? now_ns + c->clock_offset_ns : now_ns;
    g->has_noted = true;
}

NATIVE_OWN_STACK _Noreturn void native_guest_start(struct native_guest *g)
{
    struct native_child *c = g->child;
    if (!g->has_noted)
        guest_note_start(g);
    if (c->plan->enter)
        guest_enter(c);
    /* What pid 1 has told stays told: its failure is ours, and no guest starts after it. */
    uint32_t setup = NATIVE_SETUP, started = NATIVE_STARTED;
    if (atomic_compare_exchange_strong(&c->status->state, &setup, NATIVE_STARTED)) {
        c->status->exec_errno = native_command_find(c->plan, guest_exec, NULL);
        atomic_compare_exchange_strong(&c->status->state, &started, NATIVE_EXEC_FAILED);
    }
    for (;;)
        raw_call(SYS_exit_group, 127);
}

/* ---- after pid 1 ---- */

/* gVisor's pid 1 is root of that kernel; the guest is its ordinary user. Every call costs some
 * there: what the bundle says (resource limits, an empty bounding set) or the runtime starts with
 * (no signal ignored) is not done again. */
static void guest_leave_root(struct native_child *c)
{
    guest_unblock_signals();
    guest_check(c, raw_call(SYS_setgroups, 0, NULL), "ids", "setgroups");
    guest_check(c, raw_call(SYS_setresgid, PLAN_GUEST_GID, PLAN_GUEST_GID, PLAN_GUEST_GID), "ids",
                "setresgid");
    guest_check(c, raw_call(SYS_setresuid, PLAN_GUEST_UID, PLAN_GUEST_UID, PLAN_GUEST_UID), "ids",
                "setresuid");
    guest_check(c, raw_call(SYS_chdir, c->plan->cwd), "working directory", c->plan->cwd);
}

static void guest_note_usage(struct native_status *s)
{
    struct rusage ru = {0};
    if (raw_call(SYS_getrusage, RUSAGE_SELF, &ru) < 0)
        return;
    uint64_t user = native_tv_ns(ru.ru_utime), sys = native_tv_ns(ru.ru_stime);
    s->setup_user_ns += user;
    s->setup_sys_ns += sys;
    s->guest_user_ns += user;
    s->guest_sys_ns += sys;
}

NATIVE_OWN_STACK static int guest_main_after(void *arg)
{
    struct native_guest *g = arg;
    guest_session(g->child);
    if (g->child->plan->own_kernel)
        guest_leave_root(g->child);
    else
        guest_reset_signals();
    native_guest_limits(g->child);
    native_fence_cores(g->child);
    guest_groups(g->child);
    guest_fence(g);
    /* before the filter: the caller's may refuse to wait, and pid 1 answers nobody yet */
    guest_wait_limited(g->child);
    if (!g->child->plan->own_kernel)
        guest_note_usage(g->child->status);
    guest_note_start(g); /* nor to tell the time */
    guest_seal(g->child);
    native_guest_start(g);
}

/* A guest that goes on in a copy of our memory: on the stack it has, with pages of its own. pid 1
 * goes on when the walls stand. */
static pid_t guest_clone_copy(struct native_guest *g)
{
    static const struct timespec glance = {.tv_nsec = 10000000};
    _Atomic uint32_t *state = &g->child->status->state;
    pid_t pid = (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, NULL, NULL, 0);
    if (pid == 0)
        guest_main_after(g);
    siginfo_t ended = {0};
    while (pid > 0 && atomic_load(state) == NATIVE_SETUP &&
           (waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT) < 0 || ended.si_pid == 0))
        raw_call(SYS_futex, state, FUTEX_WAIT, NATIVE_SETUP, &glance);
    return pid;
}

/* Memory is shared where the kernel lets a process with a pending time namespace do so. */
pid_t native_guest_clone(struct native_guest *g)
{
    int flags = CLONE_VFORK | CLONE_FILES | SIGCHLD;
    g->cloned_ns = clock_ns();
    if (g->child->plan->enter)
        return guest_clone_copy(g);
    pid_t pid = clone(guest_main_after, guest_stack + GUEST_STACK, flags | CLONE_VM, g);
    if (pid < 0 && errno == EINVAL)
        pid = clone(guest_main_after, guest_stack + GUEST_STACK, flags, g);
    return pid;
}

/* ---- beside pid 1 ---- */

/* A file of the guest's process, in the new root. */
static void guest_proc_path(const struct native_guest *g, const char *name, char *ret, size_t size)
{
    snprintf(ret, size, "proc/%d/%s", (int)g->pid, name);
}

void native_guest_score(struct native_guest *g)
{
    char path[48];
    guest_proc_path(g, "oom_score_adj", path, sizeof(path));
    native_child_plain_score(g->child, path);
}

/* The clocks of the guest begin at zero: neither the host's uptime nor anything that tells two runs
 * on one boot apart. Its execve enters the namespace, so the offsets are written before it; by pid
 * 1, in the new root. */
void native_guest_clocks(struct native_guest *g)
{
    struct native_child *c = g->child;
    char text[96], path[48];
    if (!c->plan->time_ns)
        return;
    guest_proc_path(g, "timens_offsets", path, sizeof(path));
    native_clock_text(c, text, sizeof(text));
    _cleanup_close_ int fd = sys_open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        native_child_fail(c, "time namespace", errno, path);
}

static void guest_receive_groups(struct native_child *c)
{
    long r = native_child_receive_groups(c);
    guest_check(c, r, "cgroup", "receive");
}

static bool guest_is_inside(struct native_guest *g, const struct stat *root)
{
    struct stat above;
    long r = raw_call(SYS_newfstatat, AT_FDCWD, "/..", &above, 0);
    guest_check(g->child, r, "pivot_root", "stat");
    return above.st_dev == root->st_dev && above.st_ino == root->st_ino;
}

/* "/.." leads to what is mounted over the root: the host's files until pid 1's umount has taken
 * them away, then the root again. A look costs less than waiting for pid 1, which the kernel holds
 * for longer; if it is not so soon, pid 1 says when. Whoever is not in that root by then never
 * will be. */
static void guest_see_host_gone(struct native_guest *g)
{
    struct stat own;
    guest_check(g->child, raw_call(SYS_fstat, g->root_fd, &own), "pivot_root", "fstat");
    for (int i = 0; i < GUEST_LOOKS; i++) {
        if (guest_is_inside(g, &own))
            return;
        raw_call(SYS_sched_yield); /* pid 1 may have woken us on its own core */
    }
    guest_wait(&g->step, NATIVE_HOST_GONE);
    if (!guest_is_inside(g, &own))
        native_child_fail(g->child, "pivot_root", EXDEV, "/");
}

/* What pid 1 made, or became, after our birth. */
NATIVE_OWN_STACK static void guest_join(struct native_guest *g)
{
    struct native_child *c = g->child;
    guest_check(c, raw_call(SYS_setns, g->ipc_fd, CLONE_NEWIPC), "ipc namespace", "setns");
    if (g->mounts_fd >= 0)
        guest_check(c, raw_call(SYS_setns, g->mounts_fd, CLONE_NEWNS), "mount namespace", "setns");
    native_child_take_ids(c);
}

NATIVE_OWN_STACK static int guest_main_beside(void *arg)
{
    struct native_guest *g = arg;
    struct native_child *c = g->child;
    const struct plan *p = c->plan;

    int spaces = (p->host_network ? 0 : CLONE_NEWNET) | (p->time_ns ? CLONE_NEWTIME : 0);
    if (spaces)
        guest_check(c, raw_call(SYS_unshare, spaces), "network namespace", "unshare");
    guest_wait(&g->step, NATIVE_IDS_MAPPED); /* and pid 1 has placed us */
    if (g->is_ahead)
        guest_join(g);
    guest_tell(&g->done, NATIVE_SPACES_MADE);

    if (g->is_ahead) {
        native_drop_bounding_set(c);
        native_guest_forget_signals();
        native_child_leave_keyring(c);
    }
    native_child_plain_manners(c);
    /* before the session: on a busy core the kernel takes a new one for a newcomer that has to wait
     * its turn, and there may be another core */
    native_cores_gather(g);
    guest_session(c);
    guest_unblock_signals(); /* not before: those of a terminal are no longer for us */
    raw_call(SYS_umask, 022);
    native_drop_capabilities(c, 1u << CAP_SYS_ADMIN);
    guest_receive_groups(c);
    guest_groups(c);
    /* The kernel translates a filter for a fifth of a millisecond: here, while pid 1 is still busy
     * with the root. What follows is nothing that it refuses or would ask pid 1 about. */
    guest_seal(c);

    guest_wait_near(g, NATIVE_ROOT_MADE);
    native_guest_limits(
        c); /* not before the descriptors above: it may allow fewer than pid 1 has */
    guest_fence(g);

    guest_wait_near(g, NATIVE_ROOT_ENTERED);
    guest_see_host_gone(g);
    guest_check(c, raw_call(SYS_chdir, p->cwd), "working directory", p->cwd);
    guest_wait_limited(c);
    guest_note_usage(c->status);
    native_guest_start(g);
}

/* As above, in namespaces that are made already; what comes late is read from the order that pid 1
 * received meanwhile, in the memory we share. */
NATIVE_OWN_STACK static int guest_main_parked(void *arg)
{
    struct native_guest *g = arg;
    struct native_child *c = g->child;
    if (c->plan->time_ns) {
        guest_check(c, raw_call(SYS_unshare, CLONE_NEWTIME), "time namespace", "unshare");
        long fd = raw_call(SYS_openat, AT_FDCWD, "/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
        guest_check(c, fd, "time namespace", "open");
        g->clocks_fd = (int)fd;
    }
    guest_session(c);
    guest_unblock_signals(); /* the spawner ignores and catches none */
    native_fence_cores(c);
    guest_groups(c);
    guest_fence(g);
    guest_seal(c);
    guest_tell(&g->done, NATIVE_FENCED);
    /* behind the filter: whatever it refuses would wait for pid 1, which waits for us */
    guest_wait(&g->step, NATIVE_ROOT_ENTERED);
    native_guest_start(g);
}

static void guest_clone_beside(struct native_guest *g, int (*fn)(void *), int flags)
{
    g->tid = 1; /* the kernel clears it when this memory is no longer shared: execve or the end */
    flags |= CLONE_VM | CLONE_FILES | CLONE_CHILD_CLEARTID | SIGCHLD;
    g->pid = clone(fn, guest_stack + GUEST_STACK, flags, g, NULL, NULL, &g->tid);
    if (g->pid < 0)
        native_child_fail(g->child, "fork", errno, "clone");
}

void native_guest_begin(struct native_guest *g)
{
    /* how signals are taken is shared until its execve: who resets that does so for both */
    guest_clone_beside(g, guest_main_beside, CLONE_SIGHAND);
    native_cores_spread(g);
}

/* Late, and by pid 1: the filter stands, and the limits are those of the order. */
void native_guest_limit(struct native_guest *g)
{
    guest_limits_of(g->child, g->pid);
}

void native_guest_park(struct native_guest *g)
{
    guest_clone_beside(g, guest_main_parked, 0);
}

void native_guest_step(struct native_guest *g, uint32_t step)
{
    guest_tell(&g->step, step);
}

/* False: it ended before, and has said why, or was killed. */
bool native_guest_wait(struct native_guest *g, uint32_t done)
{
    static const struct timespec glance = {.tv_nsec = 10000000};
    uint32_t now;
    if (g->looks && guest_look(&g->done, done))
        return true;
    while ((now = atomic_load(&g->done)) < done && atomic_load(&g->tid) != 0)
        raw_call(SYS_futex, &g->done, FUTEX_WAIT, now, &glance);
    return now >= done;
}

/* Other cores ran in our memory, and the kernel would ask each of them to take notice of its end:
 * it asks now, when nobody waits. */
void native_guest_forget(void)
{
    raw_call(SYS_madvise, guest_stack, sizeof(guest_stack), MADV_DONTNEED);
}

void native_guest_wait_exec(struct native_guest *g)
{
    while (atomic_load(&g->tid) != 0)
        raw_call(SYS_futex, &g->tid, FUTEX_WAIT, 1);
}
