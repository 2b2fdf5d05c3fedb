/* Which command runs a project's tests? Looked up by the files in its folder.
 *
 * The project may be a stranger's: files are looked at on the host, bounded, never followed out of
 * the folder and never run; what they say is run inside. */
#ifndef GRADE_DETECT_H
#define GRADE_DETECT_H

#include <stdbool.h>

#include <cordon.h>

#include "base/arena.h"

struct detect {
    const char *name;       /* "pytest", "go test" ... */
    char **argv;            /* ends with NULL; in the arena */
    const char *const *env; /* "K=V", what this runner wants inside; ends with NULL */
    bool writes_junit;      /* with junit: to the path that was asked for */
};

/* junit: path inside at which a runner that can is to write JUnit XML, or NULL. venv: the Python
 * environment of the run, or NULL. Nothing found is CORDON_ERR_USAGE. */
int detect_tests(const char *folder, const char *venv, const char *junit, struct arena *arena,
                 struct detect *ret, struct cordon_err *err);

#endif
