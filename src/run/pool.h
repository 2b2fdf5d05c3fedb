/* Guests prepared ahead of their runs, for a supervisor that lives longer than one run.
 *
 * Per plan key: a spawner (backend/native/warm.h) and some guests that wait. A key gets them when
 * it was asked for a second time; what nobody asked for is given back after a while. Guests are
 * prepared when the loop has nothing else to do, or one for one when they run short. Runs in the
 * supervisor, on its loop. */
#ifndef RUN_POOL_H
#define RUN_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/native/warm.h"
#include "base/buf.h"
#include "base/loop.h"
#include "plan/plan.h"

#define POOL_KEYS 8
#define POOL_GUESTS 16 /* most that wait per key */
#define POOL_SAMPLES 512

struct pool_key {
    char *key; /* NULL: not used */
    size_t key_len;
    uint64_t plan_id;  /* the last plan of this key that serves many runs; 0: none */
    struct warm *warm; /* NULL: not yet, or refused */
    struct loop_watch watch;
    struct pool *pool;
    struct warm_guest *parked[POOL_GUESTS]; /* oldest first */
    size_t n_parked;
    size_t target; /* how many are to wait: one more for each run that found none ready */
    unsigned calm;
    bool interpreter, has_grants;
    unsigned seen, failures;
    unsigned taken; /* guests of this spawner */
    uint64_t used_ns, failed_ns;
};

struct pool_stats {
    uint64_t hits;    /* runs that found a guest waiting */
    uint64_t spawned; /* runs whose guest was made from a template for them */
    uint64_t cold;    /* runs that could have used one and started from nothing */
    uint64_t waiting; /* guests that wait now */
    uint64_t start_p50_ns, start_p99_ns; /* of the last runs of the first two kinds: from the
                                            request to the guest's first instruction */
};

struct pool {
    struct loop *loop;
    int mounts_fd; /* tells when the host's mounts change, -1: cannot be told */
    struct pool_key keys[POOL_KEYS];
    struct buf scratch; /* keys are written here: its memory is used again */
    bool wants;         /* something is to be done when the loop is idle */
    uint64_t hits, spawned, cold;
    uint64_t samples[POOL_SAMPLES];
    uint64_t n_samples;
};

void pool_init(struct pool *pool, struct loop *loop);
/* Gives everything back. */
void pool_done(struct pool *pool);

/* A guest for this plan, or NULL: start one from nothing. interpreter: only one whose program is
 * forked from a warm interpreter, which checks imports by itself. */
struct warm_guest *pool_take(struct pool *pool, const struct plan *plan, bool interpreter);
/* It could not be used, and the run was started from nothing; was_ready: it counted as a hit. */
void pool_not_used(struct pool *pool, bool was_ready);
/* A run with this plan has ended; start_ns: what its start took when it used a prepared guest. */
void pool_note(struct pool *pool, const struct plan *plan, uint64_t start_ns);
/* How long the loop may sleep, -1: for ever. */
int pool_timeout_ms(const struct pool *pool);
/* The loop had nothing to do for that long. */
void pool_idle(struct pool *pool);
void pool_stats(const struct pool *pool, struct pool_stats *ret_stats);

#endif
