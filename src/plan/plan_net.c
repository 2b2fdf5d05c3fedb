/* The way out, as the guest's namespace needs it: which prefixes lead to the gate, which ports are
 * listened on there. Who may be reached is decided by the broker with the same rules. */
#include "plan/plan_internal.h"

#include <string.h>
#include <sys/resource.h>

#include "base/err.h"
#include "base/util.h"
#include "policy/netset.h"
#include "policy/publish.h"

static bool net_is_v4(const struct netrule *r)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    return r->prefix_len >= 96 && memcmp(r->addr, mapped, 12) == 0;
}

/* The guest's own loopback stays its own: rules about it are about what names resolve to. */
static bool net_is_loopback(const struct netrule *r)
{
    static const uint8_t one[16] = {[15] = 1};
    return net_is_v4(r) ? r->addr[12] == 127 : memcmp(r->addr, one, 16) == 0;
}

static int net_routes(struct plan *p, struct plan_net *net, const struct netset *set)
{
    net->routes = arena_alloc(&p->arena, (set->n_allow + 1) * sizeof(*net->routes));
    if (!net->routes)
        return -1;
    for (size_t i = 0; i < set->n_allow; i++) {
        const struct netrule *r = &set->allow[i].rule;
        if (r->kind != NETRULE_ADDRESS || net_is_loopback(r))
            continue;
        struct plan_route *route = &net->routes[net->n_routes++];
        memcpy(route->addr, r->addr, 16);
        route->is_v4 = net_is_v4(r);
        route->prefix_len = (uint8_t)(r->prefix_len - (route->is_v4 ? 96 : 0));
    }
    return 0;
}

static int net_ports(struct plan *p, const struct netset *set, enum netrule_proto proto,
                     uint16_t **ret_ports, size_t *ret_n)
{
    uint16_t ports[NETSET_LISTEN_MAX]; /* netset_make refuses more */
    *ret_n = netset_ports(set, proto, ports, ARRAY_SIZE(ports));
    *ret_ports = arena_alloc(&p->arena, (*ret_n + 1) * sizeof(uint16_t));
    if (!*ret_ports)
        return -1;
    memcpy(*ret_ports, ports, *ret_n * sizeof(uint16_t));
    return 0;
}

static int net_publish(struct plan *p, struct plan_net *net, const struct policy *policy,
                       struct cordon_err *err)
{
    const struct policy_value *v = policy_value(policy, FIELD_PUBLISH);
    net->publish = arena_alloc(&p->arena, (v->n_items + 1) * sizeof(*net->publish));
    if (!net->publish)
        return err_nomem(err, "plan");
    for (size_t i = 0; i < v->n_items; i++) {
        struct plan_publish *to = &net->publish[net->n_publish++];
        if (publish_parse(v->items[i].text, &to->host_port, &to->guest_port))
            continue;
        char where[512];
        policy_origin_place(&v->items[i].origin, where, sizeof(where));
        err_set(err,
                v->items[i].origin.source == FROM_COMMAND ? CORDON_ERR_USAGE : CORDON_ERR_CONFIG,
                "plan", 0, "%s: publish = %.100s: not HOSTPORT:GUESTPORT", where, v->items[i].text);
        policy_err_clean(err);
        return -1;
    }
    return 0;
}

static int net_fill(struct plan *p, const struct policy *policy, const struct netset *set,
                    struct cordon_err *err)
{
    struct plan_net *net = arena_alloc(&p->arena, sizeof(*net));
    if (!net)
        return err_nomem(err, "plan");
    net->policy = policy;
    net->any_port = set->everything;
    if (net_routes(p, net, set) < 0 ||
        net_ports(p, set, NETRULE_TCP, &net->tcp_ports, &net->n_tcp_ports) < 0 ||
        net_ports(p, set, NETRULE_UDP, &net->udp_ports, &net->n_udp_ports) < 0)
        return err_nomem(err, "plan");
    if (net_publish(p, net, policy, err) < 0)
        return -1;
    p->net = net;
    return 0;
}

bool plan_net_is_wanted(const struct policy *policy)
{
    static const enum field_id grants[] = {FIELD_ALLOW_NETWORK, FIELD_ALLOW_DOMAINS,
                                           FIELD_ALLOW_PATTERNS, FIELD_PUBLISH,
                                           FIELD_ALLOW_HOST_PORT};
    if (policy_num(policy, FIELD_NETWORK) == NETWORK_HOST)
        return false;
    bool wanted = policy_num(policy, FIELD_NETWORK) == NETWORK_BRIDGE ||
                  policy_bool(policy, FIELD_LOG_NETWORK) ||
                  policy_num(policy, FIELD_ALLOW_NETWORK) == 1;
    for (size_t i = 0; i < ARRAY_SIZE(grants); i++)
        wanted |= policy_value(policy, grants[i])->n_items > 0;
    return wanted;
}

int plan_net(struct plan *p, const struct policy *policy, struct cordon_err *err)
{
    if (!plan_net_is_wanted(policy))
        return 0;
    struct netset set;
    if (netset_make(policy, &set, err) < 0)
        return -1;
    int r = net_fill(p, policy, &set, err);
    netset_done(&set);
    return r;
}

unsigned plan_net_inner(const struct plan_net *net)
{
    struct rlimit files;
    if (net->n_publish == 0 || getrlimit(RLIMIT_NOFILE, &files) < 0)
        return 0;
    return (unsigned)MIN(files.rlim_max / 4, (rlim_t)2 * PLAN_PUBLISH_SOCKETS);
}
