/* Datagrams of the guest's: questions to the name server, and flows to hosts that a udp:// rule
 * allows. Runs in the broker.
 *
 * A flow is one port of the guest's to one destination. It has a connected socket on the host's
 * side, so that only the host that was judged can answer, and ends when nothing came for a while.
 */
#include "net/broker_internal.h"

#include <errno.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"

#define UDP_AT_ONCE 64
#define UDP_WAITING_MAX 65536 /* bytes of a flow that wait for its name */

enum udp_state { UDP_RESOLVING, UDP_OPEN, UDP_DEAD };

struct broker_udp {
    struct broker *broker;
    struct broker_udp *prev, *next;
    int inside_fd;                /* the listener's */
    struct sockaddr_storage from; /* the guest's end */
    uint8_t from_addr[16], dst[16];
    uint16_t from_port, port;
    enum udp_state state;
    struct nethost host;
    struct netset_verdict verdict;
    struct resolve_query *query;
    struct loop_watch up;
    struct buf waiting; /* length and bytes, one after the other */
    uint64_t begin_ns, last_ms, bytes_up, bytes_down;
    uint8_t dialled[16];
    bool has_dialled;
};

static void udp_record(struct broker_udp *f, enum netwire_verdict verdict, const char *rule)
{
    char text[NETHOST_ADDR_TEXT_MAX];
    struct netwire_record r = {.time_ns = f->begin_ns,
                               .duration_ns = clock_ns() - f->begin_ns,
                               .bytes_up = f->bytes_up,
                               .bytes_down = f->bytes_down,
                               .port = f->port,
                               .verdict = (uint8_t)verdict,
                               .protocol = NETWIRE_P_UDP};
    if (!f->host.is_addr)
        snprintf(r.name, sizeof(r.name), "%s", f->host.name);
    if (f->has_dialled || f->host.is_addr)
        snprintf(r.address, sizeof(r.address), "%s",
                 nethost_addr_text(f->has_dialled ? f->dialled : f->host.addr, text));
    snprintf(r.rule, sizeof(r.rule), "%s", rule ? rule : "default");
    broker_record(f->broker, &r);
}

/* A flow that is over stays for a while without a socket, so that what still comes for it is
 * neither judged nor recorded again. */
static void udp_kill(struct broker_udp *f, enum netwire_verdict verdict, const char *rule)
{
    udp_record(f, verdict, rule);
    if (f->query)
        resolve_cancel(f->query);
    f->query = NULL;
    loop_set(&f->broker->loop, &f->up, 0);
    util_close(&f->up.fd);
    buf_done(&f->waiting);
    f->state = UDP_DEAD;
}

static void udp_free(struct broker_udp *f)
{
    struct broker *b = f->broker;
    if (f->state != UDP_DEAD)
        udp_kill(f, f->state == UDP_OPEN ? NETWIRE_ALLOWED : NETWIRE_FAILED, f->verdict.rule);
    if (f->prev)
        f->prev->next = f->next;
    else
        b->udp = f->next;
    if (f->next)
        f->next->prev = f->prev;
    b->n_udp--;
    free(f);
}

/* Whom an answer goes to, and from which address it must seem to come. */
struct udp_reply {
    struct msghdr msg;
    union {
        char space[CMSG_SPACE(sizeof(struct in6_pktinfo))];
        struct cmsghdr align;
    } control;
};

static void udp_reply_init(struct udp_reply *r, struct sockaddr_storage *to,
                           const uint8_t source[static 16])
{
    memset(r, 0, sizeof(*r));
    bool v4 = to->ss_family == AF_INET;
    r->msg.msg_name = to;
    r->msg.msg_namelen = v4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    r->msg.msg_control = r->control.space;
    if (v4) {
        struct in_pktinfo info = {0};
        memcpy(&info.ipi_spec_dst, source + 12, 4);
        r->control.align = (struct cmsghdr){
            .cmsg_len = CMSG_LEN(sizeof(info)), .cmsg_level = IPPROTO_IP, .cmsg_type = IP_PKTINFO};
        memcpy(CMSG_DATA(&r->control.align), &info, sizeof(info));
        r->msg.msg_controllen = CMSG_SPACE(sizeof(info));
    } else {
        struct in6_pktinfo info = {0};
        memcpy(&info.ipi6_addr, source, 16);
        r->control.align = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(info)),
                                            .cmsg_level = IPPROTO_IPV6,
                                            .cmsg_type = IPV6_PKTINFO};
        memcpy(CMSG_DATA(&r->control.align), &info, sizeof(info));
        r->msg.msg_controllen = CMSG_SPACE(sizeof(info));
    }
}

static void udp_on_answer(struct loop_watch *w, uint32_t events)
{
    static uint8_t bytes[65536];
    struct broker_udp *f = w->data;
    (void)events;
    for (int i = 0; i < UDP_AT_ONCE; i++) {
        ssize_t n = recv(w->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (n < 0)
            return; /* nothing there, or a port that is closed: datagrams get lost */
        if (!broker_limits_count(f->broker, (uint64_t)n)) {
            udp_kill(f, NETWIRE_REFUSED, f->broker->traffic_rule);
            return;
        }
        struct udp_reply r;
        udp_reply_init(&r, &f->from, f->dst);
        struct iovec iov = {bytes, (size_t)n};
        r.msg.msg_iov = &iov;
        r.msg.msg_iovlen = 1;
        if (sendmsg(f->inside_fd, &r.msg, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
            f->bytes_down += (size_t)n;
        f->last_ms = broker_now_ms();
    }
}

static void udp_send(struct broker_udp *f, const void *bytes, size_t len)
{
    if (!broker_limits_count(f->broker, len))
        udp_kill(f, NETWIRE_REFUSED, f->broker->traffic_rule);
    else if (send(f->up.fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
        f->bytes_up += len;
}

static void udp_dial(struct broker_udp *f, const uint8_t addr[static 16])
{
    struct sockaddr_storage sa;
    socklen_t len = broker_sockaddr(addr, f->port, &sa);
    f->up.fd = socket(sa.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    memcpy(f->dialled, addr, 16);
    f->has_dialled = true;
    if (f->up.fd < 0 || connect(f->up.fd, (struct sockaddr *)&sa, len) < 0 ||
        loop_set(&f->broker->loop, &f->up, EPOLLIN) < 0) {
        udp_kill(f, NETWIRE_FAILED, f->verdict.rule);
        return;
    }
    f->state = UDP_OPEN;
    for (size_t at = 0; f->state == UDP_OPEN && at < f->waiting.len;) {
        uint32_t n;
        memcpy(&n, f->waiting.data + at, sizeof(n));
        udp_send(f, f->waiting.data + at + sizeof(n), n);
        at += sizeof(n) + n;
    }
    buf_done(&f->waiting);
}

static void udp_on_resolved(void *data, const struct resolve_result *result)
{
    struct broker_udp *f = data;
    const char *refusal = NULL;
    f->query = NULL;
    for (size_t i = 0; i < result->n_addrs; i++) {
        struct netset_verdict v =
            netset_dial(&f->broker->set, &f->verdict, result->addrs[i], NETRULE_UDP, f->port);
        if (v.allowed) {
            udp_dial(f, result->addrs[i]);
            return;
        }
        refusal = v.rule;
        memcpy(f->dialled, result->addrs[i], 16);
        f->has_dialled = true;
    }
    udp_kill(f, refusal ? NETWIRE_REFUSED : NETWIRE_FAILED, refusal ? refusal : "no such name");
}

static void udp_decide(struct broker_udp *f)
{
    static const uint8_t loopback4[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1};
    static const uint8_t loopback6[16] = {[15] = 1};
    struct broker *b = f->broker;
    bool synthetic;
    const char *name = broker_name_of(b, f->dst, &synthetic);
    if (name) {
        snprintf(f->host.name, sizeof(f->host.name), "%s", name);
        f->verdict = netset_name(&b->set, name, NETRULE_UDP, f->port);
    } else {
        f->host.is_addr = true;
        memcpy(f->host.addr, f->dst, 16);
        f->verdict = synthetic ? (struct netset_verdict){.rule = "default"}
                               : netset_addr(&b->set, f->dst, NETRULE_UDP, f->port);
    }
    if (!f->verdict.allowed) {
        udp_kill(f, NETWIRE_REFUSED, f->verdict.rule);
    } else if (f->verdict.host_loopback) {
        bool has4 = netset_dial(&b->set, &f->verdict, loopback4, NETRULE_UDP, f->port).allowed;
        struct netset_verdict v6 =
            netset_dial(&b->set, &f->verdict, loopback6, NETRULE_UDP, f->port);
        if (has4 || v6.allowed)
            udp_dial(f, has4 ? loopback4 : loopback6);
        else
            udp_kill(f, NETWIRE_REFUSED, v6.rule);
    } else if (f->host.is_addr) {
        udp_dial(f, f->dst);
    } else {
        f->query = resolve_start(b->resolver, f->host.name, broker_now_ms(), udp_on_resolved, f);
        if (!f->query)
            udp_kill(f, NETWIRE_FAILED, "too many lookups at once");
    }
}

/* Where the table is full the oldest of those that are over goes: refusals must neither use up the
 * places of what is allowed, nor hide the next refusal from the record. */
static bool udp_make_room(struct broker *b)
{
    struct broker_udp *oldest = NULL;
    if (b->n_udp < BROKER_UDP_FLOWS_MAX)
        return true;
    for (struct broker_udp *f = b->udp; f; f = f->next)
        if (f->state == UDP_DEAD)
            oldest = f; /* new ones are put in front */
    if (oldest)
        udp_free(oldest);
    return oldest;
}

static struct broker_udp *udp_flow(struct broker *b, int inside_fd,
                                   const struct sockaddr_storage *from, const uint8_t *dst,
                                   uint16_t port)
{
    uint8_t addr[16];
    uint16_t from_port;
    broker_addr_of(from, addr, &from_port);
    for (struct broker_udp *f = b->udp; f; f = f->next)
        if (f->from_port == from_port && f->port == port && memcmp(f->dst, dst, 16) == 0 &&
            memcmp(f->from_addr, addr, 16) == 0)
            return f;
    struct broker_udp *f = udp_make_room(b) ? calloc(1, sizeof(*f)) : NULL;
    if (!f)
        return NULL;
    f->broker = b;
    f->inside_fd = inside_fd;
    f->from = *from;
    memcpy(f->from_addr, addr, 16);
    memcpy(f->dst, dst, 16);
    f->from_port = from_port;
    f->port = port;
    f->begin_ns = clock_ns();
    f->up = (struct loop_watch){.fd = -1, .fn = udp_on_answer, .data = f};
    f->waiting.max = UDP_WAITING_MAX;
    f->next = b->udp;
    if (f->next)
        f->next->prev = f;
    b->udp = f;
    b->n_udp++;
    udp_decide(f);
    return f;
}

static void udp_datagram(struct broker_listener *l, struct sockaddr_storage *from,
                         const uint8_t dst[static 16], const uint8_t *bytes, size_t len)
{
    struct broker *b = l->broker;
    if (broker_is_dns_addr(dst) && l->row.port == 53) {
        struct udp_reply r;
        udp_reply_init(&r, from, dst);
        broker_dns_datagram(b, l->watch.fd, bytes, len, &r.msg);
        return;
    }
    struct broker_udp *f = udp_flow(b, l->watch.fd, from, dst, l->row.port);
    if (!f) {
        struct packethead p = {.port = l->row.port, .is_udp = true, .is_v6 = l->row.family == 6};
        memcpy(p.dst, dst, sizeof(p.dst));
        broker_seen_refused(b, &p, "too many flows");
        return;
    }
    f->last_ms = broker_now_ms();
    if (f->state == UDP_OPEN) {
        udp_send(f, bytes, len);
    } else if (f->state == UDP_RESOLVING && f->waiting.len + 4 + len <= UDP_WAITING_MAX) {
        uint32_t n = (uint32_t)len;
        buf_add(&f->waiting, &n, sizeof(n));
        buf_add(&f->waiting, bytes, len);
    }
}

/* The destination a datagram was sent to. */
static bool udp_destination(struct msghdr *msg, uint8_t ret_dst[static 16])
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
            struct in_pktinfo info;
            memcpy(&info, CMSG_DATA(c), sizeof(info));
            struct sockaddr_storage sa = {0};
            struct sockaddr_in *in = (struct sockaddr_in *)&sa;
            uint16_t port;
            in->sin_family = AF_INET;
            in->sin_addr = info.ipi_addr;
            broker_addr_of(&sa, ret_dst, &port);
            return true;
        }
        if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
            struct in6_pktinfo info;
            memcpy(&info, CMSG_DATA(c), sizeof(info));
            memcpy(ret_dst, &info.ipi6_addr, 16);
            return true;
        }
    }
    return false;
}

void broker_udp_readable(struct loop_watch *w, uint32_t events)
{
    static uint8_t bytes[65536];
    struct broker_listener *l = w->data;
    (void)events;
    for (int i = 0; i < UDP_AT_ONCE; i++) {
        struct sockaddr_storage from = {0};
        union {
            char space[256];
            struct cmsghdr align;
        } control;
        struct iovec iov = {bytes, sizeof(bytes)};
        struct msghdr msg = {.msg_name = &from,
                             .msg_namelen = sizeof(from),
                             .msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.space,
                             .msg_controllen = sizeof(control.space)};
        uint8_t dst[16];
        ssize_t n = recvmsg(w->fd, &msg, MSG_DONTWAIT);
        if (n < 0)
            return;
        if (udp_destination(&msg, dst))
            udp_datagram(l, &from, dst, bytes, (size_t)n);
    }
}

void broker_udp_count_lost(struct broker_listener *l)
{
    uint32_t info[SK_MEMINFO_VARS] = {0};
    socklen_t len = sizeof(info);
    if (getsockopt(l->watch.fd, SOL_SOCKET, SO_MEMINFO, info, &len) == 0)
        broker_record_lost(l->broker, info[SK_MEMINFO_DROPS]);
}

void broker_udp_tick(struct broker *b, uint64_t now_ms)
{
    for (struct broker_udp *f = b->udp, *next; f; f = next) {
        next = f->next;
        if (now_ms - f->last_ms >= BROKER_UDP_IDLE_MS && f->last_ms <= now_ms)
            udp_free(f);
    }
}

bool broker_udp_has_more(const struct broker *b)
{
    for (const struct broker_udp *f = b->udp; f; f = f->next)
        if (f->state == UDP_RESOLVING && f->waiting.len > 0)
            return true;
    return false;
}

void broker_udp_end(struct broker *b)
{
    while (b->udp)
        udp_free(b->udp);
}
