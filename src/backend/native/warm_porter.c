/* The porter of a room: starts one guest after the other in namespaces that were made once.
 *
 * It stands outside the room's pid namespace, so no guest can name it, signal it, read its clocks
 * or change anything of it; and behind the guests' own walls, root, Landlock and filter, which its
 * children are born with. Its rights are the pool's, as the spawner's are; a guest's process leaves
 * them before its execve, for a user namespace that it never comes back from. What the filter
 * refuses to guests the porter does with a key of its own (seccomp_keyed.c).
 *
 *   spawner ─┬─ pid 1 of the room    sleeps for as long as nobody is orphaned
 *            └─ porter               takes the order, starts the guest, waits, looks, tells
 *                  └─ guest          number 2 in the room, each of them
 *
 * When a guest has ended and nothing of it is left (warm_room.c) the room is ready again; else the
 * porter ends, and pid 1 with it, and whatever is left with pid 1. After the filter stands: no
 * malloc, no decisions, and only calls that guests have too. */
#include "backend/native/warm_porter.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/raw.h"
#include "base/sys.h"
#include "base/util.h"

#define PORTER_STACK 32768
#define PORTER_GUEST 2    /* its number in the room: pid 1 is there already */
#define PORTER_START_MS 5 /* between looks whether the guest's program has begun */
#define PORTER_GONE_MS 20 /* longest that a killed pid 1 takes when it is the last */

static struct porter porter;
static char porter_stack[PORTER_STACK] __attribute__((aligned(4096)));

/* ---- the guest's process ---- */

/* As clone3(2) on another stack, with the key. */
static long porter_clone3(const struct porter *p, struct clone_args *args, int (*fn)(void *),
                          void *arg)
{
    const long first = (long)p->key[0], second = (long)p->key[1];
    register long r8 __asm__("r8") = first;
    register long r9 __asm__("r9") = second;
    register int (*r12)(void *) __asm__("r12") = fn;
    register void *r13 __asm__("r13") = arg;
    long ret;
    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xor %%ebp, %%ebp\n\t"
                     "mov %%r13, %%rdi\n\t"
                     "call *%%r12\n\t"
                     "ud2\n"
                     "1:"
                     : "=a"(ret)
                     : "a"(SYS_clone3), "D"(args), "S"(sizeof(*args)), "r"(r8), "r"(r9), "r"(r12),
                       "r"(r13)
                     : "rcx", "r11", "memory");
    return ret;
}

static void entry_check(struct native_child *c, long r, const char *stage, const char *what)
{
    if (r < 0)
        native_child_fail(c, stage, (int)-r, what);
}

/* Out of the pool's rights, into what guests have. */
static void entry_leave_rights(struct porter *p)
{
    struct native_child *c = p->c;
    entry_check(c, native_keyed_call(c, SYS_setns, p->user_fd, CLONE_NEWUSER, 0), "ids", "setns");
    native_drop_bounding_set(c);
    native_drop_last_capability(c);
}

/* Of what becomes the guest, which is not the guest's. */
static void entry_note_usage(struct native_status *s)
{
    struct rusage ru = {0};
    if (raw_call(SYS_getrusage, RUSAGE_SELF, &ru) < 0)
        return;
    s->setup_user_ns = native_tv_ns(ru.ru_utime);
    s->setup_sys_ns = native_tv_ns(ru.ru_stime);
}

/* As whom files are opened, and groups entered: those of version 2 belong to the pool's user. Says
 * whether it is so; nobody is born as the pool's and stays so, as the execve takes the effective
 * one. */
static bool porter_as(const struct porter *p, bool as_pool)
{
    long user = PLAN_GUEST_UID + (as_pool ? 0 : (long)p->at.id);
    raw_call(SYS_setfsuid, user);
    return raw_call(SYS_setfsuid, -1) == user;
}

/* In the porter's memory until its execve: bare calls. Its group and clocks are the pool's to give,
 * so they come before the user namespace, behind which nothing is left. */
NATIVE_OWN_STACK static int entry_main(void *arg)
{
    struct porter *p = arg;
    struct native_child *c = p->c;
    static const uint64_t none;
    raw_call(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, sizeof(none));
    if (p->group_fd >= 0) {
        entry_check(c, porter_as(p, false) ? 0 : -EPERM, "ids", "setfsuid");
        entry_check(c, raw_call(SYS_prctl, PR_SET_DUMPABLE, 0), "dumpable", "prctl");
    }
    if (p->last_fd >= 0)
        entry_check(c, raw_call(SYS_pwrite64, p->last_fd, "2", 1, 0), "pool", "number");
    entry_check(c, raw_call(SYS_setsid), "session", "setsid");
    for (int i = 0; i < 3; i++)
        entry_check(c, raw_call(SYS_dup2, c->stdio[i], i), "descriptors", "dup2");
    native_fence_cores(c);
    entry_check(c, cgroup_enter(c->entries, c->n_entries), "cgroup", "enter");
    entry_check(c, native_keyed_call(c, SYS_unshare, CLONE_NEWCGROUP, 0, 0), "cgroup namespace",
                "unshare");
    entry_leave_rights(p);
    native_guest_limits(c);
    entry_note_usage(c->status);
    native_guest_start(&p->guest);
    return 0;
}

static void porter_clocks(struct porter *p)
{
    char text[96];
    if (p->clocks_fd < 0)
        return;
    entry_check(p->c, native_keyed_call(p->c, SYS_unshare, CLONE_NEWTIME, 0, 0), "time namespace",
                "unshare");
    native_clock_text(p->c, text, sizeof(text));
    if (lseek(p->clocks_fd, 0, SEEK_SET) != 0 ||
        write(p->clocks_fd, text, strlen(text)) != (ssize_t)strlen(text))
        native_child_fail(p->c, "time namespace", errno, "offsets");
}

/* In our memory until its execve or its end. number: its own in the room, 0: any. Who has one is
 * born in its v2 group: to enter it later would have to wait for every core. */
static long porter_clone(struct porter *p, uint64_t flags, pid_t number, int (*fn)(void *))
{
    bool into = number && p->group_fd >= 0;
    struct clone_args args = {
        .flags = CLONE_VM | flags | (into ? CLONE_INTO_CGROUP : 0),
        .cgroup = into ? (uint64_t)p->group_fd : 0,
        .exit_signal = SIGCHLD,
        .stack = (uint64_t)(uintptr_t)porter_stack,
        .stack_size = sizeof(porter_stack),
        .set_tid = number ? (uint64_t)(uintptr_t)&number : 0,
        .set_tid_size = number ? 1 : 0,
    };
    return porter_clone3(p, &args, fn, p);
}

/* Another user of files takes the signal at the parent's death away, and closes our memory only as
 * far as the host's fs.suid_dumpable says. */
static bool porter_close_again(void)
{
    return raw_call(SYS_prctl, PR_SET_DUMPABLE, 0) == 0 &&
           raw_call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL) == 0;
}

/* Born in its v2 group, where there is one. */
static long porter_clone_guest(struct porter *p)
{
    if (p->group_fd < 0 || p->at.id == 0)
        return porter_clone(p, 0, PORTER_GUEST, entry_main);
    if (!porter_as(p, true))
        return -EPERM;
    long pid = porter_clone(p, 0, PORTER_GUEST, entry_main);
    if (!porter_as(p, false) || !porter_close_again())
        _exit(1);
    return pid;
}

/* ---- a guest from its order to its end ---- */

NATIVE_OWN_STACK static int porter_probe(void *arg)
{
    (void)arg;
    for (;;)
        raw_call(SYS_exit_group, 0);
    return 0;
}

/* For the time of its life the porter waits: the C library's memory is its own. */
NATIVE_OWN_STACK static int porter_look_main(void *arg)
{
    entry_leave_rights(arg);
    bool done = warm_room_look_at_proc();
    for (;;)
        raw_call(SYS_exit_group, done ? 0 : 1);
    return 0;
}

static bool porter_look(struct porter *p)
{
    int wstatus = 1;
    long pid = porter_clone(p, CLONE_VFORK, 0, porter_look_main);
    while (pid > 0 && waitpid((pid_t)pid, &wstatus, __WALL) < 0 && errno == EINTR)
        ;
    return wstatus == 0;
}

/* Nobody is born where pid 1 is on its way out (ENOMEM), which its guests are killed by before it
 * shows. Any number will do: that of the guest may still be the one of its process group. Whoever
 * is left of the guest can stop the newborn, so it is not waited for but killed. */
static bool porter_has_pid1(struct porter *p)
{
    struct pollfd gone = {.fd = p->at.pid_fd, .events = POLLIN};
    long pid = porter_clone(p, 0, 0, porter_probe);
    /* the user has as many processes as it may: what was killed with pid 1 is reaped, and it ends
     */
    if (pid == -EAGAIN)
        return poll(&gone, 1, PORTER_GONE_MS) == 0;
    if (pid < 0)
        return pid != -ENOMEM;
    kill((pid_t)pid, SIGKILL);
    while (waitpid((pid_t)pid, NULL, __WALL) < 0 && errno == EINTR)
        ;
    return true;
}

/* Is there anybody whom we would have to wait for? Who was made as a sibling of the guest's first
 * process (CLONE_PARENT) is a child of ours and not of pid 1; so is, for the kernel, who asked to
 * be traced by its parent. */
static bool porter_has_others(const struct porter *p)
{
    siginfo_t info;
    return p->had_others || waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0 ||
           errno != ECHILD;
}

/* All that was waited for so far. Not what a wait tells of one that ended: of a traced thread it
 * tells what the whole process used. */
static void porter_waited(uint64_t *ret_user_ns, uint64_t *ret_sys_ns)
{
    struct rusage ru = {0};
    getrusage(RUSAGE_CHILDREN, &ru);
    *ret_user_ns = native_tv_ns(ru.ru_utime);
    *ret_sys_ns = native_tv_ns(ru.ru_stime);
}

/* What the guest used, but for our own work in what became it. */
static void porter_note_usage(struct porter *p)
{
    struct native_status *s = p->c->status;
    uint64_t user, sys;
    porter_waited(&user, &sys);
    user -= MIN(user, s->porter.user_ns + s->setup_user_ns);
    sys -= MIN(sys, s->porter.sys_ns + s->setup_sys_ns);
    s->guest_user_ns = user;
    s->guest_sys_ns = sys;
}

static void porter_note_memory(struct porter *p, const struct rusage *ru)
{
    struct native_status *s = p->c->status;
    s->guest_rss_bytes = MAX(s->guest_rss_bytes, (uint64_t)ru->ru_maxrss * 1024);
}

/* Everybody in the room goes with pid 1, and pid 1 without its lifeline. Those whom only we can
 * wait for are waited for: pid 1 does not end before, and what they used is known. */
static _Noreturn void porter_take_along(struct porter *p, int status)
{
    struct rusage ru;
    bool is_known = true;
    pid_t pid;
    util_close(&p->at.lifeline_fd);
    if (p->guest_pid)
        kill(p->guest_pid, SIGKILL); /* until its execve it holds the lifeline as well */
    while ((pid = wait4(-1, NULL, __WALL, &ru)) > 0 || errno == EINTR) {
        if (pid < 0)
            continue;
        porter_note_memory(p, &ru);
        is_known = false;
    }
    if (!is_known)
        porter_note_usage(p);
    _exit(status);
}

/* Ends the room, and with it whatever is left in it. */
static _Noreturn void porter_end(struct porter *p)
{
    atomic_store(&p->c->status->over, 1);
    porter_take_along(p, 0);
}

static void porter_note_end(struct porter *p, int wstatus)
{
    struct native_status *s = p->c->status;
    uint32_t started = NATIVE_STARTED;
    unsigned others;
    s->wstatus = wstatus;
    s->exited_ns = clock_ns();
    native_init_note_scratch(s);
    if (WIFSIGNALED(wstatus))
        native_command_note_static(p->c->plan, s);
    porter_note_usage(p);
    s->had_sockets = (p->c->noted & SECCOMP_NOTE_SOCKET) != 0;
    bool alone = p->serves_more && warm_room_is_alone(&others) && !porter_has_others(p);
    s->ended_together = p->serves_more ? 1 + others : 1;
    /* a failed execve recorded its own state: the first cause stays */
    atomic_compare_exchange_strong(&s->state, &started, NATIVE_EXITED);
    /* others go with pid 1, and so do its numbers of those it has waited for */
    if (!alone)
        porter_end(p);
    atomic_store(&s->all_dead, 1);
}

static void porter_tell_end(struct porter *p)
{
    const char word = NATIVE_WORD_ENDED;
    if (write(p->c->done_fd, &word, 1) != 1)
        _exit(1);
}

/* Takes everybody who has ended; true when the guest's first process was among them. Whoever stops
 * because it asked to be traced stays so, until a limit ends it. */
static bool porter_reap(struct porter *p)
{
    struct signalfd_siginfo drop;
    while (read(p->sig_fd, &drop, sizeof(drop)) == (ssize_t)sizeof(drop))
        ;
    for (;;) {
        int wstatus;
        struct rusage ru;
        pid_t pid = wait4(-1, &wstatus, WNOHANG | __WALL, &ru);
        if (pid < 0 && errno == EINTR)
            continue;
        if (pid < 0 && errno != ECHILD)
            native_child_fail(p->c, "init", errno, "wait");
        if (pid <= 0)
            return false;
        porter_note_memory(p, &ru);
        if (pid != p->guest_pid || !(WIFEXITED(wstatus) || WIFSIGNALED(wstatus))) {
            p->had_others = true;
            continue;
        }
        p->guest_pid = 0;
        /* killed together with pid 1: what that means is for the supervisor to say */
        if (WIFSIGNALED(wstatus) && WTERMSIG(wstatus) == SIGKILL && !porter_has_pid1(p))
            porter_take_along(p, 1);
        porter_note_end(p, wstatus);
        return true;
    }
}

/* Until the guest has ended. */
static void porter_watch(struct porter *p)
{
    struct native_child *c = p->c;
    uint64_t begun_ns = clock_ns();
    struct pollfd fds[3] = {
        {.fd = p->sig_fd, .events = POLLIN},
        {.fd = c->go_fd, .events = POLLIN},
        {.fd = p->listener_fd, .events = POLLIN},
    };
    for (;;) {
        /* A signal is for the guest's program, not for what becomes it: until then it waits. */
        bool is_program = atomic_load(&c->status->state) != NATIVE_SETUP;
        int rest_ms = native_init_rest_ms(c->status, begun_ns);
        fds[1].fd = is_program ? c->go_fd : -1;
        if (!is_program && rest_ms != 0)
            rest_ms = PORTER_START_MS;
        if (rest_ms == 0) {
            c->status->time_hit = 1;
            c->status->exited_ns = clock_ns(); /* whenever the supervisor gets to hear of it */
            porter_end(p);
        }
        if (poll(fds, ARRAY_SIZE(fds), rest_ms) < 0 && errno != EINTR)
            native_child_fail(c, "init", errno, "poll");
        if (fds[0].revents && porter_reap(p))
            return;
        if (fds[1].revents && !native_init_forward(c->go_fd, p->guest_pid))
            porter_take_along(p, 1); /* the supervisor is gone, or wants the guest gone */
        if (fds[2].revents & POLLIN)
            native_init_answer(c, p->listener_fd);
    }
}

/* Nothing of an order is kept: no guest sees it, and there is no need for it. */
static void porter_forget(struct warm_taken *order)
{
    if (order->mapped)
        munmap(order->mapped, order->head.len);
    else
        explicit_bzero((char *)(uintptr_t)order->body, order->head.len);
    /* those of files were closed when they were copied */
    for (size_t i = 0; i < order->n_fds; i++)
        if (i < order->head.is_memfd || i >= order->head.is_memfd + order->head.n_files)
            close(order->fds[i]);
}

/* Without streams and groups of its own a guest would run in the last one's, or in none. */
static bool porter_is_whole(const struct porter *p, const struct warm_order *head)
{
    enum host_cgroup kind = p->plan->cgroups.kind;
    return head->n_streams == ARRAY_SIZE(p->c->stdio) &&
           (kind != HOST_CGROUP_V1 || head->n_entries > 0) &&
           (kind != HOST_CGROUP_V2 || head->has_group);
}

static void porter_serve(struct porter *p)
{
    struct native_child *c = p->c;
    struct warm_taken order;
    warm_guest_receive(c, p->plan, &order);
    if (!porter_is_whole(p, &order.head))
        native_child_fail(c, "start", EPROTO, "order");
    atomic_store(&c->status->ready, 0);
    native_child_copy_files(c);
    porter_clocks(p);
    p->guest = (struct native_guest){.child = c, .fence_fd = -1, .mounts_fd = -1, .clocks_fd = -1};
    p->guest.cloned_ns = clock_ns();
    porter_waited(&c->status->porter.user_ns, &c->status->porter.sys_ns);
    p->had_others = false;
    p->group_fd = order.group_fd;
    c->noted = 0;
    native_pace_begin();
    long pid = porter_clone_guest(p);
    if (pid < 0)
        native_child_fail(c, "fork", (int)-pid, "clone3");
    p->guest_pid = (pid_t)pid;
    porter_watch(p);
    c->plan = p->plan;
    porter_tell_end(p);
    /* Not before: the supervisor is told of the end once, and not of each stream's before it. */
    porter_forget(&order);
    /* the supervisor has what it needs; whether the room serves again is seen meanwhile */
    if (!p->serves_more || (c->noted & SECCOMP_NOTE_OBJECT) ||
        !warm_room_is_as_new(p->at.looks_at_network || (c->noted & SECCOMP_NOTE_SOCKET)))
        porter_end(p);
    atomic_store(&c->status->ready, 1);
}

_Noreturn void warm_porter_main(struct native_child *c, struct warm_porter *at)
{
    struct porter *p = &porter;
    *p = (struct porter){.c = c, .plan = c->plan, .at = *at, .listener_fd = -1, .group_fd = -1};
    prctl(PR_SET_NAME, "cordon-porter");
    sys_brief_slices(0);
    porter_keep_only_ours(p);
    porter_become_user(p);
    porter_await(p, WARM_ROOM_STANDS);
    porter_enter(p);
    native_child_leave_keyring(c);
    porter_fence(p);
    if (write(p->at.lifeline_fd, "j", 1) != 1)
        _exit(1);
    porter_await(p, WARM_ROOM_HELD);
    p->serves_more = p->serves_more && porter_look(p) && warm_room_begin() && porter_look(p);
    atomic_store(&c->status->ready, 1);
    struct pollfd fds[2] = {{.fd = c->go_fd, .events = POLLIN},
                            {.fd = p->at.pid_fd, .events = POLLIN}};
    for (;;) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            _exit(1);
        if (fds[1].revents)
            _exit(1);
        if (fds[0].revents)
            porter_serve(p);
    }
}
