/* Refusals of the packet rules: the kernel hands the head of each refused packet to a socket that
 * was bound while pid 1 still had the right to (nfnetlink_log); reading it takes none. Runs in a
 * container's pid 1, and in a command's own where a container is kept, which inherits the socket:
 * commands come one at a time.
 *
 * A guest that floods loses entries of its own list; they are never more than a few kilobytes. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/nft.h"
#include "base/util.h"
#include "init/init_internal.h"

#define DENIED_BYTES 64 /* of a packet: the longest head that is looked at, with its ports */
#define DENIED_V4_HEAD 20
#define DENIED_V6_HEAD 40
#define DENIED_LAP 4096 /* messages read before somebody else has a turn */

static int denied_fd = -1;

struct denied_config {
    struct nlmsghdr head;
    struct nfgenmsg group;
    struct nlattr command_head;
    struct nfulnl_msg_config_cmd command;
    uint8_t pad1[3];
    struct nlattr mode_head;
    struct nfulnl_msg_config_mode mode;
    uint8_t pad2[2];
    struct nlattr each_head;
    uint32_t each; /* told at once, not in lots */
};

/* Every attribute begins at a multiple of four. */
_Static_assert(sizeof(struct denied_config) ==
                   sizeof(struct nlmsghdr) + sizeof(struct nfgenmsg) + 8 + 12 + 8,
               "attributes are padded");

bool denied_listen(void)
{
    struct denied_config c = {
        .head = {.nlmsg_len = sizeof(c),
                 .nlmsg_type = NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_CONFIG,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK,
                 .nlmsg_seq = 1},
        .group = {.nfgen_family = AF_UNSPEC, .res_id = htons(INIT_DENIED_GROUP)},
        .command_head = {NLA_HDRLEN + sizeof(c.command), NFULA_CFG_CMD},
        .command = {NFULNL_CFG_CMD_BIND},
        .mode_head = {NLA_HDRLEN + sizeof(c.mode), NFULA_CFG_MODE},
        .mode = {.copy_range = htonl(DENIED_BYTES), .copy_mode = NFULNL_COPY_PACKET},
        .each_head = {NLA_HDRLEN + sizeof(c.each), NFULA_CFG_QTHRESH},
        .each = htonl(1),
    };
    denied_fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
    if (denied_fd >= 0 && send(denied_fd, &c, sizeof(c), 0) == (ssize_t)sizeof(c) &&
        nft_answers(denied_fd, c.head.nlmsg_seq) == 0)
        return true;
    util_close(&denied_fd);
    return false;
}

bool denied_is_heard(void)
{
    return denied_fd >= 0;
}

void denied_deafen(void)
{
    util_close(&denied_fd);
}

static void denied_count(struct init_report *r, const struct init_refused *to)
{
    for (uint32_t i = 0; i < r->n_refused; i++) {
        struct init_refused *old = &r->refused[i];
        if (old->is_v4 == to->is_v4 && old->port == to->port &&
            memcmp(old->addr, to->addr, sizeof(to->addr)) == 0) {
            old->count++;
            return;
        }
    }
    if (r->n_refused < INIT_REFUSED)
        r->refused[r->n_refused++] = *to;
    else
        r->refused_more++;
}

/* Where a packet was to go; a port only where one is. */
static void denied_packet(struct init_report *r, const uint8_t *p, size_t len)
{
    struct init_refused to = {.count = 1};
    size_t head = DENIED_V6_HEAD;
    uint8_t protocol;
    if (len < DENIED_V4_HEAD)
        return;
    to.is_v4 = p[0] >> 4 == 4;
    if (to.is_v4) {
        head = (p[0] & 0x0fu) * 4u;
        protocol = p[9];
        memcpy(to.addr, p + 16, 4);
    } else if (p[0] >> 4 == 6 && len >= DENIED_V6_HEAD) {
        protocol = p[6];
        memcpy(to.addr, p + 24, 16);
    } else {
        return;
    }
    if ((protocol == IPPROTO_TCP || protocol == IPPROTO_UDP) && len >= head + 4)
        to.port = (uint16_t)(p[head + 2] << 8 | p[head + 3]);
    denied_count(r, &to);
}

static void denied_message(struct init_report *r, const struct nlmsghdr *h)
{
    if (h->nlmsg_type != (NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_PACKET))
        return;
    const char *at = (const char *)NLMSG_DATA(h) + NLMSG_ALIGN(sizeof(struct nfgenmsg));
    const char *end = (const char *)h + h->nlmsg_len;
    while (end - at >= (ptrdiff_t)sizeof(struct nlattr)) {
        struct nlattr a;
        memcpy(&a, at, sizeof(a));
        if (a.nla_len < sizeof(a) || a.nla_len > end - at)
            return;
        if ((a.nla_type & NLA_TYPE_MASK) == NFULA_PAYLOAD)
            denied_packet(r, (const uint8_t *)at + sizeof(a), a.nla_len - sizeof(a));
        at += NLA_ALIGN(a.nla_len);
    }
}

void denied_read(struct init_report *r)
{
    char text[4096] __attribute__((aligned(8)));
    for (int i = 0; denied_fd >= 0 && i < DENIED_LAP; i++) {
        ssize_t n = recv(denied_fd, text, sizeof(text), MSG_DONTWAIT);
        if (n < 0 && (errno == ENOBUFS || errno == EINTR))
            continue; /* some were lost */
        if (n <= 0)
            return;
        for (const struct nlmsghdr *h = (const struct nlmsghdr *)text; NLMSG_OK(h, (size_t)n);
             h = NLMSG_NEXT(h, n))
            denied_message(r, h);
    }
}

void denied_forget(void)
{
    struct init_report drop = {0};
    denied_read(&drop);
}
