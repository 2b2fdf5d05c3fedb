/* Caps of the policy on what a guest may use of the network. Runs in the broker. */
#include "net/broker_internal.h"

#include "base/util.h"

void broker_limits_init(struct broker *b)
{
    const struct policy *p = &b->policy;
    snprintf(b->conns_rule, sizeof(b->conns_rule), "too many connections");
    if (policy_has(p, FIELD_MAX_CONNECTIONS)) {
        b->max_conns = MIN(b->max_conns, (size_t)policy_num(p, FIELD_MAX_CONNECTIONS));
        snprintf(b->conns_rule, sizeof(b->conns_rule), "max_connections = %.30s",
                 policy_written(p, FIELD_MAX_CONNECTIONS));
    }
    if (policy_has(p, FIELD_MAX_TRAFFIC)) {
        b->max_traffic = policy_num(p, FIELD_MAX_TRAFFIC);
        snprintf(b->traffic_rule, sizeof(b->traffic_rule), "max_traffic = %.30s",
                 policy_written(p, FIELD_MAX_TRAFFIC));
    }
}

bool broker_limits_spent(const struct broker *b)
{
    return b->max_traffic && b->traffic >= b->max_traffic;
}

bool broker_limits_count(struct broker *b, uint64_t bytes)
{
    b->traffic += bytes;
    return !b->max_traffic || b->traffic <= b->max_traffic;
}
