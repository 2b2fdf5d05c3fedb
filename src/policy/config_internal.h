/* Shared by the two files that read configuration tables. */
#ifndef POLICY_CONFIG_INTERNAL_H
#define POLICY_CONFIG_INTERNAL_H

#include "policy/config.h"
#include "policy/fields.h"
#include "policy/toml.h"

struct config_reader {
    struct value_ctx ctx;
    struct config *config;
};

/* Reads one setting into the scope; a second one of the same field is refused. */
int config_scope_add(struct config_reader *r, struct scope *scope, enum field_id id,
                     const struct toml_node *node);

int config_expect_table(struct config_reader *r, const struct toml_node *node);

/* "unknown key ... in [table]" with the table it belongs in, or else the nearest key. */
int config_unknown_key(struct config_reader *r, const struct toml_node *node, const char *table,
                       const struct fields_near *near, const char *elsewhere);

/* The key serves as the name of a profile or of a language. */
bool config_is_name(const struct toml_node *node);

int config_read_test(struct config_reader *r, const struct toml_node *table);
int config_read_languages(struct config_reader *r, const struct toml_node *table);

#endif
