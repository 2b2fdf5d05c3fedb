/* Work that must not hold up an event loop and that nobody waits for. */
#ifndef BASE_DETACH_H
#define BASE_DETACH_H

#include <stddef.h>

/* In a child: keeps these descriptors, as 0, 1, 2 ..., and closes every other. The sockets and
 * pipes of a parent must not stay open in a child: their other ends wait for them to close. -1 and
 * errno. */
int detach_keep(const int *fds, size_t n);

/* A process of its own, nobody's child, with nothing but these descriptors and the lowest priority:
 * 1 in it (it ends by _exit), 0 in the caller, -1 and errno. */
int detach_fork(const int *fds, size_t n);

#endif
