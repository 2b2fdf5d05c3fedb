/* What the tests' side reports, read into rows. Pure but for the arena. */
#ifndef GRADE_TESTS_READ_H
#define GRADE_TESTS_READ_H

#include "grade/tests.h"

int tests_read_names(struct grade_outcome *o, const char *data, size_t len, struct cordon_err *err);
/* false: not in order. */
bool tests_read_begin(struct tests_run *r, const char *data, size_t len);
bool tests_read_result(struct tests_run *r, const char *data, size_t len);
bool tests_read_broken(struct tests_run *r, const char *data, size_t len);

#endif
