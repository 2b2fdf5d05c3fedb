/* Attempts that no listener of ours takes: other ports of allowed hosts, addresses that nobody
 * allowed. The kernel refuses them by itself; here they are only written down. Runs in the broker.
 */
#include "net/broker_internal.h"

#include <linux/if_packet.h>
#include <string.h>

#include "base/clock.h"
#include "base/util.h"

#define SEEN_AT_ONCE 256
#define SEEN_AT_END 65536 /* all that its queue can hold */
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
    static const uint8_t gate4[16] = {
        [10] = 0xff, [11] = 0xff, [12] = NETWIRE_GATE4 >> 24, [15] = NETWIRE_GATE4 & 0xff};
    static const uint8_t link6[8] = NETWIRE_LINK6;
    bool synthetic, own = memcmp(dst, gate4, 16) == 0 || memcmp(dst, link6, 8) == 0;
    (void)broker_name_of(b, dst, &synthetic);
    return synthetic || own || netset_has_route(&b->set, dst);
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

void broker_seen_refused(struct broker *b, const struct packethead *p, const char *rule)
{
    if (p->is_udp && seen_is_recent(b, p, broker_now_ms()))
        return;
    enum netrule_proto proto = p->is_udp ? NETRULE_UDP : NETRULE_TCP;
    bool synthetic;
    const char *name = broker_name_of(b, p->dst, &synthetic);
    struct netset_verdict v = name ? netset_name(&b->set, name, proto, p->port)
                                   : netset_addr(&b->set, p->dst, proto, p->port);
    char text[NETHOST_ADDR_TEXT_MAX];
    struct netwire_record r = {.time_ns = clock_ns(),
                               .port = p->port,
                               .verdict = NETWIRE_REFUSED,
                               .protocol = p->is_udp ? NETWIRE_P_UDP : NETWIRE_P_TCP};
    if (name)
        snprintf(r.name, sizeof(r.name), "%s", name);
    else
        snprintf(r.address, sizeof(r.address), "%s", nethost_addr_text(p->dst, text));
    if (!rule)
        rule = v.allowed || !v.rule ? "default" : v.rule;
    snprintf(r.rule, sizeof(r.rule), "%s", rule);
    broker_record(b, &r);
}

static void seen_note(struct broker *b, const struct packethead *p)
{
    bool listened = (b->ports[p->port] & seen_bit(p->is_udp, p->is_v6)) != 0;
    if ((!p->is_udp && b->any_port) || (listened && seen_is_local(b, p->dst)))
        return; /* the listener has it */
    broker_seen_refused(b, p, NULL);
}

/* What came faster than it was read is known by its number only. Reading it begins it anew. */
static void seen_count_lost(struct broker *b, int fd)
{
    struct tpacket_stats stats = {0};
    socklen_t len = sizeof(stats);
    if (getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &stats, &len) == 0)
        broker_record_lost(b, stats.tp_drops);
}

void broker_seen_readable(struct loop_watch *w, uint32_t events)
{
    struct broker_listener *l = w->data;
    int at_once = l->broker->ending ? SEEN_AT_END : SEEN_AT_ONCE;
    (void)events;
    for (int i = 0; i < at_once; i++) {
        uint8_t data[PACKETHEAD_MAX];
        struct packethead p;
        ssize_t n = recv(w->fd, data, sizeof(data), MSG_DONTWAIT);
        if (n < 0)
            break;
        if (packethead_read(data, (size_t)n, &p))
            seen_note(l->broker, &p);
    }
    seen_count_lost(l->broker, w->fd);
}

void broker_seen_end(struct broker *b)
{
    if (b->seen_watch)
        broker_seen_readable(b->seen_watch, 0);
}
