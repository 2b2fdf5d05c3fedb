/* The library against a real supervisor: every call, many at once, and what happens when one of the
 * two processes ends. Links libcordon only. The program to start is named by CORDON_BINARY; a host
 * that cannot run guests fails these tests.
 *
 * CORDON_TEST_SMALL=1 shrinks the numbers and leaves out what valgrind's own clone and its missing
 * pidfd_open cannot show. */
#include <cordon.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define MARK "86413.25" /* argument of sleep that nobody else uses */

static struct cordon *handle;
static struct cordon_err err;

static bool is_small(void)
{
    return getenv("CORDON_TEST_SMALL") != NULL;
}

static struct cordon_request *request(char *const *argv)
{
    struct cordon_request *r = cordon_request_new();
    assert_non_null(r);
    assert_int_equal(cordon_request_set_argv(r, argv, &err), 0);
    return r;
}

static struct cordon_request *shell(const char *script)
{
    char *argv[] = {"sh", "-c", (char *)script, NULL};
    return request(argv);
}

static struct cordon_result *run(struct cordon *h, struct cordon_request *r)
{
    struct cordon_result *result = NULL;
    if (cordon_run(h, r, &result, &err) < 0)
        fail_msg("%s: %s", err.stage, err.message);
    cordon_request_free(r);
    return result;
}

static void assert_output(const struct cordon_result *r, enum cordon_stream stream,
                          const char *text)
{
    size_t len;
    const char *out = cordon_result_output(r, stream, &len);
    assert_int_equal(len, strlen(text));
    assert_string_equal(out, text);
}

static struct cordon_job *start(struct cordon_request *r)
{
    struct cordon_job *job;
    if (cordon_start(handle, r, &job, &err) < 0)
        fail_msg("%s: %s", err.stage, err.message);
    cordon_request_free(r);
    return job;
}

static struct cordon_result *wait_job(struct cordon_job *job)
{
    struct cordon_result *result = NULL;
    if (cordon_job_wait(job, 30000, &result, &err) < 0)
        fail_msg("%s: %s", err.stage, err.message);
    assert_non_null(result);
    return result;
}

static void nap(int ms)
{
    struct timespec ts = {ms / 1000, ms % 1000 * 1000000l};
    nanosleep(&ts, NULL);
}

/* Processes on this machine whose arguments hold the mark. */
static int marked(void)
{
    int n = 0;
    DIR *proc = opendir("/proc");
    assert_non_null(proc);
    for (struct dirent *d; (d = readdir(proc));) {
        char path[300], line[512] = "";
        snprintf(path, sizeof(path), "/proc/%s/cmdline", d->d_name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue;
        ssize_t len = read(fd, line, sizeof(line) - 1);
        close(fd);
        for (ssize_t i = 0; i < len; i++)
            if (strcmp(line + i, MARK) == 0) {
                n++;
                break;
            }
    }
    closedir(proc);
    return n;
}

static void await_marked(int want)
{
    int n = -1;
    for (int i = 0; i < 500 && (n = marked()) != want; i++)
        nap(20);
    assert_int_equal(n, want);
}

static void await_gone(pid_t pid)
{
    char path[64], state = 0;
    for (int i = 0; i < 500; i++) {
        snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
        FILE *f = fopen(path, "re");
        if (!f)
            return;
        if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
            state = 0;
        fclose(f);
        if (state == 'Z')
            return; /* an orphan whose new parent takes its time */
        nap(20);
    }
    fail_msg("process %d is still there (%c)", (int)pid, state);
}

static int open_fds(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void assert_no_children(void)
{
    assert_int_equal(waitpid(-1, NULL, WNOHANG | __WALL), -1);
    assert_int_equal(errno, ECHILD);
}

static int open_handle(void **state)
{
    (void)state;
    if (cordon_open(NULL, &handle, &err) < 0) {
        print_error("%s: %s (%s)\n", err.stage, err.message, err.hint);
        return -1;
    }
    return 0;
}

static int close_handle(void **state)
{
    (void)state;
    cordon_close(handle);
    handle = NULL;
    return 0;
}

/* ---- single runs ---- */

static void sync_run(void **state)
{
    (void)state;
    struct cordon_result *r = run(handle, shell("echo out; echo err >&2"));
    assert_int_equal(cordon_result_verdict(r), CORDON_VERDICT_OK);
    assert_int_equal(cordon_result_exit_code(r), 0);
    assert_int_equal(cordon_result_signal(r), 0);
    assert_int_equal(cordon_result_timed_out(r), 0);
    assert_output(r, CORDON_STDOUT, "out\n");
    assert_output(r, CORDON_STDERR, "err\n");
    assert_int_equal(cordon_result_bytes(r, CORDON_STDOUT), 4);
    assert_int_equal(cordon_result_truncated(r, CORDON_STDOUT), 0);
    assert_true(cordon_result_wall_ns(r) > 0);
    assert_true(cordon_result_peak_memory_bytes(r) > 0);
    assert_true(cordon_result_processes_peak(r) >= 1);
    assert_int_equal(cordon_result_oom_kills(r), 0);
    assert_null(cordon_result_error(r));
    assert_null(cordon_result_limit_name(r));
    assert_null(cordon_result_limit_value(r));
    size_t len;
    const char *json = cordon_result_json(r, &len);
    assert_int_equal(strlen(json), len);
    assert_non_null(strstr(json, "\"verdict\":\"ok\""));
    assert_non_null(strstr(json, "\"stdout\":\"out\\n\""));
    cordon_result_free(r);
}

static void endings(void **state)
{
    (void)state;
    struct cordon_result *r = run(handle, shell("exit 7"));
    assert_int_equal(cordon_result_verdict(r), CORDON_VERDICT_NONZERO_EXIT);
    assert_int_equal(cordon_result_exit_code(r), 7);
    cordon_result_free(r);

    r = run(handle, shell("kill -TERM $$"));
    assert_int_equal(cordon_result_verdict(r), CORDON_VERDICT_SIGNALED);
    assert_int_equal(cordon_result_signal(r), SIGTERM);
    assert_int_equal(cordon_result_exit_code(r), 128 + SIGTERM);
    cordon_result_free(r);

    char *none[] = {"no-such-command", NULL};
    r = run(handle, request(none));
    assert_int_equal(cordon_result_exit_code(r), 127);
    assert_non_null(strstr(cordon_result_error(r), "not found"));
    cordon_result_free(r);

    struct cordon_request *slow = shell("sleep 10");
    assert_int_equal(cordon_request_set(slow, "time-limit", "200ms", &err), 0);
    r = run(handle, slow);
    assert_int_equal(cordon_result_verdict(r), CORDON_VERDICT_TIME_LIMIT);
    assert_int_equal(cordon_result_exit_code(r), 124);
    assert_int_equal(cordon_result_timed_out(r), 1);
    assert_string_equal(cordon_result_limit_name(r), "time_limit");
    assert_string_equal(cordon_result_limit_value(r), "200ms");
    assert_string_equal(cordon_verdict_name(cordon_result_verdict(r)), "time_limit");
    cordon_result_free(r);
    assert_string_equal(cordon_verdict_name((enum cordon_verdict)99), "unknown");
}

static struct cordon_request *source(const char *language, const char *name, const char *text,
                                     char *const *args)
{
    struct cordon_request *r = cordon_request_new();
    assert_non_null(r);
    assert_int_equal(cordon_request_set_source(r, language, name, text, strlen(text), args, &err),
                     0);
    return r;
}

static void sources(void **state)
{
    (void)state;
    char *args[] = {"one", "two words", NULL};
    struct cordon_result *r = run(handle, source("sh", NULL, "echo $# \"$2\"; exit 4\n", args));
    assert_int_equal(cordon_result_exit_code(r), 4);
    assert_output(r, CORDON_STDOUT, "2 two words\n");
    assert_string_equal(cordon_result_stage(r), "run");
    cordon_result_free(r);

    r = run(handle, source(NULL, "x.sh", "echo by suffix\n", NULL));
    assert_output(r, CORDON_STDOUT, "by suffix\n");
    cordon_result_free(r);

    /* the last of the two counts */
    char *argv[] = {"echo", "command", NULL};
    struct cordon_request *both = source("sh", NULL, "echo source\n", NULL);
    assert_int_equal(cordon_request_set_argv(both, argv, &err), 0);
    r = run(handle, both);
    assert_output(r, CORDON_STDOUT, "command\n");
    assert_null(cordon_result_stage(r));
    cordon_result_free(r);
}

static void expect_error(struct cordon_request *r, int code, const char *text)
{
    struct cordon_result *result = (void *)1;
    assert_int_equal(cordon_run(handle, r, &result, &err), -1);
    assert_ptr_equal(result, (void *)1); /* untouched */
    assert_int_equal(err.code, code);
    if (!strstr(err.message, text))
        fail_msg("'%s' is not in: %s", text, err.message);
    cordon_request_free(r);
}

static void errors(void **state)
{
    (void)state;
    expect_error(source("no-such-language", NULL, "x", NULL), CORDON_ERR_USAGE, "unknown language");
    struct cordon_request *r = shell("true");
    assert_int_equal(cordon_request_set(r, "time_limits", "5s", &err), 0);
    expect_error(r, CORDON_ERR_USAGE, "time_limits");

    r = shell("true");
    assert_int_equal(cordon_request_set(r, "memory_limit", "lots", &err), 0);
    expect_error(r, CORDON_ERR_USAGE, "memory_limit");

    r = shell("true");
    assert_int_equal(cordon_request_set_profile(r, "nobody", &err), 0);
    expect_error(r, CORDON_ERR_CONFIG, "nobody");

    r = shell("true");
    assert_int_equal(cordon_request_set_config(r, "/does/not/exist.toml", &err), 0);
    expect_error(r, CORDON_ERR_CONFIG, "exist.toml");

    expect_error(cordon_request_new(), CORDON_ERR_USAGE, "nothing to run");
    expect_error(NULL, CORDON_ERR_USAGE, "no request"); /* as it is when memory was short */
    struct cordon_job *job = NULL;
    assert_int_equal(cordon_start(handle, NULL, &job, &err), -1);
    r = shell("true");
    assert_int_equal(cordon_start(NULL, r, &job, &err), -1);
    assert_true(err.code == CORDON_ERR_USAGE && !job);
    cordon_request_free(r);

    r = cordon_request_new();
    char *empty[] = {NULL};
    assert_int_equal(cordon_request_set_argv(r, empty, &err), -1);
    assert_int_equal(cordon_request_set_flags(r, 1u << 20, &err), -1);
    assert_int_equal(cordon_request_set_cwd(r, "relative", NULL), -1);
    assert_int_equal(cordon_request_set_stdin_fd(r, 100000, &err), -1);
    cordon_request_free(r);
}

static void wrong_program(void **state)
{
    (void)state;
    struct cordon *h = (void *)1;
    struct cordon_options o = {.size = sizeof(o), .binary = "/bin/true"};
    assert_int_equal(cordon_open(&o, &h, &err), -1);
    assert_int_equal(err.code, CORDON_ERR_USAGE);
    o.binary = "/etc/passwd";
    assert_int_equal(cordon_open(&o, &h, &err), -1);
    if (!is_small())
        assert_int_equal(err.sys_errno, EACCES);
    o.binary = "/no/such/file";
    assert_int_equal(cordon_open(&o, &h, &err), -1);
    assert_int_equal(err.sys_errno, ENOENT);
    o.size = 0;
    assert_int_equal(cordon_open(&o, &h, &err), -1);
    assert_ptr_equal(h, (void *)1);
    assert_no_children();
}

static void inputs(void **state)
{
    (void)state;
    setenv("LIB_TEST_VALUE", "passed on", 1);
    setenv("LIB_TEST_SECRET", "never", 1);
    setenv("CORDON_TIME_LIMIT", "nonsense", 1); /* without DISCOVER nobody reads it */
    struct cordon_request *r = shell("cat; cat d/f; echo \"$LIB_TEST_VALUE|$LIB_TEST_SECRET|$X\"");
    assert_int_equal(cordon_request_set_stdin(r, "in\n", 3, &err), 0);
    assert_int_equal(cordon_request_add_file(r, "d/f", "file\n", 5, &err), 0);
    assert_int_equal(cordon_request_set(r, "env", "LIB_TEST_VALUE", &err), 0);
    assert_int_equal(cordon_request_set(r, "env", "X=y", &err), 0);
    struct cordon_result *result = run(handle, r);
    assert_output(result, CORDON_STDOUT, "in\nfile\npassed on||y\n");
    cordon_result_free(result);

    r = shell("true");
    assert_int_equal(cordon_request_set_flags(r, CORDON_REQUEST_DISCOVER, &err), 0);
    expect_error(r, CORDON_ERR_CONFIG, "CORDON_TIME_LIMIT");
    unsetenv("CORDON_TIME_LIMIT");

    /* one request, several runs; the last input counts */
    r = shell("cat");
    int p[2];
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    assert_int_equal(write(p[1], "pipe", 4), 4);
    close(p[1]);
    assert_int_equal(cordon_request_set_stdin(r, "bytes", 5, &err), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cordon_run(handle, r, &result, &err), 0);
        assert_output(result, CORDON_STDOUT, "bytes");
        cordon_result_free(result);
    }
    assert_int_equal(cordon_request_set_stdin_fd(r, p[0], &err), 0);
    close(p[0]);
    result = run(handle, r);
    assert_output(result, CORDON_STDOUT, "pipe");
    cordon_result_free(result);
}

static void relative_paths(void **state)
{
    (void)state;
    char dir[] = "/tmp/cordon-lib-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    assert_int_equal(chmod(dir, 0755), 0);
    snprintf(path, sizeof(path), "%s/data", dir);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    assert_int_equal(write(fd, "there", 5), 5);
    close(fd);
    struct cordon_request *r = shell("cat copy");
    assert_int_equal(cordon_request_set_cwd(r, dir, &err), 0);
    assert_int_equal(cordon_request_set(r, "file", "copy=data", &err), 0);
    struct cordon_result *result = run(handle, r);
    assert_output(result, CORDON_STDOUT, "there");
    cordon_result_free(result);
    unlink(path);
    rmdir(dir);
}

/* ---- sizes ---- */

static void large_arguments(void **state)
{
    (void)state;
    enum { N = 1024, LEN = 1023 };
    char *argv[N + 5] = {"sh", "-c", "echo $# $(echo \"$@\" | wc -c)", "sh"};
    char *arg = malloc(LEN + 1);
    memset(arg, 'a', LEN);
    arg[LEN] = '\0';
    for (int i = 0; i < N; i++)
        argv[i + 4] = arg;
    struct cordon_result *r = run(handle, request(argv));
    assert_output(r, CORDON_STDOUT, "1024 1048576\n");
    cordon_result_free(r);
    free(arg);
}

static void large_inputs(void **state)
{
    (void)state;
    size_t size = (is_small() ? 4u : 100u) << 20;
    char *data = calloc(1, size), want[64];
    assert_non_null(data);
    snprintf(want, sizeof(want), "%zu\n", size);

    struct cordon_request *r = shell("wc -c");
    assert_int_equal(cordon_request_set_stdin(r, data, size, &err), 0);
    struct cordon_result *result = run(handle, r);
    assert_output(result, CORDON_STDOUT, want);
    cordon_result_free(result);

    r = shell("wc -c < big");
    assert_int_equal(cordon_request_set_profile(r, "permissive", &err), 0);
    assert_int_equal(cordon_request_add_file(r, "big", data, size, &err), 0);
    result = run(handle, r);
    assert_output(result, CORDON_STDOUT, want);
    cordon_result_free(result);
    free(data);
}

static void large_output(void **state)
{
    (void)state;
    struct cordon_request *r =
        shell("head -c 20000000 /dev/zero; head -c 50000 /dev/zero | tr '\\0' e >&2");
    assert_int_equal(cordon_request_set_flags(r, CORDON_REQUEST_BRIEF_JSON, &err), 0);
    struct cordon_result *result = run(handle, r);
    size_t len;
    const char *out = cordon_result_output(result, CORDON_STDOUT, &len);
    assert_int_equal(len, 16u << 20);
    assert_int_equal(out[len - 1], 0);
    assert_int_equal(cordon_result_bytes(result, CORDON_STDOUT), 20000000);
    assert_int_equal(cordon_result_truncated(result, CORDON_STDOUT), 1);
    out = cordon_result_output(result, CORDON_STDERR, &len);
    assert_int_equal(len, 50000);
    assert_int_equal(out[0], 'e');
    assert_int_equal(out[len], 0);
    assert_int_equal(cordon_result_truncated(result, CORDON_STDERR), 0);
    const char *json = cordon_result_json(result, &len);
    assert_true(len < 10000);
    assert_non_null(strstr(json, "\"stdout_bytes\":20000000"));
    cordon_result_free(result);
}

/* ---- many at once ---- */

static void *many_runs(void *data)
{
    int id = (int)(intptr_t)data;
    for (int i = 0; i < (is_small() ? 3 : 20); i++) {
        char script[64], want[64];
        struct cordon_err own;
        struct cordon_result *r;
        snprintf(script, sizeof(script), "echo thread %d run %d; exit %d", id, i, i);
        snprintf(want, sizeof(want), "thread %d run %d\n", id, i);
        struct cordon_request *q = cordon_request_new();
        char *argv[] = {"sh", "-c", script, NULL};
        if (!q || cordon_request_set_argv(q, argv, &own) < 0 || cordon_run(handle, q, &r, &own) < 0)
            return own.message[0] ? strdup(own.message) : strdup("out of memory");
        cordon_request_free(q);
        bool right = strcmp(cordon_result_output(r, CORDON_STDOUT, NULL), want) == 0 &&
                     cordon_result_exit_code(r) == i;
        cordon_result_free(r);
        if (!right)
            return strdup("a result of another run");
    }
    return NULL;
}

static void threads(void **state)
{
    (void)state;
    pthread_t threads[16];
    for (intptr_t i = 0; i < 16; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, many_runs, (void *)i), 0);
    for (int i = 0; i < 16; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        if (wrong)
            fail_msg("%s", (char *)wrong);
    }
}

static void jobs_at_once(void **state)
{
    (void)state;
    int n = is_small() ? 10 : 200;
    struct cordon_job **jobs = calloc((size_t)n, sizeof(*jobs));
    struct cordon_request *r = shell("read x; echo done $x");
    int p[2];
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    assert_int_equal(cordon_request_set_stdin_fd(r, p[0], &err), 0);
    for (int i = 0; i < n; i++)
        if (cordon_start(handle, r, &jobs[i], &err) < 0)
            fail_msg("job %d: %s", i, err.message);
    cordon_request_free(r);
    close(p[0]);
    int done;
    for (int i = 0; i < n; i++) {
        assert_int_equal(cordon_job_poll(jobs[i], &done, &err), 0);
        assert_int_equal(done, 0); /* all of them wait for their input, at the same time */
    }
    close(p[1]);
    for (int i = 0; i < n; i++) {
        struct cordon_result *result = wait_job(jobs[i]);
        assert_output(result, CORDON_STDOUT, "done\n");
        cordon_result_free(result);
        cordon_job_free(jobs[i]);
    }
    free(jobs);
}

/* ---- asynchronous ---- */

static void async_poll(void **state)
{
    (void)state;
    struct cordon_job *job = start(shell("sleep 0.3; echo late"));
    struct cordon_result *result = (void *)1;
    int done = -1;
    assert_int_equal(cordon_job_poll(job, &done, &err), 0);
    assert_int_equal(done, 0);
    assert_int_equal(cordon_job_wait(job, 10, &result, &err), 0);
    assert_null(result);
    struct pollfd p = {.fd = cordon_job_fd(job), .events = POLLIN};
    assert_true(p.fd >= 0);
    assert_int_equal(cordon_job_fd(job), p.fd);
    assert_int_equal(poll(&p, 1, 0), 0);
    assert_int_equal(poll(&p, 1, 20000), 1);
    assert_int_equal(cordon_job_poll(job, &done, &err), 0);
    assert_int_equal(done, 1);
    assert_int_equal(cordon_job_wait(job, 0, &result, &err), 0);
    assert_output(result, CORDON_STDOUT, "late\n");
    assert_int_equal(poll(&p, 1, 0), 1); /* stays readable */
    struct cordon_result *again;
    assert_int_equal(cordon_job_wait(job, 0, &again, &err), -1);
    assert_int_equal(err.code, CORDON_ERR_USAGE);
    assert_int_equal(cordon_job_cancel(job, &err), 0); /* too late, no error */
    assert_int_equal(cordon_job_signal(job, SIGTERM, &err), 0);
    cordon_job_free(job);
    cordon_result_free(result); /* outlives its job */
}

static void failing_start(void **state)
{
    (void)state;
    struct cordon_request *r = shell("true");
    assert_int_equal(cordon_request_set(r, "allow_read", "/does/not/exist", &err), 0);
    struct cordon_job *job = start(r);
    struct pollfd p = {.fd = cordon_job_fd(job), .events = POLLIN};
    assert_int_equal(poll(&p, 1, 20000), 1);
    int done;
    struct cordon_result *result;
    for (int i = 0; i < 2; i++) { /* a failure stays what it is */
        assert_int_equal(cordon_job_poll(job, &done, &err), -1);
        assert_int_equal(cordon_job_wait(job, -1, &result, &err), -1);
        assert_non_null(strstr(err.message, "/does/not/exist"));
    }
    cordon_job_free(job);
}

static void cancel_and_signal(void **state)
{
    (void)state;
    char *sleeper[] = {"sleep", MARK, NULL};
    struct cordon_job *job = start(request(sleeper));
    await_marked(1);
    assert_int_equal(cordon_job_cancel(job, &err), 0);
    struct cordon_result *r = wait_job(job);
    assert_int_equal(cordon_result_verdict(r), CORDON_VERDICT_CANCELLED);
    assert_int_equal(cordon_result_exit_code(r), 130);
    assert_int_equal(marked(), 0);
    cordon_result_free(r);
    cordon_job_free(job);

    job = start(request(sleeper));
    await_marked(1);
    cordon_job_free(job); /* cancels too */
    await_marked(0);

    job = start(request(sleeper));
    await_marked(1);
    assert_int_equal(cordon_job_signal(job, 0, &err), -1);
    assert_int_equal(cordon_job_signal(job, SIGUSR1, &err), 0);
    r = wait_job(job);
    assert_int_equal(cordon_result_signal(r), SIGUSR1);
    cordon_result_free(r);
    cordon_job_free(job);
}

/* Reads what comes until the text is there. */
static void expect_stream(struct cordon_job *job, enum cordon_stream stream, const char *text)
{
    char got[256];
    size_t len = 0;
    while (len < strlen(text)) {
        struct pollfd p = {.fd = cordon_job_stream_fd(job, stream), .events = POLLIN};
        assert_int_equal(poll(&p, 1, 20000), 1);
        ssize_t n = cordon_job_read(job, stream, got + len, sizeof(got) - len);
        assert_true(n > 0);
        len += (size_t)n;
    }
    assert_memory_equal(got, text, len);
    assert_int_equal(len, strlen(text));
}

static void streaming(void **state)
{
    (void)state;
    int p[2];
    char byte;
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    struct cordon_request *r = shell("while read x; do echo \"got $x\"; echo \"err $x\" >&2; done");
    assert_int_equal(cordon_request_set_flags(r, CORDON_REQUEST_STREAM, &err), 0);
    assert_int_equal(cordon_request_set_stdin_fd(r, p[0], &err), 0);
    struct cordon_job *job = start(r);
    close(p[0]);
    assert_int_equal(cordon_job_read(job, CORDON_STDOUT, &byte, 1), -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(write(p[1], "one\n", 4), 4);
    expect_stream(job, CORDON_STDOUT, "got one\n");
    expect_stream(job, CORDON_STDERR, "err one\n");
    assert_int_equal(write(p[1], "two\n", 4), 4);
    expect_stream(job, CORDON_STDOUT, "got two\n");
    close(p[1]);
    struct cordon_result *result = wait_job(job);
    assert_output(result, CORDON_STDOUT, "got one\ngot two\n"); /* all of it, as ever */
    struct pollfd end = {.fd = cordon_job_stream_fd(job, CORDON_STDOUT), .events = POLLIN};
    assert_int_equal(poll(&end, 1, 20000), 1);
    assert_int_equal(cordon_job_read(job, CORDON_STDOUT, &byte, 1), 0);
    cordon_result_free(result);
    cordon_job_free(job);

    job = start(shell("true"));
    assert_int_equal(cordon_job_stream_fd(job, CORDON_STDOUT), -1);
    assert_int_equal(cordon_job_read(job, CORDON_STDOUT, &byte, 1), -1);
    assert_int_equal(errno, EINVAL);
    cordon_job_free(job);
}

/* Nobody reads the stream: the guest ends, the result comes, other runs go on; then all is there.
 */
static void streaming_slowly(void **state)
{
    (void)state;
    struct cordon_request *r = shell("head -c 3000000 /dev/zero | tr '\\0' s");
    assert_int_equal(
        cordon_request_set_flags(r, CORDON_REQUEST_STREAM | CORDON_REQUEST_BRIEF_JSON, &err), 0);
    assert_int_equal(cordon_request_set(r, "max_output", "2M", &err), 0);
    struct cordon_job *job = start(r);
    struct cordon_result *result = wait_job(job), *other = run(handle, shell("echo other"));
    assert_output(other, CORDON_STDOUT, "other\n");
    cordon_result_free(other);
    size_t total = 0;
    ssize_t n;
    static char chunk[50000];
    for (;;) {
        struct pollfd p = {.fd = cordon_job_stream_fd(job, CORDON_STDOUT), .events = POLLIN};
        assert_int_equal(poll(&p, 1, 20000), 1);
        n = cordon_job_read(job, CORDON_STDOUT, chunk, sizeof(chunk));
        if (n == 0)
            break;
        if (n < 0) {
            assert_int_equal(errno, EAGAIN);
            continue;
        }
        total += (size_t)n;
    }
    assert_int_equal(total, 2u << 20);
    assert_int_equal(cordon_result_bytes(result, CORDON_STDOUT), 3000000);
    cordon_result_free(result);
    cordon_job_free(job);
}

/* ---- ends of processes ---- */

static void supervisor_killed(void **state)
{
    (void)state;
    struct cordon_job *jobs[3];
    char *sleeper[] = {"sleep", MARK, NULL};
    for (int i = 0; i < 3; i++) {
        struct cordon_request *r = request(sleeper);
        assert_int_equal(cordon_request_set_flags(r, CORDON_REQUEST_STREAM, &err), 0);
        jobs[i] = start(r);
    }
    await_marked(3);
    pid_t pid = cordon_supervisor_pid(handle);
    assert_true(pid > 1);
    assert_int_equal(kill(pid, SIGKILL), 0);
    for (int i = 0; i < 3; i++) {
        struct cordon_result *r;
        char byte;
        struct pollfd p = {.fd = cordon_job_fd(jobs[i]), .events = POLLIN};
        assert_int_equal(poll(&p, 1, 20000), 1);
        assert_int_equal(cordon_job_wait(jobs[i], 20000, &r, &err), -1);
        assert_int_equal(err.code, CORDON_ERR_INTERNAL);
        assert_int_equal(cordon_job_read(jobs[i], CORDON_STDOUT, &byte, 1), 0);
        assert_int_equal(cordon_job_cancel(jobs[i], &err), 0);
        cordon_job_free(jobs[i]);
    }
    await_marked(0);
    struct cordon_result *r = run(handle, shell("echo again"));
    assert_output(r, CORDON_STDOUT, "again\n");
    assert_true(cordon_supervisor_pid(handle) != pid);
    cordon_result_free(r);
}

static void *run_true(void *data)
{
    struct cordon_result *r = NULL;
    struct cordon_err *failure = data;
    char *argv[] = {"true", NULL};
    struct cordon_request *q = request(argv);
    if (cordon_run(handle, q, &r, failure) < 0)
        r = NULL;
    cordon_request_free(q);
    return r;
}

/* A request that lay in the queue of a supervisor that died: it was never begun, so cordon_run()
 * begins it elsewhere, and an asynchronous caller is told so. */
static void supervisor_killed_before(void **state)
{
    (void)state;
    struct cordon_err failure = {0};
    pthread_t thread;
    void *r;
    pid_t pid = cordon_supervisor_pid(handle);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    struct cordon_job *job = start(shell("echo never"));
    assert_int_equal(pthread_create(&thread, NULL, run_true, &failure), 0);
    nap(100);
    assert_int_equal(kill(pid, SIGKILL), 0);
    struct cordon_result *none;
    assert_int_equal(cordon_job_wait(job, 20000, &none, &err), -1);
    assert_string_equal(err.stage, "supervisor");
    assert_int_equal(err.sys_errno, ECONNRESET);
    cordon_job_free(job);
    assert_int_equal(pthread_join(thread, &r), 0);
    if (!r)
        fail_msg("%s", failure.message);
    assert_int_equal(cordon_result_verdict(r), CORDON_VERDICT_OK);
    cordon_result_free(r);
}

/* The sockets of a killed process end a moment before it does. */
static void supervisor_killed_often(void **state)
{
    (void)state;
    for (int i = 0; i < (is_small() ? 3 : 50); i++) {
        char *sleeper[] = {"sleep", MARK, NULL};
        struct cordon_job *job = start(request(sleeper));
        assert_int_equal(kill(cordon_supervisor_pid(handle), SIGKILL), 0);
        struct cordon_result *none;
        assert_int_equal(cordon_job_wait(job, 20000, &none, &err), -1);
        cordon_job_free(job);
        cordon_result_free(run(handle, shell("exit 0")));
    }
    await_marked(0);
}

static void closed_with_jobs(void **state)
{
    (void)state;
    struct cordon *own;
    struct cordon_job *job;
    char *sleeper[] = {"sleep", MARK, NULL};
    struct cordon_request *r = request(sleeper);
    assert_int_equal(cordon_open(NULL, &own, &err), 0);
    assert_int_equal(cordon_start(own, r, &job, &err), 0);
    cordon_request_free(r);
    await_marked(1);
    pid_t pid = cordon_supervisor_pid(own);
    cordon_close(own);
    assert_int_equal(marked(), 0);
    await_gone(pid);
    struct cordon_result *result = wait_job(job);
    assert_int_equal(cordon_result_verdict(result), CORDON_VERDICT_CANCELLED);
    cordon_result_free(result);
    cordon_job_free(job);
}

static int in_child(int (*fn)(void *), void *data)
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(fn(data));
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int use_after_fork(void *data)
{
    struct cordon_job *job = data;
    struct cordon_request *r = cordon_request_new();
    struct cordon_result *result;
    char *argv[] = {"true", NULL};
    int done;
    if (cordon_request_set_argv(r, argv, &err) < 0 || cordon_run(handle, r, &result, &err) == 0 ||
        err.code != CORDON_ERR_USAGE)
        return 1;
    if (cordon_job_poll(job, &done, &err) == 0 || cordon_job_cancel(job, &err) == 0)
        return 2;
    cordon_job_free(job);
    cordon_close(handle);
    /* a handle of its own works */
    struct cordon *own;
    if (cordon_open(NULL, &own, &err) < 0 || cordon_run(own, r, &result, &err) < 0)
        return 3;
    cordon_result_free(result);
    cordon_request_free(r);
    cordon_close(own);
    return 0;
}

static void forked_caller(void **state)
{
    (void)state;
    struct cordon_job *job = start(shell("sleep 0.5; echo mine"));
    assert_int_equal(in_child(use_after_fork, job), 0);
    struct cordon_result *r = wait_job(job);
    assert_output(r, CORDON_STDOUT, "mine\n"); /* the child took nothing from us */
    cordon_result_free(r);
    cordon_job_free(job);

    /* a child that keeps copies of our descriptors does not keep a guest alive */
    char *sleeper[] = {"sleep", MARK, NULL};
    job = start(request(sleeper));
    await_marked(1);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        pause();
        _exit(0);
    }
    cordon_job_free(job);
    await_marked(0);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* Ends without closing anything, while a child of it still holds every descriptor. */
static int die_with_jobs(void *data)
{
    int *report = data;
    struct cordon *own;
    struct cordon_job *job;
    char *sleeper[] = {"sleep", MARK, NULL};
    struct cordon_request *r = cordon_request_new();
    if (cordon_request_set_argv(r, sleeper, &err) < 0 || cordon_open(NULL, &own, &err) < 0 ||
        cordon_start(own, r, &job, &err) < 0)
        return 1;
    while (marked() < 1)
        nap(20);
    pid_t pids[2] = {cordon_supervisor_pid(own), fork()};
    if (pids[1] == 0) {
        close(report[1]);
        nap(30000);
        _exit(0);
    }
    if (write(report[1], pids, sizeof(pids)) != sizeof(pids))
        return 2;
    kill(getpid(), SIGKILL);
    return 3;
}

static void host_killed(void **state)
{
    (void)state;
    int report[2];
    pid_t pids[2];
    if (is_small())
        skip();
    assert_int_equal(pipe2(report, O_CLOEXEC), 0);
    assert_int_equal(in_child(die_with_jobs, report), 128 + SIGKILL);
    assert_int_equal(read(report[0], pids, sizeof(pids)), sizeof(pids));
    close(report[0]);
    close(report[1]);
    await_marked(0);
    await_gone(pids[0]);
    kill(pids[1], SIGKILL);
}

/* A program with no standard descriptors, that ignores SIGCHLD and reaps whatever it finds. */
static int odd_program(void *data)
{
    (void)data;
    for (int fd = 0; fd < 3; fd++)
        close(fd);
    signal(SIGCHLD, SIG_IGN);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    struct cordon *own;
    struct cordon_result *r;
    struct cordon_request *q = cordon_request_new();
    char *argv[] = {"echo", "fine", NULL};
    if (cordon_request_set_argv(q, argv, &err) < 0 || cordon_open(NULL, &own, &err) < 0)
        return 1;
    if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD)
        return 2; /* the supervisor is nobody's business */
    if (cordon_run(own, q, &r, &err) < 0)
        return 3;
    int wrong = strcmp(cordon_result_output(r, CORDON_STDOUT, NULL), "fine\n");
    cordon_result_free(r);
    cordon_request_free(q);
    cordon_close(own);
    return wrong ? 4 : 0;
}

static void odd_callers(void **state)
{
    (void)state;
    assert_int_equal(in_child(odd_program, NULL), 0);
}

static long resident_kib(pid_t pid)
{
    char path[64], line[128];
    long kib = -1;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f))
        if (sscanf(line, "VmRSS: %ld", &kib) == 1)
            break;
    fclose(f);
    return kib;
}

static void idle_is_small(void **state)
{
    (void)state;
    struct cordon_result *r = run(handle, shell("head -c 9000000 /dev/zero"));
    cordon_result_free(r);
    nap(100);
    long kib = resident_kib(cordon_supervisor_pid(handle));
    print_message("supervisor, idle: %ld KiB resident\n", kib);
    assert_in_range(kib, 1, is_small() ? 1 << 20 : 4095); /* small also means sanitizers */
}

static void nothing_left(void **state)
{
    (void)state;
    int before = open_fds();
    struct cordon *own;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(cordon_open(NULL, &own, &err), 0);
        struct cordon_request *r = shell("echo x; head -c 100000 /dev/zero");
        char *big = calloc(1, 100000);
        assert_int_equal(cordon_request_set_stdin(r, big, 100000, &err), 0);
        assert_int_equal(cordon_request_set_flags(r, CORDON_REQUEST_STREAM, &err), 0);
        free(big);
        pid_t pid = cordon_supervisor_pid(own);
        cordon_result_free(run(own, r));
        cordon_close(own);
        await_gone(pid);
        assert_int_equal(open_fds(), before);
    }
    assert_no_children();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sync_run),
        cmocka_unit_test(endings),
        cmocka_unit_test(sources),
        cmocka_unit_test(errors),
        cmocka_unit_test(wrong_program),
        cmocka_unit_test(inputs),
        cmocka_unit_test(relative_paths),
        cmocka_unit_test(large_arguments),
        cmocka_unit_test(large_inputs),
        cmocka_unit_test(large_output),
        cmocka_unit_test(threads),
        cmocka_unit_test(jobs_at_once),
        cmocka_unit_test(async_poll),
        cmocka_unit_test(failing_start),
        cmocka_unit_test(cancel_and_signal),
        cmocka_unit_test(streaming),
        cmocka_unit_test(streaming_slowly),
        cmocka_unit_test(supervisor_killed),
        cmocka_unit_test(supervisor_killed_before),
        cmocka_unit_test(supervisor_killed_often),
        cmocka_unit_test(closed_with_jobs),
        cmocka_unit_test(forked_caller),
        cmocka_unit_test(host_killed),
        cmocka_unit_test(odd_callers),
        cmocka_unit_test(idle_is_small),
        cmocka_unit_test(nothing_left),
    };
    return cmocka_run_group_tests(tests, open_handle, close_handle);
}
