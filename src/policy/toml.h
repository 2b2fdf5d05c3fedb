/* Strict TOML 1.0 reader: text in, a tree with the place of every key and value out.
 *
 * Pure: no files, no globals, no locale. Safe to call from any thread. The tree is read-only and
 * never deeper than TOML_DEPTH_MAX, so that callers may recurse over it. */
#ifndef POLICY_TOML_H
#define POLICY_TOML_H

#include <cordon.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Configuration is untrusted input as soon as it comes with a project: both bounds are hard. */
#define TOML_DEPTH_MAX 64
#define TOML_SIZE_MAX (1024 * 1024)

enum toml_type {
    TOML_STRING,
    TOML_INTEGER,
    TOML_FLOAT,
    TOML_BOOL,
    TOML_OFFSET_DATETIME,
    TOML_LOCAL_DATETIME,
    TOML_LOCAL_DATE,
    TOML_LOCAL_TIME,
    TOML_ARRAY,
    TOML_TABLE,
};

/* 1-based; the column counts characters (code points), as an editor shows it. */
struct toml_pos {
    unsigned line, column;
};

/* The node's type says which members mean something; the others are 0. */
struct toml_datetime {
    int16_t year;
    uint8_t month, day;
    uint8_t hour, minute, second; /* second may be 60: a leap second */
    uint32_t nanosecond;          /* further digits are cut off, as the standard asks */
    int16_t offset_minutes;       /* east of UTC */
};

struct toml_node {
    enum toml_type type;
    struct toml_pos key_pos; /* 0:0 without a key */
    struct toml_pos pos;     /* of the value; of the header's bracket or of the key for a table */
    const char *key;         /* NULL for the root and in arrays; NUL-terminated, may hold NULs */
    size_t key_len;
    union {
        struct {
            const char *data; /* NUL-terminated, may hold NULs */
            size_t len;
        } string;
        int64_t integer;
        double real;
        bool boolean;
        struct toml_datetime datetime;
        struct { /* TOML_ARRAY, TOML_TABLE: children in the order of the text */
            struct toml_node *first, *last;
            size_t count;
            struct toml_node *index; /* private */
        } children;
    } u;
    struct toml_node *next; /* sibling, or NULL */

    /* private */
    struct toml_node *left, *right;
    uint8_t level, depth, origin;
};

struct toml_doc;

/* Reads len bytes of text; name stands for the file in messages. On failure err->code is
 * CORDON_ERR_CONFIG and the message reads "NAME:LINE:COLUMN: what is wrong" (out of memory:
 * CORDON_ERR_INTERNAL). The document does not refer to text or name afterwards. */
int toml_parse(const char *name, const char *text, size_t len, struct toml_doc **ret_doc,
               struct cordon_err *err);

/* Frees the document and every node of it; NULL is accepted. */
void toml_doc_free(struct toml_doc *doc);

/* The top-level table; never NULL. */
const struct toml_node *toml_root(const struct toml_doc *doc);

/* The child of a table with that key, or NULL; NULL as well when the node is NULL or no table. */
const struct toml_node *toml_get(const struct toml_node *table, const char *key);
const struct toml_node *toml_get_n(const struct toml_node *table, const char *key, size_t len);

/* First child of an array or table, or NULL; go on with ->next. */
const struct toml_node *toml_first(const struct toml_node *node);

/* The text of a string that is safe to use as a C string, or NULL: not a string, or a NUL in it. */
const char *toml_cstr(const struct toml_node *node);

/* "a string", "an integer" ... for messages. */
const char *toml_type_name(enum toml_type type);

#endif
