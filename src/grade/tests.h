/* Tests in one sandbox, the submission in another, plain data between them: the state machine that
 * joins the two, and what came of it.
 *
 * Runs in the supervisor. The desk is the tests' side: it serves one run after the other. A run's
 * tests are collected at the desk before the submission's text leaves our hands; results come from
 * the desk alone, by number, and what it did not report did not pass. The submission's side may
 * speak only when it was asked, once per question. docs/design/grading.md has the whole argument.
 */
#ifndef GRADE_TESTS_H
#define GRADE_TESTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cordon.h>

#include "grade/grade.h"
#include "grade/party.h"

#define TESTS_TEXT_MAX ((size_t)8 << 20)

/* What is graded; borrowed until the run is over. All texts but the submission's are UTF-8. */
struct tests_task {
    const char *name; /* of the tests' file, for messages; NULL: tests.py */
    const char *tests;
    size_t tests_len;
    const char *source; /* the submission */
    size_t source_len;
    const char *module;  /* the tests may import the submission under this name; NULL: none */
    const char *prelude; /* text the tests run after, on their own side; NULL: none */
    /* a right answer, never shown to the submission: only names it defines are the submission's,
     * and what it imports the tests have, too; NULL: unknown */
    const char *reference;
    const char *const *entry; /* names that are the submission's whatever else has them */
    size_t n_entry;
    bool in_process; /* both in one interpreter: weaker */
    bool doctest;
    bool copy_back;   /* functions change their arguments, and tests look at that */
    uint64_t time_ns; /* of the suite; 0: no limit */
    const char *time_written;
    const struct policy *policy; /* of the submission's side; NULL: the desk's */
};

/* Why a submission's side ended before it should have. */
enum tests_end {
    TESTS_END_NONE,
    TESTS_END_TIME,
    TESTS_END_MEMORY,
    TESTS_END_OUTPUT,
    TESTS_END_OTHER
};

struct tests_run;

/* Zero-initialise; started by the first run that needs it. */
struct tests_desk {
    struct party_place place;
    struct party party;
    struct tests_run *run; /* the one it serves now; NULL: another may start, though the last one's
                              submission may still be on its way out */
    struct buf code;       /* of the submission's side; place.code points here once it is known */
};

/* Zero-initialise. */
struct tests_run {
    const struct tests_task *task;
    struct tests_desk *desk;
    struct party user; /* the submission's side */
    struct party_place place;
    struct grade_outcome *outcome;
    int stage; /* enum, tests.c */
    bool asked, timed_out, user_ended, desk_failed, finishing;
    enum tests_end end;    /* of the submission's side */
    size_t running;        /* test that began last, SIZE_MAX: none */
    size_t n_results;      /* tests the desk reported */
    char reason[512];      /* why the submission's side is gone */
    struct cordon_err err; /* code != 0: our failure; there is no outcome */
    uint64_t begin_ns;
    int timer_fd;
    struct loop_watch timer;
    void (*on_done)(struct tests_run *r);
    void (*on_begin)(struct tests_run *r); /* a test begins: running; may be NULL */
    void *data;
};

/* on_done is called once, from the loop; -1: never. outcome must be zeroed, and is the caller's to
 * free in any case. */
int tests_start(struct tests_run *r, struct tests_desk *desk, const struct tests_task *task,
                struct grade_outcome *outcome, struct cordon_err *err);
/* Ends the run early; on_done follows. */
void tests_cancel(struct tests_run *r);
/* After on_done, or a failed start. */
void tests_done(struct tests_run *r);
void tests_desk_done(struct tests_desk *d);

/* Did everything that was found pass, and was something found? */
bool tests_passed(const struct grade_outcome *outcome);
/* "AC", "WA", "RE", "TLE", "MLE", "OLE", "CE": how the whole ended; "SE": there were no tests, or
 * none that can run. */
const char *tests_verdict(const struct tests_run *r);

#endif
