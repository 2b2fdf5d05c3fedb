/* Compiled network rules. Pure; runs in `explain` and in the broker. */
#include "policy/netset.h"

#include "base/err.h"
#include "base/util.h"
#include "policy/show.h"

#define RULES_MAX 4096

bool netset_is_loopback(const uint8_t addr[static 16])
{
    static const uint8_t loopback4[16] = {[10] = 0xff, [11] = 0xff, [12] = 127};
    static const uint8_t loopback6[16] = {[15] = 1};
    return memcmp(addr, loopback4, 13) == 0 || memcmp(addr, loopback6, 16) == 0;
}

/* ---- making -----------------------------------------------------------------------------------
 */

static int add_text(struct netset_rule *rule, enum field_id id, const char *written,
                    const struct origin *origin, struct cordon_err *err)
{
    char from[512];
    policy_origin_text(origin, from, sizeof(from));
    rule->origin = strdup(from);
    if (asprintf(&rule->text, "%s = %s", policy_shown_key(id), written) < 0)
        rule->text = NULL;
    return rule->text && rule->origin ? 0 : err_nomem(err, "network");
}

static void rules_free(struct netset_rule *rules, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(rules[i].text);
        free(rules[i].origin);
    }
    free(rules);
}

/* Addresses that mean something else inside: they stand for names, or are the link's. A rule for
 * one of them would be listed and never be reached. */
static const char *inside_range(const struct netrule *rule)
{
    static const struct {
        uint8_t addr[16], bits;
        const char *text;
    } ranges[] = {
        {{[10] = 0xff, [11] = 0xff, [12] = 198, [13] = 18}, 96 + 15, "198.18.0.0/15"},
        {{[10] = 0xff, [11] = 0xff, [12] = 192}, 96 + 29, "192.0.0.0/29"},
        {{0xfd, 0x63, 0x6f, 0x72, 0x64, 0x6f, 0x6e, 0}, 63, "fd63:6f72:646f:6e00::/63"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(ranges) && rule->kind == NETRULE_ADDRESS; i++)
        if (rule->prefix_len >= ranges[i].bits &&
            netrule_prefix_equal(rule->addr, ranges[i].addr, ranges[i].bits))
            return ranges[i].text;
    return NULL;
}

static int refuse_inside(const struct policy_item *item, const char *range, struct cordon_err *err)
{
    char where[512];
    policy_origin_place(&item->origin, where, sizeof(where));
    err_set(err, item->origin.source == FROM_COMMAND ? CORDON_ERR_USAGE : CORDON_ERR_CONFIG,
            "network", 0,
            "%s: '%.200s' lies in %s, which Cordon uses inside: no host is reached there", where,
            item->written, range);
    policy_err_clean(err);
    return -1;
}

/* Appends the rules of one list; *n counts those that need freeing, also after a failure. */
static int add_rules(const struct policy *policy, enum field_id id, struct netset_rule **rules,
                     size_t *n, struct cordon_err *err)
{
    const struct policy_value *v = policy_value(policy, id);
    const struct policy_value *block = policy_value(policy, FIELD_BLOCK_INTERNAL);
    bool is_said =
        block->num && block->origin.source != FROM_BUILTIN && block->origin.source != FROM_PROJECT;
    char why[NETRULE_WHY_MAX];
    if (v->n_items == 0)
        return 0;
    if (*n + v->n_items > RULES_MAX)
        return err_set(err, CORDON_ERR_CONFIG, "network", 0, "%s: more than %d network rules",
                       policy_shown_key(id), RULES_MAX);
    struct netset_rule *more = reallocarray(*rules, *n + v->n_items, sizeof(**rules));
    if (!more)
        return err_nomem(err, "network");
    *rules = more;
    memset(more + *n, 0, v->n_items * sizeof(*more));
    for (size_t i = 0; i < v->n_items; i++) {
        const struct policy_item *item = &v->items[i];
        struct netset_rule *rule = &more[(*n)++];
        if (id == FIELD_ALLOW_HOST_PORT)
            rule->rule.port = (uint16_t)item->num;
        else if (netrule_parse(item->text, &rule->rule, why) < 0)
            return err_set(err, CORDON_ERR_CONFIG, "network", 0, "'%.200s' %s", item->text, why);
        const char *inside = id == FIELD_DENY_NETWORK ? NULL : inside_range(&rule->rule);
        if (inside)
            return refuse_inside(item, inside, err);
        rule->is_barred = is_said && item->origin.source == FROM_PROJECT;
        if (add_text(rule, id, item->written, &item->origin, err) < 0)
            return -1;
    }
    return 0;
}

static int add_ports(const struct policy *policy, struct netset *set, struct cordon_err *err)
{
    const struct policy_value *v = policy_value(policy, FIELD_ALLOW_PORTS);
    if (v->n_items > NETSET_PORTS_MAX)
        return err_set(err, CORDON_ERR_CONFIG, "network", 0, "allow_ports: more than %d ports",
                       NETSET_PORTS_MAX);
    for (; set->n_ports < v->n_items; set->n_ports++)
        set->ports[set->n_ports] = (uint16_t)v->items[set->n_ports].num;
    return 0;
}

/* What stands in an answer for the two knobs that are no lists. */
static int add_knobs(const struct policy *policy, struct netset *set, struct cordon_err *err)
{
    const struct policy_value *all = policy_value(policy, FIELD_ALLOW_NETWORK);
    const struct policy_value *mode = policy_value(policy, FIELD_NETWORK);
    const struct policy_value *block = policy_value(policy, FIELD_BLOCK_INTERNAL);
    bool by_list = all->set && all->num == 1;
    set->everything = by_list || mode->num == NETWORK_BRIDGE;
    set->block_internal = policy_bool(policy, FIELD_BLOCK_INTERNAL);
    if (set->everything &&
        add_text(&set->everything_by, by_list ? FIELD_ALLOW_NETWORK : FIELD_NETWORK,
                 by_list ? all->written : mode->written, by_list ? &all->origin : &mode->origin,
                 err) < 0)
        return -1;
    return set->block_internal ? add_text(&set->internal_by, FIELD_BLOCK_INTERNAL, block->written,
                                          &block->origin, err)
                               : 0;
}

static int check_ports(const struct netset *set, struct cordon_err *err)
{
    uint16_t ports[NETSET_LISTEN_MAX + 1];
    if (netset_ports(set, NETRULE_TCP, ports, ARRAY_SIZE(ports)) <= NETSET_LISTEN_MAX &&
        netset_ports(set, NETRULE_UDP, ports, ARRAY_SIZE(ports)) <= NETSET_LISTEN_MAX)
        return 0;
    return err_set(err, CORDON_ERR_CONFIG, "network", 0,
                   "the rules name more than %d different ports", NETSET_LISTEN_MAX);
}

int netset_make(const struct policy *policy, struct netset *ret_set, struct cordon_err *err)
{
    struct netset set = {0};
    if (add_rules(policy, FIELD_ALLOW_NETWORK, &set.allow, &set.n_allow, err) < 0 ||
        add_rules(policy, FIELD_ALLOW_DOMAINS, &set.allow, &set.n_allow, err) < 0 ||
        add_rules(policy, FIELD_ALLOW_PATTERNS, &set.allow, &set.n_allow, err) < 0 ||
        add_rules(policy, FIELD_DENY_NETWORK, &set.deny, &set.n_deny, err) < 0 ||
        add_rules(policy, FIELD_ALLOW_HOST_PORT, &set.host_ports, &set.n_host_ports, err) < 0 ||
        add_ports(policy, &set, err) < 0 || add_knobs(policy, &set, err) < 0 ||
        check_ports(&set, err) < 0) {
        netset_done(&set);
        return -1;
    }
    *ret_set = set;
    return 0;
}

void netset_done(struct netset *set)
{
    rules_free(set->allow, set->n_allow);
    rules_free(set->deny, set->n_deny);
    rules_free(set->host_ports, set->n_host_ports);
    free(set->everything_by.text);
    free(set->everything_by.origin);
    free(set->internal_by.text);
    free(set->internal_by.origin);
    *set = (struct netset){0};
}

bool netset_is_empty(const struct netset *set)
{
    return set->n_allow == 0 && set->n_host_ports == 0 && !set->everything;
}

/* ---- deciding ---------------------------------------------------------------------------------
 */

/* What is asked about: a name or an address. */
struct target {
    const char *name;    /* or NULL */
    const uint8_t *addr; /* or NULL */
    enum netrule_proto proto;
    uint16_t port; /* 0: a lookup */
};

static bool names_internal(const struct netset_rule *rule)
{
    return !rule->is_barred && netrule_names_internal(&rule->rule);
}

static struct netset_verdict verdict(bool allowed, const struct netset_rule *by)
{
    return (struct netset_verdict){.allowed = allowed,
                                   .names_internal = allowed && names_internal(by),
                                   .rule = by->text,
                                   .origin = by->origin};
}

static struct netset_verdict by_default(void)
{
    return (struct netset_verdict){.rule = "default", .origin = ""};
}

static bool covers(const struct netset_rule *rule, const struct target *t)
{
    return t->addr ? netrule_matches_addr(&rule->rule, t->addr)
                   : netrule_matches_name(&rule->rule, t->name);
}

/* A rule that denies a name denies it for every protocol, unless it says udp://. */
static const struct netset_rule *find_deny(const struct netset *set, const struct target *t)
{
    for (size_t i = 0; i < set->n_deny; i++) {
        const struct netset_rule *r = &set->deny[i];
        bool port = r->rule.port == 0 || (t->port && r->rule.port == t->port);
        bool proto = r->rule.proto == NETRULE_TCP || (t->port && t->proto == NETRULE_UDP);
        if (port && proto && covers(r, t))
            return r;
    }
    return NULL;
}

static bool port_allowed(const struct netset *set, const struct netrule *rule,
                         const struct target *t)
{
    return t->port == 0 || (rule->proto == t->proto &&
                            netrule_port_matches(rule, t->port, set->ports, set->n_ports));
}

/* The first allowing rule; one that may lead to an internal address is preferred, so that the order
 * of rules does not matter. */
static const struct netset_rule *find_allow(const struct netset *set, const struct target *t)
{
    const struct netset_rule *found = NULL;
    for (size_t i = 0; i < set->n_allow; i++) {
        const struct netset_rule *r = &set->allow[i];
        if (!covers(r, t) || !port_allowed(set, &r->rule, t))
            continue;
        if (names_internal(r))
            return r;
        found = found ? found : r;
    }
    return found;
}

static const uint8_t host4[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1};
static const uint8_t host6[16] = {[15] = 1};

/* What is denied under one of its names or addresses is denied. */
static const struct netset_rule *find_host_deny(const struct netset *set, const struct target *t)
{
    const uint8_t *const addrs[] = {NULL, NULL, host4, host6};
    const struct netset_rule *deny = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(addrs) && !deny; i++) {
        struct target same = *t;
        same.name = i == 0 ? NETSET_HOST_NAME : "localhost";
        same.addr = addrs[i];
        deny = find_deny(set, &same);
    }
    return deny;
}

/* A rule for addresses that are the host's own, and for no others: to name everything is not to
 * name this. */
static bool is_for_host(const struct netrule *rule)
{
    static const uint8_t loopback4[16] = {[10] = 0xff, [11] = 0xff, [12] = 127};
    if (rule->kind != NETRULE_ADDRESS)
        return str_eq(rule->host, "localhost") || str_eq(rule->host, NETSET_HOST_NAME);
    return (rule->prefix_len >= 96 + 8 && netrule_prefix_equal(rule->addr, loopback4, 96 + 8) &&
            netrule_prefix_equal(rule->addr, host4, rule->prefix_len)) ||
           (rule->prefix_len == 128 && netrule_prefix_equal(rule->addr, host6, 128));
}

/* host.cordon: opened by port, or by a rule that says localhost, that name, or an address of it. */
static struct netset_verdict host_name(const struct netset *set, const struct target *t)
{
    const struct netset_rule *deny = find_host_deny(set, t), *by = NULL;
    bool is_barred = false;
    for (size_t i = 0; i < set->n_host_ports && !by; i++) {
        const struct netset_rule *r = &set->host_ports[i];
        if (t->port == 0 || (t->proto == NETRULE_TCP && r->rule.port == t->port)) {
            is_barred |= r->is_barred;
            by = r->is_barred ? NULL : r;
        }
    }
    /* whatever their order, one with a name comes first: it means every address of the host */
    static const enum netrule_kind kinds[] = {NETRULE_NAME, NETRULE_ADDRESS};
    for (size_t k = 0; k < ARRAY_SIZE(kinds) && !by; k++)
        for (size_t i = 0; i < set->n_allow && !by; i++) {
            const struct netset_rule *r = &set->allow[i];
            if (r->rule.kind == kinds[k] && is_for_host(&r->rule) &&
                port_allowed(set, &r->rule, t)) {
                is_barred |= r->is_barred;
                by = r->is_barred ? NULL : r;
            }
        }
    if (deny)
        return verdict(false, deny);
    if (!by)
        return is_barred ? verdict(false, &set->internal_by) : by_default();
    struct netset_verdict v = verdict(true, by);
    v.host_loopback = v.names_internal = true;
    v.host_by_addr = by->rule.kind == NETRULE_ADDRESS;
    return v;
}

struct netset_verdict netset_name(const struct netset *set, const char *name,
                                  enum netrule_proto proto, uint16_t port)
{
    struct target t = {.name = name, .proto = proto, .port = port};
    const struct netset_rule *deny = find_deny(set, &t);
    if (deny)
        return verdict(false, deny);
    if (str_eq(name, NETSET_HOST_NAME))
        return host_name(set, &t);
    if (str_eq(name, "localhost") && (deny = find_host_deny(set, &t)))
        return verdict(false, deny); /* in a rule it means the host's, whose name that is */
    const struct netset_rule *allow = find_allow(set, &t);
    if (allow)
        return verdict(true, allow);
    if (set->everything && str_eq(name, "localhost") && set->block_internal)
        return verdict(false, &set->internal_by);
    if (set->everything && (port == 0 || proto == NETRULE_TCP))
        return verdict(true, &set->everything_by);
    return by_default();
}

/* An internal address needs a rule that names it. */
static bool may_reach(const struct netset *set, const struct netset_rule *allow,
                      const uint8_t addr[static 16])
{
    return !set->block_internal || (allow && names_internal(allow)) ||
           !netrule_addr_is_internal(addr);
}

struct netset_verdict netset_addr(const struct netset *set, const uint8_t addr[static 16],
                                  enum netrule_proto proto, uint16_t port)
{
    struct target t = {.addr = addr, .proto = proto, .port = port};
    const struct netset_rule *deny = find_deny(set, &t);
    if (deny)
        return verdict(false, deny);
    const struct netset_rule *allow = find_allow(set, &t);
    if (!allow && (!set->everything || (port && proto != NETRULE_TCP)))
        return by_default();
    if (!may_reach(set, allow, addr))
        return verdict(false, &set->internal_by);
    return verdict(true, allow ? allow : &set->everything_by);
}

struct netset_verdict netset_dial(const struct netset *set, const struct netset_verdict *first,
                                  const uint8_t addr[static 16], enum netrule_proto proto,
                                  uint16_t port)
{
    struct target t = {.addr = addr, .proto = proto, .port = port};
    const struct netset_rule *deny = find_deny(set, &t);
    if (deny)
        return verdict(false, deny);
    if (first->host_loopback) {
        bool own = netset_is_loopback(addr) && (!first->host_by_addr || find_allow(set, &t));
        return own ? *first : by_default();
    }
    if (first->names_internal || may_reach(set, NULL, addr))
        return *first;
    const struct netset_rule *allow = find_allow(set, &t);
    return may_reach(set, allow, addr) ? verdict(true, allow) : verdict(false, &set->internal_by);
}

bool netset_has_route(const struct netset *set, const uint8_t addr[static 16])
{
    for (size_t i = 0; i < set->n_allow; i++) {
        const struct netrule *rule = &set->allow[i].rule;
        if (rule->kind == NETRULE_ADDRESS &&
            netrule_prefix_equal(rule->addr, addr, rule->prefix_len))
            return true;
    }
    return false;
}

/* ---- ports ------------------------------------------------------------------------------------
 */

static size_t add_port(uint16_t *ports, size_t n, size_t max, uint16_t port)
{
    size_t at = 0;
    while (at < n && ports[at] < port)
        at++;
    if (n == max || (at < n && ports[at] == port))
        return n;
    memmove(ports + at + 1, ports + at, (n - at) * sizeof(*ports));
    ports[at] = port;
    return n + 1;
}

size_t netset_ports(const struct netset *set, enum netrule_proto proto, uint16_t *ret_ports,
                    size_t max)
{
    static const uint16_t web[] = {80, 443};
    const uint16_t *unnamed = set->n_ports ? set->ports : web;
    size_t n = 0, n_unnamed = set->n_ports ? set->n_ports : ARRAY_SIZE(web);
    for (size_t i = 0; i < set->n_allow; i++) {
        const struct netrule *rule = &set->allow[i].rule;
        if (rule->proto != proto)
            continue;
        if (rule->port)
            n = add_port(ret_ports, n, max, rule->port);
        for (size_t k = 0; !rule->port && k < n_unnamed; k++)
            n = add_port(ret_ports, n, max, unnamed[k]);
    }
    for (size_t i = 0; proto == NETRULE_TCP && i < set->n_host_ports; i++)
        n = add_port(ret_ports, n, max, set->host_ports[i].rule.port);
    return n;
}
