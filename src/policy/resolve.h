/* Parts of resolving that other readers of files need. */
#ifndef POLICY_RESOLVE_H
#define POLICY_RESOLVE_H

#include "policy/config.h"

/* Strongest first. */
enum { RESOLVE_PROJECT, RESOLVE_USER, RESOLVE_N_FILES };

/* The files that count for the input; NULL where there is none. The caller frees them with
 * config_free, also after a failure. */
/* The working directory, or a name that does not exist when there is none; the caller frees it. */
char *resolve_cwd(void);
int resolve_load_files(const struct policy_input *input, const char *cwd,
                       struct config *files[static RESOLVE_N_FILES], struct cordon_err *err);

#endif
