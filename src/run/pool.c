/* Which guests are prepared, how many, and for how long. */
#include "run/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/util.h"
#include "net/netclient.h"
#include "supervise/supervise.h"

#define POOL_FEWEST 2                       /* that wait; below it one is made for each that goes */
#define POOL_REFILL 2                       /* most that are made for one that goes */
#define POOL_CALM 64                        /* runs in a row that left enough of them: one less */
#define POOL_IDLE_MS 2                      /* of silence before guests are prepared */
#define POOL_REAP_MS 10                     /* brokers that are ended, and not gone yet */
#define POOL_AGE_NS (20 * 1000000000ull)    /* a guest that waits longer is made anew */
#define POOL_UNUSED_NS (30 * 1000000000ull) /* a key that nobody asks for is forgotten */
#define POOL_FAILURES 3 /* in a row, after which a key is left to cold starts for a while */
#define POOL_FAILED_NS (30 * 1000000000ull)
/* children of one interpreter share its address layout and hash seed */
#define POOL_INTERPRETER_RUNS 1000
#define POOL_KEY_MAX (256 * 1024)

void pool_init(struct pool *pool, struct loop *loop)
{
    memset(pool, 0, sizeof(*pool));
    pool->loop = loop;
    pool->scratch = BUF_INIT(POOL_KEY_MAX);
    pool->mounts_fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
}

static void key_close(struct pool_key *k)
{
    while (k->n_parked > 0)
        warm_drop(k->parked[--k->n_parked]);
    if (!k->warm)
        return;
    loop_set(k->pool->loop, &k->watch, 0);
    warm_close(k->warm);
    k->warm = NULL;
}

static void key_forget(struct pool_key *k)
{
    key_close(k);
    free(k->key);
    memset(k, 0, sizeof(*k));
}

void pool_done(struct pool *pool)
{
    for (size_t i = 0; i < POOL_KEYS; i++)
        if (pool->keys[i].key)
            key_forget(&pool->keys[i]);
    netclient_settle();
    buf_done(&pool->scratch);
    util_close(&pool->mounts_fd);
}

/* What is bound in a guest that waits is as the host's mounts were: when they change, guests with
 * granted paths go. */
static void pool_check_mounts(struct pool *pool)
{
    struct pollfd p = {.fd = pool->mounts_fd, .events = POLLPRI};
    if (poll(&p, 1, 0) <= 0)
        return;
    for (size_t i = 0; i < POOL_KEYS; i++)
        if (pool->keys[i].has_grants)
            key_close(&pool->keys[i]);
}

static void key_note_failure(struct pool_key *k)
{
    k->failures++;
    k->failed_ns = clock_ns();
}

/* After a while there is one more try. */
static bool key_may_prepare(struct pool_key *k)
{
    if (k->failures >= POOL_FAILURES && k->failed_ns + POOL_FAILED_NS < clock_ns())
        k->failures = POOL_FAILURES - 1;
    return k->failures < POOL_FAILURES;
}

/* The spawner failed or died: every guest of it that waits is lost. */
static void key_failed(struct pool_key *k)
{
    key_note_failure(k);
    key_close(k);
}

static void key_on_event(struct loop_watch *w, uint32_t events)
{
    (void)events;
    struct pool_key *k = w->data;
    struct cordon_err err;
    if (warm_read(k->warm, &err) < 0)
        key_failed(k);
}

static struct pool_key *pool_find(struct pool *pool, const struct buf *key)
{
    for (size_t i = 0; i < POOL_KEYS; i++)
        if (pool->keys[i].key && pool->keys[i].key_len == key->len &&
            memcmp(pool->keys[i].key, key->data, key->len) == 0)
            return &pool->keys[i];
    return NULL;
}

/* Takes the place of the key that was not asked for the longest. */
static struct pool_key *pool_add(struct pool *pool, const struct buf *key)
{
    char *copy = malloc(key->len);
    if (!copy)
        return NULL;
    struct pool_key *k = &pool->keys[0];
    for (size_t i = 1; i < POOL_KEYS && k->key; i++)
        if (!pool->keys[i].key || pool->keys[i].used_ns < k->used_ns)
            k = &pool->keys[i];
    if (k->key)
        key_forget(k);
    k->key_len = key->len;
    k->key = memcpy(copy, key->data, key->len);
    k->pool = pool;
    k->target = POOL_FEWEST;
    return k;
}

static struct pool_key *pool_key_of(struct pool *pool, const struct plan *plan)
{
    struct buf *key = &pool->scratch;
    for (size_t i = 0; plan->id && i < POOL_KEYS; i++)
        if (pool->keys[i].plan_id == plan->id && pool->keys[i].failures < POOL_FAILURES)
            return &pool->keys[i];
    bool has_grants = plan_count_grants(plan) > 0;
    if (!plan_is_parkable(plan) || (has_grants && pool->mounts_fd < 0))
        return NULL;
    key->len = 0;
    key->failed = false; /* what was too much for an earlier one */
    plan_key(plan, key);
    size_t plain = key->len;
    bool interpreter = plan_has_interpreter(plan);
    if (interpreter)
        plan_key_interpreter(plan, key);
    if (key->failed)
        return NULL;
    struct pool_key *k = pool_find(pool, key);
    /* an interpreter that cannot be kept (a module of it has threads): guests without one */
    if (k && interpreter && k->failures >= POOL_FAILURES) {
        key->len = plain;
        interpreter = false;
        k = pool_find(pool, key);
    }
    if (!k && (k = pool_add(pool, key)))
        k->interpreter = interpreter;
    if (k) {
        k->plan_id = plan->id;
        k->has_grants = has_grants;
    }
    return k;
}

static void key_park(struct pool_key *k)
{
    struct cordon_err err;
    if (k->n_parked == POOL_GUESTS)
        return;
    if (warm_park(k->warm, &k->parked[k->n_parked], &err) < 0)
        key_failed(k);
    else
        k->n_parked++;
}

static struct warm_guest *key_remove(struct pool_key *k, size_t i)
{
    struct warm_guest *g = k->parked[i];
    k->n_parked--;
    memmove(k->parked + i, k->parked + i + 1, (k->n_parked - i) * sizeof(g));
    return g;
}

/* Those that are lost together are one failure. */
static void key_sweep(struct pool_key *k)
{
    bool has_failed = false;
    for (size_t i = 0; i < k->n_parked;) {
        bool failed = !warm_is_over(k->parked[i]) && warm_has_failed(k->parked[i]);
        has_failed |= failed;
        if (failed || warm_is_over(k->parked[i]))
            warm_drop(key_remove(k, i));
        else
            i++;
    }
    if (has_failed)
        key_note_failure(k);
}

static void key_open(struct pool_key *k, const struct plan *plan)
{
    struct cordon_err err;
    if (warm_open(plan, k->interpreter, &k->warm, &err) < 0) {
        k->warm = NULL;
        key_note_failure(k);
        return;
    }
    k->taken = 0;
    k->watch = (struct loop_watch){.fd = warm_fd(k->warm), .fn = key_on_event, .data = k};
    if (loop_set(k->pool->loop, &k->watch, EPOLLIN) < 0)
        key_failed(k);
    else
        k->pool->wants = true;
}

/* The last that became ready, which the caches know best, and has what the plan's paths mean now.
 * Those that nobody asks for grow old and go. */
static struct warm_guest *key_take_ready(struct pool_key *k, const struct plan *plan)
{
    for (size_t i = k->n_parked; i-- > 0;) {
        if (!warm_is_ready(k->parked[i]))
            continue;
        struct warm_guest *g = key_remove(k, i);
        if (!k->has_grants || warm_is_current(g, plan))
            return g;
        warm_drop(g);
    }
    return NULL;
}

/* One in the making, or one that is made now: from the template either way. */
static struct warm_guest *key_take_unready(struct pool_key *k)
{
    for (int tries = 0; tries < 2 && k->warm; tries++) {
        for (size_t i = 0; i < k->n_parked; i++)
            if (!warm_has_served(k->parked[i]))
                return key_remove(k, i);
        key_park(k);
    }
    return NULL;
}

struct warm_guest *pool_take(struct pool *pool, const struct plan *plan, bool interpreter)
{
    struct pool_key *k = pool_key_of(pool, plan);
    if (!k || (interpreter && (!k->interpreter || !k->warm)))
        return NULL;
    k->used_ns = clock_ns();
    k->seen++;
    if (k->has_grants)
        pool_check_mounts(pool);
    key_sweep(k);
    /* many at once, none of which has ended yet */
    if (!k->warm && k->seen > POOL_FEWEST && key_may_prepare(k))
        key_open(k, plan);
    struct warm_guest *g = key_take_ready(k, plan);
    if (!g && (!k->warm || !key_may_prepare(k))) {
        pool->cold++;
        return NULL;
    }
    if (!g) {
        k->target = MIN(k->target + 1, (size_t)POOL_GUESTS);
        k->calm = 0;
        if (k->n_parked == 0)
            key_park(k);
        /* what was bound is known when it stands, and is compared before it is used */
        g = k->has_grants ? NULL : key_take_unready(k);
        if (!g) {
            pool->wants = true;
            pool->cold++;
            return NULL;
        }
        pool->spawned++;
    } else {
        pool->hits++;
        k->failures = 0;
    }
    /* guests that wait take the caches from those that run */
    k->calm = k->n_parked < POOL_FEWEST ? 0 : k->calm + 1;
    if (k->calm > POOL_CALM && k->target > POOL_FEWEST) {
        k->target--;
        k->calm = 0;
    }
    pool->wants = true;
    k->taken++;
    return g;
}

void pool_not_used(struct pool *pool, bool was_ready)
{
    if (was_ready)
        pool->hits--;
    else
        pool->spawned--;
    pool->cold++;
}

void pool_note(struct pool *pool, const struct plan *plan, uint64_t start_ns)
{
    if (start_ns)
        pool->samples[pool->n_samples++ % POOL_SAMPLES] = start_ns;
    struct pool_key *k = pool_key_of(pool, plan);
    if (!k)
        return;
    /* who names modules has said that there will be more */
    if (plan->preload)
        k->seen = MAX(k->seen, 2u);
    if (k->warm && k->interpreter && k->taken >= POOL_INTERPRETER_RUNS)
        key_close(k); /* guests that still run keep it until they end */
    if (!k->warm && k->seen >= 2 && key_may_prepare(k))
        key_open(k, plan);
    /* rooms whose guests have ended come first */
    for (struct warm_guest *g; k->warm && (g = warm_take_back(k->warm));)
        if (k->n_parked < POOL_GUESTS)
            k->parked[k->n_parked++] = g;
        else
            warm_drop(g);
    /* One for one; where runs did not find one ready, one more at a time until they do: who waits
     * for a guest in the making leaves the other cores idle. */
    size_t wanted = MIN(k->target, k->n_parked + POOL_REFILL);
    while (k->warm && k->seen >= 2 && k->n_parked < MAX(wanted, (size_t)POOL_FEWEST)) {
        size_t before = k->n_parked;
        key_park(k);
        if (k->n_parked == before)
            break;
    }
}

int pool_timeout_ms(const struct pool *pool)
{
    if (pool->wants)
        return POOL_IDLE_MS;
    if (netclient_are_leaving())
        return POOL_REAP_MS;
    for (size_t i = 0; i < POOL_KEYS; i++)
        if (pool->keys[i].warm)
            return 1000;
    return -1;
}

static void key_idle(struct pool_key *k, uint64_t now)
{
    if (k->used_ns + POOL_UNUSED_NS < now) {
        key_forget(k);
        return;
    }
    key_sweep(k);
    while (k->n_parked > 0 && warm_born_ns(k->parked[0]) + POOL_AGE_NS < now) {
        warm_drop(key_remove(k, 0));
        k->target = POOL_FEWEST;
    }
    if (!k->warm || !key_may_prepare(k))
        return;
    /* one at a time: the loop is asked again in between */
    if (k->n_parked < k->target)
        key_park(k);
    if (k->warm && k->n_parked < k->target)
        k->pool->wants = true;
}

void pool_idle(struct pool *pool)
{
    uint64_t now = clock_ns();
    pool->wants = false;
    netclient_reap();
    if (pool->mounts_fd >= 0)
        pool_check_mounts(pool);
    for (size_t i = 0; i < POOL_KEYS; i++)
        if (pool->keys[i].key)
            key_idle(&pool->keys[i], now);
}

static int pool_compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

void pool_stats(const struct pool *pool, struct pool_stats *ret)
{
    uint64_t sorted[POOL_SAMPLES];
    size_t n = MIN(pool->n_samples, (uint64_t)POOL_SAMPLES);
    *ret = (struct pool_stats){.hits = pool->hits, .spawned = pool->spawned, .cold = pool->cold};
    for (size_t i = 0; i < POOL_KEYS; i++)
        ret->waiting += pool->keys[i].n_parked;
    if (n == 0)
        return;
    memcpy(sorted, pool->samples, n * sizeof(sorted[0]));
    qsort(sorted, n, sizeof(sorted[0]), pool_compare);
    ret->start_p50_ns = sorted[(n - 1) / 2];
    ret->start_p99_ns = sorted[(n - 1) * 99 / 100];
}
