/* How a submission did: the rows every report is made from, whoever judged.
 *
 * Pure data, made by the judge (cases with verdicts) or the test runner (tests with a status), read
 * by report.c. Texts may hold whatever a submission wrote: reports escape, nobody else needs to. */
#ifndef GRADE_GRADE_H
#define GRADE_GRADE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

enum grade_status { GRADE_PASSED, GRADE_FAILED, GRADE_ERROR, GRADE_SKIPPED, GRADE_NOT_RUN };

/* Part of a text that may be longer. */
struct grade_bytes {
    const char *data; /* NULL when len is 0 */
    size_t len;
    bool truncated;
};

/* One test, or one case of a judge. */
struct grade_test {
    const char *name;
    enum grade_status status;
    const char *message; /* "" when there is nothing to say; may have several lines */
    uint64_t runtime_ns;
    struct grade_bytes out, errout; /* what it wrote */
    /* of a judge only */
    const char *verdict; /* "AC", "WA" ...; NULL: a test */
    const char *group;   /* the subtask it belongs to, or NULL */
    struct grade_bytes expected;
    uint64_t cpu_ns, memory_bytes;
    double score, points; /* reached and possible */
};

/* A subtask: its points count only as a whole. */
struct grade_group {
    const char *name;
    double score, points;
};

struct grade_outcome {
    const char *kind; /* "tests" or "judge" */
    const char *submission;
    const char *language; /* NULL: a command */
    const char *mode;     /* how tests and submission were kept apart; NULL: a judge */
    const char *verdict;  /* of the whole; tests: NULL, or "SE" where there were none to run */
    const char
        *enforcement;  /* a JSON object: the wall around the submission; NULL: never started */
    const char *error; /* what kept the whole from running (a compiler's words), or NULL */
    struct grade_test *tests;
    size_t n_tests;
    struct grade_group *groups;
    size_t n_groups;
    size_t passed, failed, errors, skipped, not_run;
    uint64_t total_ns;
    double score, points; /* judge; meaningless while has_score is false */
    bool has_score;       /* false: tests, or a failure of ours that no score may come from */
    struct arena arena;   /* of every text above */
};

/* "passed", "failed", "error", "skipped", "not_run" */
const char *grade_status_name(enum grade_status status);
/* Sums of passed ... not_run from the rows. */
void grade_count(struct grade_outcome *outcome);
/* At most max bytes of it, copied into the arena; a cut never splits a UTF-8 character. */
int grade_keep(struct grade_outcome *outcome, const char *data, size_t len, size_t max,
               struct grade_bytes *ret);
/* Notes which wall stood, from the first run of the submission; later ones change nothing. */
struct result;
void grade_note_wall(struct grade_outcome *outcome, const struct result *result);
void grade_outcome_done(struct grade_outcome *outcome);

#endif
