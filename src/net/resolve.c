/* The resolver's questions: fixed names, kept answers, two exchanges each (IPv4 and IPv6). Runs in
 * the broker. Callers hear from resolve_tick only, so that no callback runs inside another. */
#include "net/resolve.h"

#include "base/err.h"
#include "base/util.h"
#include "net/resolve_internal.h"

#define TTL_MIN_S 1
#define TTL_MAX_S 60

int resolve_new(struct loop *loop, const struct resolve_config *config,
                struct resolver **ret_resolver, struct cordon_err *err)
{
    struct resolver *r = calloc(1, sizeof(*r));
    if (!r)
        return err_nomem(err, "network");
    r->loop = loop;
    r->try_ms = config->try_ms ? config->try_ms : 2000;
    r->max_queries = config->max_queries ? config->max_queries : 256;
    r->cache = calloc(RESOLVE_CACHE_MAX, sizeof(*r->cache));
    if (!r->cache || resolve_conf_load(config, &r->conf, err) < 0) {
        if (!r->cache)
            err_nomem(err, "network");
        resolve_free(r);
        return -1;
    }
    *ret_resolver = r;
    return 0;
}

/* The first of those that wait for the same name, or NULL. */
static struct resolve_query *find_follower(const struct resolve_query *q)
{
    for (struct resolve_query *f = q->resolver->queries; f; f = f->next) {
        if (f->is_follower && str_eq(f->name, q->name))
            return f;
    }
    return NULL;
}

static void query_free(struct resolve_query *q)
{
    for (size_t i = 0; i < ARRAY_SIZE(q->asks); i++)
        resolve_ask_stop(&q->asks[i]);
    *q->link = q->next;
    if (q->next)
        q->next->link = q->link;
    q->resolver->n_asking -= !q->is_follower;
    free(q);
}

/* Those that waited for the same name have their answer too. */
static void share(const struct resolve_query *q)
{
    for (struct resolve_query *f = q->resolver->queries; f; f = f->next) {
        if (f->is_follower && !f->is_ready && str_eq(f->name, q->name)) {
            f->result = q->result;
            f->is_ready = true;
        }
    }
}

void resolve_cancel(struct resolve_query *q)
{
    struct resolve_query *next = q->is_follower || q->is_ready ? NULL : find_follower(q);
    if (next) { /* the next one asks in its place, from the beginning */
        next->is_follower = false;
        next->resolver->n_asking++;
        for (size_t i = 0; i < ARRAY_SIZE(next->asks); i++)
            resolve_ask_start(&next->asks[i], resolve_ask_now_ms());
    }
    if (!q->is_follower && q->is_ready)
        share(q);
    query_free(q);
}

void resolve_free(struct resolver *r)
{
    if (!r)
        return;
    while (r->queries)
        query_free(r->queries);
    resolve_conf_done(&r->conf);
    free(r->cache);
    free(r);
}

/* ---- answers that are there already -----------------------------------------------------------
 */

static bool from_hosts(const struct resolver *r, const char *name, struct resolve_result *ret)
{
    struct resolve_result result = {.status = RESOLVE_OK, .ttl_s = TTL_MAX_S};
    for (size_t i = 0; i < r->conf.n_hosts && result.n_addrs < RESOLVE_ADDRS_MAX; i++) {
        if (str_eq(r->conf.hosts[i].name, name))
            memcpy(result.addrs[result.n_addrs++], r->conf.hosts[i].addr, 16);
    }
    if (result.n_addrs > 0)
        *ret = result;
    return result.n_addrs > 0;
}

static struct resolve_cached *find_cached(const struct resolver *r, const char *name)
{
    for (size_t i = 0; i < r->n_cached; i++) {
        if (str_eq(r->cache[i].name, name))
            return &r->cache[i];
    }
    return NULL;
}

static void keep(struct resolver *r, const char *name, const struct resolve_result *result,
                 uint64_t now_ms)
{
    struct resolve_cached *c = find_cached(r, name);
    if (result->status == RESOLVE_FAILED)
        return;
    if (!c) { /* the oldest place, once all are taken */
        c = &r->cache[r->next_cached];
        r->next_cached = (r->next_cached + 1) % RESOLVE_CACHE_MAX;
        r->n_cached = MAX(r->n_cached, (size_t)(c - r->cache) + 1);
    }
    snprintf(c->name, sizeof(c->name), "%s", name);
    c->result = *result;
    c->until_ms = now_ms + (uint64_t)MIN(MAX(result->ttl_s, TTL_MIN_S), TTL_MAX_S) * 1000;
}

/* ---- questions --------------------------------------------------------------------------------
 */

/* Somebody waits for an answer about this name already. */
static bool is_asked(const struct resolver *r, const char *name)
{
    for (const struct resolve_query *q = r->queries; q; q = q->next) {
        if (!q->is_ready && !q->is_follower && str_eq(q->name, name))
            return true;
    }
    return false;
}

struct resolve_query *resolve_start(struct resolver *r, const char *name, uint64_t now_ms,
                                    resolve_fn *fn, void *data)
{
    size_t len = strlen(name);
    bool follows = is_asked(r, name);
    struct resolve_query *q;
    if ((r->n_asking >= r->max_queries && !follows) || len > DNSMSG_NAME_MAX ||
        !(q = calloc(1, sizeof(*q))))
        return NULL;
    q->resolver = r;
    q->is_follower = follows;
    q->fn = fn;
    q->data = data;
    memcpy(q->name, name, len + 1);
    q->next = r->queries;
    q->link = &r->queries;
    if (q->next)
        q->next->link = &q->next;
    r->queries = q;
    r->n_asking += !follows;
    for (size_t i = 0; i < ARRAY_SIZE(q->asks); i++)
        q->asks[i] =
            (struct resolve_ask){.query = q, .type = i == 0 ? DNSMSG_A : DNSMSG_AAAA, .fd = -1};

    if (follows)
        return q;
    const struct resolve_cached *c = find_cached(r, name);
    if (from_hosts(r, name, &q->result)) {
        q->is_ready = true;
    } else if (c && c->until_ms > now_ms) {
        q->result = c->result;
        q->is_ready = true;
    } else {
        for (size_t i = 0; i < ARRAY_SIZE(q->asks); i++)
            resolve_ask_start(&q->asks[i], now_ms);
    }
    return q;
}

void resolve_ask_done(struct resolve_query *query)
{
    struct resolve_result *result = &query->result;
    bool failed = false;
    if (!query->asks[0].is_done || !query->asks[1].is_done)
        return;
    *result = (struct resolve_result){.ttl_s = TTL_MAX_S};
    for (size_t i = 0; i < ARRAY_SIZE(query->asks); i++) {
        const struct resolve_ask *ask = &query->asks[i];
        failed |= ask->has_failed;
        if (ask->has_failed)
            continue;
        memcpy(result->addrs + result->n_addrs, ask->reply.addrs, 16 * ask->reply.n_addrs);
        result->n_addrs += ask->reply.n_addrs;
        result->ttl_s = MIN(result->ttl_s, ask->reply.ttl_s);
    }
    result->status = result->n_addrs > 0 ? RESOLVE_OK : failed ? RESOLVE_FAILED : RESOLVE_NONE;
    query->is_ready = true;
}

int resolve_timeout_ms(const struct resolver *r, uint64_t now_ms)
{
    uint64_t least = UINT64_MAX;
    for (const struct resolve_query *q = r->queries; q; q = q->next) {
        if (q->is_ready)
            return 0;
        for (size_t i = 0; i < ARRAY_SIZE(q->asks) && !q->is_follower; i++) {
            if (!q->asks[i].is_done)
                least = MIN(least, q->asks[i].deadline_ms);
        }
    }
    if (least == UINT64_MAX)
        return -1;
    return least <= now_ms ? 0 : (int)MIN(least - now_ms, 60000);
}

static struct resolve_query *find_ready(const struct resolver *r)
{
    for (struct resolve_query *q = r->queries; q; q = q->next) {
        if (q->is_ready)
            return q;
    }
    return NULL;
}

void resolve_tick(struct resolver *r, uint64_t now_ms)
{
    struct resolve_query *q;
    for (q = r->queries; q; q = q->next) {
        for (size_t i = 0; i < ARRAY_SIZE(q->asks) && !q->is_ready && !q->is_follower; i++) {
            if (!q->asks[i].is_done && q->asks[i].deadline_ms <= now_ms)
                resolve_ask_next(&q->asks[i], now_ms);
        }
    }
    while ((q = find_ready(r))) {
        struct resolve_result result = q->result;
        resolve_fn *fn = q->fn;
        void *data = q->data;
        if (q->asks[0].is_done) { /* it was asked, not found here */
            keep(r, q->name, &result, now_ms);
            share(q);
        }
        query_free(q);
        fn(data, &result);
    }
}
