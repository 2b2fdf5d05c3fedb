/* Settings about the network that cannot both be meant, over the merged policy. Pure; called by
 * merge.c when all layers are there. */
#include "policy/contradict.h"

#include "base/err.h"
#include "base/util.h"
#include "policy/fields.h"
#include "policy/merge.h"
#include "policy/nethost.h"
#include "policy/netrule.h"

/* How to be left with one of the two: what a file or a variable says can be taken back. */
static int contradict_host_hint(enum field_id id, const struct origin *host,
                                const struct origin *by, struct cordon_err *err)
{
    const struct field *field = &policy_fields[id];
    const char *flag = *field->flag ? field->flag : policy_fields[FIELD_ALLOW_NETWORK].flag;
    bool takes_false = fields_is_list(field->type) || field->type == FT_BOOL;
    char how[128] = "";
    if (by->layer < host->layer && takes_false)
        snprintf(how, sizeof(how), ", or take back what is said there: --%s=false", flag);
    else if (by->layer > host->layer && field->risk == RISK_GRANT)
        snprintf(how, sizeof(how), "; --allow-network=false before it drops what files grant");
    else if (by->layer > host->layer)
        snprintf(how, sizeof(how), "; --network none takes the other's place");
    return err_hint(err, "nothing is checked on the host's own network: leave one of them out%s",
                    how);
}

/* Nothing is checked there: what was to be denied, counted or seen would not be, and the guest
 * would reach more than a list says. */
static int contradict_host_one(const struct policy *p, enum field_id id, struct cordon_err *err)
{
    const struct policy_value *v = &p->values[FIELD_NETWORK], *other = &p->values[id];
    const struct policy_item *item = other->n_items > 0 ? &other->items[0] : NULL;
    const struct origin *by = item ? &item->origin : &other->origin;
    bool is_set = fields_is_list(policy_fields[id].type)
                      ? item != NULL
                      : other->set && (other->num || other->text);
    const char *value = item ? item->written : other->text ? other->written : NULL;
    char a[512], b[512];
    if (!is_set || by->source == FROM_BUILTIN)
        return 0;
    policy_origin_place(&v->origin, a, sizeof(a));
    policy_origin_place(by, b, sizeof(b));
    err_set(err, merge_code(&v->origin), "policy", 0, "network host (%s) contradicts %s%s%s (%s)",
            a, policy_fields[id].key, value ? " = " : "", value ? value : "", b);
    return contradict_host_hint(id, &v->origin, by, err);
}

static int contradict_host_network(const struct policy *p, struct cordon_err *err)
{
    static const enum field_id checked[] = {
        FIELD_DENY_NETWORK,    FIELD_BLOCK_INTERNAL,
        FIELD_MAX_CONNECTIONS, FIELD_MAX_TRAFFIC,
        FIELD_ALLOW_NETWORK,   FIELD_ALLOW_DOMAINS,
        FIELD_ALLOW_PATTERNS,  FIELD_LOG_NETWORK,
        FIELD_HTTP_PROXY,      FIELD_DNS,
        FIELD_ALLOW_HOST_PORT, FIELD_PUBLISH,
    };
    const struct policy_value *v = &p->values[FIELD_NETWORK];
    if (v->num != NETWORK_HOST)
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(checked); i++)
        if (contradict_host_one(p, checked[i], err) < 0)
            return -1;
    if (policy_bool(p, FIELD_UNSAFE_HOST_NETWORK))
        return 0;
    char where[512];
    policy_origin_place(&v->origin, where, sizeof(where));
    return err_set(err, merge_code(&v->origin), "policy", 0,
                   "%s: network host needs --unsafe-host-network: the guest would share every "
                   "service of this host",
                   where);
}

/* `none` takes away what weaker layers grant; who grants in the same breath means one of the two.
 */
static int contradict_no_network(const struct policy *p, struct cordon_err *err)
{
    static const enum field_id grants[] = {FIELD_ALLOW_NETWORK, FIELD_ALLOW_DOMAINS,
                                           FIELD_ALLOW_PATTERNS, FIELD_ALLOW_HOST_PORT,
                                           FIELD_PUBLISH};
    const struct policy_value *v = &p->values[FIELD_NETWORK];
    if (!v->set || v->num != NETWORK_NONE || v->origin.source == FROM_BUILTIN)
        return 0;
    for (size_t g = 0; g < ARRAY_SIZE(grants); g++) {
        const struct policy_value *grant = &p->values[grants[g]];
        const struct policy_item *item = NULL;
        for (size_t i = 0; i < grant->n_items && !item; i++)
            if (grant->items[i].origin.layer == v->origin.layer)
                item = &grant->items[i];
        bool is_all = grant->set && grant->num == 1 && grant->origin.layer == v->origin.layer;
        if (!item && !is_all)
            continue;
        char a[512], b[512];
        policy_origin_place(&v->origin, a, sizeof(a));
        policy_origin_place(item ? &item->origin : &grant->origin, b, sizeof(b));
        err_set(err, merge_code(&v->origin), "policy", 0,
                "network none (%s) contradicts %s = %s (%s)", a, policy_fields[grants[g]].key,
                item ? item->written : "true", b);
        return err_hint(
            err, "leave network out; --allow-network=false before the list drops what files grant");
    }
    return 0;
}

/* Whom the broker talks to in the place of a host: a project cannot name one that others denied. */
static int contradict_detour(const struct policy *p, enum field_id id, struct cordon_err *err)
{
    const struct policy_value *v = &p->values[id], *denied = &p->values[FIELD_DENY_NETWORK];
    struct nethost host;
    uint16_t port;
    if (!v->set || !v->text || v->origin.source != FROM_PROJECT)
        return 0;
    const char *text = v->text, *at = strstr(text, "://");
    text = at ? at + 3 : text;
    at = strrchr(text, '@');
    text = at ? at + 1 : text;
    if (id == FIELD_DNS ? !(host.is_addr = netrule_parse_addr(text, host.addr))
                        : !nethost_parse_written(text, strcspn(text, "/"), &host, &port))
        return 0; /* an error of its own, later */
    for (size_t i = 0; i < denied->n_items; i++) {
        const struct policy_item *item = &denied->items[i];
        struct netrule rule;
        char why[NETRULE_WHY_MAX], where[512], by[512];
        if (item->origin.source == FROM_PROJECT || netrule_parse(item->text, &rule, why) < 0 ||
            !(host.is_addr ? netrule_matches_addr(&rule, host.addr)
                           : netrule_matches_name(&rule, host.name)))
            continue;
        policy_origin_place(&v->origin, where, sizeof(where));
        policy_origin_place(&item->origin, by, sizeof(by));
        err_set(err, CORDON_ERR_CONFIG, "policy", 0, "%s: %s is denied by '%s' (%s)", where,
                policy_fields[id].key, item->written, by);
        return err_hint(err, "take %s out, or name it outside the project: --%s",
                        policy_fields[id].key, policy_fields[id].flag);
    }
    return 0;
}

int contradict_check(const struct policy *p, struct cordon_err *err)
{
    return contradict_host_network(p, err) < 0 || contradict_no_network(p, err) < 0 ||
                   contradict_detour(p, FIELD_HTTP_PROXY, err) < 0 ||
                   contradict_detour(p, FIELD_DNS, err) < 0
               ? -1
               : 0;
}
