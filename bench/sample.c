/*
 * One measurement of one case, in its mode: the wall time of a run, the numbers a program prints,
 * or the rate of several workers. Called by driver.c; throughput mode has a thread per worker.
 */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NUMBERS_MAX (64 * 1024)
#define MAX_WORKERS 64
#define NOBODY 65534

static unsigned long sequence;

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

static void run_cleanup(const struct bench_case *c, unsigned long seq)
{
    char *argv[BENCH_MAX_ARGS + 1];
    struct outcome out;

    proc_kill_strays();
    if (!c->cleanup_argv[0] || expand_words(c->cleanup_argv, seq, argv) < 0)
        return;
    proc_run(argv, c->timeout_ns, -1, -1, &out);
    free_words(argv);
    proc_kill_strays();
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
    proc_run(argv, c->timeout_ns, out_fd, err_fd, ret_out);
    free_words(argv);
    if (ret_out->kind != OUT_EXITED || ret_out->code != 0) {
        describe_outcome(ret_out, what, sizeof(what));
        read_text(err_fd, text, sizeof(text));
        rc = case_failed(c, what, text);
        if (ret_out->kind == OUT_TIMEOUT || ret_out->kind == OUT_STOPPED)
            run_cleanup(c, seq);
    }
    proc_reap_strays();
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
        proc_run(argv, w->c->timeout_ns, -1, -1, &w->last);
        free_words(argv);
        if (w->last.kind != OUT_EXITED || w->last.code != 0)
            break;
        w->runs++;
        w->ns = proc_now_ns() - w->start;
    } while (w->ns < end - w->start);
    return NULL;
}

/* The rate is the sum of each worker's own rate: the run that crosses the end of the window is
 * counted with all of its time, so a slow program is not rounded up. */
static int take_throughput(struct bench_case *c, bool discard)
{
    struct worker w[MAX_WORKERS] = {0};
    unsigned n = c->workers < MAX_WORKERS ? c->workers : MAX_WORKERS, started;
    uint64_t start = proc_now_ns();
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
    proc_reap_strays();
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
    struct outcome out = {0};
    int fd = -1, rc = run_once(c, true, &out, &fd);

    /* a folder of root's own, or a host that refuses namespaces to ordinary users */
    if (rc < 0 && c->as_user &&
        (!c->is_subject || (out.kind == OUT_NOT_STARTED && out.code == EACCES)))
        c->state = CASE_SKIPPED;
    if (rc == 0 && c->mode == MODE_SELF)
        rc = add_numbers(c, fd, true);
    if (fd >= 0)
        close(fd);
    return rc;
}

static int enter_mount_ns(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int rc =
        fd < 0 || unshare(CLONE_FS) < 0 || setns(fd, CLONE_NEWNS) < 0 || chdir(proc_scratch()) < 0;

    if (fd >= 0)
        close(fd);
    return rc ? -1 : 0;
}

/* Bare calls: the C library's change all threads. */
static int become_user(void)
{
    return syscall(SYS_setgroups, 0, NULL) < 0 ||
                   syscall(SYS_setresgid, NOBODY, NOBODY, NOBODY) < 0 ||
                   syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY) < 0
               ? -1
               : 0;
}

/* A thread can have a mount namespace and a user of its own, and what it spawns inherits them: no
 * wrapper whose start would be measured with it. */
static void *elsewhere_main(void *arg)
{
    struct elsewhere *e = arg;

    if (e->c->mount_ns[0] && enter_mount_ns(e->c->mount_ns) < 0)
        e->rc = case_failed(e->c, "enter its mount namespace", strerror(errno));
    else if (e->c->as_user && become_user() < 0)
        e->rc = case_failed(e->c, "become an ordinary user", strerror(errno));
    else
        e->rc = e->preflight ? preflight(e->c) : take(e->c, e->discard);
    return NULL;
}

static int dispatch(struct bench_case *c, bool discard, bool is_preflight)
{
    struct elsewhere e = {.c = c, .discard = discard, .preflight = is_preflight};
    pthread_t thread;

    if ((!c->mount_ns[0] && !c->as_user) || c->mode == MODE_THROUGHPUT)
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
    if (proc_is_stopped() || c->state != CASE_FAILED || strchr(c->reason, ':'))
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
    proc_run(c->version_argv, 5000000000u, fd, fd, &out);
    if (out.kind == OUT_EXITED && out.code == 0) {
        ssize_t n = pread(fd, c->version, sizeof(c->version) - 1, 0);

        c->version[n > 0 ? n : 0] = '\0';
        c->version[strcspn(c->version, "\r\n")] = '\0';
    }
    close(fd);
}
