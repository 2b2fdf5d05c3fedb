/* Attempts that no listener of ours takes: other ports of allowed hosts, addresses that nobody
 * allowed. The kernel refuses them by itself; here they are only written down. Runs in the broker.
 */
#include "net/broker_internal.h"

#include <netinet/in.h>
#include <string.h>

#include "base/util.h"

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

struct seen_packet {
    uint8_t dst[16];
    uint16_t port;
    bool is_udp, is_v6;
};

/* Past IPv6's further headers. False: a later piece of a datagram, or what is no header. */
static bool seen_skip(const uint8_t *data, size_t len, size_t *at, uint8_t *protocol)
{
    enum { HOP_BY_HOP = 0, ROUTING = 43, FRAGMENT = 44, DESTINATION = 60 };
    while (*protocol == HOP_BY_HOP || *protocol == ROUTING || *protocol == FRAGMENT ||
           *protocol == DESTINATION) {
        if (*at + 8 > len)
            return false;
        bool is_piece = *protocol == FRAGMENT;
        if (is_piece && ((data[*at + 2] << 8 | data[*at + 3]) & 0xfff8) != 0)
            return false;
        *protocol = data[*at];
        *at += is_piece ? 8 : ((size_t)data[*at + 1] + 1) * 8;
    }
    return true;
}

/* Headers only. */
static bool seen_parse(const uint8_t *data, size_t len, struct seen_packet *ret)
{
    struct sockaddr_storage sa = {0};
    size_t at;
    uint8_t protocol;
    if (len >= 20 && data[0] >> 4 == 4) {
        at = (size_t)(data[0] & 15) * 4;
        protocol = data[9];
        ((struct sockaddr_in *)&sa)->sin_family = AF_INET;
        memcpy(&((struct sockaddr_in *)&sa)->sin_addr, data + 16, 4);
        if (((data[6] & 0x1f) | data[7]) != 0)
            return false; /* not the first fragment */
    } else if (len >= 40 && data[0] >> 4 == 6) {
        at = 40;
        protocol = data[6];
        ((struct sockaddr_in6 *)&sa)->sin6_family = AF_INET6;
        memcpy(&((struct sockaddr_in6 *)&sa)->sin6_addr, data + 24, 16);
        if (!seen_skip(data, len, &at, &protocol))
            return false;
    } else {
        return false;
    }
    if (at < 20 || at + 4 > len || (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP))
        return false;
    if (protocol == IPPROTO_TCP && (at + 14 > len || (data[at + 13] & 0x12) != 0x02))
        return false; /* not the first of a connection */
    uint16_t none;
    broker_addr_of(&sa, ret->dst, &none);
    ret->port = (uint16_t)(data[at + 2] << 8 | data[at + 3]);
    ret->is_udp = protocol == IPPROTO_UDP;
    ret->is_v6 = sa.ss_family == AF_INET6;
    return true;
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

static bool seen_is_recent(struct broker *b, const struct seen_packet *p, uint64_t now)
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

static void seen_packet(struct broker *b, const struct seen_packet *p)
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
        uint8_t data[256];
        struct seen_packet p;
        ssize_t n = recv(w->fd, data, sizeof(data), MSG_DONTWAIT);
        if (n < 0)
            return;
        if (seen_parse(data, (size_t)n, &p))
            seen_packet(l->broker, &p);
    }
}
