/* What the filter does by options and arguments. Internal to the filter. */
#ifndef PLAN_SECCOMP_CHECK_H
#define PLAN_SECCOMP_CHECK_H

#include <stdint.h>

#include "plan/seccomp.h"
#include "plan/seccomp_asm.h"
#include "plan/seccomp_table.h"

/* The filter's answer to a refused call: the listener, or EPERM. */
uint32_t seccomp_check_refusal(const struct seccomp_options *options);

/* The rule of a call under these options; stays a check only if the arguments decide. */
uint16_t seccomp_check_resolve(const struct seccomp_options *options, uint16_t rule);

/* Writes the code of an argument check that seccomp_check_resolve left as one; returns its label.
 */
unsigned seccomp_check_emit(struct seccomp_asm *a, const struct seccomp_options *options,
                            enum seccomp_table_check check);

#endif
