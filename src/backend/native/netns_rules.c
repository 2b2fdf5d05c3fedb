/* Packet rules of the gate: a refusal that is told at once, or every port redirected.
 *
 * Runs where the gate is made (netns_gate.c), in its namespace. */
#include "backend/native/netns_gate.h"

#include <netinet/in.h> /* before the kernel's, which gives way to it */

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include "base/nft.h"

#define RULES_PRIORITY (-150) /* that of "mangle" */

static char rules_buf[4096] __attribute__((aligned(8)));

static struct nft rules_begin(void)
{
    struct nft n = {.buf = rules_buf, .size = sizeof(rules_buf), .table = "gate", .chain = "all"};
    nft_begin(&n, NF_INET_PRE_ROUTING, RULES_PRIORITY);
    return n;
}

/* The first packet of a connection. */
static void rules_is_syn(struct nft *n)
{
    const uint8_t mask = 0x12, syn = 0x02;
    nft_load_payload(n, NFT_PAYLOAD_TRANSPORT_HEADER, 13, 1);
    nft_mask(n, &mask, sizeof(mask));
    nft_compare(n, NFT_CMP_EQ, &syn, sizeof(syn));
}

int gate_redirect_all(uint16_t port)
{
    struct nft n = rules_begin();
    struct nlattr *rule = nft_rule(&n);
    nft_is_protocol(&n, IPPROTO_TCP);
    nft_redirect(&n, port);
    nft_rule_end(&n, rule);
    return nft_commit(&n);
}

int gate_refuse_foreign(void)
{
    struct nft n = rules_begin();
    struct nlattr *rule = nft_rule(&n);
    nft_is_protocol(&n, IPPROTO_TCP);
    rules_is_syn(&n);
    nft_is_foreign(&n);
    nft_reject(&n, NFT_REJECT_TCP_RST);
    nft_rule_end(&n, rule);
    rule = nft_rule(&n);
    nft_is_foreign(&n);
    nft_reject(&n, NFT_REJECT_ICMPX_UNREACH);
    nft_rule_end(&n, rule);
    return nft_commit(&n);
}
