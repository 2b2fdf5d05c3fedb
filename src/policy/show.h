/* Everything that tells people and programs about knobs, made from the field table: explain,
 * --help, cordon.toml(5), the JSON Schema, shell completions, profile listings. All write into a
 * buffer; what does not fit makes the buffer fail. */
#ifndef POLICY_SHOW_H
#define POLICY_SHOW_H

#include "base/buf.h"
#include "base/jsonw.h"
#include "policy/options.h"
#include "policy/policy.h"

/* "time_limit = 5s   cordon.toml:3", one line per value and per list item. */
void policy_explain_text(const struct policy *policy, struct buf *out);

/* Members "profile", "config_file", "user_file" and "settings" of an object the caller opened. */
void policy_explain_json(const struct policy *policy, struct jsonw *out);

/* The name a row has where rows of all tables stand together: its key, or "network.deny_patterns".
 */
const char *policy_shown_key(enum field_id id);

/* Option rows of --help: the verb's own, then those of the field table when with_policy. */
void policy_help(const struct options_own *own, size_t n_own, bool with_policy, struct buf *out);

/* The keys of one table in scdoc's language, for cordon.toml(5). */
void policy_man_keys(enum field_table table, struct buf *out);
/* The options of the field table in scdoc's language, for cordon(1). */
void policy_man_options(struct buf *out);

/* JSON Schema (2020-12) of cordon.toml. */
void policy_schema(struct buf *out);

/* A verb as completions see it. */
struct show_verb {
    const char *name;
    const char *doc;
    const struct options_own *own;
    size_t n_own;
    bool with_policy;
    const char *const *words; /* sub-commands, ending with NULL, or NULL */
};

/* shell is bash, zsh or fish; else CORDON_ERR_USAGE. */
int policy_completions(const char *shell, const struct show_verb *verbs, size_t n, struct buf *out,
                       struct cordon_err *err);

/* One line per level and profile: name, where it is said, what it is for. */
int policy_profiles_ls(const struct policy_input *input, struct buf *out, struct cordon_err *err);

/* The policy a run with that profile would have, as explain shows it; unknown names are an error.
 */
int policy_profiles_show(const struct policy_input *input, const char *name, struct buf *out,
                         struct cordon_err *err);

#endif
