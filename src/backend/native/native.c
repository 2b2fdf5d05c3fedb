/* The start of a native guest: runs in the supervisor, clones its pid 1, gives it ids and groups.
 */
#include "backend/backend.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/native/cgroup.h"
#include "backend/native/native_internal.h"
#include "backend/native/warm.h"
#include "backend/oci/oci.h"
#include "base/err.h"
#include "base/fdsend.h"
#include "base/sys.h"
#include "base/util.h"
#include "net/netclient.h"

#define START_WAIT_MS 3
#define START_BRIEF_NS 2000000   /* a guest that takes no longer needs nobody to look after it */
#define START_WAIT_READY_MS 1000 /* it may have to start again, before anything else is done */

/* Everything made on the way to a start; what was not handed over is undone in one place. */
struct native_start {
    struct native *n;
    struct native_child child;
    int pipes[3][2];
    int go[2];   /* a socket: words and descriptors to the child, its end is the lifeline */
    int done[2]; /* the child's end closes when it ends */
    int *mount_fds;
    int *file_fds;
    struct netclient *net; /* the broker, of a guest with a way out */
    struct oci_start *oci; /* NULL: the wall is our own */
};

void native_free(struct native *n)
{
    if (!n)
        return;
    if (n->warm)
        warm_release(n->warm); /* the page is a slot of its pool's */
    else if (n->status)
        munmap(n->status, sizeof(*n->status));
    cgroup_destroy(n->cgroup);
    native_again_netns_return(n->net_slot);
    util_close(&n->go_fd);
    util_close(&n->pidfd);
    native_keeper_dir_remove(n->dir, n->is_shared, &n->dir_fd);
    native_id_give(n->ids[0]);
    native_id_give(n->ids[1]);
    free(n);
}

static void start_done(struct native_start *s)
{
    for (int i = 0; i < 3; i++) {
        util_close(&s->pipes[i][0]);
        util_close(&s->pipes[i][1]);
    }
    util_close(&s->go[0]);
    util_close(&s->go[1]);
    util_close(&s->done[0]);
    util_close(&s->done[1]);
    for (size_t i = 0; s->child.plan && s->mount_fds && i < s->child.plan->n_ops; i++)
        util_close(&s->mount_fds[i]);
    for (size_t i = 0; s->child.plan && s->file_fds && i < s->child.plan->n_files; i++)
        util_close(&s->file_fds[i]);
    free(s->mount_fds);
    free(s->file_fds);
    netclient_free(s->net);
    oci_free(s->oci);
    native_free(s->n);
}

/* Sources of files to copy in are opened with the caller's rights, before the guest exists. */
int native_open_files(const struct plan *p, int *fds, struct cordon_err *err)
{
    for (size_t i = 0; i < p->n_files; i++) {
        const struct plan_file *f = &p->files[i];
        if (!f->source)
            continue;
        fds[i] = open(f->source, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        struct stat st;
        if (fds[i] < 0 || fstat(fds[i], &st) < 0)
            return err_set(err, CORDON_ERR_CONFIG, "files", errno, "file %s: %s", f->name,
                           f->source);
        if (!S_ISREG(st.st_mode))
            return err_set(err, CORDON_ERR_CONFIG, "files", 0, "file %s: %s is not a regular file",
                           f->name, f->source);
    }
    return 0;
}

/* Three pipes; or a terminal in the place of the first two, whose far end then serves as stderr
 * too: the third pipe has no writer and reads as ended. */
static int start_streams(struct native_start *s, struct cordon_err *err)
{
    const struct plan *p = s->child.plan;
    int first = 0;
    if (p->terminal) {
        if (native_pty_open(p->rows, p->columns, &s->pipes[0][1], &s->pipes[0][0]) < 0 ||
            (s->pipes[1][0] = fcntl(s->pipes[0][1], F_DUPFD_CLOEXEC, 3)) < 0 ||
            (s->pipes[1][1] = fcntl(s->pipes[0][0], F_DUPFD_CLOEXEC, 3)) < 0)
            return err_set(err, CORDON_ERR_HOST, "start", errno, "a terminal for the guest");
        first = 2;
    }
    for (int i = first; i < 3; i++)
        if (pipe2(s->pipes[i], O_CLOEXEC) < 0)
            return err_set(err, CORDON_ERR_INTERNAL, "start", errno, "pipe");
    s->child.stdio[0] = s->pipes[0][0];
    s->child.stdio[1] = s->pipes[1][1];
    s->child.stdio[2] = s->pipes[p->terminal ? 1 : 2][1];
    return 0;
}

/* The page must outlive an execve where a runtime stands between us and pid 1. */
static int start_status(struct native_start *s, struct cordon_err *err)
{
    if (s->child.plan->oci) {
        if (oci_prepare(s->child.plan, &s->oci, &s->n->status, err) < 0)
            return -1;
        s->child.oci = s->oci;
        s->n->ids[1] = s->oci->root_id;
        return 0;
    }
    void *page = mmap(NULL, sizeof(struct native_status), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return err_set(err, CORDON_ERR_INTERNAL, "start", errno, "status page");
    s->n->status = page;
    return 0;
}

/* What the caller granted is its own again when the run has ended: a disk can be unmounted, a layer
 * is at rest. Nor may a socket stay for a moment in a network namespace that is used again. */
static bool start_leaves_mounts(const struct plan *p)
{
    if (p->tier != TIER_FULL || p->oci || p->hands_back_cwd || p->enter)
        return false;
    for (size_t i = 0; i < p->n_ops; i++)
        if (p->ops[i].kind == PLAN_OP_OVERLAY ||
            (p->ops[i].flags & (PLAN_BIND_GRANT | PLAN_BIND_HELD | PLAN_BIND_KERNELS)))
            return false;
    return true;
}

static int start_prepare(struct native_start *s, struct cordon_err *err)
{
    const struct plan *p = s->child.plan;
    s->mount_fds = calloc(p->n_ops + 1, sizeof(int));
    s->file_fds = calloc(p->n_files + 1, sizeof(int));
    s->n = calloc(1, sizeof(*s->n));
    if (!s->mount_fds || !s->file_fds || !s->n)
        return err_nomem(err, "start");
    s->n->go_fd = s->n->pidfd = -1;
    s->n->dir_fd = -1;
    s->n->dir = p->private_dir;
    s->n->is_shared = p->is_handle;
    for (size_t i = 0; i < p->n_ops; i++)
        s->mount_fds[i] = -1;
    for (size_t i = 0; i < p->n_files; i++)
        s->file_fds[i] = -1;
    s->child.tells_begun = p->tier == TIER_FULL && !p->oci && !p->enter;
    native_cores_note(&s->child);
    native_ready_find(&s->child);
    if (start_status(s, err) < 0)
        return -1;
    s->n->status->listener_fd = -1;
    s->n->status->wall_ns = p->limits.wall_ns;
    if (start_streams(s, err) < 0)
        return -1;
    if (pipe2(s->done, O_CLOEXEC) < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s->go) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "start", errno, "pipe");
    if (native_open_files(p, s->file_fds, err) < 0)
        return -1;
    s->n->cgroup = native_again_groups(p);
    s->n->has_groups = s->n->cgroup != NULL;
    if (!s->n->cgroup && (p->cgroups.kind != HOST_CGROUP_NONE || p->cgroups.v2[0]) &&
        cgroup_create(&p->cgroups, &p->limits, CGROUP_OWN_TASKS, &s->n->cgroup, err) < 0)
        return -1;
    /* the launcher and its runtime are not the guest: what counts enters by itself */
    if (s->oci && s->n->cgroup && cgroup_clone_fd(s->n->cgroup) >= 0 &&
        (s->oci->v2_fd =
             openat(cgroup_clone_fd(s->n->cgroup), "cgroup.procs", O_WRONLY | O_CLOEXEC)) < 0)
        return err_set(err, CORDON_ERR_HOST, "cgroup", errno, "cgroup.procs");

    if (p->net && native_broker_start(p->net, &s->child, &s->net, err) < 0)
        return -1;
    s->child.status = s->n->status;
    s->child.done_fd = s->done[1];
    s->child.go_fd = s->go[0];
    s->child.leaves_mounts = start_leaves_mounts(p);
    s->child.mount_fds = s->mount_fds;
    s->child.file_fds = s->file_fds;
    native_argv_area(&s->child.argv_area, &s->child.argv_area_len);
    return 0;
}

/* After a failure behind the clone: nothing of the child may stay. */
static int start_abort(pid_t pid, int pidfd)
{
    native_kill_child(pid, pidfd);
    while (waitpid(pid, NULL, __WALL) < 0 && errno == EINTR)
        ;
    close(pidfd);
    return -1;
}

/* clone3 where there is one; an outer filter may answer ENOSYS, then clone does the same and the
 * child enters its v2 group by itself, first of all: moved by us it could have forked before. */
static pid_t start_clone(struct native_start *s, uint64_t flags, int *ret_pidfd)
{
    int into = s->n->cgroup && !s->oci ? cgroup_clone_fd(s->n->cgroup) : -1;
    struct clone_args args = {
        .flags = flags | CLONE_PIDFD | (into >= 0 ? CLONE_INTO_CGROUP : 0),
        .pidfd = (uint64_t)(uintptr_t)ret_pidfd,
        .exit_signal = SIGCHLD,
        .cgroup = into >= 0 ? (uint64_t)into : 0,
    };
    pid_t pid = sys_clone3(&args);
    if (pid >= 0 || errno != ENOSYS)
        return pid;
    pid = (pid_t)syscall(SYS_clone, flags | CLONE_PIDFD | SIGCHLD, 0, ret_pidfd, 0, 0);
    int r = pid == 0 && into >= 0 ? cgroup_join(s->n->cgroup) : 0;
    if (r < 0)
        native_child_fail(&s->child, "cgroup", -r, "enter");
    return pid;
}

/* Guests that do not execve keep what their maker has mapped: each gets its own page only. */
static int start_own_page(const struct native_start *s, struct cordon_err *err)
{
    if (!s->child.plan->enter || madvise(s->n->status, sizeof(*s->n->status), MADV_DONTFORK) == 0)
        return 0;
    return err_set(err, CORDON_ERR_INTERNAL, "start", errno, "status page");
}

/* The v1 groups are made while the child builds its root, and handed over as descriptors. Their
 * limits are written while it puts up its filter: it waits for them before its execve. Others
 * do not, and get them with the groups. */
static int start_groups(struct native_start *s, struct cordon_err *err)
{
    const struct plan *p = s->child.plan;
    struct cgroup *cg = s->n->cgroup;
    bool is_new = !s->n->has_groups, asks = s->child.tells_begun;
    if (p->cgroups.kind != HOST_CGROUP_V1)
        return 0;
    if (is_new && (cgroup_make_v1(cg, &p->cgroups, &p->limits, err) < 0 ||
                   (!asks && cgroup_limit_v1(cg, &p->cgroups, &p->limits, err) < 0)))
        return -1;
    int fds[CGROUP_ENTRIES_MAX];
    size_t n = cgroup_entries(cg, fds);
    struct iovec iov = {"c", 1};
    /* EPIPE: the child has failed already and says why on its status page */
    if (fdsend_fds(s->go[1], &iov, 1, fds, n, 0) < 0 && errno != EPIPE)
        return err_set(err, CORDON_ERR_INTERNAL, "start", errno, "hand over groups");
    if (is_new && asks) {
        cgroup_serves_one(cg);
        if (cgroup_limit_v1(cg, &p->cgroups, &p->limits, err) < 0)
            return -1;
    }
    native_guest_limited(s->n->status);
    return 0;
}

static const char *start_refusal_hint(int err)
{
    switch (err) {
    case EPERM: return "user namespaces are refused here; `cordon doctor` says by what";
    case ENOSPC:
    case EUSERS: return "user.max_user_namespaces is used up or 0; raise it with sysctl";
    case ENOSYS: return "this kernel has no namespaces for us";
    default: return "`cordon doctor` shows what this host allows";
    }
}

/* Whom the guest is outside: its own id where we are root, and mounts and streams that are its own.
 */
static int start_ids(struct native_start *s, bool *ret_host_refused, struct cordon_err *err)
{
    const struct plan *plan = s->child.plan;
    unsigned root_id = s->oci ? s->oci->root_id : 0;
    unsigned id = plan->own_host_ids ? native_id_take() : 0;
    s->n->ids[0] = id;
    if (plan->own_host_ids && plan->tier == TIER_FULL &&
        native_idmap_open(plan, id, root_id, s->mount_fds, err) < 0) {
        /* the first thing that asks for a user namespace here: its refusal is that of the tier */
        *ret_host_refused =
            str_eq(err->stage, "ids") && err->sys_errno != ENOMEM && err->sys_errno != EAGAIN;
        return -1;
    }
    if (plan->tier == TIER_LANDLOCK && native_keeper_dir_make(plan, &id, &s->n->dir_fd, err) < 0)
        return -1;
    s->child.id = id;

    /* The guest may open its streams again by /dev/stdout and the like: they must be its own. */
    for (int i = 0; plan->own_host_ids && plan->tier == TIER_FULL && i < 3; i++)
        if (fchown(s->child.stdio[i], id, id) < 0)
            return err_set(err, CORDON_ERR_INTERNAL, "start", errno, "owner of a pipe");
    return 0;
}

/* The first process of ours inside; -1 with an error, in the child it does not return. */
static pid_t start_first(struct native_start *s, int *ret_pidfd, bool *ret_host_refused,
                         struct cordon_err *err)
{
    const struct plan *plan = s->child.plan;
    uint64_t flags = 0;
    if (plan->tier == TIER_FULL)
        flags = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWUTS;
    if (plan->oci) /* our own pid 1 makes it beside other work */
        flags |= CLONE_NEWIPC;
    s->child.makes_mounts = plan->tier == TIER_FULL && !plan->oci &&
                            native_root_is_unfiltered(plan) && native_child_is_beside(plan);
    if (plan->tier == TIER_FULL && !s->child.makes_mounts)
        flags |= CLONE_NEWNS;
    s->child.has_netns = native_again_netns_begin(plan, &s->n->net_slot);
    native_cores_before(&s->child);
    pid_t pid = start_clone(s, flags, ret_pidfd);
    int e = errno;
    if (pid > 0)
        native_cores_begin(&s->child, pid);
    else if (pid == 0)
        native_cores_born(&s->child);
    if (pid != 0 && s->child.has_netns)
        native_again_netns_end();
    if (pid < 0) {
        *ret_host_refused = plan->tier == TIER_FULL && e != ENOMEM && e != EAGAIN;
        err_set(err, *ret_host_refused ? CORDON_ERR_HOST : CORDON_ERR_INTERNAL, "clone", e,
                "new namespaces");
        return err_hint(err, "%s", start_refusal_hint(e));
    }
    if (pid == 0) {
        if (plan->oci)
            oci_launch_main(&s->child);
        if (plan->tier == TIER_FULL)
            native_child_main(&s->child);
        native_keeper_main(&s->child);
    }
    return pid;
}

/* What the child waits for: its map, and its groups. */
static int start_serve(struct native_start *s, pid_t pid, bool *ret_host_refused,
                       struct cordon_err *err)
{
    const struct plan *plan = s->child.plan;
    bool told = plan->own_host_ids || plan->oci;
    int r = start_own_page(s, err);
    if (r == 0 && plan->oci)
        r = oci_write_maps(plan, s->oci, pid, s->child.id, ret_host_refused, err);
    else if (r == 0 && plan->tier == TIER_FULL && plan->own_host_ids)
        r = native_write_maps(pid, s->child.id, ret_host_refused, err);
    /* EPIPE: the child has failed already and says why on its status page */
    if (r == 0 && told && send(s->go[1], "g", 1, MSG_NOSIGNAL) != 1 && errno != EPIPE)
        r = err_set(err, CORDON_ERR_INTERNAL, "start", errno, "start signal");
    return r < 0 ? -1 : start_groups(s, err);
}

/* Many guests end before the loop that would look after them is there, and every time we are woken
 * for less than that takes as long as a tenth of theirs. Its end, or that it begun and takes
 * longer. */
static bool start_wait_end(struct native_start *s)
{
    struct pollfd end = {.fd = s->done[0]}; /* its closing only, not pid 1's words */
    uint64_t wall_ns = s->child.plan->limits.wall_ns;
    uint64_t most = wall_ns ? MIN(wall_ns, START_BRIEF_NS) : START_BRIEF_NS;
    struct timespec rest = {.tv_nsec = (long)most};
    atomic_store(&s->n->status->is_alone, true);
    return ppoll(&end, 1, &rest, NULL) > 0 || atomic_load(&s->n->status->state) == NATIVE_STARTED;
}

/* Both processes inside have more to do than there are cores for, and what we have left has time
 * until the guest runs, or has ended. A busy host may take longer: then we go on beside them. */
static void start_wait(struct native_start *s, bool wants_nothing)
{
    struct pollfd begun = {.fd = s->done[0], .events = POLLIN};
    if (!s->child.tells_begun || !s->child.is_alone)
        return;
    util_close(&s->done[1]); /* its end closes with pid 1 */
    if (wants_nothing && start_wait_end(s))
        return;
    /* no longer than the guest may take: nobody else looks at the clock meanwhile */
    uint64_t ms = s->child.ready_ino ? START_WAIT_READY_MS : START_WAIT_MS;
    uint64_t wall_ns = s->child.plan->limits.wall_ns;
    poll(&begun, 1, (int)(wall_ns ? MIN(ms, wall_ns / 1000000 + 1) : ms));
}

/* A failure where the root lay ready: nothing of the run has happened yet, and it starts again with
 * one that is made for it. */
static bool start_lost_root(const struct native_start *s)
{
    return s->child.ready_ino && s->n->status->started_ns == 0 &&
           atomic_load(&s->n->status->state) == NATIVE_FAILED;
}

static int start_once(const struct plan *plan, struct guest *ret_guest,
                      char ret_lost[static NATIVE_READY_PATH], bool *ret_host_refused,
                      struct cordon_err *err)
{
    struct native_start s __attribute__((cleanup(start_done))) = {
        .child = {.plan = plan, .broker_fd = -1, .is_alone = ret_guest->is_last},
        .pipes = {{-1, -1}, {-1, -1}, {-1, -1}},
        .go = {-1, -1},
        .done = {-1, -1}};
    int pidfd = -1;
    *ret_host_refused = false;
    *ret_lost = '\0';
    if (start_prepare(&s, err) < 0 || start_ids(&s, ret_host_refused, err) < 0)
        return -1;
    pid_t pid = start_first(&s, &pidfd, ret_host_refused, err);
    if (pid < 0)
        return -1;
    if (start_serve(&s, pid, ret_host_refused, err) < 0)
        return start_abort(pid, pidfd);
    bool is_brief = ret_guest->wants_nothing && !plan->net; /* a broker has last words of its own */
    start_wait(&s, is_brief);
    if (start_lost_root(&s)) {
        memcpy(ret_lost, s.child.ready_path, NATIVE_READY_PATH);
        return start_abort(pid, pidfd);
    }

    if (!s.child.tells_begun)
        native_sweep(plan, false);
    native_broker_started(s.net);
    s.n->go_fd = TAKE_FD(s.go[1]);
    s.n->pidfd = pidfd;
    memcpy(s.n->ready_path, s.child.ready_path, sizeof(s.n->ready_path));
    s.n->has_ready = s.child.ready_ino != 0;
    s.n->cores = s.child.cores;
    s.n->n_cores = s.child.n_cores;
    *ret_guest = (struct guest){
        .backend = &backend_native,
        .plan = plan,
        .event_fd = TAKE_FD(s.done[0]),
        .stdio = {TAKE_FD(s.pipes[0][1]), TAKE_FD(s.pipes[1][0]), TAKE_FD(s.pipes[2][0])},
        .pid = pid,
        .tells_begun = s.child.tells_begun,
        .is_last = s.child.is_alone,
        .has_ended = s.child.is_alone && is_brief && s.n->status->all_dead,
        .net = TAKE_PTR(s.net),
        .priv = TAKE_PTR(s.n),
    };
    return 0;
}

int native_start(const struct plan *plan, struct guest *ret_guest, bool *ret_host_refused,
                 struct cordon_err *err)
{
    char lost[NATIVE_READY_PATH], none[NATIVE_READY_PATH];
    int r = start_once(plan, ret_guest, lost, ret_host_refused, err);
    if (!lost[0])
        return r;
    native_ready_stop();
    r = start_once(plan, ret_guest, none, ret_host_refused, err);
    /* that was it, and not something of the run's own */
    if (r == 0 && native_has_started(ret_guest))
        native_ready_distrust(lost);
    return r;
}
