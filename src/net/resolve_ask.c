/* One exchange of the resolver: a question of one type, tried on one server after the other. Runs
 * in the broker, on its event loop. */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>

#include "base/util.h"
#include "net/resolve_internal.h"

#define ROUNDS 2 /* how often each server is tried */

uint64_t resolve_ask_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void resolve_ask_stop(struct resolve_ask *ask)
{
    if (ask->fd >= 0)
        loop_set(ask->query->resolver->loop, &ask->watch, 0);
    util_close(&ask->fd);
    free(TAKE_PTR(ask->tcp));
    ask->tcp_len = ask->tcp_at = 0;
}

static void finish(struct resolve_ask *ask, bool failed)
{
    resolve_ask_stop(ask);
    ask->is_done = true;
    ask->has_failed = failed;
    resolve_ask_done(ask->query);
}

/* ---- what comes back --------------------------------------------------------------------------
 */

static int open_tcp(struct resolve_ask *ask);

/* A whole message. False: it does not answer this question, keep waiting. */
static bool take_message(struct resolve_ask *ask, const uint8_t *msg, size_t len)
{
    struct dnsmsg_reply reply;
    if (dnsmsg_read_reply(msg, len, ask->id, ask->query->name, ask->type, &reply) < 0)
        return false;
    if (reply.truncated && !ask->is_tcp) {
        resolve_ask_stop(ask);
        if (open_tcp(ask) < 0)
            resolve_ask_next(ask, resolve_ask_now_ms());
    } else if (reply.truncated ||
               (reply.rcode != DNSMSG_NOERROR && reply.rcode != DNSMSG_NXDOMAIN)) {
        resolve_ask_next(ask, resolve_ask_now_ms());
    } else {
        ask->reply = reply;
        finish(ask, false);
    }
    return true;
}

static void on_udp(struct loop_watch *w, uint32_t events)
{
    struct resolve_ask *ask = w->data;
    uint8_t msg[4096];
    (void)events;
    for (;;) {
        ssize_t n = recv(ask->fd, msg, sizeof(msg), MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n < 0) {
            resolve_ask_next(ask, resolve_ask_now_ms()); /* nobody listens there */
            return;
        }
        /* Something else on this port is a forgery or a stray: the true answer may still come. */
        if (take_message(ask, msg, (size_t)n))
            return;
    }
}

/* 1 when all is there, 0 for later, -1 when the connection is no use any more */
static int tcp_move(struct resolve_ask *ask)
{
    for (;;) {
        ssize_t n;
        bool sending = ask->watch.events & EPOLLOUT;
        if (sending)
            n = send(ask->fd, ask->tcp + ask->tcp_at, ask->tcp_len - ask->tcp_at,
                     MSG_DONTWAIT | MSG_NOSIGNAL);
        else
            n = recv(ask->fd, ask->tcp + ask->tcp_at, ask->tcp_len - ask->tcp_at, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (n <= 0)
            return -1;
        ask->tcp_at += (size_t)n;
        if (ask->tcp_at < ask->tcp_len)
            continue;
        if (sending) {
            ask->tcp_at = 0;
            ask->tcp_len = 2;
            if (loop_set(ask->query->resolver->loop, &ask->watch, EPOLLIN) < 0)
                return -1;
        } else if (ask->tcp_len == 2) {
            ask->tcp_len = 2 + ((size_t)ask->tcp[0] << 8 | ask->tcp[1]);
            if (ask->tcp_len == 2 || ask->tcp_len > 2 + DNSMSG_TCP_MAX)
                return -1;
        } else {
            return 1;
        }
    }
}

static void on_tcp(struct loop_watch *w, uint32_t events)
{
    struct resolve_ask *ask = w->data;
    (void)events;
    int r = tcp_move(ask);
    if (r < 0 || (r > 0 && !take_message(ask, ask->tcp + 2, ask->tcp_len - 2)))
        resolve_ask_next(ask, resolve_ask_now_ms());
}

/* ---- what goes out ----------------------------------------------------------------------------
 */

static int open_socket(struct resolve_ask *ask, int type, loop_fn *fn, uint32_t events)
{
    const struct resolve_conf *conf = &ask->query->resolver->conf;
    const struct resolve_server *server = &conf->servers[ask->attempt % conf->n_servers];
    ask->fd = socket(server->addr.ss_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (ask->fd < 0)
        return -1;
    ask->watch = (struct loop_watch){.fd = ask->fd, .fn = fn, .data = ask};
    /* The kernel takes a random port; connected, it lets nobody else answer. */
    if ((connect(ask->fd, (const struct sockaddr *)&server->addr, server->len) < 0 &&
         errno != EINPROGRESS) ||
        getrandom(&ask->id, sizeof(ask->id), 0) != sizeof(ask->id) ||
        loop_set(ask->query->resolver->loop, &ask->watch, events) < 0) {
        resolve_ask_stop(ask);
        return -1;
    }
    return 0;
}

static int open_tcp(struct resolve_ask *ask)
{
    ask->is_tcp = true;
    ask->tcp = malloc(2 + DNSMSG_TCP_MAX);
    if (!ask->tcp || open_socket(ask, SOCK_STREAM, on_tcp, EPOLLOUT) < 0)
        return -1;
    size_t n = dnsmsg_write_query(ask->id, ask->query->name, ask->type, ask->tcp + 2, 1024);
    ask->tcp[0] = (uint8_t)(n >> 8);
    ask->tcp[1] = (uint8_t)n;
    ask->tcp_len = 2 + n;
    return n > 0 ? 0 : -1;
}

static int open_udp(struct resolve_ask *ask)
{
    uint8_t msg[512];
    ask->is_tcp = false;
    if (open_socket(ask, SOCK_DGRAM, on_udp, EPOLLIN) < 0)
        return -1;
    size_t n = dnsmsg_write_query(ask->id, ask->query->name, ask->type, msg, sizeof(msg));
    return n > 0 && send(ask->fd, msg, n, MSG_NOSIGNAL) == (ssize_t)n ? 0 : -1;
}

static void try_from(struct resolve_ask *ask, uint64_t now_ms)
{
    const struct resolver *r = ask->query->resolver;
    for (; ask->attempt < ROUNDS * r->conf.n_servers; ask->attempt++) {
        ask->deadline_ms = now_ms + r->try_ms;
        if (open_udp(ask) == 0)
            return;
        resolve_ask_stop(ask);
    }
    finish(ask, true);
}

void resolve_ask_start(struct resolve_ask *ask, uint64_t now_ms)
{
    try_from(ask, now_ms);
}

void resolve_ask_next(struct resolve_ask *ask, uint64_t now_ms)
{
    resolve_ask_stop(ask);
    ask->attempt++;
    try_from(ask, now_ms);
}
