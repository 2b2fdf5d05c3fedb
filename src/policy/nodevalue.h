/* A TOML value as a checked setting: right type, right unit, every item with its own place. */
#ifndef POLICY_NODEVALUE_H
#define POLICY_NODEVALUE_H

#include "policy/toml.h"
#include "policy/value.h"

/* ctx->origin.name is the file's name and ctx->where is ignored; the rest as in value.h. */
int nodevalue_read(const struct value_ctx *ctx, enum field_id id, const struct toml_node *node,
                   struct assign *ret_assign);

/* A list of strings that ends with NULL, for tables outside the field table. A string is split at
 * blanks when split is set, else refused. Freed with nodevalue_strings_free. */
int nodevalue_strings(const struct value_ctx *ctx, const struct toml_node *node, bool split,
                      char ***ret_strings);
void nodevalue_strings_free(char **strings);

/* "cordon.toml:3:1: " and the message, CORDON_ERR_CONFIG; returns -1. */
int nodevalue_error(const struct value_ctx *ctx, struct toml_pos pos, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
