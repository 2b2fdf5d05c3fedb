/*
 * One measurement: start a program, wait until it is reaped, take the time. Runs in the driver's
 * process; in throughput mode in one thread per worker.
 *
 * The clock runs from just before posix_spawn to just after the wait returned. Everything that
 * can be done outside that time (search of PATH, arguments, descriptors) is done outside.
 */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NUMBERS_MAX (64 * 1024)
#define MAX_WORKERS 64

enum outcome_kind { OUT_EXITED, OUT_SIGNALED, OUT_TIMEOUT, OUT_STOPPED, OUT_NOT_STARTED };

struct outcome {
    enum outcome_kind kind;
    int code; /* exit status, signal or errno */
    uint64_t ns;
};

static int null_fd = -1;
static int stop_fd = -1;
static volatile sig_atomic_t stopped;
static const char *scratch_dir;
static char **child_env;
static unsigned long sequence;

uint64_t sample_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void sample_request_stop(void)
{
    uint64_t one = 1;
    int saved = errno;

    stopped = 1;
    if (write(stop_fd, &one, sizeof(one)) < 0)
        errno = saved; /* the flag alone still stops the next run */
    errno = saved;
}

bool sample_is_stopped(void)
{
    return stopped;
}

/* A fixed environment: variables of the caller (CORDON_*, LD_*) would change what is measured. */
static int build_env(void)
{
    static const char *const kept[] = {"HOME", "USER", "DOCKER_HOST", "XDG_RUNTIME_DIR"};
    const char *path = getenv("PATH");
    size_t n = 0;

    child_env = calloc(sizeof(kept) / sizeof(kept[0]) + 4, sizeof(*child_env));
    if (!child_env ||
        asprintf(&child_env[n++], "PATH=%s:/usr/local/sbin:/usr/sbin:/sbin",
                 path ? path : "/usr/bin:/bin") < 0 ||
        asprintf(&child_env[n++], "XDG_CONFIG_HOME=%s", scratch_dir) < 0 ||
        !(child_env[n++] = strdup("LANG=C.UTF-8")))
        return -1;
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
        const char *value = getenv(kept[i]);

        if (value && asprintf(&child_env[n++], "%s=%s", kept[i], value) < 0)
            return -1;
    }
    return 0;
}

int sample_init(const char *scratch, char *err, size_t err_size)
{
    scratch_dir = scratch;
    null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    /* The working directory is ours and empty, so that no configuration file is found there. */
    if (null_fd < 0 || stop_fd < 0 || chdir(scratch) < 0 || build_env() < 0) {
        snprintf(err, err_size, "prepare runs in %s: %s", scratch, strerror(errno));
        return -1;
    }
    /* What a timed-out program leaves behind comes to us and can be ended by its id. */
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    return 0;
}

/* Waits for pid to end, for the time-out or for the user's interrupt; reaps in every case. */
static void wait_for(pid_t pid, uint64_t deadline, struct outcome *ret_out)
{
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd p[2] = {{.fd = pidfd, .events = POLLIN}, {.fd = stop_fd, .events = POLLIN}};
    struct outcome out = {.kind = OUT_EXITED};
    int status;

    while (pidfd >= 0) {
        uint64_t now = sample_now_ns();
        int left_ms = now < deadline ? (int)((deadline - now) / 1000000u) + 1 : 0;
        int n = poll(p, 2, left_ms);

        if (n < 0 && errno == EINTR)
            continue;
        if (p[0].revents)
            break;
        if (n == 0 || p[1].revents) {
            out.kind = n == 0 ? OUT_TIMEOUT : OUT_STOPPED;
            kill(-pid, SIGKILL);
            kill(pid, SIGKILL);
            break;
        }
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (pidfd >= 0)
        close(pidfd);
    if (out.kind == OUT_EXITED) {
        out.kind = WIFSIGNALED(status) ? OUT_SIGNALED : OUT_EXITED;
        out.code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
    }
    *ret_out = out;
}

static void run_argv(char *const *argv, uint64_t timeout_ns, int out_fd, int err_fd,
                     struct outcome *ret_out)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none, usual;
    uint64_t start;
    pid_t pid;
    int rc;

    sigemptyset(&none);
    sigemptyset(&usual);
    sigaddset(&usual, SIGINT);
    sigaddset(&usual, SIGTERM);
    sigaddset(&usual, SIGPIPE);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, null_fd, 0);
    posix_spawn_file_actions_adddup2(&actions, out_fd, 1);
    posix_spawn_file_actions_adddup2(&actions, err_fd, 2);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &usual);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setflags(
        &attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);

    start = sample_now_ns();
    rc = posix_spawn(&pid, argv[0], &actions, &attr, argv, child_env);
    if (rc == 0) {
        wait_for(pid, start + timeout_ns, ret_out);
        ret_out->ns = sample_now_ns() - start;
    } else {
        *ret_out = (struct outcome){.kind = OUT_NOT_STARTED, .code = rc};
    }
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
}

static void free_words(char **words)
{
    for (size_t i = 0; words[i]; i++) {
        free(words[i]);
        words[i] = NULL;
    }
}

static int expand_words(char *const *words, unsigned long seq, char **ret_words)
{
    size_t i;

    for (i = 0; words[i]; i++) {
        ret_words[i] = cases_expand_seq(words[i], seq);
        if (!ret_words[i]) {
            free_words(ret_words);
            return -1;
        }
    }
    ret_words[i] = NULL;
    return 0;
}

static void reap_strays(void)
{
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

static bool kill_children_once(void)
{
    char path[64];
    bool found = false;
    FILE *f;
    int pid;

    snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
    f = fopen(path, "re");
    if (!f)
        return false;
    while (fscanf(f, "%d", &pid) == 1 && pid > 1) {
        kill(pid, SIGKILL);
        found = true;
    }
    fclose(f);
    return found;
}

/* Only while no worker runs: every child we have left is then a leftover of a time-out. */
static void kill_strays(void)
{
    struct timespec pause = {.tv_nsec = 5000000};

    for (int i = 0; i < 100 && kill_children_once(); i++) {
        reap_strays();
        nanosleep(&pause, NULL);
    }
}

static void run_cleanup(const struct bench_case *c, unsigned long seq)
{
    char *argv[BENCH_MAX_ARGS + 1];
    struct outcome out;

    kill_strays();
    if (!c->cleanup_argv[0] || expand_words(c->cleanup_argv, seq, argv) < 0)
        return;
    run_argv(argv, c->timeout_ns, null_fd, null_fd, &out);
    free_words(argv);
    kill_strays();
}

/* Text of a memfd with control characters made harmless: it goes into reports and terminals. */
static void read_text(int fd, char *buf, size_t size)
{
    ssize_t n = fd >= 0 ? pread(fd, buf, size - 1, 0) : 0;

    buf[n > 0 ? n : 0] = '\0';
    for (char *s = buf; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            *s = ' ';
    for (size_t len = strlen(buf); len > 0 && buf[len - 1] == ' '; len--)
        buf[len - 1] = '\0';
}

static void describe_outcome(const struct outcome *out, char *buf, size_t size)
{
    switch (out->kind) {
    case OUT_EXITED: snprintf(buf, size, "exit status %d", out->code); break;
    case OUT_SIGNALED: snprintf(buf, size, "killed by signal %d", out->code); break;
    case OUT_TIMEOUT: snprintf(buf, size, "timed out"); break;
    case OUT_STOPPED: snprintf(buf, size, "interrupted"); break;
    case OUT_NOT_STARTED: snprintf(buf, size, "not started: %s", strerror(out->code)); break;
    }
}

static int case_failed(struct bench_case *c, const char *what, const char *text)
{
    c->state = CASE_FAILED;
    snprintf(c->reason, sizeof(c->reason), "%s%s%.1500s", what, text[0] ? ": " : "", text);
    return -1;
}

static int add_sample(struct bench_case *c, double value)
{
    if (c->n_samples == c->cap_samples) {
        size_t cap = c->cap_samples ? c->cap_samples * 2 : 256;
        double *grown = realloc(c->samples, cap * sizeof(*grown));

        if (!grown)
            return case_failed(c, "out of memory", "");
        c->samples = grown;
        c->cap_samples = cap;
    }
    c->samples[c->n_samples++] = value;
    return 0;
}

/* Every number on stdout is a sample: a program that measures many warm calls prints them all. */
static int add_numbers(struct bench_case *c, int fd, bool discard)
{
    char *buf = malloc(NUMBERS_MAX + 1), *s, *end;
    ssize_t n = buf ? pread(fd, buf, NUMBERS_MAX, 0) : -1;
    size_t found = 0;
    int rc = 0;

    if (n < 0) {
        free(buf);
        return case_failed(c, "read of its numbers", strerror(errno));
    }
    buf[n] = '\0';
    for (s = buf; rc == 0; s = end) {
        double v = strtod(s, &end);

        if (end == s)
            break;
        found++;
        if (!(v > 0))
            rc = case_failed(c, "printed a number that is not positive", "");
        else if (!discard)
            rc = add_sample(c, v);
    }
    if (rc == 0 && (found == 0 || s[strspn(s, " \t\r\n")] != '\0'))
        rc = case_failed(c, "stdout is not a list of numbers", "");
    free(buf);
    return rc;
}

static int run_once(struct bench_case *c, bool capture, struct outcome *ret_out, int *ret_stdout)
{
    char *argv[BENCH_MAX_ARGS + 1];
    unsigned long seq = __atomic_add_fetch(&sequence, 1, __ATOMIC_RELAXED);
    char what[128], text[1600] = "";
    int out_fd = -1, err_fd = -1, rc = 0;

    if (expand_words(c->argv, seq, argv) < 0)
        return case_failed(c, "out of memory", "");
    if (c->mode == MODE_SELF)
        out_fd = memfd_create("bench-stdout", MFD_CLOEXEC);
    if (capture)
        err_fd = memfd_create("bench-stderr", MFD_CLOEXEC);
    run_argv(argv, c->timeout_ns, out_fd >= 0 ? out_fd : null_fd, err_fd >= 0 ? err_fd : null_fd,
             ret_out);
    free_words(argv);
    if (ret_out->kind != OUT_EXITED || ret_out->code != 0) {
        describe_outcome(ret_out, what, sizeof(what));
        read_text(err_fd, text, sizeof(text));
        rc = case_failed(c, what, text);
        if (ret_out->kind == OUT_TIMEOUT || ret_out->kind == OUT_STOPPED)
            run_cleanup(c, seq);
    }
    reap_strays();
    if (err_fd >= 0)
        close(err_fd);
    if (ret_stdout && rc == 0)
        *ret_stdout = out_fd;
    else if (out_fd >= 0)
        close(out_fd);
    return rc;
}

struct worker {
    pthread_t thread;
    const struct bench_case *c;
    uint64_t start, runs, ns;
    struct outcome last;
};

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    uint64_t end = w->start + w->c->window_ns;

    do {
        char *argv[BENCH_MAX_ARGS + 1];
        unsigned long seq = __atomic_add_fetch(&sequence, 1, __ATOMIC_RELAXED);

        if (expand_words(w->c->argv, seq, argv) < 0) {
            w->last = (struct outcome){.kind = OUT_NOT_STARTED, .code = ENOMEM};
            break;
        }
        run_argv(argv, w->c->timeout_ns, null_fd, null_fd, &w->last);
        free_words(argv);
        if (w->last.kind != OUT_EXITED || w->last.code != 0)
            break;
        w->runs++;
        w->ns = sample_now_ns() - w->start;
    } while (w->ns < end - w->start);
    return NULL;
}

/* The rate is the sum of each worker's own rate: the run that crosses the end of the window is
 * counted with all of its time, so a slow program is not rounded up. */
static int take_throughput(struct bench_case *c, bool discard)
{
    struct worker w[MAX_WORKERS] = {0};
    unsigned n = c->workers < MAX_WORKERS ? c->workers : MAX_WORKERS, started;
    uint64_t start = sample_now_ns();
    char what[128];
    double rate = 0;
    int rc = 0;

    for (started = 0; started < n; started++) {
        w[started].c = c;
        w[started].start = start;
        if (pthread_create(&w[started].thread, NULL, worker_main, &w[started]) != 0)
            break;
    }
    for (unsigned i = 0; i < started; i++)
        pthread_join(w[i].thread, NULL);
    reap_strays();
    if (started < n)
        return case_failed(c, "cannot start its workers", "");
    for (unsigned i = 0; i < n && rc == 0; i++) {
        if (w[i].last.kind != OUT_EXITED || w[i].last.code != 0) {
            describe_outcome(&w[i].last, what, sizeof(what));
            rc = case_failed(c, what, "");
            run_cleanup(c, 0);
        } else {
            rate += (double)w[i].runs * 1e9 / (double)w[i].ns;
        }
    }
    if (rc == 0 && !discard)
        rc = add_sample(c, rate);
    return rc;
}

static int take_single(struct bench_case *c, bool discard)
{
    struct outcome out;
    int fd = -1, rc = run_once(c, false, &out, &fd);

    if (rc == 0 && c->mode == MODE_SELF)
        rc = add_numbers(c, fd, discard);
    else if (rc == 0 && !discard)
        rc = add_sample(c, (double)out.ns);
    if (fd >= 0)
        close(fd);
    return rc;
}

static int take(struct bench_case *c, bool discard)
{
    if (c->mode == MODE_THROUGHPUT)
        return take_throughput(c, discard);
    return take_single(c, discard);
}

struct elsewhere {
    struct bench_case *c;
    bool discard, preflight;
    int rc;
};

static int preflight(struct bench_case *c)
{
    struct outcome out;
    int fd = -1, rc = run_once(c, true, &out, &fd);

    if (rc == 0 && c->mode == MODE_SELF)
        rc = add_numbers(c, fd, true);
    if (fd >= 0)
        close(fd);
    return rc;
}

/* A thread can have a mount namespace of its own, and what it spawns inherits it: a peer gets
 * the view of the host it needs without a wrapper whose start would be measured with it. */
static void *elsewhere_main(void *arg)
{
    struct elsewhere *e = arg;
    int fd = open(e->c->mount_ns, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || unshare(CLONE_FS) < 0 || setns(fd, CLONE_NEWNS) < 0 || chdir(scratch_dir) < 0)
        e->rc = case_failed(e->c, "enter its mount namespace", strerror(errno));
    else
        e->rc = e->preflight ? preflight(e->c) : take(e->c, e->discard);
    if (fd >= 0)
        close(fd);
    return NULL;
}

static int dispatch(struct bench_case *c, bool discard, bool is_preflight)
{
    struct elsewhere e = {.c = c, .discard = discard, .preflight = is_preflight};
    pthread_t thread;

    if (!c->mount_ns[0] || c->mode == MODE_THROUGHPUT)
        return is_preflight ? preflight(c) : take(c, discard);
    if (pthread_create(&thread, NULL, elsewhere_main, &e) != 0)
        return case_failed(c, "cannot start a thread", "");
    pthread_join(thread, NULL);
    return e.rc;
}

int sample_preflight(struct bench_case *c)
{
    return dispatch(c, true, true);
}

int sample_take(struct bench_case *c, bool discard)
{
    char first[BENCH_TEXT_MAX];

    if (dispatch(c, discard, false) == 0)
        return 0;
    if (stopped || c->state != CASE_FAILED || strchr(c->reason, ':'))
        return -1;
    /* Measured runs have no stderr: repeat once for the text. */
    snprintf(first, sizeof(first), "%s", c->reason);
    if (dispatch(c, true, true) == 0)
        snprintf(c->reason, sizeof(c->reason), "%.200s (a repeat passed)", first);
    c->state = CASE_FAILED;
    return -1;
}

void sample_read_version(struct bench_case *c)
{
    int fd;
    struct outcome out;

    if (!c->version_argv[0] || c->state != CASE_READY)
        return;
    fd = memfd_create("bench-version", MFD_CLOEXEC);
    if (fd < 0)
        return;
    run_argv(c->version_argv, 5000000000u, fd, fd, &out);
    if (out.kind == OUT_EXITED && out.code == 0) {
        ssize_t n = pread(fd, c->version, sizeof(c->version) - 1, 0);

        c->version[n > 0 ? n : 0] = '\0';
        c->version[strcspn(c->version, "\r\n")] = '\0';
    }
    close(fd);
}
