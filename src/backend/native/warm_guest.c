/* The pid 1 of a prepared guest: as child.c, but from a spawner's namespaces, and with a wait for
 * the order where child.c goes on at once. After the clone: no malloc, no stdio, no decisions. */
#include "backend/native/warm_internal.h"

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
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/raw.h"
#include "base/sys.h"
#include "base/util.h"

#define GUEST_FDS_FROM 16 /* above the numbers that ours get */

static int guest_keep(struct native_child *c, int fd)
{
    int kept = fcntl(fd, F_DUPFD_CLOEXEC, GUEST_FDS_FROM);
    if (kept < 0)
        native_child_fail(c, "descriptors", errno, "dup");
    return kept;
}

/* The spawner's socket and every other descriptor but ours are gone from here on. Ours get the
 * lowest numbers, by way of numbers that nobody has. */
static void guest_keep_only_ours(struct native_child *c)
{
    int *ours[3 + CGROUP_ENTRIES_MAX] = {&c->go_fd};
    size_t n = 1;
    if (c->done_fd >= 0)
        ours[n++] = &c->done_fd;
    if (c->join_fd > 0)
        ours[n++] = &c->join_fd;
    for (size_t i = 0; i < c->n_entries; i++)
        ours[n++] = &c->entries[i];
    for (size_t i = 0; i < n; i++)
        *ours[i] = guest_keep(c, *ours[i]);
    for (int i = 0; i < 3; i++)
        if (dup2(c->stdio[i], i) < 0)
            native_child_fail(c, "descriptors", errno, "dup2");
    for (size_t i = 0; i < n; i++) {
        if (dup3(*ours[i], 3 + (int)i, O_CLOEXEC) < 0)
            native_child_fail(c, "descriptors", errno, "dup3");
        *ours[i] = 3 + (int)i;
    }
    if (sys_close_range(3 + (unsigned)n, ~0U) < 0)
        native_child_fail(c, "descriptors", errno, "close_range");
}

static void guest_write(struct native_child *c, const char *stage, const char *path,
                        const char *text)
{
    int fd = openat(AT_FDCWD, path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        native_child_fail(c, stage, errno, path);
    close(fd);
}

/* Guests of root have a user of their own in the pool's namespace, others share the only one. */
static void guest_become_user(struct native_child *c, unsigned id)
{
    unsigned user = PLAN_GUEST_UID + id;
    if (id && (syscall(SYS_setresgid, user, user, user) < 0 ||
               syscall(SYS_setresuid, user, user, user) < 0))
        native_child_fail(c, "ids", errno, "setresuid");
    prctl(PR_SET_DUMPABLE, 1); /* /proc/self must be ours to write for a while */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/* The store of the spawner had none, or there is a way out. */
static void guest_network_namespace(struct native_child *c)
{
    if (c->broker_fd >= 0) {
        native_gate_enter(c);
        util_close(&c->broker_fd);
        return;
    }
    int r = unshare(CLONE_NEWNET) < 0 ? -errno : native_netns_loopback_up();
    if (r < 0)
        native_child_fail(c, "network namespace", -r, "unshare");
}

/* Last of the namespaces: everything that was mounted and made before belongs to the pool, and no
 * right inside this one reaches it. */
static void guest_user_namespace(struct native_child *c, unsigned id)
{
    char map[48];
    if (unshare(CLONE_NEWUSER) < 0)
        native_child_fail(c, "ids", errno, "unshare");
    snprintf(map, sizeof(map), "%u %u 1\n", PLAN_GUEST_UID, PLAN_GUEST_UID + id);
    guest_write(c, "ids", "/proc/self/setgroups", "deny");
    guest_write(c, "ids", "/proc/self/uid_map", map);
    guest_write(c, "ids", "/proc/self/gid_map", map);
}

/* The clocks begin at zero when the guest starts, not when it was prepared: the offsets are written
 * with the order, through a descriptor from the time when there was a right to. */
static int guest_time_namespace(struct native_child *c)
{
    if (!c->plan->time_ns)
        return -1;
    if (unshare(CLONE_NEWTIME) < 0)
        native_child_fail(c, "time namespace", errno, "unshare");
    int fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        native_child_fail(c, "time namespace", errno, "offsets");
    return fd;
}

static void guest_set_clocks(struct native_child *c, int fd)
{
    char text[96];
    if (fd < 0)
        return;
    native_clock_text(c, text, sizeof(text));
    if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        native_child_fail(c, "time namespace", errno, "offsets");
    close(fd);
}

/* End of file: nobody is wanted any more. */
void warm_guest_receive(struct native_child *c, const struct plan *plan, struct warm_taken *ret)
{
    static char body[WARM_INLINE_MAX] __attribute__((aligned(8)));
    static char as_it_came[WARM_INLINE_MAX]; /* for a program that is there already */
    static struct plan late;
    static struct plan_file files[WARM_FDS_MAX];
    static int file_fds[WARM_FDS_MAX];
    struct iovec parts[2] = {{&ret->head, sizeof(ret->head)}, {body, sizeof(body)}};
    ssize_t n;
    do
        n = warm_recv(c->go_fd, parts, 2, ret->fds, &ret->n_fds, 0);
    while (n == 1); /* a signal for a guest that has ended */
    const struct warm_order *head = &ret->head;
    ret->group_fd = -1;
    size_t n_late = head->is_memfd + head->n_files; /* then what a room gets with each guest */
    if (n < (ssize_t)sizeof(*head) || head->n_entries > CGROUP_ENTRIES_MAX || head->has_group > 1 ||
        ret->n_fds != n_late + head->n_streams + head->has_group + head->n_entries)
        _exit(1);
    ret->mapped = NULL;
    ret->memfd = head->is_memfd ? ret->fds[0] : -1;
    ret->body = body;
    if (c->join_fd > 0 && !head->is_memfd)
        ret->body = memcpy(as_it_came, body, head->len);
    if (head->is_memfd) {
        ret->mapped = mmap(NULL, head->len, PROT_READ | PROT_WRITE, MAP_PRIVATE, ret->memfd, 0);
        if (ret->mapped == MAP_FAILED)
            native_child_fail(c, "start", errno, "order");
    }
    late = *plan;
    if (warm_order_decode(ret->mapped ? ret->mapped : body, head->len, &late, files, file_fds,
                          ret->fds + head->is_memfd) < 0)
        native_child_fail(c, "start", EPROTO, "order");
    if (head->n_streams == ARRAY_SIZE(c->stdio)) {
        const int *groups = ret->fds + n_late + head->n_streams;
        memcpy(c->stdio, ret->fds + n_late, sizeof(c->stdio));
        ret->group_fd = head->has_group ? *groups++ : -1;
        c->n_entries = head->n_entries;
        memcpy(c->entries, groups, c->n_entries * sizeof(int));
    }
    c->plan = &late;
    c->file_fds = file_fds;
}

/* Nobody in the namespace may look into this process from here on, as in child.c. */
static void guest_hide(struct native_child *c)
{
    if (prctl(PR_SET_DUMPABLE, 0) < 0)
        native_child_fail(c, "dumpable", errno, "prctl");
}

static const struct warm_taken *guest_take_order(struct native_child *c, int clocks_fd)
{
    static struct warm_taken order;
    atomic_store(&c->status->ready, 1);
    warm_guest_receive(c, c->plan, &order);
    native_child_copy_files(c);
    if (c->plan->hands_back_cwd)
        native_collect_send(c);
    guest_set_clocks(c, clocks_fd);
    native_child_note_usage(c);
    return &order;
}

/* Its time namespace is entered before the order comes: the clocks begin at zero when it is
 * prepared. Everything else is as below. */
static _Noreturn void guest_wait_interpreter(struct native_child *c, struct native_guest *g)
{
    int time_fd = -1;
    if (c->plan->time_ns) {
        guest_set_clocks(c, guest_time_namespace(c));
        time_fd = open("/proc/self/ns/time_for_children", O_RDONLY | O_CLOEXEC);
        if (time_fd < 0)
            native_child_fail(c, "time namespace", errno, "open");
    }
    g->pid = warm_zygote_admit(c, g, time_fd);
    guest_hide(c); /* nothing but code of ours ran in the namespace so far */
    util_close(&time_fd);
    native_drop_last_capability(c);
    native_fence_cores_of(c, g->pid);
    const struct warm_taken *order = guest_take_order(c, -1);
    native_guest_limit(g);
    c->status->started_ns = clock_ns();
    atomic_store(&c->status->state, NATIVE_STARTED);
    warm_zygote_order(c, &order->head, order->body, order->memfd);
    native_init_run(c, g->pid, g);
}

/* The process that becomes the guest is there already, fenced, and waits for us. */
static _Noreturn void guest_wait_beside(struct native_child *c, struct native_guest *g)
{
    native_guest_park(g);
    native_drop_last_capability(c);
    if (native_guest_wait(g, NATIVE_FENCED)) {
        guest_hide(c); /* nothing but code of ours ran in the namespace so far */
        guest_take_order(c, g->clocks_fd);
        native_guest_limit(g);
        native_guest_step(g, NATIVE_ROOT_ENTERED);
        native_guest_wait_exec(g);
    }
    native_init_run(c, g->pid, g);
}

/* Where a time namespace is entered by a fork only (before Linux 6.3). */
static _Noreturn void guest_wait_alone(struct native_child *c, struct native_guest *g)
{
    int clocks_fd = guest_time_namespace(c);
    guest_hide(c);
    guest_take_order(c, clocks_fd);
    g->pid = native_guest_clone(g);
    if (g->pid < 0)
        native_child_fail(c, "fork", errno, "clone");
    native_init_run(c, g->pid, g);
}

static void guest_tell_room(struct native_child *c, enum warm_stand stand)
{
    atomic_store(&c->status->room, stand);
    raw_call(SYS_futex, &c->status->room, FUTEX_WAKE, 1);
}

/* pid 1 of a room: sleeps, takes orphans that have died, and ends with the porter, who starts the
 * guests (warm_porter.c). It may be looked into until the porter has joined; then it is closed, and
 * only then the first guest comes. */
static _Noreturn void guest_hold_room(struct native_child *c, int sig_fd)
{
    char byte;
    guest_tell_room(c, WARM_ROOM_STANDS);
    native_child_wait(c);
    guest_hide(c);
    native_drop_last_capability(c);
    struct rusage own;
    if (getrusage(RUSAGE_SELF, &own) == 0) {
        c->status->room_user_ns = native_tv_ns(own.ru_utime);
        c->status->room_sys_ns = native_tv_ns(own.ru_stime);
    }
    guest_tell_room(c, WARM_ROOM_HELD);
    munmap(c->status, sizeof(union warm_page));
    struct pollfd fds[2] = {{.fd = sig_fd, .events = POLLIN}, {.fd = c->go_fd, .events = POLLIN}};
    for (;;) {
        struct signalfd_siginfo drop;
        while (read(sig_fd, &drop, sizeof(drop)) == (ssize_t)sizeof(drop))
            ;
        while (waitpid(-1, NULL, WNOHANG | __WALL) > 0)
            ;
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            _exit(1);
        if (fds[1].revents && read(c->go_fd, &byte, 1) <= 0)
            _exit(0);
    }
}

_Noreturn void warm_guest_main(struct native_child *c, unsigned id, bool has_network, bool is_room)
{
    static struct native_guest guest;
    const struct plan *p = c->plan;

    prctl(PR_SET_NAME, "cordon-init");
    guest_become_user(c, id);
    if (!has_network)
        guest_network_namespace(c);
    native_root_complete(c); /* with mounts that came as descriptors */
    guest_keep_only_ours(c);
    guest_user_namespace(c, id);

    guest_write(c, "proc", "/proc/sys/user/max_user_namespaces", "0");
    guest_write(c, "proc", "/proc/sys/user/max_inotify_instances", "64");
    native_child_leave_keyring(c);
    umask(022);
    if (chdir(p->cwd) < 0)
        native_child_fail(c, "working directory", errno, p->cwd);
    guest = (struct native_guest){.child = c, .mounts_fd = -1, .clocks_fd = -1};
    guest.sig_fd = native_child_signals(c, false);
    native_drop_bounding_set(c); /* a new user namespace begins with all of them */
    native_drop_capabilities(c, 1u << CAP_SYS_ADMIN | 1u << CAP_SYS_TIME);
    if (is_room)
        guest_hold_room(c, guest.sig_fd);
    guest.fence_fd = native_fence_make(c, -1);
    if (c->join_fd > 0)
        guest_wait_interpreter(c, &guest);
    if (p->time_at_exec || !p->time_ns)
        guest_wait_beside(c, &guest);
    guest_wait_alone(c, &guest);
}
