/* cordon-init: pid 1 of a container, and of each command where one container serves a sequence of
 * them: then the first one only holds the container, and each command has one of its own, started
 * beside it. A static program of its own, mounted read-only from the host;
 * runs as the guest's user, without capabilities, inside the container's limits. Where packet rules
 * are to stand it begins as root with the right to make them, and gives both up before anything
 * else.
 *
 * It takes its order from standard input, makes the guest's last bonds (resource limits, the exact
 * system-call filter), starts it, reaps, answers refused calls, forwards signals, and when the main
 * process ends kills what is left, waits for it and reports. The wall clock is its own: it ends in
 * time also when all of Cordon is dead by then.
 *
 * It is not dumpable before the guest exists: the guest has the same uid and must not read the
 * secret of the last report out of its memory. */
#include "init/init_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"
#include "init/sweep.h"
#include "init/usage.h"

#define INIT_SLOW_LOOK_MS 100 /* of looks that decide nothing */
#define INIT_LOOK_MS 20       /* pace of looks at the CPU time */

/* A guest may have made our standard error non-blocking: they share it. */
void init_write(const void *data, size_t len)
{
    const char *p = data;
    while (len > 0) {
        ssize_t n = write(2, p, len);
        if (n < 0 && errno == EAGAIN) {
            struct pollfd fd = {.fd = 2, .events = POLLOUT};
            poll(&fd, 1, 1000);
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return;
        p += n;
        len -= (size_t)n;
    }
}

void init_report(struct init *in, const uint8_t *secret)
{
    char message[INIT_SECRET + sizeof(in->report)];
    memcpy(message, secret, INIT_SECRET);
    memcpy(message + INIT_SECRET, &in->report, sizeof(in->report));
    init_write(message, sizeof(message));
}

_Noreturn void init_fail(struct init *in, const char *stage, int error)
{
    in->report.kind = INIT_FAILED;
    in->report.error = error;
    strncpy(in->report.stage, stage, sizeof(in->report.stage) - 1);
    if (in->order)
        init_report(in, in->order->end_secret);
    _exit(70);
}

/* Only the number is read; the call is never let through. */
static void init_answer(struct init *in, int listener)
{
    struct seccomp_notif req;
    memset(&req, 0, sizeof(req));
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &req) < 0)
        return;
    unsigned nr = (unsigned)req.data.nr;
    struct seccomp_notif_resp resp = {.id = req.id, .error = -EPERM};
    if (nr == SYS_mmap || nr == SYS_mremap) {
        resp.error = -ENOMEM;
        in->report.memory_refused++;
    } else {
        in->denials[nr < INIT_CALLS ? nr : INIT_CALLS - 1]++;
    }
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &resp);
}

static const char *const init_scratch[] = {"/tmp", "/home/sandbox", "/dev/shm"};

static void init_note_scratch(struct init *in)
{
    struct statfs fs;
    for (size_t i = 0; i < ARRAY_SIZE(init_scratch); i++)
        if (in->report.scratch_full != 1 && statfs(init_scratch[i], &fs) == 0 &&
            (fs.f_bfree == 0 || (fs.f_files && fs.f_ffree == 0)))
            in->report.scratch_full = fs.f_bfree == 0 ? 1 : 2;
}

/* Each folder by itself cannot pass the limit; together they are looked at. INIT_DISK, INIT_FILES,
 * or 0. */
static enum init_kind init_scratch_over(const struct init_order *o)
{
    uint64_t bytes = 0, files = 0;
    if (!o->disk_bytes && !o->max_files)
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(init_scratch); i++) {
        struct statfs fs;
        if (statfs(init_scratch[i], &fs) < 0)
            continue;
        bytes += (uint64_t)(fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
        if (fs.f_files > fs.f_ffree)
            files += (uint64_t)(fs.f_files - fs.f_ffree) - 1; /* its own root */
    }
    return o->disk_bytes && bytes > o->disk_bytes ? INIT_DISK
           : o->max_files && files > o->max_files ? INIT_FILES
                                                  : 0;
}

/* The first user namespace maps every id to itself. */
static bool init_has_user_ns(void)
{
    unsigned inside = 1, outside = 1, count = 0;
    _cleanup_fclose_ FILE *f = fopen("/proc/self/uid_map", "re");
    return f && fscanf(f, "%u %u %u", &inside, &outside, &count) == 3 &&
           !(inside == 0 && outside == 0 && count == UINT32_MAX);
}

static bool init_reap(struct init *in)
{
    bool gone = false;
    int wstatus;
    pid_t pid;
    while ((pid = waitpid(-1, &wstatus, WNOHANG | __WALL)) > 0) {
        /* who asked to be traced by its parent, and stopped, has not ended */
        if (pid != in->main_pid || !(WIFEXITED(wstatus) || WIFSIGNALED(wstatus)))
            continue;
        in->report.wstatus = wstatus;
        in->report.wall_ns = clock_ns() - in->began_ns;
        init_note_scratch(in);
        in->over = init_scratch_over(in->order);
        gone = true;
    }
    return gone;
}

/* Signals from outside the container have no sender here; the guest's own are none of its business,
 * also where it names a sender itself (rt_sigqueueinfo: never as SI_USER). True: the run is to end.
 */
static bool init_forward(struct init *in)
{
    struct signalfd_siginfo info;
    bool end = false;
    while (read(in->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGCHLD || info.ssi_pid != 0 || info.ssi_code != SI_USER)
            continue;
        if (info.ssi_signo == INIT_END_SIGNAL)
            end = true;
        else
            kill(in->main_pid, (int)info.ssi_signo);
    }
    return end;
}

static void init_note_denials(struct init *in)
{
    struct init_report *r = &in->report;
    r->denials_unobserved = !in->observed;
    for (unsigned nr = 0; nr < INIT_CALLS && r->n_denials < INIT_DENIALS; nr++)
        if (in->denials[nr])
            r->denials[r->n_denials++] =
                (struct init_denial){nr == INIT_CALLS - 1 ? -1 : (int)nr, in->denials[nr]};
}

/* Everything of the guest dies before the report is written: nobody is left who could read it out
 * of the pipe, or write behind it. */
static _Noreturn void init_end(struct init *in, enum init_kind kind)
{
    struct rusage used;
    if (!in->report.wall_ns)
        in->report.wall_ns = clock_ns() - in->began_ns;
    int last = in->report.wstatus;
    sweep_all(in->main_pid, &last);
    getrusage(RUSAGE_CHILDREN, &used);
    in->report.kind = kind;
    in->report.cpu_user_ns =
        (uint64_t)used.ru_utime.tv_sec * 1000000000u + (uint64_t)used.ru_utime.tv_usec * 1000u;
    in->report.cpu_sys_ns =
        (uint64_t)used.ru_stime.tv_sec * 1000000000u + (uint64_t)used.ru_stime.tv_usec * 1000u;
    usage_fill(&in->report);
    in->report.peak_memory_bytes = MAX(in->report.peak_memory_bytes, in->peak.memory_bytes);
    in->report.processes_peak = MAX(in->report.processes_peak, in->peak.tasks);
    in->report.throttled_ns = MAX(in->report.throttled_ns, in->duty.stopped_ns);
    if (in->report.peak_memory_bytes == 0)
        in->report.peak_memory_bytes = (uint64_t)used.ru_maxrss * 1024;
    init_note_denials(in);
    denied_read(&in->report);
    in->report.refused_unobserved = in->order->n_blocked > 0 && !denied_is_heard();
    if (in->cwd_fd >= 0)
        guard_as_guest(in, true); /* whatever it locked up, it may open again */
    init_report(in, in->order->end_secret);
    if (in->cwd_fd >= 0)
        send_files(in->cwd_fd);
    _exit(0);
}

static int init_timeout(const struct init *in, uint64_t now)
{
    uint64_t rest = UINT64_MAX;
    if (in->order->wall_ns)
        rest =
            in->began_ns + in->order->wall_ns > now ? in->began_ns + in->order->wall_ns - now : 0;
    int ms = (int)MIN(rest / 1000000u, 60000u) + 1;
    bool fast = in->order->cpu_ns || in->looks || in->order->disk_bytes || in->order->max_files;
    return MIN(ms, fast ? INIT_LOOK_MS : INIT_SLOW_LOOK_MS);
}

static bool init_must_look(const struct init *in)
{
    const struct init_order *o = in->order;
    return (o->memory_bytes && !(in->report.held & INIT_HELD_MEMORY)) ||
           (o->processes && !(in->report.held & INIT_HELD_PIDS)) ||
           (o->cpu_percent && !(in->report.held & INIT_HELD_CPU)) ||
           (o->cpu_ns && !usage_has_cpu());
}

/* What no group holds. */
static void init_look(struct init *in, uint64_t now)
{
    const struct init_order *o = in->order;
    struct look l, kernel;
    in->next_look_ns = now + INIT_LOOK_MS * 1000000u;
    bool own = o->own_kernel && look_kernel(&kernel);
    if (own)
        l = kernel;
    /* that kernel tells memory and tasks, but not the CPU time */
    if (!own || o->cpu_ns || o->cpu_percent)
        look_tree(&l);
    if (own) {
        l.memory_bytes = kernel.memory_bytes;
        l.tasks = kernel.tasks - MIN(kernel.tasks, in->tasks_before);
    }
    in->peak.memory_bytes = MAX(in->peak.memory_bytes, l.memory_bytes);
    in->peak.tasks = MAX(in->peak.tasks, l.tasks);
    if (o->cpu_ns && l.cpu_ns > o->cpu_ns)
        init_end(in, INIT_CPU_TIME);
    if (o->memory_bytes && !(in->report.held & INIT_HELD_MEMORY) &&
        l.memory_bytes > o->memory_bytes)
        init_end(in, INIT_MEMORY);
    if (o->processes && !(in->report.held & INIT_HELD_PIDS) && l.tasks > o->processes)
        init_end(in, INIT_PROCESSES);
    bool stood = in->duty.since_ns != 0;
    if (o->cpu_percent && !(in->report.held & INIT_HELD_CPU) &&
        look_duty(&in->duty, o->cpu_percent, now, l.cpu_ns) != stood)
        kill(-1, stood ? SIGCONT : SIGSTOP);
}

static void init_check_clocks(struct init *in)
{
    uint64_t now = clock_ns();
    if (in->looks && now >= in->next_look_ns)
        init_look(in, now);
    if (in->order->wall_ns && now >= in->began_ns + in->order->wall_ns)
        init_end(in, INIT_TIME);
    if (in->order->cpu_ns && usage_cpu_ns() > in->order->cpu_ns)
        init_end(in, INIT_CPU_TIME);
    enum init_kind over = init_scratch_over(in->order);
    if (over)
        init_end(in, over);
}

static _Noreturn void init_watch(struct init *in)
{
    for (;;) {
        bool ready = in->shared->ready; /* before the listener, which is set first */
        int listener = in->shared->listener;
        in->observed |= listener >= 0;
        usage_look();
        denied_read(&in->report);
        if (init_reap(in)) {
            int error = in->shared->error;
            if (error && !str_eq(in->shared->stage, "exec"))
                init_fail(in, in->shared->stage, error);
            in->report.error = error;
            init_end(in, error ? INIT_EXEC_FAILED : in->over ? in->over : INIT_EXITED);
        }
        init_check_clocks(in);
        struct pollfd fds[2] = {{.fd = in->signal_fd, .events = POLLIN},
                                {.fd = listener, .events = POLLIN}};
        /* the listener is about to appear, and nothing else would wake us for it */
        poll(fds, 2, ready ? init_timeout(in, clock_ns()) : 1);
        if (fds[0].revents && init_forward(in))
            init_end(in, INIT_ENDED);
        if (fds[1].revents & POLLIN)
            init_answer(in, listener);
        else if (fds[1].revents)
            in->shared->listener = -1; /* no filtered process is left */
    }
}

int main(void)
{
    static struct init in;
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    order_take(&in);
    guard_raise(&in);
    if (in.order->n_argv == 0) {
        hold_container(&in, &all); /* what comes back is a command's own pid 1 */
        memset(&in, 0, sizeof(in));
        order_take(&in);
        guard_raise(&in);
        denied_forget(); /* other commands' */
    }
    in.shared =
        mmap(NULL, sizeof(*in.shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (in.shared == MAP_FAILED)
        init_fail(&in, "memory", errno);
    in.shared->listener = -1;
    guard_as_guest(&in, true);
    if (chdir(in.cwd) < 0)
        init_fail(&in, "working directory", errno);
    order_files(&in);
    in.cwd_fd = in.order->sends_files ? open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (in.order->sends_files && in.cwd_fd < 0)
        init_fail(&in, "working directory", errno);
    guard_as_guest(&in, false);
    in.signal_fd = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    if (in.signal_fd < 0)
        init_fail(&in, "signals", errno);
    if (in.order->n_argv == 0)
        init_fail(&in, "order", EINVAL);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); /* pid 1 is one anyway */
    usage_open();
    in.report.user_ns = init_has_user_ns();
    in.report.held = usage_held(in.order);
    in.looks = init_must_look(&in);
    struct look before = {0};
    if (in.order->own_kernel && look_kernel(&before))
        in.tasks_before = before.tasks;
    in.report.kind = INIT_STARTED;
    init_report(&in, in.order->start_secret);
    in.began_ns = in.duty.began_ns = clock_ns();
    /* shares the table of descriptors: the filter's listener appears here and vanishes there */
    long pid = syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        guest_run(&in);
    if (pid < 0)
        init_fail(&in, "clone", errno);
    in.main_pid = (pid_t)pid;
    guard_settle(&in);
    init_watch(&in);
}
