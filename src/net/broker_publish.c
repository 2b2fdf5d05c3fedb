/* Published ports: connections from the host's loopback into the guest. Runs in the broker.
 *
 * Sockets that can reach the guest are made in the gate's namespace, where the broker cannot go; it
 * was given a store of them, and puts each back after use. */
#include "net/broker_internal.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/util.h"

/* A connected socket can be dissolved and used again. */
int broker_publish_keep(struct broker *b, int fd)
{
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    if (b->n_inner == BROKER_INNER_MAX || connect(fd, &none, sizeof(none)) < 0) {
        close(fd);
        return 0;
    }
    b->inner[b->n_inner++] = fd;
    return 0;
}

static void publish_dial(struct broker_conn *c);

static void publish_on_dial(struct loop_watch *w, uint32_t events)
{
    struct broker_conn *c = w->data;
    int error = 0;
    socklen_t len = sizeof(error);
    (void)events;
    if (getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0 || error)
        publish_dial(c);
    else
        broker_conn_opened(c);
}

/* First the address of the guest's own link (servers that listen on all addresses), then its
 * loopback. */
static void publish_dial(struct broker_conn *c)
{
    struct broker *b = c->broker;
    static const struct sockaddr none = {.sa_family = AF_UNSPEC};
    c->state = CONN_DIALLING;
    while (c->next_addr < c->n_addrs) {
        struct sockaddr_storage sa;
        socklen_t len = broker_sockaddr(c->addrs[c->next_addr++], c->port, &sa);
        loop_set(&b->loop, &c->up, 0);
        (void)!connect(c->up.fd, &none, sizeof(none));
        c->up.fn = publish_on_dial;
        if ((connect(c->up.fd, (struct sockaddr *)&sa, len) < 0 && errno != EINPROGRESS) ||
            loop_set(&b->loop, &c->up, EPOLLOUT) < 0)
            continue;
        return;
    }
    broker_conn_close(c, NETWIRE_FAILED, NULL);
}

void broker_publish_accept(struct loop_watch *w, uint32_t events)
{
    struct broker_listener *l = w->data;
    struct broker *b = l->broker;
    static const uint8_t loopback[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1};
    static const uint8_t link[16] = {[10] = 0xff, [11] = 0xff, [12] = 192, [15] = 2};
    (void)events;
    struct sockaddr_storage from;
    socklen_t len = sizeof(from);
    _cleanup_close_ int fd =
        accept4(w->fd, (struct sockaddr *)&from, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 || b->ending)
        return;
    struct broker_conn *c = broker_conn_new(b, TAKE_FD(fd));
    if (!c)
        return;
    c->is_inward = true;
    c->judge = JUDGE_RAW;
    c->port = l->row.port;
    c->verdict = (struct netset_verdict){.allowed = true, .rule = "publish"};
    c->host.is_addr = true;
    memcpy(c->host.addr, loopback, 16);
    memcpy(c->addrs[c->n_addrs++], link, 16);
    memcpy(c->addrs[c->n_addrs++], loopback, 16);
    if (b->n_inner == 0) {
        broker_conn_close(c, NETWIRE_REFUSED, "too many connections");
        return;
    }
    int on = 1;
    c->up.fd = b->inner[--b->n_inner];
    setsockopt(c->up.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    publish_dial(c);
}
