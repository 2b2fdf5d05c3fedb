/* TOML documents: their memory, their tree and the ways to look at it.
 *
 * Called by the policy loader through toml.h and by the other toml_*.c files; runs in the front
 * process before anything is started. A document is one list of chunks, freed at once. */
#include "policy/toml_internal.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#define TOML_CHUNK_SIZE (16 * 1024)

struct toml_chunk {
    struct toml_chunk *next;
    size_t used, size;
    alignas(max_align_t) char data[];
};

void *toml_alloc(struct toml_doc *doc, size_t size)
{
    size = (size + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
    struct toml_chunk *chunk = doc->chunks;
    if (!chunk || chunk->size - chunk->used < size) {
        size_t room = size > TOML_CHUNK_SIZE ? size : TOML_CHUNK_SIZE;
        chunk = malloc(sizeof(*chunk) + room);
        if (!chunk)
            return NULL;
        chunk->next = doc->chunks;
        chunk->used = 0;
        chunk->size = room;
        doc->chunks = chunk;
    }
    void *mem = chunk->data + chunk->used;
    chunk->used += size;
    return mem;
}

const char *toml_copy(struct toml_doc *doc, const char *data, size_t len)
{
    char *copy = toml_alloc(doc, len + 1);
    if (!copy)
        return NULL;
    memcpy(copy, data, len);
    copy[len] = '\0';
    return copy;
}

void toml_doc_free(struct toml_doc *doc)
{
    if (!doc)
        return;
    struct toml_chunk *chunk = doc->chunks;
    while (chunk) {
        struct toml_chunk *next = chunk->next;
        free(chunk);
        chunk = next;
    }
    free(doc);
}

/* The keys of a table form an AA tree: a hash table would need a secret seed to withstand chosen
 * keys, a balanced tree is O(log n) whatever the input. Any total order will do; by length first
 * is the cheapest. */
static int key_compare(const char *key, size_t len, const struct toml_node *node)
{
    if (len != node->key_len)
        return len < node->key_len ? -1 : 1;
    return memcmp(key, node->key, len);
}

static struct toml_node *index_skew(struct toml_node *tree)
{
    struct toml_node *left = tree->left;
    if (!left || left->level != tree->level)
        return tree;
    tree->left = left->right;
    left->right = tree;
    return left;
}

static struct toml_node *index_split(struct toml_node *tree)
{
    struct toml_node *right = tree->right;
    if (!right || !right->right || right->right->level != tree->level)
        return tree;
    tree->right = right->left;
    right->left = tree;
    right->level++;
    return right;
}

/* Recursion is as deep as the tree: at most 2 * log2(n + 1), below 42 for a text of 1 MiB. */
static struct toml_node *index_insert(struct toml_node *tree, struct toml_node *node)
{
    if (!tree)
        return node;
    if (key_compare(node->key, node->key_len, tree) < 0)
        tree->left = index_insert(tree->left, node);
    else
        tree->right = index_insert(tree->right, node);
    return index_split(index_skew(tree));
}

struct toml_node *toml_find(const struct toml_node *table, const char *key, size_t len)
{
    struct toml_node *node = table->u.children.index;
    while (node) {
        int order = key_compare(key, len, node);
        if (order == 0)
            return node;
        node = order < 0 ? node->left : node->right;
    }
    return NULL;
}

/* The caller has made sure that the key is new. */
void toml_append(struct toml_node *parent, struct toml_node *child)
{
    if (parent->u.children.last)
        parent->u.children.last->next = child;
    else
        parent->u.children.first = child;
    parent->u.children.last = child;
    parent->u.children.count++;
    if (parent->type == TOML_TABLE) {
        child->level = 1;
        parent->u.children.index = index_insert(parent->u.children.index, child);
    }
}

const struct toml_node *toml_root(const struct toml_doc *doc)
{
    return doc->root;
}

const struct toml_node *toml_get_n(const struct toml_node *table, const char *key, size_t len)
{
    if (!table || table->type != TOML_TABLE)
        return NULL;
    return toml_find(table, key, len);
}

const struct toml_node *toml_get(const struct toml_node *table, const char *key)
{
    return toml_get_n(table, key, strlen(key));
}

const struct toml_node *toml_first(const struct toml_node *node)
{
    if (node->type != TOML_TABLE && node->type != TOML_ARRAY)
        return NULL;
    return node->u.children.first;
}

const char *toml_cstr(const struct toml_node *node)
{
    if (node->type != TOML_STRING || memchr(node->u.string.data, '\0', node->u.string.len))
        return NULL;
    return node->u.string.data;
}

const char *toml_type_name(enum toml_type type)
{
    switch (type) {
    case TOML_STRING: return "a string";
    case TOML_INTEGER: return "an integer";
    case TOML_FLOAT: return "a float";
    case TOML_BOOL: return "a boolean";
    case TOML_OFFSET_DATETIME: return "a date-time with offset";
    case TOML_LOCAL_DATETIME: return "a local date-time";
    case TOML_LOCAL_DATE: return "a local date";
    case TOML_LOCAL_TIME: return "a local time";
    case TOML_ARRAY: return "an array";
    case TOML_TABLE: return "a table";
    }
    return "unknown";
}
