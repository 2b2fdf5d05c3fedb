/* Runs from a handle that is warm, and what they are compared with. Prints one sample per line:
 * nanoseconds, or runs per second.
 *
 *   warm handle N CMD [ARG...]            cordon_run() of a command
 *   warm network N RULE CMD [ARG...]      the same with a network: who may be reached
 *   warm python N [MODULE] CODE           the same of Python source text, MODULE preloaded
 *   warm spawn N CMD [ARG...]             posix_spawn() until it is reaped
 *   warm rate N CMD [ARG...]              runs per second of two threads, in windows of 400 ms
 *   warm rate-spawn N CMD [ARG...]        the same with posix_spawn()
 *   warm sleepers N                       N guests asleep at once: bytes of memory for each
 *
 * CORDON names the program behind the handle. */
#include <cordon.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../programs/work.h"

#define WINDOW_NS 400000000u
#define WORKERS 2
#define PAUSE_US 4000 /* between samples of one run: guests are prepared in quiet moments */
#define WARM_UP 8

extern char **environ;

static struct cordon *handle;
static struct cordon_request *request;
static char **command;
static posix_spawn_file_actions_t quiet;
static atomic_ulong runs;
static atomic_bool over;

static void fail(const struct cordon_err *err)
{
    fprintf(stderr, "warm: %s: %s\n", err->stage, err->message);
    exit(1);
}

static void handle_run(void)
{
    struct cordon_err err;
    struct cordon_result *result;
    if (cordon_run(handle, request, &result, &err) < 0)
        fail(&err);
    if (cordon_result_exit_code(result) != 0) {
        fprintf(stderr, "warm: status %d: %s\n", cordon_result_exit_code(result),
                cordon_result_output(result, CORDON_STDERR, NULL));
        exit(1);
    }
    cordon_result_free(result);
}

static void spawn_run(void)
{
    pid_t pid;
    int status;
    int r = posix_spawnp(&pid, command[0], &quiet, NULL, command, environ);
    errno = r;
    work_check(r == 0, command[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (status != 0) {
        fprintf(stderr, "warm: %s failed\n", command[0]);
        exit(1);
    }
}

static void open_handle(void)
{
    struct cordon_err err;
    struct cordon_options options = {.size = sizeof(options), .binary = getenv("CORDON")};
    if (cordon_open(&options, &handle, &err) < 0)
        fail(&err);
    request = cordon_request_new();
    work_check(request != NULL, "request");
    if (cordon_request_set_flags(request, CORDON_REQUEST_BRIEF_JSON, &err) < 0)
        fail(&err);
}

/* Until runs find guests ready, or no more than a while. */
static void warm_up(void)
{
    struct cordon_stats stats = {.size = sizeof(stats)};
    struct cordon_err err;
    for (int i = 0; i < 200 && stats.hits < WARM_UP; i++) {
        handle_run();
        usleep(20000);
        if (cordon_stats(handle, &stats, &err) < 0)
            fail(&err);
    }
}

static int samples(int n, void (*run)(void))
{
    for (int i = 0; i < n; i++) {
        uint64_t start = work_now_ns();
        run();
        if (work_report(start) != 0)
            return 1;
        usleep(PAUSE_US);
    }
    return 0;
}

static void *worker(void *run)
{
    while (!atomic_load(&over)) {
        ((void (*)(void))run)();
        atomic_fetch_add(&runs, 1);
    }
    return NULL;
}

static int rates(int n, void (*run)(void))
{
    pthread_t threads[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        work_check(pthread_create(&threads[i], NULL, worker, (void *)run) == 0, "thread");
    usleep(WINDOW_NS / 1000 / 2);
    for (int i = 0; i < n; i++) {
        unsigned long before = atomic_load(&runs);
        uint64_t start = work_now_ns();
        usleep(WINDOW_NS / 1000);
        printf("%.1f\n",
               (double)(atomic_load(&runs) - before) * 1e9 / (double)(work_now_ns() - start));
        fflush(stdout);
    }
    atomic_store(&over, true);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}

static uint64_t memory_available(void)
{
    char line[128];
    uint64_t kib = 0;
    FILE *f = fopen("/proc/meminfo", "r");
    work_check(f != NULL, "/proc/meminfo");
    while (fgets(line, sizeof(line), f))
        if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1)
            break;
    fclose(f);
    return kib * 1024;
}

/* A memory group (v1, as root) of our own, into which everything we start is born: its number is
 * that of user and kernel memory, whoever else works on the machine. */
static char group[512];

static void group_enter(void)
{
    char line[300], path[600], *at;
    FILE *f = fopen("/proc/self/cgroup", "r");
    while (f && !group[0] && fgets(line, sizeof(line), f))
        if ((at = strstr(line, ":memory:")) != NULL) {
            line[strcspn(line, "\n")] = '\0';
            snprintf(group, sizeof(group), "/sys/fs/cgroup/memory%s/warm-%d", at + 8,
                     (int)getpid());
        }
    if (f)
        fclose(f);
    snprintf(path, sizeof(path), "%s/tasks", group);
    if (!group[0] || mkdir(group, 0755) < 0 || (f = fopen(path, "w")) == NULL) {
        group[0] = '\0';
        return;
    }
    fputs("0", f);
    fclose(f);
}

static void group_leave(void)
{
    char path[600];
    snprintf(path, sizeof(path), "%.*s/tasks", (int)(strrchr(group, '/') - group), group);
    FILE *f = group[0] ? fopen(path, "w") : NULL;
    if (f) {
        fputs("0", f);
        fclose(f);
        for (int i = 0; i < 100 && rmdir(group) < 0; i++)
            usleep(50000);
    }
}

static int64_t memory_used(void)
{
    char path[600];
    uint64_t used = 0;
    snprintf(path, sizeof(path), "%s/memory.usage_in_bytes", group);
    FILE *f = group[0] ? fopen(path, "r") : NULL;
    if (!f)
        return -(int64_t)memory_available();
    int n = fscanf(f, "%" SCNu64, &used);
    fclose(f);
    work_check(n == 1, path);
    return (int64_t)used;
}

static int sleepers(int n)
{
    struct cordon_err err;
    struct cordon_job **jobs = calloc((size_t)n, sizeof(struct cordon_job *));
    char *argv[] = {"sleep", "60", NULL};
    work_check(jobs != NULL, "memory");
    if (cordon_request_set_argv(request, argv, &err) < 0)
        fail(&err);
    int64_t before = memory_used();
    for (int i = 0; i < n; i++)
        if (cordon_start(handle, request, &jobs[i], &err) < 0)
            fail(&err);
    struct cordon_stats stats = {.size = sizeof(stats)};
    while (stats.hits + stats.spawned + stats.cold < (uint64_t)n) {
        usleep(50000);
        if (cordon_stats(handle, &stats, &err) < 0)
            fail(&err);
    }
    sleep(1);
    int64_t after = memory_used();
    for (int i = 0; i < n; i++) {
        int done = 0;
        if (cordon_job_poll(jobs[i], &done, &err) < 0)
            fail(&err);
        if (done) {
            fprintf(stderr, "warm: sleeper %d of %d is not asleep\n", i, n);
            return 1;
        }
    }
    printf("%" PRId64 "\n", after > before ? (after - before) / n : 0);
    for (int i = 0; i < n; i++)
        if (cordon_job_cancel(jobs[i], &err) < 0)
            fail(&err);
    for (int i = 0; i < n; i++) {
        struct cordon_result *result = NULL;
        if (cordon_job_wait(jobs[i], -1, &result, &err) < 0)
            fail(&err);
        cordon_result_free(result);
        cordon_job_free(jobs[i]);
    }
    free(jobs);
    return 0;
}

static void set_python(char **words)
{
    struct cordon_err err;
    if (words[1] && cordon_request_set(request, "preload", *words++, &err) < 0)
        fail(&err);
    if (cordon_request_set_source(request, "python", NULL, words[0], strlen(words[0]), NULL, &err) <
        0)
        fail(&err);
}

int main(int argc, char **argv)
{
    struct cordon_err err;
    int n = argc > 2 ? atoi(argv[2]) : 0;
    if (n < 1 || (argc < 4 && strcmp(argv[1], "sleepers") != 0)) {
        fprintf(stderr,
                "usage: warm handle|network|python|spawn|rate|rate-spawn|sleepers N [WORD...]\n");
        return 64;
    }
    command = argv + 3;
    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
    if (strcmp(argv[1], "spawn") == 0)
        return samples(n, spawn_run);
    if (strcmp(argv[1], "rate-spawn") == 0)
        return rates(n, spawn_run);
    if (strcmp(argv[1], "sleepers") == 0)
        group_enter();
    open_handle();
    int r;
    if (strcmp(argv[1], "sleepers") == 0) {
        r = sleepers(n);
    } else {
        if (strcmp(argv[1], "network") == 0 &&
            cordon_request_set(request, "allow_network", *command++, &err) < 0)
            fail(&err);
        if (strcmp(argv[1], "python") == 0)
            set_python(command);
        else if (cordon_request_set_argv(request, command, &err) < 0)
            fail(&err);
        warm_up();
        r = strcmp(argv[1], "rate") == 0 ? rates(n, handle_run) : samples(n, handle_run);
    }
    cordon_request_free(request);
    cordon_close(handle);
    group_leave();
    return r;
}
