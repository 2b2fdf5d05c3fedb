/* The field table and how its rows are found: by flag, by key, by environment variable. */
#ifndef POLICY_FIELDS_H
#define POLICY_FIELDS_H

#include <stdbool.h>
#include <stddef.h>

#include "policy/policy.h"

/* FIELD_COUNT_ when there is none. flag without the dashes. */
enum field_id fields_by_flag(const char *flag);
enum field_id fields_by_key(enum field_table table, const char *key);

/* As above with the key of any table; `deny_patterns` alone means the files' one. */
enum field_id fields_by_any_key(const char *key);

/* "sandbox", "sandbox.filesystem", "sandbox.network" */
const char *fields_table_name(enum field_table table);

bool fields_is_list(enum field_type type);

/* True for types whose flag may stand without a value. */
bool fields_value_is_optional(enum field_type type);

/* The words of an enum type in the order of the C enum, ending with NULL; NULL for other types. */
const char *const *fields_words(enum field_type type);

/* Smallest accepted number: 0 would mean "nothing" or, to the kernel, "no limit at all". */
uint64_t fields_min(enum field_id id);

/* "CORDON_TIME_LIMIT"; size is enough with FIELDS_ENV_MAX. False for a row without a flag. */
#define FIELDS_ENV_MAX 64
bool fields_env_name(enum field_id id, char *ret_name, size_t size);
bool fields_env_of_flag(const char *flag, char *ret_name, size_t size);

/* Number of single-letter edits (insert, delete, change, swap) between two words, at most max + 1.
 */
unsigned fields_distance(const char *a, const char *b, unsigned max);

/* Keeps the nearest of the candidates shown to it one by one: what the user probably meant. */
struct fields_near {
    const char *word;
    const char *best; /* NULL while nothing is near enough */
    unsigned distance;
};
struct fields_near fields_near_start(const char *word);
void fields_near_try(struct fields_near *near, const char *candidate);

#endif
