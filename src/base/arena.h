/* A bump allocator: everything made for one plan is freed at once. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

struct arena_chunk;

struct arena {
    struct arena_chunk *chunks;
};

void *arena_alloc(struct arena *a, size_t size); /* zeroed, aligned; NULL when memory is out */
char *arena_strdup(struct arena *a, const char *s);
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void arena_done(struct arena *a);

#endif
