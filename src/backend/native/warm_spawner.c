/* The spawner: pid 1 of a pool's namespaces. Builds a template of the root, then clones a guest's
 * pid 1 for every request, and reaps them. It never sees anything of a run: requests are numbers
 * and descriptors. Has the rights of the pool's user namespace only. */
#include "backend/native/warm_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sys.h"
#include "base/util.h"

struct spawner {
    struct native_child *template;
    int sock, sig_fd, zygote_fd;
    int root_fd; /* mount namespace that guests' are copied from */
    int host_fd; /* and the one their granted paths come from, -1: the supervisor opens them */
    union warm_page *pages;
    pid_t pids[WARM_SLOTS];    /* pid 1 of each guest */
    pid_t porters[WARM_SLOTS]; /* of rooms; 0: none */
};

/* Nothing of the supervisor's but the socket; the standard numbers are taken, so that no received
 * descriptor gets one of them. */
static void spawner_keep_only_ours(struct native_child *c, int *sock, int *folder)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 3; i++)
        if (null < 0 || dup2(null, i) < 0)
            native_child_fail(c, "descriptors", errno, "/dev/null");
    /* out of each other's way first */
    int *const ours[] = {sock, folder};
    size_t n = *folder >= 0 ? 2 : 1;
    for (size_t i = 0; i < n; i++)
        if ((*ours[i] = fcntl(*ours[i], F_DUPFD_CLOEXEC, 300)) < 0)
            native_child_fail(c, "descriptors", errno, "dup");
    for (size_t i = 0; i < n; i++) {
        if (dup3(*ours[i], 3 + (int)i, O_CLOEXEC) < 0)
            native_child_fail(c, "descriptors", errno, "dup3");
        *ours[i] = 3 + (int)i;
    }
    if (sys_close_range(3 + (unsigned)n, ~0U) < 0)
        native_child_fail(c, "descriptors", errno, "close_range");
}

/* Both processes of a room are gone, or the only one of another guest. */
static void spawner_note_gone(struct spawner *s, unsigned slot)
{
    if (s->pids[slot] || s->porters[slot])
        return;
    warm_netns_return(slot);
    atomic_store(&s->pages[slot].status.reaped, 1);
}

static void spawner_note_usage(struct native_status *st, const struct rusage *ru)
{
    st->reaped_user_ns = native_tv_ns(ru->ru_utime);
    st->reaped_sys_ns = native_tv_ns(ru->ru_stime);
    st->reaped_rss_bytes = (uint64_t)ru->ru_maxrss * 1024;
}

static void spawner_reap(struct spawner *s)
{
    struct signalfd_siginfo drop;
    while (read(s->sig_fd, &drop, sizeof(drop)) == (ssize_t)sizeof(drop))
        ;
    for (;;) {
        int wstatus;
        struct rusage ru;
        pid_t pid = wait4(-1, &wstatus, WNOHANG | __WALL, &ru);
        if (pid <= 0)
            return;
        for (unsigned slot = 1; slot < WARM_SLOTS; slot++) {
            if (s->pids[slot] == pid) {
                s->pids[slot] = 0;
                spawner_note_usage(&s->pages[slot].status, &ru);
            } else if (s->porters[slot] == pid) {
                s->porters[slot] = 0;
            } else {
                continue;
            }
            spawner_note_gone(s, slot);
            break;
        }
    }
}

/* In a new process: its own page stays, those of the others go. */
static void spawner_leave_pages(struct spawner *s, unsigned slot)
{
    struct native_child *c = s->template;
    char *pages = (char *)s->pages;
    size_t from = slot * sizeof(union warm_page), size = sizeof(union warm_page);
    c->status = &s->pages[slot].status;
    if (munmap(pages, from) < 0 || munmap(pages + from + size, WARM_SLOTS * size - from - size) < 0)
        native_child_fail(c, "start", errno, "status pages");
}

/* fds: of the message; of a room, its end of the porter's lifeline. */
static _Noreturn void spawner_child(struct spawner *s, const struct warm_spawn *m, const int *fds,
                                    int net_fd)
{
    struct native_child *c = s->template;
    spawner_leave_pages(s, m->slot);
    if (net_fd >= 0 && setns(net_fd, CLONE_NEWNET) < 0)
        native_child_fail(c, "network namespace", errno, "setns");
    warm_root_copy(c, s->root_fd, s->host_fd);
    c->go_fd = fds[0];
    c->done_fd = m->is_room ? -1 : fds[1];
    for (int i = 0; i < 3; i++)
        c->stdio[i] = m->is_room ? i : fds[2 + i];
    c->join_fd = s->zygote_fd;
    if (m->is_room)
        warm_guest_main(c, m->id, net_fd >= 0, true);
    size_t at = WARM_SPAWN_FDS + (m->has_group ? 1 : 0);
    c->n_entries = MIN(m->n_entries, (uint32_t)CGROUP_ENTRIES_MAX);
    for (size_t i = 0; i < c->n_entries; i++)
        c->entries[i] = fds[at + i];
    at += m->n_entries;
    for (size_t i = 0, k = 0; i < c->plan->n_ops && k < m->n_grants; i++)
        if (plan_is_grant(&c->plan->ops[i]))
            c->mount_fds[i] = m->grants & 1u << k++ ? fds[at++] : -1;
    c->broker_fd = m->has_broker ? fds[at] : -1;
    warm_guest_main(c, m->id, net_fd >= 0, false);
}

/* Beside pid 1, outside its namespace. Without it pid 1 ends by itself: the lifeline is closed. */
static pid_t spawner_porter(struct spawner *s, const struct warm_spawn *m, const int *fds,
                            struct warm_porter *at, int *ret_pidfd)
{
    struct clone_args args = {
        .flags = CLONE_PIDFD, .pidfd = (uint64_t)(uintptr_t)ret_pidfd, .exit_signal = SIGCHLD};
    pid_t pid = sys_clone3(&args);
    if (pid != 0)
        return pid;
    struct native_child *c = s->template;
    spawner_leave_pages(s, m->slot);
    c->go_fd = fds[0];
    c->done_fd = fds[1];
    warm_porter_main(c, at);
}

static void spawner_spawn(struct spawner *s, const struct warm_spawn *m, const int *fds)
{
    struct warm_spawned reply = {.slot = m->slot, .serial = m->serial};
    int pidfds[2] = {-1, -1}, life[2] = {-1, -1};
    int net_fd = m->has_broker ? -1 : warm_netns_take(m->slot);
    struct clone_args args = {
        .flags = CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_PIDFD |
                 (m->has_group ? CLONE_INTO_CGROUP : 0),
        .pidfd = (uint64_t)(uintptr_t)&pidfds[0],
        .exit_signal = SIGCHLD,
        .cgroup = m->has_group ? (uint64_t)fds[WARM_SPAWN_FDS] : 0,
    };
    pid_t pid = m->is_room && pipe2(life, O_CLOEXEC) < 0 ? -1 : sys_clone3(&args);
    if (pid == 0) {
        util_close(&life[1]);
        spawner_child(s, m, m->is_room ? life : fds, net_fd);
    }
    reply.error = pid < 0 ? errno : 0;
    if (pid < 0)
        pidfds[0] = -1; /* the kernel may have told a number, and taken it back */
    if (pid > 0)
        s->pids[m->slot] = pid;
    if (pid > 0 && m->is_room) {
        struct warm_porter at = {.id = m->id,
                                 .pid = pid,
                                 .pid_fd = pidfds[0],
                                 .lifeline_fd = life[1],
                                 .looks_at_network = m->looks_at_network != 0};
        pid_t porter = spawner_porter(s, m, fds, &at, &pidfds[1]);
        s->porters[m->slot] = MAX(porter, 0);
        if (porter < 0)
            pidfds[1] = -1;
    }
    util_close(&life[0]);
    util_close(&life[1]);
    if (pid < 0)
        warm_netns_return(m->slot);
    struct iovec part = {&reply, sizeof(reply)};
    size_t n_pidfds = pid < 0 ? 0 : pidfds[1] < 0 ? 1 : 2;
    if (warm_send(s->sock, &part, 1, pidfds, n_pidfds, 0) < 0)
        _exit(0);
    util_close(&pidfds[0]);
    util_close(&pidfds[1]);
    if (net_fd < 0 && !m->has_broker)
        warm_netns_refill();
}

static void spawner_request(struct spawner *s)
{
    struct warm_spawn m;
    struct iovec part = {&m, sizeof(m)};
    int fds[WARM_FDS_MAX];
    size_t n_fds;
    ssize_t n = warm_recv(s->sock, &part, 1, fds, &n_fds, 0);
    if (n != sizeof(m))
        _exit(0); /* the pool is closed: every guest goes with its pid namespace */
    size_t wanted = m.is_room ? WARM_ROOM_FDS
                              : WARM_SPAWN_FDS + (m.has_group ? 1u : 0u) + m.n_entries +
                                    (size_t)__builtin_popcount(m.grants) + (m.has_broker ? 1u : 0u);
    if (m.slot == 0 || m.slot >= WARM_SLOTS || n_fds != wanted)
        _exit(1);
    spawner_spawn(s, &m, fds);
    for (size_t i = 0; i < n_fds; i++)
        close(fds[i]);
}

/* As child_become_guest() in child.c, for the pool's own user namespace. */
static void spawner_become_own(struct native_child *c, int sock)
{
    char byte;
    prctl(PR_SET_DUMPABLE, 1);
    if (c->plan->own_host_ids ? recv(sock, &byte, 1, 0) != 1 : native_map_self(c->plan) < 0)
        native_child_fail(c, "ids", errno, "id map");
    if (c->plan->own_host_ids && syscall(SYS_setgroups, 0, NULL) < 0)
        native_child_fail(c, "ids", errno, "setgroups");
    if (syscall(SYS_setresgid, PLAN_GUEST_GID, PLAN_GUEST_GID, PLAN_GUEST_GID) < 0 ||
        syscall(SYS_setresuid, PLAN_GUEST_UID, PLAN_GUEST_UID, PLAN_GUEST_UID) < 0)
        native_child_fail(c, "ids", errno, "setresuid");
    prctl(PR_SET_DUMPABLE, 1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

_Noreturn void warm_spawner_main(struct native_child *c, int sock, int folder_fd,
                                 union warm_page *pages)
{
    static struct spawner s;
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL); /* guests have them from us */
    spawner_keep_only_ours(c, &sock, &folder_fd);
    prctl(PR_SET_NAME, "cordon-pool");
    /* guests see it as their /proc/1/cmdline, and are to see what every guest does */
    if (c->argv_area_len > 0) {
        memset(c->argv_area, 0, c->argv_area_len);
        memcpy(c->argv_area, "cordon-init", MIN(c->argv_area_len, sizeof("cordon-init")));
    }
    spawner_become_own(c, sock);
    if (sethostname(PLAN_HOSTNAME, strlen(PLAN_HOSTNAME)) < 0) /* that of every copy, too */
        native_child_fail(c, "hostname", errno, "sethostname");
    int host_fd = plan_count_grants(c->plan) > 0 && !c->plan->own_host_ids ? warm_root_host(c) : -1;
    native_root_template(c);
    native_child_plain_manners(c);
    native_child_plain_score(c, "/proc/self/oom_score_adj");
    native_child_leave_keyring(c);
    s = (struct spawner){.template = c, .sock = sock, .pages = pages, .host_fd = host_fd};
    s.root_fd = warm_root_split(c);
    s.zygote_fd = folder_fd >= 0 ? warm_zygote_start(c, folder_fd) : -1;
    util_close(&folder_fd);
    s.sig_fd = native_child_signals(c, false);
    warm_netns_init();
    atomic_store(&c->status->ready, 1);
    struct pollfd fds[2] = {{.fd = s.sig_fd, .events = POLLIN}, {.fd = sock, .events = POLLIN}};
    for (;;) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            _exit(1);
        if (fds[0].revents)
            spawner_reap(&s);
        if (fds[1].revents)
            spawner_request(&s);
    }
}
