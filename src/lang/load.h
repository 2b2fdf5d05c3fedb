/* Reading the source the caller named, on the host. */
#ifndef LANG_LOAD_H
#define LANG_LOAD_H

#include <stddef.h>

#include <cordon.h>

/* The first bytes of a regular file that is to be run. *ret_len is SIZE_MAX for a pipe, of which
 * nothing was read. Anything else is CORDON_ERR_USAGE. */
int lang_load_head(const char *path, char *ret_head, size_t size, size_t *ret_len,
                   struct cordon_err *err);
/* All of it, to be freed; path "-" is standard input. Never NULL, a NUL follows the bytes. */
int lang_load_file(const char *path, size_t max, char **ret_text, size_t *ret_len,
                   struct cordon_err *err);

#endif
