/* TOML nodes to settings. Pure. The types are strict: a duration is text, a count is an integer. */
#include "policy/nodevalue.h"

#include <inttypes.h>
#include <stdarg.h>

#include "base/err.h"
#include "base/util.h"
#include "policy/fields.h"

enum { WHERE_MAX = 640 };

int nodevalue_error(const struct value_ctx *ctx, struct toml_pos pos, const char *fmt, ...)
{
    char text[768];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return err_set(ctx->err, CORDON_ERR_CONFIG, "policy", 0, "%s:%u:%u: %s", ctx->origin.name,
                   pos.line, pos.column, text);
}

/* What a key takes, for "must be ...". */
static const char *accepted(enum field_type type)
{
    switch (type) {
    case FT_DURATION: return "a string such as \"5s\"";
    case FT_SIZE: return "a string such as \"100M\" or a number of bytes";
    case FT_PERCENT:
    case FT_COUNT: return "an integer";
    case FT_BOOL: return "true or false";
    case FT_TEMP_DIR: return "true, false or a path";
    case FT_WORKSPACE: return "a string such as \"DIR:overlay\", or false";
    case FT_STRING:
    case FT_PATH:
    case FT_ENUM_NETWORK:
    case FT_ENUM_BACKEND:
    case FT_ENUM_RUNTIME:
    case FT_ENUM_TIER:
    case FT_ENUM_LOG: return "a string";
    case FT_ENV: return "a table, an array of \"K=V\", or false";
    case FT_FILES: return "a table, an array of \"NAME=HOSTFILE\", or false";
    case FT_NETWORK: return "true, false or an array of strings";
    case FT_PORTS: return "an array of integers, or false";
    case FT_STRINGS:
    case FT_PATHS:
    case FT_PATTERNS:
    case FT_MOUNTS:
    case FT_NET_NAMES:
    case FT_NET_PATTERNS: return "an array of strings, or false";
    }
    return "something else";
}

/* As it was written: [test] has names of its own for some. */
static const char *key_of(enum field_id id, const struct toml_node *node)
{
    return node->key && !fields_is_list(policy_fields[id].type) ? node->key : policy_fields[id].key;
}

static int wrong_type(const struct value_ctx *ctx, enum field_id id, const struct toml_node *node,
                      const char *what)
{
    return nodevalue_error(ctx, node->pos, "%s must be %s, not %s", key_of(id, node), what,
                           toml_type_name(node->type));
}

static bool type_fits(enum field_type type, enum toml_type node)
{
    if (type == FT_SIZE)
        return node == TOML_STRING || node == TOML_INTEGER;
    if (type == FT_PERCENT || type == FT_COUNT)
        return node == TOML_INTEGER;
    if (type == FT_BOOL)
        return node == TOML_BOOL;
    if (type == FT_TEMP_DIR)
        return node == TOML_STRING || node == TOML_BOOL;
    return node == TOML_STRING;
}

/* The node's value as the text a flag would have had; number is room for one. */
static const char *node_text(const struct toml_node *node, char number[static 24])
{
    if (node->type == TOML_BOOL)
        return node->u.boolean ? "true" : "false";
    if (node->type == TOML_INTEGER) {
        snprintf(number, 24, "%" PRId64, node->u.integer);
        return number;
    }
    return toml_cstr(node);
}

/* A copy of the context for one node: its place in messages and as origin. */
static struct value_ctx at_node(const struct value_ctx *ctx, enum field_id id,
                                const struct toml_node *node, char where[static WHERE_MAX])
{
    struct value_ctx at = *ctx;
    snprintf(where, WHERE_MAX, "%s:%u:%u: %s", ctx->origin.name, node->pos.line, node->pos.column,
             key_of(id, node));
    at.where = where;
    at.origin.line = node->pos.line;
    at.origin.column = node->pos.column;
    return at;
}

static int read_scalar(const struct value_ctx *ctx, struct assign *a, const struct toml_node *node)
{
    char where[WHERE_MAX], number[24];
    enum field_type type = policy_fields[a->id].type;
    bool is_off = type == FT_WORKSPACE && node->type == TOML_BOOL && !node->u.boolean;
    if (!is_off && !type_fits(type, node->type))
        return wrong_type(ctx, a->id, node, accepted(type));

    struct value_ctx at = at_node(ctx, a->id, node, where);
    const char *text = node_text(node, number);
    if (!text)
        return nodevalue_error(ctx, node->pos, "%s holds a NUL character", key_of(a->id, node));
    if (value_set_scalar(&at, a, text) < 0)
        return -1;
    return value_finish(&at, a, text);
}

static int read_item(const struct value_ctx *ctx, struct assign *a, const struct toml_node *node)
{
    char where[WHERE_MAX], number[24];
    bool is_port = policy_fields[a->id].type == FT_PORTS;
    if (node->type != (is_port ? TOML_INTEGER : TOML_STRING))
        return wrong_type(ctx, a->id, node, accepted(policy_fields[a->id].type));
    const char *text = node_text(node, number);
    if (!text)
        return nodevalue_error(ctx, node->pos, "%s holds a NUL character",
                               policy_fields[a->id].key);
    struct value_ctx at = at_node(ctx, a->id, node, where);
    return value_add_item(&at, a, text);
}

/* env and files: key = "text" is the item key=text */
static int read_pair(const struct value_ctx *ctx, struct assign *a, const struct toml_node *node)
{
    char where[WHERE_MAX];
    const char *value = toml_cstr(node);
    if (node->type != TOML_STRING)
        return nodevalue_error(ctx, node->pos, "%s: '%s' must be a string, not %s",
                               policy_fields[a->id].key, node->key, toml_type_name(node->type));
    if (!value || strlen(node->key) != node->key_len)
        return nodevalue_error(ctx, node->pos, "%s holds a NUL character",
                               policy_fields[a->id].key);
    if (strchr(node->key, '='))
        return nodevalue_error(ctx, node->key_pos, "%s: '=' in the name '%s'",
                               policy_fields[a->id].key, node->key);

    _cleanup_free_ char *pair = NULL;
    if (asprintf(&pair, "%s=%s", node->key, value) < 0) {
        pair = NULL;
        return err_nomem(ctx->err, "policy");
    }
    struct value_ctx at = at_node(ctx, a->id, node, where);
    return value_add_item(&at, a, pair);
}

static int read_list(const struct value_ctx *ctx, struct assign *a, const struct toml_node *node)
{
    enum field_type type = policy_fields[a->id].type;
    bool pairs = node->type == TOML_TABLE && (type == FT_ENV || type == FT_FILES);
    if (node->type == TOML_BOOL && !node->u.boolean)
        a->clear = true;
    else if (node->type == TOML_BOOL && type == FT_NETWORK)
        a->value.num = 1;
    else if (node->type != TOML_ARRAY && !pairs)
        return wrong_type(ctx, a->id, node, accepted(type));

    if (node->type == TOML_ARRAY || pairs) {
        for (const struct toml_node *n = toml_first(node); n; n = n->next) {
            if ((pairs ? read_pair(ctx, a, n) : read_item(ctx, a, n)) < 0)
                return -1;
        }
    }
    char where[WHERE_MAX];
    struct value_ctx at = at_node(ctx, a->id, node, where);
    return value_finish(&at, a, NULL);
}

int nodevalue_read(const struct value_ctx *ctx, enum field_id id, const struct toml_node *node,
                   struct assign *ret_assign)
{
    struct assign a;
    value_start(&a, id);
    int r = fields_is_list(policy_fields[id].type) ? read_list(ctx, &a, node)
                                                   : read_scalar(ctx, &a, node);
    if (r < 0) {
        assign_done(&a);
        return -1;
    }
    *ret_assign = a;
    return 0;
}

/* ---- plain lists of strings -------------------------------------------------------------------
 */

void nodevalue_strings_free(char **strings)
{
    for (size_t i = 0; strings && strings[i]; i++)
        free(strings[i]);
    free(strings);
}

static int split_blanks(const char *text, char ***ret_strings)
{
    size_t n = 0;
    char **list = calloc(strlen(text) / 2 + 2, sizeof(*list));
    if (!list)
        return -1;
    for (const char *p = text + strspn(text, " \t"); *p; p += strspn(p, " \t")) {
        size_t len = strcspn(p, " \t");
        list[n] = strndup(p, len);
        if (!list[n++]) {
            nodevalue_strings_free(list);
            return -1;
        }
        p += len;
    }
    *ret_strings = list;
    return 0;
}

int nodevalue_strings(const struct value_ctx *ctx, const struct toml_node *node, bool split,
                      char ***ret_strings)
{
    if (split && toml_cstr(node))
        return split_blanks(toml_cstr(node), ret_strings) < 0 ? err_nomem(ctx->err, "policy") : 0;
    if (node->type != TOML_ARRAY)
        return nodevalue_error(ctx, node->pos, "%s must be %s array of strings, not %s", node->key,
                               split ? "a string or an" : "an", toml_type_name(node->type));

    size_t n = 0;
    char **list = calloc(node->u.children.count + 1, sizeof(*list));
    if (!list)
        return err_nomem(ctx->err, "policy");
    for (const struct toml_node *item = toml_first(node); item; item = item->next) {
        const char *text = toml_cstr(item);
        if (!text) {
            nodevalue_strings_free(list);
            return nodevalue_error(ctx, item->pos, "%s must hold strings, not %s", node->key,
                                   toml_type_name(item->type));
        }
        list[n] = strdup(text);
        if (!list[n++]) {
            nodevalue_strings_free(list);
            return err_nomem(ctx->err, "policy");
        }
    }
    *ret_strings = list;
    return 0;
}
