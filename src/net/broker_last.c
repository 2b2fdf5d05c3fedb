/* The last moments of a guest: it is gone, and what it had sent lies in our sockets. Runs in the
 * broker.
 *
 * Nothing more comes, so all of it is looked at, however much else there is to do: what is allowed
 * still goes out, and what is not is in the record, or counted as lost. */
#include <poll.h>

#include "net/broker_internal.h"

#define LAST_ROUNDS 1024 /* of some ten each: more than any queue holds */

static bool last_has_input(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) > 0 && (p.revents & POLLIN);
}

void broker_last_look(struct broker *b)
{
    for (struct broker_listener *l = b->listeners; l; l = l->next) {
        if (l->row.kind == NETWIRE_PUBLISHED || l->row.kind == NETWIRE_SEEN)
            continue; /* the one is not the guest's, the other comes last (broker_seen_end) */
        for (int i = 0; i < LAST_ROUNDS && last_has_input(l->watch.fd); i++)
            l->watch.fn(&l->watch, POLLIN);
    }
    broker_dns_last_look(b);
}

static void last_count_lost(struct broker *b)
{
    for (struct broker_listener *l = b->listeners; l; l = l->next)
        if (l->row.kind == NETWIRE_UDP)
            broker_udp_count_lost(l);
        else if (l->row.kind != NETWIRE_PUBLISHED && l->row.kind != NETWIRE_SEEN &&
                 last_has_input(l->watch.fd))
            broker_record_lost(b, 1); /* it could not be accepted */
}

bool broker_last_is_over(struct broker *b, uint64_t now_ms)
{
    if (now_ms < b->end_ms && broker_udp_has_more(b))
        return false;
    if (now_ms < b->end_ms)
        for (struct broker_conn *c = b->conns; c; c = c->next)
            if (broker_relay_has_more(c))
                return false;
    broker_last_look(b); /* what a core was still about to deliver */
    while (b->conns)
        broker_conn_end(b->conns);
    broker_udp_end(b);
    broker_seen_end(b);
    last_count_lost(b);
    broker_record_end(b);
    return true;
}
