/* Levels and built-in profiles: policies that need no file. */
#ifndef POLICY_LEVELS_H
#define POLICY_LEVELS_H

#include <stdbool.h>
#include <stddef.h>

/* A row reads like a setting on the command line; a NULL key ends the list. */
struct level_row {
    const char *key; /* as fields_by_any_key takes it */
    const char *value;
};

struct level {
    const char *name;
    bool is_profile;        /* "profile testing" rather than "level strict" */
    bool scratch_is_capped; /* scratch_size is at most the memory limit */
    const char *doc;
    const struct level_row *rows;
    const char *imports; /* Python modules for cordon.runner, separated by blanks, or NULL */
};

/* What holds below every level: nothing a level says. */
extern const struct level_row levels_base[];

/* `default` is another name of `standard`; NULL when there is none of that name. */
const struct level *levels_find(const char *name);

/* In the order of the documentation; NULL after the last. */
const struct level *levels_at(size_t index);

#endif
