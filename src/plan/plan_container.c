/* The plan for a container of an engine: the caller's grants and limits, and what the engine is
 * told beside them. The root is the image's; what is the same in every container (read-only root,
 * no capabilities, user, tmpfs) is the backend's shape, not a choice.
 *
 * What a container cannot honour is refused here, before anything is asked of an engine. */
#include <string.h>

#include "base/err.h"
#include "base/util.h"
#include "plan/plan_internal.h"

#define CONTAINER_SETUP_NS (120 * UINT64_C(1000000000)) /* a busy engine, a slow runtime */
#define CONTAINER_NO_BROKER "a container has no network broker"

/* Fields that are refused when they were set. */
static const struct {
    enum field_id id;
    const char *why, *fix;
} container_refused[] = {
    {FIELD_CGROUP, "the runtime makes groups of its own", "leave it out"},
    {FIELD_REQUIRE_TIER, "tiers are the native backend's", "leave it out"},
    {FIELD_ALLOW_NETWORK, CONTAINER_NO_BROKER, "use the native backend"},
    {FIELD_ALLOW_DOMAINS, CONTAINER_NO_BROKER, "use the native backend"},
    {FIELD_ALLOW_PATTERNS, CONTAINER_NO_BROKER, "use the native backend"},
    {FIELD_PUBLISH, CONTAINER_NO_BROKER, "use the native backend"},
    {FIELD_ALLOW_HOST_PORT, CONTAINER_NO_BROKER, "use the native backend"},
    {FIELD_LOG_NETWORK, CONTAINER_NO_BROKER, "use the native backend"},
    {FIELD_ROOTFS, "the engine runs images", "`cordon image build --rootfs` makes one of it"},
};

static bool container_is_asked(const struct policy_value *v, enum field_id id)
{
    if (!v->set)
        return false;
    enum field_type type = policy_fields[id].type;
    if (type == FT_BOOL)
        return v->num != 0;
    if (type == FT_NETWORK)
        return v->num != 0 || v->n_items > 0;
    if (type == FT_STRINGS || type == FT_NET_NAMES || type == FT_NET_PATTERNS || type == FT_PORTS)
        return v->n_items > 0;
    return true;
}

static int container_refuse(const struct policy *policy, enum field_id id, const char *why,
                            const char *fix, struct cordon_err *err)
{
    char where[512];
    policy_origin_place(&policy_value(policy, id)->origin, where, sizeof(where));
    err_set(err, CORDON_ERR_HOST, "plan", 0, "%s: %s is not possible with backend docker: %s",
            where, policy_fields[id].key, why);
    return err_hint(err, "%s", fix);
}

static int container_check(const struct policy *policy, struct cordon_err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(container_refused); i++) {
        enum field_id id = container_refused[i].id;
        if (container_is_asked(policy_value(policy, id), id))
            return container_refuse(policy, id, container_refused[i].why, container_refused[i].fix,
                                    err);
    }
    return 0;
}

/* Of an overlay workspace the guest gets a copy; before there is one (explain) nothing is writable.
 */
static int container_grants(struct plan *p, const struct plan_request *req, struct cordon_err *err)
{
    struct plan_request copied = *req;
    const struct policy_value *ws = policy_value(req->policy, FIELD_WORKSPACE);
    if (ws->set && ws->num == WORKSPACE_OVERLAY) {
        if (req->workspace_layer && !req->workspace_copy)
            return container_refuse(req->policy, FIELD_WORKSPACE,
                                    "an engine mounts no overlays of ours", "say DIR:rw", err);
        copied.workspace_copy = true;
    }
    return plan_full_grants(p, &copied, err);
}

/* A bridge is the engine's and reaches whatever the engine's host reaches; pid 1 of the container
 * refuses internal addresses by packet rules. gVisor has a network of its own, with no such rules.
 */
static int container_network(struct plan *p, const struct policy *policy, struct cordon_err *err)
{
    p->container.network = (enum network_mode)policy_num(policy, FIELD_NETWORK);
    if (p->container.network == NETWORK_NONE)
        return 0;
    if (p->container.network == NETWORK_HOST)
        return container_refuse(policy, FIELD_NETWORK,
                                "a container never gets the host's own network",
                                "use --network none or bridge", err);
    if (policy_value(policy, FIELD_DENY_NETWORK)->n_items > 0)
        return container_refuse(policy, FIELD_DENY_NETWORK, CONTAINER_NO_BROKER,
                                "use the native backend", err);
    p->container.block_internal = policy_bool(policy, FIELD_BLOCK_INTERNAL);
    if (p->container.block_internal && policy_has(policy, FIELD_RUNTIME) &&
        policy_num(policy, FIELD_RUNTIME) == PLAN_RUNTIME_RUNSC)
        return container_refuse(policy, FIELD_BLOCK_INTERNAL,
                                "gVisor's network has no packet rules to refuse internal addresses",
                                "say --block-internal=false, or use --runtime runc", err);
    return 0;
}

static int container_texts(struct plan *p, const struct policy *policy, struct cordon_err *err)
{
    const struct {
        enum field_id id;
        const char **to;
    } rows[] = {
        {FIELD_IMAGE, &p->container.image},
        {FIELD_DNS, &p->container.dns},
        {FIELD_HTTP_PROXY, &p->container.http_proxy},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        if (!policy_has(policy, rows[i].id))
            continue;
        *rows[i].to = arena_strdup(&p->arena, policy_text(policy, rows[i].id));
        if (!*rows[i].to)
            return err_nomem(err, "plan");
    }
    static const char *const runtimes[] = {"runc", "crun", "runsc"};
    if (policy_has(policy, FIELD_RUNTIME))
        p->container.runtime = runtimes[policy_num(policy, FIELD_RUNTIME)];
    return 0;
}

/* Nothing else of the caller's environment reaches the executable that talks to the engine. */
static int container_vars(struct plan *p, char *const *vars, struct cordon_err *err)
{
    static const char *const names[] = {"DOCKER_HOST=",      "DOCKER_TLS=", "DOCKER_TLS_VERIFY=",
                                        "DOCKER_CERT_PATH=", "HOME=",       "XDG_CACHE_HOME="};
    size_t n = 0;
    p->container.vars = arena_alloc(&p->arena, (ARRAY_SIZE(names) + 1) * sizeof(char *));
    if (!p->container.vars)
        return err_nomem(err, "plan");
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        size_t k = 0;
        while (vars && vars[k] && !str_starts(vars[k], names[i]))
            k++;
        if (vars && vars[k] && !(p->container.vars[n++] = arena_strdup(&p->arena, vars[k])))
            return err_nomem(err, "plan");
    }
    return 0;
}

/* The guest itself talks to the proxy here; what the caller set by hand stays. */
static int container_proxy(struct plan *p, struct cordon_err *err)
{
    static const char *const names[] = {"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"};
    size_t n = 0;
    while (p->env[n])
        n++;
    if (!p->container.http_proxy)
        return 0;
    char **env = arena_alloc(&p->arena, (n + ARRAY_SIZE(names) + 1) * sizeof(char *));
    if (!env)
        return err_nomem(err, "plan");
    memcpy(env, p->env, n * sizeof(char *));
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        size_t len = strlen(names[i]), k = 0;
        while (k < n && !(strncmp(env[k], names[i], len) == 0 && env[k][len] == '='))
            k++;
        if (k == n &&
            !(env[n++] = arena_printf(&p->arena, "%s=%s", names[i], p->container.http_proxy)))
            return err_nomem(err, "plan");
    }
    p->env = env;
    return 0;
}

/* gVisor's file server makes files as the host's root and gives them away afterwards; on a mount
 * that maps root's files to the guest there is no such owner. */
static int container_gvisor(const struct plan *p, const struct plan_request *req,
                            struct cordon_err *err)
{
    if (!p->container.runtime || !str_eq(p->container.runtime, "runsc"))
        return 0;
    if (p->writes_host && req->host->is_root) {
        err_set(err, CORDON_ERR_HOST, "plan", 0,
                "root's files cannot be granted for writing with backend docker and runtime runsc");
        return err_hint(err, "grant them read-only, run as another user, or use --backend gvisor");
    }
    return 0;
}

int plan_container(struct plan *p, const struct plan_request *req, struct cordon_err *err)
{
    const struct policy *policy = req->policy;
    if (req->terminal)
        return err_set(err, CORDON_ERR_HOST, "plan", 0,
                       "-i: a terminal of its own is not possible with backend docker");
    /* a command by itself has nothing to share a container with */
    p->container.reuse = policy_bool(policy, FIELD_REUSE) && req->is_handle;
    p->tier = TIER_FULL;
    p->landlock_abi = 0;
    p->scope_signals = false;
    p->time_ns = false;
    p->setup_ns = CONTAINER_SETUP_NS;
    if (container_check(policy, err) < 0 || container_network(p, policy, err) < 0 ||
        container_texts(p, policy, err) < 0 || container_vars(p, req->vars, err) < 0 ||
        container_grants(p, req, err) < 0 || container_gvisor(p, req, err) < 0)
        return -1;
    const struct policy_value *ws = policy_value(policy, FIELD_WORKSPACE);
    p->cwd = ws->set && ws->num != WORKSPACE_NONE ? "/workspace" : PLAN_HOME;
    p->hands_back_cwd = policy_value(policy, FIELD_OUTPUT)->n_items > 0;
    const char *tmp = "/tmp";
    if (policy_bool(policy, FIELD_TEMP_DIR) && policy_text(policy, FIELD_TEMP_DIR)[0] &&
        !str_eq(policy_text(policy, FIELD_TEMP_DIR), "/tmp"))
        return container_refuse(policy, FIELD_TEMP_DIR, "a container's private folder is /tmp",
                                "use --temp-dir without a path", err);
    if (plan_set_env(p, policy, PLAN_HOME, tmp, err) < 0 || container_proxy(p, err) < 0)
        return -1;
    return plan_collect_files(p, req, err);
}
