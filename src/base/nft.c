/* nftables messages, see the header. */
#include "base/nft.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/util.h"

#define NFT_PIECE_MAX 256 /* of one attribute or head; all below are smaller */
#define NFT_TYPE(message) (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | (message))

static void *nft_space(struct nft *n, size_t len)
{
    size_t padded = NLMSG_ALIGN(len);
    if (n->len + padded > n->size) {
        n->overflow = true;
        n->len = 0; /* room for what is written from now on and never sent */
    }
    char *at = n->buf + n->len;
    memset(at, 0, padded);
    n->len += padded;
    return at;
}

static void nft_message(struct nft *n, uint16_t type, uint16_t flags, uint8_t family,
                        uint16_t res_id)
{
    struct nlmsghdr *h = nft_space(n, NLMSG_LENGTH(sizeof(struct nfgenmsg)));
    struct nfgenmsg *g = NLMSG_DATA(h);
    *h = (struct nlmsghdr){.nlmsg_len = NLMSG_LENGTH(sizeof(*g)),
                           .nlmsg_type = type,
                           .nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags),
                           .nlmsg_seq = ++n->seq};
    *g = (struct nfgenmsg){.nfgen_family = family, .res_id = htons(res_id)};
    n->last = h;
}

static struct nlattr *nft_attr(struct nft *n, uint16_t type, const void *data, size_t len)
{
    struct nlattr *a = nft_space(n, NLA_HDRLEN + len);
    a->nla_type = type;
    a->nla_len = (uint16_t)(NLA_HDRLEN + len);
    if (len > 0 && data)
        memcpy((char *)a + NLA_HDRLEN, data, len);
    if (!n->overflow)
        n->last->nlmsg_len = (uint32_t)(n->buf + n->len - (char *)n->last);
    return a;
}

static void nft_text(struct nft *n, uint16_t type, const char *text)
{
    nft_attr(n, type, text, strlen(text) + 1);
}

static void nft_u32(struct nft *n, uint16_t type, uint32_t value)
{
    uint32_t net = htonl(value);
    nft_attr(n, type, &net, sizeof(net));
}

static struct nlattr *nft_nest(struct nft *n, uint16_t type)
{
    return nft_attr(n, type | NLA_F_NESTED, NULL, 0);
}

static void nft_nest_end(struct nft *n, struct nlattr *nest)
{
    if (!n->overflow)
        nest->nla_len = (uint16_t)(n->buf + n->len - (char *)nest);
}

static void nft_data(struct nft *n, uint16_t type, const void *data, size_t len)
{
    struct nlattr *nest = nft_nest(n, type);
    nft_attr(n, NFTA_DATA_VALUE, data, len);
    nft_nest_end(n, nest);
}

struct nft_expr {
    struct nlattr *element, *data;
};

static struct nft_expr nft_expr_begin(struct nft *n, const char *name)
{
    struct nft_expr e = {.element = nft_nest(n, NFTA_LIST_ELEM)};
    nft_text(n, NFTA_EXPR_NAME, name);
    e.data = nft_nest(n, NFTA_EXPR_DATA);
    return e;
}

static void nft_expr_end(struct nft *n, struct nft_expr e)
{
    nft_nest_end(n, e.data);
    nft_nest_end(n, e.element);
}

void nft_load_meta(struct nft *n, uint32_t key)
{
    struct nft_expr e = nft_expr_begin(n, "meta");
    nft_u32(n, NFTA_META_KEY, key);
    nft_u32(n, NFTA_META_DREG, NFT_REG_1);
    nft_expr_end(n, e);
}

void nft_load_payload(struct nft *n, uint32_t base, uint32_t offset, uint32_t len)
{
    struct nft_expr e = nft_expr_begin(n, "payload");
    nft_u32(n, NFTA_PAYLOAD_DREG, NFT_REG_1);
    nft_u32(n, NFTA_PAYLOAD_BASE, base);
    nft_u32(n, NFTA_PAYLOAD_OFFSET, offset);
    nft_u32(n, NFTA_PAYLOAD_LEN, len);
    nft_expr_end(n, e);
}

void nft_mask(struct nft *n, const void *mask, size_t len)
{
    static const uint8_t none[16];
    struct nft_expr e = nft_expr_begin(n, "bitwise");
    nft_u32(n, NFTA_BITWISE_SREG, NFT_REG_1);
    nft_u32(n, NFTA_BITWISE_DREG, NFT_REG_1);
    nft_u32(n, NFTA_BITWISE_LEN, (uint32_t)len);
    nft_data(n, NFTA_BITWISE_MASK, mask, len);
    nft_data(n, NFTA_BITWISE_XOR, none, len);
    nft_expr_end(n, e);
}

void nft_compare(struct nft *n, uint32_t op, const void *data, size_t len)
{
    struct nft_expr e = nft_expr_begin(n, "cmp");
    nft_u32(n, NFTA_CMP_SREG, NFT_REG_1);
    nft_u32(n, NFTA_CMP_OP, op);
    nft_data(n, NFTA_CMP_DATA, data, len);
    nft_expr_end(n, e);
}

void nft_is_protocol(struct nft *n, uint8_t protocol)
{
    nft_load_meta(n, NFT_META_L4PROTO);
    nft_compare(n, NFT_CMP_EQ, &protocol, sizeof(protocol));
}

void nft_has_extension(struct nft *n, uint8_t kind)
{
    const uint8_t yes = 1;
    struct nft_expr e = nft_expr_begin(n, "exthdr");
    nft_u32(n, NFTA_EXTHDR_DREG, NFT_REG_1);
    nft_attr(n, NFTA_EXTHDR_TYPE, &kind, sizeof(kind));
    nft_u32(n, NFTA_EXTHDR_OFFSET, 0);
    nft_u32(n, NFTA_EXTHDR_LEN, sizeof(yes));
    nft_u32(n, NFTA_EXTHDR_FLAGS, NFT_EXTHDR_F_PRESENT);
    nft_u32(n, NFTA_EXTHDR_OP, NFT_EXTHDR_OP_IPV6);
    nft_expr_end(n, e);
    nft_compare(n, NFT_CMP_EQ, &yes, sizeof(yes));
}

void nft_log(struct nft *n, uint16_t group)
{
    uint16_t net_group = htons(group);
    struct nft_expr e = nft_expr_begin(n, "log");
    nft_attr(n, NFTA_LOG_GROUP, &net_group, sizeof(net_group));
    nft_expr_end(n, e);
}

void nft_is_foreign(struct nft *n)
{
    const uint32_t local = RTN_LOCAL;
    struct nft_expr e = nft_expr_begin(n, "fib");
    nft_u32(n, NFTA_FIB_DREG, NFT_REG_1);
    nft_u32(n, NFTA_FIB_RESULT, NFT_FIB_RESULT_ADDRTYPE);
    nft_u32(n, NFTA_FIB_FLAGS, NFTA_FIB_F_DADDR);
    nft_expr_end(n, e);
    nft_compare(n, NFT_CMP_NEQ, &local, sizeof(local));
}

void nft_accept(struct nft *n)
{
    struct nft_expr e = nft_expr_begin(n, "immediate");
    nft_u32(n, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
    struct nlattr *data = nft_nest(n, NFTA_IMMEDIATE_DATA);
    struct nlattr *verdict = nft_nest(n, NFTA_DATA_VERDICT);
    nft_u32(n, NFTA_VERDICT_CODE, NF_ACCEPT);
    nft_nest_end(n, verdict);
    nft_nest_end(n, data);
    nft_expr_end(n, e);
}

void nft_reject(struct nft *n, uint32_t type)
{
    const uint8_t code = NFT_REJECT_ICMPX_NO_ROUTE;
    struct nft_expr e = nft_expr_begin(n, "reject");
    nft_u32(n, NFTA_REJECT_TYPE, type);
    nft_attr(n, NFTA_REJECT_ICMP_CODE, &code, sizeof(code));
    nft_expr_end(n, e);
}

void nft_redirect(struct nft *n, uint16_t port)
{
    uint16_t net_port = htons(port);
    struct nft_expr e = nft_expr_begin(n, "immediate");
    nft_u32(n, NFTA_IMMEDIATE_DREG, NFT_REG_1);
    nft_data(n, NFTA_IMMEDIATE_DATA, &net_port, sizeof(net_port));
    nft_expr_end(n, e);
    e = nft_expr_begin(n, "tproxy");
    nft_u32(n, NFTA_TPROXY_FAMILY, NFPROTO_UNSPEC);
    nft_u32(n, NFTA_TPROXY_REG_PORT, NFT_REG_1);
    nft_expr_end(n, e);
}

struct nlattr *nft_rule(struct nft *n)
{
    nft_message(n, NFT_TYPE(NFT_MSG_NEWRULE), NLM_F_CREATE | NLM_F_APPEND | NLM_F_ACK, NFPROTO_INET,
                0);
    nft_text(n, NFTA_RULE_TABLE, n->table);
    nft_text(n, NFTA_RULE_CHAIN, n->chain);
    return nft_nest(n, NFTA_RULE_EXPRESSIONS);
}

void nft_rule_end(struct nft *n, struct nlattr *rule)
{
    nft_nest_end(n, rule);
}

void nft_begin(struct nft *n, uint32_t hook, int32_t priority)
{
    n->len = 0;
    n->seq = 0;
    n->overflow = n->size < NFT_PIECE_MAX;
    nft_message(n, NFNL_MSG_BATCH_BEGIN, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
    nft_message(n, NFT_TYPE(NFT_MSG_NEWTABLE), NLM_F_CREATE, NFPROTO_INET, 0);
    nft_text(n, NFTA_TABLE_NAME, n->table);
    nft_message(n, NFT_TYPE(NFT_MSG_NEWCHAIN), NLM_F_CREATE, NFPROTO_INET, 0);
    nft_text(n, NFTA_CHAIN_TABLE, n->table);
    nft_text(n, NFTA_CHAIN_NAME, n->chain);
    struct nlattr *at = nft_nest(n, NFTA_CHAIN_HOOK);
    nft_u32(n, NFTA_HOOK_HOOKNUM, hook);
    nft_u32(n, NFTA_HOOK_PRIORITY, (uint32_t)priority);
    nft_nest_end(n, at);
    nft_text(n, NFTA_CHAIN_TYPE, "filter");
}

int nft_answers(int fd, uint32_t last)
{
    for (;;) {
        char answer[4096] __attribute__((aligned(8)));
        ssize_t n = recv(fd, answer, sizeof(answer), 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        struct nlmsghdr *h = (struct nlmsghdr *)answer;
        for (; NLMSG_OK(h, (size_t)n); h = NLMSG_NEXT(h, n)) {
            if (h->nlmsg_type != NLMSG_ERROR)
                continue;
            const struct nlmsgerr *e = NLMSG_DATA(h);
            if (e->error) {
                errno = -e->error;
                return -1;
            }
            if (h->nlmsg_seq == last)
                return 0;
        }
    }
}

int nft_commit(struct nft *n)
{
    uint32_t last = n->seq;
    nft_message(n, NFNL_MSG_BATCH_END, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
    if (n->overflow) {
        errno = E2BIG;
        return -1;
    }
    _cleanup_close_ int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
    if (fd < 0 || send(fd, n->buf, n->len, 0) < 0)
        return -1;
    return nft_answers(fd, last);
}
