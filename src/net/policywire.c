/* Writes and reads the network part of a policy. Pure. */
#include "net/policywire.h"

#include <string.h>

#include "base/err.h"

static const enum field_id policywire_fields[] = {
    FIELD_ALLOW_NETWORK, FIELD_ALLOW_DOMAINS,   FIELD_ALLOW_PATTERNS,
    FIELD_DENY_NETWORK,  FIELD_ALLOW_PORTS,     FIELD_BLOCK_INTERNAL,
    FIELD_DNS,           FIELD_HTTP_PROXY,      FIELD_LOG_NETWORK,
    FIELD_NETWORK,       FIELD_PUBLISH,         FIELD_ALLOW_HOST_PORT,
    FIELD_MAX_TRAFFIC,   FIELD_MAX_CONNECTIONS,
};
#define N_FIELDS (sizeof(policywire_fields) / sizeof(policywire_fields[0]))

static void put_num(struct buf *out, uint64_t n)
{
    buf_add(out, &n, sizeof(n));
}

/* A length, the bytes and a NUL; absent text is a length of all ones. */
static void put_text(struct buf *out, const char *text)
{
    put_num(out, text ? strlen(text) : UINT64_MAX);
    if (text)
        buf_add(out, text, strlen(text) + 1);
}

static void put_origin(struct buf *out, const struct origin *o)
{
    put_text(out, o->name);
    put_num(out, o->line);
    put_num(out, o->source);
}

void policywire_write(const struct policy *policy, struct buf *out)
{
    for (size_t f = 0; f < N_FIELDS; f++) {
        const struct policy_value *v = policy_value(policy, policywire_fields[f]);
        put_num(out, v->set);
        put_num(out, v->num);
        put_text(out, v->text);
        put_text(out, v->written);
        put_origin(out, &v->origin);
        put_num(out, v->n_items);
        for (size_t i = 0; i < v->n_items; i++) {
            const struct policy_item *item = &v->items[i];
            put_text(out, item->text);
            put_text(out, item->extra);
            put_text(out, item->written);
            put_num(out, item->num);
            put_origin(out, &item->origin);
        }
    }
}

struct reader {
    const char *at, *end;
    struct arena *arena;
    bool failed;
};

static uint64_t get_num(struct reader *r)
{
    uint64_t n = 0;
    if ((size_t)(r->end - r->at) < sizeof(n)) {
        r->failed = true;
        return 0;
    }
    memcpy(&n, r->at, sizeof(n));
    r->at += sizeof(n);
    return n;
}

static char *get_text(struct reader *r)
{
    uint64_t len = get_num(r);
    if (r->failed || len == UINT64_MAX)
        return NULL;
    if (len >= (size_t)(r->end - r->at) || r->at[len]) {
        r->failed = true;
        return NULL;
    }
    char *text = arena_strdup(r->arena, r->at);
    r->at += len + 1;
    r->failed |= !text;
    return text;
}

static void get_origin(struct reader *r, struct origin *o)
{
    o->name = get_text(r);
    o->line = (unsigned)get_num(r);
    uint64_t source = get_num(r);
    r->failed |= source > FROM_COMMAND;
    o->source = (enum origin_source)source;
}

static void get_value(struct reader *r, struct policy_value *v)
{
    v->set = get_num(r) != 0;
    v->num = get_num(r);
    v->text = get_text(r);
    v->written = get_text(r);
    get_origin(r, &v->origin);
    size_t n = get_num(r);
    if (r->failed || n > (size_t)(r->end - r->at)) {
        r->failed = true;
        return;
    }
    v->items = arena_alloc(r->arena, (n + 1) * sizeof(*v->items));
    if (!v->items) {
        r->failed = true;
        return;
    }
    v->n_items = n;
    for (size_t i = 0; i < n && !r->failed; i++) {
        struct policy_item *item = &v->items[i];
        item->text = get_text(r);
        item->extra = get_text(r);
        item->written = get_text(r);
        item->num = get_num(r);
        get_origin(r, &item->origin);
    }
}

int policywire_read(const char *data, size_t len, struct arena *arena, struct policy *ret_policy,
                    struct cordon_err *err)
{
    struct reader r = {.at = data, .end = data + len, .arena = arena};
    struct policy policy = {0};
    for (size_t f = 0; f < N_FIELDS; f++)
        get_value(&r, &policy.values[policywire_fields[f]]);
    if (r.failed || r.at != r.end)
        return err_set(err, CORDON_ERR_INTERNAL, "broker", 0, "the policy did not arrive whole");
    *ret_policy = policy;
    return 0;
}
