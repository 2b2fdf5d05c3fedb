/* Tables of cordon.toml. Pure: works on text, opens nothing (discover.c does). */
#include "policy/config_internal.h"

#include "base/err.h"
#include "base/util.h"
#include "policy/fields.h"
#include "policy/merge.h"
#include "policy/nodevalue.h"
#include "policy/toml.h"

static void scope_done(struct scope *scope)
{
    for (size_t i = 0; i < scope->n_items; i++)
        assign_done(&scope->items[i]);
    free(scope->items);
    *scope = (struct scope){0};
}

void config_free(struct config *config)
{
    if (!config)
        return;
    scope_done(&config->sandbox);
    scope_done(&config->test);
    for (size_t i = 0; i < config->n_profiles; i++) {
        scope_done(&config->profiles[i].scope);
        free(config->profiles[i].name);
        free(config->profiles[i].inherits);
    }
    free(config->profiles);
    for (size_t i = 0; i < config->n_languages; i++)
        policy_language_done(&config->languages[i]);
    free(config->languages);
    nodevalue_strings_free(config->test_command);
    free(config->test_profile);
    free(config->path);
    free(config->name);
    free(config);
}

struct config_profile *config_find_profile(const struct config *config, const char *name)
{
    for (size_t i = 0; config && i < config->n_profiles; i++) {
        if (str_eq(config->profiles[i].name, name))
            return &config->profiles[i];
    }
    return NULL;
}

/* ---- scopes -----------------------------------------------------------------------------------
 */

static const struct assign *scope_find(const struct scope *scope, enum field_id id)
{
    for (size_t i = 0; i < scope->n_items; i++) {
        if (scope->items[i].id == id)
            return &scope->items[i];
    }
    return NULL;
}

static int contradiction(struct config_reader *r, const struct assign *a, const char *a_says,
                         const struct assign *b)
{
    const struct origin *at = &a->value.origin, *other = &b->value.origin;
    struct toml_pos pos = {at->line, at->column};
    return nodevalue_error(&r->ctx, pos, "%s%s contradicts %s at %s:%u:%u",
                           policy_fields[a->id].key, a_says, policy_fields[b->id].key, other->name,
                           other->line, other->column);
}

/* True when the setting gives the guest something, rather than taking it away or naming a default.
 */
static bool grants(const struct assign *a)
{
    if (fields_is_list(policy_fields[a->id].type))
        return a->value.n_items > 0 || a->value.num != 0;
    return a->value.num != 0;
}

static int check_contradictions(struct config_reader *r, const struct scope *scope)
{
    static const struct {
        enum field_id denier;
        bool denies_when_true;
        const char *says;
        enum field_id grants[6];
        size_t n_grants;
    } rules[] = {
        {FIELD_ALLOW_FILESYSTEM,
         false,
         " = false",
         {FIELD_ALLOW_READ, FIELD_ALLOW_WRITE, FIELD_MOUNTS, FIELD_WORKSPACE},
         4},
        {FIELD_ALLOW_NETWORK,
         false,
         " = false",
         {FIELD_ALLOW_DOMAINS, FIELD_ALLOW_PATTERNS, FIELD_NETWORK, FIELD_PUBLISH,
          FIELD_ALLOW_HOST_PORT},
         5},
        {FIELD_VIRTUAL_FS, true, " = true", {FIELD_ALLOW_READ, FIELD_ALLOW_WRITE}, 2},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
        const struct assign *denier = scope_find(scope, rules[i].denier);
        if (!denier || grants(denier) != rules[i].denies_when_true)
            continue;
        /* An empty array of allow_network says nothing; only `false` denies. */
        if (fields_is_list(policy_fields[denier->id].type) && !denier->clear)
            continue;
        for (size_t g = 0; g < rules[i].n_grants; g++) {
            const struct assign *grant = scope_find(scope, rules[i].grants[g]);
            if (grant && grants(grant))
                return contradiction(r, denier, rules[i].says, grant);
        }
    }
    return 0;
}

static int check_broad(struct config_reader *r, const struct scope *scope)
{
    static const enum field_id lists[] = {FIELD_ALLOW_NETWORK, FIELD_ALLOW_DOMAINS,
                                          FIELD_ALLOW_PATTERNS};
    const struct assign *all = scope_find(scope, FIELD_ALLOW_NETWORK);
    if (all && all->value.num == 1)
        return 0;
    for (size_t l = 0; l < ARRAY_SIZE(lists); l++) {
        const struct assign *a = scope_find(scope, lists[l]);
        for (size_t i = 0; a && i < a->value.n_items; i++) {
            if (merge_refuse_broad(&a->value.items[i], CORDON_ERR_CONFIG, r->ctx.err) < 0)
                return -1;
        }
    }
    return 0;
}

int config_scope_add(struct config_reader *r, struct scope *scope, enum field_id id,
                     const struct toml_node *node)
{
    const struct assign *twice = scope_find(scope, id);
    if (twice)
        return nodevalue_error(&r->ctx, node->key_pos, "%s is set twice, first at %s:%u:%u",
                               node->key, twice->value.origin.name, twice->value.origin.line,
                               twice->value.origin.column);

    struct assign *items = reallocarray(scope->items, scope->n_items + 1, sizeof(*items));
    if (!items)
        return err_nomem(r->ctx.err, "policy");
    scope->items = items;
    if (nodevalue_read(&r->ctx, id, node, &items[scope->n_items]) < 0)
        return -1;
    scope->n_items++;
    return 0;
}

/* ---- keys -------------------------------------------------------------------------------------
 */

/* `files` is the name of `filesystem` inside the table that already bears that name. */
static enum field_id key_find(enum field_table table, const char *key)
{
    enum field_id id = fields_by_key(table, key);
    if (id == FIELD_COUNT_ && table == TABLE_FILESYSTEM && str_eq(key, "files"))
        return FIELD_FILES;
    if (id == FIELD_COUNT_ && table == TABLE_SANDBOX)
        return fields_by_any_key(key);
    return id;
}

int config_unknown_key(struct config_reader *r, const struct toml_node *node, const char *table,
                       const struct fields_near *near, const char *elsewhere)
{
    if (str_eq(table, "sandbox.filesystem") && str_eq(node->key, "filesystem"))
        return nodevalue_error(&r->ctx, node->key_pos, "inside [%s] the key is 'files'", table);
    if (elsewhere)
        return nodevalue_error(&r->ctx, node->key_pos,
                               "unknown key '%s' in [%s] (it belongs in [%s])", node->key, table,
                               elsewhere);
    if (near->best)
        return nodevalue_error(&r->ctx, node->key_pos,
                               "unknown key '%s' in [%s] (did you mean '%s'?)", node->key, table,
                               near->best);
    return nodevalue_error(&r->ctx, node->key_pos, "unknown key '%.100s' in [%s]", node->key,
                           table);
}

static int unknown_field(struct config_reader *r, const struct toml_node *node,
                         enum field_table table, const char *shown, bool is_profile)
{
    struct fields_near near = fields_near_start(node->key);
    for (size_t id = 0; id < FIELD_COUNT_; id++) {
        if (table == TABLE_SANDBOX || policy_fields[id].table == table)
            fields_near_try(&near, policy_fields[id].key);
    }
    if (is_profile)
        fields_near_try(&near, "inherits");
    enum field_id id = fields_by_any_key(node->key);
    return config_unknown_key(r, node, shown, &near,
                              id < FIELD_COUNT_ ? fields_table_name(policy_fields[id].table)
                                                : NULL);
}

int config_expect_table(struct config_reader *r, const struct toml_node *node)
{
    if (node->type == TOML_TABLE)
        return 0;
    return nodevalue_error(&r->ctx, node->pos, "%s must be a table, not %s", node->key,
                           toml_type_name(node->type));
}

/* One of the two sub-tables. */
static int read_subtable(struct config_reader *r, struct scope *scope,
                         const struct toml_node *table, enum field_table kind)
{
    for (const struct toml_node *n = toml_first(table); n; n = n->next) {
        enum field_id id = key_find(kind, n->key);
        if (id == FIELD_COUNT_)
            return unknown_field(r, n, kind, fields_table_name(kind), false);
        if (config_scope_add(r, scope, id, n) < 0)
            return -1;
    }
    return 0;
}

static int read_inherits(struct config_reader *r, struct config_profile *profile,
                         const struct toml_node *node)
{
    const char *name = toml_cstr(node);
    if (!name)
        return nodevalue_error(&r->ctx, node->pos, "inherits must be the name of a profile, not %s",
                               toml_type_name(node->type));
    profile->inherits = strdup(name);
    profile->inherits_line = node->pos.line;
    profile->inherits_column = node->pos.column;
    return profile->inherits ? 0 : err_nomem(r->ctx.err, "policy");
}

static int read_profiles(struct config_reader *r, const struct toml_node *table);

/* [sandbox] (profile NULL) or a profile: keys of all tables, the sub-tables, inherits, profiles. */
static int read_scope(struct config_reader *r, struct scope *scope, const struct toml_node *table,
                      struct config_profile *profile, const char *shown)
{
    for (const struct toml_node *n = toml_first(table); n; n = n->next) {
        int result;
        enum field_id id = key_find(TABLE_SANDBOX, n->key);
        if (n->type == TOML_TABLE && str_eq(n->key, "filesystem"))
            result = read_subtable(r, scope, n, TABLE_FILESYSTEM);
        else if (n->type == TOML_TABLE && str_eq(n->key, "network"))
            result = read_subtable(r, scope, n, TABLE_NETWORK);
        else if (profile && str_eq(n->key, "inherits"))
            result = read_inherits(r, profile, n);
        else if (!profile && str_eq(n->key, "profiles"))
            result = read_profiles(r, n);
        else if (id == FIELD_COUNT_ || strchr(n->key, '.'))
            result = unknown_field(r, n, TABLE_SANDBOX, shown, profile != NULL);
        else
            result = config_scope_add(r, scope, id, n);
        if (result < 0)
            return -1;
    }
    return check_contradictions(r, scope) < 0 || check_broad(r, scope) < 0 ? -1 : 0;
}

bool config_is_name(const struct toml_node *node)
{
    return node->key_len > 0 && node->key_len < 64 &&
           strspn(node->key,
                  "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+#.") ==
               node->key_len;
}

static int read_profiles(struct config_reader *r, const struct toml_node *table)
{
    struct config *c = r->config;
    if (config_expect_table(r, table) < 0)
        return -1;
    c->profiles = calloc(table->u.children.count + 1, sizeof(*c->profiles));
    if (!c->profiles)
        return err_nomem(r->ctx.err, "policy");
    for (const struct toml_node *n = toml_first(table); n; n = n->next) {
        char shown[96];
        if (config_expect_table(r, n) < 0)
            return -1;
        if (!config_is_name(n))
            return nodevalue_error(&r->ctx, n->key_pos, "'%.64s' is not a name for a profile",
                                   n->key);
        snprintf(shown, sizeof(shown), "sandbox.profiles.%s", n->key);

        struct config_profile *p = &c->profiles[c->n_profiles++];
        p->line = n->pos.line;
        p->column = n->pos.column;
        p->name = strdup(n->key);
        if (!p->name)
            return err_nomem(r->ctx.err, "policy");
        if (read_scope(r, &p->scope, n, p, shown) < 0)
            return -1;
    }
    return 0;
}

/* ---- the file ---------------------------------------------------------------------------------
 */

static int unknown_table(struct config_reader *r, const struct toml_node *node)
{
    struct fields_near near = fields_near_start(node->key);
    fields_near_try(&near, "sandbox");
    fields_near_try(&near, "test");
    fields_near_try(&near, "languages");
    enum field_id id = fields_by_any_key(node->key);
    if (id < FIELD_COUNT_)
        return nodevalue_error(&r->ctx, node->key_pos,
                               "'%s' stands outside a table (it belongs in [%s])", node->key,
                               fields_table_name(policy_fields[id].table));
    if (near.best)
        return nodevalue_error(&r->ctx, node->key_pos,
                               "unknown table or key '%s' (did you mean '%s'?)", node->key,
                               near.best);
    return nodevalue_error(&r->ctx, node->key_pos, "unknown table or key '%.100s'", node->key);
}

static int read_root(struct config_reader *r, const struct toml_node *root)
{
    for (const struct toml_node *n = toml_first(root); n; n = n->next) {
        int result;
        if (str_eq(n->key, "sandbox")) {
            result = config_expect_table(r, n);
            if (result == 0)
                result = read_scope(r, &r->config->sandbox, n, NULL, "sandbox");
        } else if (str_eq(n->key, "test")) {
            result = config_read_test(r, n);
        } else if (str_eq(n->key, "languages")) {
            result = config_read_languages(r, n);
        } else {
            result = unknown_table(r, n);
        }
        if (result < 0)
            return -1;
    }
    return 0;
}

static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path)
        return strdup("/");
    return strndup(path, (size_t)(slash - path));
}

int config_parse(const struct config_source *from, const char *text, size_t len,
                 struct config **ret_config, struct cordon_err *err)
{
    struct config *c = calloc(1, sizeof(*c));
    _cleanup_free_ char *base = folder_of(from->path);
    if (!c || !base || !(c->path = strdup(from->path)) || !(c->name = strdup(from->name))) {
        config_free(c);
        return err_nomem(err, "policy");
    }
    c->source = from->source;

    struct config_reader r = {.config = c,
                              .ctx = {.where = c->name,
                                      .code = CORDON_ERR_CONFIG,
                                      .base = base,
                                      .environ = from->environ,
                                      .origin = {.name = c->name, .source = from->source},
                                      .err = err}};
    struct toml_doc *doc = NULL;
    int result = toml_parse(c->name, text, len, &doc, err);
    if (result == 0)
        result = read_root(&r, toml_root(doc));
    toml_doc_free(doc);
    if (result < 0) {
        config_free(c);
        return -1;
    }
    *ret_config = c;
    return 0;
}
