/* `cordon test`: a project's own tests, behind the wall, on an overlay of the project. A run like
 * any other once its command is known. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/util.h"
#include "cli/cli.h"
#include "cli/paint.h"
#include "cli/place.h"
#include "cli/run.h"
#include "grade/detect.h"
#include "grade/report.h"
#include "run/run.h"

extern char **environ;

enum { OPT_JUNIT = OPT_RUN_END_, OPT_DIFF };

/* Where a runner writes its XML: in the workspace, the only place that is handed back. */
#define TEST_JUNIT ".cordon-junit.xml"
#define TEST_JUNIT_INSIDE "/workspace/" TEST_JUNIT

static const struct options_own test_options[] = {
    {"junit", 0, OPTIONS_REQUIRED, OPT_JUNIT, "FILE",
     "write JUnit XML to FILE: the runner's own, else one test for the whole"},
    {"diff", 0, OPTIONS_NONE, OPT_DIFF, NULL, "print what the tests changed, as a patch"},
    CLI_RUN_ROWS,
    CLI_HELP_ROW,
};

struct test {
    struct cli_run_in in;
    struct options options;
    struct policy *policy;
    struct arena arena;
    char project[PATH_MAX];
    const char *junit; /* --junit, or NULL */
    struct place junit_place;
    struct detect found;
    char **line; /* for the run, in the arena */
    int n_line;
};

/* ---- before the run ---- */

/* The folder of the project's file where one was found, else the working directory. */
static int test_project(struct test *t, struct cordon_err *err)
{
    const char *file = t->options.config_file ? NULL : t->policy->config_file;
    if (!file && !getcwd(t->project, sizeof(t->project)))
        return err_set(err, CORDON_ERR_USAGE, "test", errno, "working directory");
    if (!file)
        return 0;
    const char *slash = strrchr(file, '/');
    size_t len = slash > file ? (size_t)(slash - file) : 1;
    snprintf(t->project, sizeof(t->project), "%.*s", (int)len, file);
    return 0;
}

static int test_command(struct test *t, struct cordon_err *err)
{
    const struct options *o = &t->options;
    if (o->argc > 0 && !o->has_dashes) {
        err_set(err, CORDON_ERR_USAGE, "options", 0, "%.200s: a command is given after --",
                o->argv[0]);
        return err_hint(err, "cordon test %s", cli_verb_test.usage);
    }
    if (o->argc > 0) {
        t->found = (struct detect){.name = "command", .argv = o->argv};
        return 0;
    }
    if (t->policy->test_command) {
        t->found = (struct detect){.name = "[test] command", .argv = t->policy->test_command};
        return 0;
    }
    const char *venv =
        policy_has(t->policy, FIELD_VENV) ? policy_text(t->policy, FIELD_VENV) : NULL;
    return detect_tests(t->project, venv, t->junit_place.dir >= 0 ? TEST_JUNIT_INSIDE : NULL,
                        &t->arena, &t->found, err);
}

static int test_junit(struct test *t, struct cordon_err *err)
{
    t->junit = options_get(&t->options, OPT_JUNIT);
    if (t->junit && place_open(&t->junit_place, t->junit) < 0) {
        int e = errno;
        const char *why = place_why(&e);
        return err_set(err, CORDON_ERR_USAGE, "options", e, "--junit %.300s%s", t->junit, why);
    }
    return 0;
}

/* The caller's options as they stand, ours after them, then the command. What the caller says about
 * the same things counts: ours are left out, or come first. */
static int test_line(struct test *t, int argc, char **argv, struct cordon_err *err)
{
    int n_options = argc - t->options.argc - t->options.has_dashes;
    size_t n_env = 0, n_words = 0, n = 0;
    while (t->found.env && t->found.env[n_env])
        n_env++;
    while (t->found.argv[n_words])
        n_words++;
    char **line =
        arena_alloc(&t->arena, ((size_t)n_options + 2 * n_env + n_words + 8) * sizeof(*line));
    if (!line)
        return err_nomem(err, "test");
    line[n++] = argv[0];
    for (size_t i = 0; i < n_env; i++) {
        line[n++] = "--env";
        line[n++] = (char *)t->found.env[i];
    }
    for (int i = 1; i < n_options; i++)
        line[n++] = argv[i];
    if (!policy_has(t->policy, FIELD_WORKSPACE)) {
        line[n++] = "--workspace";
        line[n++] = arena_printf(&t->arena, "%s:overlay", t->project);
    }
    if (t->found.writes_junit) {
        line[n++] = "--output";
        /* the folder of the file, by the descriptor that we hold */
        line[n++] = arena_printf(&t->arena, TEST_JUNIT "=/proc/self/fd/%d", t->junit_place.dir);
    }
    for (size_t i = 0; i < n; i++)
        if (!line[i])
            return err_nomem(err, "test");
    line[n++] = "--";
    memcpy(line + n, t->found.argv, n_words * sizeof(*line));
    t->line = line;
    t->n_line = (int)(n + n_words);
    return 0;
}

/* ---- after the run ---- */

/* The file we asked the runner for is no change of the tests. */
static void test_forget_junit(struct run_job *job)
{
    static const char head[] = "diff --git a/" TEST_JUNIT " b/" TEST_JUNIT "\n";
    struct tree_changes *changes = &job->files_changed.changes;
    struct buf *diff = &job->files_changed.diff;
    struct collect *outputs = &job->files_changed.outputs;
    for (size_t i = 0; i < outputs->n; i++)
        if (str_eq(outputs->rows[i].path, TEST_JUNIT)) {
            memmove(&outputs->rows[i], &outputs->rows[i + 1],
                    (--outputs->n - i) * sizeof(*outputs->rows));
            break;
        }
    if (outputs->n == 0 && policy_value(job->policy, FIELD_OUTPUT)->n_items <= 1)
        job->result.outputs = NULL;
    if (!job->files_changed.compared)
        return;
    for (size_t i = 0; i < changes->n; i++)
        if (str_eq(changes->list[i].path, TEST_JUNIT)) {
            memmove(&changes->list[i], &changes->list[i + 1],
                    (--changes->n - i) * sizeof(*changes->list));
            break;
        }
    /* lines of a hunk begin with a sign: a line that begins so is the start of a file */
    char *start = diff->data ? strstr(diff->data, head) : NULL;
    if (!start || (start != diff->data && start[-1] != '\n'))
        return;
    char *end = strstr(start, "\ndiff --git ");
    end = end ? end + 1 : diff->data + diff->len;
    memmove(start, end, (size_t)(diff->data + diff->len - end) + 1);
    diff->len -= (size_t)(end - start);
}

/* A suite without XML of its own is one test: the command. */
static int test_own_junit(const struct test *t, const struct result *r)
{
    _cleanup_buf_ struct buf xml = BUF_INIT((size_t)64 << 20);
    char status[32];
    snprintf(status, sizeof(status), "exit status %d", r->exit_code);
    struct grade_test row = {.name = t->found.name,
                             .status = r->verdict == VERDICT_OK ? GRADE_PASSED : GRADE_FAILED,
                             .message = r->error[0] ? r->error : status,
                             .runtime_ns = r->wall_ns,
                             .out = {r->out[0].data, r->out[0].len, r->out[0].truncated},
                             .errout = {r->out[1].data, r->out[1].len, r->out[1].truncated}};
    struct grade_outcome o = {.kind = "tests",
                              .submission = t->project,
                              .tests = &row,
                              .n_tests = 1,
                              .total_ns = r->wall_ns};
    grade_count(&o);
    report_write(REPORT_JUNIT, &o, false, &xml);
    return xml.failed ? -1 : place_write(&t->junit_place, xml.data, xml.len);
}

static void test_collect(struct test *t, struct run_job *job)
{
    struct stat st;
    int dir = t->junit_place.dir;
    bool has_own = t->found.writes_junit &&
                   fstatat(dir, TEST_JUNIT, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
                   st.st_size > 0;
    int r = has_own ? renameat(dir, TEST_JUNIT, dir, t->junit_place.name)
                    : test_own_junit(t, &job->result);
    if (r < 0)
        fprintf(stderr, "Warning: --junit %s: %s\n", t->junit, strerror(errno));
    if (t->found.writes_junit)
        test_forget_junit(job);
}

static void test_print(const struct buf *diff)
{
    _cleanup_buf_ struct buf painted = BUF_INIT(SIZE_MAX / 4);
    bool is_terminal = isatty(STDOUT_FILENO);
    if (is_terminal)
        paint_diff(diff->data, !getenv("NO_COLOR"), &painted);
    if (!painted.failed)
        (void)(is_terminal ? cli_write(STDOUT_FILENO, painted.data, painted.len)
                           : cli_write(STDOUT_FILENO, diff->data, diff->len));
}

static void test_on_result(struct cli_run_in *in, struct run_job *job)
{
    struct test *t = in->data;
    if (t->junit)
        test_collect(t, job);
    const struct buf *diff = &job->files_changed.diff;
    if (options_has(&t->options, OPT_DIFF) && job->files_changed.compared &&
        !options_has(&t->options, OPT_JSON) && diff->len > 0)
        test_print(diff);
}

/* ---- the verb ---- */

static int test_prepare(struct test *t, int argc, char **argv, struct cordon_err *err)
{
    struct policy_input input = options_input(&t->options, environ);
    input.test = true;
    if (cli_run_environ(&t->options, err) < 0)
        return -1;
    if (policy_resolve(&input, &t->policy, err) < 0 || test_project(t, err) < 0 ||
        test_junit(t, err) < 0 || test_command(t, err) < 0)
        return -1;
    return test_line(t, argc, argv, err);
}

static int test_run(int argc, char **argv)
{
    struct test t = {.in = {.verb = &cli_verb_test, .is_test = true, .on_result = test_on_result},
                     .junit_place = PLACE_NONE};
    struct cordon_err err = {0};
    bool help = false;
    int status;

    t.in.data = &t;
    if (cli_parse(&cli_verb_test, argc, argv, &t.options, &help, &err) < 0) {
        status = cli_run_refused(&cli_verb_test, argc, argv, &err);
    } else if (help) {
        status = cli_help_verb(&cli_verb_test);
    } else if (test_prepare(&t, argc, argv, &err) < 0) {
        policy_err_clean(&err);
        status = cli_run_refused(&cli_verb_test, argc, argv, &err);
    } else {
        status = cli_run_in(&t.in, t.n_line, t.line);
    }
    place_close(&t.junit_place);
    policy_free(t.policy);
    options_done(&t.options);
    arena_done(&t.arena);
    return status;
}

const struct cli_verb cli_verb_test = {
    .name = "test",
    .usage = "[options] [-- CMD [ARG...]]",
    .summary = "run a project's tests inside, on an overlay of the project",
    .own = test_options,
    .n_own = ARRAY_SIZE(test_options),
    .with_policy = true,
    .details =
        "Without CMD: [test] command of cordon.toml, else what the project's files tell: cargo,\n"
        "go, npm, pytest, unittest, ctest, meson, make check, make test, mvn, gradle, prove,\n"
        "rake, node. The project is the folder of its cordon.toml, or the working directory; the\n"
        "tests see it at /workspace and what they change is thrown away, unless --keep or\n"
        "--workspace DIR:rw is given. The [test] table's limits and profile count.\n\n"
        "exit status: that of the tests; else as for run.\n",
    .run = test_run,
};
