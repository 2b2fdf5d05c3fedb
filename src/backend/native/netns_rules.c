/* Packet rules of the gate (nftables): a refusal that is told at once, or every port redirected.
 *
 * Runs in the helper beside pid 1, in the gate's namespace; one batch, which the kernel takes whole
 * or not at all. */
#include "backend/native/netns_gate.h"

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

struct rules_batch {
    size_t len;
    uint32_t seq;
    struct nlmsghdr *last;
    char buf[4096] __attribute__((aligned(8)));
};

static void *rules_space(struct rules_batch *b, size_t len)
{
    char *at = b->buf + b->len;
    b->len += NLMSG_ALIGN(len); /* the messages below have a fixed size, far below the buffer's */
    return at;
}

static void rules_message(struct rules_batch *b, uint16_t type, uint16_t flags, uint8_t family,
                          uint16_t res_id)
{
    struct nlmsghdr *h = rules_space(b, NLMSG_LENGTH(sizeof(struct nfgenmsg)));
    struct nfgenmsg *g = NLMSG_DATA(h);
    *h = (struct nlmsghdr){.nlmsg_len = NLMSG_LENGTH(sizeof(*g)),
                           .nlmsg_type = type,
                           .nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags),
                           .nlmsg_seq = ++b->seq};
    *g = (struct nfgenmsg){.nfgen_family = family, .res_id = htons(res_id)};
    b->last = h;
}

static struct nlattr *rules_attr(struct rules_batch *b, uint16_t type, const void *data, size_t len)
{
    struct nlattr *a = rules_space(b, NLA_HDRLEN + len);
    memset(a, 0, NLMSG_ALIGN(NLA_HDRLEN + len));
    a->nla_type = type;
    a->nla_len = (uint16_t)(NLA_HDRLEN + len);
    if (len > 0 && data)
        memcpy((char *)a + NLA_HDRLEN, data, len);
    b->last->nlmsg_len = (uint32_t)(b->buf + b->len - (char *)b->last);
    return a;
}

static void rules_text(struct rules_batch *b, uint16_t type, const char *text)
{
    rules_attr(b, type, text, strlen(text) + 1);
}

static void rules_u32(struct rules_batch *b, uint16_t type, uint32_t value)
{
    uint32_t net = htonl(value);
    rules_attr(b, type, &net, sizeof(net));
}

static struct nlattr *rules_nest(struct rules_batch *b, uint16_t type)
{
    return rules_attr(b, type | NLA_F_NESTED, NULL, 0);
}

static void rules_end(struct rules_batch *b, struct nlattr *nest)
{
    nest->nla_len = (uint16_t)(b->buf + b->len - (char *)nest);
}

static void rules_data(struct rules_batch *b, uint16_t type, const void *data, size_t len)
{
    struct nlattr *nest = rules_nest(b, type);
    rules_attr(b, NFTA_DATA_VALUE, data, len);
    rules_end(b, nest);
}

struct rules_expr {
    struct nlattr *element, *data;
};

static struct rules_expr rules_expr_begin(struct rules_batch *b, const char *name)
{
    struct rules_expr e = {.element = rules_nest(b, NFTA_LIST_ELEM)};
    rules_text(b, NFTA_EXPR_NAME, name);
    e.data = rules_nest(b, NFTA_EXPR_DATA);
    return e;
}

static void rules_expr_end(struct rules_batch *b, struct rules_expr e)
{
    rules_end(b, e.data);
    rules_end(b, e.element);
}

static void rules_load_meta(struct rules_batch *b, uint32_t key)
{
    struct rules_expr e = rules_expr_begin(b, "meta");
    rules_u32(b, NFTA_META_KEY, key);
    rules_u32(b, NFTA_META_DREG, NFT_REG_1);
    rules_expr_end(b, e);
}

static void rules_compare(struct rules_batch *b, uint32_t op, const void *data, size_t len)
{
    struct rules_expr e = rules_expr_begin(b, "cmp");
    rules_u32(b, NFTA_CMP_SREG, NFT_REG_1);
    rules_u32(b, NFTA_CMP_OP, op);
    rules_data(b, NFTA_CMP_DATA, data, len);
    rules_expr_end(b, e);
}

static void rules_is_tcp(struct rules_batch *b)
{
    const uint8_t tcp = IPPROTO_TCP;
    rules_load_meta(b, NFT_META_L4PROTO);
    rules_compare(b, NFT_CMP_EQ, &tcp, sizeof(tcp));
}

/* The first packet of a connection. */
static void rules_is_syn(struct rules_batch *b)
{
    const uint8_t mask = 0x12, none = 0, syn = 0x02;
    struct rules_expr e = rules_expr_begin(b, "payload");
    rules_u32(b, NFTA_PAYLOAD_DREG, NFT_REG_1);
    rules_u32(b, NFTA_PAYLOAD_BASE, NFT_PAYLOAD_TRANSPORT_HEADER);
    rules_u32(b, NFTA_PAYLOAD_OFFSET, 13);
    rules_u32(b, NFTA_PAYLOAD_LEN, 1);
    rules_expr_end(b, e);
    e = rules_expr_begin(b, "bitwise");
    rules_u32(b, NFTA_BITWISE_SREG, NFT_REG_1);
    rules_u32(b, NFTA_BITWISE_DREG, NFT_REG_1);
    rules_u32(b, NFTA_BITWISE_LEN, 1);
    rules_data(b, NFTA_BITWISE_MASK, &mask, sizeof(mask));
    rules_data(b, NFTA_BITWISE_XOR, &none, sizeof(none));
    rules_expr_end(b, e);
    rules_compare(b, NFT_CMP_EQ, &syn, sizeof(syn));
}

/* Its destination is none of the addresses that are ours. */
static void rules_is_foreign(struct rules_batch *b)
{
    const uint32_t local = RTN_LOCAL;
    struct rules_expr e = rules_expr_begin(b, "fib");
    rules_u32(b, NFTA_FIB_DREG, NFT_REG_1);
    rules_u32(b, NFTA_FIB_RESULT, NFT_FIB_RESULT_ADDRTYPE);
    rules_u32(b, NFTA_FIB_FLAGS, NFTA_FIB_F_DADDR);
    rules_expr_end(b, e);
    rules_compare(b, NFT_CMP_NEQ, &local, sizeof(local));
}

static void rules_reject(struct rules_batch *b, uint32_t type)
{
    const uint8_t code = NFT_REJECT_ICMPX_NO_ROUTE;
    struct rules_expr e = rules_expr_begin(b, "reject");
    rules_u32(b, NFTA_REJECT_TYPE, type);
    rules_attr(b, NFTA_REJECT_ICMP_CODE, &code, sizeof(code));
    rules_expr_end(b, e);
}

static void rules_redirect(struct rules_batch *b, uint16_t port)
{
    uint16_t net_port = htons(port);
    struct rules_expr e = rules_expr_begin(b, "immediate");
    rules_u32(b, NFTA_IMMEDIATE_DREG, NFT_REG_1);
    rules_data(b, NFTA_IMMEDIATE_DATA, &net_port, sizeof(net_port));
    rules_expr_end(b, e);
    e = rules_expr_begin(b, "tproxy");
    rules_u32(b, NFTA_TPROXY_FAMILY, NFPROTO_UNSPEC);
    rules_u32(b, NFTA_TPROXY_REG_PORT, NFT_REG_1);
    rules_expr_end(b, e);
}

static void rules_chain(struct rules_batch *b)
{
    rules_text(b, NFTA_CHAIN_TABLE, "gate");
    rules_text(b, NFTA_CHAIN_NAME, "all");
    struct nlattr *hook = rules_nest(b, NFTA_CHAIN_HOOK);
    rules_u32(b, NFTA_HOOK_HOOKNUM, NF_INET_PRE_ROUTING);
    rules_u32(b, NFTA_HOOK_PRIORITY, (uint32_t)-150); /* that of "mangle" */
    rules_end(b, hook);
    rules_text(b, NFTA_CHAIN_TYPE, "filter");
}

/* The answers of all messages; the kernel takes all of a batch or nothing. */
static int rules_answers(int fd, uint32_t last)
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

#define TYPE(message) (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | (message))

static struct nlattr *rules_rule(struct rules_batch *b)
{
    rules_message(b, TYPE(NFT_MSG_NEWRULE), NLM_F_CREATE | NLM_F_APPEND | NLM_F_ACK, NFPROTO_INET,
                  0);
    rules_text(b, NFTA_RULE_TABLE, "gate");
    rules_text(b, NFTA_RULE_CHAIN, "all");
    return rules_nest(b, NFTA_RULE_EXPRESSIONS);
}

static void rules_begin(struct rules_batch *b)
{
    rules_message(b, NFNL_MSG_BATCH_BEGIN, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
    rules_message(b, TYPE(NFT_MSG_NEWTABLE), NLM_F_CREATE, NFPROTO_INET, 0);
    rules_text(b, NFTA_TABLE_NAME, "gate");
    rules_message(b, TYPE(NFT_MSG_NEWCHAIN), NLM_F_CREATE, NFPROTO_INET, 0);
    rules_chain(b);
}

static int rules_commit(struct rules_batch *b)
{
    uint32_t last = b->seq;
    rules_message(b, NFNL_MSG_BATCH_END, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
    _cleanup_close_ int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
    if (fd < 0 || send(fd, b->buf, b->len, 0) < 0)
        return -1;
    return rules_answers(fd, last);
}

int gate_redirect_all(uint16_t port)
{
    static struct rules_batch b;
    rules_begin(&b);
    struct nlattr *rule = rules_rule(&b);
    rules_is_tcp(&b);
    rules_redirect(&b, port);
    rules_end(&b, rule);
    return rules_commit(&b);
}

int gate_refuse_foreign(void)
{
    static struct rules_batch b;
    rules_begin(&b);
    struct nlattr *rule = rules_rule(&b);
    rules_is_tcp(&b);
    rules_is_syn(&b);
    rules_is_foreign(&b);
    rules_reject(&b, NFT_REJECT_TCP_RST);
    rules_end(&b, rule);
    rule = rules_rule(&b);
    rules_is_foreign(&b);
    rules_reject(&b, NFT_REJECT_ICMPX_UNREACH);
    rules_end(&b, rule);
    return rules_commit(&b);
}
