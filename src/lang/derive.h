/* Policies of the steps of a source run, made from the caller's. They borrow everything: valid as
 * long as the caller's policy and the arena, never freed. */
#ifndef LANG_DERIVE_H
#define LANG_DERIVE_H

#include <cordon.h>

#include "base/arena.h"
#include "lang/registry.h"
#include "lang/tool.h"
#include "policy/policy.h"

/* What the run itself gets on top: the language's variables, its programs' folders, and (guard not
 * NULL) the variables of module control. */
int lang_derive_run(const struct policy *from, const struct lang *lang,
                    const struct lang_tools *tools, const char *venv, const char *const *guard,
                    struct arena *arena, struct policy *ret, struct cordon_err *err);
/* The compile step: as the run, with limits of its own. */
void lang_derive_compile(const struct policy *run, uint64_t artifact_bytes, struct policy *ret);
/* Checking imports: as the run; its output is ours and is not cut short. */
void lang_derive_check(const struct policy *run, struct policy *ret);

/* Is one of the language's programs outside the caller's allowed_binaries? */
int lang_derive_binaries(const struct policy *policy, const struct lang *lang,
                         struct cordon_err *err);

#endif
