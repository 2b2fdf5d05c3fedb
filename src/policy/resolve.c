/* policy_resolve(): reads every layer in the order of precedence and merges it. Runs in the command
 * and in the library's supervisor, before anything of the guest exists. */
#include "policy/policy.h"

#include <errno.h>

#include "base/err.h"
#include "base/util.h"
#include "policy/fields.h"
#include "policy/levels.h"
#include "policy/merge.h"

struct resolver {
    const struct policy_input *in;
    struct merge merge;
    const char *cwd;
    const char *profile; /* the chosen one, or NULL */
    struct cordon_err *err;
};

static const char *env_get(char *const *vars, const char *name)
{
    size_t len = strlen(name);
    for (; vars && *vars; vars++) {
        if (strncmp(*vars, name, len) == 0 && (*vars)[len] == '=')
            return *vars + len + 1;
    }
    return NULL;
}

/* ---- levels ----------------------------------------------------------------------------------- */

static int apply_rows(struct resolver *r, const struct level_row *rows, char *origin, bool optional)
{
    struct value_ctx ctx = {.where = origin,
                            .code = CORDON_ERR_INTERNAL,
                            .base = r->cwd,
                            .origin = {.name = origin, .source = FROM_BUILTIN},
                            .optional = optional,
                            .err = r->err};
    merge_next_layer(&r->merge);
    for (; rows->key; rows++) {
        struct assign a;
        if (value_from_text(&ctx, fields_by_any_key(rows->key), rows->value, &a) < 0 ||
            merge_apply(&r->merge, &a, r->err) < 0)
            return -1;
    }
    return 0;
}

static int apply_level(struct resolver *r, const struct level *level)
{
    char origin[64];
    snprintf(origin, sizeof(origin), "%s %s", level->is_profile ? "profile" : "level", level->name);
    if (apply_rows(r, level->rows, origin, level->is_profile) < 0)
        return -1;
    if (level->scratch_is_capped)
        r->merge.scratch_capped = r->merge.layer;
    return 0;
}

static int apply_base(struct resolver *r)
{
    char origin[] = "default";
    return apply_rows(r, levels_base, origin, false);
}

/* ---- environment ------------------------------------------------------------------------------ */

static int refuse_near_miss(struct resolver *r, const char *name)
{
    /* Other programs may own other CORDON_ names; one letter off is a typing error that would
     * silently leave a limit at its default. */
    char known[FIELDS_ENV_MAX];
    for (unsigned id = 0; id < FIELD_COUNT_; id++) {
        if (fields_env_name((enum field_id)id, known, sizeof(known)) &&
            fields_distance(name, known, 1) == 1)
            return err_set(r->err, CORDON_ERR_CONFIG, "policy", 0,
                           "unknown variable %s (did you mean %s?)", name, known);
    }
    return 0;
}

static int apply_variable(struct resolver *r, const char *entry)
{
    static const char prefix[] = "CORDON_";
    char name[FIELDS_ENV_MAX], flag[FIELDS_ENV_MAX];
    size_t len = strcspn(entry, "=");
    if (len >= sizeof(name) || entry[len] != '=')
        return 0;
    memcpy(name, entry, len);
    name[len] = '\0';
    size_t n = 0;
    for (const char *p = name + strlen(prefix); *p; p++)
        flag[n++] = *p == '_' ? '-' : (*p >= 'A' && *p <= 'Z') ? (char)(*p | 0x20) : '\0';
    flag[n] = '\0';

    if (str_eq(flag, "profile") || str_eq(flag, "config"))
        return 0;
    enum field_id id = strlen(flag) == n ? fields_by_flag(flag) : FIELD_COUNT_;
    if (id == FIELD_COUNT_)
        return refuse_near_miss(r, name);

    struct value_ctx ctx = {.where = name,
                            .code = CORDON_ERR_CONFIG,
                            .base = r->cwd,
                            .environ = r->in->environ,
                            .origin = {.name = name, .source = FROM_ENV},
                            .err = r->err};
    struct assign a;
    if (value_from_commas(&ctx, id, entry + len + 1, &a) < 0)
        return -1;
    return merge_apply(&r->merge, &a, r->err);
}

static int apply_environment(struct resolver *r)
{
    merge_next_layer(&r->merge);
    for (char *const *e = r->in->environ; e && *e; e++) {
        if (str_starts(*e, "CORDON_") && apply_variable(r, *e) < 0)
            return -1;
    }
    return merge_check_broad(&r->merge, r->err);
}

/* ---- command line ----------------------------------------------------------------------------- */

static int unknown_setting(struct resolver *r, const char *name)
{
    struct fields_near near = fields_near_start(name);
    for (size_t id = 0; id < FIELD_COUNT_; id++) {
        if (*policy_fields[id].flag)
            fields_near_try(&near, policy_fields[id].flag);
        fields_near_try(&near, policy_fields[id].key);
    }
    if (near.best)
        return err_set(r->err, CORDON_ERR_USAGE, "policy", 0,
                       "unknown setting '%s' (did you mean '%s'?)", name, near.best);
    return err_set(r->err, CORDON_ERR_USAGE, "policy", 0, "unknown setting '%s'", name);
}

static int apply_setting(struct resolver *r, const struct policy_setting *setting)
{
    char where[FIELDS_ENV_MAX + 2];
    enum field_id id = fields_by_flag(setting->name);
    const char *dashes = id < FIELD_COUNT_ ? "--" : "";
    if (id == FIELD_COUNT_)
        id = fields_by_any_key(setting->name);
    if (id == FIELD_COUNT_)
        return unknown_setting(r, setting->name);

    snprintf(where, sizeof(where), "%s%s", dashes, setting->name);
    struct value_ctx ctx = {.where = where,
                            .code = CORDON_ERR_USAGE,
                            .base = r->cwd,
                            .environ = r->in->environ,
                            .origin = {.name = where, .source = FROM_COMMAND},
                            .err = r->err};
    struct assign a;
    if (setting->data && id != FIELD_FILES)
        return err_set(r->err, CORDON_ERR_USAGE, "policy", 0, "%s: takes no file contents", where);
    if (setting->data) {
        if (value_from_data(&ctx, setting->value ? setting->value : "", setting->data,
                            setting->data_len, &a) < 0)
            return -1;
    } else if (value_from_text(&ctx, id, setting->value, &a) < 0) {
        return -1;
    }
    return merge_apply(&r->merge, &a, r->err);
}

static int apply_settings(struct resolver *r)
{
    merge_next_layer(&r->merge);
    for (size_t i = 0; i < r->in->n_settings; i++) {
        if (apply_setting(r, &r->in->settings[i]) < 0)
            return -1;
    }
    return merge_check_broad(&r->merge, r->err);
}

/* ---- the whole -------------------------------------------------------------------------------- */

static int unknown_profile(struct resolver *r, const char *name)
{
    struct fields_near near = fields_near_start(name);
    for (size_t i = 0; levels_at(i); i++)
        fields_near_try(&near, levels_at(i)->name);
    if (near.best)
        return err_set(r->err, CORDON_ERR_CONFIG, "policy", 0,
                       "unknown profile '%s' (did you mean '%s'?)", name, near.best);
    return err_set(r->err, CORDON_ERR_CONFIG, "policy", 0, "unknown profile '%s'", name);
}

static int apply_profile(struct resolver *r)
{
    if (!r->profile)
        return 0;
    const struct level *level = levels_find(r->profile);
    return level ? apply_level(r, level) : unknown_profile(r, r->profile);
}

static int resolve(struct resolver *r)
{
    r->profile = r->in->profile ? r->in->profile : env_get(r->in->environ, "CORDON_PROFILE");
    r->merge.policy->profile = strdup(r->profile ? r->profile : "default");
    if (!r->merge.policy->profile)
        return err_nomem(r->err, "policy");

    if (apply_base(r) < 0 || apply_level(r, levels_find("default")) < 0 || apply_profile(r) < 0 ||
        apply_environment(r) < 0 || apply_settings(r) < 0)
        return -1;
    return merge_finish(&r->merge, r->cwd, r->err);
}

int policy_resolve(const struct policy_input *input, struct policy **ret_policy, struct cordon_err *err)
{
    _cleanup_free_ char *own_cwd = NULL;
    if (!input->cwd) {
        own_cwd = getcwd(NULL, 0);
        if (!own_cwd)
            return err_set(err, CORDON_ERR_INTERNAL, "policy", errno, "working directory");
    }
    struct resolver r = {.in = input, .cwd = input->cwd ? input->cwd : own_cwd, .err = err};
    r.merge.policy = calloc(1, sizeof(*r.merge.policy));
    if (!r.merge.policy)
        return err_nomem(err, "policy");
    if (resolve(&r) < 0) {
        policy_free(r.merge.policy);
        return -1;
    }
    *ret_policy = r.merge.policy;
    return 0;
}
