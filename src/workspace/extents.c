/* Holes of files. Runs on our side, over files a guest made: how many pieces they are in is its
 * choice, what is remembered of them is not. */
#include "workspace/extents.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/util.h"

#define EXTENTS_GAP 4096 /* the first guess at how short a hole has to be to be filled */

/* Half of the list is left: the shortest holes are filled, and of equal ones no more than need be.
 */
static void extents_thin(struct extents *x, uint64_t *gap)
{
    size_t wanted = EXTENTS_MAX / 2;
    for (; x->n > wanted; *gap *= 2) {
        size_t kept = 0, surplus = x->n - wanted;
        for (size_t i = 1; i < x->n; i++) {
            struct extent *last = &x->list[kept];
            bool fills = surplus > 0 && x->list[i].at - (last->at + last->len) <= *gap;
            surplus -= fills;
            if (fills)
                last->len = x->list[i].at + x->list[i].len - last->at;
            else
                x->list[++kept] = x->list[i];
        }
        x->n = kept + 1;
    }
}

static int extents_add(struct extents *x, uint64_t at, uint64_t end, uint64_t *gap)
{
    if (x->n == EXTENTS_MAX)
        extents_thin(x, gap);
    if (x->n == x->cap) {
        size_t cap = x->cap ? x->cap * 2 : 16;
        struct extent *list = realloc(x->list, cap * sizeof(*list));
        if (!list)
            return -1;
        x->list = list;
        x->cap = cap;
    }
    x->list[x->n++] = (struct extent){at, end - at};
    return 0;
}

int extents_look(struct extents *x, int fd, uint64_t size)
{
    uint64_t gap = EXTENTS_GAP;
    x->n = 0;
    x->size = size;
    x->bytes = 0;
    for (uint64_t pos = 0; pos < size;) {
        off_t data = lseek(fd, (off_t)pos, SEEK_DATA);
        if (data < 0 && errno == ENXIO)
            break;
        off_t hole = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);
        if (hole <= data) {
            data = (off_t)pos;
            hole = (off_t)size;
        }
        if ((uint64_t)data >= size)
            break;
        uint64_t end = MIN((uint64_t)hole, size);
        if (extents_add(x, (uint64_t)data, end, &gap) < 0)
            return -1;
        pos = end;
    }
    for (size_t i = 0; i < x->n; i++)
        x->bytes += x->list[i].len;
    return 0;
}

bool extents_has_holes(const struct extents *x)
{
    return x->bytes < x->size;
}

void extents_done(struct extents *x)
{
    free(x->list);
    *x = (struct extents){0};
}
