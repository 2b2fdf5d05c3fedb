/* A configuration file, read and checked as a whole but not merged: [sandbox] with its sub-tables,
 * profiles, [test], [languages.NAME]. */
#ifndef POLICY_CONFIG_H
#define POLICY_CONFIG_H

#include "policy/value.h"

/* The settings of one table and its sub-tables, in the order of the text. */
struct scope {
    struct assign *items;
    size_t n_items;
};

struct config_profile {
    char *name;
    char *inherits;        /* or NULL */
    unsigned line, column; /* of the table */
    unsigned inherits_line, inherits_column;
    struct scope scope;
};

struct config {
    char *path; /* absolute */
    char *name; /* as messages and origins show it */
    enum origin_source source;
    struct scope sandbox;
    struct config_profile *profiles;
    size_t n_profiles;
    /* [test] */
    char *test_profile; /* sandbox = "NAME", or NULL */
    unsigned test_line, test_column;
    struct scope test;
    char **test_command;
    struct policy_language *languages;
    size_t n_languages;
};

struct config_source {
    const char *path; /* absolute; its folder is where relative paths start */
    const char *name;
    enum origin_source source;
    char *const *environ;
};

/* Pure: text in, checked settings out. Every table is checked, also profiles nobody chose. */
int config_parse(const struct config_source *from, const char *text, size_t len,
                 struct config **ret_config, struct cordon_err *err);
void config_free(struct config *config);

struct config_profile *config_find_profile(const struct config *config, const char *name);

/* policy.c */
void policy_language_done(struct policy_language *language);

#endif
