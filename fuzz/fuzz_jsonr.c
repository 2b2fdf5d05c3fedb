/* libFuzzer entry for the JSON reader: any bytes must give a well-formed tree or one honest error,
 * and a tree that is written out and read again is the same tree.
 *
 * clang -std=gnu17 -D_GNU_SOURCE -g -O1 -fsanitize=fuzzer,address,undefined -Iinclude -Isrc \
 *     fuzz/fuzz_jsonr.c src/base/jsonr*.c src/base/arena.c src/base/err.c src/base/buf.c \
 *     -o build/fuzz_jsonr
 * build/fuzz_jsonr CORPUS_DIR ../shared/data/seccomp */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/jsonr.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok)
        abort();
}

static int parse(const char *text, size_t len, struct arena *arena, const struct jsonr_node **root,
                 struct cordon_err *err)
{
    struct jsonr_source source = {.name = "f",
                                  .text = text,
                                  .len = len,
                                  .max_bytes = SIZE_MAX,
                                  .code = CORDON_ERR_CONFIG,
                                  .stage = "policy"};
    return jsonr_parse(&source, arena, root, err);
}

static void write_text(struct buf *out, const char *data, size_t len)
{
    buf_char(out, '"');
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)data[i] < 0x20 || data[i] == '"' || data[i] == '\\')
            buf_printf(out, "\\u%04x", (unsigned char)data[i]);
        else
            buf_char(out, data[i]);
    buf_char(out, '"');
}

static void write_scalar(struct buf *out, const struct jsonr_node *node)
{
    uint64_t u;
    int64_t i;
    double d;
    if (node->type == JSONR_STRING) {
        check(node->u.string.data[node->u.string.len] == '\0');
        check(!jsonr_cstr(node) || strlen(jsonr_cstr(node)) == node->u.string.len);
        write_text(out, node->u.string.data, node->u.string.len);
    } else if (jsonr_uint64(node, &u)) {
        buf_printf(out, "%" PRIu64, u);
    } else if (jsonr_int64(node, &i)) {
        check(i < 0);
        buf_printf(out, "%" PRId64, i);
    } else if (jsonr_double(node, &d)) {
        check(isfinite(d));
        buf_printf(out, node->type == JSONR_INTEGER ? "%.0f" : "%.17e", d);
    } else {
        check(node->type == JSONR_NULL || node->type == JSONR_BOOL);
        buf_str(out, node->type == JSONR_NULL ? "null" : node->u.boolean ? "true" : "false");
    }
}

/* Recursion is what callers do, too: the depth must hold. */
static size_t write_tree(struct buf *out, const struct jsonr_node *node, unsigned depth)
{
    size_t nodes = 1, count = 0;
    bool object = node->type == JSONR_OBJECT;
    check(depth <= JSONR_DEPTH_MAX);
    check(node->pos.line > 0 && node->pos.column > 0);
    if (!object && node->type != JSONR_ARRAY) {
        write_scalar(out, node);
        return 1;
    }
    buf_char(out, object ? '{' : '[');
    for (const struct jsonr_node *child = jsonr_first(node); child; child = child->next, count++) {
        check((child->key != NULL) == object);
        if (count > 0)
            buf_char(out, ',');
        if (object) {
            check(child->key[child->key_len] == '\0');
            check(child->key_pos.line > 0 && child->key_pos.column > 0);
            check(jsonr_get_n(node, child->key, child->key_len) == child);
            write_text(out, child->key, child->key_len);
            buf_char(out, ':');
        }
        nodes += write_tree(out, child, depth + 1);
    }
    check(count == jsonr_count(node));
    buf_char(out, object ? '}' : ']');
    return nodes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cordon_err err = {0};
    struct arena arena = {0};
    const struct jsonr_node *root = NULL;
    if (parse((const char *)data, size, &arena, &root, &err) < 0) {
        check(root == NULL && err.code == CORDON_ERR_CONFIG);
        check(strncmp(err.message, "f:", 2) == 0 && err.message[2] >= '1' && err.message[2] <= '9');
        for (const char *c = err.message; *c; c++)
            check(*c >= 0x20 && *c != 0x7f);
        arena_done(&arena);
        return 0;
    }
    struct buf first = BUF_INIT(SIZE_MAX / 2), second = BUF_INIT(SIZE_MAX / 2);
    check(write_tree(&first, root, 0) <= size);
    check(parse(first.data, first.len, &arena, &root, &err) == 0);
    write_tree(&second, root, 0);
    check(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
    buf_done(&first);
    buf_done(&second);
    arena_done(&arena);
    return 0;
}
