/* One item of a list: text to a checked struct policy_item, by the list's type. */
#ifndef POLICY_ITEM_H
#define POLICY_ITEM_H

#include "policy/value.h"

enum item_outcome { ITEM_ADDED, ITEM_SKIPPED, ITEM_REFUSED };

/* Fills text, extra and num of *item (zeroed by the caller, cleared by it as well whatever
 * happens). ITEM_SKIPPED: an `env` name that the host does not have. */
enum item_outcome item_parse(const struct value_ctx *ctx, enum field_id id, const char *text,
                             struct policy_item *item);

/* A plain relative file name inside the guest: no leading "/", no "..", not empty. */
bool item_is_safe_name(const char *name);

#endif
