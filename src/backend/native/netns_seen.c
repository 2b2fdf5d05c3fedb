/* The watch for what the guest tries, whoever takes it. Runs where the gate is made (netns_gate.c),
 * in its namespace. */
#include "backend/native/netns_gate.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/util.h"

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif

#define LOAD(size, at) BPF_STMT(BPF_LD | BPF_##size | BPF_ABS, (at))
#define LOAD_X(size, at) BPF_STMT(BPF_LD | BPF_##size | BPF_IND, (at))
#define IS(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), (yes), (no))
#define AND(mask) BPF_STMT(BPF_ALU | BPF_AND | BPF_K, (mask))
#define TAKE 256 /* bytes of a packet: its headers */

/* First packets of TCP connections, and datagrams. The rest of the traffic never leaves the
 * kernel, but for what has further headers of IPv6's (in pieces, with a route of its own): those
 * are rare, and walking them is the broker's. */
static struct sock_filter seen_filter[] = {
    LOAD(B, 0),
    AND(0xf0),
    IS(0x40, 0, 7), /* IPv4 */
    LOAD(B, 9),
    IS(17, 17, 0),
    IS(6, 0, 15),
    BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 0),
    LOAD_X(B, 13),
    AND(0x12),
    IS(0x02, 12, 11), /* SYN without ACK */
    IS(0x60, 0, 10),  /* IPv6; the accumulator still has the version */
    LOAD(B, 6),
    IS(17, 9, 0),
    IS(44, 8, 0), /* fragment */
    IS(43, 7, 0), /* routing */
    IS(60, 6, 0), /* destination options */
    IS(0, 5, 0),  /* hop by hop */
    IS(6, 0, 3),
    LOAD(B, 53),
    AND(0x12),
    IS(0x02, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, 0),
    BPF_STMT(BPF_RET | BPF_K, TAKE),
};

int gate_seen_socket(void)
{
    struct sock_fprog filter = {.len = ARRAY_SIZE(seen_filter), .filter = seen_filter};
    int on = 1;
    /* protocol 0: nothing arrives before the filter is on */
    _cleanup_close_ int fd = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_LOCK_FILTER, &on, sizeof(on)) < 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on)) < 0)
        return -1;
    return TAKE_FD(fd);
}

int gate_seen_begin(int fd, unsigned link_index)
{
    struct sockaddr_ll link = {
        .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = (int)link_index};
    return bind(fd, (struct sockaddr *)&link, sizeof(link));
}

static void seen_write(const char *path, const char *text)
{
    _cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0)
        (void)!write(fd, text, strlen(text));
}

/* The guest's servers may use every port, also those that the host keeps for root. */
void gate_open_ports(void)
{
    seen_write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
}

/* A refusal must be told each time, or the guest waits for a time-out. Where this cannot be set it
 * is only slower. */
void gate_no_icmp_limit(void)
{
    seen_write("/proc/sys/net/ipv4/icmp_ratelimit", "0");
    seen_write("/proc/sys/net/ipv6/icmp/ratelimit", "0");
}
