/* rtnetlink messages, see the header. Runs in the helper beside pid 1: system calls only. */
#include "backend/native/netlink.h"

#include <errno.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ADDR_GEN_NONE 1 /* IN6_ADDR_GEN_MODE_NONE */

int netlink_open(struct netlink *nl)
{
    nl->seq = 0;
    nl->len = 0;
    nl->overflow = 0;
    nl->last = NULL;
    nl->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    return nl->fd < 0 ? -1 : 0;
}

/* Not inlined: gcc loses the bounds of the buffer there and warns. */
__attribute__((noinline)) static void *nl_space(struct netlink *nl, size_t len)
{
    size_t padded = NLMSG_ALIGN(len);
    if (nl->len + padded > sizeof(nl->buf)) {
        nl->overflow = 1;
        return NULL;
    }
    char *at = nl->buf + nl->len;
    memset(at, 0, padded);
    nl->len += padded;
    return at;
}

static void *nl_message(struct netlink *nl, uint16_t type, uint16_t flags, size_t body)
{
    struct nlmsghdr *h = nl_space(nl, NLMSG_LENGTH(body));
    if (!h)
        return NULL;
    *h = (struct nlmsghdr){.nlmsg_len = (uint32_t)NLMSG_LENGTH(body),
                           .nlmsg_type = type,
                           .nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags),
                           .nlmsg_seq = ++nl->seq};
    nl->last = h;
    return NLMSG_DATA(h);
}

static struct rtattr *nl_attr(struct netlink *nl, uint16_t type, const void *data, size_t len)
{
    char *at = nl_space(nl, RTA_LENGTH(len));
    struct rtattr head = {.rta_type = type, .rta_len = (uint16_t)RTA_LENGTH(len)};
    if (!at)
        return NULL;
    memcpy(at, &head, sizeof(head));
    if (len > 0 && data)
        memcpy(at + RTA_LENGTH(0), data, len);
    nl->last->nlmsg_len = (uint32_t)(nl->buf + nl->len - (char *)nl->last);
    return (struct rtattr *)at;
}

static void nl_end(struct netlink *nl, struct rtattr *nest)
{
    if (nest)
        nest->rta_len = (uint16_t)(nl->buf + nl->len - (char *)nest);
}

/* Only the last message asks for an answer; a refused one gets it unasked. */
int netlink_flush(struct netlink *nl)
{
    static char answer[8192] __attribute__((aligned(8)));
    if (nl->overflow) {
        errno = E2BIG;
        return -1;
    }
    if (nl->len == 0)
        return 0;
    uint32_t last = nl->last->nlmsg_seq;
    nl->last->nlmsg_flags |= NLM_F_ACK;
    ssize_t n = send(nl->fd, nl->buf, nl->len, 0);
    nl->len = 0;
    if (n < 0)
        return -1;
    int failed = 0;
    for (;;) {
        n = recv(nl->fd, answer, sizeof(answer), 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        struct nlmsghdr *h = (struct nlmsghdr *)answer;
        for (; NLMSG_OK(h, (size_t)n); h = NLMSG_NEXT(h, n)) {
            if (h->nlmsg_type != NLMSG_ERROR)
                continue;
            const struct nlmsgerr *e = NLMSG_DATA(h);
            if (e->error && !failed)
                failed = -e->error;
            if (h->nlmsg_seq == last) {
                errno = failed;
                return failed ? -1 : 0;
            }
        }
    }
}

static void nl_link_end(struct netlink *nl, const struct netlink_end *end)
{
    nl_attr(nl, IFLA_IFNAME, end->name, strlen(end->name) + 1);
    nl_attr(nl, IFLA_ADDRESS, end->mac, 6);
}

void netlink_veth(struct netlink *nl, const struct netlink_end *here,
                  const struct netlink_end *peer, int peer_ns)
{
    struct ifinfomsg *info =
        nl_message(nl, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, sizeof(struct ifinfomsg));
    if (!info)
        return;
    info->ifi_index = (int)here->index;
    nl_link_end(nl, here);
    struct rtattr *link = nl_attr(nl, IFLA_LINKINFO, NULL, 0);
    nl_attr(nl, IFLA_INFO_KIND, "veth", 5);
    struct rtattr *data = nl_attr(nl, IFLA_INFO_DATA, NULL, 0);
    struct ifinfomsg other = {.ifi_index = (int)peer->index};
    struct rtattr *far = nl_attr(nl, VETH_INFO_PEER, &other, sizeof(other));
    nl_link_end(nl, peer);
    nl_attr(nl, IFLA_NET_NS_FD, &peer_ns, sizeof(peer_ns));
    nl_end(nl, far);
    nl_end(nl, data);
    nl_end(nl, link);
}

void netlink_no_own6(struct netlink *nl, unsigned index)
{
    struct ifinfomsg *info = nl_message(nl, RTM_NEWLINK, 0, sizeof(*info));
    if (!info)
        return;
    info->ifi_index = (int)index;
    struct rtattr *spec = nl_attr(nl, IFLA_AF_SPEC, NULL, 0);
    struct rtattr *inet6 = nl_attr(nl, AF_INET6, NULL, 0);
    uint8_t mode = ADDR_GEN_NONE;
    nl_attr(nl, IFLA_INET6_ADDR_GEN_MODE, &mode, 1);
    nl_end(nl, inet6);
    nl_end(nl, spec);
}

void netlink_up(struct netlink *nl, unsigned index)
{
    struct ifinfomsg *info = nl_message(nl, RTM_NEWLINK, 0, sizeof(*info));
    if (!info)
        return;
    info->ifi_index = (int)index;
    info->ifi_flags = IFF_UP;
    info->ifi_change = IFF_UP;
}

static size_t nl_size(int family)
{
    return family == AF_INET6 ? 16 : 4;
}

void netlink_address(struct netlink *nl, unsigned index, const struct netlink_addr *addr)
{
    struct ifaddrmsg *m =
        nl_message(nl, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, sizeof(struct ifaddrmsg));
    if (!m)
        return;
    m->ifa_family = (uint8_t)addr->family;
    m->ifa_prefixlen = addr->prefix_len;
    m->ifa_index = index;
    if (addr->family == AF_INET6)
        m->ifa_flags = IFA_F_NODAD; /* usable at once: nobody else is there */
    nl_attr(nl, IFA_LOCAL, addr->bytes, nl_size(addr->family));
    nl_attr(nl, IFA_ADDRESS, addr->bytes, nl_size(addr->family));
}

void netlink_neighbour(struct netlink *nl, unsigned index, const struct netlink_addr *addr,
                       const uint8_t mac[static 6])
{
    struct ndmsg *m =
        nl_message(nl, RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, sizeof(struct ndmsg));
    if (!m)
        return;
    m->ndm_family = (uint8_t)addr->family;
    m->ndm_ifindex = (int)index;
    m->ndm_state = NUD_PERMANENT;
    nl_attr(nl, NDA_DST, addr->bytes, nl_size(addr->family));
    nl_attr(nl, NDA_LLADDR, mac, 6);
}

void netlink_route(struct netlink *nl, unsigned index, int type, const struct netlink_addr *to,
                   const struct netlink_addr *gateway)
{
    struct rtmsg *m = nl_message(nl, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, sizeof(*m));
    if (!m)
        return;
    m->rtm_family = (uint8_t)to->family;
    m->rtm_dst_len = to->prefix_len;
    /* "Everything is local" comes after the routes to the link, not before them. */
    bool first = type == RTN_LOCAL && to->prefix_len > 0;
    m->rtm_table = first ? RT_TABLE_LOCAL : RT_TABLE_MAIN;
    m->rtm_protocol = RTPROT_BOOT;
    m->rtm_scope = type == RTN_LOCAL ? RT_SCOPE_HOST : RT_SCOPE_UNIVERSE;
    m->rtm_type = (uint8_t)type;
    if (to->prefix_len > 0)
        nl_attr(nl, RTA_DST, to->bytes, nl_size(to->family));
    if (gateway)
        nl_attr(nl, RTA_GATEWAY, gateway->bytes, nl_size(gateway->family));
    if (index)
        nl_attr(nl, RTA_OIF, &index, sizeof(index));
}
