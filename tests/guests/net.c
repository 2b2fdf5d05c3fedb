/* N1, N11-N13, N17, K13-K15: sockets of every kind, and every way of sending without a connect().
 *
 * usage: net families             one line per address family, type and protocol
 *        net options              socket options and flags that reach into the kernel
 *        net reach HOST4 HOST6 PORT   tries to get a byte to an address, by every road
 *        net serve PORT MS        listens on the own loopback, talks to itself, keeps the port for
 * MS net interfaces           names of the interfaces */
#include "guest.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

static int sock(const char *key, int family, int type, int proto)
{
    int fd = socket(family, type | SOCK_CLOEXEC, proto);
    report(key, fd);
    return fd;
}

static void families(void)
{
    static const struct {
        const char *name;
        int family, type, proto;
    } kinds[] = {
        {"unix_stream", AF_UNIX, SOCK_STREAM, 0},
        {"unix_dgram", AF_UNIX, SOCK_DGRAM, 0},
        {"unix_seqpacket", AF_UNIX, SOCK_SEQPACKET, 0},
        {"inet_stream", AF_INET, SOCK_STREAM, 0},
        {"inet_dgram", AF_INET, SOCK_DGRAM, 0},
        {"inet6_stream", AF_INET6, SOCK_STREAM, 0},
        {"inet6_dgram", AF_INET6, SOCK_DGRAM, 0},
        {"inet_tcp", AF_INET, SOCK_STREAM, IPPROTO_TCP},
        {"inet_udp", AF_INET, SOCK_DGRAM, IPPROTO_UDP},
        {"inet_raw", AF_INET, SOCK_RAW, IPPROTO_ICMP},
        {"inet_ping", AF_INET, SOCK_DGRAM, IPPROTO_ICMP},
        {"inet6_raw", AF_INET6, SOCK_RAW, IPPROTO_ICMPV6},
        {"inet_mptcp", AF_INET, SOCK_STREAM, IPPROTO_MPTCP},
        {"inet_sctp", AF_INET, SOCK_STREAM, 132},
        {"inet_udplite", AF_INET, SOCK_DGRAM, 136},
        {"inet_l2tp", AF_INET, SOCK_DGRAM, 115},
        {"inet_dccp", AF_INET, 6, 33},
        {"inet_packet_type", AF_INET, 10, 0},
        {"netlink_route", AF_NETLINK, SOCK_RAW, 0},
        {"netlink_netfilter", AF_NETLINK, SOCK_RAW, 12},
        {"netlink_crypto", AF_NETLINK, SOCK_RAW, 21},
        {"netlink_audit", AF_NETLINK, SOCK_RAW, 9},
        {"packet", AF_PACKET, SOCK_RAW, 0x0300},
        {"alg", 38, SOCK_SEQPACKET, 0},
        {"vsock", 40, SOCK_STREAM, 0},
        {"vsock_dgram", 40, SOCK_DGRAM, 0},
        {"xdp", 44, SOCK_RAW, 0},
        {"can", 29, SOCK_RAW, 1},
        {"bluetooth", 31, SOCK_RAW, 1},
        {"tipc", 30, SOCK_SEQPACKET, 0},
        {"rds", 21, SOCK_SEQPACKET, 0},
        {"kcm", 41, SOCK_DGRAM, 0},
        {"qipcrtr", 42, SOCK_DGRAM, 0},
        {"smc", 43, SOCK_STREAM, 0},
        {"ax25", 3, SOCK_DGRAM, 0},
        {"key", 15, SOCK_RAW, 2},
        {"phonet", 35, SOCK_DGRAM, 0},
        {"family_200", 200, SOCK_STREAM, 0},
    };
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        int fd = sock(kinds[i].name, kinds[i].family, kinds[i].type, kinds[i].proto);
        if (fd >= 0)
            close(fd);
    }
    int pair[2];
    TRY("high_family", syscall(SYS_socket, 0x100000000UL | 40, SOCK_STREAM, 0));
    TRY("pair_unix", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    TRY("pair_tipc", socketpair(30, SOCK_SEQPACKET, 0, pair));
}

static void options(void)
{
    int tcp = sock("tcp", AF_INET, SOCK_STREAM, 0), udp = sock("udp", AF_INET, SOCK_DGRAM, 0),
        one = 1;
    TRY("nodelay", setsockopt(tcp, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)));
    TRY("reuseaddr", setsockopt(tcp, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)));
    TRY("ulp_tls", setsockopt(tcp, IPPROTO_TCP, 31, "tls", 4));
    TRY("ulp_espintcp", setsockopt(tcp, IPPROTO_TCP, 31, "espintcp", 9));
    TRY("ulp_high",
        syscall(SYS_setsockopt, tcp, 0x100000000UL | IPPROTO_TCP, 0x100000000UL | 31, "tls", 4));
    struct sock_filter insn = {BPF_RET | BPF_K, 0, 0, 0xffff};
    struct sock_fprog prog = {1, &insn};
    TRY("attach_bpf", setsockopt(tcp, SOL_SOCKET, 50, &one, sizeof(one)));
    TRY("attach_filter", setsockopt(udp, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog)));
    TRY("ipt_replace", setsockopt(udp, IPPROTO_IP, 64, &one, sizeof(one)));
    TRY("ip6t_replace", setsockopt(udp, IPPROTO_IPV6, 64, &one, sizeof(one)));
    TRY("bindtodevice", setsockopt(udp, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3));
    TRY("mark", setsockopt(udp, SOL_SOCKET, SO_MARK, &one, sizeof(one)));
    TRY("transparent", setsockopt(tcp, IPPROTO_IP, IP_TRANSPARENT, &one, sizeof(one)));
    TRY("rcvbufforce", setsockopt(tcp, SOL_SOCKET, SO_RCVBUFFORCE, &one, sizeof(one)));
    struct ip_mreq mreq = {.imr_multiaddr = {htonl(0xe0000001)}};
    TRY("add_membership", setsockopt(udp, IPPROTO_IP, IP_ADD_MEMBERSHIP, &mreq, sizeof(mreq)));
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0) {
        TRY("unix_plain", send(pair[0], "x", 1, MSG_NOSIGNAL));
        TRY("unix_oob", send(pair[0], "x", 1, MSG_OOB));
        struct iovec io = {(void *)(uintptr_t) "x", 1};
        struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
        TRY("unix_oob_msg", sendmsg(pair[0], &m, MSG_OOB));
        struct mmsghdr mm = {.msg_hdr = m};
        TRY("unix_oob_mmsg", sendmmsg(pair[0], &mm, 1, MSG_OOB));
        char c;
        TRY("unix_oob_recv", recv(pair[1], &c, 1, MSG_OOB | MSG_DONTWAIT));
    }
}

/* connect() that gives up after a second: a packet that silently leaves is worse than a refusal. */
static void connect_to(const char *key, int fd, const void *sa, socklen_t len)
{
    if (fd < 0)
        return;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    if (connect(fd, sa, len) == -1 && errno == EINPROGRESS) {
        struct pollfd p = {fd, POLLOUT, 0};
        int e = ETIMEDOUT;
        socklen_t n = sizeof(e);
        if (poll(&p, 1, 1000) == 1)
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &n);
        say(key, "%s", e ? errname(e) : "OK");
        return;
    }
    say(key, "%s", errno ? errname(errno) : "OK");
}

static void reach(const char *host4, const char *host6, int port)
{
    struct sockaddr_in a4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 a6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    inet_pton(AF_INET, host4, &a4.sin_addr);
    inet_pton(AF_INET6, host6, &a6.sin6_addr);
    errno = 0;
    connect_to("connect4", sock("socket4", AF_INET, SOCK_STREAM, 0), &a4, sizeof(a4));
    errno = 0;
    connect_to("connect6", sock("socket6", AF_INET6, SOCK_STREAM, 0), &a6, sizeof(a6));
    int udp = sock("socket_udp", AF_INET, SOCK_DGRAM, 0), one = 1;
    if (udp >= 0) {
        TRY("udp_sendto", sendto(udp, "x", 1, 0, (void *)&a4, sizeof(a4)));
        setsockopt(udp, SOL_SOCKET, SO_BROADCAST, &one, sizeof(one));
        struct sockaddr_in all = {
            .sin_family = AF_INET, .sin_port = htons(9), .sin_addr = {0xffffffff}};
        TRY("broadcast", sendto(udp, "x", 1, 0, (void *)&all, sizeof(all)));
        all.sin_addr.s_addr = htonl(0xe0000001);
        TRY("multicast", sendto(udp, "x", 1, 0, (void *)&all, sizeof(all)));
    }
    int fast = sock("socket_fast", AF_INET, SOCK_STREAM, 0);
    if (fast >= 0) {
        fcntl(fast, F_SETFL, O_NONBLOCK);
        TRY("fastopen_sendto",
            sendto(fast, "x", 1, MSG_FASTOPEN | MSG_NOSIGNAL, (void *)&a4, sizeof(a4)));
        close(fast);
    }
    fast = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fast >= 0) {
        struct iovec io = {(void *)(uintptr_t) "x", 1};
        struct msghdr m = {
            .msg_name = &a4, .msg_namelen = sizeof(a4), .msg_iov = &io, .msg_iovlen = 1};
        TRY("fastopen_sendmsg", sendmsg(fast, &m, MSG_FASTOPEN | MSG_NOSIGNAL));
        close(fast);
    }
    fast = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fast >= 0) {
        setsockopt(fast, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &one, sizeof(one));
        connect(fast, (void *)&a4, sizeof(a4));
        TRY("fastopen_connect", send(fast, "x", 1, MSG_NOSIGNAL));
        close(fast);
    }
}

static int serve(int port, long ms)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in lo = any;
    lo.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int s = sock("socket", AF_INET, SOCK_STREAM, 0);
    if (s < 0 || TRY("bind", bind(s, (void *)&any, sizeof(any))) < 0 ||
        TRY("listen", listen(s, 4)) < 0)
        return 3;
    int c = socket(AF_INET, SOCK_STREAM, 0);
    TRY("connect", connect(c, (void *)&lo, sizeof(lo)));
    int a = (int)TRY("accept", accept(s, NULL, NULL));
    char text[6] = {0};
    TRY("send", send(c, "hello", 5, MSG_NOSIGNAL));
    TRY("recv", recv(a, text, 5, 0));
    say("heard", "%s", text);
    sleep_ms(ms);
    return 0;
}

static void interfaces(void)
{
    struct if_nameindex *list = if_nameindex();
    if (!list) {
        say("interfaces", "%s", errname(errno));
        FILE *f = fopen("/proc/self/net/dev", "re");
        char line[256], name[64];
        while (f && fgets(line, sizeof(line), f))
            if (sscanf(line, " %63[^:]:", name) == 1 && strchr(line, ':'))
                say("interface", "%s", name);
        return;
    }
    for (struct if_nameindex *i = list; i->if_name; i++)
        say("interface", "%s", i->if_name);
}

int main(int argc, char **argv)
{
    const char *mode = arg(argc, argv, 1, "families");
    guest_deadline(30);
    if (!strcmp(mode, "options"))
        options();
    else if (!strcmp(mode, "reach"))
        reach(arg(argc, argv, 2, "192.0.2.1"), arg(argc, argv, 3, "2001:db8::1"),
              (int)argn(argc, argv, 4, 80));
    else if (!strcmp(mode, "serve"))
        return serve((int)argn(argc, argv, 2, 8080), argn(argc, argv, 3, 0));
    else if (!strcmp(mode, "interfaces"))
        interfaces();
    else
        families();
    return 0;
}
