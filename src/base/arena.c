/* Bump allocator. Leaf code on our side; never used after the clone. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_CHUNK 16384

struct arena_chunk {
    struct arena_chunk *next;
    size_t used, size;
    max_align_t data[];
};

void *arena_alloc(struct arena *a, size_t size)
{
    if (size > SIZE_MAX - ARENA_CHUNK)
        return NULL;
    size = (size + sizeof(max_align_t) - 1) & ~(sizeof(max_align_t) - 1);
    struct arena_chunk *c = a->chunks;
    if (!c || c->size - c->used < size) {
        size_t room = size > ARENA_CHUNK ? size : ARENA_CHUNK;
        c = calloc(1, sizeof(struct arena_chunk) + room);
        if (!c)
            return NULL;
        c->size = room;
        c->next = a->chunks;
        a->chunks = c;
    }
    void *p = (char *)c->data + c->used;
    c->used += size;
    return p;
}

char *arena_strdup(struct arena *a, const char *s)
{
    size_t len = strlen(s) + 1;
    char *p = arena_alloc(a, len);
    if (p)
        memcpy(p, s, len);
    return p;
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = n < 0 ? NULL : arena_alloc(a, (size_t)n + 1);
    if (p)
        vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}

void arena_done(struct arena *a)
{
    while (a->chunks) {
        struct arena_chunk *next = a->chunks->next;
        free(a->chunks);
        a->chunks = next;
    }
}
