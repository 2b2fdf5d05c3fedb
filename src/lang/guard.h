/* Module control for Python: what the guest-side checker is told. Pure. */
#ifndef LANG_GUARD_H
#define LANG_GUARD_H

#include <stdbool.h>

#include <cordon.h>

#include "base/arena.h"
#include "policy/policy.h"

#define LANG_GUARD_FILE ".cordon/sitecustomize.py"
#define LANG_GUARD_DIR ".cordon"
#define LANG_GUARD_REFUSED 77 /* exit status of the checker */

/* guard_text.c, made from python/cordon/guest/guard.py by tools/embed. */
extern const char lang_guard_text[];

/* Did the caller ask for module control? */
bool lang_guard_wanted(const struct policy *policy);
/* Variables for the checker and the hook, ending with NULL; dir is the hook's folder as the guest
 * sees it. A name that is no module's is an error. */
/* The option by which a command line asks for module control, or NULL. That of a file or variable
 * is for the Python among many programs. */
const char *lang_guard_option(const struct policy *policy);
int lang_guard_vars(const struct policy *policy, const char *dir, struct arena *arena,
                    const char *const **ret, struct cordon_err *err);

#endif
