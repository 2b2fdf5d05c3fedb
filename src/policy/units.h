/* Text to numbers: durations, sizes, percents, counts, booleans. Strict: no blanks, no signs, no
 * exponents, no silent rounding. Each function gives NULL, or why the text was refused as the end
 * of a sentence that starts with the text in quotes ("is not a size; write ..."). */
#ifndef POLICY_UNITS_H
#define POLICY_UNITS_H

#include <stdbool.h>
#include <stdint.h>

#define UNITS_DURATION_MAX_NS (100ull * 365 * 24 * 3600 * 1000000000) /* a hundred years */
#define UNITS_SIZE_MAX ((uint64_t)INT64_MAX)
#define UNITS_COUNT_MAX ((uint64_t)INT32_MAX)
#define UNITS_PERCENT_MAX 1000000ull /* ten thousand cores */

const char *units_duration(const char *text, uint64_t *ret_ns);
const char *units_size(const char *text, uint64_t *ret_bytes);
const char *units_percent(const char *text, uint64_t *ret_percent);
const char *units_count(const char *text, uint64_t *ret_count);
const char *units_port(const char *text, uint64_t *ret_port); /* 1..65535 */
const char *units_bool(const char *text, bool *ret_value);

#endif
