/* Bump allocator. Leaf code on our side; never used after the clone. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_CHUNK 16384

/* The C library maps a fresh page for nearly every chunk, and unmaps it at the end: most of what
 * one command allocates. The first chunks of a process come from its own memory. Not in libcordon
 * (ARENA_IS_SHARED), whose callers have threads. */
#define ARENA_FIRST 3

struct arena_chunk {
    struct arena_chunk *next;
    size_t used, size;
    max_align_t data[];
};

#ifndef ARENA_IS_SHARED
static struct {
    bool used[ARENA_FIRST];
    _Alignas(max_align_t) char memory[ARENA_FIRST][sizeof(struct arena_chunk) + ARENA_CHUNK];
} arena_first;

static struct arena_chunk *arena_chunk_new(size_t room)
{
    for (size_t i = 0; room == ARENA_CHUNK && i < ARENA_FIRST; i++)
        if (!arena_first.used[i]) {
            arena_first.used[i] = true;
            return (struct arena_chunk *)(void *)arena_first.memory[i];
        }
    return calloc(1, sizeof(struct arena_chunk) + room);
}

static void arena_chunk_free(struct arena_chunk *c)
{
    for (size_t i = 0; i < ARENA_FIRST; i++)
        if ((void *)c == arena_first.memory[i]) {
            memset(c, 0, sizeof(*c) + c->used);
            arena_first.used[i] = false;
            return;
        }
    free(c);
}
#else
static struct arena_chunk *arena_chunk_new(size_t room)
{
    return calloc(1, sizeof(struct arena_chunk) + room);
}

static void arena_chunk_free(struct arena_chunk *c)
{
    free(c);
}
#endif

void *arena_alloc(struct arena *a, size_t size)
{
    if (size > SIZE_MAX - ARENA_CHUNK)
        return NULL;
    size = (size + sizeof(max_align_t) - 1) & ~(sizeof(max_align_t) - 1);
    struct arena_chunk *c = a->chunks;
    if (!c || c->size - c->used < size) {
        size_t room = size > ARENA_CHUNK ? size : ARENA_CHUNK;
        c = arena_chunk_new(room);
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
        arena_chunk_free(a->chunks);
        a->chunks = next;
    }
}
