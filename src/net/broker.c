/* The broker's main: takes its policy and the gate's sockets, locks itself in, serves. */
#include "net/broker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
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

#define BROKER_NO_WALL "the broker's own wall could not be built"
#define TICK_MS 250 /* while somebody waits for an answer */
#define BROKER_FLUSH_MS 1000

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

/* The descriptors of one message. -1: there are more than that, or none came through. */
static int take_fds(struct msghdr *msg, int *fds, size_t n)
{
    struct cmsghdr *cmsg = CMSG_FIRSTHDR(msg);
    size_t n_fds =
        cmsg && cmsg->cmsg_type == SCM_RIGHTS ? (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;
    if (n_fds != n)
        return -1;
    if (n > 0)
        memcpy(fds, CMSG_DATA(cmsg), n * sizeof(int));
    return 0;
}

static int broker_head(struct broker *b, struct netwire_begin *ret)
{
    union {
        char space[CMSG_SPACE(sizeof(b->published))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {ret, sizeof(*ret)};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.space,
                         .msg_controllen = sizeof(control.space)};
    if (recvmsg(b->control.fd, &msg, MSG_CMSG_CLOEXEC | MSG_WAITALL) != sizeof(*ret) ||
        ret->len > POLICYWIRE_MAX || ret->n_ports > NETWIRE_PORTS_MAX)
        return -1;
    b->n_published = ret->n_ports;
    return take_fds(&msg, b->published, b->n_published);
}

static int broker_policy(struct broker *b, struct cordon_err *err)
{
    struct netwire_begin head;
    if (broker_head(b, &head) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "broker", 0, "no policy");
    size_t len = head.len;
    _cleanup_free_ char *data = malloc(len + 1);
    if (!data)
        return err_nomem(err, "broker");
    if (read_all(b->control.fd, data, len) < 0)
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
    l->next = b->listeners;
    b->listeners = l;
    l->row = *row;
    l->watch = (struct loop_watch){.fd = fd, .fn = fn, .data = l};
    if (row->kind == NETWIRE_SEEN)
        b->seen_watch = &l->watch;
    return loop_set(&b->loop, &l->watch, EPOLLIN);
}

/* The number of a descriptor, above another one; as it was where none is left there. */
static int broker_raise(int *fd, int above)
{
    int raised = fcntl(*fd, F_DUPFD_CLOEXEC, above + 1);
    if (raised < 0)
        return errno == EINVAL || errno == EMFILE ? 0 : -1;
    close(*fd);
    *fd = raised;
    return 0;
}

/* Above the socket to the supervisor (broker_put_control_last): when that one is closed, the host's
 * ports are free for the next run. */
static int broker_published(struct broker *b)
{
    const struct policy_value *v = policy_value(&b->policy, FIELD_PUBLISH);
    if (v->n_items != b->n_published)
        return -1;
    for (size_t i = 0; i < v->n_items; i++) {
        uint16_t host_port, guest_port;
        struct netwire_socket row = {.kind = NETWIRE_PUBLISHED, .family = 4};
        if (!publish_parse(v->items[i].text, &host_port, &guest_port) ||
            broker_raise(&b->published[i], b->control.fd) < 0)
            return -1;
        row.port = guest_port;
        if (broker_listen(b, b->published[i], &row, broker_publish_accept) < 0)
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
    case NETWIRE_PUBLISHED: break;
    }
    return -1;
}

/* A killed process's last descriptor is closed first, and the gate's sockets take the kernel some
 * milliseconds: until the supervisor's is closed, it takes us for alive. */
static int broker_put_control_last(struct broker *b, int last)
{
    return broker_raise(&b->control.fd, last);
}

/* One packet of them; 1 when it was the last. Who made the gate is one of ours, but has the guest's
 * rights, or its pool's: what it sends is looked at. */
static int broker_take_sockets(struct broker *b)
{
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
        return 0;
    if (n != sizeof(in) || in.n > NETWIRE_BATCH || take_fds(&msg, fds, in.n) < 0)
        return -1; /* the guest was not started after all */
    for (size_t i = 0; i < in.n; i++)
        if (broker_take_socket(b, &in.rows[i], fds[i]) < 0)
            return -1;
    if (in.n > 0)
        b->last_socket = MAX(b->last_socket, fds[in.n - 1]);
    if (!in.is_last)
        return 0;
    b->has_v6 = in.has_v6 != 0;
    b->sees_all = in.sees_all != 0;
    close(NETWIRE_SETUP_FD);
    return broker_put_control_last(b, b->last_socket) < 0 ? -1 : 1;
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
    broker_last_look(b);
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

static int broker_serve(struct broker *b)
{
    for (;;) {
        uint64_t now = broker_now_ms();
        if (b->ending && broker_last_is_over(b, now))
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
    uint64_t until = broker_now_ms() + BROKER_FLUSH_MS;
    while (broker_record_flush(b) && b->out.len > 0 && broker_now_ms() < until)
        loop_once(&b->loop, 10);
    /* The last word is the end of this socket, and what the next run may want is free before it.
     * By itself the kernel would close the gate's sockets first, which it takes its time for. */
    for (size_t i = 0; i < b->n_published; i++)
        close(b->published[i]);
    close(b->control.fd);
    return 0;
}

/* Its policy, with which it locks itself in. NULL, or what failed. */
static const char *broker_begin(struct broker *b, struct cordon_err *err)
{
    if (broker_policy(b, err) < 0)
        return err->message;
    if (broker_lock_down() < 0)
        return BROKER_NO_WALL;
    broker_limits_init(b);
    return NULL;
}

/* Both are there. */
static int broker_ready(struct broker *b)
{
    if (broker_published(b) < 0 || loop_set(&b->loop, &b->control, EPOLLIN) < 0) {
        broker_record_broken(b, "the broker could not begin");
        return -1;
    }
    if (!b->sees_all)
        broker_record(b, &(struct netwire_record){.verdict = NETWIRE_BLIND});
    return 0;
}

/* The policy is there at once, and the gate when it was made; of a prepared guest the gate comes
 * first, and the policy when somebody has a use for it. Nothing of the guest's is looked at before
 * both are there. */
static int broker_gather(struct broker *b)
{
    struct cordon_err err = {0};
    struct pollfd from[2] = {{.fd = NETWIRE_CONTROL_FD, .events = POLLIN},
                             {.fd = NETWIRE_SETUP_FD, .events = POLLIN}};
    while (from[0].fd >= 0 || from[1].fd >= 0) {
        if (from[0].fd >= 0)
            from[0].fd = b->control.fd; /* it moves */
        if (poll(from, 2, -1) < 0) {
            if (errno == EINTR)
                continue;
            return -1;
        }
        if (from[0].fd >= 0 && from[0].revents) {
            const char *failed = broker_begin(b, &err);
            if (failed) {
                broker_record_broken(b, failed);
                return -1;
            }
            from[0].fd = -1;
        } else if (from[1].fd >= 0 && from[1].revents) {
            int r = broker_take_sockets(b);
            if (r < 0)
                return -1;
            from[1].fd = r > 0 ? -1 : from[1].fd;
        }
    }
    return broker_ready(b);
}

int broker_main(void)
{
    static struct broker b;
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_NAME, "cordon-broker");
    b.out.max = BROKER_OUT_MAX * 2;
    b.dns_tokens = BROKER_DNS_BURST;
    b.control = (struct loop_watch){.fd = NETWIRE_CONTROL_FD, .fn = broker_on_control, .data = &b};
    if (loop_init(&b.loop) < 0)
        return 1;
    if (broker_lock_files(&b.max_conns) < 0 || broker_lock_first() < 0) {
        broker_record_broken(&b, BROKER_NO_WALL);
        return 1;
    }
    if (broker_gather(&b) < 0)
        return 1;
    return broker_serve(&b);
}
