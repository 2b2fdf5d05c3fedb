/* The network part of a plan, for `explain`. Pure. */
#include "plan/plan_print.h"

#include <arpa/inet.h>

#include "base/util.h"

const char *plan_print_network(const struct plan *plan)
{
    if (plan->host_network)
        return "host: the host's own network";
    if (plan->net)
        return "broker: a namespace of its own; what leaves it goes through Cordon's broker";
    return plan->tier == TIER_FULL ? "none: a namespace of its own with nothing but loopback"
                                   : "none: internet sockets are refused";
}

static void net_route(const struct plan_route *r, char *ret, size_t size)
{
    char text[INET6_ADDRSTRLEN];
    inet_ntop(r->is_v4 ? AF_INET : AF_INET6, r->is_v4 ? r->addr + 12 : r->addr, text, sizeof(text));
    snprintf(ret, size, "%s/%u", text, r->prefix_len);
}

static void net_ports(struct buf *out, const char *what, const uint16_t *ports, size_t n)
{
    if (n == 0)
        return;
    buf_printf(out, "  %s ports", what);
    for (size_t i = 0; i < n; i++)
        buf_printf(out, "%s%u", i ? ", " : " ", ports[i]);
    buf_char(out, '\n');
}

void plan_print_net_text(const struct plan *plan, struct buf *out)
{
    const struct plan_net *net = plan->net;
    buf_printf(out, "\nnetwork\n  %s\n", plan_print_network(plan));
    if (!net)
        return;
    if (net->any_port)
        buf_str(out,
                "  every TCP port of every address is redirected to the broker (nft_tproxy)\n");
    else
        net_ports(out, "TCP", net->tcp_ports, net->n_tcp_ports);
    net_ports(out, "UDP", net->udp_ports, net->n_udp_ports);
    for (size_t i = 0; i < net->n_routes; i++) {
        char text[INET6_ADDRSTRLEN + 8];
        net_route(&net->routes[i], text, sizeof(text));
        buf_printf(out, "  addresses %s\n", text);
    }
    for (size_t i = 0; i < net->n_publish; i++)
        buf_printf(out, "  127.0.0.1:%u of the host leads to port %u of the guest\n",
                   net->publish[i].host_port, net->publish[i].guest_port);
    buf_str(out, "  names are answered by " PLAN_NET_DNS " with addresses that stand for them\n");
}

static void json_ports(struct jsonw *j, const char *key, const uint16_t *ports, size_t n)
{
    jsonw_open(j, key, '[');
    for (size_t i = 0; i < n; i++)
        jsonw_uint(j, NULL, ports[i]);
    jsonw_close(j, ']');
}

void plan_print_net_json(const struct plan *plan, struct jsonw *j)
{
    const struct plan_net *net = plan->net;
    jsonw_str(j, "network", plan->host_network ? "host" : net ? "broker" : "none");
    if (!net)
        return;
    jsonw_open(j, "network_plan", '{');
    jsonw_bool(j, "any_port", net->any_port);
    json_ports(j, "tcp_ports", net->tcp_ports, net->n_tcp_ports);
    json_ports(j, "udp_ports", net->udp_ports, net->n_udp_ports);
    jsonw_open(j, "addresses", '[');
    for (size_t i = 0; i < net->n_routes; i++) {
        char text[INET6_ADDRSTRLEN + 8];
        net_route(&net->routes[i], text, sizeof(text));
        jsonw_str(j, NULL, text);
    }
    jsonw_close(j, ']');
    jsonw_open(j, "publish", '[');
    for (size_t i = 0; i < net->n_publish; i++) {
        jsonw_open(j, NULL, '{');
        jsonw_uint(j, "host_port", net->publish[i].host_port);
        jsonw_uint(j, "guest_port", net->publish[i].guest_port);
        jsonw_close(j, '}');
    }
    jsonw_close(j, ']');
    jsonw_str(j, "dns", PLAN_NET_DNS);
    jsonw_close(j, '}');
}
