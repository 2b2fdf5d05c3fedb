/* libFuzzer entry for the TOML reader: any bytes must give a well-formed tree or one honest error.
 *
 * clang -std=gnu17 -D_GNU_SOURCE -g -O1 -fsanitize=fuzzer,address,undefined -Iinclude -Isrc \
 *     fuzz/fuzz_toml.c src/policy/toml*.c src/base/err.c -o build/fuzz_toml
 * build/fuzz_toml CORPUS_DIR ../shared/data/toml-test/tests/valid */
#include "policy/toml.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok)
        abort();
}

/* Recursion is what callers do, too: the depth must hold. */
static size_t check_tree(const struct toml_node *node, unsigned depth)
{
    size_t nodes = 1, count = 0;
    check(depth <= TOML_DEPTH_MAX);
    check(node->pos.line > 0 && node->pos.column > 0);
    if (node->type == TOML_STRING) {
        check(node->u.string.data[node->u.string.len] == '\0');
        check(!toml_cstr(node) || strlen(toml_cstr(node)) == node->u.string.len);
    }
    for (const struct toml_node *child = toml_first(node); child; child = child->next, count++) {
        check((child->key != NULL) == (node->type == TOML_TABLE));
        if (child->key) {
            check(child->key[child->key_len] == '\0');
            check(child->key_pos.line > 0 && child->key_pos.column > 0);
            check(toml_get_n(node, child->key, child->key_len) == child);
        }
        nodes += check_tree(child, depth + 1);
    }
    if (node->type == TOML_TABLE || node->type == TOML_ARRAY)
        check(count == node->u.children.count);
    return nodes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cordon_err err = {0};
    struct toml_doc *doc = NULL;
    if (toml_parse("f", (const char *)data, size, &doc, &err) < 0) {
        check(doc == NULL && err.code == CORDON_ERR_CONFIG);
        check(strncmp(err.message, "f:", 2) == 0 && err.message[2] >= '1' && err.message[2] <= '9');
        for (const char *c = err.message; *c; c++)
            check((unsigned char)*c >= 0x20 && *c != 0x7f);
        return 0;
    }
    /* a node takes at least one byte of text; the root none */
    check(check_tree(toml_root(doc), 0) <= size + 1);
    toml_doc_free(doc);
    return 0;
}
