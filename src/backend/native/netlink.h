/* Just enough rtnetlink for the guest's network: links, addresses, routes, neighbours.
 *
 * Messages gather in a buffer and go to the kernel in one call. Nothing is allocated: it runs in
 * the helper that shares pid 1's memory (netns.c). */
#ifndef NATIVE_NETLINK_H
#define NATIVE_NETLINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NETLINK_BATCH 16384

struct nlmsghdr;

struct netlink {
    int fd; /* of the namespace it was opened in, wherever its user goes afterwards */
    uint32_t seq;
    size_t len;
    int overflow; /* a message did not fit: the batch fails */
    struct nlmsghdr *last;
    char buf[NETLINK_BATCH] __attribute__((aligned(8)));
};

struct netlink_addr {
    int family;         /* AF_INET or AF_INET6 */
    uint8_t bytes[16];  /* network order; IPv4 in the first four */
    uint8_t prefix_len; /* of that family */
};

int netlink_open(struct netlink *nl);
/* Sends what was gathered and waits for the answers; 0, or -1 with errno of the first refusal. */
int netlink_flush(struct netlink *nl);

/* A pair: `name` with number `index` and address `mac` here, its peer in the namespace `peer_ns`.
 */
struct netlink_end {
    const char *name;
    unsigned index;
    const uint8_t *mac;
};
void netlink_veth(struct netlink *nl, const struct netlink_end *here,
                  const struct netlink_end *peer, int peer_ns);
/* The kernel makes up no IPv6 address when the link comes up; fails where it has no IPv6. */
void netlink_no_own6(struct netlink *nl, unsigned index);
void netlink_up(struct netlink *nl, unsigned index);
void netlink_address(struct netlink *nl, unsigned index, const struct netlink_addr *addr);
void netlink_neighbour(struct netlink *nl, unsigned index, const struct netlink_addr *addr,
                       const uint8_t mac[static 6]);
/* type RTN_*; gateway may be NULL. */
void netlink_route(struct netlink *nl, unsigned index, int type, const struct netlink_addr *to,
                   const struct netlink_addr *gateway);

#endif
