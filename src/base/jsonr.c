/* The JSON reader. Owns nothing but what it puts into the caller's arena.
 *
 * Called for seccomp profiles, requests and lists of tasks; runs on our side before anything is
 * started, never in a guest's process. */
#include "base/jsonr_internal.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/util.h"

#define SCAN_MAX 16 /* up to so many keys a scan is as good as an index */

static void skip_blank(struct jsonr_reader *r)
{
    for (; r->cur < r->end; r->cur++) {
        if (*r->cur == '\n')
            jsonr_newline(r, r->cur + 1);
        else if (*r->cur != ' ' && *r->cur != '\t' && *r->cur != '\r')
            break;
    }
}

static int read_word(struct jsonr_reader *r, const char *word, enum jsonr_type type,
                     struct jsonr_node *node)
{
    size_t len = strlen(word);
    if ((size_t)(r->end - r->cur) < len || memcmp(r->cur, word, len) != 0)
        return jsonr_fail_expected(r, "a value");
    r->cur += len;
    node->type = type;
    node->u.boolean = *word == 't';
    return 0;
}

/* Any total order will do; by length first is the cheapest. */
static int key_order(const char *key, size_t len, const struct jsonr_node *node)
{
    if (len != node->key_len)
        return len < node->key_len ? -1 : 1;
    return memcmp(key, node->key, len);
}

static bool is_before(struct jsonr_pos a, struct jsonr_pos b)
{
    return a.line != b.line ? a.line < b.line : a.column < b.column;
}

/* By key; of equal ones the first in the text first. */
static bool index_less(const struct jsonr_node *a, const struct jsonr_node *b)
{
    int order = key_order(a->key, a->key_len, b);
    return order != 0 ? order < 0 : is_before(a->key_pos, b->key_pos);
}

static void index_sift(const struct jsonr_node **index, size_t root, size_t n)
{
    const struct jsonr_node *moved = index[root];
    for (size_t child; (child = 2 * root + 1) < n; root = child) {
        if (child + 1 < n && index_less(index[child], index[child + 1]))
            child++;
        if (!index_less(moved, index[child]))
            break;
        index[root] = index[child];
    }
    index[root] = moved;
}

/* Heapsort: O(n log n) for every input and no memory; qsort() promises neither, and a hash table
 * would need a secret to withstand chosen keys. */
static void index_sort(const struct jsonr_node **index, size_t n)
{
    for (size_t i = n / 2; i-- > 0;)
        index_sift(index, i, n);
    for (size_t last = n; last-- > 1;) {
        const struct jsonr_node *top = index[0];
        index[0] = index[last];
        index[last] = top;
        index_sift(index, 0, last);
    }
}

static int fail_duplicate(struct jsonr_reader *r, const struct jsonr_node *first,
                          const struct jsonr_node *second)
{
    char quoted[72] = "";
    bool plain = true;
    for (size_t i = 0; i < second->key_len; i++)
        plain = plain && second->key[i] >= 0x20 && second->key[i] < 0x7f;
    if (plain) /* the message goes to a terminal */
        snprintf(quoted, sizeof(quoted), " \"%.64s\"", second->key);
    return jsonr_fail(r, second->key_pos, "duplicate key%s, first at %u:%u", quoted,
                      first->key_pos.line, first->key_pos.column);
}

/* Refuses duplicate keys and, by the way, makes the index of a large object. */
static int check_keys(struct jsonr_reader *r, struct jsonr_node *object)
{
    size_t n = object->u.children.count;
    const struct jsonr_node *first = object->u.children.first;
    if (n <= SCAN_MAX) {
        for (const struct jsonr_node *b = first; b; b = b->next)
            for (const struct jsonr_node *a = first; a != b; a = a->next)
                if (key_order(a->key, a->key_len, b) == 0)
                    return fail_duplicate(r, a, b);
        return 0;
    }
    const struct jsonr_node **index = arena_alloc(r->arena, n * sizeof(struct jsonr_node *));
    if (!index)
        return err_nomem(r->err, r->source->stage);
    size_t i = 0, found = 0;
    for (const struct jsonr_node *a = first; a; a = a->next)
        index[i++] = a;
    index_sort(index, n);
    for (i = 1; i < n; i++)
        if (key_order(index[i]->key, index[i]->key_len, index[i - 1]) == 0 &&
            (!found || is_before(index[i]->key_pos, index[found]->key_pos)))
            found = i;
    if (found)
        return fail_duplicate(r, index[found - 1], index[found]);
    object->u.children.index = index;
    return 0;
}

static int read_key(struct jsonr_reader *r, struct jsonr_node *node)
{
    if (r->cur == r->end || *r->cur != '"')
        return jsonr_fail_expected(r, "a key in double quotes");
    size_t len;
    node->key_pos = jsonr_here(r);
    if (jsonr_string(r, &node->key, &len) < 0)
        return -1;
    node->key_len = (uint32_t)len;
    skip_blank(r);
    if (!jsonr_take(r, ':'))
        return jsonr_fail_expected(r, "':'");
    skip_blank(r);
    return 0;
}

static int read_value(struct jsonr_reader *r, struct jsonr_node *node);

/* Arrays and objects; the cursor stands on the opening bracket. */
static int read_children(struct jsonr_reader *r, struct jsonr_node *parent)
{
    bool object = parent->type == JSONR_OBJECT;
    char close = object ? '}' : ']';
    const struct jsonr_node **tail = &parent->u.children.first;
    if (++r->depth > JSONR_DEPTH_MAX)
        return jsonr_fail(r, parent->pos, "nested deeper than %d levels", JSONR_DEPTH_MAX);
    r->cur++;
    skip_blank(r);
    bool done = jsonr_take(r, close);
    while (!done) {
        struct jsonr_node *node = arena_alloc(r->arena, sizeof(*node));
        if (!node)
            return err_nomem(r->err, r->source->stage);
        if ((object && read_key(r, node) < 0) || read_value(r, node) < 0)
            return -1;
        *tail = node;
        tail = &node->next;
        parent->u.children.count++;
        skip_blank(r);
        done = jsonr_take(r, close);
        if (!done && !jsonr_take(r, ','))
            return jsonr_fail_expected(r, object ? "',' or '}'" : "',' or ']'");
        skip_blank(r);
    }
    r->depth--;
    return object ? check_keys(r, parent) : 0;
}

static int read_value(struct jsonr_reader *r, struct jsonr_node *node)
{
    node->pos = jsonr_here(r);
    switch (r->cur < r->end ? *r->cur : '\0') {
    case '"':
        node->type = JSONR_STRING;
        return jsonr_string(r, &node->u.string.data, &node->u.string.len);
    case '{': node->type = JSONR_OBJECT; return read_children(r, node);
    case '[': node->type = JSONR_ARRAY; return read_children(r, node);
    case 't': return read_word(r, "true", JSONR_BOOL, node);
    case 'f': return read_word(r, "false", JSONR_BOOL, node);
    case 'n': return read_word(r, "null", JSONR_NULL, node);
    case '-':
    case '0' ... '9': return jsonr_number(r, node);
    default: return jsonr_fail_expected(r, "a value");
    }
}

int jsonr_parse(const struct jsonr_source *source, struct arena *arena,
                const struct jsonr_node **ret_root, struct cordon_err *err)
{
    size_t max = MIN(source->max_bytes, JSONR_SIZE_MAX);
    if (source->len > max)
        return err_set(err, source->code, source->stage, 0, "%s: larger than %zu bytes",
                       source->name, max);
    const char *text = source->len ? source->text : "";
    struct jsonr_reader r = {
        .source = source,
        .arena = arena,
        .err = err,
        .cur = text,
        .end = text + source->len,
        .mark = text,
        .here = {source->line ? source->line : 1, 1},
    };
    if (jsonr_check_utf8(&r) < 0)
        return -1;
    struct jsonr_node *root = arena_alloc(arena, sizeof(*root));
    if (!root)
        return err_nomem(err, source->stage);
    skip_blank(&r);
    if (read_value(&r, root) < 0)
        return -1;
    skip_blank(&r);
    if (r.cur < r.end)
        return jsonr_fail_expected(&r, "the end of the text");
    *ret_root = root;
    return 0;
}

const struct jsonr_node *jsonr_get_n(const struct jsonr_node *object, const char *key, size_t len)
{
    if (!object || object->type != JSONR_OBJECT)
        return NULL;
    const struct jsonr_node **index = object->u.children.index;
    if (!index) {
        const struct jsonr_node *node = object->u.children.first;
        while (node && key_order(key, len, node) != 0)
            node = node->next;
        return node;
    }
    for (size_t low = 0, high = object->u.children.count; low < high;) {
        size_t middle = low + (high - low) / 2;
        int order = key_order(key, len, index[middle]);
        if (order == 0)
            return index[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

const struct jsonr_node *jsonr_get(const struct jsonr_node *object, const char *key)
{
    return jsonr_get_n(object, key, strlen(key));
}

static bool has_children(const struct jsonr_node *node)
{
    return node && (node->type == JSONR_ARRAY || node->type == JSONR_OBJECT);
}

const struct jsonr_node *jsonr_first(const struct jsonr_node *node)
{
    return has_children(node) ? node->u.children.first : NULL;
}

size_t jsonr_count(const struct jsonr_node *node)
{
    return has_children(node) ? node->u.children.count : 0;
}

const char *jsonr_cstr(const struct jsonr_node *node)
{
    if (!node || node->type != JSONR_STRING || memchr(node->u.string.data, 0, node->u.string.len))
        return NULL;
    return node->u.string.data;
}

bool jsonr_int64(const struct jsonr_node *node, int64_t *ret)
{
    if (!node || node->type != JSONR_INTEGER || node->out_of_range)
        return false;
    if (!node->negative && node->u.magnitude > INT64_MAX)
        return false;
    *ret = (int64_t)(node->negative ? 0 - node->u.magnitude : node->u.magnitude);
    return true;
}

bool jsonr_uint64(const struct jsonr_node *node, uint64_t *ret)
{
    if (!node || node->type != JSONR_INTEGER || node->out_of_range || node->negative)
        return false;
    *ret = node->u.magnitude;
    return true;
}

bool jsonr_double(const struct jsonr_node *node, double *ret)
{
    if (!node || (node->type != JSONR_INTEGER && node->type != JSONR_REAL))
        return false;
    if (node->type == JSONR_REAL || node->out_of_range)
        *ret = node->u.real;
    else
        *ret = node->negative ? -(double)node->u.magnitude : (double)node->u.magnitude;
    return true;
}

const char *jsonr_type_name(enum jsonr_type type)
{
    static const char *const names[] = {
        [JSONR_NULL] = "null",          [JSONR_BOOL] = "a boolean",  [JSONR_INTEGER] = "an integer",
        [JSONR_REAL] = "a real number", [JSONR_STRING] = "a string", [JSONR_ARRAY] = "a list",
        [JSONR_OBJECT] = "an object",
    };
    return names[type];
}
