/* Strict JSON reader (RFC 8259): text in, a tree with the place of every key and value out.
 *
 * Pure: no files, no globals, no locale. Safe to call from any thread. The tree is read-only and
 * never deeper than JSONR_DEPTH_MAX, so that callers may recurse over it. Time is at most
 * proportional to n log n whatever the text says, memory to about 32 times its length. */
#ifndef BASE_JSONR_H
#define BASE_JSONR_H

#include <cordon.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

#define JSONR_DEPTH_MAX 64               /* lists and objects inside each other */
#define JSONR_SIZE_MAX ((size_t)1 << 30) /* lengths and places are kept in 32 bits */

enum jsonr_type {
    JSONR_NULL,
    JSONR_BOOL,
    JSONR_INTEGER, /* no fraction, no exponent */
    JSONR_REAL,
    JSONR_STRING,
    JSONR_ARRAY,
    JSONR_OBJECT,
};

/* 1-based; the column counts characters (code points), as an editor shows it. */
struct jsonr_pos {
    uint32_t line, column;
};

struct jsonr_node {
    const struct jsonr_node *next; /* sibling, or NULL */
    const char *key;               /* NULL outside objects; NUL-terminated, may hold NULs */
    uint32_t key_len;
    uint8_t type;             /* enum jsonr_type */
    bool negative;            /* JSONR_INTEGER: below zero */
    bool out_of_range;        /* JSONR_INTEGER: fits neither int64_t nor uint64_t */
    struct jsonr_pos key_pos; /* 0:0 without a key */
    struct jsonr_pos pos;     /* of the value's first character */
    union {
        bool boolean;
        uint64_t magnitude; /* JSONR_INTEGER in range, without its sign; see jsonr_int64() */
        double real;        /* JSONR_REAL; JSONR_INTEGER out of range: the nearest. Always finite */
        struct {
            const char *data; /* NUL-terminated, may hold NULs; always valid UTF-8 */
            size_t len;
        } string;
        struct { /* JSONR_ARRAY, JSONR_OBJECT: children in the order of the text */
            const struct jsonr_node *first;
            size_t count;
            const struct jsonr_node **index; /* private */
        } children;
    } u;
};

/* What to read and how to speak of it. */
struct jsonr_source {
    const char *name; /* stands for the file in messages */
    const char *text;
    size_t len;
    size_t max_bytes;  /* a longer text is an error; JSONR_SIZE_MAX is a bound in any case */
    uint32_t line;     /* of the text's first line in its file, for one line of many; 0 means 1 */
    int code;          /* of errors in the text, CORDON_ERR_CONFIG for a file of the user */
    const char *stage; /* of all errors */
};

/* Reads one document. Refused: anything RFC 8259 does not allow, a byte order mark, a key that
 * stands twice in an object, half a surrogate pair, a number beyond the range of a double. On
 * failure the message reads "NAME:LINE:COLUMN: what is wrong"; a text that ends too early is
 * reported at its last character (column 0 if the last line is empty). Out of memory is
 * CORDON_ERR_INTERNAL. The tree lives in the arena and does not refer to the source; after a
 * failure the arena may hold parts of it. */
int jsonr_parse(const struct jsonr_source *source, struct arena *arena,
                const struct jsonr_node **ret_root, struct cordon_err *err);

/* The child of an object with that key, or NULL; NULL as well when the node is NULL or no object.
 * O(log n) in large objects. */
const struct jsonr_node *jsonr_get(const struct jsonr_node *object, const char *key);
const struct jsonr_node *jsonr_get_n(const struct jsonr_node *object, const char *key, size_t len);

/* First child of an array or object, or NULL; go on with ->next. */
const struct jsonr_node *jsonr_first(const struct jsonr_node *node);
/* Children of an array or object; 0 for everything else and for NULL. */
size_t jsonr_count(const struct jsonr_node *node);

/* The text of a string that is safe to use as a C string, or NULL: not a string, or a NUL in it. */
const char *jsonr_cstr(const struct jsonr_node *node);

/* The value of a number; false and *ret untouched if the node is NULL, no integer or does not fit
 * (jsonr_double: no number). Nothing is converted silently: 1.0 is no integer. */
bool jsonr_int64(const struct jsonr_node *node, int64_t *ret);
bool jsonr_uint64(const struct jsonr_node *node, uint64_t *ret);
bool jsonr_double(const struct jsonr_node *node, double *ret);

/* "a string", "an integer" ... for messages. */
const char *jsonr_type_name(enum jsonr_type type);

#endif
