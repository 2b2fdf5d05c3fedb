/* cordon-init: pid 1 of a container, and of each command where one container serves a sequence of
 * them: then the first one only holds the container, and each command has one of its own, started
 * beside it. A static program of its own, mounted read-only from the host;
 * runs as the guest's user, without capabilities, inside the container's limits.
 *
 * It takes its order from standard input, makes the guest's last bonds (resource limits, the exact
 * system-call filter), starts it, reaps, answers refused calls, forwards signals, and when the main
 * process ends kills what is left, waits for it and reports. The wall clock is its own: it ends in
 * time also when all of Cordon is dead by then.
 *
 * It is not dumpable before the guest exists: the guest has the same uid and must not read the
 * secret of the last report out of its memory. */
#include "init/init.h"

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

#include "base/util.h"
#include "init/look.h"
#include "init/usage.h"

#define INIT_SLOW_LOOK_MS 100 /* of looks that decide nothing */
#define INIT_LOOK_MS 20       /* pace of looks at the CPU time */
#define INIT_CALLS 512        /* numbers counted one by one */
#define INIT_OOM_SCORE "300"  /* the guest goes before its pid 1 */

/* Shared with the child until its execve, which takes it away from the guest. */
struct init_shared {
    volatile int ready;    /* the filter stands */
    volatile int listener; /* in the table of descriptors both share, -1: none */
    volatile int error;    /* of a failed execve or bond */
    char stage[32];
};

struct init {
    struct init_order *order;
    const struct init_rlimit *rlimits;
    const struct sock_filter *filter, *quiet;
    const char *cwd;
    char **argv, **env;
    const char *files;
    const char *end;
    pid_t main_pid;
    int signal_fd;
    struct init_shared *shared;
    uint64_t began_ns;
    struct look_duty duty;
    struct look peak;
    uint64_t next_look_ns;
    bool looks;    /* some limit is held by looking */
    bool observed; /* refused calls were counted */
    uint32_t denials[INIT_CALLS];
    struct init_report report;
};

static uint64_t init_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* A guest may have made our standard error non-blocking: they share it. */
static void init_write(const void *data, size_t len)
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

static void init_report(struct init *in, const uint8_t *secret)
{
    char message[INIT_SECRET + sizeof(in->report)];
    memcpy(message, secret, INIT_SECRET);
    memcpy(message + INIT_SECRET, &in->report, sizeof(in->report));
    init_write(message, sizeof(message));
}

static _Noreturn void init_fail(struct init *in, const char *stage, int error)
{
    in->report.kind = INIT_FAILED;
    in->report.error = error;
    strncpy(in->report.stage, stage, sizeof(in->report.stage) - 1);
    if (in->order)
        init_report(in, in->order->end_secret);
    _exit(70);
}

static bool init_read(void *data, size_t len)
{
    char *p = data;
    while (len > 0) {
        ssize_t n = read(0, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        p += n;
        len -= (size_t)n;
    }
    return true;
}

static char **init_strings(struct init *in, const char **at, uint32_t n)
{
    char **list = calloc((size_t)n + 1, sizeof(*list));
    for (uint32_t i = 0; list && i < n; i++) {
        size_t len = strnlen(*at, (size_t)(in->end - *at));
        if (*at + len >= in->end)
            return NULL;
        list[i] = (char *)(uintptr_t)*at;
        *at += len + 1;
    }
    return list;
}

static void init_take_order(struct init *in)
{
    struct init_order head;
    if (!init_read(&head, sizeof(head)) || memcmp(head.magic, INIT_MAGIC, sizeof(INIT_MAGIC)) != 0)
        _exit(70);
    if (head.total < sizeof(head) || head.total > INIT_ORDER_MAX)
        _exit(70);
    in->order = malloc((size_t)head.total + 1);
    if (!in->order)
        _exit(70);
    memcpy(in->order, &head, sizeof(head));
    if (!init_read(in->order + 1, head.total - sizeof(head)))
        _exit(70);
    in->end = (const char *)in->order + head.total;
    uint64_t tables = (uint64_t)head.n_rlimits * sizeof(struct init_rlimit) +
                      ((uint64_t)head.n_filter + head.n_quiet) * sizeof(struct sock_filter);
    if (tables > head.total - sizeof(head) || head.n_argv > head.total || head.n_env > head.total)
        init_fail(in, "order", EINVAL);
    in->rlimits = (const void *)(in->order + 1);
    in->filter = (const void *)(in->rlimits + head.n_rlimits);
    in->quiet = in->filter + head.n_filter;
    const char *at = (const char *)(in->quiet + head.n_quiet);
    char **cwd = init_strings(in, &at, 1);
    in->argv = init_strings(in, &at, head.n_argv);
    in->env = init_strings(in, &at, head.n_env);
    if (!cwd || !in->argv || !in->env)
        init_fail(in, "order", EINVAL);
    in->cwd = cwd[0];
    in->files = at;
}

/* Folders of a name, then the file: fresh, never through a link. */
static int init_file(char *name, const char *data, size_t len)
{
    for (char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(name, 0755) < 0 && errno != EEXIST)
            return -1;
        *slash = '/';
    }
    if (unlink(name) < 0 && errno != ENOENT)
        return -1;
    _cleanup_close_ int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return -1;
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

/* An engine on another host, or in another mount namespace, has other files under the same name. */
static void init_checks(struct init *in, const char *at)
{
    for (uint32_t i = 0; i < in->order->n_checks; i++) {
        char **path = init_strings(in, &at, 1);
        uint64_t inode;
        struct stat st;
        if (!path || in->end - at < (ptrdiff_t)sizeof(inode))
            init_fail(in, "order", EINVAL);
        memcpy(&inode, at, sizeof(inode));
        at += sizeof(inode);
        if (inode && (stat(path[0], &st) < 0 || st.st_ino != inode))
            init_fail(in, INIT_STAGE_FOREIGN, ENOENT);
        free(path);
    }
}

static void init_files(struct init *in)
{
    const char *at = in->files;
    for (uint32_t i = 0; i < in->order->n_files; i++) {
        char **name = init_strings(in, &at, 1);
        uint64_t len;
        if (!name || in->end - at < (ptrdiff_t)sizeof(len))
            init_fail(in, "order", EINVAL);
        memcpy(&len, at, sizeof(len));
        at += sizeof(len);
        if (len > (uint64_t)(in->end - at))
            init_fail(in, "order", EINVAL);
        if (init_file(name[0], at, (size_t)len) < 0)
            init_fail(in, "files", errno);
        at += len;
        free(name);
    }
    init_checks(in, at);
}

/* ---- the guest's process, until its execve ---- */

static _Noreturn void child_fail(struct init *in, const char *stage, int error)
{
    strcpy(in->shared->stage, stage);
    in->shared->error = error;
    _exit(127);
}

/* With a listener refused calls are counted; where there is none (gVisor) they are plain errors. */
static void child_filter(struct init *in)
{
    struct sock_fprog loud = {(unsigned short)in->order->n_filter,
                              (struct sock_filter *)(uintptr_t)in->filter};
    struct sock_fprog quiet = {(unsigned short)in->order->n_quiet,
                               (struct sock_filter *)(uintptr_t)in->quiet};
    long fd = in->order->n_filter ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                                            SECCOMP_FILTER_FLAG_NEW_LISTENER, &loud)
                                  : -1;
    if (fd >= 0) {
        in->shared->listener = (int)fd;
        return;
    }
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &quiet) < 0)
        child_fail(in, "seccomp", errno);
}

static const char *child_path(struct init *in)
{
    for (char **e = in->env; *e; e++)
        if (str_starts(*e, "PATH="))
            return *e + 5;
    return "/usr/local/bin:/usr/bin:/bin";
}

/* As a shell finds it: in the guest's own PATH; what exists but cannot be executed is remembered.
 */
static int child_exec(struct init *in)
{
    const char *name = in->argv[0];
    if (!*name)
        return ENOENT;
    if (strchr(name, '/')) {
        execve(name, in->argv, in->env);
        return errno;
    }
    int error = ENOENT;
    char path[4096];
    for (const char *dir = child_path(in); dir; dir = strchr(dir, ':')) {
        dir += *dir == ':';
        int len = (int)strcspn(dir, ":");
        if (len == 0 ||
            snprintf(path, sizeof(path), "%.*s/%s", len, dir, name) >= (int)sizeof(path))
            continue;
        execve(path, in->argv, in->env);
        if (errno != ENOENT && errno != ENOTDIR)
            error = errno;
    }
    return error;
}

/* gVisor has nothing these limits would bound, and refuses to set them. */
static bool child_may_miss(int resource)
{
    return errno == EPERM && (resource == RLIMIT_RTPRIO || resource == RLIMIT_NICE ||
                              resource == RLIMIT_MSGQUEUE || resource == RLIMIT_SIGPENDING);
}

static _Noreturn void child_run(struct init *in)
{
    sigset_t none;
    sigemptyset(&none);
    setsid();
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!write(fd, INIT_OOM_SCORE, strlen(INIT_OOM_SCORE));
        close(fd);
    }
    for (uint32_t i = 0; i < in->order->n_rlimits; i++) {
        struct rlimit now, want = {in->rlimits[i].value, in->rlimits[i].value};
        /* the runtime's own may be lower already: never raised */
        if (getrlimit((int)in->rlimits[i].resource, &now) == 0 && now.rlim_max < want.rlim_max)
            want.rlim_cur = want.rlim_max = now.rlim_max;
        if (setrlimit((int)in->rlimits[i].resource, &want) < 0 &&
            !child_may_miss((int)in->rlimits[i].resource))
            child_fail(in, "rlimit", errno);
    }
    umask(022);
    signal(SIGPIPE, SIG_DFL);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    sigprocmask(SIG_SETMASK, &none, NULL);
    child_filter(in);
    in->shared->ready = 1;
    child_fail(in, "exec", child_exec(in));
}

/* ---- pid 1 while the guest runs ---- */

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

static void init_note_scratch(struct init *in)
{
    static const char *const places[] = {"/tmp", "/home/sandbox", "/dev/shm"};
    struct statfs fs;
    for (size_t i = 0; i < ARRAY_SIZE(places); i++)
        if (statfs(places[i], &fs) == 0 && (fs.f_bfree == 0 || (fs.f_files && fs.f_ffree == 0)))
            in->report.scratch_full = 1;
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
        if (pid != in->main_pid)
            continue;
        in->report.wstatus = wstatus;
        in->report.wall_ns = init_now_ns() - in->began_ns;
        init_note_scratch(in);
        gone = true;
    }
    return gone;
}

/* Signals from outside the container have no sender here; the guest's own are none of its business.
 * True: the run is to end. */
static bool init_forward(struct init *in)
{
    struct signalfd_siginfo info;
    bool end = false;
    while (read(in->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGCHLD || info.ssi_pid != 0)
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
        in->report.wall_ns = init_now_ns() - in->began_ns;
    kill(-1, SIGKILL);
    while (waitpid(-1, NULL, __WALL) > 0 || errno == EINTR)
        ;
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
    init_report(in, in->order->end_secret);
    _exit(0);
}

static int init_timeout(const struct init *in, uint64_t now)
{
    uint64_t rest = UINT64_MAX;
    if (in->order->wall_ns)
        rest =
            in->began_ns + in->order->wall_ns > now ? in->began_ns + in->order->wall_ns - now : 0;
    int ms = (int)MIN(rest / 1000000u, 60000u) + 1;
    return MIN(ms, in->order->cpu_ns || in->looks ? INIT_LOOK_MS : INIT_SLOW_LOOK_MS);
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
    struct look l;
    in->next_look_ns = now + INIT_LOOK_MS * 1000000u;
    look_tree(&l);
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
    uint64_t now = init_now_ns();
    if (in->looks && now >= in->next_look_ns)
        init_look(in, now);
    if (in->order->wall_ns && now >= in->began_ns + in->order->wall_ns)
        init_end(in, INIT_TIME);
    if (in->order->cpu_ns && usage_cpu_ns() > in->order->cpu_ns)
        init_end(in, INIT_CPU_TIME);
}

static _Noreturn void init_watch(struct init *in)
{
    for (;;) {
        bool ready = in->shared->ready; /* before the listener, which is set first */
        int listener = in->shared->listener;
        in->observed |= listener >= 0;
        usage_look();
        if (init_reap(in)) {
            int error = in->shared->error;
            if (error && !str_eq(in->shared->stage, "exec"))
                init_fail(in, in->shared->stage, error);
            in->report.error = error;
            init_end(in, error ? INIT_EXEC_FAILED : INIT_EXITED);
        }
        init_check_clocks(in);
        struct pollfd fds[2] = {{.fd = in->signal_fd, .events = POLLIN},
                                {.fd = listener, .events = POLLIN}};
        /* the listener is about to appear, and nothing else would wake us for it */
        poll(fds, 2, ready ? init_timeout(in, init_now_ns()) : 1);
        if (fds[0].revents && init_forward(in))
            init_end(in, INIT_ENDED);
        if (fds[1].revents & POLLIN)
            init_answer(in, listener);
        else if (fds[1].revents)
            in->shared->listener = -1; /* no filtered process is left */
    }
}

/* Nothing of its own to run: reaps, and keeps the container until its standard input ends. */
static _Noreturn void init_hold(struct init *in)
{
    in->report.kind = INIT_STARTED;
    init_report(in, in->order->start_secret);
    for (;;) {
        struct signalfd_siginfo info;
        while (waitpid(-1, NULL, WNOHANG | __WALL) > 0)
            ;
        struct pollfd fds[2] = {{.fd = in->signal_fd, .events = POLLIN},
                                {.fd = 0, .events = POLLIN}};
        poll(fds, 2, -1);
        char drop;
        if (fds[1].revents && read(0, &drop, 1) <= 0)
            _exit(0);
        while (read(in->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
            if (info.ssi_pid != 0)
                continue;
            if (info.ssi_signo == INIT_END_SIGNAL)
                _exit(0);
            if (info.ssi_signo == INIT_CLEAR_SIGNAL)
                kill(-1, SIGKILL);
        }
    }
}

int main(void)
{
    static struct init in;
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    init_take_order(&in);
    in.shared =
        mmap(NULL, sizeof(*in.shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (in.shared == MAP_FAILED)
        init_fail(&in, "memory", errno);
    in.shared->listener = -1;
    if (chdir(in.cwd) < 0)
        init_fail(&in, "working directory", errno);
    init_files(&in);
    in.signal_fd = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    if (in.signal_fd < 0)
        init_fail(&in, "signals", errno);
    if (in.order->n_argv == 0)
        init_hold(&in);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); /* pid 1 is one anyway */
    usage_open();
    in.report.user_ns = init_has_user_ns();
    in.report.held = usage_held(in.order);
    in.looks = init_must_look(&in);
    in.report.kind = INIT_STARTED;
    init_report(&in, in.order->start_secret);
    in.began_ns = in.duty.began_ns = init_now_ns();
    /* shares the table of descriptors: the filter's listener appears here and vanishes there */
    long pid = syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        child_run(&in);
    if (pid < 0)
        init_fail(&in, "clone", errno);
    in.main_pid = (pid_t)pid;
    init_watch(&in);
}
