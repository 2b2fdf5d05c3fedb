/* The network rules of one policy, compiled: who may be reached, and by which rule.
 *
 * Pure. The broker decides with it and `explain --host` answers with it, so both say the same. Two
 * questions are asked about a connection: first about what the guest named (netset_name or
 * netset_addr), then, once a name is resolved, about the address that is really dialled
 * (netset_dial). */
#ifndef POLICY_NETSET_H
#define POLICY_NETSET_H

#include "policy/netrule.h"
#include "policy/policy.h"

#define NETSET_HOST_NAME "host.cordon" /* the host's own loopback, as the guest calls it */
#define NETSET_PORTS_MAX 256
#define NETSET_LISTEN_MAX 1024 /* different ports of all rules: each has its listener */

struct netset_rule {
    struct netrule rule;
    char *text;     /* "allow_network = *.github.com", as explain and denials show it; owned */
    char *origin;   /* "cordon.toml:7"; owned */
    bool is_barred; /* opens nothing internal: a project's, and somebody else said block_internal */
};

struct netset {
    struct netset_rule *allow, *deny, *host_ports; /* host_ports: rule.port only */
    size_t n_allow, n_deny, n_host_ports;
    uint16_t ports[NETSET_PORTS_MAX]; /* of rules that name none */
    size_t n_ports;                   /* 0: 80 and 443 */
    bool everything; /* bridge, or allow_network = true: TCP to all that is public */
    bool block_internal;
    struct netset_rule everything_by, internal_by; /* what to show for these two */
};

struct netset_verdict {
    bool allowed;
    bool host_loopback;  /* dial the host's loopback, whatever the name resolves to */
    bool host_by_addr;   /* of it only what a rule for addresses allows */
    bool names_internal; /* the rule may lead to an internal address */
    const char *rule;    /* "default", or the text of a rule; lives as long as the set */
    const char *origin;  /* "" for what holds in any case */
};

/* Too many rules or ports are an error, and so is a rule that does not parse. */
int netset_make(const struct policy *policy, struct netset *ret_set, struct cordon_err *err);
void netset_done(struct netset *set);

/* Whether anything at all may be reached: without it there is nothing for a broker to do. */
bool netset_is_empty(const struct netset *set);

/* name: canonical (netrule_canonical_name). port 0: a lookup, any port of any protocol will do. */
struct netset_verdict netset_name(const struct netset *set, const char *name,
                                  enum netrule_proto proto, uint16_t port);

/* The guest names an address itself. port 0 as above. */
struct netset_verdict netset_addr(const struct netset *set, const uint8_t addr[static 16],
                                  enum netrule_proto proto, uint16_t port);

/* The address a name was resolved to, right before it is dialled. first is the allowing verdict on
 * the name. */
struct netset_verdict netset_dial(const struct netset *set, const struct netset_verdict *first,
                                  const uint8_t addr[static 16], enum netrule_proto proto,
                                  uint16_t port);

/* The ports any rule can allow, ascending, without repeats; the number of them, at most max. Does
 * not know about `everything`. */
size_t netset_ports(const struct netset *set, enum netrule_proto proto, uint16_t *ret_ports,
                    size_t max);

/* Whether a rule gives this very address a route. Those that are matched as another one (an IPv4
 * address in its NAT64 form) have none. */
bool netset_has_route(const struct netset *set, const uint8_t addr[static 16]);

/* 127.0.0.0/8 and ::1, which inside are the guest's own. */
bool netset_is_loopback(const uint8_t addr[static 16]);

#endif
