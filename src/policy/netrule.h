/* Network rules: what a pattern of the policy means, and whether a name or an address falls under
 * it.
 *
 * Pure and without allocation: the broker parses the policy's items once with the same code that
 * checked them, and asks on every lookup and every dial. Names and addresses are matched apart: a
 * rule with an address says nothing about names and the reverse. */
#ifndef POLICY_NETRULE_H
#define POLICY_NETRULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NETRULE_NAME_MAX 253
#define NETRULE_WHY_MAX 160

enum netrule_kind {
    NETRULE_ANY,     /* `*`: every name; over-broad unless everything was allowed outright */
    NETRULE_NAME,    /* one exact name */
    NETRULE_PATTERN, /* a name with `*` labels */
    NETRULE_ADDRESS, /* a literal, a CIDR or a numeric prefix such as 127.* */
};

enum netrule_proto { NETRULE_TCP, NETRULE_UDP };

struct netrule {
    enum netrule_kind kind;
    enum netrule_proto proto;
    uint16_t port;                   /* 0: the rule names none, allow_ports decides */
    char host[NETRULE_NAME_MAX + 1]; /* NAME, PATTERN: canonical (lower case, no final dot) */
    /* ADDRESS: IPv4 addresses are kept in mapped form, so that one comparison serves both */
    uint8_t addr[16];
    uint8_t prefix_len; /* of the 128 bits; 128 for a literal */
    bool is_literal;    /* ADDRESS: one address, not a range */
};

/* Names of other scripts are converted (idna.h). 0; or -1 and the end of a sentence that starts
 * with the text in quotes. */
int netrule_parse(const char *text, struct netrule *ret_rule, char why[static NETRULE_WHY_MAX]);

/* True for one name or one address. */
bool netrule_is_exact(const struct netrule *rule);

/* `*`, `*.` and one label other than local, test, internal, lan (also behind further `*` labels),
 * or a range of all addresses. */
bool netrule_is_over_broad(const struct netrule *rule);

/* A rule that may name an internal address: a literal, a range, or a pattern below .local. */
bool netrule_names_internal(const struct netrule *rule);

/* Lower case, no final dot, letters, digits and hyphens only, with xn-- labels that are valid;
 * false for anything else, also for names whose last label is a number (another spelling of an
 * address).
 */
bool netrule_canonical_name(const char *name, size_t len,
                            char ret_name[static NETRULE_NAME_MAX + 1]);

/* name must be canonical. Ports are the caller's business, see netrule_port_matches. */
bool netrule_matches_name(const struct netrule *rule, const char *name);

/* addr: 16 bytes in network order, IPv4 in mapped form (::ffff:a.b.c.d). NAT64 (64:ff9b::/96) is
 * compared as the IPv4 address it carries. */
bool netrule_matches_addr(const struct netrule *rule, const uint8_t addr[static 16]);

/* default_ports: what allow_ports says, used where the rule names no port; n = 0 means 80 and 443.
 */
bool netrule_port_matches(const struct netrule *rule, uint16_t port, const uint16_t *default_ports,
                          size_t n);

/* Text to the 16-byte form; strict dotted quad or IPv6, nothing else. */
bool netrule_parse_addr(const char *text, uint8_t ret_addr[static 16]);

bool netrule_prefix_equal(const uint8_t *a, const uint8_t *b, unsigned bits);

/* Loopback, private, link-local, CGNAT, multicast, ULA, unspecified, reserved, cloud metadata, and
 * the mapped, NAT64, 6to4 and Teredo forms of those. */
bool netrule_addr_is_internal(const uint8_t addr[static 16]);

/* The same as a list for packet rules: an address of that family is internal when, under one of the
 * masks, it is that net. IPv4 in the first four bytes. */
struct netrule_internal {
    bool is_v4;
    uint8_t net[16], mask[16];
};
#define NETRULE_INTERNAL_MAX 128
size_t netrule_internal_list(struct netrule_internal ret_list[static NETRULE_INTERNAL_MAX]);

#endif
