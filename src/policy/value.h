/* One setting, from any source, as a checked value that is not merged yet. */
#ifndef POLICY_VALUE_H
#define POLICY_VALUE_H

#include "policy/policy.h"

/* What a reader knows about the place a text comes from. All pointers are borrowed. */
struct value_ctx {
    const char *where; /* starts every message: "--time-limit", "cordon.toml:3:14: time_limit" */
    int code;          /* CORDON_ERR_USAGE for flags, CORDON_ERR_CONFIG for files and variables */
    const char *base;  /* absolute folder that relative paths start from */
    char *const *environ; /* where a bare `env` name takes its value from */
    struct origin origin; /* copied into what is made; the name is duplicated */
    bool optional;        /* built-in profile: a missing path is skipped at the start */
    struct cordon_err *err;
};

struct assign {
    enum field_id id;
    bool clear; /* a list was said to be `false`: what came before goes, then the items count */
    struct policy_value value;
};

/* Scalars and single list items; a list also takes `false`. text NULL is a bare flag. */
int value_from_text(const struct value_ctx *ctx, enum field_id id, const char *text,
                    struct assign *ret_assign);

/* The same for a comma-separated list, as environment variables have it. */
int value_from_commas(const struct value_ctx *ctx, enum field_id id, const char *text,
                      struct assign *ret_assign);

/* A file given as bytes instead of a host path; text is its name in the guest. */
int value_from_data(const struct value_ctx *ctx, const char *text, const void *data, size_t len,
                    struct assign *ret_assign);

/* For readers of structured input: appends one item, or sets a scalar, in an assignment that was
 * started with value_start. */
void value_start(struct assign *assign, enum field_id id);
int value_add_item(const struct value_ctx *ctx, struct assign *assign, const char *text);
int value_set_scalar(const struct value_ctx *ctx, struct assign *assign, const char *text);

/* Makes `written`, origin and `set`; called last. written NULL: made from the items. */
int value_finish(const struct value_ctx *ctx, struct assign *assign, const char *written);

/* "--time-limit: '5x' is not a duration; ..." with the context's code; returns -1. */
int value_refuse(const struct value_ctx *ctx, const char *text, const char *why);

/* Absolute and without empty, "." and ".." parts; freed by the caller, NULL: out of memory. */
char *value_path(const char *base, const char *path);

/* The value of a variable in a list of "NAME=value" strings (NULL is an empty one), or NULL. */
const char *value_env(char *const *vars, const char *name, size_t len);

void assign_done(struct assign *assign);

/* policy.c */
void policy_value_done(struct policy_value *value);
void policy_item_done(struct policy_item *item);
/* Moves *item to the end of the value's items; 0, or -1 without memory (the item stays the
 * caller's). */
int policy_value_push(struct policy_value *value, struct policy_item *item);
void policy_value_drop(struct policy_value *value, size_t index);
int policy_origin_copy(const struct origin *from, struct origin *ret);

#endif
