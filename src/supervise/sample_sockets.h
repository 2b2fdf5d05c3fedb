/* Memory in the buffers of a guest's sockets, where no control group counts it. Used by sample.c
 * only.
 *
 * The kernel tells it per socket (NETLINK_SOCK_DIAG), in the guest's own network namespace only: a
 * child of ours enters it once and leaves its socket to us. A guest without a namespace of its own
 * (tier landlock, the host's network) is not looked at. */
#ifndef SUPERVISE_SAMPLE_SOCKETS_H
#define SUPERVISE_SAMPLE_SOCKETS_H

#include "supervise/sample_walk.h"

struct sockets_watch {
    int fd;              /* -1 until there was something to ask */
    bool off;            /* cannot be asked here */
    uint64_t most_bytes; /* that one socket may have on its way */
    uint64_t closed;     /* sockets that the last look counted and did not see */
};

void sockets_start(struct sockets_watch *watch);
void sockets_done(struct sockets_watch *watch);
/* Bytes in the buffers of every socket of the guest; 0 where there are too few to matter for the
 * limit. own: sockets in its namespace that are not its. */
uint64_t sockets_held(struct sockets_watch *watch, const struct walk *walk,
                      const struct walk_set *set, uint64_t limit, unsigned own);

#endif
