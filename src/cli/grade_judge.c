/* `cordon grade` with cases: judge mode. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/util.h"
#include "cli/grade.h"
#include "grade/judge.h"
#include "lang/load.h"
#include "lang/source.h"

extern char **environ;

static void judge_on_cancel(struct grade_cli *c)
{
    judge_cancel(c->data);
}

static void judge_on_case(void *data, size_t done, size_t total, const struct grade_test *row)
{
    grade_cli_progress(data, done, total, row->name);
}

static int pairs_wrong(struct cordon_err *err)
{
    err_set(err, CORDON_ERR_USAGE, "options", 0, "each --stdin needs its --expect");
    return err_hint(err, "--stdin 1.in --expect 1.out --stdin 2.in --expect 2.out");
}

/* --stdin IN --expect OUT, as often as wanted; one --expect alone is a case without input. */
static int cases_from_flags(const struct options *o, bool needs_expected, struct cases *ret,
                            struct cordon_err *err)
{
    const char *in = NULL;
    size_t n_in = 0, n_out = 0;
    for (size_t i = 0; i < o->n_own; i++) {
        n_in += o->own[i].id == GRADE_OPT_STDIN;
        n_out += o->own[i].id == GRADE_OPT_EXPECT;
    }
    if (needs_expected ? n_in > 0 && n_in != n_out : n_out > n_in)
        return pairs_wrong(err);
    const char *outs[256];
    size_t n = 0, k = 0;
    for (size_t i = 0; i < o->n_own && n < ARRAY_SIZE(outs); i++)
        if (o->own[i].id == GRADE_OPT_EXPECT)
            outs[n++] = o->own[i].value;
    if (n_in == 0)
        return n == 1 ? cases_add_files(ret, "1", NULL, outs[0], err) : pairs_wrong(err);
    for (size_t i = 0; i < o->n_own; i++) {
        char name[32];
        if (o->own[i].id != GRADE_OPT_STDIN)
            continue;
        in = o->own[i].value;
        snprintf(name, sizeof(name), "%zu", k + 1);
        if (cases_add_files(ret, name, in, k < n ? outs[k] : NULL, err) < 0)
            return -1;
        k++;
    }
    return 0;
}

static int judge_submission(const struct grade_cli *c, struct judge *j, char **ret_text,
                            struct cordon_err *err)
{
    const struct options *o = &c->options;
    j->language = options_get(o, GRADE_OPT_LANGUAGE);
    if (o->argc == 0) {
        err_set(err, CORDON_ERR_USAGE, "options", 0, "no submission was given");
        return err_hint(err, "cordon grade --cases DIR FILE");
    }
    if (o->has_dashes) {
        j->command = o->argv;
        return j->language ? err_set(err, CORDON_ERR_USAGE, "options", 0,
                                     "--language is for source text; after -- stands a command")
                           : 0;
    }
    if (o->argc > 1) {
        err_set(err, CORDON_ERR_USAGE, "options", 0, "%.200s: one submission at a time",
                o->argv[1]);
        return err_hint(err, "options stand before the file; a command with arguments after --");
    }
    if (!str_eq(o->argv[0], "-")) {
        j->path = o->argv[0];
        return 0;
    }
    if (!j->language)
        return err_set(err, CORDON_ERR_USAGE, "options", 0,
                       "source text from standard input needs --language");
    if (lang_load_file("-", LANG_SOURCE_MAX, ret_text, &j->text_len, err) < 0)
        return -1;
    j->text = *ret_text;
    return 0;
}

static int judge_cases(const struct grade_cli *c, struct judge *j, struct cases *cases,
                       struct cordon_err *err)
{
    const struct options *o = &c->options;
    const char *path = options_get(o, GRADE_OPT_CASES);
    const char *how = options_get(o, GRADE_OPT_COMPARE);
    bool pairs = options_has(o, GRADE_OPT_STDIN) || options_has(o, GRADE_OPT_EXPECT);
    if (path && pairs)
        return err_set(err, CORDON_ERR_USAGE, "options", 0,
                       "--cases and --stdin or --expect exclude each other");
    if (path && cases_from_path(cases, path, err) < 0)
        return -1;
    struct stat st;
    if (path && stat(path, &st) == 0 && !S_ISDIR(st.st_mode))
        j->cases_file = path;
    j->interactor = options_get(o, GRADE_OPT_INTERACTOR);
    if (!j->interactor)
        j->interactor = cases->interactor;
    if (!how)
        how = cases->compare;
    if (compare_parse(how ? how : "trimmed", &j->compare, err) < 0)
        return -1;
    if (j->interactor && options_has(o, GRADE_OPT_COMPARE))
        return err_set(err, CORDON_ERR_USAGE, "options", 0,
                       "--compare and --interactor exclude each other: the interactor decides");
    bool needs = !j->interactor && j->compare.kind != COMPARE_CHECKER;
    if (pairs && cases_from_flags(o, needs, cases, err) < 0)
        return -1;
    return cases_check(cases, needs, err);
}

int grade_cli_judge(struct grade_cli *c, struct grade_outcome *ret, struct cordon_err *err)
{
    struct cases cases = {0};
    _cleanup_free_ char *text = NULL;
    struct judge judge = {.loop = &c->loop,
                          .host = c->host,
                          .policy = c->policy,
                          .vars = environ,
                          .cases = &cases,
                          .jobs = c->jobs,
                          .stop_on_fail = options_has(&c->options, GRADE_OPT_STOP),
                          .on_case = judge_on_case,
                          .data = c};
    int r = judge_submission(c, &judge, &text, err);
    if (r == 0)
        r = judge_cases(c, &judge, &cases, err);
    if (r == 0) {
        c->data = &judge;
        c->on_cancel = judge_on_cancel;
        r = judge_run(&judge, ret, err);
        c->on_cancel = NULL;
        c->data = NULL;
    }
    cases_done(&cases);
    return r;
}
