/* Task workspaces of the library against a real supervisor: the public calls only. Linked with the
 * library's own objects so that its Nth allocation can be made to fail. The program to start is
 * named by CORDON_BINARY; a host that cannot run guests in tier full fails these tests. */
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
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- Allocations that fail ---- */

static unsigned fail_at, allocations;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_reallocarray(void *old, size_t n, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_reallocarray(void *old, size_t n, size_t size);
char *__wrap_strdup(const char *text);

static bool alloc_fails(void)
{
    if (fail_at == 0 || ++allocations != fail_at)
        return false;
    errno = ENOMEM;
    return true;
}

void *__wrap_malloc(size_t size)
{
    return alloc_fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return alloc_fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return alloc_fails() ? NULL : __real_realloc(old, size);
}

void *__wrap_reallocarray(void *old, size_t n, size_t size)
{
    return alloc_fails() ? NULL : __real_reallocarray(old, n, size);
}

char *__wrap_strdup(const char *text)
{
    return alloc_fails() ? NULL : __real_strdup(text);
}

static struct cordon *handle;
static struct cordon_err err;
static char home[64], work[80], logs[80];

static struct cordon_task_options options(void)
{
    return (struct cordon_task_options){
        .size = sizeof(struct cordon_task_options), .work_root = work, .logs_dir = logs};
}

static const char *in_home(const char *rest)
{
    static char path[256];
    snprintf(path, sizeof(path), "%s/%s", home, rest);
    return path;
}

static struct cordon_task *prepare(const char *id, const struct cordon_task_file *files, size_t n)
{
    struct cordon_task_options o = options();
    struct cordon_task *task = NULL;
    if (cordon_task_prepare(&o, id, files, n, &task, &err) < 0)
        fail_msg("%s: %s", err.stage, err.message);
    return task;
}

static struct cordon_task_result *act(struct cordon_task *task, char *const *command)
{
    struct cordon_task_action a = {.size = sizeof(a), .command = command};
    struct cordon_task_result *r = NULL;
    if (cordon_task_run(handle, task, CORDON_TASK_ACTION, &a, &r, &err) < 0)
        fail_msg("%s: %s", err.stage, err.message);
    return r;
}

static struct cordon_task_result *shell(struct cordon_task *task, const char *script)
{
    char *argv[] = {"sh", "-c", (char *)script, NULL};
    return act(task, argv);
}

static void assert_change(const struct cordon_task_result *r, size_t i, const char *path,
                          const char *kind)
{
    const char *got_kind = NULL, *got = cordon_task_result_changed(r, i, &got_kind);
    assert_non_null(got);
    assert_string_equal(got, path);
    assert_string_equal(got_kind, kind);
}

static void slurp(const char *path, char *text, size_t size)
{
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t n = fread(text, 1, size - 1, f);
    text[n] = '\0';
    fclose(f);
}

static unsigned entries_of(const char *path)
{
    unsigned n = 0;
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    if (dir)
        closedir(dir);
    return n;
}

static void finish(struct cordon_task *task)
{
    assert_int_equal(cordon_task_cleanup(task, &err), 0);
    assert_int_not_equal(access(cordon_task_path(task), F_OK), 0);
    cordon_task_free(task);
    assert_int_equal(entries_of(work), 0);
}

/* ---- What it does ---- */

static void test_action(void **state)
{
    (void)state;
    const struct cordon_task_file files[] = {{"a.txt", "1\n2\n", 4, 0},
                                             {"b/run", "#!/bin/sh\n", 10, 1}};
    struct cordon_task *task = prepare("t1", files, 2);
    char text[8192];
    struct stat st;
    assert_int_equal(stat(in_home("work/t1/b/run"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0755);
    struct cordon_task_result *r =
        shell(task, "pwd; echo 3 >> a.txt; rm b/run; printf '\\0' > c; ln -s a.txt l; exit 3");
    assert_string_equal(cordon_result_output(cordon_task_result_run(r), CORDON_STDOUT, NULL),
                        "/workspace\n");
    assert_int_equal(cordon_task_result_exit_code(r), 3);
    assert_null(cordon_task_result_error(r));
    assert_true(cordon_task_result_duration_ns(r) > 0);
    assert_change(r, 0, "a.txt", "modified");
    assert_change(r, 1, "b/run", "deleted");
    assert_change(r, 2, "c", "added");
    assert_change(r, 3, "l", "symlink");
    assert_null(cordon_task_result_changed(r, 4, NULL));
    assert_non_null(strstr(cordon_task_result_diff(r, NULL), "\n+3\n"));
    size_t len;
    cordon_task_result_diff(r, &len);
    cordon_task_result_free(r);
    r = shell(task, "true");
    assert_null(cordon_task_result_changed(r, 0, NULL));
    assert_string_equal(cordon_task_result_diff(r, NULL), "");
    cordon_task_result_free(r);
    finish(task);

    slurp(in_home("logs/t1.jsonl"), text, sizeof(text));
    char want[64];
    snprintf(want, sizeof(want), "\"diff_len\":%zu}", len);
    assert_non_null(strstr(text, want));
    const char *at = text;
    static const char *const events[] = {"prepare", "action", "action", "cleanup"};
    for (size_t i = 0; i < 4; i++) {
        snprintf(want, sizeof(want), "{\"event\":\"%s\",\"timestamp\":\"", events[i]);
        assert_non_null(at = strstr(at, want));
        at++;
    }
    assert_non_null(strstr(text, "\"changed_files\":[\"a.txt\",\"b/run\"]"));
    assert_non_null(strstr(text, "\"cmd\":null,\"exit_code\":null,\"duration_sec\":null"));
    assert_null(strstr(text, "/workspace"));
}

static void test_environment_and_input(void **state)
{
    (void)state;
    struct cordon_task *task = prepare("t", NULL, 0);
    const char *env[] = {"NAME=v", "HTTP_PROXY=x", "all_proxy=y", NULL};
    char *argv[] = {"sh", "-c", "cat; echo $NAME,$HTTP_PROXY,$all_proxy,$NO_PROXY", NULL};
    struct cordon_task_action a = {
        .size = sizeof(a), .command = argv, .env = env, .stdin_data = "in\n", .stdin_len = 3};
    struct cordon_task_result *r;
    assert_int_equal(cordon_task_run(handle, task, CORDON_TASK_ACTION, &a, &r, &err), 0);
    assert_string_equal(cordon_result_output(cordon_task_result_run(r), CORDON_STDOUT, NULL),
                        "in\nv,,,*\n");
    cordon_task_result_free(r);
    finish(task);
}

static void test_limits(void **state)
{
    (void)state;
    struct cordon_task *task = prepare("t", NULL, 0);
    char *argv[] = {"sh", "-c", "sleep 60", NULL};
    struct cordon_task_action a = {.size = sizeof(a), .command = argv, .time_limit = "300ms"};
    struct cordon_task_result *r;
    assert_int_equal(cordon_task_run(handle, task, CORDON_TASK_ACTION, &a, &r, &err), 0);
    assert_int_equal(cordon_task_result_exit_code(r), 124);
    assert_int_equal(cordon_result_timed_out(cordon_task_result_run(r)), 1);
    assert_non_null(strstr(cordon_task_result_error(r), "time limit"));
    cordon_task_result_free(r);
    finish(task);
}

static void test_tests(void **state)
{
    (void)state;
    struct cordon_task *task = prepare("t", NULL, 0);
    struct cordon_task_result *r;
    /* no pytest file at all: pytest's own status, or that of a host without pytest; never 0 */
    assert_int_equal(cordon_task_run(handle, task, CORDON_TASK_TESTS, NULL, &r, &err), 0);
    assert_int_not_equal(cordon_task_result_exit_code(r), 0);
    cordon_task_result_free(r);
    char *argv[] = {"sh", "-c", "test \"$PYTEST_ADDOPTS\"", NULL};
    struct cordon_task_action a = {.size = sizeof(a), .command = argv};
    assert_int_equal(cordon_task_run(handle, task, CORDON_TASK_TESTS, &a, &r, &err), 0);
    assert_int_equal(cordon_task_result_exit_code(r), 0);
    cordon_task_result_free(r);
    char text[8192];
    slurp(in_home("logs/t.jsonl"), text, sizeof(text));
    assert_non_null(strstr(text, "\"event\":\"tests\""));
    finish(task);
}

static void test_refused_and_missing(void **state)
{
    (void)state;
    const char *names[] = {"sh", "no-such-program-here", NULL};
    struct cordon_task_options o = options();
    o.allowed_binaries = names;
    struct cordon_task *task;
    assert_int_equal(cordon_task_prepare(&o, "t", NULL, 0, &task, &err), 0);
    char *rm[] = {"rm", "-rf", "/", NULL}, *path[] = {"/bin/sh", NULL},
         *missing[] = {"no-such-program-here", NULL};
    struct cordon_task_result *r = act(task, rm);
    assert_null(cordon_task_result_run(r));
    assert_int_equal(cordon_task_result_exit_code(r), 77);
    assert_string_equal(cordon_task_result_error(r), "command not allowed: rm");
    cordon_task_result_free(r);
    r = act(task, path);
    assert_null(cordon_task_result_run(r));
    cordon_task_result_free(r);
    r = act(task, missing);
    assert_int_equal(cordon_task_result_exit_code(r), 127);
    assert_non_null(strstr(cordon_task_result_error(r), "not found"));
    cordon_task_result_free(r);
    finish(task);
}

static void test_wrong_names(void **state)
{
    (void)state;
    static const char *const ids[] = {"", "..", ".x", "-x", "a/b", "a b", NULL};
    static const char *const names[] = {"/etc/x", "../x", "a/../x", "",  ".",
                                        "./a",    "a//b", "a/",     NULL};
    struct cordon_task_options o = options();
    struct cordon_task *task;
    char longest[102];
    memset(longest, 'x', 101);
    longest[101] = '\0';
    assert_int_equal(cordon_task_open(&o, longest, &task, &err), -1);
    longest[100] = '\0';
    assert_int_equal(cordon_task_open(&o, longest, &task, &err), 0);
    cordon_task_free(task);
    for (size_t i = 0; ids[i]; i++) {
        assert_int_equal(cordon_task_prepare(&o, ids[i], NULL, 0, &task, &err), -1);
        assert_int_equal(err.code, CORDON_ERR_USAGE);
    }
    for (size_t i = 0; names[i]; i++) {
        struct cordon_task_file f = {names[i], "x", 1, 0};
        assert_int_equal(cordon_task_prepare(&o, "t", &f, 1, &task, &err), -1);
        assert_int_equal(err.code, CORDON_ERR_USAGE);
    }
    const struct cordon_task_file both[] = {{"a", "", 0, 0}, {"a/b", "", 0, 0}};
    assert_int_equal(cordon_task_prepare(&o, "t", both, 2, &task, &err), -1);
    assert_int_equal(err.code, CORDON_ERR_USAGE);
    assert_int_equal(entries_of(work), 0);
    assert_int_equal(cordon_task_open(&o, "t", &task, &err), 0);
    struct cordon_task_result *r;
    assert_int_equal(cordon_task_run(handle, task, CORDON_TASK_TESTS, NULL, &r, &err), -1);
    assert_int_equal(err.code, CORDON_ERR_USAGE);
    cordon_task_free(task);
}

/* ---- A guest's tree is hostile ---- */

static void test_hostile_tree(void **state)
{
    (void)state;
    char script[512], secret[16];
    struct cordon_task *task = prepare("t", (struct cordon_task_file[]){{"f", "x", 1, 0}}, 1);
    FILE *f = fopen(in_home("secret"), "w");
    fputs("hidden", f);
    fclose(f);
    snprintf(script, sizeof(script),
             "ln -s %s/secret link; ln -s %s dir; mkfifo fifo; mkdir shut; echo in > shut/x; "
             "chmod 0 shut; rm f; ln -s /etc/passwd f; mkdir d; chmod u+s d 2>/dev/null; true",
             home, home);
    struct cordon_task_result *r = shell(task, script);
    const char *diff = cordon_task_result_diff(r, NULL);
    assert_null(strstr(diff, "hidden"));
    assert_null(strstr(diff, "root:"));
    assert_non_null(strstr(diff, "shut/x"));
    assert_change(r, 1, "f", "symlink");
    assert_change(r, 2, "fifo", "special");
    cordon_task_result_free(r);
    struct stat st;
    assert_int_equal(lstat(in_home("work/t/shut"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0); /* opened up for us, and put back */

    /* the files of a new one go where they belong, whatever lies there */
    cordon_task_free(task);
    task =
        prepare("t", (struct cordon_task_file[]){{"f", "new", 3, 0}, {"dir/secret", "y", 1, 0}}, 2);
    slurp(in_home("secret"), secret, sizeof(secret));
    assert_string_equal(secret, "hidden");
    slurp(in_home("work/t/dir/secret"), secret, sizeof(secret));
    assert_string_equal(secret, "y");

    /* deeper than a path can be */
    char *argv[] = {"python3", "-c",
                    "import os\nfor i in range(2100):\n os.mkdir('d')\n os.chdir('d')", NULL};
    r = act(task, argv);
    assert_non_null(strstr(cordon_task_result_error(r), "not every change"));
    cordon_task_result_free(r);
    r = shell(task, "echo y > f"); /* and the next command runs all the same */
    assert_non_null(strstr(cordon_task_result_error(r), "not every change"));
    cordon_task_result_free(r);
    finish(task);
}

static void test_large_files_are_listed(void **state)
{
    (void)state;
    struct cordon_task *task = prepare("t", NULL, 0);
    cordon_task_result_free(shell(task, "truncate -s 40M big; echo x > small"));
    struct cordon_task_result *r =
        shell(task, "printf y | dd of=big conv=notrunc bs=1 seek=5 2>&1");
    assert_change(r, 0, "big", "modified");
    assert_null(cordon_task_result_changed(r, 1, NULL));
    assert_string_equal(cordon_task_result_diff(r, NULL), "");
    cordon_task_result_free(r);
    finish(task);
}

/* ---- Several at once, events, ends ---- */

static void *turn(void *data)
{
    static int next;
    char script[64];
    int me = __atomic_add_fetch(&next, 1, __ATOMIC_SEQ_CST);
    snprintf(script, sizeof(script), "echo x > f%d", me);
    char *argv[] = {"sh", "-c", script, NULL};
    struct cordon_task_action a = {.size = sizeof(a), .command = argv};
    struct cordon_task_result *r = NULL;
    struct cordon_err e;
    if (cordon_task_run(handle, data, CORDON_TASK_ACTION, &a, &r, &e) < 0)
        return NULL;
    snprintf(script, sizeof(script), "f%d", me);
    const char *path = cordon_task_result_changed(r, 0, NULL);
    bool good = path && strcmp(path, script) == 0 && !cordon_task_result_changed(r, 1, NULL);
    cordon_task_result_free(r);
    return good ? data : NULL;
}

static void test_threads_take_turns(void **state)
{
    (void)state;
    struct cordon_task *task = prepare("t", NULL, 0);
    pthread_t threads[6];
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, turn, task), 0);
    for (size_t i = 0; i < 6; i++) {
        void *good;
        pthread_join(threads[i], &good);
        assert_ptr_equal(good, task);
    }
    finish(task);
}

static void test_start_poll_cancel(void **state)
{
    (void)state;
    struct cordon_task *task = prepare("t", NULL, 0);
    char *argv[] = {"sh", "-c", "touch begun; sleep 60", NULL};
    struct cordon_task_action a = {.size = sizeof(a), .command = argv};
    struct cordon_task_run *run, *other;
    struct cordon_task_result *r = (void *)1;
    assert_int_equal(cordon_task_start(handle, task, CORDON_TASK_ACTION, &a, &run, &err), 0);
    assert_int_equal(cordon_task_start(handle, task, CORDON_TASK_ACTION, &a, &other, &err), -1);
    assert_int_equal(err.sys_errno, EWOULDBLOCK);
    assert_int_equal(cordon_task_run_wait(run, 0, &r, &err), 0);
    assert_null(r);
    for (int i = 0; i < 3000 && access(in_home("work/t/begun"), F_OK) != 0; i++)
        usleep(10000);
    assert_int_equal(cordon_task_run_cancel(run, &err), 0);
    struct pollfd p = {.fd = cordon_task_run_fd(run), .events = POLLIN};
    assert_int_equal(poll(&p, 1, 30000), 1);
    assert_int_equal(cordon_task_run_wait(run, -1, &r, &err), 0);
    assert_int_equal(cordon_result_verdict(cordon_task_result_run(r)), CORDON_VERDICT_CANCELLED);
    assert_change(r, 0, "begun", "added");
    cordon_task_result_free(r);
    assert_int_equal(cordon_task_run_wait(run, -1, &r, &err), -1);
    cordon_task_run_free(run);
    /* one that is let go of before its end frees the workspace */
    assert_int_equal(cordon_task_start(handle, task, CORDON_TASK_ACTION, &a, &run, &err), 0);
    cordon_task_run_free(run);
    r = shell(task, "true");
    cordon_task_result_free(r);
    finish(task);
}

static void test_killed_process_leaves_what_gc_takes(void **state)
{
    (void)state;
    struct cordon_task *task = prepare("t", (struct cordon_task_file[]){{"f", "x", 1, 0}}, 1);
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct cordon *own;
        struct cordon_task_run *run;
        char *argv[] = {"sh", "-c", "sleep 60", NULL};
        struct cordon_task_action a = {.size = sizeof(a), .command = argv};
        if (cordon_open(NULL, &own, &err) == 0 &&
            cordon_task_start(own, task, CORDON_TASK_ACTION, &a, &run, &err) == 0)
            (void)!write(ready[1], "y", 1);
        pause();
        _exit(1);
    }
    char c;
    close(ready[1]);
    assert_int_equal(read(ready[0], &c, 1), 1);
    close(ready[0]);
    assert_int_equal(entries_of(work), 3); /* the tree, its mark's folder, what is remembered */
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    char command[512];
    snprintf(command, sizeof(command), "'%s' workspace --work-root '%s' gc >/dev/null",
             getenv("CORDON_BINARY"), work);
    assert_int_equal(system(command), 0);
    assert_int_equal(entries_of(work), 2);
    struct cordon_task_result *r = shell(task, "cat f");
    assert_string_equal(cordon_result_output(cordon_task_result_run(r), CORDON_STDOUT, NULL), "x");
    cordon_task_result_free(r);
    finish(task);
}

/* ---- Faults ---- */

static void test_full_disk(void **state)
{
    (void)state;
    static char data[65536];
    struct rlimit old, small = {.rlim_cur = 4096};
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    struct cordon_task_options o = options();
    struct cordon_task_file f = {"f", data, sizeof(data), 0};
    struct cordon_task *task;
    setrlimit(RLIMIT_FSIZE, &small);
    int made = cordon_task_prepare(&o, "t", &f, 1, &task, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(made, -1);
    assert_int_equal(err.sys_errno, EFBIG);
    assert_int_equal(entries_of(work), 0);

    /* what was there cannot be remembered: nothing runs, nothing is left, and it goes on after */
    task = prepare("t", &f, 1);
    struct cordon_task_result *r;
    char *argv[] = {"sh", "-c", "true", NULL};
    struct cordon_task_action a = {.size = sizeof(a), .command = argv};
    setrlimit(RLIMIT_FSIZE, &small);
    made = cordon_task_run(handle, task, CORDON_TASK_ACTION, &a, &r, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(made, -1);
    assert_int_equal(entries_of(work), 2);
    cordon_task_result_free(act(task, argv));
    finish(task);
}

/* One allocation after the other fails: an error or a success, never a leftover. */
static void test_no_memory(void **state)
{
    (void)state;
    struct cordon_task_options o = options();
    const struct cordon_task_file files[] = {{"a/b", "1\n", 2, 0}, {"c", "2\n", 2, 0}};
    char *argv[] = {"sh", "-c", "echo 3 >> c; echo new > d", NULL};
    struct cordon_task_action a = {.size = sizeof(a), .command = argv};
    bool was_whole = false;
    for (unsigned n = 1; n < 400 && !was_whole; n++) {
        struct cordon_task *task = NULL;
        struct cordon_task_result *r = NULL;
        allocations = 0;
        fail_at = n;
        int made = cordon_task_prepare(&o, "t", files, 2, &task, &err);
        int done = made < 0 ? -1 : cordon_task_run(handle, task, CORDON_TASK_ACTION, &a, &r, &err);
        fail_at = 0;
        was_whole = allocations < n;
        assert_int_equal(done < 0 && was_whole, 0);
        if (made < 0) {
            assert_null(task);
        } else {
            assert_int_equal(entries_of(work), 2); /* with the folder of its mark */
            assert_int_equal(cordon_task_cleanup(task, &err), 0);
        }
        assert_int_equal(entries_of(work), 0);
        cordon_task_result_free(r);
        cordon_task_free(task);
    }
    assert_true(was_whole);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(home, sizeof(home), "/var/tmp/cordon-task-XXXXXX");
    if (!mkdtemp(home))
        return -1;
    snprintf(work, sizeof(work), "%s/work", home);
    snprintf(logs, sizeof(logs), "%s/logs", home);
    return cordon_open(NULL, &handle, &err);
}

static int tear_down(void **state)
{
    (void)state;
    char command[128];
    cordon_close(handle);
    snprintf(command, sizeof(command), "rm -rf '%s'", home);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_action),
        cmocka_unit_test(test_environment_and_input),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_tests),
        cmocka_unit_test(test_refused_and_missing),
        cmocka_unit_test(test_wrong_names),
        cmocka_unit_test(test_hostile_tree),
        cmocka_unit_test(test_large_files_are_listed),
        cmocka_unit_test(test_threads_take_turns),
        cmocka_unit_test(test_start_poll_cancel),
        cmocka_unit_test(test_killed_process_leaves_what_gc_takes),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
