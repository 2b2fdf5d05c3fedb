/* The command line of a verb, split: policy settings, the verb's own options, the words after them.
 *
 * Nothing is copied but the arrays: every string points into argv. */
#ifndef POLICY_OPTIONS_H
#define POLICY_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "policy/policy.h"

enum options_arg { OPTIONS_NONE, OPTIONS_REQUIRED, OPTIONS_OPTIONAL };

/* One option of the verb itself. An id may be used for several rows (a synonym). */
struct options_own {
    const char *name; /* long name without the dashes, or NULL */
    char letter;      /* short name, or 0 */
    enum options_arg arg;
    int id;
    const char *arg_name; /* for --help: "FILE", or NULL */
    const char *doc;      /* for --help, or NULL to hide it */
};

struct options_hit {
    int id;
    const char *value; /* NULL when bare */
    bool from_environ;
};

struct options {
    struct policy_setting *settings; /* in order, for policy_input */
    size_t n_settings;
    struct options_hit *own; /* in order */
    size_t n_own;
    const char *profile;     /* --profile, --sandbox=NAME */
    const char *config_file; /* --config */
    bool has_dashes;         /* the words were introduced by `--` */
    int argc;                /* the words that are no options: FILE ARG..., or CMD ARG... */
    char **argv;             /* points into the given argv */
};

/* argv[0] is the verb and is skipped. Option parsing ends at the first word that is no option, at
 * `-` (a word) or at `--` (dropped). with_policy: the field table's flags, --profile, --sandbox,
 * --sandbox-log and --config are accepted as well. A wrong line is CORDON_ERR_USAGE. */
int options_parse(int argc, char **argv, const struct options_own *own, size_t n_own,
                  bool with_policy, struct options *ret_options, struct cordon_err *err);
/* Options of the given rows that the line leaves out, from CORDON_ and their long name; *options is
 * of a line that was parsed with at least these rows. A wrong value is CORDON_ERR_CONFIG. */
int options_environ(struct options *options, const struct options_own *own, size_t n_own,
                    char *const *vars, struct cordon_err *err);
void options_done(struct options *options);

bool options_has(const struct options *options, int id);
/* Its value comes from a variable, not from the line. */
bool options_is_variable(const struct options *options, int id);
/* Value of the last one given; NULL when absent or bare. */
const char *options_get(const struct options *options, int id);

/* The input for policy_resolve; borrows from *options. */
struct policy_input options_input(const struct options *options, char *const *vars);

#endif
