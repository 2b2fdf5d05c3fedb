/* A small epoll loop: descriptors with callbacks, one thread. Watches are owned by the caller, who
 * embeds them; removing one during dispatch is safe. */
#ifndef BASE_LOOP_H
#define BASE_LOOP_H

#include <stdbool.h>
#include <stdint.h>

struct loop;
struct loop_watch;

typedef void loop_fn(struct loop_watch *w, uint32_t events);

struct loop_watch {
    int fd; /* not owned */
    uint32_t events;
    bool added;
    loop_fn *fn;
    void *data;
};

struct loop {
    int epoll_fd;
    struct loop_watch *pending[64]; /* of the batch being dispatched; a removed one becomes NULL */
    int n_pending;
};

int loop_init(struct loop *l);
/* Its descriptor is made with the first watch: a run has to get its guest going first. */
void loop_init_late(struct loop *l);
void loop_done(struct loop *l);
/* events 0 removes the watch. -1 with EPERM for files that cannot be polled (regular files). */
int loop_set(struct loop *l, struct loop_watch *w, uint32_t events);
/* Waits for one batch and dispatches it. timeout_ms -1: for ever. 0: the time was over, -1: the
 * loop is broken, else there was something. */
int loop_once(struct loop *l, int timeout_ms);

#endif
