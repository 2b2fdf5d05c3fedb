/* The tables of cordon.toml besides [sandbox]: [test] and [languages.NAME]. Pure. */
#include "policy/config_internal.h"

#include "base/err.h"
#include "base/util.h"
#include "policy/fields.h"
#include "policy/nodevalue.h"

/* ---- [test] -----------------------------------------------------------------------------------
 */

static int read_test_sandbox(struct config_reader *r, const struct toml_node *node)
{
    if (node->type == TOML_BOOL && node->u.boolean)
        return 0;
    if (node->type == TOML_BOOL)
        return nodevalue_error(
            &r->ctx, node->pos,
            "sandbox = false is refused: tests always run inside; name a profile "
            "that gives them what they need");
    const char *name = toml_cstr(node);
    if (!name)
        return nodevalue_error(&r->ctx, node->pos,
                               "sandbox must be true or the name of a profile, "
                               "not %s",
                               toml_type_name(node->type));
    r->config->test_line = node->pos.line;
    r->config->test_column = node->pos.column;
    r->config->test_profile = strdup(name);
    return r->config->test_profile ? 0 : err_nomem(r->ctx.err, "policy");
}

/* A command as text is a shell's business, as an array it is an argument vector. */
static int read_test_command(struct config_reader *r, const struct toml_node *node)
{
    const char *text = toml_cstr(node);
    char ***command = &r->config->test_command;
    if (text) {
        *command = calloc(4, sizeof(**command));
        if (!*command || !((*command)[0] = strdup("sh")) || !((*command)[1] = strdup("-c")) ||
            !((*command)[2] = strdup(text)))
            return err_nomem(r->ctx.err, "policy");
    } else if (nodevalue_strings(&r->ctx, node, false, command) < 0) {
        return -1;
    }
    if (!(*command)[0] || (text && !*text) || !(*command)[0][0])
        return nodevalue_error(&r->ctx, node->pos, "command is empty");
    return 0;
}

int config_read_test(struct config_reader *r, const struct toml_node *table)
{
    static const char *const keys[] = {"sandbox", "sandbox_time_limit", "sandbox_memory_limit",
                                       "command"};
    if (config_expect_table(r, table) < 0)
        return -1;
    for (const struct toml_node *n = toml_first(table); n; n = n->next) {
        int result;
        if (str_eq(n->key, keys[0])) {
            result = read_test_sandbox(r, n);
        } else if (str_eq(n->key, keys[1])) {
            result = config_scope_add(r, &r->config->test, FIELD_TIME_LIMIT, n);
        } else if (str_eq(n->key, keys[2])) {
            result = config_scope_add(r, &r->config->test, FIELD_MEMORY_LIMIT, n);
        } else if (str_eq(n->key, keys[3])) {
            result = read_test_command(r, n);
        } else {
            struct fields_near near = fields_near_start(n->key);
            for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
                fields_near_try(&near, keys[i]);
            result = config_unknown_key(r, n, "test", &near, NULL);
        }
        if (result < 0)
            return -1;
    }
    return 0;
}

/* ---- [languages.NAME] -------------------------------------------------------------------------
 */

static int read_language_env(struct config_reader *r, struct policy_language *language,
                             const struct toml_node *node)
{
    struct assign a;
    if (nodevalue_read(&r->ctx, FIELD_ENV, node, &a) < 0)
        return -1;
    int result = 0;
    language->env = calloc(a.value.n_items + 1, sizeof(*language->env));
    for (size_t i = 0; language->env && i < a.value.n_items; i++) {
        if (asprintf(&language->env[i], "%s=%s", a.value.items[i].text, a.value.items[i].extra) <
            0) {
            language->env[i] = NULL;
            result = err_nomem(r->ctx.err, "policy");
            break;
        }
    }
    if (!language->env)
        result = err_nomem(r->ctx.err, "policy");
    assign_done(&a);
    return result;
}

static int read_language(struct config_reader *r, struct policy_language *language,
                         const struct toml_node *table)
{
    struct {
        const char *key;
        char ***list;
        bool split;
    } lists[] = {{"suffixes", &language->suffixes, false},
                 {"aliases", &language->aliases, false},
                 {"compile", &language->compile, true},
                 {"run", &language->run, true},
                 {"version", &language->version, true}};
    char shown[96];

    for (const struct toml_node *n = toml_first(table); n; n = n->next) {
        struct fields_near near = fields_near_start(n->key);
        size_t i = 0;
        for (; i < ARRAY_SIZE(lists) && !str_eq(n->key, lists[i].key); i++)
            fields_near_try(&near, lists[i].key);
        if (str_eq(n->key, "env")) {
            if (read_language_env(r, language, n) < 0)
                return -1;
        } else if (i == ARRAY_SIZE(lists)) {
            fields_near_try(&near, "env");
            snprintf(shown, sizeof(shown), "languages.%s", language->name);
            return config_unknown_key(r, n, shown, &near, NULL);
        } else if (nodevalue_strings(&r->ctx, n, lists[i].split, lists[i].list) < 0) {
            return -1;
        }
    }
    if (!language->run || !language->run[0])
        return nodevalue_error(&r->ctx, table->pos, "language '%s' has no run command",
                               language->name);
    return 0;
}

int config_read_languages(struct config_reader *r, const struct toml_node *table)
{
    struct config *c = r->config;
    if (config_expect_table(r, table) < 0)
        return -1;
    c->languages = calloc(table->u.children.count + 1, sizeof(*c->languages));
    if (!c->languages)
        return err_nomem(r->ctx.err, "policy");
    for (const struct toml_node *n = toml_first(table); n; n = n->next) {
        if (config_expect_table(r, n) < 0)
            return -1;
        if (!config_is_name(n))
            return nodevalue_error(&r->ctx, n->key_pos, "'%.64s' is not a name for a language",
                                   n->key);
        struct policy_language *l = &c->languages[c->n_languages++];
        struct origin origin = r->ctx.origin;
        origin.line = n->pos.line;
        origin.column = n->pos.column;
        l->name = strdup(n->key);
        if (!l->name || policy_origin_copy(&origin, &l->origin) < 0)
            return err_nomem(r->ctx.err, "policy");
        if (read_language(r, l, n) < 0)
            return -1;
    }
    return 0;
}
