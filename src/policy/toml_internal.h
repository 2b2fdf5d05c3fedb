/* What the files of the TOML reader share; nobody else includes this.
 *
 * toml.c: document, memory, tree.  toml_text.c: encoding, places, messages, strings.
 * toml_scalar.c: numbers and dates.  toml_parse.c: grammar. */
#ifndef POLICY_TOML_INTERNAL_H
#define POLICY_TOML_INTERNAL_H

#include "policy/toml.h"

#define TOML_STAGE "policy"

/* How a table or array came to be decides who may still add to it. */
enum toml_origin {
    TOML_BY_VALUE,    /* written after '=' or inside an array: complete, never extended */
    TOML_BY_HEADER,   /* [a] or [[a]] */
    TOML_BY_IMPLICIT, /* a in [a.b]: may still be defined once */
    TOML_BY_DOTTED,   /* a in a.b = 1: extended by dotted keys and by headers below it only */
};

struct toml_chunk;

struct toml_doc {
    struct toml_chunk *chunks;
    struct toml_node *root;
};

struct toml_parser {
    const char *name;
    const char *cur, *end;
    unsigned line;
    const char *mark; /* place on this line whose column is known: columns cost O(n) in all */
    unsigned mark_column;
    char *scratch; /* as long as the text: no decoded string or number is longer than its source */
    struct toml_doc *doc;
    struct cordon_err *err;
};

/* A key or string as decoded into the parser's scratch buffer; valid until the next one. */
struct toml_slice {
    const char *data;
    size_t len;
    struct toml_pos pos;
};

/* toml.c */
void *toml_alloc(struct toml_doc *doc, size_t size);
const char *toml_copy(struct toml_doc *doc, const char *data, size_t len);
struct toml_node *toml_find(const struct toml_node *table, const char *key, size_t len);
void toml_append(struct toml_node *parent, struct toml_node *child);

/* toml_text.c */
#define TOML_QUOTE_SIZE 96
int toml_fail(struct toml_parser *p, struct toml_pos pos, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Text between quotes, cut and made harmless for a terminal; returns buf. */
const char *toml_quote(char buf[static TOML_QUOTE_SIZE], const char *data, size_t len);
/* What stands at the cursor, for "unexpected ..."; returns buf. */
const char *toml_describe(const struct toml_parser *p, char buf[static TOML_QUOTE_SIZE]);
int toml_check_utf8(struct toml_parser *p);
struct toml_pos toml_here(struct toml_parser *p);
void toml_skip_blank(struct toml_parser *p);
bool toml_at_newline(const struct toml_parser *p);
void toml_newline(struct toml_parser *p);
int toml_skip_comment(struct toml_parser *p);
int toml_string(struct toml_parser *p, bool allow_multiline, struct toml_slice *ret);

/* toml_scalar.c */
int toml_scalar(struct toml_parser *p, struct toml_node *node);

#endif
