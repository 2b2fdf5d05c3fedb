/* Bounded buffers. Leaf code, used on our side only (never after the clone). */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_done(struct buf *b)
{
    free(b->data);
    *b = BUF_INIT(b->max);
}

int buf_reserve(struct buf *b, size_t more)
{
    if (more > b->max || b->len > b->max - more) {
        b->failed = true;
        return -1;
    }
    size_t need = b->len + more + 1;
    if (need <= b->cap)
        return 0;

    size_t cap = b->cap ? b->cap : 256;
    while (cap < need)
        cap *= 2;
    char *data = realloc(b->data, cap);
    if (!data) {
        b->failed = true;
        return -1;
    }
    b->data = data;
    b->cap = cap;
    return 0;
}

/* Most pieces are a few bytes: a call costs more than their copy. */
static void buf_copy(char *to, const char *from, size_t len)
{
    if (len > 16) {
        memcpy(to, from, len);
    } else if (len >= 8) {
        memcpy(to, from, 8);
        memcpy(to + len - 8, from + len - 8, 8);
    } else if (len >= 4) {
        memcpy(to, from, 4);
        memcpy(to + len - 4, from + len - 4, 4);
    } else if (len > 0) {
        to[0] = from[0];
        to[len / 2] = from[len / 2];
        to[len - 1] = from[len - 1];
    }
}

int buf_add(struct buf *b, const void *data, size_t len)
{
    if (buf_reserve(b, len) < 0)
        return -1;
    buf_copy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = '\0';
    return 0;
}

int buf_str(struct buf *b, const char *s)
{
    return buf_add(b, s, strlen(s));
}

int buf_char(struct buf *b, char c)
{
    if (buf_reserve(b, 1) < 0)
        return -1;
    b->data[b->len++] = c;
    b->data[b->len] = '\0';
    return 0;
}

int buf_uint(struct buf *b, uint64_t value, unsigned digits)
{
    char text[20];
    unsigned n = 0;
    do {
        text[sizeof(text) - ++n] = (char)('0' + value % 10);
        value /= 10;
    } while (n < sizeof(text) && (value > 0 || n < digits));
    return buf_add(b, text + sizeof(text) - n, n);
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    int r = -1;
    if (n >= 0 && buf_reserve(b, (size_t)n) == 0) {
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
        r = 0;
    } else {
        b->failed = true;
    }
    va_end(again);
    return r;
}

char *buf_take(struct buf *b)
{
    if (!b->failed && !b->data)
        buf_add(b, "", 0);
    if (b->failed) {
        buf_done(b);
        return NULL;
    }
    char *data = b->data;
    *b = BUF_INIT(b->max);
    return data;
}
