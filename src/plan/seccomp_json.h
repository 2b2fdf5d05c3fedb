/* Typed access to a profile's JSON, with the place of every value for messages. Internal to the
 * profile reader. */
#ifndef PLAN_SECCOMP_JSON_H
#define PLAN_SECCOMP_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include <cordon.h>

#include "base/jsonr.h"

/* Where a value is: a chain on the stack, written out only for a message: syscalls[3].args[0].op */
struct seccomp_json_place {
    const struct seccomp_json_place *up; /* NULL: the document */
    const char *key;                     /* NULL: item `index` of a list */
    size_t index;
};

struct seccomp_json {
    const char *name; /* of the file */
    struct cordon_err *err;
};

#define SECCOMP_JSON_KEY(up_, key_) (&(const struct seccomp_json_place){.up = (up_), .key = (key_)})
#define SECCOMP_JSON_ITEM(up_, i_) (&(const struct seccomp_json_place){.up = (up_), .index = (i_)})

/* Sets the error with file and place; returns -1. */
int seccomp_json_fail(const struct seccomp_json *j, const struct seccomp_json_place *at,
                      const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Bytes that a terminal might obey become '?': names come from the file, messages go to a person.
 */
void seccomp_json_defuse(char *text);

/* An object with no other keys than these; `keys` is a string like " a b c ". */
int seccomp_json_keys(const struct seccomp_json *j, const struct seccomp_json_place *at,
                      const struct jsonr_node *object, const char *keys);

/* Members of an object. A missing or null one (Go writes empty lists so) gives NULL, a wrong type
 * is an error, and so is a string with a NUL in it: what comes behind it would be lost. */
int seccomp_json_get(const struct seccomp_json *j, const struct seccomp_json_place *at,
                     const struct jsonr_node *object, const char *key, enum jsonr_type type,
                     const struct jsonr_node **ret);
int seccomp_json_string(const struct seccomp_json *j, const struct seccomp_json_place *at,
                        const struct jsonr_node *object, const char *key, const char **ret);
/* A list whose items are all strings. */
int seccomp_json_strings(const struct seccomp_json *j, const struct seccomp_json_place *at,
                         const struct jsonr_node *object, const char *key,
                         const struct jsonr_node **ret);
int seccomp_json_unsigned(const struct seccomp_json *j, const struct seccomp_json_place *at,
                          const struct jsonr_node *object, const char *key, uint64_t max,
                          uint64_t *ret, bool *ret_given);

/* Is the string an item of the list (NULL: an empty one)? */
bool seccomp_json_has(const struct jsonr_node *list, const char *wanted);

#endif
