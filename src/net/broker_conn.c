/* A connection of the guest's, from accept to an open path: whom it means, whether it may, where
 * that really is, and the dial. Runs in the broker.
 *
 * The guest's connect() has succeeded by the time accept() returns; a refusal is a reset. */
#include "net/broker_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"

#define ACCEPTS_AT_ONCE 64

/* A reset says that not all was delivered; a plain close lets the kernel deliver the rest. */
static void conn_close_side(struct loop_watch *w, struct broker *b, bool reset)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    if (w->fd < 0)
        return;
    loop_set(&b->loop, w, 0);
    if (reset)
        setsockopt(w->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    util_close(&w->fd);
}

struct broker_conn *broker_conn_new(struct broker *b, int guest_fd)
{
    struct broker_conn *c = calloc(1, sizeof(*c));
    if (!c) {
        close(guest_fd);
        return NULL;
    }
    int on = 1;
    setsockopt(guest_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    c->broker = b;
    c->begin_ns = clock_ns();
    c->guest = (struct loop_watch){.fd = guest_fd, .fn = broker_relay_guest, .data = c};
    c->up = (struct loop_watch){.fd = -1, .fn = broker_relay_up, .data = c};
    c->upward.pipe[0] = c->upward.pipe[1] = c->downward.pipe[0] = c->downward.pipe[1] = -1;
    c->seen.max = c->answer.max = BROKER_HELD_MAX * 2;
    c->next = b->conns;
    if (c->next)
        c->next->prev = c;
    b->conns = c;
    b->n_conns++;
    b->n_dialling++;
    return c;
}

static bool conn_uses_proxy(const struct broker_conn *c)
{
    return c->broker->has_proxy && !c->verdict.host_loopback && !c->is_inward;
}

static void conn_record(struct broker_conn *c, enum netwire_verdict verdict, const char *rule)
{
    struct netwire_record r = {.time_ns = c->begin_ns,
                               .duration_ns = clock_ns() - c->begin_ns,
                               /* up is always away from the guest */
                               .bytes_up = (c->is_inward ? &c->downward : &c->upward)->bytes,
                               .bytes_down = (c->is_inward ? &c->upward : &c->downward)->bytes,
                               .port = c->port,
                               .verdict = (uint8_t)verdict,
                               .protocol = NETWIRE_P_TCP,
                               .is_inward = c->is_inward};
    char text[NETHOST_ADDR_TEXT_MAX];
    if (!rule)
        rule = c->verdict.rule ? c->verdict.rule : "default";
    if (!c->host.is_addr)
        snprintf(r.name, sizeof(r.name), "%s", c->host.name);
    if (c->has_dialled && !conn_uses_proxy(c)) /* there the proxy's would stand for the host's */
        snprintf(r.address, sizeof(r.address), "%s", nethost_addr_text(c->dialled, text));
    else if (c->host.is_addr)
        snprintf(r.address, sizeof(r.address), "%s", nethost_addr_text(c->host.addr, text));
    snprintf(r.rule, sizeof(r.rule), "%s", rule);
    broker_record(c->broker, &r);
}

void broker_conn_close(struct broker_conn *c, enum netwire_verdict verdict, const char *rule)
{
    struct broker *b = c->broker;
    conn_record(c, verdict, rule);
    broker_relay_count(c);
    if (c->query)
        resolve_cancel(c->query);
    c->query = NULL;
    if (c->state != CONN_OPEN)
        b->n_dialling--;
    /* What one side ends with the other is told: with a reset, unless both have ended in order.
     * When the guest is gone it is enough that whoever is left got all of it. */
    bool reset = !c->upward.shut || !c->downward.shut;
    conn_close_side(&c->guest, b, b->ending ? !c->downward.shut : reset);
    if (c->is_inward && c->up.fd >= 0) {
        loop_set(&b->loop, &c->up, 0);
        if (reset)
            broker_publish_keep(b, TAKE_FD(c->up.fd));
        else
            broker_publish_ended(b, TAKE_FD(c->up.fd));
    }
    conn_close_side(&c->up, b, b->ending ? !c->upward.shut : reset);
    broker_relay_done(c);
    if (c->prev)
        c->prev->next = c->next;
    else
        b->conns = c->next;
    if (c->next)
        c->next->prev = c->prev;
    b->n_conns--;
    b->n_big_queues -= c->has_big_queue;
    /* events of this very batch may still point to it */
    c->next = b->closed;
    b->closed = c;
}

void broker_conn_end(struct broker_conn *c)
{
    broker_conn_close(c, c->state == CONN_OPEN ? NETWIRE_ALLOWED : NETWIRE_FAILED, NULL);
}

void broker_conn_free_closed(struct broker *b)
{
    while (b->closed) {
        struct broker_conn *c = b->closed;
        b->closed = c->next;
        free(c->held);
        free(c->http);
        buf_done(&c->seen);
        buf_done(&c->answer);
        free(c);
    }
}

/* ---- dialling ---------------------------------------------------------------------------------
 */

void broker_conn_opened(struct broker_conn *c)
{
    c->state = CONN_OPEN;
    c->up.fn = broker_relay_up;
    c->broker->n_dialling--;
    broker_relay_turn(c);
}

static void conn_send_proxy(struct broker_conn *c)
{
    char request[1024 + PROXYCONNECT_AUTH_MAX];
    size_t len =
        proxyconnect_request(&c->broker->proxy, &c->host, c->port, request, sizeof(request));
    /* a fresh connection's buffer takes this whole */
    if (len == 0 || send(c->up.fd, request, len, MSG_NOSIGNAL) != (ssize_t)len) {
        broker_conn_close(c, NETWIRE_FAILED, NULL);
        return;
    }
    c->state = CONN_PROXY;
    c->deadline_ms = broker_now_ms() + BROKER_DIAL_MS;
    loop_set(&c->broker->loop, &c->up, EPOLLIN);
}

static void conn_proxy_answer(struct broker_conn *c)
{
    char bytes[4096];
    size_t used = 0;
    int status = 0;
    ssize_t n = recv(c->up.fd, bytes, sizeof(bytes), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || buf_add(&c->answer, bytes, (size_t)n) < 0) {
        broker_conn_close(c, NETWIRE_FAILED, "the proxy closed the connection");
        return;
    }
    switch (proxyconnect_read(c->answer.data, c->answer.len, &used, &status)) {
    case PROXYCONNECT_MORE: return;
    case PROXYCONNECT_REFUSED:
        snprintf(bytes, sizeof(bytes), "the proxy answered %d", status);
        broker_conn_close(c, NETWIRE_FAILED, bytes);
        return;
    case PROXYCONNECT_BAD: broker_conn_close(c, NETWIRE_FAILED, "bad answer of the proxy"); return;
    case PROXYCONNECT_OPEN: break;
    }
    if (c->answer.len > used &&
        broker_relay_prepend(c, &c->downward, c->answer.data + used, c->answer.len - used) < 0)
        broker_conn_close(c, NETWIRE_FAILED, NULL);
    else
        broker_conn_opened(c);
}

static void conn_on_dial(struct loop_watch *w, uint32_t events)
{
    struct broker_conn *c = w->data;
    int error = 0;
    socklen_t len = sizeof(error);
    (void)events;
    if (c->state == CONN_PROXY) {
        conn_proxy_answer(c);
        return;
    }
    if (getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0 || error ||
        broker_met_itself(w->fd)) {
        broker_conn_dial(c);
        return;
    }
    if (conn_uses_proxy(c)) {
        conn_send_proxy(c);
        return;
    }
    broker_conn_opened(c);
}

/* What a server has sent and the guest has not read waits in the host's memory, which no limit of
 * the guest's counts: megabytes for a few connections, for the speed of one stream, and less for
 * the others. Before the connection: the window's scale is agreed on then. */
static void conn_bound_queue(struct broker_conn *c)
{
    struct broker *b = c->broker;
    if (!c->has_big_queue && b->n_big_queues < BROKER_BIG_QUEUES) {
        c->has_big_queue = true;
        b->n_big_queues++;
    }
    int bytes = (int)(b->n_conns <= BROKER_QUEUES ? BROKER_QUEUE_BYTES : BROKER_SMALL_QUEUE);
    if (!c->has_big_queue)
        setsockopt(c->up.fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
}

/* The next address on the list. */
void broker_conn_dial(struct broker_conn *c)
{
    struct broker *b = c->broker;
    uint16_t port = conn_uses_proxy(c) ? b->proxy.port : c->port;
    c->state = CONN_DIALLING;
    while (c->next_addr < c->n_addrs) {
        struct sockaddr_storage sa;
        const uint8_t *addr = c->addrs[c->next_addr++];
        socklen_t len = broker_sockaddr(addr, port, &sa);
        int on = 1;
        conn_close_side(&c->up, b, true);
        c->up = (struct loop_watch){
            .fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
            .fn = conn_on_dial,
            .data = c};
        if (c->up.fd < 0)
            continue;
        setsockopt(c->up.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        conn_bound_queue(c);
        memcpy(c->dialled, addr, 16);
        c->has_dialled = true;
        if (connect(c->up.fd, (struct sockaddr *)&sa, len) < 0 && errno != EINPROGRESS)
            continue;
        if (loop_set(&b->loop, &c->up, EPOLLOUT) < 0)
            continue;
        c->deadline_ms =
            broker_now_ms() + (c->next_addr < c->n_addrs ? BROKER_DIAL_NEXT_MS : BROKER_DIAL_MS);
        return;
    }
    broker_conn_close(c, NETWIRE_FAILED, NULL);
}

/* ---- where it really is -----------------------------------------------------------------------
 */

static void conn_on_resolved(void *data, const struct resolve_result *result);

static void conn_resolve(struct broker_conn *c, const char *name, bool is_proxy)
{
    c->query_is_proxy = is_proxy;
    c->query = resolve_start(c->broker->resolver, name, broker_now_ms(), conn_on_resolved, c);
    if (!c->query)
        broker_conn_close(c, NETWIRE_FAILED, "too many lookups at once");
}

static void conn_to_proxy(struct broker_conn *c)
{
    const struct proxyconnect *proxy = &c->broker->proxy;
    c->n_addrs = 0;
    if (!proxy->host.is_addr) {
        conn_resolve(c, proxy->host.name, true);
        return;
    }
    memcpy(c->addrs[c->n_addrs++], proxy->host.addr, 16);
    broker_conn_dial(c);
}

/* Of the addresses a name has, those that may be dialled. Which one is dialled is decided here and
 * nowhere else: the guest never sees them, so it cannot have them change in between. */
static bool conn_keep_allowed(struct broker_conn *c, const struct resolve_result *result)
{
    const char *refusal = NULL;
    c->n_addrs = 0;
    for (size_t i = 0; i < result->n_addrs; i++) {
        struct netset_verdict v =
            netset_dial(&c->broker->set, &c->verdict, result->addrs[i], NETRULE_TCP, c->port);
        if (v.allowed) {
            memcpy(c->addrs[c->n_addrs++], result->addrs[i], 16);
        } else if (!refusal) {
            refusal = v.rule;
            memcpy(c->dialled, result->addrs[i], 16);
            c->has_dialled = true;
        }
    }
    if (c->n_addrs > 0 || !refusal)
        return true;
    broker_conn_close(c, NETWIRE_REFUSED, refusal);
    return false;
}

static void conn_on_resolved(void *data, const struct resolve_result *result)
{
    struct broker_conn *c = data;
    c->query = NULL;
    if (c->query_is_proxy) {
        c->n_addrs = result->n_addrs;
        memcpy(c->addrs, result->addrs, sizeof(c->addrs));
        broker_conn_dial(c);
        return;
    }
    if (!conn_keep_allowed(c, result))
        return;
    c->has_dialled = false;
    if (conn_uses_proxy(c))
        conn_to_proxy(c); /* it may know names that we do not */
    else if (result->n_addrs == 0)
        broker_conn_close(c, NETWIRE_FAILED,
                          result->status == RESOLVE_NONE ? "no such name" : "no answer from DNS");
    else
        broker_conn_dial(c);
}

static void conn_locate(struct broker_conn *c)
{
    static const uint8_t loopback4[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1};
    static const uint8_t loopback6[16] = {[15] = 1};
    if (c->verdict.host_loopback) {
        const uint8_t *const own[] = {loopback4, loopback6};
        for (size_t i = 0; i < ARRAY_SIZE(own); i++)
            if (netset_dial(&c->broker->set, &c->verdict, own[i], NETRULE_TCP, c->port).allowed)
                memcpy(c->addrs[c->n_addrs++], own[i], 16);
        broker_conn_dial(c);
    } else if (!c->host.is_addr) {
        conn_resolve(c, c->host.name, false);
    } else if (conn_uses_proxy(c)) {
        conn_to_proxy(c);
    } else {
        memcpy(c->addrs[c->n_addrs++], c->host.addr, 16);
        broker_conn_dial(c);
    }
}

/* ---- whom it means ----------------------------------------------------------------------------
 */

static void conn_decide(struct broker_conn *c, const uint8_t dst[static 16], uint16_t port)
{
    struct broker *b = c->broker;
    bool synthetic;
    const char *name = broker_name_of(b, dst, &synthetic);
    c->port = port;
    if (synthetic && !name) { /* an address we never gave out */
        c->host.is_addr = true;
        memcpy(c->host.addr, dst, 16);
        broker_conn_close(c, NETWIRE_REFUSED, "default");
        return;
    }
    if (synthetic) {
        snprintf(c->host.name, sizeof(c->host.name), "%s", name);
        c->verdict = netset_name(&b->set, name, NETRULE_TCP, port);
        c->watches_answer = !c->verdict.host_loopback;
    } else {
        c->host.is_addr = true;
        memcpy(c->host.addr, dst, 16);
        c->verdict = netset_addr(&b->set, dst, NETRULE_TCP, port);
        c->judge = JUDGE_RAW; /* no name was dialled that anything could agree with */
    }
    if (!c->verdict.allowed) {
        broker_conn_close(c, NETWIRE_REFUSED, c->verdict.rule);
        return;
    }
    if (b->ending) { /* it came in the guest's last moment */
        broker_conn_close(c, NETWIRE_FAILED, NULL);
        return;
    }
    if (b->n_conns > b->max_conns || broker_limits_spent(b)) {
        broker_conn_close(c, NETWIRE_REFUSED,
                          broker_limits_spent(b) ? b->traffic_rule : b->conns_rule);
        return;
    }
    loop_set(&b->loop, &c->guest, c->judge == JUDGE_RAW ? 0 : EPOLLIN);
    conn_locate(c);
}

void broker_accept(struct loop_watch *w, uint32_t events)
{
    struct broker_listener *l = w->data;
    struct broker *b = l->broker;
    (void)events;
    for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
        struct sockaddr_storage sa;
        socklen_t len = sizeof(sa);
        uint8_t dst[16];
        uint16_t port;
        _cleanup_close_ int fd =
            accept4(w->fd, (struct sockaddr *)&sa, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            return;
        len = sizeof(sa);
        if (getsockname(fd, (struct sockaddr *)&sa, &len) < 0)
            continue;
        broker_addr_of(&sa, dst, &port);
        if (broker_is_dns_addr(dst) && port == 53) {
            broker_dns_accepted(b, TAKE_FD(fd));
            continue;
        }
        struct broker_conn *c = broker_conn_new(b, TAKE_FD(fd));
        if (c)
            conn_decide(c, dst, port);
    }
}

void broker_conn_tick(struct broker *b, uint64_t now_ms)
{
    if (b->n_dialling == 0)
        return;
    for (struct broker_conn *c = b->conns, *next; c; c = next) {
        next = c->next;
        if (c->deadline_ms == 0 || now_ms < c->deadline_ms)
            continue;
        if (c->state == CONN_DIALLING)
            broker_conn_dial(c);
        else if (c->state == CONN_PROXY)
            broker_conn_close(c, NETWIRE_FAILED, "no answer from the proxy");
    }
}
