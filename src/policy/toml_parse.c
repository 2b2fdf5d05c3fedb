/* The grammar of TOML: lines, headers, keys, arrays and inline tables, and the rules for who may
 * add to which table.
 *
 * toml_parse() is called by the policy loader; runs in the front process before anything is
 * started. The only recursion is value -> array or inline table -> value; each step goes through
 * new_node(), which bounds the depth. */
#include "policy/toml_internal.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

static int parse_value(struct toml_parser *p, struct toml_node *parent,
                       const struct toml_slice *key);

/* Makes a node and hangs it under its parent; key is NULL in arrays. */
static int new_node(struct toml_parser *p, struct toml_node *parent, const struct toml_slice *key,
                    struct toml_pos pos, struct toml_node **ret_node)
{
    if (parent->depth >= TOML_DEPTH_MAX)
        return toml_fail(p, pos, "nested more than %d levels deep", TOML_DEPTH_MAX);

    struct toml_node *node = toml_alloc(p->doc, sizeof(*node));
    if (!node)
        return err_nomem(p->err, TOML_STAGE);
    memset(node, 0, sizeof(*node));
    node->pos = pos;
    node->depth = parent->depth + 1;
    if (key) {
        node->key = toml_copy(p->doc, key->data, key->len);
        if (!node->key)
            return err_nomem(p->err, TOML_STAGE);
        node->key_len = key->len;
        node->key_pos = key->pos;
    }
    toml_append(parent, node);
    *ret_node = node;
    return 0;
}

static int new_container(struct toml_parser *p, struct toml_node *parent,
                         const struct toml_slice *key, struct toml_pos pos, enum toml_type type,
                         enum toml_origin origin, struct toml_node **ret_node)
{
    struct toml_node *node = NULL;
    if (new_node(p, parent, key, pos, &node) < 0)
        return -1;
    node->type = type;
    node->origin = (uint8_t)origin;
    *ret_node = node;
    return 0;
}

static int fail_defined(struct toml_parser *p, const struct toml_slice *key,
                        const struct toml_node *old)
{
    char name[TOML_QUOTE_SIZE];
    toml_quote(name, key->data, key->len);
    return toml_fail(p, key->pos, "%s is already defined as %s on line %u", name,
                     toml_type_name(old->type), old->key_pos.line);
}

static int fail_extend(struct toml_parser *p, const struct toml_slice *key,
                       const struct toml_node *old)
{
    char name[TOML_QUOTE_SIZE];
    toml_quote(name, key->data, key->len);
    if (old->type == TOML_TABLE && old->origin == TOML_BY_VALUE)
        return toml_fail(p, key->pos, "%s is an inline table, complete on line %u: %s", name,
                         old->key_pos.line, "nothing can be added to it");
    if (old->type == TOML_TABLE)
        return toml_fail(p, key->pos, "%s is already defined on line %u: %s", name,
                         old->key_pos.line, "a dotted key cannot add to it");
    return toml_fail(p, key->pos, "%s is not a table: it is defined as %s on line %u", name,
                     toml_type_name(old->type), old->key_pos.line);
}

static bool is_bare_key_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

/* One part of a dotted key. It lies in the text or in the scratch buffer: use it before the
 * next. */
static int parse_key_part(struct toml_parser *p, struct toml_slice *ret)
{
    if (p->cur < p->end && (*p->cur == '"' || *p->cur == '\''))
        return toml_string(p, false, ret);

    struct toml_slice key = {p->cur, 0, toml_here(p)};
    while (p->cur < p->end && is_bare_key_char(*p->cur))
        p->cur++;
    key.len = (size_t)(p->cur - key.data);
    if (key.len == 0) {
        char what[TOML_QUOTE_SIZE];
        return toml_fail(p, key.pos, "expected a key, not %s%s", toml_describe(p, what),
                         p->cur < p->end && (*p->cur & 0x80) ? " (quote keys outside A-Za-z0-9_-)"
                                                             : "");
    }
    *ret = key;
    return 0;
}

/* Steps over a dot with blanks around it; false if the key ends here. */
static bool next_key_part(struct toml_parser *p)
{
    toml_skip_blank(p);
    if (p->cur == p->end || *p->cur != '.')
        return false;
    p->cur++;
    toml_skip_blank(p);
    return true;
}

/* The table that a part of a dotted key (not the last) names, made if it is new. Only a table that
 * no header and no value has defined may be added to in this way. */
static int enter_dotted(struct toml_parser *p, struct toml_node **table,
                        const struct toml_slice *key)
{
    struct toml_node *node = toml_find(*table, key->data, key->len);
    if (!node) {
        if (new_container(p, *table, key, key->pos, TOML_TABLE, TOML_BY_DOTTED, &node) < 0)
            return -1;
    } else if (node->type == TOML_TABLE && node->origin == TOML_BY_IMPLICIT) {
        node->origin = TOML_BY_DOTTED;
        node->key_pos = node->pos = key->pos;
    } else if (node->type != TOML_TABLE || node->origin != TOML_BY_DOTTED) {
        return fail_extend(p, key, node);
    }
    *table = node;
    return 0;
}

/* key = value, without what follows the value. */
static int parse_pair(struct toml_parser *p, struct toml_node *table)
{
    struct toml_slice key;
    if (parse_key_part(p, &key) < 0)
        return -1;
    while (next_key_part(p)) {
        if (enter_dotted(p, &table, &key) < 0 || parse_key_part(p, &key) < 0)
            return -1;
    }
    if (p->cur == p->end || *p->cur != '=') {
        char what[TOML_QUOTE_SIZE];
        return toml_fail(p, toml_here(p), "expected '=' after the key, not %s",
                         toml_describe(p, what));
    }
    const struct toml_node *old = toml_find(table, key.data, key.len);
    if (old)
        return fail_defined(p, &key, old);
    p->cur++;
    toml_skip_blank(p);
    return parse_value(p, table, &key);
}

/* Blanks, comments and line ends between the elements of an array. */
static int skip_array_space(struct toml_parser *p)
{
    for (;;) {
        toml_skip_blank(p);
        if (toml_skip_comment(p) < 0)
            return -1;
        if (!toml_at_newline(p))
            return 0;
        toml_newline(p);
    }
}

/* The cursor is behind the opening bracket. */
static int parse_array(struct toml_parser *p, struct toml_node *array)
{
    for (;;) {
        if (skip_array_space(p) < 0)
            return -1;
        if (p->cur < p->end && *p->cur == ']')
            break;
        if (p->cur == p->end)
            return toml_fail(p, array->pos, "the array that starts here is not closed");
        if (parse_value(p, array, NULL) < 0 || skip_array_space(p) < 0)
            return -1;
        if (p->cur < p->end && *p->cur == ',') {
            p->cur++;
        } else if (p->cur < p->end && *p->cur != ']') {
            char what[TOML_QUOTE_SIZE];
            return toml_fail(p, toml_here(p), "expected ',' or ']' in the array, not %s",
                             toml_describe(p, what));
        }
    }
    p->cur++;
    return 0;
}

/* The cursor is behind the opening brace. TOML 1.0: on one line, no comma after the last pair. */
static int parse_inline_table(struct toml_parser *p, struct toml_node *table)
{
    toml_skip_blank(p);
    if (p->cur < p->end && *p->cur == '}') {
        p->cur++;
        return 0;
    }
    for (;;) {
        if (toml_at_newline(p))
            break;
        if (parse_pair(p, table) < 0)
            return -1;
        toml_skip_blank(p);
        if (p->cur < p->end && *p->cur == '}') {
            p->cur++;
            return 0;
        }
        if (p->cur == p->end || *p->cur != ',')
            break;
        p->cur++;
        toml_skip_blank(p);
        if (p->cur < p->end && *p->cur == '}')
            return toml_fail(p, toml_here(p), "an inline table must not end with a comma");
    }
    char what[TOML_QUOTE_SIZE];
    if (p->cur == p->end || toml_at_newline(p))
        return toml_fail(p, table->pos, "the inline table that starts here is not closed on its %s",
                         "line (use a [table] for several lines)");
    return toml_fail(p, toml_here(p), "expected ',' or '}' in the inline table, not %s",
                     toml_describe(p, what));
}

static int parse_string(struct toml_parser *p, struct toml_node *node)
{
    struct toml_slice text;
    if (toml_string(p, true, &text) < 0)
        return -1;
    const char *copy = toml_copy(p->doc, text.data, text.len);
    if (!copy)
        return err_nomem(p->err, TOML_STAGE);
    node->type = TOML_STRING;
    node->u.string.data = copy;
    node->u.string.len = text.len;
    return 0;
}

/* The node hangs in the tree before its value is read; that is safe because a failure drops the
 * whole tree, and needed because the key may lie in the scratch buffer. */
static int parse_value(struct toml_parser *p, struct toml_node *parent,
                       const struct toml_slice *key)
{
    char c = p->cur < p->end ? *p->cur : '\0';
    struct toml_node *node;
    if (new_node(p, parent, key, toml_here(p), &node) < 0)
        return -1;
    switch (c) {
    case '"':
    case '\'': return parse_string(p, node);
    case '[':
        p->cur++;
        node->type = TOML_ARRAY;
        return parse_array(p, node);
    case '{':
        p->cur++;
        node->type = TOML_TABLE;
        return parse_inline_table(p, node);
    default: return toml_scalar(p, node);
    }
}

/* The table that a part of a header (not the last) names, made if it is new. */
static int enter_header(struct toml_parser *p, struct toml_node **table,
                        const struct toml_slice *key)
{
    struct toml_node *node = toml_find(*table, key->data, key->len);
    if (!node) {
        if (new_container(p, *table, key, key->pos, TOML_TABLE, TOML_BY_IMPLICIT, &node) < 0)
            return -1;
    } else if (node->origin == TOML_BY_VALUE) {
        return fail_extend(p, key, node);
    } else if (node->type == TOML_ARRAY) {
        node = node->u.children.last;
    }
    *table = node;
    return 0;
}

/* [a.b]: defines the table, which may exist only as the parent of others. */
static int define_table(struct toml_parser *p, struct toml_node *parent,
                        const struct toml_slice *key, struct toml_pos pos,
                        struct toml_node **ret_table)
{
    struct toml_node *node = toml_find(parent, key->data, key->len);
    if (!node)
        return new_container(p, parent, key, pos, TOML_TABLE, TOML_BY_HEADER, ret_table);
    if (node->type != TOML_TABLE || node->origin != TOML_BY_IMPLICIT)
        return fail_defined(p, key, node);
    node->origin = TOML_BY_HEADER;
    node->key_pos = key->pos;
    node->pos = pos;
    *ret_table = node;
    return 0;
}

/* [[a.b]]: adds a table to the array, which only such headers may have made. */
static int define_element(struct toml_parser *p, struct toml_node *parent,
                          const struct toml_slice *key, struct toml_pos pos,
                          struct toml_node **ret_table)
{
    struct toml_node *array = toml_find(parent, key->data, key->len);
    if (!array) {
        if (new_container(p, parent, key, pos, TOML_ARRAY, TOML_BY_HEADER, &array) < 0)
            return -1;
    } else if (array->type != TOML_ARRAY || array->origin != TOML_BY_HEADER) {
        return fail_defined(p, key, array);
    }
    return new_container(p, array, NULL, pos, TOML_TABLE, TOML_BY_HEADER, ret_table);
}

static int parse_header(struct toml_parser *p, struct toml_node **ret_table)
{
    struct toml_node *table = p->doc->root;
    struct toml_pos pos = toml_here(p);
    p->cur++;
    bool element = p->cur < p->end && *p->cur == '[';
    if (element)
        p->cur++;

    struct toml_slice key;
    toml_skip_blank(p);
    if (parse_key_part(p, &key) < 0)
        return -1;
    while (next_key_part(p)) {
        if (enter_header(p, &table, &key) < 0 || parse_key_part(p, &key) < 0)
            return -1;
    }
    const char *close = element ? "]]" : "]";
    size_t len = strlen(close);
    if ((size_t)(p->end - p->cur) < len || memcmp(p->cur, close, len) != 0) {
        char what[TOML_QUOTE_SIZE];
        return toml_fail(p, toml_here(p), "expected '.' or '%s' in the table header, not %s", close,
                         toml_describe(p, what));
    }
    p->cur += len;
    return element ? define_element(p, table, &key, pos, ret_table)
                   : define_table(p, table, &key, pos, ret_table);
}

/* Blanks and a comment, then the end of the line or of the text. */
static int parse_line_end(struct toml_parser *p, const char *after)
{
    toml_skip_blank(p);
    if (toml_skip_comment(p) < 0)
        return -1;
    if (toml_at_newline(p)) {
        toml_newline(p);
    } else if (p->cur < p->end) {
        char what[TOML_QUOTE_SIZE];
        return toml_fail(p, toml_here(p), "expected the end of the line%s, not %s", after,
                         toml_describe(p, what));
    }
    return 0;
}

static int parse_document(struct toml_parser *p)
{
    struct toml_node *table = p->doc->root;
    while (p->cur < p->end) {
        const char *after = "";
        toml_skip_blank(p);
        if (p->cur < p->end && *p->cur == '[') {
            if (parse_header(p, &table) < 0)
                return -1;
            after = " after the table header";
        } else if (p->cur < p->end && *p->cur != '#' && !toml_at_newline(p)) {
            if (parse_pair(p, table) < 0)
                return -1;
            after = " after the value";
        }
        if (parse_line_end(p, after) < 0)
            return -1;
    }
    return 0;
}

static int prepare(struct toml_parser *p)
{
    size_t len = (size_t)(p->end - p->cur);
    if (len >= 3 && memcmp(p->cur, "\xef\xbb\xbf", 3) == 0)
        p->cur += 3; /* a byte order mark is allowed here and nowhere else */
    p->mark = p->cur;
    if (toml_check_utf8(p) < 0)
        return -1;

    p->scratch = malloc(len + 1);
    p->doc = calloc(1, sizeof(*p->doc));
    if (!p->scratch || !p->doc)
        return err_nomem(p->err, TOML_STAGE);
    struct toml_node *root = toml_alloc(p->doc, sizeof(*root));
    if (!root)
        return err_nomem(p->err, TOML_STAGE);
    *root = (struct toml_node){.type = TOML_TABLE, .pos = {1, 1}, .origin = TOML_BY_HEADER};
    p->doc->root = root;
    return 0;
}

int toml_parse(const char *name, const char *text, size_t len, struct toml_doc **ret_doc,
               struct cordon_err *err)
{
    if (len > TOML_SIZE_MAX)
        return err_set(err, CORDON_ERR_CONFIG, TOML_STAGE, 0,
                       "%s:1:1: larger than %d bytes, the most a configuration may have", name,
                       TOML_SIZE_MAX);
    const char *start = len > 0 ? text : ""; /* an empty text may be NULL */
    struct toml_parser p = {
        .name = name, .cur = start, .end = start + len, .line = 1, .mark_column = 1, .err = err};
    int r = prepare(&p);
    if (r == 0)
        r = parse_document(&p);
    free(p.scratch);
    if (r < 0) {
        toml_doc_free(p.doc);
        return -1;
    }
    *ret_doc = p.doc;
    return 0;
}
