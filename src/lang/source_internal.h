/* Shared by the files of a source run only. */
#ifndef LANG_SOURCE_INTERNAL_H
#define LANG_SOURCE_INTERNAL_H

#include "lang/source.h"

/* The bytes of the source, read at most once: what is hashed, checked and compiled is the same. */
int source_load(struct lang_job *job, const char **ret_text, size_t *ret_len,
                struct cordon_err *err);
/* Which language it is, where the source lies inside, the policy of the last guest and what its
 * imports are checked with (*ret_guard, NULL: nothing). */
int source_outline(struct lang_job *job, const char *const **ret_guard, struct cordon_err *err);
/* Do the guest's programs come from this host? Otherwise only a guest can tell which there are. */
bool source_is_hosts(const struct policy *p);

#endif
