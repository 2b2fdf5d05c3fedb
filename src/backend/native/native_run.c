/* The native backend's outer half after the start: a guest while it runs, and what is left of it.
 * Runs in the supervisor. */
#include "backend/backend.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/native/cgroup.h"
#include "backend/native/native_internal.h"
#include "backend/native/warm.h"
#include "backend/oci/oci.h"
#include "base/err.h"
#include "base/sys.h"
#include "base/util.h"
#include "net/netclient.h"

static void native_kill(struct guest *g)
{
    struct native *n = g->priv;
    n->was_killed = true;
    /* tier full: the kernel ends the whole pid namespace with its pid 1 */
    if (n->warm) {
        sys_pidfd_send_signal(n->pidfd, SIGKILL);
        shutdown(n->go_fd, SHUT_WR); /* a room's porter goes as well, with whom only it can reap */
    } else if (g->plan->tier == TIER_FULL)
        native_kill_child(g->pid, n->pidfd);
    else
        native_keeper_kill(n->pidfd, &n->go_fd);
    if (n->cgroup)
        cgroup_kill(n->cgroup);
}

void native_sweep(const struct plan *plan, bool has_groups)
{
    static bool swept;
    if (!swept)
        cgroup_gc(&plan->cgroups, has_groups);
    swept = true;
}

static void begun_make_ready(const struct guest *g)
{
    const struct native *n = g->priv;
    if (n->ready_path[0] && !n->has_ready && g->is_last)
        native_ready_make(n->ready_path, g->plan);
}

/* While the guest's processes were made they needed every core; now we have the time: what is read
 * of its groups at the end is opened already. */
static bool native_begun(struct guest *g)
{
    struct native *n = g->priv;
    char word;
    if (n->status->all_dead || read(g->event_fd, &word, 1) != 1 || word != NATIVE_WORD_BEGUN)
        return false;
    atomic_store(&n->status->is_alone, g->is_last);
    int entries[CGROUP_ENTRIES_MAX];
    native_sweep(g->plan, n->cgroup && (cgroup_clone_fd(n->cgroup) >= 0 ||
                                        cgroup_entries(n->cgroup, entries) > 0));
    if (n->cgroup && !g->plan->is_handle) /* which has other guests, and so many descriptors */
        cgroup_keep_files(n->cgroup);
    begun_make_ready(g);
    /* should the guest end soon: its pid 1 has as much to do then as we have */
    if (g->is_last && !n->status->all_dead)
        native_cores_leave(&n->cores, n->n_cores, g->pid);
    return true;
}

static int native_signal(struct guest *g, int sig)
{
    struct native *n = g->priv;
    char byte = (char)sig;
    /* pid 1 forwards: only it knows which process is the main one */
    if (sig < 1 || sig > 64 || send(n->go_fd, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1)
        return -1;
    return 0;
}

static uint64_t native_started(struct guest *g)
{
    struct native *n = g->priv;
    return atomic_load(&n->status->state) == NATIVE_SETUP ? 0 : n->status->started_ns;
}

bool native_has_started(struct guest *g)
{
    const struct native *n = g->priv;
    uint32_t state = atomic_load(&n->status->state);
    return state != NATIVE_SETUP && state != NATIVE_FAILED;
}

static void usage_of(const struct cgroup_usage *c, struct backend_usage *ret)
{
    *ret = (struct backend_usage){
        .cpu_user_ns = c->cpu_user_ns,
        .cpu_sys_ns = c->cpu_sys_ns,
        .peak_memory_bytes = c->memory_peak_bytes,
        .processes_peak = c->pids_peak - MIN(c->pids_peak, c->own_tasks),
        .processes_refused = c->pids_refused,
        .oom_kills = c->oom_kills,
        .throttled_ns = c->throttled_ns,
    };
}

static int native_measure(struct guest *g, struct backend_usage *ret)
{
    struct native *n = g->priv;
    struct cgroup_usage u;
    if (n->status->all_dead) /* the end, which is about to be told, reads all of it */
        return -1;
    /* it did not: pid 1 runs where it likes */
    if (n->n_cores > 1)
        native_cores_give(&n->cores, g->pid);
    n->n_cores = 0;
    if (!n->cgroup)
        return -1;
    cgroup_limit_late(n->cgroup);
    if (cgroup_needs_sampling(n->cgroup))
        cgroup_sample(n->cgroup);
    if (native_started(g))
        cgroup_exclude_cpu(n->cgroup, n->status->setup_user_ns, n->status->setup_sys_ns);
    if (cgroup_usage(n->cgroup, &u) < 0)
        return -1;
    cgroup_weigh(n->cgroup, u.throttled_ns);
    usage_of(&u, ret);
    if (g->plan->own_kernel)
        oci_usage(n, ret);
    return 0;
}

static int native_pause(struct guest *g, bool pause)
{
    struct native *n = g->priv;
    return n->cgroup && cgroup_freeze(n->cgroup, pause) == 0 ? 0 : -1;
}

/* Where no group counts it. A room's porter knows its own children, pid 1 all others. */
static void finish_cpu(const struct native *n, const struct rusage *ru, struct backend_usage *u)
{
    const struct native_status *st = n->status;
    bool in_room = n->warm && warm_is_room(n->warm);
    if (st->all_dead || in_room) {
        u->cpu_user_ns = st->guest_user_ns;
        u->cpu_sys_ns = st->guest_sys_ns;
    }
    if (st->all_dead)
        return;
    uint64_t user = native_tv_ns(ru->ru_utime), sys = native_tv_ns(ru->ru_stime);
    uint64_t own_user = in_room ? st->room_user_ns : st->setup_user_ns;
    uint64_t own_sys = in_room ? st->room_sys_ns : st->setup_sys_ns;
    u->cpu_user_ns += user - MIN(user, own_user);
    u->cpu_sys_ns += sys - MIN(sys, own_sys);
}

/* The groups know the whole tree; what they do not measure comes from the kernel's accounting of
 * the waited-for tree: pid 1's view of its children (in a room the porter's of its own), or ours of
 * pid 1 when it was killed. */
static void finish_usage(struct guest *g, const struct rusage *ru, struct backend_usage *u)
{
    struct native *n = g->priv;
    const struct native_status *st = n->status;
    struct cgroup_usage c = {0};
    if (n->cgroup) {
        bool exited = st->state == NATIVE_EXITED && WIFEXITED(st->wstatus);
        bool waited = exited && st->all_dead;
        cgroup_exclude_cpu(n->cgroup, st->setup_user_ns, st->setup_sys_ns);
        cgroup_note_end(n->cgroup, exited, waited ? st->guest_user_ns : 0,
                        waited ? st->guest_sys_ns : 0);
        if (cgroup_usage(n->cgroup, &c) == 0)
            usage_of(&c, u);
    }
    if (!c.has_cpu)
        finish_cpu(n, ru, u);
    if (!c.has_memory && st->all_dead)
        u->peak_memory_bytes = st->guest_rss_bytes;
    else if (!c.has_memory)
        u->peak_memory_bytes = MAX((uint64_t)ru->ru_maxrss * 1024, st->guest_rss_bytes);
}

static void finish_denials(const struct native_status *st, struct backend_outcome *o)
{
    o->denials_unobserved = st->no_listener != 0;
    for (int nr = 0; nr < NATIVE_CALLS && o->n_denials < BACKEND_DENIALS_MAX; nr++)
        if (st->denials[nr] > 0)
            o->denials[o->n_denials++] =
                (struct backend_denial){nr == NATIVE_CALLS - 1 ? -1 : nr, st->denials[nr]};
}

/* A file of the caller's to be put in, where the workspace or a mount has something else, or whose
 * name no file system takes. */
static bool finish_is_in_the_way(const struct native_status *st)
{
    return str_eq(st->stage, "files") &&
           (st->fail_errno == ENOTDIR || st->fail_errno == EEXIST || st->fail_errno == EROFS ||
            st->fail_errno == ENAMETOOLONG);
}

/* A mount of the caller's has no place where it was to go. */
static bool finish_has_no_place(const struct native_status *st)
{
    return str_eq(st->stage, NATIVE_STAGE_PLACE);
}

/* Tier landlock has no identity-mapped mounts: a grant may be out of the dropped uid's reach. */
static bool finish_is_unreachable(const struct guest *g, const struct native_status *st)
{
    return g->plan->tier == TIER_LANDLOCK && g->plan->own_host_ids && st->fail_errno == EACCES &&
           str_eq(st->stage, "landlock");
}

/* What the caller named does not fit what is there: another name helps; or its limit is too low. */
static void finish_hint(const struct native_status *st, struct cordon_err *err)
{
    if (finish_has_no_place(st))
        err_hint(err, "a folder goes on a folder and a file on a file, and nothing new is made in "
                      "what is read-only: mount it elsewhere, such as below /mnt");
    else if (finish_is_in_the_way(st) && st->fail_errno == EROFS)
        err_hint(err, "files are put into the working directory, and the workspace is read-only: "
                      "DIR:overlay");
    else if (finish_is_in_the_way(st) && st->fail_errno == ENAMETOOLONG)
        err_hint(err, "no part of a file's name may have more than 255 bytes");
    else if (finish_is_in_the_way(st))
        err_hint(err, "files are put in below folders, over nothing that is there and through "
                      "no link: choose another name");
    else if (st->fail_errno == EAGAIN && str_eq(st->stage, "fork"))
        err_hint(err, "the guest's user has as many processes as the caller's limit lets it have: "
                      "raise that one (ulimit -u)");
}

static void finish_state(struct guest *g, struct backend_outcome *o, struct cordon_err *err)
{
    const struct native_status *st = ((struct native *)g->priv)->status;
    switch ((enum native_state)st->state) {
    case NATIVE_EXITED:
        o->end = BACKEND_EXITED;
        o->wstatus = st->wstatus;
        break;
    case NATIVE_EXEC_FAILED:
        o->end = BACKEND_EXEC_FAILED;
        o->exec_errno = st->exec_errno;
        break;
    case NATIVE_STARTED: o->end = BACKEND_KILLED; break;
    case NATIVE_SETUP: /* pid 1 died without a word: killed by us, or by the memory limit */
        o->end = BACKEND_SETUP_FAILED;
        err_set(err, CORDON_ERR_INTERNAL, "start", 0, "the guest's first process was killed");
        break;
    case NATIVE_FAILED:
        o->end = BACKEND_SETUP_FAILED;
        o->host_refused = g->plan->tier == TIER_FULL && native_stage_is_tier(st->stage) &&
                          (st->fail_errno == EPERM || st->fail_errno == EACCES ||
                           st->fail_errno == ENOSYS || st->fail_errno == ENOSPC);
        err_set(err,
                o->host_refused || finish_is_unreachable(g, st) || str_eq(st->stage, "apparmor") ||
                        native_stage_is_netless(st) || str_eq(st->stage, "runtime")
                    ? CORDON_ERR_HOST
                : finish_is_in_the_way(st) || finish_has_no_place(st) ? CORDON_ERR_CONFIG
                                                                      : CORDON_ERR_INTERNAL,
                st->stage, st->fail_errno, "%s%s", finish_has_no_place(st) ? "/" : "", st->what);
        finish_hint(st, err);
        if (finish_is_unreachable(g, st))
            err_hint(err,
                     "in tier landlock root's guest is an ordinary user: what is granted must be "
                     "within reach of others");
        if (native_stage_is_netless(st))
            err_hint(err, "network rules need veth pairs and routes in namespaces of one's own: "
                          "`cordon doctor` says what this kernel lacks");
        if (o->host_refused)
            err_hint(err, "`cordon doctor` says what this host refuses and the smallest fix");
        break;
    }
}

static int finish_reap(pid_t pid, struct rusage *ru)
{
    int wstatus = 0;
    while (wait4(pid, &wstatus, __WALL, ru) < 0 && errno == EINTR)
        ;
    return wstatus;
}

static void finish_wait(struct guest *g, struct rusage *ru)
{
    struct native *n = g->priv;
    if (n->warm) {
        warm_wait(n->warm, ru);
        return;
    }
    int wstatus = finish_reap(g->pid, ru);
    /* a keeper that was killed could not take the guest along */
    if (g->plan->tier == TIER_LANDLOCK && WIFSIGNALED(wstatus)) {
        if (n->cgroup)
            cgroup_kill(n->cgroup);
        native_keeper_sweep();
    }
}

/* End of file on the pipe is the end of pid 1's own code. If it was killed, its guest may need a
 * moment more: the process descriptor tells when the kernel has ended them all. */
static int native_lingers(struct guest *g)
{
    struct native *n = g->priv;
    struct pollfd p = {.fd = n->pidfd, .events = POLLIN};
    /* where poll itself fails, waiting for the process must do */
    return n->status->all_dead || poll(&p, 1, 0) != 0 ? -1 : n->pidfd;
}

/* The last guest of this process, of which only pid 1 is left, on its way out. Its plan may be
 * gone.
 */
static struct native *unsettled;
static pid_t unsettled_pid;

static void native_settle(void)
{
    if (!unsettled)
        return;
    finish_reap(unsettled_pid, NULL);
    native_free(TAKE_PTR(unsettled));
}

/* This process ends: its page goes with it, without a word to every core it has run on. */
static void native_settle_last(void)
{
    if (unsettled)
        unsettled->status = NULL;
    native_settle();
    netclient_settle();
}

/* Who looks into the guest's layer or folder next must find it at rest. */
static bool finish_may_wait(const struct guest *g)
{
    const struct plan *p = g->plan;
    const struct native *n = g->priv;
    if (!g->is_last || p->tier != TIER_FULL || n->warm || p->oci || p->hands_back_cwd)
        return false;
    for (size_t i = 0; i < p->n_ops; i++)
        if (p->ops[i].kind == PLAN_OP_OVERLAY)
            return false;
    return true;
}

static void native_finish(struct guest *g, struct backend_outcome *o, struct cordon_err *err)
{
    struct native *n = g->priv;
    struct rusage ru = {0};
    native_settle();
    /* With every process of the guest reaped, the numbers are final and the groups empty: they go
     * while the kernel takes pid 1's namespaces apart. Otherwise pid 1 comes first. */
    bool early = n->status->all_dead != 0;
    if (!early)
        finish_wait(g, &ru);
    *o = (struct backend_outcome){
        .started_ns = n->status->started_ns,
        .ended_ns = n->status->exited_ns,
        .cwd_fd = g->plan->hands_back_cwd ? native_collect_receive(n->go_fd) : -1};
    finish_state(g, o, err);
    finish_usage(g, &ru, &o->usage);
    finish_denials(n->status, o);
    o->time_hit = n->status->time_hit != 0;
    o->scratch_full = n->status->scratch_full != 0;
    o->scratch_by_files = n->status->scratch_full == 2;
    o->rejected = n->warm && n->status->rejected != 0;
    o->memory_refused = n->status->memory_refused;
    o->usage.processes_refused += n->status->processes_refused;
    o->static_bytes = n->status->static_bytes;
    o->usage.processes_peak = MAX(o->usage.processes_peak, n->status->ended_together);
    if (g->plan->own_kernel)
        oci_outcome(g->plan, n, o);
    snprintf(o->cgroup, sizeof(o->cgroup), "%s", n->cgroup ? cgroup_describe(n->cgroup) : "none");
    if (n->cgroup &&
        (n->warm ? warm_keep_groups(n->warm, n->cgroup) : native_again_keep(g->plan, n->cgroup)))
        n->cgroup = NULL;
    if (n->cgroup)
        cgroup_remove_v1(n->cgroup);
    for (int i = 0; i < 3; i++)
        util_close(&g->stdio[i]);
    if (early && n->warm && !n->was_killed && warm_keep_room(n->warm, &n->go_fd, &g->event_fd))
        n->pidfd = -1; /* stays with the room */
    util_close(&g->event_fd);
    native_sweep(g->plan, false); /* of a guest that was gone before there was time for it */
    if (g->has_ended)
        begun_make_ready(g);
    if (early && finish_may_wait(g)) {
        unsettled = n;
        unsettled_pid = g->pid;
    } else {
        /* a prepared guest's pid 1 is its spawner's to reap, unless a group waits to be empty of it
         */
        bool holds_pid1 =
            n->cgroup && cgroup_clone_fd(n->cgroup) >= 0 && !(n->warm && warm_is_room(n->warm));
        if (early && (!n->warm || holds_pid1))
            finish_wait(g, &ru);
        native_free(n);
    }
    g->priv = NULL;
}

const struct backend backend_native = {
    .name = "native",
    .start = native_start,
    .claim = warm_claim,
    .kill = native_kill,
    .signal = native_signal,
    .started = native_started,
    .measure = native_measure,
    .pause = native_pause,
    .begun = native_begun,
    .lingers = native_lingers,
    .finish = native_finish,
    .settle = native_settle_last,
};
