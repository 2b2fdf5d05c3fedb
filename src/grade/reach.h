/* What a submission must not reach: tests, expected outputs, checkers, results. Every way to grade
 * asks here before anything of the submission runs.
 *
 * Runs in the command; looks at the names of files, never into them. */
#ifndef GRADE_REACH_H
#define GRADE_REACH_H

#include <stddef.h>
#include <sys/types.h>

#include <cordon.h>

#include "base/arena.h"
#include "policy/policy.h"

/* A file or folder of the host that the submission is shown. */
struct reach_grant {
    const char *real;
    const char *origin; /* who said so: "--mount", "cordon.toml:3"; NULL: it is the runtime */
    dev_t dev;
    ino_t ino;
    enum field_id field;
};

struct reach {
    struct arena arena;
    struct reach_grant *grants;
    size_t n, cap;
};

/* Zero-initialised; reach_done() in any case. */
int reach_init(struct reach *r, const struct policy *policy, struct cordon_err *err);
/* -1: the submission would be shown it (CORDON_ERR_USAGE). what: "expected output", for the
 * message. The file need not be there yet; "-" is standard input; NULL is nothing. */
int reach_check(const struct reach *r, const char *path, const char *what, struct cordon_err *err);
void reach_done(struct reach *r);

#endif
