/* Packet rules (nftables) over netlink, just enough of it: one table with one chain on one hook, in
 * one batch, which the kernel takes whole or not at all. Nothing is allocated; the buffer is the
 * caller's. Used by the native wall's network helper and by a container's pid 1. */
#ifndef BASE_NFT_H
#define BASE_NFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nlattr;
struct nlmsghdr;

struct nft {
    char *buf; /* aligned to 8 */
    size_t size, len;
    uint32_t seq;
    bool overflow; /* something did not fit: the commit fails */
    struct nlmsghdr *last;
    const char *table, *chain;
};

/* A table and its chain: hook is NF_INET_*. */
void nft_begin(struct nft *n, uint32_t hook, int32_t priority);
/* Sends the batch and waits for the answers; -1 with errno. */
int nft_commit(struct nft *n);
/* Answers on a netfilter socket: the first refusal (-1 with errno), or the consent to `last`. */
int nft_answers(int fd, uint32_t last);

/* A rule is the expressions between these two, all of which must hold, and a last one that acts. */
struct nlattr *nft_rule(struct nft *n);
void nft_rule_end(struct nft *n, struct nlattr *rule);

/* Conditions work on one register: load, mask, compare (NFT_META_*, NFT_PAYLOAD_*, NFT_CMP_*). */
void nft_load_meta(struct nft *n, uint32_t key);
void nft_load_payload(struct nft *n, uint32_t base, uint32_t offset, uint32_t len);
void nft_mask(struct nft *n, const void *mask, size_t len);
void nft_compare(struct nft *n, uint32_t op, const void *data, size_t len);
void nft_is_protocol(struct nft *n, uint8_t protocol);
/* Has an extension header of this kind (IPv6). */
void nft_has_extension(struct nft *n, uint8_t kind);
/* Its destination is none of the addresses that are ours. */
void nft_is_foreign(struct nft *n);

/* Hands the packet's head to the listener of this group (nfnetlink_log); then the rule goes on. */
void nft_log(struct nft *n, uint16_t group);

/* Ends of a rule. */
void nft_accept(struct nft *n);
/* NFT_REJECT_TCP_RST, or NFT_REJECT_ICMPX_UNREACH, which says that there is no route. */
void nft_reject(struct nft *n, uint32_t type);
/* To the transparent listener on this port. */
void nft_redirect(struct nft *n, uint16_t port);

#endif
