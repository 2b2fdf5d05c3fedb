/* What jsonr.c and jsonr_scalar.c share. Nobody else includes it. */
#ifndef BASE_JSONR_INTERNAL_H
#define BASE_JSONR_INTERNAL_H

#include "base/jsonr.h"

struct jsonr_reader {
    const struct jsonr_source *source;
    struct arena *arena;
    struct cordon_err *err;
    const char *cur, *end;
    const char *mark;      /* columns are counted up to here */
    struct jsonr_pos here; /* of the mark */
    bool ascii;            /* columns are bytes */
    unsigned depth;
};

/* Set the error with file and place; return -1. */
int jsonr_fail(struct jsonr_reader *r, struct jsonr_pos pos, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* "EXPECTED expected, found" what stands at the cursor. */
int jsonr_fail_expected(struct jsonr_reader *r, const char *expected);

/* The place of the cursor. Line ends stand between values only, and whoever steps over one calls
 * jsonr_newline(). */
struct jsonr_pos jsonr_here(struct jsonr_reader *r);

/* Done once over the whole text, so that nothing after it has to doubt a sequence. */
int jsonr_check_utf8(struct jsonr_reader *r);
/* The cursor stands on the opening quote. */
int jsonr_string(struct jsonr_reader *r, const char **ret_data, size_t *ret_len);
/* The cursor stands on a digit or a minus sign, which is the place of the node. */
int jsonr_number(struct jsonr_reader *r, struct jsonr_node *node);

static inline void jsonr_newline(struct jsonr_reader *r, const char *next)
{
    r->here = (struct jsonr_pos){r->here.line + 1, 1};
    r->mark = next;
}

static inline bool jsonr_take(struct jsonr_reader *r, char c)
{
    if (r->cur == r->end || *r->cur != c)
        return false;
    r->cur++;
    return true;
}

#endif
