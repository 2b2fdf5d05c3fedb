/* How a porter gets behind the walls of the guests that it will start (warm_porter.c): runs in the
 * child of a spawner that becomes it. */
#include "backend/native/warm_porter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/raw.h"
#include "base/sys.h"
#include "base/util.h"

#define PORTER_FDS_FROM 32

static struct sock_filter porter_filter[BPF_MAXINSNS];

static void porter_keep(struct native_child *c, int *fd)
{
    if (*fd >= 0 && (*fd = fcntl(*fd, F_DUPFD_CLOEXEC, PORTER_FDS_FROM)) < 0)
        native_child_fail(c, "descriptors", errno, "dup");
}

/* The spawner's socket and those of other guests' go; the standard numbers are the spawner's, on
 * nothing. */
void porter_keep_only_ours(struct porter *p)
{
    int *const ours[] = {&p->c->go_fd, &p->c->done_fd, &p->at.pid_fd, &p->at.lifeline_fd};
    for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
        porter_keep(p->c, ours[i]);
    for (size_t i = 0; i < ARRAY_SIZE(ours); i++) {
        if (dup3(*ours[i], 3 + (int)i, O_CLOEXEC) < 0)
            native_child_fail(p->c, "descriptors", errno, "dup3");
        *ours[i] = 3 + (int)i;
    }
    if (sys_close_range(3 + ARRAY_SIZE(ours), ~0U) < 0)
        native_child_fail(p->c, "descriptors", errno, "close_range");
}

/* The saved one stays the pool's (porter_as). */
void porter_become_user(struct porter *p)
{
    unsigned user = PLAN_GUEST_UID + p->at.id, pool = PLAN_GUEST_UID;
    if (p->at.id && (syscall(SYS_setresgid, user, user, user) < 0 ||
                     syscall(SYS_setresuid, user, user, pool) < 0))
        native_child_fail(p->c, "ids", errno, "setresuid");
    prctl(PR_SET_DUMPABLE, 1); /* files of ours in /proc are still to be opened */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/* Until pid 1 is so far; without it there is nothing to wait for. */
void porter_await(struct porter *p, uint32_t stand)
{
    static const struct timespec glance = {.tv_nsec = 10000000};
    _Atomic uint32_t *room = &p->c->status->room;
    struct pollfd gone = {.fd = p->at.pid_fd, .events = POLLIN};
    uint32_t now;
    while ((now = atomic_load(room)) < stand) {
        raw_call(SYS_futex, room, FUTEX_WAIT, now, &glance);
        if (poll(&gone, 1, 0) != 0)
            _exit(1); /* it has said why */
    }
}

static int porter_open(struct porter *p, const char *name, int flags)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)p->at.pid, name);
    int fd = open(path, flags | O_CLOEXEC);
    if (fd < 0)
        native_child_fail(p->c, "pool", errno, name);
    return fd;
}

/* Through the spawner's /proc, and into the network first: in the room's own we are not to be
 * found. */
void porter_enter(struct porter *p)
{
    p->user_fd = porter_open(p, "ns/user", O_RDONLY);
    p->clocks_fd = -1;
    if (p->plan->time_ns &&
        (p->clocks_fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC)) < 0)
        native_child_fail(p->c, "time namespace", errno, "offsets");
    p->last_fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);
    if (setns(p->at.pid_fd, CLONE_NEWNET) < 0)
        native_child_fail(p->c, "pool", errno, "network namespace");
    p->serves_more = p->last_fd >= 0 && warm_room_open(&p->at);
    if (setns(p->at.pid_fd, CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS) < 0)
        native_child_fail(p->c, "pool", errno, "namespaces");
    umask(022);
    if (chdir(p->plan->cwd) < 0)
        native_child_fail(p->c, "working directory", errno, p->plan->cwd);
    p->sig_fd = native_child_signals(p->c, false);
}

/* As guest_seal() in guest.c, with a door for ourselves. */
static int porter_seal(struct porter *p)
{
    const struct plan *plan = p->plan;
    struct seccomp_prog prog;
    if (getrandom(p->key, sizeof(p->key), 0) != (ssize_t)sizeof(p->key))
        native_child_fail(p->c, "seccomp", errno, "key");
    if (seccomp_keyed(&plan->filter, p->key, !p->at.looks_at_network, porter_filter,
                      ARRAY_SIZE(porter_filter), &prog) < 0)
        native_child_fail(p->c, "seccomp", E2BIG, "filter");
    struct sock_fprog fprog = {.len = prog.len, .filter = prog.insns};
    /* Calls that are noted go on: a signal that comes meanwhile waits for that (since 5.19). */
    const unsigned flags = SECCOMP_FILTER_FLAG_NEW_LISTENER;
    long fd = raw_call(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags | NATIVE_WAIT_KILLABLE, &fprog);
    if (fd == -EINVAL)
        fd = raw_call(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &fprog);
    if (fd < 0)
        native_child_fail(p->c, "seccomp", (int)-fd, "filter");
    memset(porter_filter, 0, prog.len * sizeof(porter_filter[0]));
    p->c->key = p->key;
    p->c->notes_calls = true;
    return (int)fd;
}

void porter_fence(struct porter *p)
{
    struct native_child *c = p->c;
    int fence_fd = native_fence_make(c, -1);
    native_drop_capabilities(c, 1u << CAP_SYS_ADMIN);
    if (prctl(PR_SET_DUMPABLE, 0) < 0)
        native_child_fail(c, "dumpable", errno, "prctl");
    if (fence_fd >= 0 && sys_landlock_restrict_self(fence_fd) < 0)
        native_child_fail(c, "landlock", errno, "restrict_self");
    util_close(&fence_fd);
    p->listener_fd = porter_seal(p);
}
