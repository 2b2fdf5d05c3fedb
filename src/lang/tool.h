/* Where a language's programs are on this host, and what of it the guest must be shown. Reads the
 * host's folders (stat, readlink, glob); runs nothing. */
#ifndef LANG_TOOL_H
#define LANG_TOOL_H

#include <stdbool.h>
#include <stddef.h>

#include <cordon.h>

#include "base/arena.h"
#include "lang/registry.h"
#include "policy/policy.h"

#define LANG_GUEST_PATH "/usr/local/bin:/usr/bin:/bin"

/* Strings live in the arena they were found with. */
struct lang_tool {
    const char *real;  /* the file itself, links followed */
    const char *dir;   /* folder to add to the guest's PATH, NULL: it is in it already */
    const char *mount; /* host path to show read-only at the same path, NULL: /usr has it all */
};

struct lang_tools {
    struct lang_tool *list;
    size_t n;
};

/* All programs the language needs: in the guest's own PATH, else in the caller's (vars is an
 * environment, NULL: none), else where version managers keep them. CORDON_ERR_HOST names the Debian
 * package when one is missing. */
int lang_tool_all(const struct lang *lang, char *const *vars, struct arena *arena,
                  struct lang_tools *ret, struct cordon_err *err);

/* Always -1: *err is CORDON_ERR_HOST and says that the language needs `name`, and `how` it lacks.
 */
int lang_tool_missing(const struct lang *lang, const char *name, const char *how,
                      struct cordon_err *err);

/* A virtual environment: its folder and, where that is outside /usr, the interpreter's own. */
int lang_tool_venv(const struct policy *policy, char *const *vars, struct arena *arena,
                   struct lang_tools *ret, struct cordon_err *err);

#endif
