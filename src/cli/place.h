/* A file of the caller's that is written when the guest is gone: a result, a report.
 *
 * The guest may be able to write to the folder it goes to, or to one above. So the folder is opened
 * before the guest exists, and a plain file is made anew in it and put in place in one step: it
 * appears whole or not at all, and no link is followed. Anything else (a pipe, a terminal) is
 * opened at once and written to; so are /dev/stdout and its like, whatever is behind them. A link
 * to a plain file is refused: an earlier guest may have left it. */
#ifndef CLI_PLACE_H
#define CLI_PLACE_H

#include <stdbool.h>
#include <stddef.h>

struct place {
    int fd;           /* of what is open already, else -1 */
    int dir;          /* of a plain one, else -1 */
    const char *name; /* in dir; part of the path it was opened with */
};

#define PLACE_NONE ((struct place){.fd = -1, .dir = -1})

/* 0, or -1 with errno and nothing to close. The path must stay. */
int place_open(struct place *p, const char *path);
/* What to say after the path when it was refused, and which errno (or 0) after that. */
const char *place_why(int *error);
static inline bool place_is_open(const struct place *p)
{
    return p->fd >= 0 || p->dir >= 0;
}
/* 0, or -1 with errno; 0 and nothing done where there is no place. */
int place_write(const struct place *p, const char *data, size_t len);
void place_close(struct place *p);

#endif
