/* Published ports: connections from the host's loopback into the guest. Runs in the broker.
 *
 * Sockets that can reach the guest's loopback are made in its own namespace, where the broker
 * cannot go; it was given a store of them, and puts each back after use. */
#include "net/broker_internal.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/util.h"

static const uint8_t mapped_prefix[12] = {[10] = 0xff, [11] = 0xff};

/* A connected socket can be dissolved and used again. */
int broker_publish_keep(struct broker *b, int fd)
{
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    int family = AF_INET;
    socklen_t len = sizeof(family);
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &len) == 0) {
        struct broker_inner *store = &b->inner[family == AF_INET6];
        if (store->n < BROKER_INNER_MAX && connect(fd, &none, sizeof(none)) == 0) {
            store->fds[store->n++] = fd;
            return 0;
        }
    }
    close(fd);
    return 0;
}

/* Dissolving throws away what is still to be sent. A lingering close would lose the socket, and
 * there is no making another. */
static bool publish_is_delivered(int fd)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof(info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
        return true;
    /* both sides have ended: what is left is the acknowledgement of our end, behind all else */
    return info.tcpi_state == TCP_CLOSE || info.tcpi_state == TCP_TIME_WAIT ||
           info.tcpi_state == TCP_FIN_WAIT2;
}

void broker_publish_ended(struct broker *b, int fd)
{
    int family = AF_INET;
    socklen_t len = sizeof(family);
    (void)getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &len);
    struct broker_inner *store = &b->inner[family == AF_INET6];
    if (store->n_draining < BROKER_INNER_MAX && !publish_is_delivered(fd))
        store->draining[store->n_draining++] = fd;
    else
        broker_publish_keep(b, fd);
}

/* Back into the store with those that are done. */
static void publish_sweep(struct broker *b, struct broker_inner *store)
{
    size_t left = 0;
    for (size_t i = 0; i < store->n_draining; i++) {
        if (publish_is_delivered(store->draining[i]))
            broker_publish_keep(b, store->draining[i]);
        else
            store->draining[left++] = store->draining[i];
    }
    store->n_draining = left;
}

bool broker_met_itself(int fd)
{
    struct sockaddr_storage own = {0}, peer = {0};
    socklen_t own_len = sizeof(own), peer_len = sizeof(peer);
    return getsockname(fd, (struct sockaddr *)&own, &own_len) == 0 &&
           getpeername(fd, (struct sockaddr *)&peer, &peer_len) == 0 && own_len == peer_len &&
           memcmp(&own, &peer, own_len) == 0;
}

static void publish_dial(struct broker_conn *c);

static void publish_on_dial(struct loop_watch *w, uint32_t events)
{
    struct broker_conn *c = w->data;
    int error = 0;
    socklen_t len = sizeof(error);
    (void)events;
    if (getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0 || error ||
        broker_met_itself(w->fd))
        publish_dial(c);
    else
        broker_conn_opened(c);
}

/* A socket of the address's family in the place of the last one. False: none is left. */
static bool publish_take(struct broker_conn *c, const uint8_t addr[static 16])
{
    struct broker *b = c->broker;
    struct broker_inner *store = &b->inner[memcmp(addr, mapped_prefix, 12) != 0];
    if (c->up.fd >= 0) {
        loop_set(&b->loop, &c->up, 0);
        broker_publish_keep(b, TAKE_FD(c->up.fd));
    }
    publish_sweep(b, store);
    if (store->n == 0)
        return false;
    int on = 1;
    c->up = (struct loop_watch){.fd = store->fds[--store->n], .fn = publish_on_dial, .data = c};
    setsockopt(c->up.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return true;
}

static void publish_dial(struct broker_conn *c)
{
    c->state = CONN_DIALLING;
    while (c->next_addr < c->n_addrs) {
        struct sockaddr_storage sa;
        const uint8_t *addr = c->addrs[c->next_addr++];
        socklen_t len = broker_sockaddr(addr, c->port, &sa);
        if (!publish_take(c, addr))
            continue;
        memcpy(c->dialled, addr, 16);
        c->has_dialled = true;
        if ((connect(c->up.fd, (struct sockaddr *)&sa, len) < 0 && errno != EINPROGRESS) ||
            loop_set(&c->broker->loop, &c->up, EPOLLOUT) < 0)
            continue;
        return;
    }
    bool had_socket = c->has_dialled;
    c->has_dialled = false; /* none of them more than the others */
    broker_conn_close(c, had_socket ? NETWIRE_FAILED : NETWIRE_REFUSED,
                      had_socket ? NULL : "too many connections");
}

void broker_publish_accept(struct loop_watch *w, uint32_t events)
{
    struct broker_listener *l = w->data;
    struct broker *b = l->broker;
    /* both loopbacks, which servers on all addresses hear too, then the guest's end of the link */
    static const uint8_t guest[][16] = {{[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1},
                                        {[15] = 1},
                                        {[10] = 0xff, [11] = 0xff, [12] = 192, [15] = 2},
                                        {0xfd, 0x63, 0x6f, 0x72, 0x64, 0x6f, 0x6e, 1, [15] = 2}};
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
    memcpy(c->host.addr, guest[0], 16);
    c->n_addrs = ARRAY_SIZE(guest);
    memcpy(c->addrs, guest, sizeof(guest));
    publish_dial(c);
}
