/* Would an overlay of a folder be able to copy its files up? Runs on our side.
 *
 * The kernel maps only the caller's own user and group into the guest and answers EOVERFLOW to a
 * change of anybody else's file. */
#ifndef WORKSPACE_SCAN_H
#define WORKSPACE_SCAN_H

#include <stdbool.h>
#include <stddef.h>

enum scan_owners {
    SCAN_OWN,     /* everything is the caller's */
    SCAN_FOREIGN, /* something is not */
    SCAN_PARTLY,  /* what was looked at is, nearest the top first; there is more */
};

/* The first few thousand entries: fast enough for every run. */
enum scan_owners scan_owners(int base_fd);
/* A million entries, and some seconds at most: may take longer than anybody wants to wait in a loop
 * that serves others. */
enum scan_owners scan_whole(int base_fd);

struct scan_missed {
    size_t n;        /* files of others in folders the guest worked in, that it did not change */
    char first[128]; /* one of them, printable; may be cut */
    bool is_partly;  /* there was more than could be looked at */
};

/* After a run over a base that was looked at in part: can the guest have met such a file? To change
 * a file the kernel first copies every folder on the way to it up, from the top down. So whatever
 * it failed to copy lies in a folder of the upper layer, and only those are looked at. */
void scan_missed(int upper_fd, int base_fd, struct scan_missed *ret);
/* The same for whoever is root outside: what belongs to somebody else and is closed to others by
 * its mode is refused before anything is copied. Looks at the base itself, nearest the top first.
 */
void scan_closed(int base_fd, struct scan_missed *ret);

#endif
