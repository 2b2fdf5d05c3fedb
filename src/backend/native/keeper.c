/* Tier landlock: the keeper, the guest's nearest process of ours where there is no pid namespace.
 *
 * It is the reaper of everything the guest starts (a child subreaper) and ends all of it: when the
 * main process ends, when the supervisor closes the lifeline or dies. It runs after the clone in a
 * copy of the supervisor's memory: no malloc, no stdio; without privileges, in the guest's limits,
 * not dumpable.
 *
 * How one call ends everything (ABI 6 and later): the keeper lives in a Landlock domain of its own,
 * the guest in one below it, both scoped for signals. Nothing the guest does leads out of its
 * domain, and kill(-1) of the keeper reaches exactly the processes in the two domains, however
 * often they forked and whatever session they are in. The kernel walks its list with forking locked
 * out, so one call is enough. Before ABI 6 the filter refuses new sessions and process groups, and
 * the group is killed instead.
 *
 * kill(-1) outside such a domain would end every process of the caller: it is used only when the
 * kernel was seen to refuse a signal to the supervisor.
 *
 * Who survives whom: the supervisor's death closes the lifeline. The keeper's death (kill -9 from
 * outside, the kernel out of memory) kills the main process by its parent-death signal, and hands
 * the rest to the supervisor, a subreaper too, which sweeps them up. */
#include "backend/native/keeper_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/sys.h"
#include "base/util.h"

/* Root gives itself up for an id that owns nothing on this host. The bounding set goes first: that
 * needs a capability which setresuid takes away. It also clears parent-death signal and dumpable.
 */
static void keeper_become_guest(struct native_child *c)
{
    if (!c->plan->own_host_ids)
        return;
    native_child_wait(c);
    for (int cap = 0; cap < 64; cap++)
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0) {
            if (errno != EINVAL || cap == 0) /* EINVAL: past the last one this kernel knows */
                native_child_fail(c, "capabilities", errno, "bounding set");
            break;
        }
    for (int i = 0; i < 3; i++) /* the streams are opened again by name, as /dev/stdout */
        if (fchown(i, c->id, c->id) < 0)
            native_child_fail(c, "ids", errno, "streams");
    if (setgroups(0, NULL) < 0)
        native_child_fail(c, "ids", errno, "setgroups");
    if (setresgid(c->id, c->id, c->id) < 0)
        native_child_fail(c, "ids", errno, "setresgid");
    if (setresuid(c->id, c->id, c->id) < 0)
        native_child_fail(c, "ids", errno, "setresuid");
}

/* The outer of the two domains. True only when the kernel was seen to enforce it. */
static bool keeper_scope(struct native_child *c)
{
    if (!c->plan->scope_signals)
        return false;
    /* A layer that says nothing of moving files between folders refuses it, whatever the guest's
     * own layer allows: this one allows it everywhere. */
    struct sys_landlock_ruleset_attr attr = {.handled_access_fs = SYS_LANDLOCK_FS_REFER,
                                             .scoped = SYS_LANDLOCK_SCOPE_SIGNAL |
                                                       SYS_LANDLOCK_SCOPE_ABSTRACT_UNIX};
    int fd = sys_landlock_create_ruleset(&attr, sizeof(attr), 0);
    struct sys_landlock_path_beneath refer = {.allowed_access = SYS_LANDLOCK_FS_REFER,
                                              .parent_fd = open("/", O_PATH | O_CLOEXEC)};
    if (fd < 0 || refer.parent_fd < 0 ||
        sys_landlock_add_rule(fd, SYS_LANDLOCK_RULE_PATH_BENEATH, &refer) < 0)
        native_child_fail(c, "landlock", errno, "scope");
    close(refer.parent_fd);
    if (fd < 0 || sys_landlock_restrict_self(fd) < 0)
        native_child_fail(c, "landlock", errno, "scope");
    close(fd);
    pid_t parent = getppid();
    if (parent > 0 && kill(parent, 0) == 0)
        native_child_fail(c, "landlock", ENOTSUP, "signals are not scoped");
    return true;
}

static void keeper_kill_all(const struct keeper *k)
{
    if (k->scoped)
        kill(-1, SIGKILL);
    else if (k->main_pid > 1)
        kill(-k->main_pid, SIGKILL);
}

/* Waits until everything that was killed is gone: whoever reads the result finds nothing running.
 */
static _Noreturn void keeper_drain(const struct keeper *k)
{
    pid_t pid;
    while ((pid = waitpid(-1, NULL, __WALL)) > 0 || errno == EINTR)
        k->c->status->ended_together += pid > 0;
    native_child_note_end(k->c);
    _exit(0);
}

static _Noreturn void keeper_end(const struct keeper *k)
{
    keeper_kill_all(k);
    keeper_drain(k);
}

/* The keeper itself failed: the guest ends, and the result says why. */
static _Noreturn void keeper_fail(const struct keeper *k, int err, const char *what)
{
    keeper_kill_all(k);
    native_child_fail(k->c, "keeper", err, what);
}

/* Takes every dead child. The main process is looked at before it is taken: while it is a zombie,
 * its number and that of its process group cannot be anybody else's. */
static void keeper_reap(struct keeper *k)
{
    struct native_status *status = k->c->status;
    for (;;) {
        siginfo_t info = {.si_pid = 0};
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) < 0 && errno != ECHILD &&
            errno != EINTR)
            keeper_fail(k, errno, "wait");
        if (info.si_pid == 0)
            return;
        int wstatus;
        /* who asked to be traced by its parent, and stopped, has not ended */
        if (info.si_pid != k->main_pid || info.si_code == CLD_TRAPPED ||
            info.si_code == CLD_STOPPED) {
            waitpid(info.si_pid, &wstatus, __WALL);
            continue;
        }
        status->exited_ns = clock_ns();
        keeper_kill_all(k);
        if (waitpid(k->main_pid, &wstatus, __WALL) == k->main_pid) {
            status->wstatus = wstatus;
            status->ended_together++;
            if (WIFSIGNALED(wstatus))
                native_command_note_static(k->c->plan, status);
        }
        uint32_t started = NATIVE_STARTED;
        /* a failed set-up or execve recorded its own state: the first cause stays */
        atomic_compare_exchange_strong(&status->state, &started, NATIVE_EXITED);
        keeper_drain(k);
    }
}

/* A signal the supervisor forwards to the main process; false when the lifeline is closed. */
static bool keeper_forward(const struct keeper *k)
{
    unsigned char sig;
    ssize_t n = read(k->c->go_fd, &sig, 1);
    if (n == 1 && sig >= 1 && sig <= 64)
        kill(k->main_pid, sig);
    return n == 1 || (n < 0 && errno == EINTR);
}

static _Noreturn void keeper_run(struct keeper *k, int sigfd)
{
    /* The guest holds the pipes now; a copy here would keep them open after its end. */
    close(0);
    close(1);
    close(2);
    for (size_t i = 0; i < k->c->n_entries; i++)
        close(k->c->entries[i]);

    int listener = atomic_load(&k->c->status->listener_fd);
    struct pollfd fds[3] = {
        {.fd = sigfd, .events = POLLIN},
        {.fd = k->c->go_fd, .events = POLLIN},
        {.fd = listener, .events = POLLIN},
    };
    for (;;) {
        keeper_reap(k);
        if (poll(fds, ARRAY_SIZE(fds), -1) < 0 && errno != EINTR)
            keeper_fail(k, errno, "poll");
        if (fds[0].revents) {
            struct signalfd_siginfo drop;
            while (read(sigfd, &drop, sizeof(drop)) == (ssize_t)sizeof(drop))
                ;
        }
        if (fds[1].revents && !keeper_forward(k)) {
            keeper_reap(k); /* a main process that ended first ended by itself */
            keeper_end(k);
        }
        if (fds[2].revents & POLLIN) {
            if (keeper_serve(k, listener) < 0)
                keeper_fail(k, errno, "seccomp notification");
        } else if (fds[2].revents) {
            fds[2].fd = -1; /* no filtered process is left */
        }
    }
}

/* Entries of its own below /proc that programs read at their start. What shows the host (net,
 * mountinfo) is not among them. The descriptors stay open in the keeper, which shares the table:
 * the kernel would forget the entries, and with them the rules, when nothing refers to them. */
static void keeper_grant_proc(struct native_guest *g)
{
    static const char *const names[] = {"maps",   "smaps", "status", "stat",     "statm", "cmdline",
                                        "comm",   "auxv",  "exe",    "environ",  "fd",    "fdinfo",
                                        "limits", "io",    "cgroup", "oom_score"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        char path[48] = "/proc/self/";
        memcpy(path + strlen(path), names[i], strlen(names[i]) + 1);
        struct stat st;
        int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0)
            continue; /* less is shown, nothing is weaker */
        struct sys_landlock_path_beneath rule = {.parent_fd = fd};
        rule.allowed_access = SYS_LANDLOCK_FS_READ_FILE;
        if (S_ISDIR(st.st_mode))
            rule.allowed_access |= SYS_LANDLOCK_FS_READ_DIR;
        sys_landlock_add_rule(g->fence_fd, SYS_LANDLOCK_RULE_PATH_BENEATH, &rule);
    }
}

void native_keeper_guest(struct native_guest *g)
{
    if (g->fence_fd < 0)
        native_child_fail(g->child, "landlock", ENOSYS, "ruleset");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    keeper_grant_proc(g);
}

_Noreturn void native_keeper_main(struct native_child *c)
{
    static struct keeper k;
    const struct plan *p = c->plan;
    k.c = c;

    native_child_begin(c);
    native_child_wipe_arguments(c);
    /* Out of the caller's session: a Ctrl-C at its terminal must not end the keeper before the
     * guest. */
    setsid();
    int sig_fd = native_child_signals(c, true);
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
        native_child_fail(c, "keeper", errno, "subreaper");
    keeper_become_guest(c);
    native_child_leave_keyring(c);

    umask(022);
    if (chdir(p->cwd) < 0)
        native_child_fail(c, "working directory", errno, p->cwd);
    native_child_copy_files(c);
    native_drop_bounding_set(c);
    native_drop_capabilities(c, 0);
    /* The guest has this uid: a dumpable keeper would lose its descriptors and memory to it. */
    if (prctl(PR_SET_DUMPABLE, 0) < 0)
        native_child_fail(c, "dumpable", errno, "prctl");

    k.scoped = keeper_scope(c);
    struct native_guest guest = {.child = c, .fence_fd = native_fence_make(c, -1), .mounts_fd = -1};
    keeper_serve_open_roots(&k);
    if (native_child_receive_groups(c) < 0)
        _exit(1);
    native_child_note_usage(c);
    k.main_pid = native_guest_clone(&guest);
    if (k.main_pid < 0)
        native_child_fail(c, "fork", errno, "clone");
    close(guest.fence_fd);
    keeper_run(&k, sig_fd);
}

void native_keeper_kill(int pidfd, int *go_fd)
{
    util_close(go_fd);
    sys_pidfd_send_signal(pidfd, SIGCONT); /* should somebody have stopped it */
}
