/* The list of attempts. Pure; runs in the supervisor. */
#include "net/netlog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

void netlog_target(const struct netwire_record *r, char *ret, size_t size)
{
    const char *host = r->name[0] ? r->name : r->address;
    if (r->port == 0)
        snprintf(ret, size, "%s", host);
    else if (strchr(host, ':'))
        snprintf(ret, size, "[%s]:%u", host, r->port);
    else
        snprintf(ret, size, "%s:%u", host, r->port);
}

const char *netlog_verdict_name(const struct netwire_record *r)
{
    return r->verdict == NETWIRE_ALLOWED   ? "allowed"
           : r->verdict == NETWIRE_REFUSED ? "refused"
                                           : "failed";
}

const char *netlog_protocol_name(const struct netwire_record *r)
{
    switch (r->protocol) {
    case NETWIRE_P_TCP: return "tcp";
    case NETWIRE_P_UDP: return "udp";
    case NETWIRE_P_DNS: return "dns";
    default: return "other";
    }
}

static void *netlog_grow(void *array, size_t n, size_t *cap, size_t max, size_t size)
{
    if (n < *cap)
        return array;
    size_t more = MIN(*cap ? *cap * 2 : 16, max);
    void *grown = realloc(array, more * size);
    if (grown)
        *cap = more;
    return grown;
}

static void netlog_deny(struct netlog *log, const struct netwire_record *record)
{
    struct netlog_denial d = {.count = 1};
    netlog_target(record, d.target, sizeof(d.target));
    memcpy(d.rule, record->rule, sizeof(d.rule));
    for (size_t i = 0; i < log->n_denials; i++) {
        if (str_eq(log->denials[i].target, d.target) && str_eq(log->denials[i].rule, d.rule)) {
            log->denials[i].count++;
            return;
        }
    }
    struct netlog_denial *grown = log->n_denials < NETLOG_DENIALS_MAX
                                      ? netlog_grow(log->denials, log->n_denials, &log->cap_denials,
                                                    NETLOG_DENIALS_MAX, sizeof(*grown))
                                      : NULL;
    if (!grown) {
        log->other_denials++;
        return;
    }
    log->denials = grown;
    log->denials[log->n_denials++] = d;
}

void netlog_add(struct netlog *log, const struct netwire_record *record)
{
    log->bytes_up += record->bytes_up;
    log->bytes_down += record->bytes_down;
    log->dropped += record->lost;
    if (record->verdict == NETWIRE_REFUSED)
        netlog_deny(log, record);
    struct netwire_record *grown =
        log->n_attempts < NETLOG_ATTEMPTS_MAX
            ? netlog_grow(log->attempts, log->n_attempts, &log->cap_attempts, NETLOG_ATTEMPTS_MAX,
                          sizeof(*grown))
            : NULL;
    if (!grown) {
        log->dropped++;
        return;
    }
    log->attempts = grown;
    log->attempts[log->n_attempts++] = *record;
}

void netlog_done(struct netlog *log)
{
    free(log->attempts);
    free(log->denials);
    *log = (struct netlog){0};
}

void netlog_line(const struct netwire_record *r, bool details, struct buf *out)
{
    char target[320];
    netlog_target(r, target, sizeof(target));
    buf_printf(out, "Network attempt %s: %s",
               r->verdict == NETWIRE_ALLOWED   ? "allowed"
               : r->verdict == NETWIRE_REFUSED ? "blocked"
                                               : "failed",
               target);
    if (!details)
        return;
    buf_printf(out, " (%s", r->rule);
    if (r->protocol != NETWIRE_P_TCP || r->is_inward)
        buf_printf(out, ", %s", r->is_inward ? "published" : netlog_protocol_name(r));
    if (r->name[0] && r->address[0])
        buf_printf(out, ", %s", r->address);
    if (r->verdict == NETWIRE_ALLOWED && r->port)
        buf_printf(out, ", %llu bytes up, %llu down, %.1f ms", (unsigned long long)r->bytes_up,
                   (unsigned long long)r->bytes_down, (double)r->duration_ns / 1e6);
    buf_char(out, ')');
}
