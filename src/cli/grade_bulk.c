/* `cordon grade --problems` and `--jsonl`: many submissions, one result line each. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/jsonr.h"
#include "base/util.h"
#include "cli/cli.h"
#include "cli/grade.h"
#include "grade/bulk.h"
#include "grade/reach.h"
#include "policy/units.h"

#define PASS_AT_MAX 16

extern char **environ;

struct bulk_cli {
    struct grade_cli *cli;
    struct bulk bulk;
    const char *out_path;
    int out_fd;
    FILE *done; /* results of an earlier run, read along with the input */
    char *line;
    size_t line_cap;
    uint64_t pass_at[PASS_AT_MAX];
    size_t n_pass_at;
    bool pass_at_given;
};

static int bulk_cli_line(void *data, const char *line, size_t len)
{
    struct bulk_cli *t = data;
    return t->out_fd < 0 ? 0 : cli_write(t->out_fd, line, len);
}

static void bulk_cli_progress(void *data, size_t done, const char *id)
{
    struct bulk_cli *t = data;
    size_t total = t->bulk.items_file ? 0 : t->bulk.n_problems;
    grade_cli_progress(t->cli, done, total, id);
}

static void bulk_cli_cancel(struct grade_cli *c)
{
    bulk_cancel(&((struct bulk_cli *)c->data)->bulk);
}

/* ---- results of an earlier run ---- */

static int parse_line(struct bulk_cli *t, size_t len, struct arena *arena,
                      const struct jsonr_node **ret)
{
    struct jsonr_source source = {.name = t->out_path,
                                  .text = t->line,
                                  .len = len,
                                  .max_bytes = BULK_LINE_MAX,
                                  .code = CORDON_ERR_USAGE,
                                  .stage = "grade"};
    struct cordon_err why;
    return jsonr_parse(&source, arena, ret, &why);
}

static bool same_id(const struct jsonr_node *id, const struct bulk_item *item)
{
    uint64_t number;
    if (!item->id || !id || id->type == JSONR_NULL)
        return !item->id && (!id || id->type == JSONR_NULL);
    if (jsonr_uint64(id, &number))
        return item->id_is_number && strtoull(item->id, NULL, 10) == number;
    return jsonr_cstr(id) && str_eq(jsonr_cstr(id), item->id);
}

static int bulk_cli_skip(void *data, const struct bulk_item *item, struct cordon_err *err)
{
    struct bulk_cli *t = data;
    struct arena arena = {0};
    const struct jsonr_node *root = NULL;
    ssize_t n = getline(&t->line, &t->line_cap, t->done);
    int r = n > 0 ? parse_line(t, (size_t)n, &arena, &root) : -1;
    const struct jsonr_node *passed = jsonr_get(root, "passed");
    const char *verdict = jsonr_cstr(jsonr_get(root, "verdict"));
    if (r < 0 || !passed || !verdict || !same_id(jsonr_get(root, "task_id"), item)) {
        err_set(err, CORDON_ERR_USAGE, "grade", 0,
                "--resume: line %zu of %.200s is not of sample %zu of this input", item->index + 1,
                t->out_path, item->index + 1);
        err_hint(err, "without --resume the file is written anew");
        r = -1;
    } else {
        bulk_count_line(&t->bulk, item->problem, verdict,
                        passed->type == JSONR_BOOL && passed->u.boolean);
    }
    arena_done(&arena);
    return r;
}

/* Whole lines count; what a killed run left of the last one goes. */
static int open_resumed(struct bulk_cli *t, struct cordon_err *err)
{
    off_t end = 0;
    ssize_t n;
    t->done = fopen(t->out_path, "re");
    if (!t->done)
        return errno == ENOENT
                   ? 0
                   : err_set(err, CORDON_ERR_USAGE, "grade", errno, "--out %.200s", t->out_path);
    while ((n = getline(&t->line, &t->line_cap, t->done)) > 0 && t->line[n - 1] == '\n') {
        struct arena arena = {0};
        const struct jsonr_node *root;
        int r = parse_line(t, (size_t)n, &arena, &root);
        arena_done(&arena);
        if (r < 0)
            break;
        end += n;
        t->bulk.skip++;
    }
    rewind(t->done);
    if (ftruncate(t->out_fd, end) < 0 || lseek(t->out_fd, end, SEEK_SET) < 0)
        return err_set(err, CORDON_ERR_USAGE, "grade", errno, "--out %.200s", t->out_path);
    return 0;
}

static int open_out(struct bulk_cli *t, const struct options *o, struct cordon_err *err)
{
    bool resume = options_has(o, GRADE_OPT_RESUME);
    t->out_path = options_get(o, GRADE_OPT_OUT);
    if (!t->out_path)
        return resume ? err_set(err, CORDON_ERR_USAGE, "options", 0, "--resume needs --out FILE")
                      : 0;
    t->out_fd =
        open(t->out_path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | (resume ? 0 : O_TRUNC), 0644);
    if (t->out_fd < 0)
        return err_set(err, CORDON_ERR_USAGE, "options", errno, "--out %.200s", t->out_path);
    return resume ? open_resumed(t, err) : 0;
}

/* ---- options ---- */

static int parse_pass_at(struct bulk_cli *t, const char *text, struct cordon_err *err)
{
    t->pass_at_given = text != NULL;
    for (const char *p = text ? text : "1,10,100"; *p;) {
        char word[24];
        size_t n = strcspn(p, ",");
        snprintf(word, sizeof(word), "%.*s", (int)MIN(n, sizeof(word) - 1), p);
        if (t->n_pass_at == PASS_AT_MAX || units_count(word, &t->pass_at[t->n_pass_at]) ||
            t->pass_at[t->n_pass_at] == 0)
            return err_set(err, CORDON_ERR_USAGE, "options", 0,
                           "--pass-at %.60s: not numbers from 1 with commas between them", text);
        t->n_pass_at++;
        p += n + (p[n] == ',');
    }
    return 0;
}

static int parse_format(struct bulk_cli *t, const struct options *o, struct cordon_err *err)
{
    const char *format = options_get(o, GRADE_OPT_FORMAT);
    if (options_has(o, GRADE_OPT_JSONL)) {
        t->bulk.format = BULK_TASKS;
        if (format || options_has(o, GRADE_OPT_PROBLEMS) || options_has(o, GRADE_OPT_SAMPLES))
            return err_set(err, CORDON_ERR_USAGE, "options", 0,
                           "--jsonl stands without --problems, --format and --samples");
        return 0;
    }
    if (format && str_eq(format, "humaneval"))
        t->bulk.format = BULK_HUMANEVAL;
    else if (format && str_eq(format, "mbpp"))
        t->bulk.format = BULK_MBPP;
    else
        return err_set(err, CORDON_ERR_USAGE, "options", 0,
                       "--problems needs --format humaneval or --format mbpp");
    return 0;
}

static int open_items(struct bulk_cli *t, const struct options *o, struct cordon_err *err)
{
    struct bulk *b = &t->bulk;
    b->items_name = b->format == BULK_TASKS ? options_get(o, GRADE_OPT_JSONL)
                                            : options_get(o, GRADE_OPT_SAMPLES);
    if (b->format != BULK_TASKS &&
        bulk_read_problems(b, options_get(o, GRADE_OPT_PROBLEMS), err) < 0)
        return -1;
    if (!b->items_name)
        return 0;
    b->items_file = str_eq(b->items_name, "-") ? stdin : fopen(b->items_name, "re");
    if (!b->items_file)
        return err_set(err, CORDON_ERR_USAGE, "options", errno, "%.200s", b->items_name);
    return 0;
}

/* Other samples hold right answers, too, and a result is nobody's to write but ours. */
static int bulk_cli_reach(const struct grade_cli *c, struct cordon_err *err)
{
    static const struct {
        int option;
        const char *what;
    } files[] = {{GRADE_OPT_PROBLEMS, "file of problems"},
                 {GRADE_OPT_SAMPLES, "file of samples"},
                 {GRADE_OPT_JSONL, "file of tasks"},
                 {GRADE_OPT_OUT, "file of results"}};
    struct reach reach = {0};
    int r = reach_init(&reach, c->policy, err);
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(files); i++)
        r = reach_check(&reach, options_get(&c->options, files[i].option), files[i].what, err);
    reach_done(&reach);
    return r;
}

static unsigned cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) < 0 ? 1 : (unsigned)CPU_COUNT(&set);
}

static int bulk_cli_prepare(struct bulk_cli *t, struct grade_cli *c, struct cordon_err *err)
{
    const struct options *o = &c->options;
    if (o->argc > 0)
        return err_set(err, CORDON_ERR_USAGE, "options", 0,
                       "%.100s: the submissions come from a file", o->argv[0]);
    if (parse_pass_at(t, options_get(o, GRADE_OPT_PASS_AT), err) < 0 ||
        parse_format(t, o, err) < 0 || bulk_cli_reach(c, err) < 0 || open_items(t, o, err) < 0 ||
        open_out(t, o, err) < 0)
        return -1;
    struct bulk *b = &t->bulk;
    b->loop = &c->loop;
    b->host = &c->host;
    b->policy = c->policy;
    b->input = options_input(o, environ);
    b->vars = environ;
    b->jobs = c->jobs ? c->jobs : cores();
    /* the sides of a suite take turns: with one suite per core some of them would wait */
    b->n_desks = c->jobs ? c->jobs : b->jobs + (b->jobs + 1) / 2;
    b->on_line = bulk_cli_line;
    b->on_skip = bulk_cli_skip;
    b->on_progress = bulk_cli_progress;
    b->data = t;
    return 0;
}

static int bulk_cli_say(const struct bulk_cli *t)
{
    const struct bulk_counts *n = &t->bulk.counts;
    _cleanup_buf_ struct buf text = BUF_INIT(4096);
    for (size_t i = 0; i < t->n_pass_at; i++) {
        double score = bulk_pass_at(&t->bulk, t->pass_at[i]);
        if (score >= 0)
            buf_printf(&text, "pass@%llu: %.4f\n", (unsigned long long)t->pass_at[i], score);
        else if (t->pass_at_given)
            buf_printf(&text, "pass@%llu: not enough samples\n", (unsigned long long)t->pass_at[i]);
    }
    buf_printf(&text, "%zu passed, %zu failed, %zu errors of %zu\n", n->passed, n->failed,
               n->errors, n->total);
    return cli_print(&text);
}

int grade_cli_bulk(struct grade_cli *c, struct grade_outcome *ret_outcome, struct cordon_err *err)
{
    struct bulk_cli t = {.cli = c, .out_fd = -1};
    int r = bulk_cli_prepare(&t, c, err);
    if (r == 0) {
        c->data = &t;
        c->on_cancel = bulk_cli_cancel;
        r = bulk_run(&t.bulk, err);
        c->on_cancel = NULL;
        c->data = NULL;
        grade_cli_progress(c, 0, 0, NULL);
    }
    if (r == 0) {
        ret_outcome->kind = "tests";
        ret_outcome->passed = t.bulk.counts.passed;
        ret_outcome->n_tests = t.bulk.counts.total;
        c->n_targets = 0;
        if (bulk_cli_say(&t) != 0)
            r = err_set(err, CORDON_ERR_INTERNAL, "report", errno, "standard output");
    }
    if (t.bulk.items_file && t.bulk.items_file != stdin)
        fclose(t.bulk.items_file);
    if (t.done)
        fclose(t.done);
    free(t.line);
    util_close(&t.out_fd);
    bulk_done(&t.bulk);
    return r;
}
