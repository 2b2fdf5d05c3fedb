/* Verdicts and scores. Pure. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/util.h"
#include "grade/judge_internal.h"

const char *const judge_words[] = {"AC", "WA", "PE", "TLE", "MLE", "RE", "OLE", "CE", "SE"};

/* The command is not in the guest: no submission ran. (One that ends with this status has no error
 * of ours with it.) */
static bool judge_is_missing(const struct result *r)
{
    return r->exit_code == RESULT_NOT_FOUND && r->error[0];
}

enum judge_word judge_word_of(const struct result *r)
{
    switch (r->verdict) {
    case VERDICT_OK: return JUDGE_AC;
    case VERDICT_TIME_LIMIT:
    case VERDICT_CPU_TIME_LIMIT: return JUDGE_TLE;
    case VERDICT_MEMORY_LIMIT: return JUDGE_MLE;
    case VERDICT_OUTPUT_LIMIT:
    case VERDICT_DISK_LIMIT: return JUDGE_OLE;
    case VERDICT_NONZERO_EXIT: return judge_is_missing(r) ? JUDGE_SE : JUDGE_RE;
    case VERDICT_SIGNALED:
    case VERDICT_PROCESS_LIMIT: return JUDGE_RE;
    case VERDICT_REJECTED: return JUDGE_CE;
    case VERDICT_CANCELLED:
    case VERDICT_SANDBOX_ERROR: return JUDGE_SE;
    }
    return JUDGE_SE;
}

/* Machines with a heap of their own give up before our limit does and say so. A submission that
 * says it without need trades one failure for another. */
bool judge_is_out_of_memory(const char *language, const struct result *r)
{
    static const char *const said[][2] = {{"java", "java.lang.OutOfMemoryError"},
                                          {"javascript", "JavaScript heap out of memory"},
                                          {"typescript", "JavaScript heap out of memory"},
                                          {"python", "MemoryError"},
                                          {"go", "out of memory"},
                                          {"ruby", "failed to allocate memory"},
                                          {"php", "Allowed memory size of"},
                                          {"lua", "not enough memory"}};
    const struct result_stream *err = &r->out[1];
    if (!language || err->len == 0 ||
        (r->verdict != VERDICT_NONZERO_EXIT && r->verdict != VERDICT_SIGNALED))
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(said); i++)
        if (str_eq(language, said[i][0]) &&
            memmem(err->data, err->len, said[i][1], strlen(said[i][1])))
            return true;
    return false;
}

/* A line "points 0.5 ...", or what it said begins with the number: a share of the case's points.
 * A checker may repeat what the submission wrote, lines like that included: more than one of them,
 * or one that may be cut off, says nothing. */
static bool helper_points(const struct result_stream *said, double *ret)
{
    static const char word[] = "points ";
    char text[64], *end;
    size_t n = strlen(word), found = 0;
    if (said->truncated)
        return false;
    for (size_t i = 0; i < said->len; i++) {
        bool line = i == 0 || said->data[i - 1] == '\n';
        bool named = line && i + n <= said->len && memcmp(said->data + i, word, n) == 0;
        if (!named && i > 0)
            continue;
        const char *at = said->data + i + (named ? n : 0);
        size_t len = MIN((size_t)(said->data + said->len - at), sizeof(text) - 1);
        memcpy(text, at, len);
        text[len] = '\0';
        double value = strtod(text, &end);
        bool number = end != text;
        if (!number && !named)
            continue;
        if (!number || ++found > 1 || !(value >= 0) || !(value <= 1))
            return false;
        *ret = value;
    }
    return found == 1;
}

/* A line that the runtime of this language writes when nobody caught an error. The status it ends
 * with then means something else when a checker says it. */
static bool helper_crashed(const char *language, const struct result_stream *said)
{
    static const char *const lines[][2] = {{"python", "Traceback (most recent call last):"},
                                           {"python", "  File \""}, /* it does not parse */
                                           {"javascript", "Node.js v"},
                                           {"typescript", "Node.js v"},
                                           {"go", "panic: "},
                                           {"go", "goroutine "},
                                           {"go", "fatal error: "},
                                           {"java", "Exception in thread "}};
    for (size_t i = 0; language && i < ARRAY_SIZE(lines); i++) {
        size_t n = strlen(lines[i][1]);
        const char *at = said->data, *end = said->data + said->len;
        while (str_eq(language, lines[i][0]) && at && (size_t)(end - at) >= n) {
            if (memcmp(at, lines[i][1], n) == 0)
                return true;
            at = memchr(at, '\n', (size_t)(end - at));
            at = at ? at + 1 : NULL;
        }
    }
    return false;
}

/* testlib's statuses. Anything else, its own "fail" (3) included, is no judgement. */
enum judge_word judge_word_of_helper(const struct result *r, const char *language,
                                     double *ret_fraction)
{
    *ret_fraction = 0;
    if (r->verdict == VERDICT_OK) {
        *ret_fraction = 1;
        return JUDGE_AC;
    }
    if (r->verdict != VERDICT_NONZERO_EXIT || r->error[0])
        return JUDGE_SE;
    if (r->exit_code != 7 && helper_crashed(language, &r->out[1]))
        return JUDGE_SE;
    switch (r->exit_code) {
    case 1: return JUDGE_WA;
    case 2:
    case 4: /* testlib: unexpected end of file */
    case 8: return JUDGE_PE;
    case 7:
        if (!helper_points(&r->out[1], ret_fraction)) {
            *ret_fraction = 0;
            return JUDGE_SE;
        }
        return *ret_fraction >= 1 ? JUDGE_AC : JUDGE_WA;
    default: return JUDGE_SE;
    }
}

void judge_describe(const struct result *r, char *ret, size_t size)
{
    if (r->error[0])
        snprintf(ret, size, "%s", r->error);
    else if (r->verdict == VERDICT_SIGNALED)
        snprintf(ret, size, "signal %d (%s)", r->signal, strsignal(r->signal));
    else if (r->verdict == VERDICT_NONZERO_EXIT)
        snprintf(ret, size, "exit status %d", r->exit_code);
    else
        *ret = '\0';
}

static int sum_groups(struct grade_outcome *o, const struct cases *cases, const double *fractions,
                      struct cordon_err *err)
{
    if (cases->n_groups == 0)
        return 0;
    o->groups = arena_alloc(&o->arena, cases->n_groups * sizeof(*o->groups));
    if (!o->groups)
        return err_nomem(err, "judge");
    o->n_groups = cases->n_groups;
    for (size_t g = 0; g < cases->n_groups; g++) {
        const char *name = cases->groups[g].name;
        double fraction = 1, points = 0;
        for (size_t i = 0; i < cases->n; i++) {
            if (!cases->rows[i].group || !str_eq(cases->rows[i].group, name))
                continue;
            points += cases->rows[i].points;
            fraction = MIN(fraction, fractions[i]);
        }
        if (cases->groups[g].points >= 0)
            points = cases->groups[g].points;
        struct grade_group *row = &o->groups[g];
        *row = (struct grade_group){arena_strdup(&o->arena, name), fraction * points, points};
        if (!row->name)
            return err_nomem(err, "judge");
        o->score += row->score;
        o->points += row->points;
    }
    return 0;
}

int judge_sum(struct grade_outcome *o, const struct cases *cases, const double *fractions,
              struct cordon_err *err)
{
    const char *first = NULL;
    bool ours = false;
    o->score = o->points = 0;
    if (sum_groups(o, cases, fractions, err) < 0)
        return -1;
    for (size_t i = 0; i < o->n_tests; i++) {
        struct grade_test *t = &o->tests[i];
        t->score = fractions[i] * t->points;
        if (!t->group) {
            o->score += t->score;
            o->points += t->points;
        }
        if (t->status == GRADE_NOT_RUN)
            continue;
        ours = ours || str_eq(t->verdict, judge_words[JUDGE_SE]);
        if (!first && !str_eq(t->verdict, judge_words[JUDGE_AC]))
            first = t->verdict;
    }
    grade_count(o);
    if (!o->verdict)
        o->verdict = ours ? judge_words[JUDGE_SE] : first ? first : judge_words[JUDGE_AC];
    o->has_score = !ours;
    if (ours)
        o->score = 0;
    return 0;
}
