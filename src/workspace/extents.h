/* Where a file has data: everything else in it is holes. */
#ifndef WORKSPACE_EXTENTS_H
#define WORKSPACE_EXTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A file in more pieces is told in fewer: its shortest holes then count as data. */
#define EXTENTS_MAX 65536u

struct extent {
    uint64_t at, len;
};

struct extents {
    struct extent *list; /* in order, apart from each other, below size; the caller frees */
    size_t n, cap;
    uint64_t size, bytes; /* of the file, of its data */
};

/* The first size bytes of an open file; where its file system knows of no holes it has none. The
 * list of an earlier file is used again. -1: no memory. */
int extents_look(struct extents *x, int fd, uint64_t size);
bool extents_has_holes(const struct extents *x);
void extents_done(struct extents *x);

#endif
