/* The way out of a guest that has one: two namespaces and a link.
 *
 *   guest's namespace             the gate's namespace             host
 *   lo: wholly the guest's        lo: every allowed prefix is      broker: accepts here, judges,
 *   eth0 ---- link -------------- local here; our listeners        resolves, dials from the host
 *   route: all to the gate        nothing is forwarded, the rest is refused at once
 *
 * Nothing of ours listens beside the guest, so that its own servers may use every port. No process
 * stays in the gate's namespace: the broker's descriptors keep it alive. Runs in the helper beside
 * pid 1 (netns.c), which here has memory of its own and shares only descriptors, with the rights of
 * the guest's user namespace only; or in the pid 1 of a prepared guest (warm_guest.c), with those
 * of the pool's. */
#include "backend/native/native_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/ip.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/native/netlink.h"
#include "backend/native/netns_gate.h"
#include "base/fdsend.h"
#include "base/util.h"
#include "net/netwire.h"

#ifndef IPV6_FREEBIND
#define IPV6_FREEBIND 78
#endif

#define GATE_BACKLOG 4096
#define GATE_LO 1
#define GATE_LINK 2 /* number of the link's end in both namespaces */

static const uint8_t gate_mac[6] = {0x02, 0x63, 0x6f, 0x72, 0x64, 0x01};
static const uint8_t guest_mac[6] = {0x02, 0x63, 0x6f, 0x72, 0x64, 0x02};

/* Too large for the helper's stack. */
static struct gate {
    struct netlink gate_nl, guest_nl;
    struct netwire_sockets out;
    int fds[NETWIRE_BATCH];
    int broker_fd, seen_fd;
    bool has_v6;
    bool refuses; /* what is not allowed may be sent here: it is refused at once */
} gate;

static struct netlink_addr gate_addr4(uint32_t host_order, uint8_t bits)
{
    struct netlink_addr a = {.family = AF_INET, .prefix_len = bits};
    uint32_t net = htonl(host_order);
    memcpy(a.bytes, &net, 4);
    return a;
}

static struct netlink_addr gate_addr6(const uint8_t prefix[static 8], uint8_t last, uint8_t bits)
{
    struct netlink_addr a = {.family = AF_INET6, .prefix_len = bits};
    memcpy(a.bytes, prefix, 8);
    a.bytes[15] = last;
    return a;
}

static struct netlink_addr gate_route_addr(const struct plan_route *r)
{
    struct netlink_addr a = {.family = r->is_v4 ? AF_INET : AF_INET6, .prefix_len = r->prefix_len};
    memcpy(a.bytes, r->is_v4 ? r->addr + 12 : r->addr, r->is_v4 ? 4 : 16);
    return a;
}

static int gate_flush_full(struct netlink *nl)
{
    return nl->len > NETLINK_BATCH / 2 ? netlink_flush(nl) : 0;
}

static int gate_send(bool is_last)
{
    gate.out.is_last = is_last;
    gate.out.has_v6 = gate.has_v6;
    gate.out.sees_all = gate.refuses;
    struct iovec iov = {&gate.out, sizeof(gate.out)};
    size_t n = gate.out.n;
    ssize_t r = fdsend_fds(gate.broker_fd, &iov, 1, gate.fds, n, 0);
    for (size_t i = 0; i < n; i++)
        close(gate.fds[i]);
    gate.out.n = 0;
    return r < 0 ? -1 : 0;
}

/* Takes the descriptor. */
static int gate_hand_over(int fd, enum netwire_kind kind, uint8_t family, uint16_t port)
{
    gate.out.rows[gate.out.n] = (struct netwire_socket){(uint8_t)kind, family, port};
    gate.fds[gate.out.n++] = fd;
    return gate.out.n == NETWIRE_BATCH ? gate_send(false) : 0;
}

static int gate_bind(int fd, int family, uint16_t port)
{
    struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    struct sockaddr_in any4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    if (family == AF_INET)
        return bind(fd, (struct sockaddr *)&any4, sizeof(any4));
    int on = 1;
    if (setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) < 0)
        return -1;
    return bind(fd, (struct sockaddr *)&any6, sizeof(any6));
}

static int gate_listen(int family, uint16_t port, enum netwire_kind kind)
{
    _cleanup_close_ int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1;
    if (fd < 0)
        return -1;
    if (kind == NETWIRE_ANY &&
        setsockopt(fd, family == AF_INET ? SOL_IP : SOL_IPV6,
                   family == AF_INET ? IP_TRANSPARENT : IPV6_TRANSPARENT, &on, sizeof(on)) < 0)
        return -1;
    if (gate_bind(fd, family, port) < 0 || listen(fd, GATE_BACKLOG) < 0)
        return -1;
    return gate_hand_over(TAKE_FD(fd), kind, family == AF_INET ? 4 : 6, port);
}

static int gate_datagrams(int family, uint16_t port)
{
    _cleanup_close_ int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1;
    if (fd < 0 ||
        setsockopt(fd, family == AF_INET ? SOL_IP : SOL_IPV6,
                   family == AF_INET ? IP_PKTINFO : IPV6_RECVPKTINFO, &on, sizeof(on)) < 0 ||
        gate_bind(fd, family, port) < 0)
        return -1;
    /* Answers come from the address that was asked. IPv4 takes a local route for enough, IPv6 wants
     * the very address on a link, or this. */
    if (family == AF_INET6 && setsockopt(fd, SOL_IPV6, IPV6_FREEBIND, &on, sizeof(on)) < 0)
        return -1;
    return gate_hand_over(TAKE_FD(fd), NETWIRE_UDP, family == AF_INET ? 4 : 6, port);
}

/* Sockets that will dial the guest for published ports, made beside it: its loopback is reached
 * from nowhere else, and the broker cannot make any there. They never listen. */
static int gate_inner(const struct plan_net *net)
{
    unsigned n = plan_net_inner(net);
    for (unsigned i = 0; i < n; i++) {
        int family = i % 2 ? AF_INET6 : AF_INET;
        int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0 && family == AF_INET6)
            continue; /* a kernel without it */
        if (fd < 0 || gate_hand_over(fd, NETWIRE_INNER, family == AF_INET ? 4 : 6, 0) < 0)
            return -1;
    }
    return 0;
}

static int gate_every_port(void)
{
    if (gate_redirect_all(NETWIRE_ANY_PORT) < 0 ||
        gate_listen(AF_INET, NETWIRE_ANY_PORT, NETWIRE_ANY) < 0)
        return -1;
    return gate.has_v6 ? gate_listen(AF_INET6, NETWIRE_ANY_PORT, NETWIRE_ANY) : 0;
}

/* DNS is TCP and UDP port 53 like any other; the destination tells which. */
static int gate_sockets(const struct plan_net *net)
{
    if (gate_datagrams(AF_INET, 53) < 0 || gate_listen(AF_INET, 53, NETWIRE_TCP) < 0)
        return -1;
    for (size_t i = 0; !net->any_port && i < net->n_tcp_ports; i++) {
        uint16_t port = net->tcp_ports[i];
        if ((port != 53 && gate_listen(AF_INET, port, NETWIRE_TCP) < 0) ||
            (gate.has_v6 && gate_listen(AF_INET6, port, NETWIRE_TCP) < 0))
            return -1;
    }
    for (size_t i = 0; i < net->n_udp_ports; i++) {
        uint16_t port = net->udp_ports[i];
        if ((port != 53 && gate_datagrams(AF_INET, port) < 0) ||
            (gate.has_v6 && gate_datagrams(AF_INET6, port) < 0))
            return -1;
    }
    return 0;
}

/* The gate's own end and what is local there, one family at a time: a kernel without IPv6 leaves
 * the other one whole. */
static int gate_inside(const struct plan_net *net, int family)
{
    static const uint8_t synth6[8] = NETWIRE_SYNTH6, link6[8] = NETWIRE_LINK6;
    struct netlink *nl = &gate.gate_nl;
    bool v4 = family == AF_INET;
    struct netlink_addr synth = v4 ? gate_addr4(NETWIRE_SYNTH4, NETWIRE_SYNTH4_BITS)
                                   : gate_addr6(synth6, 0, NETWIRE_SYNTH6_BITS);
    struct netlink_addr own = v4 ? gate_addr4(NETWIRE_GATE4, NETWIRE_LINK4_BITS)
                                 : gate_addr6(link6, 1, NETWIRE_LINK6_BITS);
    struct netlink_addr guest = v4 ? gate_addr4(NETWIRE_GUEST4, 32) : gate_addr6(link6, 2, 128);
    struct netlink_addr all = {.family = family};
    netlink_route(nl, GATE_LO, RTN_LOCAL, &synth, NULL);
    if (net->any_port)
        netlink_route(nl, GATE_LO, RTN_LOCAL, &all, NULL);
    for (size_t i = 0; i < net->n_routes; i++) {
        struct netlink_addr to = gate_route_addr(&net->routes[i]);
        if (to.family != family)
            continue;
        netlink_route(nl, GATE_LO, RTN_LOCAL, &to, NULL);
        if (gate_flush_full(nl) < 0)
            return -1;
    }
    netlink_address(nl, GATE_LINK, &own);
    netlink_neighbour(nl, GATE_LINK, &guest, guest_mac);
    return netlink_flush(nl);
}

static int gate_guest_side(const struct plan_net *net, int family)
{
    static const uint8_t synth6[8] = NETWIRE_SYNTH6, link6[8] = NETWIRE_LINK6;
    struct netlink *nl = &gate.guest_nl;
    bool v4 = family == AF_INET;
    struct netlink_addr own = v4 ? gate_addr4(NETWIRE_GUEST4, NETWIRE_LINK4_BITS)
                                 : gate_addr6(link6, 2, NETWIRE_LINK6_BITS);
    struct netlink_addr via = v4 ? gate_addr4(NETWIRE_GATE4, 32) : gate_addr6(link6, 1, 128);
    struct netlink_addr synth = v4 ? gate_addr4(NETWIRE_SYNTH4, NETWIRE_SYNTH4_BITS)
                                   : gate_addr6(synth6, 0, NETWIRE_SYNTH6_BITS);
    struct netlink_addr all = {.family = family};
    /* An IPv6 address becomes local only when a worker of the kernel's comes to it, milliseconds
     * later where namespaces come and go. Who dials it before that (a published port) would ask the
     * link for its neighbour, and wait for seconds. */
    struct netlink_addr self = own;
    self.prefix_len = 128;
    if (!v4)
        netlink_route(nl, GATE_LO, RTN_LOCAL, &self, NULL);
    netlink_address(nl, GATE_LINK, &own);
    netlink_neighbour(nl, GATE_LINK, &via, gate_mac);
    /* what is not allowed goes to the gate too where that can see and refuse it; elsewhere the
     * guest has no way for it and nobody hears of it */
    netlink_route(nl, GATE_LINK, RTN_UNICAST, gate.refuses ? &all : &synth, &via);
    for (size_t i = 0; !gate.refuses && i < net->n_routes; i++) {
        struct netlink_addr to = gate_route_addr(&net->routes[i]);
        if (to.family != family)
            continue;
        netlink_route(nl, GATE_LINK, RTN_UNICAST, &to, &via);
        if (gate_flush_full(nl) < 0)
            return -1;
    }
    return netlink_flush(nl);
}

/* A link's end that came up before its peer drops what it is given until the kernel has had time to
 * look at it again: the guest's first question would be lost. Asking for its state makes it look.
 */
static void gate_settle(struct netlink *nl, const char *name)
{
    struct ethtool_value value = {.cmd = ETHTOOL_GLINK};
    struct ifreq ifr = {.ifr_data = (char *)&value};
    snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", name);
    (void)ioctl(nl->fd, SIOCETHTOOL, &ifr);
}

static int gate_link(void)
{
    static const struct netlink_end near = {"eth0", GATE_LINK, guest_mac};
    static const struct netlink_end far = {"gate", GATE_LINK, gate_mac};
    _cleanup_close_ int gate_ns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (gate_ns < 0 || unshare(CLONE_NEWNET) < 0 || netlink_open(&gate.guest_nl) < 0)
        return -1;
    netlink_up(&gate.guest_nl, GATE_LO);
    netlink_veth(&gate.guest_nl, &near, &far, gate_ns);
    if (netlink_flush(&gate.guest_nl) < 0)
        return -1;
    if (gate.has_v6) {
        netlink_no_own6(&gate.guest_nl, GATE_LINK);
        netlink_no_own6(&gate.gate_nl, GATE_LINK);
        int r = netlink_flush(&gate.guest_nl);
        gate.has_v6 = netlink_flush(&gate.gate_nl) == 0 && r == 0;
    }
    netlink_up(&gate.guest_nl, GATE_LINK);
    netlink_up(&gate.gate_nl, GATE_LINK);
    if (netlink_flush(&gate.guest_nl) < 0 || netlink_flush(&gate.gate_nl) < 0)
        return -1;
    gate_open_ports();
    gate_settle(&gate.guest_nl, near.name);
    gate_settle(&gate.gate_nl, far.name);
    return 0;
}

static int gate_make(const struct plan_net *net, const char **ret_what)
{
    *ret_what = "unshare";
    if (unshare(CLONE_NEWNET) < 0)
        return -1;
    *ret_what = "netlink";
    if (netlink_open(&gate.gate_nl) < 0)
        return -1;
    netlink_up(&gate.gate_nl, GATE_LO);
    if (netlink_flush(&gate.gate_nl) < 0)
        return -1;
    int probe = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    gate.has_v6 = probe >= 0;
    util_close(&probe);
    /* Sockets first: they belong to the namespace this process is in, and it moves on. */
    *ret_what = "redirection of every port (nft_tproxy)";
    if (net->any_port && gate_every_port() < 0)
        return -1;
    gate.refuses = net->any_port || gate_refuse_foreign() == 0;
    *ret_what = "listeners";
    if (gate_sockets(net) < 0)
        return -1;
    *ret_what = "packet socket";
    gate.seen_fd = gate_seen_socket();
    if (gate.seen_fd < 0)
        return -1;
    gate_no_icmp_limit();
    *ret_what = "link to the guest";
    if (gate_link() < 0)
        return -1;
    *ret_what = "sockets for published ports";
    if (gate_inner(net) < 0)
        return -1;
    *ret_what = "addresses and routes";
    if (gate_inside(net, AF_INET) < 0 || gate_guest_side(net, AF_INET) < 0)
        return -1;
    /* where the kernel has IPv6 switched off, names answer with IPv4 only */
    if (gate.has_v6 && (gate_inside(net, AF_INET6) < 0 || gate_guest_side(net, AF_INET6) < 0))
        gate.has_v6 = false;
    *ret_what = "broker";
    if (gate_seen_begin(gate.seen_fd, GATE_LINK) < 0 ||
        gate_hand_over(gate.seen_fd, NETWIRE_SEEN, 0, 0) < 0)
        return -1;
    return gate_send(true);
}

void native_gate_enter(struct native_child *c)
{
    const char *what = "";
    gate.broker_fd = c->broker_fd;
    gate.gate_nl.fd = gate.guest_nl.fd = -1;
    if (gate_make(c->plan->net, &what) < 0)
        native_child_fail(c, "network", errno, what);
    util_close(&gate.gate_nl.fd);
    util_close(&gate.guest_nl.fd);
}

int native_gate_make(void *child)
{
    struct native_child *c = child;
    native_gate_enter(c);
    int ns_fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (ns_fd < 0)
        native_child_fail(c, "network", errno, "namespace");
    c->status->net_ns_fd = ns_fd;
    return 0;
}
