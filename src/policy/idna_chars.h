/* What single code points are to IDNA, and their canonical composition. Pure; for idna.c. */
#ifndef POLICY_IDNA_CHARS_H
#define POLICY_IDNA_CHARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/idna_table.h"

#define IDNA_EXPANDS_MAX 18 /* code points one is mapped to at most */

/* The code points that stand for one in a name: itself, others or none; -1: not in a name. */
int idna_map(uint32_t point, uint32_t ret[static IDNA_EXPANDS_MAX]);

/* In a name as it is, beyond ASCII. */
bool idna_is_valid(uint32_t point);

unsigned idna_combining(uint32_t point);
enum idna_bidi idna_bidi_of(uint32_t point);
enum idna_joining idna_joining_of(uint32_t point);
bool idna_is_mark(uint32_t point);

/* Normalisation form C in place, of mapped or valid code points. The new number of them; false
 * when there is no room for what is between. */
bool idna_compose(uint32_t *points, size_t *n, size_t max);

#endif
