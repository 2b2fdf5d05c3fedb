/* Attempts that no listener of ours takes: other ports of allowed hosts, addresses that nobody
 * allowed. The kernel refuses them by itself; here they are only written down. Runs in the broker.
 */
#include "net/broker_internal.h"

#include <string.h>

#include "base/util.h"
#include "net/packethead.h"

#define SEEN_AT_ONCE 256
#define SEEN_SAME_MS 1000 /* datagrams of one program come in numbers */

enum { PORT_TCP4 = 1, PORT_TCP6 = 2, PORT_UDP4 = 4, PORT_UDP6 = 8 };

static uint8_t seen_bit(bool is_udp, bool is_v6)
{
    return (uint8_t)(1u << ((is_udp ? 2 : 0) + (is_v6 ? 1 : 0)));
}

void broker_seen_port(struct broker *b, const struct netwire_socket *row)
{
    b->ports[row->port] |= seen_bit(row->kind == NETWIRE_UDP, row->family == 6);
}

/* Whether the gate takes packets for this address, so that a listener can. */
static bool seen_is_local(const struct broker *b, const uint8_t dst[static 16])
{
    bool synthetic;
    (void)broker_name_of(b, dst, &synthetic);
    if (synthetic)
        return true;
    for (size_t i = 0; i < b->set.n_allow; i++)
        if (b->set.allow[i].rule.kind == NETRULE_ADDRESS &&
            netrule_matches_addr(&b->set.allow[i].rule, dst))
            return true;
    return false;
}

static bool seen_is_recent(struct broker *b, const struct packethead *p, uint64_t now)
{
    for (size_t i = 0; i < BROKER_SEEN_MAX; i++) {
        struct broker_seen *s = &b->seen[i];
        if (s->last_ms && now - s->last_ms < SEEN_SAME_MS && s->port == p->port &&
            s->is_udp == p->is_udp && memcmp(s->dst, p->dst, 16) == 0)
            return true;
    }
    struct broker_seen *s = &b->seen[b->next_seen++ % BROKER_SEEN_MAX];
    *s = (struct broker_seen){.port = p->port, .is_udp = p->is_udp, .last_ms = now};
    memcpy(s->dst, p->dst, 16);
    return false;
}

static void seen_note(struct broker *b, const struct packethead *p)
{
    bool listened = (b->ports[p->port] & seen_bit(p->is_udp, p->is_v6)) != 0;
    if ((!p->is_udp && b->any_port) || (listened && seen_is_local(b, p->dst)))
        return; /* the listener has it */
    /* a name's multicast neighbours and the like are the kernel's own doing */
    if (p->dst[0] == 0xff || (p->is_udp && seen_is_recent(b, p, broker_now_ms())))
        return;
    enum netrule_proto proto = p->is_udp ? NETRULE_UDP : NETRULE_TCP;
    bool synthetic;
    const char *name = broker_name_of(b, p->dst, &synthetic);
    struct netset_verdict v = name ? netset_name(&b->set, name, proto, p->port)
                                   : netset_addr(&b->set, p->dst, proto, p->port);
    char text[NETHOST_ADDR_TEXT_MAX];
    struct netwire_record r = {.time_ns = broker_now_ns(),
                               .port = p->port,
                               .verdict = NETWIRE_REFUSED,
                               .protocol = p->is_udp ? NETWIRE_P_UDP : NETWIRE_P_TCP};
    if (name)
        snprintf(r.name, sizeof(r.name), "%s", name);
    else
        snprintf(r.address, sizeof(r.address), "%s", nethost_addr_text(p->dst, text));
    snprintf(r.rule, sizeof(r.rule), "%s", v.allowed || !v.rule ? "default" : v.rule);
    broker_record(b, &r);
}

void broker_seen_readable(struct loop_watch *w, uint32_t events)
{
    struct broker_listener *l = w->data;
    (void)events;
    for (int i = 0; i < SEEN_AT_ONCE; i++) {
        uint8_t data[PACKETHEAD_MAX];
        struct packethead p;
        ssize_t n = recv(w->fd, data, sizeof(data), MSG_DONTWAIT);
        if (n < 0)
            return;
        if (packethead_read(data, (size_t)n, &p))
            seen_note(l->broker, &p);
    }
}
