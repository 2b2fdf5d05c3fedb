/* Compiled artefacts, kept by the hash of everything they were made from.
 *
 * A folder of the caller's own, $XDG_CACHE_HOME/cordon/artifacts, mode 0700, that no guest is ever
 * shown. Files are complete from the moment they have their name, so any number of Cordons may read
 * and write at once. Every failure here means "not cached": a cache never stops a run. */
#ifndef LANG_CACHE_H
#define LANG_CACHE_H

#include <stddef.h>
#include <stdint.h>

#define LANG_CACHE_BYTES ((uint64_t)512 << 20) /* of all files together; the oldest go first */

/* A descriptor of the folder, made where it is missing; -1: there is none we may trust. vars is the
 * caller's environment. */
int lang_cache_open(char *const *vars);
/* A descriptor to read the artefact from, -1: it is not there. */
int lang_cache_get(int dir, const char *key);
/* Writes it and drops the oldest files beyond max_bytes. */
int lang_cache_put(int dir, const char *key, const void *data, size_t len, uint64_t max_bytes);

#endif
