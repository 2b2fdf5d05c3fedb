/* Which lines of two texts differ. Pure: bytes in, marks out.
 *
 * Myers' algorithm in linear space with a bound on effort: on texts with little in common the marks
 * are still right (what is not marked is the same on both sides, in order), only not the fewest. */
#ifndef WORKSPACE_DIFF_H
#define WORKSPACE_DIFF_H

#include <stddef.h>
#include <stdint.h>

#include <cordon.h>

#include "base/buf.h"

struct diff_line {
    const char *data;
    size_t len; /* with its newline, if it has one */
};

struct diff_text {
    struct diff_line *lines;
    unsigned char *changed; /* per line: not on the other side */
    size_t n;
};

struct diff {
    struct diff_text a, b; /* the lines point into the caller's bytes */
    size_t added, removed;
};

#define DIFF_LINES_MAX ((size_t)1 << 18) /* per side */

/* How many lines the bytes have; a last one without a newline counts. */
size_t diff_count_lines(const char *data, size_t len);

/* Both sides must have at most DIFF_LINES_MAX lines. */
int diff_make(const char *a, size_t a_len, const char *b, size_t b_len, struct diff *ret_diff,
              struct cordon_err *err);
void diff_done(struct diff *diff);

/* The hunks in unified format with three lines of context; nothing when the texts are equal. */
void diff_hunks(const struct diff *diff, struct buf *out);

#endif
