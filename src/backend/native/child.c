/* The guest's pid 1 while it builds the wall (tier full).
 *
 * Runs after the clone, in the new namespaces, in a copy of the supervisor's memory: no malloc, no
 * stdio, no decisions; the plan says what to do and every failure ends the child with a record on
 * the status page. The order below is load-bearing; each step says why it stands where it stands.
 */
#include "backend/native/native_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backend/oci/oci.h"
#include "base/clock.h"
#include "base/raw.h"
#include "base/sys.h"
#include "base/util.h"

#define CHILD_FAIL_LOOKS 10000 /* a few milliseconds: who writes may have to wait for a core */

_Noreturn void native_child_fail(struct native_child *c, const char *stage, int err,
                                 const char *what)
{
    struct native_status *s = c->status;
    /* pid 1 and the process that becomes the guest work side by side: the first failure is told,
     * and the end of the other one, if that is pid 1, must not cut it short */
    if (atomic_exchange(&s->failing, 1)) {
        for (int i = 0; i < CHILD_FAIL_LOOKS && atomic_load(&s->state) != NATIVE_FAILED; i++)
            raw_call(SYS_sched_yield);
        _exit(1);
    }
    size_t n = MIN(strlen(stage), sizeof(s->stage) - 1);
    memcpy(s->stage, stage, n);
    s->stage[n] = '\0';
    n = MIN(strlen(what), sizeof(s->what) - 1);
    memcpy(s->what, what, n);
    s->what[n] = '\0';
    s->fail_errno = err;
    atomic_store(&s->state, NATIVE_FAILED);
    _exit(1);
}

/* A supervisor with many guests holds the pipes of all of them: every descriptor but ours is closed
 * before anything else, so that no guest's end of file waits for another guest's pid 1. */
static void child_keep_only_ours(struct native_child *c)
{
    for (int i = 0; i < 3; i++)
        if (dup2(c->stdio[i], i) < 0)
            native_child_fail(c, "descriptors", errno, "dup2");

    const struct plan *p = c->plan;
    int last = 2;
    for (;;) {
        int next = c->go_fd > last ? c->go_fd : -1;
        if (c->done_fd > last && (next < 0 || c->done_fd < next))
            next = c->done_fd;
        if (c->broker_fd > last && (next < 0 || c->broker_fd < next))
            next = c->broker_fd;
        for (size_t i = 0; i < p->n_ops; i++)
            if (c->mount_fds[i] > last && (next < 0 || c->mount_fds[i] < next))
                next = c->mount_fds[i];
        for (size_t i = 0; i < p->n_files; i++)
            if (c->file_fds[i] > last && (next < 0 || c->file_fds[i] < next))
                next = c->file_fds[i];
        const int ours[] = {c->oci ? c->oci->status_fd : -1, c->oci ? c->oci->exe_fd : -1,
                            c->oci ? c->oci->v2_fd : -1};
        for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
            if (ours[i] > last && (next < 0 || ours[i] < next))
                next = ours[i];
        if (next < 0)
            break;
        if (next > last + 1)
            sys_close_range((unsigned)last + 1, (unsigned)next - 1);
        last = next;
    }
    if (sys_close_range((unsigned)last + 1, ~0U) < 0)
        native_child_fail(c, "descriptors", errno, "close_range");
}

void native_child_wait(struct native_child *c)
{
    char byte;
    ssize_t n;
    do
        n = read(c->go_fd, &byte, 1);
    while (n < 0 && errno == EINTR);
    if (n != 1)
        _exit(1); /* the supervisor gave up or died; nobody is left to tell */
}

/* Until here a child started by root is still host root to file permissions; afterwards it is the
 * guest's own unprivileged id. Bare system calls: the C library's wrappers talk to threads this
 * process does not have. setresuid does not take the namespace's capabilities away because the
 * namespace has no uid 0. */
void native_child_take_ids(struct native_child *c)
{
    long r = c->plan->own_host_ids ? raw_call(SYS_setgroups, 0, NULL) : 0;
    if (r < 0)
        native_child_fail(c, "ids", (int)-r, "setgroups");
    r = raw_call(SYS_setresgid, PLAN_GUEST_GID, PLAN_GUEST_GID, PLAN_GUEST_GID);
    if (r < 0)
        native_child_fail(c, "ids", (int)-r, "setresgid");
    r = raw_call(SYS_setresuid, PLAN_GUEST_UID, PLAN_GUEST_UID, PLAN_GUEST_UID);
    if (r < 0)
        native_child_fail(c, "ids", (int)-r, "setresuid");
    /* setresuid made our memory non-dumpable, which hands /proc/self to an unmapped owner: it must
     * be ours while we write there, and is taken away again before the guest exists. */
    raw_call(SYS_prctl, PR_SET_DUMPABLE, 1);
}

static void child_become_guest(struct native_child *c)
{
    /* the supervisor is not dumpable and neither is its copy: /proc/self must be ours to write */
    prctl(PR_SET_DUMPABLE, 1);
    if (c->plan->own_host_ids)
        native_child_wait(c);
    else if (native_map_self(c->plan) < 0)
        native_child_fail(c, "ids", errno, "id map");
    native_child_take_ids(c);
    /* the parent-death signal is cleared by setresuid, so it is set after it; the lifeline pipe
     * covers a supervisor that died before this line */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static int child_own_namespace(int self, unsigned long which, const char *path)
{
    int fd = self < 0 ? -1 : ioctl(self, which, 0);
    return fd >= 0 ? fd : sys_open(path, O_RDONLY | O_CLOEXEC);
}

int native_own_namespace(unsigned long which, const char *path)
{
    _cleanup_close_ int self = sys_pidfd_open(getpid());
    return child_own_namespace(self, which, path);
}

static void child_write_file(struct native_child *c, const char *path, const char *text)
{
    int fd = sys_open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        native_child_fail(c, "proc", errno, path);
    close(fd);
}

void native_clock_text(struct native_child *c, char *ret_text, size_t size)
{
    uint64_t second = 1000000000u, mono = clock_ns_of(CLOCK_MONOTONIC) / second;
    uint64_t boot = clock_ns_of(CLOCK_BOOTTIME) / second;
    snprintf(ret_text, size, "monotonic -%llu 0\nboottime -%llu 0\n", (unsigned long long)mono,
             (unsigned long long)boot);
    c->clock_offset_ns = mono * second;
}

/* The clocks of the guest begin at zero: neither the host's uptime nor anything that tells two runs
 * on one boot apart. Offsets must be written before the first process enters, hence before the
 * fork. */
static void child_time_namespace(struct native_child *c)
{
    char text[96];
    if (unshare(CLONE_NEWTIME) < 0)
        native_child_fail(c, "time namespace", errno, "unshare");
    native_clock_text(c, text, sizeof(text));
    child_write_file(c, "/proc/self/timens_offsets", text);
}

/* /proc/1/cmdline is readable by everyone: the supervisor's arguments (which may hold secrets given
 * with --env) must not show through the copy this process is. */
void native_child_wipe_arguments(struct native_child *c)
{
    if (c->argv_area_len > 0) {
        memset(c->argv_area, 0, c->argv_area_len);
        memcpy(c->argv_area, "cordon-init", MIN(c->argv_area_len, sizeof("cordon-init")));
    }
    prctl(PR_SET_NAME, "cordon-init");
}

void native_child_begin(struct native_child *c)
{
    /* a caller that ignores SIGCHLD handed that down: our own children would vanish unseen */
    signal(SIGCHLD, SIG_DFL);
    child_keep_only_ours(c);
}

int native_child_receive_groups(struct native_child *c)
{
    if (c->plan->cgroups.kind != HOST_CGROUP_V1)
        return 0;
    char byte;
    union {
        char space[CMSG_SPACE(sizeof(c->entries))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {&byte, 1};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.space,
                         .msg_controllen = sizeof(control.space)};
    long n;
    do
        n = raw_call(SYS_recvmsg, c->go_fd, &msg, MSG_CMSG_CLOEXEC);
    while (n == -EINTR);
    struct cmsghdr *cmsg = n == 1 ? CMSG_FIRSTHDR(&msg) : NULL;
    if (!cmsg || cmsg->cmsg_type != SCM_RIGHTS)
        return n < 0 ? (int)n : -EPIPE; /* the supervisor gave up or died */
    c->n_entries = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(c->entries, CMSG_DATA(cmsg), c->n_entries * sizeof(int));
    return 0;
}

uint64_t native_tv_ns(struct timeval tv)
{
    return (uint64_t)tv.tv_sec * 1000000000u + (uint64_t)tv.tv_usec * 1000u;
}

void native_child_note_usage(struct native_child *c)
{
    struct rusage self = {0}, helpers = {0};
    getrusage(RUSAGE_SELF, &self);
    getrusage(RUSAGE_CHILDREN, &helpers);
    c->status->setup_user_ns = native_tv_ns(self.ru_utime) + native_tv_ns(helpers.ru_utime);
    c->status->setup_sys_ns = native_tv_ns(self.ru_stime) + native_tv_ns(helpers.ru_stime);
    c->status->guest_user_ns = native_tv_ns(helpers.ru_utime);
    c->status->guest_sys_ns = native_tv_ns(helpers.ru_stime);
}

void native_child_note_end(struct native_child *c)
{
    struct native_status *s = c->status;
    struct rusage ru;
    if (getrusage(RUSAGE_CHILDREN, &ru) < 0)
        return; /* the supervisor has the numbers of pid 1 with everything it waited for */
    s->guest_user_ns = native_tv_ns(ru.ru_utime) - s->guest_user_ns;
    s->guest_sys_ns = native_tv_ns(ru.ru_stime) - s->guest_sys_ns;
    s->guest_rss_bytes = (uint64_t)ru.ru_maxrss * 1024;
    char word, ended = NATIVE_WORD_ENDED;
    if (c->join_fd > 0 && recv(c->join_fd, &word, 1, MSG_DONTWAIT) == 1)
        s->rejected = 1; /* said before the guest's code began; the guest has no such socket */
    atomic_store(&s->all_dead, 1);
    /* The end of this process would say the same, when the kernel has taken its memory and its
     * namespaces apart; nobody has to wait for that. A supervisor that has no other guest is told
     * by the closing that follows: the kernel takes a word for a sign that who wrote it is about to
     * sleep, and wakes the reader on the same core, behind all of our end. Another guest's pid 1
     * may hold a copy of the pipe for a moment. */
    if (!atomic_load(&s->is_alone))
        (void)!write(c->done_fd, &ended, 1);
}

/* Whatever the caller runs as: the guest is an ordinary process in scheduling, address layout and
 * the kernel's choice of victims. Only towards less: none of it needs a right. Bare calls: the
 * process that becomes the guest takes the first two steps beside pid 1. */
void native_child_plain_manners(struct native_child *c)
{
    struct sched_param ordinary = {0};
    long r = 0;
    if (raw_call(SYS_sched_getscheduler, 0) != SCHED_OTHER)
        r = raw_call(SYS_sched_setscheduler, 0, SCHED_OTHER, &ordinary);
    /* the bare call gives 20 - nice, so that no answer looks like an error */
    if (r >= 0 && raw_call(SYS_getpriority, PRIO_PROCESS, 0) > 20)
        r = raw_call(SYS_setpriority, PRIO_PROCESS, 0, 0);
    if (r < 0)
        native_child_fail(c, "scheduling", (int)-r, "priority");
    raw_call(SYS_personality, PER_LINUX);
}

/* path: the guest's oom_score_adj, or that of who will be its parent */
void native_child_plain_score(struct native_child *c, const char *path)
{
    char adj[16] = "0";
    long r = 0, fd = raw_call(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && raw_call(SYS_read, fd, adj, sizeof(adj)) > 0 && adj[0] == '-')
        r = raw_call(SYS_pwrite64, fd, "0", 1, 0);
    if (r < 0)
        native_child_fail(c, "oom_score_adj", (int)-r, "write");
    if (fd >= 0)
        raw_call(SYS_close, fd);
}

/* The caller's session keyring stays outside; a kernel without keyrings has none to leave, and
 * where an outer filter refuses the call (containers do) the guest is refused it as well. */
void native_child_leave_keyring(struct native_child *c)
{
    long r = raw_call(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL);
    if (r < 0 && r != -ENOSYS && r != -EPERM)
        native_child_fail(c, "keyring", (int)-r, "keyctl");
}

int native_child_signals(struct native_child *c, bool all)
{
    sigset_t chld, blocked;
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    blocked = chld;
    if (all)
        sigfillset(&blocked);
    int fd = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0 || sigprocmask(SIG_SETMASK, &blocked, NULL) < 0)
        native_child_fail(c, "signals", errno, fd < 0 ? "signalfd" : "sigprocmask");
    return fd;
}

/* Where the guest will begin. Links of an image or a workspace lead to places in the new root,
 * which need not be the process's own yet. A host that refuses the call has us inside already. */
static void child_enter_cwd(struct native_child *c, int root_fd)
{
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    const char *cwd = c->plan->cwd;
    _cleanup_close_ int fd = sys_openat2(root_fd, cwd, &how);
    if (fd < 0 && c->is_inside)
        fd = open(cwd, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fchdir(fd) < 0)
        native_child_fail(c, "working directory", errno, cwd);
}

/* Steps inside the new root, which is the working directory before and after. */
static int child_settle(struct native_child *c)
{
    const struct plan *p = c->plan;
    /* second lock behind the filter: no user namespace can be made inside, whatever gets through */
    child_write_file(c, "proc/sys/user/max_user_namespaces", "0");
    child_write_file(c, "proc/sys/user/max_inotify_instances", "64"); /* the caller's are its own */
    umask(022);
    if (p->n_files > 0 || p->hands_back_cwd) {
        _cleanup_close_ int root_fd = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (root_fd < 0)
            native_child_fail(c, "working directory", errno, "/");
        child_enter_cwd(c, root_fd);
        native_child_copy_files(c);
        if (p->hands_back_cwd)
            native_collect_send(c);
        if (fchdir(root_fd) < 0)
            native_child_fail(c, "working directory", errno, "/");
    }
    return native_child_signals(c, false);
}

/* From here on no process of the guest's namespace may look into this one: a dumpable pid 1 of
 * the same uid loses its descriptors to pidfd_getfd and its memory to ptrace. */
static void child_hide(struct native_child *c)
{
    if (prctl(PR_SET_DUMPABLE, 0) < 0)
        native_child_fail(c, "dumpable", errno, "prctl");
}

/* Not by the clone, for which everybody waits: pid 1 has the time for it. Until here it reads what
 * the supervisor could read, and nothing is mounted. */
static void child_make_mounts(struct native_child *c)
{
    if (unshare(CLONE_NEWNS) < 0)
        native_child_fail(c, "mount namespace", errno, "unshare");
}

static void child_make_ipc(struct native_child *c)
{
    if (unshare(CLONE_NEWIPC) < 0) /* EINVAL: a kernel without */
        native_child_fail(c, "ipc namespace", errno == EINVAL ? ENOSYS : errno, "unshare");
}

/* For the process that becomes the guest, which was there before. By the process they cost less
 * than by their files (Linux 6.11). */
static void child_open_spaces(struct native_child *c, struct native_guest *g)
{
    _cleanup_close_ int self = sys_pidfd_open(getpid());
    g->ipc_fd = child_own_namespace(self, SYS_PIDFD_GET_IPC_NAMESPACE, "/proc/self/ns/ipc");
    if (g->ipc_fd < 0)
        native_child_fail(c, "ipc namespace", errno, "open");
    if (!c->makes_mounts)
        return;
    g->mounts_fd = child_own_namespace(self, SYS_PIDFD_GET_MNT_NAMESPACE, "/proc/self/ns/mnt");
    if (g->mounts_fd < 0)
        native_child_fail(c, "mount namespace", errno, "open");
}

/* Pages of the supervisor's that we write to are copied then, and while two processes run in one
 * memory each copy has to be told to the other core: the stack of what follows is copied now. */
static __attribute__((noinline)) void child_touch_stack(void)
{
    volatile char room[8192];
    for (size_t i = 0; i < sizeof(room); i += 4096)
        room[i] = 0;
}

static void child_take_names(struct native_child *c)
{
    native_child_wipe_arguments(c);
    if (sethostname(PLAN_HOSTNAME, strlen(PLAN_HOSTNAME)) < 0)
        native_child_fail(c, "hostname", errno, "sethostname");
}

/* What both processes need, done before there are two. Where the supervisor makes groups meanwhile
 * the core that the other one will have is taken, and who begins later loses nothing; all it does
 * not have to do itself counts. Where it does not that core waits for the guest's process, which
 * begins at once and does its own part of it. */
static void child_prepare_both(struct native_child *c, struct native_guest *g)
{
    struct rlimit most;
    /* the guest's user may have one process only, and the clone is not root's any more */
    bool is_one = getrlimit(RLIMIT_NPROC, &most) == 0 && most.rlim_cur < 2;
    g->is_ahead = c->plan->cgroups.kind != HOST_CGROUP_V1 || is_one;
    if (g->is_ahead)
        return;
    if (c->makes_mounts)
        child_make_mounts(c);
    child_make_ipc(c);
    native_drop_bounding_set(c); /* 41 calls */
    native_guest_forget_signals();
    native_child_leave_keyring(c);
    child_become_guest(c);
}

/* The rest of it, for a guest's process that is there. */
static void child_prepare_rest(struct native_child *c, struct native_guest *g)
{
    if (!g->is_ahead)
        return;
    if (c->makes_mounts)
        child_make_mounts(c);
    child_make_ipc(c);
    child_open_spaces(c, g);
    child_become_guest(c);
}

/* The process that becomes the guest works beside us: it makes the namespaces that cost the kernel
 * as much as all of our mounts, and fences itself as soon as the places of the root are known. It
 * goes on when nothing of the host is left in reach, which it sees for itself: the kernel takes the
 * host's files away in a moment, but comes back to us only when every core has taken notice. We
 * keep the rights for that and for the last drop until then, with nothing else to do. */
static _Noreturn void child_main_beside(struct native_child *c)
{
    static struct native_guest guest;
    guest = (struct native_guest){
        .child = c, .fence_fd = -1, .ipc_fd = -1, .mounts_fd = -1, .looks = true};
    child_touch_stack();
    child_take_names(c); /* first: its refusal is one of the tier (stage.c) */
    child_prepare_both(c, &guest);
    native_guest_begin(&guest); /* soon: what it makes takes longest */
    child_prepare_rest(c, &guest);
    native_guest_step(&guest, NATIVE_IDS_MAPPED);
    guest.root_fd = native_root_make(c);
    guest.fence_fd = native_fence_make(c, guest.root_fd);
    native_guest_step(&guest, NATIVE_ROOT_MADE);

    guest.sig_fd = child_settle(c);
    if (native_guest_wait(&guest, NATIVE_SPACES_MADE)) {
        util_close(&guest.ipc_fd);
        if (!c->plan->host_network)
            native_netns_join(c, guest.pid);
        native_guest_clocks(&guest);
        native_guest_score(&guest);
        native_drop_capabilities(c, 1u << CAP_SYS_ADMIN | (guest.is_ahead ? 1u << CAP_SETPCAP : 0));
        /* it is for the memory that both share: what there is to do in their /proc is done */
        child_hide(c);
        native_child_note_usage(c);
        native_root_swap(c);
        native_guest_step(&guest, NATIVE_ROOT_ENTERED);
        native_root_forget(c);
        native_guest_step(&guest, NATIVE_HOST_GONE);
        if (guest.is_ahead) { /* we execute nothing: it is the guest's that counts */
            native_set_capabilities(c, 1u << CAP_SETPCAP);
            native_drop_bounding_set(c);
        }
        native_drop_last_capability(c);
        native_guest_wait_exec(&guest);
    }
    native_init_run(c, guest.pid, &guest);
}

/* Where a time namespace is entered by a fork only (before Linux 6.3), or the new mount API is
 * refused: one after the other, but for the network namespace. */
static _Noreturn void child_main_after(struct native_child *c)
{
    const struct plan *p = c->plan;
    struct native_netns net;
    native_drop_bounding_set(c); /* once for both processes */
    child_make_ipc(c);
    child_become_guest(c);
    bool makes_netns = !p->host_network && !c->has_netns;
    if (makes_netns)
        native_netns_begin(c, &net);
    native_root_build(c);
    c->is_inside = true;
    if (makes_netns)
        native_netns_enter(c, &net);

    if (p->time_ns)
        child_time_namespace(c);
    native_child_plain_manners(c);
    native_child_plain_score(c, "/proc/self/oom_score_adj");
    native_child_leave_keyring(c);
    int sig_fd = child_settle(c);
    if (chdir(p->cwd) < 0)
        native_child_fail(c, "working directory", errno, p->cwd);
    native_drop_capabilities(c, 1u << CAP_SYS_ADMIN);
    child_hide(c);

    struct native_guest guest = {.child = c, .mounts_fd = -1, .sig_fd = sig_fd};
    guest.fence_fd = native_fence_make(c, -1);
    if (native_child_receive_groups(c) < 0)
        _exit(1);
    native_child_note_usage(c);
    guest.pid = native_guest_clone(&guest);
    if (guest.pid < 0)
        native_child_fail(c, "fork", errno, "clone");
    native_init_run(c, guest.pid, &guest);
}

bool native_child_is_beside(const struct plan *p)
{
    /* a guest with a way out needs a helper of its own for it (netns_gate.c) */
    return p->time_at_exec && !p->own_profile && !p->net && !p->enter && native_root_has_new_api(p);
}

_Noreturn void native_child_main(struct native_child *c)
{
    native_child_begin(c);
    if (native_child_is_beside(c->plan))
        child_main_beside(c);
    child_take_names(c);
    child_main_after(c);
}
