/* Spawners as the supervisor holds them: started, listened to, ended. */
#include "backend/native/warm_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/libexec.h"
#include "base/sys.h"
#include "base/util.h"

int warm_fd(const struct warm *w)
{
    return w->sock;
}

/* Ends the spawner, and with it whatever is left in its pid namespace, before it returns. */
static void warm_unref(struct warm *w)
{
    if (--w->refs > 0)
        return;
    util_close(&w->sock);
    if (w->pid > 0) {
        native_kill_child(w->pid, w->pidfd);
        while (waitpid(w->pid, NULL, __WALL) < 0 && errno == EINTR)
            ;
    }
    util_close(&w->pidfd);
    while (w->n_idle > 0)
        cgroup_destroy(w->idle[--w->n_idle].cgroup);
    cgroup_pool_remove(w->group);
    native_id_give(w->own_id);
    warm_grants_free(w);
    if (w->pages)
        munmap(w->pages, WARM_SLOTS * sizeof(*w->pages));
    free(w);
}

void warm_unref_guest(struct warm *w)
{
    warm_unref(w);
}

void warm_close(struct warm *w)
{
    w->has_rooms = false;
    for (struct warm_guest *g; (g = warm_take_back(w));)
        warm_drop(g);
    warm_unref(w);
}

/* As root the pool has all ids of this supervisor: the first of its namespace is the spawner's own,
 * every guest gets another one. */
static int warm_write_map(pid_t pid, const char *file, unsigned own)
{
    char path[48], map[128];
    unsigned first = native_id_first(), before = own - first, after = NATIVE_IDS - before - 1;
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
    int len = snprintf(map, sizeof(map), "%u %u 1\n", PLAN_GUEST_UID, own);
    if (before > 0)
        len += snprintf(map + len, sizeof(map) - (size_t)len, "%u %u %u\n", PLAN_GUEST_UID + 1,
                        first, before);
    if (after > 0)
        len += snprintf(map + len, sizeof(map) - (size_t)len, "%u %u %u\n",
                        PLAN_GUEST_UID + 1 + before, own + 1, after);
    _cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, map, (size_t)len) == len ? 0 : -1;
}

unsigned warm_id_inside(const struct warm *w, unsigned id)
{
    unsigned at = id - native_id_first();
    return id < w->own_id ? at + 1 : at;
}

/* Guests of root's have users of their own, and so has the spawner. */
static int warm_group(struct warm *w, const struct plan *plan, struct cordon_err *err)
{
    if (!w->own_host_ids || plan->cgroups.kind != HOST_CGROUP_V2)
        return 0;
    return cgroup_pool_make(&plan->cgroups, w->own_id, &w->group, &w->cgroups, err);
}

static int warm_start(struct warm *w, const struct plan *plan, struct cordon_err *err)
{
    int pair[2];
    char folder[PATH_MAX];
    _cleanup_close_ int folder_fd = -1;
    if (w->has_zygote && (libexec_find("zygote", folder, sizeof(folder)) < 0 ||
                          (folder_fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0))
        return err_set(err, CORDON_ERR_HOST, "pool", errno, "interpreter's folder");
    struct native_child c = {
        .plan = plan, .status = &w->pages[0].status, .go_fd = -1, .broker_fd = -1};
    _cleanup_free_ int *none = calloc(plan->n_ops + 1, sizeof(int));
    if (!none)
        return err_nomem(err, "pool");
    for (size_t i = 0; i < plan->n_ops; i++)
        none[i] = -1;
    c.mount_fds = none;
    native_argv_area(&c.argv_area, &c.argv_area_len);
    w->pages[0].status.listener_fd = -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "pool", errno, "socketpair");
    w->sock = pair[0];
    struct clone_args args = {.flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC |
                                       CLONE_NEWUTS | CLONE_NEWNET | CLONE_PIDFD |
                                       (w->group ? CLONE_INTO_CGROUP : 0),
                              .pidfd = (uint64_t)(uintptr_t)&w->pidfd,
                              .exit_signal = SIGCHLD,
                              .cgroup = w->group ? (uint64_t)cgroup_pool_fd(w->group) : 0};
    pid_t pid = sys_clone3(&args);
    if (pid == 0)
        warm_spawner_main(&c, pair[1], folder_fd, w->pages);
    close(pair[1]);
    if (pid < 0) {
        w->pidfd = -1; /* the kernel may have told a number, and taken it back */
        return err_set(err, CORDON_ERR_HOST, "pool", errno, "new namespaces");
    }
    w->pid = pid;
    if (w->own_host_ids &&
        (warm_write_map(pid, "uid_map", w->own_id) < 0 ||
         warm_write_map(pid, "gid_map", w->own_id) < 0 || send(w->sock, "g", 1, MSG_NOSIGNAL) != 1))
        return err_set(err, CORDON_ERR_HOST, "pool", errno, "id map");
    return 0;
}

int warm_open(const struct plan *plan, bool interpreter, struct warm **ret_warm,
              struct cordon_err *err)
{
    struct warm *w = calloc(1, sizeof(*w));
    if (!w)
        return err_nomem(err, "pool");
    w->refs = 1;
    w->sock = w->pidfd = -1;
    w->own_host_ids = plan->own_host_ids;
    w->has_zygote = interpreter;
    w->own_id = w->own_host_ids ? native_id_take() : 0;
    w->cgroups = plan->cgroups;
    w->limits = plan->limits;
    w->has_net = plan->net != NULL;
    w->has_rooms = warm_may_have_rooms(plan, interpreter);
    w->looks_at_network = true;
    /* Beside v1 groups the v2 one would only kill and count, and a process of the pool's user
     * cannot be cloned into it without a group of the pool's; moving it later takes milliseconds.
     */
    if (w->cgroups.kind != HOST_CGROUP_V2)
        w->cgroups.v2[0] = '\0';
    w->pages = mmap(NULL, WARM_SLOTS * sizeof(*w->pages), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (w->pages == MAP_FAILED) {
        w->pages = NULL;
        err_nomem(err, "pool");
    } else if (warm_grants_copy(w, plan, err) == 0 && warm_group(w, plan, err) == 0 &&
               warm_start(w, plan, err) == 0) {
        *ret_warm = w;
        return 0;
    }
    warm_unref(w);
    return -1;
}

/* Its number on the host, for those who look into /proc. The call knows since Linux 6.13. */
static pid_t warm_host_pid(int pidfd)
{
    struct {
        uint64_t mask, cgroup;
        uint32_t pid, rest[11];
    } info = {.mask = 1};
    if (ioctl(pidfd, _IOC(_IOC_READ | _IOC_WRITE, 0xff, 11, 64), &info) == 0 && info.pid > 0)
        return (pid_t)info.pid;
    char path[48], text[512], *at;
    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    at = strstr(text, "Pid:");
    long pid = at ? strtol(at + 4, NULL, 10) : 0;
    return pid > 0 ? (pid_t)pid : 0;
}

static void warm_take_reply(struct warm *w, const struct warm_spawned *m, int pidfd, int porter_fd)
{
    for (struct warm_guest *g = w->guests; g; g = g->next) {
        if (g->serial != m->serial || g->pidfd >= 0)
            continue;
        g->error = m->error ? m->error : pidfd < 0 ? EPROTO : 0;
        g->pidfd = pidfd;
        g->pid = pidfd >= 0 ? warm_host_pid(pidfd) : 0;
        g->status->porter.pid = porter_fd >= 0 ? warm_host_pid(porter_fd) : 0;
        g->is_unseen = !g->error && (g->pid == 0 || (g->is_room && g->status->porter.pid == 0));
        return;
    }
    util_close(&pidfd); /* nobody wants it any more: without its lifeline it ends by itself */
    if (m->error)
        w->slots[m->slot] = WARM_FREE;
}

int warm_read(struct warm *w, struct cordon_err *err)
{
    for (;;) {
        struct warm_spawned m;
        struct iovec part = {&m, sizeof(m)};
        int fds[WARM_FDS_MAX];
        size_t n_fds;
        ssize_t n = warm_recv(w->sock, &part, 1, fds, &n_fds, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n == sizeof(m) && n_fds <= 2 && m.slot < WARM_SLOTS) {
            int porter_fd = n_fds > 1 ? fds[1] : -1;
            warm_take_reply(w, &m, n_fds ? fds[0] : -1, porter_fd);
            util_close(&porter_fd);
            continue;
        }
        for (size_t i = 0; i < n_fds; i++)
            close(fds[i]);
        const struct native_status *st = &w->pages[0].status;
        return err_set(err, CORDON_ERR_HOST, "pool", st->fail_errno, "%s: %s",
                       st->stage[0] ? st->stage : "spawner", st->what);
    }
}
