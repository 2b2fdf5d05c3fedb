/* One suite against one submission. Runs in the supervisor, on its loop. */
#include "grade/tests.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/util.h"
#include "grade/tests_end.h"
#include "grade/tests_read.h"
#include "grade/tests_send.h"

/* COLLECT: the desk has the tests; LOAD: the submission has its text; RUN: questions and answers.
 */
enum { STAGE_COLLECT, STAGE_LOAD, STAGE_RUN, STAGE_OVER };

/* A submission that closed its line is given this long to end by itself; a desk that was told of
 * the end this long to report it. */
#define TESTS_GRACE_NS ((uint64_t)300 * 1000000)
#define TESTS_DESK_GRACE_NS ((uint64_t)5 * 1000000000)

static void tests_arm(struct tests_run *r, uint64_t ns)
{
    struct itimerspec t = {
        .it_value = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)}};
    timerfd_settime(r->timer_fd, 0, &t, NULL);
}

static void tests_fail(struct tests_run *r, const struct cordon_err *err)
{
    if (r->err.code == 0)
        r->err = *err;
}

/* ---- the end ---- */

/* The next run may have it; not one of in-process mode, which ends with its run. */
static void tests_leave_desk(struct tests_run *r)
{
    if (r->desk->run == r && !r->task->in_process)
        r->desk->run = NULL;
}

/* Both sides are through: the rows are final. */
static void tests_finish(struct tests_run *r)
{
    struct grade_outcome *o = r->outcome;
    loop_set(r->desk->place.loop, &r->timer, 0);
    if (r->running < o->n_tests && o->tests[r->running].status == GRADE_NOT_RUN) {
        o->tests[r->running].status = GRADE_ERROR;
        o->tests[r->running].message = r->reason[0]     ? arena_strdup(&o->arena, r->reason)
                                       : r->desk_failed ? "the tests were ended while it ran"
                                                        : "it ended without a result";
    }
    if (r->reason[0] && !o->error && !tests_is_told(o, r->reason))
        o->error = arena_strdup(&o->arena, r->reason);
    for (size_t i = 0; i < o->n_tests; i++)
        if (!o->tests[i].message)
            o->tests[i].message = "";
    grade_count(o);
    if (o->error)
        o->errors++;
    o->total_ns = clock_ns() - r->begin_ns;
    r->stage = STAGE_OVER;
    tests_leave_desk(r);
    if (r->on_done)
        r->on_done(r);
}

static void tests_check_end(struct tests_run *r)
{
    const struct party *theirs = tests_theirs(r);
    if (r->finishing && r->stage != STAGE_OVER && (!theirs->started || theirs->gone))
        tests_finish(r);
}

/* The desk has said all it will: the submission is ended, whatever it is doing, and while that
 * takes its time the desk serves others. */
static void tests_desk_over(struct tests_run *r)
{
    if (r->finishing)
        return;
    r->finishing = true;
    if (r->err.code) /* it is in the middle of a job that nobody waits for */
        party_stop(&r->desk->party);
    tests_leave_desk(r);
    party_stop(tests_theirs(r));
    tests_check_end(r);
}

/* ---- the submission's side ---- */

static void tests_user_lost(struct tests_run *r)
{
    if (r->finishing || r->user_ended)
        return;
    r->user_ended = true;
    r->asked = false;
    if (r->stage == STAGE_LOAD || r->stage == STAGE_RUN) {
        party_send(&r->desk->party, 'X', r->reason, strlen(r->reason));
        tests_arm(r, TESTS_DESK_GRACE_NS);
    } else if (r->stage == STAGE_COLLECT && r->task->time_ns) {
        tests_arm(r, r->task->time_ns); /* the desk's; the clock may have been used for another */
    }
}

static bool tests_user_frame(struct party *p, char kind, const char *data, size_t len)
{
    struct tests_run *r = p->owner;
    if (r->finishing) /* the desk may be another run's by now */
        return true;
    if (kind != 'A' || !r->asked)
        return false;
    r->asked = false;
    r->stage = STAGE_RUN;
    party_send(&r->desk->party, 'A', data, len);
    return true;
}

static void tests_user_end(struct party *p)
{
    struct tests_run *r = p->owner;
    if (!p->breach && !r->finishing && !r->timed_out)
        tests_arm(r, TESTS_GRACE_NS);
}

static void tests_user_gone(struct party *p)
{
    struct tests_run *r = p->owner;
    const struct result *res = &p->run.result;
    grade_note_wall(r->outcome, res);
    if (res->verdict == VERDICT_SANDBOX_ERROR && !r->finishing) {
        tests_fail(r, &p->run.supervised.err);
        if (r->err.code == 0)
            err_set(&r->err, CORDON_ERR_INTERNAL, "grade", 0, "%s", res->error);
    }
    if (!r->finishing)
        tests_note_end(r, p);
    else
        tests_note_oom(r, p);
    tests_user_lost(r);
    if (r->err.code)
        tests_desk_over(r);
    tests_check_end(r);
}

static int tests_start_user(struct tests_run *r, struct cordon_err *err)
{
    r->user.on_frame = tests_user_frame;
    r->user.on_end = tests_user_end;
    r->user.on_gone = tests_user_gone;
    r->user.owner = r;
    r->place = r->desk->place;
    if (r->task->policy)
        r->place.policy = r->task->policy;
    return party_start(&r->user, PARTY_SUBMISSION, &r->place, err);
}

/* ---- the desk ---- */

/* The tests are fixed: the submission gets its text, and the clock starts. */
static bool tests_collected(struct tests_run *r, const char *data, size_t len)
{
    struct cordon_err err = {0};
    if (r->stage != STAGE_COLLECT || tests_read_names(r->outcome, data, len, &err) < 0)
        return false;
    r->stage = STAGE_LOAD;
    if (r->task->time_ns)
        tests_arm(r, r->task->time_ns);
    r->asked = !r->task->in_process; /* the answer to the text is its names */
    if (r->user_ended) {
        party_send(&r->desk->party, 'X', r->reason, strlen(r->reason));
    } else if ((r->task->in_process ? tests_send_inside : tests_send_source)(r, &err) < 0) {
        tests_fail(r, &err);
        tests_desk_over(r);
    }
    return true;
}

static bool tests_question(struct tests_run *r, const char *data, size_t len)
{
    if (r->stage != STAGE_RUN || r->asked)
        return false;
    if (r->user_ended) {
        party_send(&r->desk->party, 'X', r->reason, strlen(r->reason));
        return true;
    }
    r->asked = true;
    party_send(&r->user, 'Q', data, len);
    return true;
}

/* Once, and before any job: nothing a job brings can change what later submissions run on. */
static bool tests_desk_code(struct tests_desk *d, const char *data, size_t len)
{
    if (d->place.code)
        return true; /* of a desk before this one */
    if (!party_is_code(data, len))
        return false;
    d->code = BUF_INIT(CHANNEL_FRAME_MAX);
    if (buf_add(&d->code, data, len) == 0)
        d->place.code = &d->code;
    return true;
}

static bool tests_desk_frame(struct party *p, char kind, const char *data, size_t len)
{
    struct tests_desk *d = p->owner;
    struct tests_run *r = d->run;
    if (kind == 'P')
        return tests_desk_code(d, data, len);
    if (!r || r->finishing)
        return kind == 'E' || kind == 'D';
    switch (kind) {
    case 'C': return tests_collected(r, data, len);
    case 'Q': return tests_question(r, data, len);
    case 'B': return tests_read_begin(r, data, len);
    case 'R': return tests_read_result(r, data, len);
    case 'S': return tests_read_broken(r, data, len);
    case 'E':
        if (r->n_results < r->outcome->n_tests && !r->outcome->error && r->reason[0] == '\0')
            snprintf(r->reason, sizeof(r->reason), "the tests ended early");
        /* an answer that nobody read whole, or a process that may read the next one's */
        if (len > 0 || r->asked)
            party_stop(p);
        tests_desk_over(r);
        return true;
    case 'D':
        if (r->reason[0] == '\0')
            snprintf(r->reason, sizeof(r->reason), "the tests' process died");
        r->desk_failed = true;
        party_stop(p); /* what it left on its line is of no use to the next */
        tests_desk_over(r);
        return true;
    default: return false;
    }
}

static void tests_desk_end(struct party *p)
{
    struct tests_desk *d = p->owner;
    struct tests_run *r = d->run;
    if (r && r->task->in_process && !p->breach) {
        if (!r->finishing && !r->timed_out)
            tests_arm(r, TESTS_GRACE_NS); /* how it ended says more than that it did */
        return;
    }
    party_stop(p);
    if (r && !r->finishing) {
        r->desk_failed = true;
        if (r->task->in_process)
            tests_note_end(r, p);
        else if (p->breach && r->reason[0] == '\0')
            snprintf(r->reason, sizeof(r->reason), "the tests' side: %s", p->breach);
    }
}

static void tests_desk_gone(struct party *p)
{
    struct tests_desk *d = p->owner;
    struct tests_run *r = d->run;
    const struct result *res = &p->run.result;
    if (r && r->task->in_process)
        grade_note_wall(r->outcome, res);
    if (!r || r->finishing) {
        if (r && r->task->in_process)
            tests_note_oom(r, p);
        if (r)
            tests_check_end(r);
        return;
    }
    r->desk_failed = true;
    if (res->verdict == VERDICT_SANDBOX_ERROR) {
        tests_fail(r, &p->run.supervised.err);
        if (r->err.code == 0)
            err_set(&r->err, CORDON_ERR_INTERNAL, "grade", 0, "%s", res->error);
    } else if (r->task->in_process) {
        tests_note_end(r, p);
    } else if (r->reason[0] == '\0') {
        bool limit = res->verdict != VERDICT_OK && res->verdict != VERDICT_NONZERO_EXIT;
        r->end = tests_end_of(res);
        snprintf(r->reason, sizeof(r->reason), "the tests' side ended: %.200s%s%.200s",
                 res->error[0] ? res->error
                 : limit       ? result_verdict_name(res->verdict)
                               : "exited",
                 res->out[1].len ? ": " : "", res->out[1].len ? res->out[1].data : "");
    }
    tests_desk_over(r);
}

/* In-process mode has a desk of its own, behind the submission's wall: what the submission does to
 * it is no other run's business, and it finds no other run's tests there. */
static int tests_desk_ready(struct tests_run *r, struct cordon_err *err)
{
    struct tests_desk *d = r->desk;
    bool both = r->task->in_process;
    if (!both && d->party.started && !d->party.gone && !d->party.stopped)
        return 0;
    party_done(&d->party);
    r->place = d->place;
    if (both) {
        r->place.warm = r->place.many = false;
        if (r->task->policy)
            r->place.policy = r->task->policy;
    }
    d->party = (struct party){.on_frame = tests_desk_frame,
                              .on_end = tests_desk_end,
                              .on_gone = tests_desk_gone,
                              .owner = d};
    return party_start(&d->party, both ? PARTY_BOTH : PARTY_TESTS, &r->place, err);
}

void tests_desk_done(struct tests_desk *d)
{
    party_done(&d->party);
    buf_done(&d->code);
    d->place.code = NULL;
}

/* ---- the clock ---- */

static void tests_on_timer(struct loop_watch *w, uint32_t events)
{
    (void)events;
    struct tests_run *r = w->data;
    uint64_t n;
    if (read(r->timer_fd, &n, sizeof(n)) < 0 || r->finishing)
        return;
    struct party *theirs = tests_theirs(r);
    bool closed = theirs->started && !theirs->gone && theirs->channel.in.fd < 0;
    if (closed && !r->timed_out) { /* its line is closed and it goes on: it gains nothing by that */
        snprintf(r->reason, sizeof(r->reason), "the submission closed its line");
        r->end = TESTS_END_OTHER;
        party_stop(theirs);
        if (!r->task->in_process)
            tests_user_lost(r);
        return;
    }
    bool collects = r->stage == STAGE_COLLECT; /* the submission has not even its text */
    if (!r->user_ended && !r->timed_out && r->user.started && !collects) {
        r->timed_out = true;
        r->end = TESTS_END_TIME;
        snprintf(r->reason, sizeof(r->reason), "Execution exceeded time limit (%s)",
                 r->task->time_written ? r->task->time_written : "");
        party_stop(&r->user);
        tests_user_lost(r);
        return;
    }
    if (!r->user.started || collects) { /* in-process, or the tests themselves take too long */
        r->timed_out = true;
        r->end = TESTS_END_TIME;
        snprintf(r->reason, sizeof(r->reason), "Execution exceeded time limit (%s)",
                 r->task->time_written ? r->task->time_written : "");
    }
    r->desk_failed = true;
    party_stop(&r->desk->party);
    tests_desk_over(r);
}

/* ---- a run ---- */

int tests_start(struct tests_run *r, struct tests_desk *desk, const struct tests_task *task,
                struct grade_outcome *outcome, struct cordon_err *err)
{
    r->task = task;
    r->desk = desk;
    r->outcome = outcome;
    r->running = SIZE_MAX;
    r->begin_ns = clock_ns();
    outcome->kind = "tests";
    outcome->language = "python";
    outcome->mode = task->in_process ? "in-process" : "strict";
    r->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    r->timer = (struct loop_watch){.fd = r->timer_fd, .fn = tests_on_timer, .data = r};
    if (r->timer_fd < 0 || loop_set(desk->place.loop, &r->timer, EPOLLIN) < 0) {
        err_set(err, CORDON_ERR_INTERNAL, "grade", errno, "clock");
        tests_done(r);
        return -1;
    }
    if (tests_desk_ready(r, err) < 0) {
        tests_done(r);
        return -1;
    }
    desk->run = r;
    /* collecting has the suite's time, too: tests may loop while they are read */
    if (task->time_ns)
        tests_arm(r, task->time_ns);
    if (tests_send_job(r, err) < 0 || (!task->in_process && tests_start_user(r, err) < 0)) {
        party_stop(&desk->party);
        tests_leave_desk(r);
        tests_done(r);
        return -1;
    }
    return 0;
}

void tests_cancel(struct tests_run *r)
{
    if (r->stage == STAGE_OVER || r->finishing)
        return;
    err_set(&r->err, CORDON_ERR_CANCELLED, "grade", 0, "cancelled");
    r->desk_failed = true;
    party_stop(&r->desk->party);
    tests_desk_over(r);
}

void tests_done(struct tests_run *r)
{
    if (r->desk && r->desk->place.loop)
        loop_set(r->desk->place.loop, &r->timer, 0);
    party_done(&r->user);
    if (r->desk && r->desk->run == r) { /* in-process: its policy may be the task's */
        party_done(&r->desk->party);
        r->desk->run = NULL;
    }
    if (r->timer.fn)
        util_close(&r->timer_fd);
    r->timer.fn = NULL;
}
