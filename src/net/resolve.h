/* Names to addresses, on Cordon's side: a small stub resolver that never blocks. Runs in the
 * broker, on its event loop.
 *
 * Asks the servers of /etc/resolv.conf or the one given, over UDP from a fresh random port for each
 * question, over TCP when the answer was cut; /etc/hosts first. Answers are kept for as long as
 * they say, between one second and a minute. The files are read once, by resolve_new. */
#ifndef NET_RESOLVE_H
#define NET_RESOLVE_H

#include <cordon.h>

#include "base/loop.h"
#include "net/dnsmsg.h"

#define RESOLVE_ADDRS_MAX (2 * DNSMSG_ADDRS_MAX)

enum resolve_status {
    RESOLVE_OK,
    RESOLVE_NONE,   /* the name does not exist, or has no addresses */
    RESOLVE_FAILED, /* nobody answered, or only with errors */
};

struct resolve_result {
    enum resolve_status status;
    uint8_t addrs[RESOLVE_ADDRS_MAX][16]; /* IPv4 (mapped) first, then IPv6 */
    size_t n_addrs;
    uint32_t ttl_s;
};

struct resolver;
struct resolve_query;

typedef void resolve_fn(void *data, const struct resolve_result *result);

struct resolve_config {
    const char *dns;         /* "192.0.2.53", "[2001:db8::1]:5353" or NULL: resolv_conf decides */
    const char *resolv_conf; /* NULL: /etc/resolv.conf */
    const char *hosts;       /* NULL: /etc/hosts */
    unsigned try_ms;         /* 0: 2000; how long one server is waited for */
    unsigned max_queries;    /* 0: 256; more names than this at once fail at once */
};

/* Is this text a good value for `dns`? */
int resolve_check_dns(const char *dns, struct cordon_err *err);

int resolve_new(struct loop *loop, const struct resolve_config *config,
                struct resolver **ret_resolver, struct cordon_err *err);
void resolve_free(struct resolver *r); /* pending questions are dropped without an answer */

/* now_ms: CLOCK_MONOTONIC. fn is called exactly once, from resolve_tick, unless resolve_cancel
 * comes first; it may start and cancel others. NULL when there is no room for another question.
 * name: canonical. */
struct resolve_query *resolve_start(struct resolver *r, const char *name, uint64_t now_ms,
                                    resolve_fn *fn, void *data);
void resolve_cancel(struct resolve_query *q);

/* How long the loop may sleep, -1 for ever; and what to call after it. */
int resolve_timeout_ms(const struct resolver *r, uint64_t now_ms);
void resolve_tick(struct resolver *r, uint64_t now_ms);

#endif
