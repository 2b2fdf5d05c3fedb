/* How a run of tests ended, in words and as a verdict. Runs in the supervisor. */
#ifndef GRADE_TESTS_END_H
#define GRADE_TESTS_END_H

#include "grade/tests.h"

enum tests_end tests_end_of(const struct result *res);
/* Why the side the submission is on is gone; the first reason stays. */
void tests_note_end(struct tests_run *r, const struct party *p);
/* A process of it was ended for its memory, though it itself went on to the end. */
void tests_note_oom(struct tests_run *r, const struct party *p);
/* Does a test say so already? Then the suite need not. */
bool tests_is_told(const struct grade_outcome *o, const char *reason);

#endif
