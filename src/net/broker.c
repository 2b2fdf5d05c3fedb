/* The broker's main: takes its policy, locks itself in, takes the gate's sockets, serves. */
#include "net/broker.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/util.h"
#include "net/broker_internal.h"
#include "net/policywire.h"
#include "policy/publish.h"

#define TICK_MS 250 /* while somebody waits for an answer */

uint64_t broker_now_ms(void)
{
    return clock_ns() / 1000000u;
}

static int read_all(int fd, void *data, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = recv(fd, (char *)data + done, len - done, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        done += (size_t)n;
    }
    return 0;
}

static int broker_policy(struct broker *b, struct cordon_err *err)
{
    uint64_t len = 0;
    if (read_all(NETWIRE_CONTROL_FD, &len, sizeof(len)) < 0 || len > POLICYWIRE_MAX)
        return err_set(err, CORDON_ERR_INTERNAL, "broker", 0, "no policy");
    _cleanup_free_ char *data = malloc(len + 1);
    if (!data)
        return err_nomem(err, "broker");
    if (read_all(NETWIRE_CONTROL_FD, data, len) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "broker", 0, "no policy");
    if (policywire_read(data, len, &b->arena, &b->policy, err) < 0 ||
        netset_make(&b->policy, &b->set, err) < 0)
        return -1;
    const char *proxy = policy_text(&b->policy, FIELD_HTTP_PROXY);
    b->has_proxy = policy_has(&b->policy, FIELD_HTTP_PROXY) && proxy && proxy[0];
    if (b->has_proxy && proxyconnect_parse_url(proxy, &b->proxy, err) < 0)
        return -1;
    const char *dns = policy_text(&b->policy, FIELD_DNS);
    struct resolve_config config = {
        .dns = policy_has(&b->policy, FIELD_DNS) && dns && dns[0] ? dns : NULL};
    return resolve_new(&b->loop, &config, &b->resolver, err);
}

/* Listeners live as long as the process. Takes the descriptor. */
static int broker_listen(struct broker *b, int fd, const struct netwire_socket *row, loop_fn *fn)
{
    if (row->kind == NETWIRE_TCP || row->kind == NETWIRE_UDP)
        broker_seen_port(b, row);
    b->any_port |= row->kind == NETWIRE_ANY;
    struct broker_listener *l = calloc(1, sizeof(*l));
    if (!l)
        return -1;
    l->broker = b;
    l->row = *row;
    l->watch = (struct loop_watch){.fd = fd, .fn = fn, .data = l};
    if (row->kind == NETWIRE_SEEN)
        b->seen_watch = &l->watch;
    return loop_set(&b->loop, &l->watch, EPOLLIN);
}

static int broker_published(struct broker *b)
{
    const struct policy_value *v = policy_value(&b->policy, FIELD_PUBLISH);
    for (size_t i = 0; i < v->n_items; i++) {
        uint16_t host_port, guest_port;
        struct netwire_socket row = {.family = 4};
        if (!publish_parse(v->items[i].text, &host_port, &guest_port))
            return -1;
        row.port = guest_port;
        if (broker_listen(b, NETWIRE_LISTEN_FD + (int)i, &row, broker_publish_accept) < 0)
            return -1;
    }
    return 0;
}

static int broker_take_socket(struct broker *b, const struct netwire_socket *row, int fd)
{
    switch ((enum netwire_kind)row->kind) {
    case NETWIRE_TCP:
    case NETWIRE_ANY: return broker_listen(b, fd, row, broker_accept);
    case NETWIRE_UDP: return broker_listen(b, fd, row, broker_udp_readable);
    case NETWIRE_INNER: return broker_publish_keep(b, fd);
    case NETWIRE_SEEN: return broker_listen(b, fd, row, broker_seen_readable);
    }
    return -1;
}

/* The helper that made the gate is one of ours, but it runs with the guest's rights: what it sends
 * is looked at. */
static int broker_take_sockets(struct broker *b)
{
    for (bool last = false; !last;) {
        struct netwire_sockets in;
        int fds[NETWIRE_BATCH];
        union {
            char space[CMSG_SPACE(sizeof(fds))];
            struct cmsghdr align;
        } control;
        struct iovec iov = {&in, sizeof(in)};
        struct msghdr msg = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.space,
                             .msg_controllen = sizeof(control.space)};
        ssize_t n = recvmsg(NETWIRE_SETUP_FD, &msg, MSG_CMSG_CLOEXEC);
        if (n < 0 && errno == EINTR)
            continue;
        if (n != sizeof(in) || in.n > NETWIRE_BATCH)
            return -1; /* the guest was not started after all */
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
        size_t n_fds = cmsg && cmsg->cmsg_type == SCM_RIGHTS
                           ? (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int)
                           : 0;
        if (n_fds != in.n)
            return -1;
        if (n_fds > 0)
            memcpy(fds, CMSG_DATA(cmsg), n_fds * sizeof(int));
        for (size_t i = 0; i < n_fds; i++)
            if (broker_take_socket(b, &in.rows[i], fds[i]) < 0)
                return -1;
        last = in.is_last != 0;
        b->has_v6 = in.has_v6 != 0;
        if (last && !in.sees_all)
            broker_record(b, &(struct netwire_record){.verdict = NETWIRE_BLIND});
    }
    close(NETWIRE_SETUP_FD);
    return 0;
}

/* End of file: the guest is gone, or the supervisor itself. Nothing else ever comes. */
static void broker_on_control(struct loop_watch *w, uint32_t events)
{
    struct broker *b = w->data;
    char byte;
    if (events & EPOLLOUT && !broker_record_flush(b))
        _exit(1);
    if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)) || b->ending)
        return;
    if (recv(w->fd, &byte, 1, MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    b->ending = true;
    b->end_ms = broker_now_ms() + BROKER_LINGER_MS;
    if (!broker_record_flush(b))
        _exit(1);
}

static int broker_timeout(struct broker *b, uint64_t now)
{
    int timeout = resolve_timeout_ms(b->resolver, now);
    bool waits = b->n_dialling > 0 || b->n_udp > 0 || b->n_dns_conns > 0;
    if (b->ending)
        return 5;
    if (waits && (timeout < 0 || timeout > TICK_MS))
        timeout = TICK_MS;
    return timeout;
}

/* After the guest's end: only what it had sent already still goes out. */
static bool broker_is_over(struct broker *b, uint64_t now)
{
    if (!b->ending)
        return false;
    if (now < b->end_ms)
        for (struct broker_conn *c = b->conns; c; c = c->next)
            if (broker_relay_has_more(c))
                return false;
    while (b->conns)
        broker_conn_end(b->conns);
    broker_udp_end(b);
    broker_seen_end(b);
    broker_record_end(b);
    return true;
}

static int broker_serve(struct broker *b)
{
    for (;;) {
        uint64_t now = broker_now_ms();
        if (broker_is_over(b, now))
            break;
        if (loop_once(&b->loop, broker_timeout(b, now)) < 0)
            return 1;
        now = broker_now_ms();
        resolve_tick(b->resolver, now);
        broker_conn_tick(b, now);
        broker_dns_tick(b, now);
        broker_udp_tick(b, now);
        broker_conn_free_closed(b);
    }
    for (int i = 0; i < 100 && b->out.len > 0 && broker_record_flush(b); i++)
        loop_once(&b->loop, 10);
    return 0;
}

int broker_main(void)
{
    static struct broker b;
    struct cordon_err err = {0};
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_NAME, "cordon-broker");
    b.out.max = BROKER_OUT_MAX * 2;
    b.dns_tokens = BROKER_DNS_BURST;
    b.control = (struct loop_watch){.fd = NETWIRE_CONTROL_FD, .fn = broker_on_control, .data = &b};
    if (loop_init(&b.loop) < 0)
        return 1;
    const char *failed = NULL;
    if (broker_policy(&b, &err) < 0)
        failed = err.message;
    else if (broker_lock_limits(&b.max_conns) < 0 || broker_lock_down() < 0)
        failed = "the broker's own wall could not be built";
    else if (loop_set(&b.loop, &b.control, EPOLLIN) < 0 || broker_published(&b) < 0)
        failed = "the broker could not begin";
    if (failed) {
        broker_record_broken(&b, failed);
        return 1;
    }
    broker_limits_init(&b);
    if (broker_take_sockets(&b) < 0)
        return 1;
    return broker_serve(&b);
}
