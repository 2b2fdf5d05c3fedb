/* Errors on stderr. What they repeat, names of files and texts of others, cannot steer a terminal.
 */
#ifndef CLI_FAIL_H
#define CLI_FAIL_H

#include <cordon.h>

/* "Error: …" and the hint; returns the error's exit status. */
int cli_fail(const struct cordon_err *err);
void cli_warn(const struct cordon_err *err);

#endif
