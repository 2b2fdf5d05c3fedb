/* What the two sides of a run are told: jobs and submissions. Runs in the supervisor. */
#ifndef GRADE_TESTS_SEND_H
#define GRADE_TESTS_SEND_H

#include "grade/tests.h"

/* The side the submission runs on: the tests' own in in-process mode. */
struct party *tests_theirs(struct tests_run *r);

/* The tests, to the desk. */
int tests_send_job(struct tests_run *r, struct cordon_err *err);
/* The submission, to its own side. */
int tests_send_source(struct tests_run *r, struct cordon_err *err);
/* The submission, into the interpreter of the tests: in-process mode. */
int tests_send_inside(struct tests_run *r, struct cordon_err *err);

#endif
