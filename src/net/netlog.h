/* What a guest tried on the network: kept by the supervisor for the result, within bounds that hold
 * whatever the guest does. */
#ifndef NET_NETLOG_H
#define NET_NETLOG_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "net/netwire.h"

#define NETLOG_ATTEMPTS_MAX 1000 /* further ones are counted only */
#define NETLOG_DENIALS_MAX 256   /* different ones; further ones are counted together */

struct netlog_denial {
    char target[320]; /* "evil.com:443", a lookup: "evil.com" */
    char rule[128];
    uint64_t count;
};

struct netlog {
    uint64_t begin_ns; /* attempts are timed from here */
    struct netwire_record *attempts;
    size_t n_attempts, cap_attempts;
    uint64_t dropped;
    struct netlog_denial *denials;
    size_t n_denials, cap_denials;
    uint64_t other_denials;
    uint64_t bytes_up, bytes_down;
    bool is_blind; /* some were not seen: refused without a route, or too many at once */
};

/* Out of memory counts the record as dropped. */
void netlog_add(struct netlog *log, const struct netwire_record *record);
void netlog_done(struct netlog *log);

/* "evil.com:443", "[2001:db8::1]:443", a lookup: "evil.com" */
void netlog_target(const struct netwire_record *record, char *ret, size_t size);
const char *netlog_verdict_name(const struct netwire_record *record);
const char *netlog_protocol_name(const struct netwire_record *record);

/* One line without prefix and newline; details adds rule, address and numbers. */
void netlog_line(const struct netwire_record *record, bool details, struct buf *out);

#endif
