/* The guest's name server: allowed names get an address that stands for them, others do not exist.
 * Nothing is asked of anybody for it. Runs in the broker. */
#include "net/broker_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"

#define DNS_TTL_S 60 /* an address stands for its name as long as the guest lives */
#define DNS_CONNS_MAX 64
#define DNS_CONN_MS 10000
#define DNS_SAME_MS 2000

/* One question over TCP at a time, each with its length before it. */
struct broker_dns_conn {
    struct broker *broker;
    struct broker_dns_conn *prev, *next;
    struct loop_watch watch;
    uint64_t deadline_ms;
    size_t n_in, n_out, n_sent;
    uint8_t in[2 + DNSMSG_UDP_MAX], out[2 + DNSMSG_UDP_MAX];
};

/* Lookups are cheap for the guest and cost the record-keeper: a rate holds them. */
static bool dns_may_ask(struct broker *b)
{
    uint64_t now = broker_now_ms();
    double earned = (double)(now - b->dns_tokens_at_ms) * BROKER_DNS_PER_S / 1000.0;
    b->dns_tokens_at_ms = now;
    b->dns_tokens = MIN(b->dns_tokens + earned, (double)BROKER_DNS_BURST);
    if (b->dns_tokens < 1) {
        broker_record_lost(b, 1);
        return false;
    }
    b->dns_tokens -= 1;
    return true;
}

/* Programs ask for both kinds of address at once: that is one attempt. */
static bool dns_is_same_attempt(struct broker *b, const struct dnsmsg_query *q)
{
    uint64_t now = broker_now_ms();
    unsigned type = q->type == DNSMSG_A ? 1 : q->type == DNSMSG_AAAA ? 2 : 4;
    bool same = str_eq(b->refused_name, q->name) && !(b->refused_types & type) &&
                now - b->refused_ms < DNS_SAME_MS;
    if (!same) {
        snprintf(b->refused_name, sizeof(b->refused_name), "%s", q->name);
        b->refused_types = 0;
        b->refused_ms = now;
    }
    b->refused_types |= type;
    return same;
}

static void dns_refused(struct broker *b, const struct dnsmsg_query *q, const char *rule)
{
    if (dns_is_same_attempt(b, q))
        return;
    struct netwire_record r = {
        .time_ns = clock_ns(), .verdict = NETWIRE_REFUSED, .protocol = NETWIRE_P_DNS};
    snprintf(r.name, sizeof(r.name), "%s", q->name);
    snprintf(r.rule, sizeof(r.rule), "%s", rule);
    broker_record(b, &r);
}

static size_t dns_answer(struct broker *b, const uint8_t *msg, size_t len, uint8_t *ret, size_t max)
{
    static const uint8_t loopback[2][16] = {{[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1},
                                            {[15] = 1}};
    struct dnsmsg_query q;
    int r = dnsmsg_read_query(msg, len, &q);
    if (r < 0)
        return 0;
    if (r != DNSMSG_NOERROR)
        return dnsmsg_write_error(msg, len, (enum dnsmsg_rcode)r, ret, max);
    struct netset_verdict v = {.rule = "not a host name"};
    if (q.is_host)
        v = netset_name(&b->set, q.name, NETRULE_TCP, 0);
    if (q.is_host && str_eq(q.name, "localhost")) /* its own, also where no file says so */
        return dnsmsg_write_answer(&q, DNSMSG_NOERROR, loopback, 2, DNS_TTL_S, ret, max);
    if (!v.allowed) {
        dns_refused(b, &q, v.rule);
        return dnsmsg_write_answer(&q, DNSMSG_NXDOMAIN, NULL, 0, 0, ret, max);
    }
    int number = broker_name_number(b, q.name);
    if (number < 0) {
        dns_refused(b, &q, "too many names");
        return dnsmsg_write_answer(&q, DNSMSG_REFUSED, NULL, 0, 0, ret, max);
    }
    uint8_t addrs[2][16];
    broker_name_addr((size_t)number, false, addrs[0]);
    broker_name_addr((size_t)number, true, addrs[1]);
    return dnsmsg_write_answer(&q, DNSMSG_NOERROR, (const uint8_t(*)[16])addrs, b->has_v6 ? 2 : 1,
                               DNS_TTL_S, ret, max);
}

void broker_dns_datagram(struct broker *b, int fd, const uint8_t *msg, size_t len,
                         const struct msghdr *to)
{
    uint8_t out[DNSMSG_UDP_MAX];
    if (!dns_may_ask(b))
        return;
    size_t n = dns_answer(b, msg, len, out, sizeof(out));
    struct iovec iov = {out, n};
    struct msghdr reply = *to;
    reply.msg_iov = &iov;
    reply.msg_iovlen = 1;
    if (n > 0)
        (void)!sendmsg(fd, &reply, MSG_DONTWAIT | MSG_NOSIGNAL); /* the asker asks again */
}

/* ---- over TCP ---------------------------------------------------------------------------------
 */

static void dns_conn_close(struct broker_dns_conn *c)
{
    struct broker *b = c->broker;
    loop_set(&b->loop, &c->watch, 0);
    util_close(&c->watch.fd);
    if (c->prev)
        c->prev->next = c->next;
    else
        b->dns_conns = c->next;
    if (c->next)
        c->next->prev = c->prev;
    b->n_dns_conns--;
    free(c);
}

static int dns_conn_send(struct broker_dns_conn *c)
{
    while (c->n_sent < c->n_out) {
        ssize_t n = send(c->watch.fd, c->out + c->n_sent, c->n_out - c->n_sent, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (n < 0)
            return -1;
        c->n_sent += (size_t)n;
    }
    c->n_out = c->n_sent = 0;
    return 0;
}

static int dns_conn_receive(struct broker_dns_conn *c)
{
    ssize_t n = recv(c->watch.fd, c->in + c->n_in, sizeof(c->in) - c->n_in, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        return -1;
    c->n_in += (size_t)n;
    return 0;
}

static int dns_conn_serve(struct broker_dns_conn *c)
{
    while (c->n_out == 0 && c->n_in >= 2) {
        size_t len = (size_t)c->in[0] << 8 | c->in[1];
        if (len > DNSMSG_UDP_MAX)
            return -1;
        if (c->n_in < 2 + len)
            return 0;
        if (!dns_may_ask(c->broker))
            return -1;
        size_t n = dns_answer(c->broker, c->in + 2, len, c->out + 2, DNSMSG_UDP_MAX);
        if (n == 0)
            return -1;
        c->out[0] = (uint8_t)(n >> 8);
        c->out[1] = (uint8_t)n;
        c->n_out = 2 + n;
        c->n_in -= 2 + len;
        memmove(c->in, c->in + 2 + len, c->n_in);
        if (dns_conn_send(c) < 0)
            return -1;
    }
    return 0;
}

static void dns_conn_ready(struct loop_watch *w, uint32_t events)
{
    struct broker_dns_conn *c = w->data;
    (void)events;
    if (dns_conn_send(c) < 0 || (c->n_out == 0 && dns_conn_receive(c) < 0) ||
        dns_conn_serve(c) < 0 || loop_set(&c->broker->loop, w, c->n_out ? EPOLLOUT : EPOLLIN) < 0)
        dns_conn_close(c);
}

void broker_dns_accepted(struct broker *b, int fd)
{
    struct broker_dns_conn *c = b->n_dns_conns < DNS_CONNS_MAX ? malloc(sizeof(*c)) : NULL;
    if (!c) {
        close(fd);
        return;
    }
    c->broker = b;
    c->watch = (struct loop_watch){.fd = fd, .fn = dns_conn_ready, .data = c};
    c->deadline_ms = broker_now_ms() + DNS_CONN_MS;
    c->n_in = c->n_out = c->n_sent = 0;
    c->prev = NULL;
    c->next = b->dns_conns;
    if (c->next)
        c->next->prev = c;
    b->dns_conns = c;
    b->n_dns_conns++;
    if (loop_set(&b->loop, &c->watch, EPOLLIN) < 0)
        dns_conn_close(c);
}

void broker_dns_last_look(struct broker *b)
{
    for (struct broker_dns_conn *c = b->dns_conns, *next; c; c = next) {
        next = c->next;
        dns_conn_ready(&c->watch, EPOLLIN);
    }
}

void broker_dns_tick(struct broker *b, uint64_t now_ms)
{
    for (struct broker_dns_conn *c = b->dns_conns, *next; c; c = next) {
        next = c->next;
        if (now_ms >= c->deadline_ms)
            dns_conn_close(c);
    }
}
