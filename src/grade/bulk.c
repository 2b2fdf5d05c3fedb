/* Workers, order, and lines. Runs in the command, on its loop. */
#include "grade/bulk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/jsonw.h"
#include "base/util.h"
#include "grade/judge.h"

#define BULK_WINDOW_MIN 256
#define BULK_MESSAGE_MAX 1000
#define BULK_RUNS_PER_DESK 2

/* One sample being graded. There are more of these than desks: a desk is free for the next one
 * while the last one's submission is taken down. */
struct bulk_worker {
    struct bulk *bulk;
    struct tests_run run;
    struct grade_outcome outcome;
    struct bulk_item item;
    bool busy;
    bool warm;
    bool again; /* the warm interpreter failed it: once more, cold */
};

/* ---- lines ---- */

/* What a line says of one sample. */
struct bulk_line {
    const char *verdict, *message;
    bool passed;
    size_t n[3]; /* tests passed, failed, errors */
    uint64_t runtime_ns;
};

static void line_write(const struct bulk_item *item, const struct bulk_line *l, struct buf *out)
{
    struct jsonw j = {.out = out};
    jsonw_open(&j, NULL, '{');
    if (item->id && item->id_is_number)
        jsonw_uint(&j, "task_id", strtoull(item->id, NULL, 10));
    else
        jsonw_str(&j, "task_id", item->id);
    jsonw_uint(&j, "sample", item->sample);
    jsonw_bool(&j, "passed", l->passed);
    jsonw_str(&j, "verdict", l->verdict);
    jsonw_open(&j, "tests", '{');
    jsonw_uint(&j, "passed", l->n[0]);
    jsonw_uint(&j, "failed", l->n[1]);
    jsonw_uint(&j, "errors", l->n[2]);
    jsonw_close(&j, '}');
    jsonw_ms(&j, "runtime_ms", l->runtime_ns);
    jsonw_bytes(&j, "message", l->message, strnlen(l->message, BULK_MESSAGE_MAX));
    jsonw_close(&j, '}');
    buf_char(out, '\n');
}

void bulk_count_line(struct bulk *b, struct bulk_problem *problem, const char *verdict, bool passed)
{
    b->counts.total++;
    if (passed)
        b->counts.passed++;
    else if (str_eq(verdict, "WA") || str_eq(verdict, "PE"))
        b->counts.failed++;
    else
        b->counts.errors++;
    if (problem && !str_eq(verdict, "SE")) { /* a failure of ours is no sample */
        problem->n++;
        problem->passed += passed;
    }
}

static void bulk_fail(struct bulk *b, const struct cordon_err *err)
{
    if (b->err.code == 0)
        b->err = *err;
    b->cancelled = true;
}

/* The line takes its place; all that are next in order leave. */
static void bulk_emit(struct bulk *b, const struct bulk_item *item, const struct bulk_line *l)
{
    struct buf *slot = &b->window[item->index % b->n_window];
    struct cordon_err err;
    bulk_count_line(b, item->problem, l->verdict, l->passed);
    if (b->on_progress)
        b->on_progress(b->data, b->counts.total, item->id ? item->id : "?");
    line_write(item, l, slot);
    for (;;) {
        struct buf *next = &b->window[b->n_written % b->n_window];
        if (next->len == 0)
            return;
        if (next->failed || b->on_line(b->data, next->data, next->len) < 0) {
            err_set(&err, CORDON_ERR_INTERNAL, "grade", errno, "a result could not be written");
            bulk_fail(b, &err);
            return;
        }
        next->len = 0;
        b->n_written++;
    }
}

static void bulk_emit_broken(struct bulk *b, const struct bulk_item *item, const char *why)
{
    struct bulk_line l = {.verdict = "SE", .message = why};
    bulk_emit(b, item, &l);
}

/* The first thing that went wrong, for people. */
static const char *outcome_message(const struct grade_outcome *o)
{
    if (o->error)
        return o->error;
    for (size_t i = 0; i < o->n_tests; i++)
        if (o->tests[i].status != GRADE_PASSED && o->tests[i].message && *o->tests[i].message)
            return o->tests[i].message;
    return "";
}

/* ---- workers ---- */

static void worker_free(struct bulk_worker *w)
{
    tests_done(&w->run);
    grade_outcome_done(&w->outcome);
    bulk_item_done(&w->item);
    w->run = (struct tests_run){0};
    w->busy = false;
    w->bulk->n_running--;
}

static void worker_on_done(struct tests_run *r)
{
    struct bulk_worker *w = r->data;
    struct bulk *b = w->bulk;
    struct grade_outcome *o = &w->outcome;
    if (r->err.code == CORDON_ERR_CANCELLED) {
        /* no line: it was not graded */
    } else if (r->err.code && w->warm) {
        w->again = b->is_cold = true;
    } else if (r->err.code) {
        bulk_emit_broken(b, &w->item, r->err.message);
    } else {
        struct bulk_line l = {.verdict = tests_verdict(r),
                              .message = outcome_message(o),
                              .passed = tests_passed(o),
                              .n = {o->passed, o->failed, o->errors},
                              .runtime_ns = o->total_ns};
        bulk_emit(b, &w->item, &l);
    }
    /* freed by the main loop: we are inside one of its callbacks */
    w->busy = false;
}

/* How many sides are still wanted, with the one that starts now. */
static void bulk_expect(struct bulk *b)
{
    size_t left = b->items_file ? SIZE_MAX : b->n_problems - MIN(b->n_problems, b->n_read) + 1;
    zygote_expect(b->warm.submissions, left);
    if (!b->expects_desks)
        zygote_expect(b->warm.desks, MIN(left, (size_t)b->n_desks));
    b->expects_desks = true;
}

static void worker_start(struct bulk_worker *w, struct tests_desk *desk)
{
    struct bulk *b = w->bulk;
    struct tests_task *t = &w->item.task;
    const struct policy *policy = t->policy ? t->policy : b->policy;
    struct cordon_err err = {0};
    t->time_ns = policy_num(policy, FIELD_TIME_LIMIT);
    t->time_written = policy_written(policy, FIELD_TIME_LIMIT);
    desk->place.warm = w->warm =
        !t->in_process && !t->policy && !b->is_cold && party_is_warm(&b->warm);
    if (w->warm)
        bulk_expect(b);
    w->run = (struct tests_run){.on_done = worker_on_done, .data = w};
    w->busy = true;
    if (tests_start(&w->run, desk, t, &w->outcome, &err) == 0)
        return;
    if (w->warm) {
        w->again = b->is_cold = true;
        w->busy = false;
        return;
    }
    /* what this host cannot do it cannot do for the next one either */
    if (err.code == CORDON_ERR_HOST)
        bulk_fail(b, &err);
    else
        bulk_emit_broken(b, &w->item, err.message);
    w->busy = false;
}

/* ---- cases ---- */

/* The judge has a loop of its own, so nothing else may run meanwhile; it uses all workers' share.
 */
static void bulk_judge(struct bulk *b, struct bulk_item *item)
{
    struct cases cases = {0};
    struct loop loop;
    struct cordon_err err = {0};
    struct grade_outcome o = {0};
    struct judge judge = {.loop = &loop,
                          .host = *b->host,
                          .policy = item->policy ? item->policy : b->policy,
                          .vars = b->vars,
                          .language = item->language ? item->language : "python",
                          .text = item->task.source,
                          .text_len = item->task.source_len,
                          .cases = &cases,
                          .jobs = b->jobs};
    if (loop_init(&loop) < 0) {
        bulk_emit_broken(b, item, "event loop");
        return;
    }
    if (compare_parse(item->compare ? item->compare : "trimmed", &judge.compare, &err) == 0 &&
        !judge.compare.checker &&
        cases_from_node(&cases, b->items_name, NULL, item->cases, &err) == 0 &&
        cases_check(&cases, true, &err) == 0 && judge_run(&judge, &o, &err) == 0) {
        struct bulk_line l = {.verdict = o.verdict ? o.verdict : "SE",
                              .message = outcome_message(&o),
                              .passed = o.verdict && str_eq(o.verdict, "AC"),
                              .n = {o.passed, o.failed, o.errors},
                              .runtime_ns = o.total_ns};
        bulk_emit(b, item, &l);
    } else if (err.code == CORDON_ERR_HOST) {
        bulk_fail(b, &err);
    } else {
        bulk_emit_broken(b, item, err.code ? err.message : "compare: a checker is not for tasks");
    }
    grade_outcome_done(&o);
    cases_done(&cases);
    loop_done(&loop);
}

/* ---- all of it ---- */

static struct tests_desk *bulk_desk(struct bulk *b)
{
    for (unsigned i = 0; i < b->n_desks; i++)
        if (!b->desks[i].run)
            return &b->desks[i];
    return NULL;
}

static struct bulk_worker *bulk_idle(struct bulk *b)
{
    for (unsigned i = 0; bulk_desk(b) && i < b->n_workers; i++)
        if (!b->workers[i].busy && !b->workers[i].run.desk)
            return &b->workers[i];
    return NULL;
}

static void bulk_reap(struct bulk *b)
{
    for (unsigned i = 0; i < b->n_workers; i++) {
        struct bulk_worker *w = &b->workers[i];
        struct tests_desk *desk;
        if (w->busy || !w->run.desk)
            continue;
        if (w->again && !b->cancelled) {
            tests_done(&w->run);
            if (!(desk = bulk_desk(b)))
                continue; /* those that have one will leave it */
            w->again = false;
            grade_outcome_done(&w->outcome);
            worker_start(w, desk);
        }
        if (!w->busy)
            worker_free(w);
    }
}

/* Starts what there is room for. */
static int bulk_feed(struct bulk *b, struct bulk_item *held, struct cordon_err *err)
{
    struct bulk_worker *w;
    while (!b->input_ended && !b->cancelled && (w = bulk_idle(b)) &&
           (held->index || b->n_read - b->n_written < b->n_window)) {
        struct bulk_item item = *held;
        if (held->index) {
            *held = (struct bulk_item){0};
            item.index--;
        } else {
            int r = bulk_next(b, &item, err);
            if (r < 0)
                return -1;
            if (r == 0) {
                b->input_ended = true;
                break;
            }
        }
        if (item.index < b->skip) {
            int r = b->on_skip(b->data, &item, err);
            b->n_written = item.index + 1;
            bulk_item_done(&item);
            if (r < 0)
                return -1;
        } else if (item.broken) {
            bulk_emit_broken(b, &item, item.broken);
            bulk_item_done(&item);
        } else if (item.unfit) {
            bulk_emit(b, &item, &(struct bulk_line){.verdict = "CE", .message = item.unfit});
            bulk_item_done(&item);
        } else if (item.task.tests) {
            w->item = item;
            w->item.task.entry = w->item.entry;
            b->n_running++;
            worker_start(w, bulk_desk(b));
            bulk_reap(b);
        } else if (b->n_running > 0) { /* a judge runs alone: kept until the others are through */
            *held = item;
            held->index++;
            break;
        } else {
            bulk_judge(b, &item);
            bulk_item_done(&item);
        }
    }
    return 0;
}

static int bulk_prepare(struct bulk *b, struct cordon_err *err)
{
    b->jobs = MAX(1u, MIN(b->jobs, BULK_JOBS_MAX));
    b->n_desks = b->n_desks ? MIN(b->n_desks, BULK_JOBS_MAX) : b->jobs;
    b->n_window = MAX((size_t)BULK_WINDOW_MIN, (size_t)b->n_desks * 16);
    b->n_workers = b->n_desks * BULK_RUNS_PER_DESK;
    b->workers = calloc(b->n_workers, sizeof(*b->workers));
    b->desks = calloc(b->n_desks, sizeof(*b->desks));
    b->window = calloc(b->n_window, sizeof(*b->window));
    if (!b->workers || !b->desks || !b->window)
        return err_nomem(err, "grade");
    party_warm_up(b->policy, &b->input, &b->warm);
    for (unsigned i = 0; i < b->n_desks; i++)
        b->desks[i].place = (struct party_place){
            .loop = b->loop, .host = b->host, .policy = b->policy, .vars = b->vars, .many = true};
    for (unsigned i = 0; i < b->n_workers; i++)
        b->workers[i].bulk = b;
    for (size_t i = 0; i < b->n_window; i++)
        b->window[i] = BUF_INIT(BULK_LINE_MAX);
    return 0;
}

int bulk_run(struct bulk *b, struct cordon_err *err)
{
    struct bulk_item held = {0};
    int r = bulk_prepare(b, err);
    while (r == 0) {
        bulk_reap(b);
        r = bulk_feed(b, &held, err);
        if (r < 0 || (b->n_running == 0 && (b->input_ended || b->cancelled)))
            break;
        if (b->n_running > 0 && loop_once(b->loop, -1) < 0)
            r = err_set(err, CORDON_ERR_INTERNAL, "supervise", errno, "event loop");
    }
    bulk_item_done(&held);
    if (r == 0 && b->err.code) {
        *err = b->err;
        return -1;
    }
    return r;
}

void bulk_cancel(struct bulk *b)
{
    struct cordon_err err;
    err_set(&err, CORDON_ERR_CANCELLED, "grade", 0, "cancelled");
    bulk_fail(b, &err);
    for (unsigned i = 0; i < b->n_workers; i++)
        if (b->workers[i].busy)
            tests_cancel(&b->workers[i].run);
}

void bulk_done(struct bulk *b)
{
    for (unsigned i = 0; b->workers && i < b->n_workers; i++) {
        struct bulk_worker *w = &b->workers[i];
        tests_done(&w->run);
        grade_outcome_done(&w->outcome);
        bulk_item_done(&w->item);
    }
    for (unsigned i = 0; b->desks && i < b->n_desks; i++)
        party_stop(&b->desks[i].party); /* they end side by side */
    for (unsigned i = 0; b->desks && i < b->n_desks; i++)
        tests_desk_done(&b->desks[i]);
    for (size_t i = 0; b->window && i < b->n_window; i++)
        buf_done(&b->window[i]);
    party_cool_down(&b->warm);
    free(b->workers);
    free(b->desks);
    free(b->window);
    free(b->line);
    arena_done(&b->arena);
}
