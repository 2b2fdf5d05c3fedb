/* `cordon grade`: the command is the supervisor of all its guests. */
#include "cli/grade.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/util.h"
#include "cli/cli.h"
#include "policy/units.h"

#define REPORT_MAX ((size_t)1 << 30)
#define EXIT_NOT_ALL 1

extern char **environ;

static const struct options_own grade_options[] = {
    {"tests", 0, OPTIONS_REQUIRED, GRADE_OPT_TESTS, "FILE",
     "Python tests: plain asserts, test functions, unittest or pytest"},
    {"entry", 0, OPTIONS_REQUIRED, GRADE_OPT_ENTRY, "NAME",
     "a name the tests take from the submission even where Python has one like it; repeatable"},
    {"doctest", 0, OPTIONS_NONE, GRADE_OPT_DOCTEST, NULL, "the tests are examples of a doctest"},
    {"copy-back", 0, OPTIONS_NONE, GRADE_OPT_COPY_BACK, NULL,
     "functions that return something change their arguments, too, and tests look at them"},
    {"in-process", 0, OPTIONS_NONE, GRADE_OPT_IN_PROCESS, NULL,
     "tests and submission in one interpreter: weaker, for tests that cannot do without"},
    {"problems", 0, OPTIONS_REQUIRED, GRADE_OPT_PROBLEMS, "FILE",
     "many: problems with tests, one a line; --format says how they are written"},
    {"format", 0, OPTIONS_REQUIRED, GRADE_OPT_FORMAT, "NAME",
     "of the problems: humaneval or mbpp; without problems the same as --report"},
    {"samples", 0, OPTIONS_REQUIRED, GRADE_OPT_SAMPLES, "FILE",
     "lines of {task_id, completion}; without it the problems' own solutions are graded"},
    {"jsonl", 0, OPTIONS_REQUIRED, GRADE_OPT_JSONL, "FILE",
     "many: tasks, one a line: {id, language, code or files, tests or cases, limits}"},
    {"out", 0, OPTIONS_REQUIRED, GRADE_OPT_OUT, "FILE",
     "one line per sample or task, in the order of the input"},
    {"resume", 0, OPTIONS_NONE, GRADE_OPT_RESUME, NULL, "go on where FILE of --out ends"},
    {"pass-at", 'k', OPTIONS_REQUIRED, GRADE_OPT_PASS_AT, "K[,K...]",
     "pass@k to print (1,10,100 where there are so many samples)"},
    {"cases", 0, OPTIONS_REQUIRED, GRADE_OPT_CASES, "PATH",
     "folder with NAME.in and NAME.out, or a JSON or JSONL file of cases"},
    {"stdin", 0, OPTIONS_REQUIRED, GRADE_OPT_STDIN, "FILE",
     "input of one case; repeatable, each with its --expect"},
    {"expect", 0, OPTIONS_REQUIRED, GRADE_OPT_EXPECT, "FILE", "output that case must give"},
    {"compare", 0, OPTIONS_REQUIRED, GRADE_OPT_COMPARE, "HOW",
     "exact, trimmed (the default), token, float[:TOLERANCE], unordered, or a checker program"},
    {"interactor", 0, OPTIONS_REQUIRED, GRADE_OPT_INTERACTOR, "FILE",
     "program the submission talks to; it decides"},
    {"stop-on-fail", 0, OPTIONS_NONE, GRADE_OPT_STOP, NULL,
     "run no case after the first that is not accepted"},
    {"jobs", 'j', OPTIONS_REQUIRED, GRADE_OPT_JOBS, "N",
     "so many cases or samples at once (1; with many tasks: one per core, suites three for two)"},
    {"language", 0, OPTIONS_REQUIRED, GRADE_OPT_LANGUAGE, "NAME",
     "language of the submission, where its suffix does not say it"},
    {"report", 0, OPTIONS_REQUIRED, GRADE_OPT_REPORT, "FORMAT[=FILE]",
     "table, json, junit, tap or html, on standard output or to FILE; repeatable"},
    {"json", 0, OPTIONS_NONE, GRADE_OPT_JSON, NULL, "the same as --report json"},
    {"junit", 0, OPTIONS_REQUIRED, GRADE_OPT_JUNIT, "FILE", "the same as --report junit=FILE"},
    CLI_HELP_ROW,
};

/* ---- reports ---- */

static int add_junit(struct grade_cli *c, const char *path, struct cordon_err *err)
{
    if (c->n_targets == GRADE_REPORTS_MAX || !*path)
        return err_set(err, CORDON_ERR_USAGE, "options", 0, "--junit: %s",
                       *path ? "too many reports" : "no file");
    c->targets[c->n_targets++] =
        (struct grade_target){.format = REPORT_JUNIT, .path = path, .place = PLACE_NONE};
    return 0;
}

static int add_target(struct grade_cli *c, const char *text, struct cordon_err *err)
{
    const char *equals = strchr(text, '=');
    char name[16];
    struct grade_target t = {.path = equals ? equals + 1 : NULL, .place = PLACE_NONE};
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(text, "="), text);
    if (!report_by_name(name, &t.format)) {
        err_set(err, CORDON_ERR_USAGE, "options", 0, "--report %.60s: there is no such format",
                text);
        return err_hint(err, "table, json, junit, tap or html, and =FILE where it is to go to one");
    }
    for (size_t i = 0; i < c->n_targets; i++)
        if (!t.path && !c->targets[i].path)
            return err_set(err, CORDON_ERR_USAGE, "options", 0,
                           "two reports cannot both go to standard output");
    if (c->n_targets == GRADE_REPORTS_MAX || (t.path && !*t.path))
        return err_set(err, CORDON_ERR_USAGE, "options", 0, "--report %.60s: %s", text,
                       t.path && !*t.path ? "no file" : "too many reports");
    c->targets[c->n_targets++] = t;
    return 0;
}

/* Where a report goes is opened before anything runs; people read a table in any case. */
static int open_targets(struct grade_cli *c, grade_way *way, struct cordon_err *err)
{
    bool has_stdout = false, has_format = way != grade_cli_bulk;
    for (size_t i = 0; i < c->options.n_own; i++) {
        const struct options_hit *hit = &c->options.own[i];
        if ((hit->id == GRADE_OPT_JSON && add_target(c, "json", err) < 0) ||
            (hit->id == GRADE_OPT_REPORT && add_target(c, hit->value, err) < 0) ||
            (hit->id == GRADE_OPT_FORMAT && has_format && add_target(c, hit->value, err) < 0) ||
            (hit->id == GRADE_OPT_JUNIT && add_junit(c, hit->value, err) < 0))
            return -1;
    }
    for (size_t i = 0; i < c->n_targets; i++) {
        const char *path = c->targets[i].path;
        has_stdout = has_stdout || !path;
        if (!path)
            continue;
        if (place_open(&c->targets[i].place, path) < 0) {
            int e = errno;
            const char *why = place_why(&e);
            return err_set(err, CORDON_ERR_USAGE, "options", e, "--report %.300s%s", path, why);
        }
    }
    return has_stdout ? 0 : add_target(c, "table", err);
}

static int write_target(struct grade_target *t, const struct grade_outcome *o,
                        struct cordon_err *err)
{
    _cleanup_buf_ struct buf text = BUF_INIT(REPORT_MAX);
    bool color = !t->path && isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
    report_write(t->format, o, color, &text);
    if (text.failed)
        return err_nomem(err, "report");
    int r = t->path ? place_write(&t->place, text.data, text.len)
                    : cli_write(STDOUT_FILENO, text.data, text.len);
    int e = errno;
    place_close(&t->place);
    return r < 0 ? err_set(err, CORDON_ERR_INTERNAL, "report", e, "%.300s",
                           t->path ? t->path : "standard output")
                 : 0;
}

/* ---- life ---- */

void grade_cli_progress(struct grade_cli *c, size_t done, size_t total, const char *name)
{
    _cleanup_buf_ struct buf line = BUF_INIT(1024);
    if (!c->shows_progress)
        return;
    buf_str(&line, "\r\033[K");
    if (name) {
        buf_printf(&line, total ? "[%zu/%zu] " : "[%zu] ", done, total);
        report_plain(name, strlen(name), 50, &line);
    }
    (void)cli_write(STDERR_FILENO, line.data, line.len);
}

static void on_signal(struct loop_watch *w, uint32_t events)
{
    (void)events;
    struct grade_cli *c = w->data;
    struct signalfd_siginfo info;
    if (read(c->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info) && c->on_cancel)
        c->on_cancel(c);
}

static int start(struct grade_cli *c, struct cordon_err *err)
{
    sigset_t set;
    struct rlimit files;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGQUIT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    if (loop_init(&c->loop) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "start", errno, "event loop");
    c->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    c->signals = (struct loop_watch){.fd = c->signal_fd, .fn = on_signal, .data = c};
    if (c->signal_fd < 0 || loop_set(&c->loop, &c->signals, EPOLLIN) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "start", errno, "signals");
    /* every guest takes about a dozen descriptors of ours; guests have a limit of their own */
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    if (host_probe_quick(&c->host, err) < 0)
        return -1;
    host_scope_join(&c->host.cgroups);
    return 0;
}

static int parse_jobs(struct grade_cli *c, struct cordon_err *err)
{
    const char *text = options_get(&c->options, GRADE_OPT_JOBS);
    uint64_t n = 0;
    if (!text)
        return 0;
    if (units_count(text, &n) || n < 1 || n > 256)
        return err_set(err, CORDON_ERR_USAGE, "options", 0, "-j %.60s: not a number from 1 to 256",
                       text);
    c->jobs = (unsigned)n;
    return 0;
}

/* Which option belongs to which way of grading. What is in none goes with all. */
static const struct {
    int option;
    grade_way *way;
    bool chooses; /* and is given once */
} grade_ways[] = {
    {GRADE_OPT_PROBLEMS, grade_cli_bulk, true},    {GRADE_OPT_JSONL, grade_cli_bulk, true},
    {GRADE_OPT_TESTS, grade_cli_tests, true},      {GRADE_OPT_CASES, grade_cli_judge, true},
    {GRADE_OPT_STDIN, grade_cli_judge, false},     {GRADE_OPT_EXPECT, grade_cli_judge, false},
    {GRADE_OPT_SAMPLES, grade_cli_bulk, false},    {GRADE_OPT_OUT, grade_cli_bulk, false},
    {GRADE_OPT_RESUME, grade_cli_bulk, false},     {GRADE_OPT_PASS_AT, grade_cli_bulk, false},
    {GRADE_OPT_ENTRY, grade_cli_tests, false},     {GRADE_OPT_DOCTEST, grade_cli_tests, false},
    {GRADE_OPT_COPY_BACK, grade_cli_tests, false}, {GRADE_OPT_IN_PROCESS, grade_cli_tests, false},
    {GRADE_OPT_COMPARE, grade_cli_judge, false},   {GRADE_OPT_INTERACTOR, grade_cli_judge, false},
    {GRADE_OPT_STOP, grade_cli_judge, false},
};

static const char *grade_option_name(int option)
{
    for (size_t i = 0; i < ARRAY_SIZE(grade_options); i++)
        if (grade_options[i].id == option)
            return grade_options[i].name;
    return "";
}

/* The option that says what is graded against; of several the first in the table. */
static int chosen_by(const struct grade_cli *c, grade_way **ret)
{
    for (size_t i = 0; i < ARRAY_SIZE(grade_ways); i++)
        if ((grade_ways[i].chooses || grade_ways[i].way == grade_cli_judge) &&
            options_has(&c->options, grade_ways[i].option)) {
            *ret = grade_ways[i].way;
            return grade_ways[i].option;
        }
    return -1;
}

/* On the command line: a variable is for those runs that have a use for it. */
static size_t times_given(const struct grade_cli *c, int option)
{
    size_t n = 0;
    for (size_t i = 0; i < c->options.n_own; i++)
        n += c->options.own[i].id == option && !c->options.own[i].from_environ;
    return n;
}

/* Many submissions have a line each, and no report of them all. */
static int check_reports(const struct grade_cli *c, int by, struct cordon_err *err)
{
    static const int reports[] = {GRADE_OPT_JSON, GRADE_OPT_REPORT, GRADE_OPT_JUNIT};
    for (size_t i = 0; i < ARRAY_SIZE(reports); i++) {
        if (times_given(c, reports[i]) == 0)
            continue;
        err_set(err, CORDON_ERR_USAGE, "options", 0, "--%s does not go with --%s",
                grade_option_name(reports[i]), grade_option_name(by));
        return err_hint(err, "--out FILE has a line of JSON for each submission");
    }
    return 0;
}

static int choose(const struct grade_cli *c, grade_way **ret, struct cordon_err *err)
{
    int by = chosen_by(c, ret);
    if (by < 0 || (*ret == grade_cli_judge && !options_has(&c->options, GRADE_OPT_CASES) &&
                   !options_has(&c->options, GRADE_OPT_STDIN) &&
                   !options_has(&c->options, GRADE_OPT_EXPECT))) {
        err_set(err, CORDON_ERR_USAGE, "options", 0, "nothing to grade against");
        return err_hint(
            err, "--tests FILE, --cases PATH, --problems FILE, or --stdin FILE --expect FILE");
    }
    for (size_t i = 0; i < ARRAY_SIZE(grade_ways); i++) {
        int option = grade_ways[i].option;
        size_t given = times_given(c, option);
        if (given > 0 && (grade_ways[i].way != *ret || (grade_ways[i].chooses && option != by)))
            return err_set(err, CORDON_ERR_USAGE, "options", 0, "--%s does not go with --%s",
                           grade_option_name(option), grade_option_name(by));
        if (given > 1 && grade_ways[i].chooses)
            return err_set(err, CORDON_ERR_USAGE, "options", 0, "--%s is given more than once",
                           grade_option_name(option));
    }
    return *ret == grade_cli_bulk ? check_reports(c, by, err) : 0;
}

static int grade_status(const struct grade_outcome *o)
{
    if (o->verdict && str_eq(o->verdict, "SE"))
        return CORDON_ERR_INTERNAL;
    return o->n_tests > 0 && o->passed == o->n_tests && !o->error ? 0 : EXIT_NOT_ALL;
}

static int grade(struct grade_cli *c, int *ret_status, struct cordon_err *err)
{
    struct grade_outcome outcome = {0};
    grade_way *way = NULL;
    if (choose(c, &way, err) < 0 || parse_jobs(c, err) < 0 || open_targets(c, way, err) < 0)
        return -1;
    struct policy_input input = options_input(&c->options, environ);
    if (policy_resolve(&input, &c->policy, err) < 0)
        return -1;
    c->shows_progress = isatty(STDERR_FILENO) && policy_num(c->policy, FIELD_LOG) != LOG_QUIET;
    if (start(c, err) < 0)
        return -1;
    int r = way(c, &outcome, err);
    grade_cli_progress(c, 0, 0, NULL);
    for (size_t i = 0; r == 0 && i < c->n_targets; i++)
        r = write_target(&c->targets[i], &outcome, err);
    *ret_status = grade_status(&outcome);
    grade_outcome_done(&outcome);
    return r;
}

static int grade_run(int argc, char **argv)
{
    struct grade_cli c = {.signal_fd = -1, .loop.epoll_fd = -1};
    struct cordon_err err = {0};
    bool help = false;
    int status = 0;

    /* expected outputs pass through our memory */
    prctl(PR_SET_DUMPABLE, 0);
    if (cli_parse(&cli_verb_grade, argc, argv, &c.options, &help, &err) < 0)
        return cli_fail(&err);
    if (help) {
        status = cli_help_verb(&cli_verb_grade);
    } else if (grade(&c, &status, &err) < 0) {
        policy_err_clean(&err);
        status = cli_fail(&err);
    }
    policy_free(c.policy);
    options_done(&c.options);
    util_close(&c.signal_fd);
    loop_done(&c.loop);
    return status;
}

const struct cli_verb cli_verb_grade = {
    .name = "grade",
    .usage = "[options] FILE | - | -- CMD [ARG...]",
    .summary = "run a submission against tests or cases and say what it gives",
    .own = grade_options,
    .n_own = ARRAY_SIZE(grade_options),
    .with_policy = true,
    .details =
        "A case ends as AC accepted, WA wrong answer, PE presentation error (right words, wrong\n"
        "blanks), TLE, MLE, OLE time, memory or output limit, RE runtime error, CE does not\n"
        "compile, or SE: a failure of the judge, never a score. The limits are those of a run and\n"
        "hold for each case.\n\n"
        "exit status: 0 everything passed, 1 it did not; 64 usage, 78 a case file or the\n"
        "configuration is wrong, 69 this host cannot build the wall, 70 a failure of ours or of\n"
        "the tests themselves, which do not parse or compile or are none (SE), 130 cancelled.\n",
    .run = grade_run,
};
