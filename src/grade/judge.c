/* The judge's schedule: programs first, then cases, up to `jobs` at once. Runs in the command. */
#include "grade/judge.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/util.h"
#include "grade/judge_internal.h"
#include "grade/reach.h"

/* ---- what the submission must not reach ---- */

/* A checker or an interactor may have the answers in it. */
static int check_reach(const struct judge *j, struct cordon_err *err)
{
    struct reach reach = {0};
    int r = reach_init(&reach, j->policy, err);
    for (size_t i = 0; r == 0 && i < j->cases->n; i++)
        r = reach_check(&reach, j->cases->rows[i].expected.path, "expected output", err);
    if (r == 0)
        r = reach_check(&reach, j->cases_file, "file of cases", err);
    if (r == 0 && j->compare.kind == COMPARE_CHECKER)
        r = reach_check(&reach, j->compare.checker, "checker", err);
    if (r == 0)
        r = reach_check(&reach, j->interactor, "interactor", err);
    reach_done(&reach);
    return r;
}

/* ---- programs ---- */

static int wait_for(struct judge *j, const struct judge_program *p, struct cordon_err *err)
{
    while (!p->over) {
        if (loop_once(j->loop, -1) < 0)
            return err_set(err, CORDON_ERR_INTERNAL, "judge", errno, "event loop");
    }
    return j->state->cancelled ? err_set(err, CORDON_ERR_CANCELLED, "judge", 0, "cancelled") : 0;
}

/* The error behind a result that is our failure. */
static int our_error(const struct run_job *run, struct cordon_err *err)
{
    *err = run->supervised.err;
    if (err->code == 0)
        err_set(err, CORDON_ERR_INTERNAL, "judge", 0, "%s", run->result.error);
    return -1;
}

static int helper_ready(struct judge *j, struct judge_program *p, const char *path,
                        const char *what, struct cordon_err *err)
{
    if (judge_program_start(j, p, path, what, err) < 0)
        return err_prefix(err, "%s", what);
    if (wait_for(j, p, err) < 0)
        return -1;
    const struct result *r = &p->ready.result;
    if (r->verdict == VERDICT_OK)
        return 0;
    if (r->verdict == VERDICT_SANDBOX_ERROR)
        return our_error(&p->ready, err);
    err_set(err, CORDON_ERR_USAGE, "judge", 0, "the %s %.200s does not compile: %.*s", what, path,
            (int)MIN(r->out[1].len, (size_t)700), r->out[1].len ? r->out[1].data : r->error);
    return -1;
}

/* No case ran, and all have the same cause. */
static void submission_refused(struct judge_state *s, const char *why)
{
    struct grade_outcome *o = &s->outcome;
    o->verdict = judge_words[JUDGE_CE];
    o->error = why;
    for (size_t i = 0; i < o->n_tests; i++)
        o->tests[i].verdict = o->verdict;
}

static int submission_ready(struct judge *j, struct cordon_err *err)
{
    struct judge_state *s = j->state;
    struct judge_program *p = &s->submission;
    if (judge_program_start(j, p, j->path, NULL, err) < 0) {
        if (err->code != CORDON_ERR_REJECTED)
            return -1;
        submission_refused(s, arena_strdup(&s->outcome.arena, err->message));
        return 0;
    }
    if (wait_for(j, p, err) < 0)
        return -1;
    const struct result *r = &p->ready.result;
    if (p->lang.lang)
        s->outcome.language = arena_strdup(&s->outcome.arena, p->lang.lang->name);
    if (r->verdict == VERDICT_OK)
        return 0;
    if (r->verdict == VERDICT_SANDBOX_ERROR)
        return our_error(&p->ready, err);
    char how[1400];
    struct grade_bytes said = {0};
    judge_describe(r, how, sizeof(how));
    if (r->out[1].len > 0)
        (void)grade_keep(&s->outcome, r->out[1].data, r->out[1].len, JUDGE_OUTPUT_KEPT, &said);
    submission_refused(s, said.len ? said.data : arena_strdup(&s->outcome.arena, how));
    return 0;
}

/* ---- cases ---- */

static int make_rows(struct judge *j, struct cordon_err *err)
{
    struct judge_state *s = j->state;
    struct grade_outcome *o = &s->outcome;
    o->kind = "judge";
    o->submission = arena_strdup(&o->arena, j->path      ? j->path
                                            : j->command ? j->command[0]
                                                         : "standard input");
    o->n_tests = j->cases->n;
    o->tests = arena_alloc(&o->arena, (o->n_tests + 1) * sizeof(*o->tests));
    s->fractions = calloc(o->n_tests + 1, sizeof(*s->fractions));
    if (!o->submission || !o->tests || !s->fractions)
        return err_nomem(err, "judge");
    for (size_t i = 0; i < o->n_tests; i++) {
        const struct cases_row *row = &j->cases->rows[i];
        struct grade_test *t = &o->tests[i];
        t->status = GRADE_NOT_RUN;
        t->message = "";
        t->points = row->points;
        t->name = arena_strdup(&o->arena, row->name);
        t->group = row->group ? arena_strdup(&o->arena, row->group) : NULL;
        if (!t->name || (row->group && !t->group))
            return err_nomem(err, "judge");
    }
    return 0;
}

static void set_fatal(struct judge_state *s, const struct cordon_err *err)
{
    if (s->fatal.code == 0)
        s->fatal = *err;
}

static void cancel_slots(struct judge_state *s, size_t after)
{
    for (unsigned i = 0; i < s->n_slots; i++)
        if (s->slots[i].stage != SLOT_IDLE && (after == SIZE_MAX || s->slots[i].index > after))
            judge_slot_cancel(&s->slots[i]);
}

/* A host that cannot build the wall, or a policy it refuses, is no verdict on any case. */
static void start_failed(struct judge_slot *slot, const struct cordon_err *err)
{
    struct judge_state *s = slot->judge->state;
    struct grade_test *t = &s->outcome.tests[slot->index];
    if (err->code != CORDON_ERR_INTERNAL) {
        set_fatal(s, err);
        return;
    }
    t->verdict = judge_words[JUDGE_SE];
    t->status = GRADE_ERROR;
    t->message = arena_strdup(&s->outcome.arena, err->message);
    if (!t->message)
        t->message = "";
}

static void case_over(struct judge_slot *slot)
{
    struct judge *j = slot->judge;
    struct judge_state *s = j->state;
    const struct grade_test *row = &s->outcome.tests[slot->index];
    size_t index = slot->index;
    bool ran = slot->run_live;
    if (ran && slot->run.result.verdict == VERDICT_SANDBOX_ERROR &&
        slot->run.supervised.err.code == CORDON_ERR_HOST)
        set_fatal(s, &slot->run.supervised.err);
    if (ran)
        s->submission.ready.host = slot->run.host; /* what it learnt about the host */
    judge_slot_clear(slot);
    s->done++;
    if (j->stop_on_fail && row->status != GRADE_PASSED && index < s->stop_at) {
        s->stop_at = index;
        cancel_slots(s, index);
    }
    if (j->on_case && !s->cancelled && !s->refused && index <= s->stop_at)
        j->on_case(j->data, s->done, s->outcome.n_tests, row);
}

/* True while something runs. */
static bool fill_slots(struct judge_state *s)
{
    bool busy = s->asking;
    for (unsigned i = 0; i < s->n_slots; i++) {
        struct judge_slot *slot = &s->slots[i];
        while (slot->stage == SLOT_IDLE && s->next < s->outcome.n_tests && s->next <= s->stop_at &&
               !s->cancelled && !s->asking && !s->refused && s->fatal.code == 0) {
            struct cordon_err err = {0};
            slot->index = s->next++;
            if (judge_slot_start(slot, &err) == 0)
                break;
            start_failed(slot, &err);
            case_over(slot);
        }
        busy = busy || slot->stage != SLOT_IDLE;
    }
    return busy;
}

static int run_cases(struct judge *j, struct cordon_err *err)
{
    struct judge_state *s = j->state;
    bool stopped = false;
    s->n_slots = MIN(MAX(j->jobs, 1u), (unsigned)JUDGE_JOBS_MAX);
    s->slots = calloc(s->n_slots, sizeof(*s->slots));
    if (!s->slots)
        return err_nomem(err, "judge");
    for (unsigned i = 0; i < s->n_slots; i++)
        judge_slot_init(&s->slots[i], j);
    while (fill_slots(s)) {
        if (loop_once(j->loop, -1) < 0)
            return err_set(err, CORDON_ERR_INTERNAL, "judge", errno, "event loop");
        judge_parse_step(j);
        if (!stopped && (s->cancelled || s->refused || s->fatal.code)) {
            stopped = true;
            cancel_slots(s, SIZE_MAX);
        }
        for (unsigned i = 0; i < s->n_slots; i++)
            if (s->slots[i].stage != SLOT_IDLE && judge_slot_step(&s->slots[i])) {
                judge_parse_after(j, &s->slots[i].run.result);
                case_over(&s->slots[i]);
            }
    }
    if (s->cancelled)
        return err_set(err, CORDON_ERR_CANCELLED, "judge", 0, "cancelled");
    if (s->fatal.code) {
        *err = s->fatal;
        return -1;
    }
    return 0;
}

static void forget_from(struct judge_state *s, size_t first)
{
    for (size_t i = first; i < s->outcome.n_tests; i++) {
        struct grade_test *t = &s->outcome.tests[i];
        *t = (struct grade_test){.name = t->name,
                                 .group = t->group,
                                 .points = t->points,
                                 .status = GRADE_NOT_RUN,
                                 .message = ""};
        s->fractions[i] = 0;
    }
}

/* With stop_on_fail the outcome is that of one case after the other, however many ran at once. And
 * of what is no program at all no case ran. */
static void forget_rest(struct judge_state *s)
{
    if (s->refused) {
        forget_from(s, 0);
        submission_refused(s, s->refused);
    } else if (s->stop_at < s->outcome.n_tests) {
        forget_from(s, s->stop_at + 1);
    }
}

static int judge_all(struct judge *j, struct cordon_err *err)
{
    struct judge_state *s = j->state;
    uint64_t begin = clock_ns();
    if (check_reach(j, err) < 0 || make_rows(j, err) < 0)
        return -1;
    if (j->compare.kind == COMPARE_CHECKER && !j->interactor &&
        helper_ready(j, &s->checker, j->compare.checker, "checker", err) < 0)
        return -1;
    if (j->interactor && helper_ready(j, &s->interactor, j->interactor, "interactor", err) < 0)
        return -1;
    if (submission_ready(j, err) < 0)
        return -1;
    if (!s->outcome.verdict && run_cases(j, err) < 0)
        return -1;
    forget_rest(s);
    judge_keep_expected(j);
    s->outcome.total_ns = clock_ns() - begin;
    return judge_sum(&s->outcome, j->cases, s->fractions, err);
}

int judge_run(struct judge *j, struct grade_outcome *ret, struct cordon_err *err)
{
    struct judge_state *s = calloc(1, sizeof(*s));
    if (!s)
        return err_nomem(err, "judge");
    s->stop_at = SIZE_MAX;
    j->state = s;
    int r = judge_all(j, err);
    for (unsigned i = 0; s->slots && i < s->n_slots; i++)
        judge_slot_clear(&s->slots[i]);
    run_done(&s->parse);
    judge_program_done(&s->submission);
    judge_program_done(&s->checker);
    judge_program_done(&s->interactor);
    if (r == 0)
        *ret = s->outcome;
    else
        grade_outcome_done(&s->outcome);
    free(s->slots);
    free(s->fractions);
    free(s);
    j->state = NULL;
    return r;
}

void judge_cancel(struct judge *j)
{
    struct judge_state *s = j->state;
    if (!s)
        return;
    s->cancelled = true;
    run_cancel(&s->parse);
    lang_cancel(&s->submission.lang);
    lang_cancel(&s->checker.lang);
    lang_cancel(&s->interactor.lang);
    cancel_slots(s, SIZE_MAX);
}
