/* The judge: a submission is made ready once, then run on every case, each in a sandbox of its own.
 *
 *   submission ──compile──► program ──┬─► case 1: run ─► compare, or a checker in its own sandbox
 *                                     ├─► case 2: run ◄─pipes─► interactor in its own sandbox
 *                                     └─► ...            up to `jobs` at once on one loop
 *
 * Expected outputs stay in this process, or go into the checker's sandbox; the submission's never
 * holds them. A failure of ours is SE and never counts as a score. Runs in the command. */
#ifndef GRADE_JUDGE_H
#define GRADE_JUDGE_H

#include <stdbool.h>
#include <stddef.h>

#include <cordon.h>

#include "base/loop.h"
#include "grade/cases.h"
#include "grade/compare.h"
#include "grade/grade.h"
#include "host/host.h"
#include "policy/policy.h"

#define JUDGE_JOBS_MAX 256

struct judge_state;

/* Zero-initialise, fill in the first part; everything is borrowed. */
struct judge {
    struct loop *loop;
    struct host host;
    const struct policy *policy;
    char *const *vars;    /* the caller's environment */
    const char *path;     /* the submission: a source file or an executable, or */
    const char *language; /* with path or text, NULL: by the suffix */
    const char *text;     /* its source text, or */
    size_t text_len;
    char *const *command; /* a command */
    const struct cases *cases;
    const char *cases_file; /* that they were read from, outputs and all; NULL: none */
    struct compare compare;
    const char *interactor; /* NULL: none */
    unsigned jobs;          /* 0 means 1 */
    bool stop_on_fail;      /* nothing after the first case that is not accepted */
    /* after each case; row is valid until judge_run() returns */
    void (*on_case)(void *data, size_t done, size_t total, const struct grade_test *row);
    void *data;

    struct judge_state *state; /* while it runs */
};

/* -1: nothing was judged: the host cannot (CORDON_ERR_HOST), the line or the checker is wrong
 * (CORDON_ERR_USAGE), cancelled, or a failure of ours before the first case. Else the outcome is
 * the caller's to free, whatever its verdict. */
int judge_run(struct judge *judge, struct grade_outcome *ret_outcome, struct cordon_err *err);
/* From a callback of the loop: judge_run() then fails with CORDON_ERR_CANCELLED. */
void judge_cancel(struct judge *judge);

#endif
