/* A growable byte buffer that declares its maximum. Appending past the maximum fails and changes
 * nothing; the buffer is always NUL-terminated one byte past its length once non-empty. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    char *data;
    size_t len;
    size_t cap;
    size_t max;
    bool failed; /* an append did not fit or memory ran out; sticky, checked once at the end */
};

#define BUF_INIT(maximum) ((struct buf){.max = (maximum)})

void buf_done(struct buf *b);
int buf_reserve(struct buf *b, size_t more);
int buf_add(struct buf *b, const void *data, size_t len);
int buf_str(struct buf *b, const char *s);
int buf_char(struct buf *b, char c);
/* In decimal, with so many digits at least (20 at most). */
int buf_uint(struct buf *b, uint64_t value, unsigned digits);
int buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The contents as a string the caller frees, or NULL if anything failed. Leaves the buffer empty.
 */
char *buf_take(struct buf *b);

#define _cleanup_buf_ __attribute__((cleanup(buf_done)))

#endif
