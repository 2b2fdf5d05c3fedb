/* `cordon grade --tests`: Python tests against one submission. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/jsonw.h"
#include "base/util.h"
#include "cli/cli.h"
#include "cli/grade.h"
#include "grade/reach.h"
#include "grade/tests.h"
#include "lang/load.h"
#include "lang/registry.h"

extern char **environ;

struct tests_cli {
    struct grade_cli *cli;
    struct tests_desk desk;
    struct tests_run run;
    struct tests_task task;
    char *tests, *source, *module;
    const char **entry;
    bool done;
};

static void tests_cli_on_done(struct tests_run *r)
{
    ((struct tests_cli *)r->data)->done = true;
}

static void tests_cli_on_begin(struct tests_run *r)
{
    const struct grade_outcome *o = r->outcome;
    grade_cli_progress(((struct tests_cli *)r->data)->cli, r->n_results + 1, o->n_tests,
                       o->tests[r->running].name);
}

static void tests_cli_cancel(struct grade_cli *c)
{
    tests_cancel(&((struct tests_cli *)c->data)->run);
}

static void tests_cli_done(struct tests_cli *t)
{
    tests_done(&t->run);
    tests_desk_done(&t->desk);
    free(t->tests);
    free(t->source);
    free(t->module);
    free(t->entry);
}

/* "dir/solution.py" may be imported as `solution`. */
static char *module_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *name = strdup(slash ? slash + 1 : path);
    size_t len = name ? strlen(name) : 0;
    if (len > 3 && str_eq(name + len - 3, ".py"))
        name[len - 3] = '\0';
    return name;
}

static int tests_cli_reach(const struct grade_cli *c, const char *file, struct cordon_err *err)
{
    struct reach reach = {0};
    int r = reach_init(&reach, c->policy, err);
    if (r == 0)
        r = reach_check(&reach, file, "file of tests", err);
    reach_done(&reach);
    return r;
}

static int other_language(const char *what, const char *language, struct cordon_err *err)
{
    err_set(err, CORDON_ERR_USAGE, "options", 0,
            "%.200s: --tests grades submissions in Python, not in %s", what, language);
    policy_err_clean(err);
    return err_hint(err, "--cases PATH grades programs in any language by what they print");
}

/* What the caller says is believed; of a name only a suffix that is another language's. */
static int tests_cli_language(const struct grade_cli *c, struct cordon_err *err)
{
    const char *said = NULL, *file = c->options.argv[0];
    struct cordon_err unknown = {0};
    struct lang_registry registry;
    const struct lang *lang = NULL;
    for (size_t i = 0; i < c->options.n_own; i++) {
        const struct options_hit *hit = &c->options.own[i];
        if (hit->id == GRADE_OPT_LANGUAGE && !hit->from_environ) /* which is for other runs */
            said = hit->value;
    }
    if (lang_registry_make(c->policy, &registry, err) < 0)
        return -1;
    int r = said ? lang_registry_by_name(&registry, said, &lang, err) : 0;
    if (!said)
        (void)lang_registry_by_file(&registry, file, "", 0, &lang, &unknown);
    if (r == 0 && lang && !str_eq(lang->name, "python"))
        r = other_language(said ? "--language" : file, lang->name, err);
    lang_registry_done(&registry);
    return r;
}

static int tests_cli_load(struct tests_cli *t, struct grade_cli *c, struct cordon_err *err)
{
    const struct options *o = &c->options;
    const char *file = options_get(o, GRADE_OPT_TESTS);
    struct tests_task *k = &t->task;
    if (o->argc != 1 || o->has_dashes) {
        bool is_option = o->argc > 1 && !o->has_dashes && o->argv[1][0] == '-';
        err_set(err, CORDON_ERR_USAGE, "options", 0, "--tests wants one submission");
        return err_hint(err,
                        is_option
                            ? "options stand before it: cordon grade --tests TEST.py %s USER.py"
                            : "cordon grade --tests TEST.py USER.py",
                        is_option ? o->argv[1] : "");
    }
    if (tests_cli_language(c, err) < 0 || tests_cli_reach(c, file, err) < 0 ||
        lang_load_file(file, TESTS_TEXT_MAX, &t->tests, &k->tests_len, err) < 0 ||
        lang_load_file(o->argv[0], TESTS_TEXT_MAX, &t->source, &k->source_len, err) < 0)
        return -1;
    if (!jsonw_is_utf8(t->tests, k->tests_len))
        return err_set(err, CORDON_ERR_USAGE, "options", 0, "--tests %.200s: not UTF-8 text", file);
    t->entry = calloc(o->n_own + 1, sizeof(*t->entry));
    t->module = module_name(o->argv[0]);
    if (!t->entry || !t->module)
        return err_nomem(err, "options");
    for (size_t i = 0; i < o->n_own; i++)
        if (o->own[i].id == GRADE_OPT_ENTRY)
            t->entry[k->n_entry++] = o->own[i].value;
    k->name = file;
    k->tests = t->tests;
    k->source = t->source;
    k->module = t->module;
    k->entry = t->entry;
    k->doctest = options_has(o, GRADE_OPT_DOCTEST);
    k->copy_back = options_has(o, GRADE_OPT_COPY_BACK);
    k->in_process = options_has(o, GRADE_OPT_IN_PROCESS);
    k->time_ns = policy_num(c->policy, FIELD_TIME_LIMIT);
    k->time_written = policy_written(c->policy, FIELD_TIME_LIMIT);
    return 0;
}

int grade_cli_tests(struct grade_cli *c, struct grade_outcome *ret_outcome, struct cordon_err *err)
{
    struct tests_cli t = {
        .cli = c,
        .run = {.on_done = tests_cli_on_done, .on_begin = tests_cli_on_begin},
        .desk.place = {.loop = &c->loop, .host = &c->host, .policy = c->policy, .vars = environ}};
    t.run.data = &t;
    if (tests_cli_load(&t, c, err) < 0 ||
        tests_start(&t.run, &t.desk, &t.task, ret_outcome, err) < 0) {
        tests_cli_done(&t);
        return -1;
    }
    ret_outcome->submission = arena_strdup(&ret_outcome->arena, c->options.argv[0]);
    c->data = &t;
    c->on_cancel = tests_cli_cancel;
    int r = 0;
    while (!t.done && r == 0)
        if (loop_once(&c->loop, -1) < 0)
            r = err_set(err, CORDON_ERR_INTERNAL, "supervise", errno, "event loop");
    c->on_cancel = NULL;
    c->data = NULL;
    grade_cli_progress(c, 0, 0, NULL);
    if (r == 0 && t.run.err.code) {
        *err = t.run.err;
        r = -1;
    }
    if (r == 0 && str_eq(tests_verdict(&t.run), "SE"))
        ret_outcome->verdict = "SE"; /* nobody's answer, as in bulk */
    tests_cli_done(&t);
    return r;
}
