/* Memory of shared anonymous mappings that no page table shows. Used by sample.c only.
 *
 * Pages of a shared mapping belong to an object of the kernel's, not to a process: given back with
 * MADV_DONTNEED, unmapped by all but one holder, or inherited and never touched, they are in no
 * resident set. Nobody but root can ask how large such an object is. Two things are known: how much
 * shared memory the whole host gained since the guest began (one cheap call), and how far the
 * guest's objects were seen to reach. The smaller of the two is what the guest is taken to hold. */
#ifndef SUPERVISE_SAMPLE_SHARED_H
#define SUPERVISE_SAMPLE_SHARED_H

#include "supervise/sample_walk.h"

#define SHARED_OBJECTS 64 /* living at once; ordinary programs have a handful */

struct shared_object {
    uint64_t inode, end_bytes;
    bool seen; /* by the present look */
};

struct shared_watch {
    uint64_t host_least; /* least shared memory of the host since the guest began */
    struct shared_object list[SHARED_OBJECTS];
    size_t n;
};

void shared_start(struct shared_watch *watch);
/* What the host's shared memory grew by: an upper bound for the guest's. */
uint64_t shared_growth(struct shared_watch *watch);
/* Bytes of shared anonymous memory the tree is taken to hold, at most `growth`. Reads every
 * process's list of mappings: for the case that growth is worth a look. */
uint64_t shared_held(struct shared_watch *watch, const struct walk *walk,
                     const struct walk_set *set, uint64_t growth, uint64_t deadline_ns);

#endif
