/* policy_resolve(): reads every layer in the order of precedence and merges it. Runs in the command
 * and in the library's supervisor, before anything of the guest exists. */
#include "policy/policy.h"

#include <errno.h>

#include "base/err.h"
#include "base/util.h"
#include "policy/config.h"
#include "policy/discover.h"
#include "policy/fields.h"
#include "policy/levels.h"
#include "policy/merge.h"
#include "policy/nodevalue.h"
#include "policy/resolve.h"

enum { INHERITS_MAX = 32 };

struct resolver {
    const struct policy_input *in;
    struct merge merge;
    const char *cwd;
    struct config *files[RESOLVE_N_FILES]; /* NULL where there is none */
    struct cordon_err *err;
};

/* ---- levels -----------------------------------------------------------------------------------
 */

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

/* ---- environment ------------------------------------------------------------------------------
 */

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

    if (str_eq(flag, "profile") || str_eq(flag, "sandbox") || str_eq(flag, "config"))
        return 0;
    if (str_eq(flag, "sandbox-log"))
        n = (size_t)snprintf(flag, sizeof(flag), "%s", policy_fields[FIELD_LOG].flag);
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

/* ---- command line -----------------------------------------------------------------------------
 */

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

/* ---- files ------------------------------------------------------------------------------------
 */

int resolve_load_files(const struct policy_input *input, const char *cwd,
                       struct config *files[static RESOLVE_N_FILES], struct cordon_err *err)
{
    struct discover_where where = {cwd, input->environ};
    const char *named = input->config_file;
    if (!named)
        named = value_env(input->environ, "CORDON_CONFIG", strlen("CORDON_CONFIG"));
    if (!input->no_discovery && discover_user(&where, &files[RESOLVE_USER], err) < 0)
        return -1;
    if (named)
        return discover_named(&where, named, &files[RESOLVE_PROJECT], err);
    return input->no_discovery ? 0 : discover_project(&where, &files[RESOLVE_PROJECT], err);
}

/* Moves the settings out of the scope. */
static int apply_scope(struct resolver *r, struct scope *scope)
{
    merge_next_layer(&r->merge);
    for (size_t i = 0; i < scope->n_items; i++) {
        if (merge_apply(&r->merge, &scope->items[i], r->err) < 0)
            return -1;
    }
    return 0;
}

static int apply_sandbox_tables(struct resolver *r)
{
    for (size_t f = RESOLVE_N_FILES; f-- > 0;) {
        if (r->files[f] && apply_scope(r, &r->files[f]->sandbox) < 0)
            return -1;
    }
    return 0;
}

/* ---- profiles ---------------------------------------------------------------------------------
 */

/* Where a name leads: a profile of files[file], or a level when file is RESOLVE_N_FILES. */
struct profile_ref {
    size_t file;
    struct config_profile *profile;
    const struct level *level;
};

static bool find_profile(const struct resolver *r, const char *name, size_t from,
                         struct profile_ref *ret)
{
    for (size_t f = from; f < RESOLVE_N_FILES; f++) {
        struct config_profile *p = config_find_profile(r->files[f], name);
        if (p) {
            *ret = (struct profile_ref){.file = f, .profile = p};
            return true;
        }
    }
    *ret = (struct profile_ref){.file = RESOLVE_N_FILES, .level = levels_find(name)};
    return ret->level != NULL;
}

/* A profile that inherits its own name means the one it replaces. */
static bool find_parent(const struct resolver *r, const struct profile_ref *of,
                        struct profile_ref *ret)
{
    const char *name = of->profile->inherits;
    return find_profile(r, name, str_eq(name, of->profile->name) ? of->file + 1 : 0, ret);
}

static int unknown_profile(struct resolver *r, const char *where, const char *name)
{
    struct fields_near near = fields_near_start(name);
    for (size_t i = 0; levels_at(i); i++)
        fields_near_try(&near, levels_at(i)->name);
    for (size_t f = 0; f < RESOLVE_N_FILES; f++) {
        for (size_t i = 0; r->files[f] && i < r->files[f]->n_profiles; i++)
            fields_near_try(&near, r->files[f]->profiles[i].name);
    }
    if (near.best)
        return err_set(r->err, CORDON_ERR_CONFIG, "policy", 0,
                       "%sunknown profile '%.100s' (did you mean '%s'?)", where, name, near.best);
    err_set(r->err, CORDON_ERR_CONFIG, "policy", 0, "%sunknown profile '%.100s'", where, name);
    return err_hint(r->err, "`cordon profile ls` lists the levels and profiles there are");
}

static int check_ancestry(struct resolver *r, size_t file, struct config_profile *profile)
{
    struct profile_ref at = {.file = file, .profile = profile};
    char where[640];
    for (unsigned depth = 0; at.profile && at.profile->inherits; depth++) {
        struct profile_ref parent;
        snprintf(where, sizeof(where), "%s:%u:%u: ", r->files[at.file]->name,
                 at.profile->inherits_line, at.profile->inherits_column);
        if (depth == INHERITS_MAX)
            return err_set(r->err, CORDON_ERR_CONFIG, "policy", 0,
                           "%sprofile '%s' inherits itself, or more than %d others", where,
                           profile->name, INHERITS_MAX);
        if (!find_parent(r, &at, &parent) && str_eq(at.profile->inherits, at.profile->name))
            return err_set(r->err, CORDON_ERR_CONFIG, "policy", 0,
                           "%sprofile '%s' inherits itself and replaces no other", where,
                           at.profile->name);
        if (!find_parent(r, &at, &parent))
            return unknown_profile(r, where, at.profile->inherits);
        at = parent;
    }
    return 0;
}

/* Names in files are checked whether they are used or not. */
static int check_names(struct resolver *r)
{
    for (size_t f = 0; f < RESOLVE_N_FILES; f++) {
        const struct config *c = r->files[f];
        struct profile_ref ref;
        for (size_t i = 0; c && i < c->n_profiles; i++) {
            if (check_ancestry(r, f, &c->profiles[i]) < 0)
                return -1;
        }
        if (c && c->test_profile && !find_profile(r, c->test_profile, 0, &ref)) {
            char where[640];
            snprintf(where, sizeof(where), "%s:%u:%u: ", c->name, c->test_line, c->test_column);
            return unknown_profile(r, where, c->test_profile);
        }
    }
    return 0;
}

/* What the user's own profile of this name denies, itself or by what it inherits, stays denied when
 * a project replaces it. Its grants and limits are replaced. */
static int apply_hidden(struct resolver *r, const char *name)
{
    struct config_profile *chain[INHERITS_MAX + 1];
    struct config_profile *at = config_find_profile(r->files[RESOLVE_USER], name);
    size_t n = 0;
    /* of the user's own ones, whatever a project put in their place */
    while (at && n < ARRAY_SIZE(chain)) {
        chain[n++] = at;
        at = at->inherits && !str_eq(at->inherits, at->name)
                 ? config_find_profile(r->files[RESOLVE_USER], at->inherits)
                 : NULL;
    }
    while (n-- > 0) { /* the ancestors first */
        struct scope *scope = &chain[n]->scope;
        merge_next_layer(&r->merge);
        for (size_t i = 0; i < scope->n_items; i++)
            if (merge_note_denial(&r->merge, &scope->items[i]) &&
                merge_apply(&r->merge, &scope->items[i], r->err) < 0)
                return -1;
    }
    return 0;
}

/* The ancestors first. check_ancestry has bounded the depth. */
static int apply_ref(struct resolver *r, const struct profile_ref *ref)
{
    if (ref->level)
        return apply_level(r, ref->level);
    struct profile_ref parent;
    if (ref->profile->inherits && find_parent(r, ref, &parent) && apply_ref(r, &parent) < 0)
        return -1;
    if (ref->file == RESOLVE_PROJECT && apply_hidden(r, ref->profile->name) < 0)
        return -1;
    return apply_scope(r, &ref->profile->scope);
}

/* And where it was chosen, for errors: a variable says nothing of itself. */
static const char *chosen_profile(const struct resolver *r, const char **ret_where)
{
    static const char *const variables[][2] = {{"CORDON_PROFILE", "CORDON_PROFILE: "},
                                               {"CORDON_SANDBOX", "CORDON_SANDBOX: "}};
    const char *name = NULL;
    *ret_where = "";
    if (r->in->profile)
        return r->in->profile;
    for (size_t i = 0; !name && i < ARRAY_SIZE(variables); i++) {
        *ret_where = variables[i][1];
        name = value_env(r->in->environ, variables[i][0], strlen(variables[i][0]));
    }
    if (name && str_eq(name, "true"))
        name = NULL; /* as the bare --sandbox: what there is anyway */
    for (size_t f = 0; !name && r->in->test && f < RESOLVE_N_FILES; f++)
        name = r->files[f] ? r->files[f]->test_profile : NULL;
    return name;
}

static int apply_profile(struct resolver *r)
{
    struct profile_ref ref;
    const char *where, *name = chosen_profile(r, &where);
    r->merge.policy->profile = strdup(name ? name : "default");
    if (!r->merge.policy->profile)
        return err_nomem(r->err, "policy");
    if (!name)
        return 0;
    if (!find_profile(r, name, 0, &ref))
        return unknown_profile(r, where, name);
    return apply_ref(r, &ref);
}

static int apply_test(struct resolver *r)
{
    for (size_t f = RESOLVE_N_FILES; r->in->test && f-- > 0;) {
        if (r->files[f] && apply_scope(r, &r->files[f]->test) < 0)
            return -1;
    }
    return 0;
}

/* ---- the whole --------------------------------------------------------------------------------
 */

static void take_languages(struct policy *p, struct config *c)
{
    for (size_t i = 0; i < c->n_languages; i++) {
        size_t same = 0;
        while (same < p->n_languages && !str_eq(p->languages[same].name, c->languages[i].name))
            same++;
        if (same < p->n_languages)
            policy_language_done(&p->languages[same]);
        else
            p->n_languages++;
        p->languages[same] = c->languages[i];
    }
    c->n_languages = 0;
}

/* What the files hold besides settings. */
static int take_rest(struct resolver *r)
{
    struct policy *p = r->merge.policy;
    size_t n = 0;
    for (size_t f = 0; f < RESOLVE_N_FILES; f++)
        n += r->files[f] ? r->files[f]->n_languages : 0;
    if (n > 0 && !(p->languages = calloc(n, sizeof(*p->languages))))
        return err_nomem(r->err, "policy");
    for (size_t f = RESOLVE_N_FILES; f-- > 0;) {
        struct config *c = r->files[f];
        if (!c)
            continue;
        take_languages(p, c);
        if (c->test_command) {
            nodevalue_strings_free(p->test_command);
            p->test_command = TAKE_PTR(c->test_command);
        }
        *(f == RESOLVE_PROJECT ? &p->config_file : &p->user_file) = TAKE_PTR(c->path);
    }
    return 0;
}

/* A profile for the filter must be there before anything is planned; the plan reads it. */
static int check_named_file(struct resolver *r)
{
    const struct policy_value *v = policy_value(r->merge.policy, FIELD_SECCOMP_PROFILE);
    if (!v->set || access(v->text, R_OK) == 0)
        return 0;
    int error = errno;
    if (!v->origin.line)
        return err_set(r->err, CORDON_ERR_CONFIG, "policy", error, "%s: %s", v->origin.name,
                       v->written);
    return err_set(r->err, CORDON_ERR_CONFIG, "policy", error, "%s:%u:%u: seccomp_profile: %s",
                   v->origin.name, v->origin.line, v->origin.column, v->written);
}

static int resolve(struct resolver *r)
{
    if (resolve_load_files(r->in, r->cwd, r->files, r->err) < 0 || check_names(r) < 0)
        return -1;
    if (apply_base(r) < 0 || apply_level(r, levels_find("standard")) < 0 ||
        apply_sandbox_tables(r) < 0 || apply_profile(r) < 0 || apply_test(r) < 0 ||
        apply_environment(r) < 0 || apply_settings(r) < 0)
        return -1;
    if (take_rest(r) < 0 || merge_finish(&r->merge, r->cwd, r->err) < 0)
        return -1;
    return check_named_file(r);
}

char *resolve_cwd(void)
{
    char *cwd = getcwd(NULL, 0);
    if (cwd && cwd[0] == '/')
        return cwd;
    free(cwd);
    return strdup(UTIL_CWD_GONE);
}

int policy_resolve(const struct policy_input *input, struct policy **ret_policy,
                   struct cordon_err *err)
{
    _cleanup_free_ char *own_cwd = NULL;
    if (!input->cwd) {
        own_cwd = resolve_cwd();
        if (!own_cwd)
            return err_nomem(err, "policy");
    }
    struct resolver r = {.in = input, .cwd = input->cwd ? input->cwd : own_cwd, .err = err};
    r.merge.policy = calloc(1, sizeof(*r.merge.policy));
    int result = r.merge.policy ? resolve(&r) : err_nomem(err, "policy");
    for (size_t f = 0; f < RESOLVE_N_FILES; f++)
        config_free(r.files[f]);
    if (result < 0) {
        policy_free(r.merge.policy);
        policy_err_clean(err);
        return -1;
    }
    *ret_policy = r.merge.policy;
    return 0;
}
