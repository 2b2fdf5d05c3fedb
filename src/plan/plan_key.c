/* What of a plan a prepared guest has built in. Pure.
 *
 * Everything but what can still be given to a guest that stands already: command, arguments,
 * environment, files to copy in, resource limits, and the values (not the presence) of the limits
 * that control groups and the supervisor hold. Whoever adds a field to the plan adds it here or can
 * say why it comes late. */
#include "plan/plan.h"

#include <string.h>

#include "base/util.h"

static void key_bytes(struct buf *out, const void *data, size_t len)
{
    uint64_t n = len;
    buf_add(out, &n, sizeof(n));
    if (len > 0)
        buf_add(out, data, len);
}

static void key_text(struct buf *out, const char *text)
{
    buf_char(out, text ? 't' : '0');
    if (text)
        key_bytes(out, text, strlen(text));
}

static void key_num(struct buf *out, uint64_t value)
{
    buf_add(out, &value, sizeof(value));
}

static void key_filter(struct buf *out, const struct seccomp_prog *prog)
{
    key_bytes(out, prog->insns, prog->len * sizeof(*prog->insns));
}

static void key_ops(const struct plan *p, struct buf *out)
{
    key_num(out, p->n_ops);
    for (size_t i = 0; i < p->n_ops; i++) {
        const struct plan_op *op = &p->ops[i];
        key_num(out, (uint64_t)op->kind << 48 | (uint64_t)op->flags << 32 | op->mode);
        key_text(out, op->src);
        key_text(out, op->dst);
        key_bytes(out, op->data, op->data ? op->data_len : 0);
    }
    key_num(out, p->n_fences);
    for (size_t i = 0; i < p->n_fences; i++) {
        key_num(out, (uint64_t)p->fences[i].connects << 2 | (uint64_t)p->fences[i].write << 1 |
                         p->fences[i].optional);
        key_text(out, p->fences[i].path);
    }
}

static void key_groups(const struct plan *p, struct buf *out)
{
    const struct host_cgroups *g = &p->cgroups;
    const char *const places[] = {g->v2, g->memory, g->pids, g->cpu, g->cpuacct};
    key_num(out, g->kind);
    for (size_t i = 0; i < ARRAY_SIZE(places); i++)
        key_text(out, places[i]);
    key_num(out, (uint64_t)g->v2_memory << 3 | (uint64_t)g->v2_pids << 2 |
                     (uint64_t)g->v2_cpu << 1 | g->v2_own);
    /* a group that has a limit can be given another value, but not be made or taken away */
    key_num(out, (uint64_t)(p->limits.memory_bytes != 0) << 2 |
                     (uint64_t)(p->limits.processes != 0) << 1 | (p->limits.cpu_percent != 0));
    key_num(out, p->limits.scratch_bytes);
    key_num(out, p->limits.scratch_inodes);
}

bool plan_is_grant(const struct plan_op *op)
{
    return op->kind == PLAN_OP_BIND && (op->flags & PLAN_BIND_GRANT);
}

size_t plan_count_grants(const struct plan *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_ops; i++)
        n += plan_is_grant(&p->ops[i]);
    return n;
}

/* A path that is bound while a guest waits must mean the same when it is taken, and that is looked
 * at for the path itself. What lies on the way from a grant to something mounted below it (a
 * cover, another grant) can be moved away from under it meanwhile, by whoever may write there. A
 * copy is one run's alone: nobody prepares another while a guest works in it. */
static bool key_may_wait(const struct plan *p, size_t at, size_t first_grant)
{
    const struct plan_op *op = &p->ops[at];
    if (op->kind == PLAN_OP_OVERLAY ||
        (op->flags & (PLAN_BIND_KERNELS | PLAN_BIND_OWNERS | PLAN_BIND_COPY)))
        return false;
    if (at <= first_grant)
        return true;
    if (!plan_is_grant(op))
        return false;
    for (size_t i = first_grant; i < at; i++) {
        size_t len = strlen(p->ops[i].dst);
        if (strncmp(op->dst, p->ops[i].dst, len) == 0 &&
            (op->dst[len] == '/' || op->dst[len] == '\0'))
            return false;
    }
    return true;
}

bool plan_is_parkable(const struct plan *p)
{
    if (p->backend != BACKEND_NATIVE || p->tier != TIER_FULL || p->terminal || p->host_network ||
        p->own_profile || p->apparmor || p->rootfs || p->oci ||
        plan_count_grants(p) > PLAN_PARKED_GRANTS)
        return false;
    size_t first_grant = 0;
    while (first_grant < p->n_ops && !plan_is_grant(&p->ops[first_grant]))
        first_grant++;
    for (size_t i = 0; i < p->n_ops; i++)
        if (!key_may_wait(p, i, first_grant))
            return false;
    for (size_t i = 0; i < p->n_fences; i++)
        if (p->fences[i].connects)
            return false;
    return true;
}

/* What of the way out is built into a guest's namespaces: what leads to the gate, and who listens
 * there. Whom its broker lets it reach comes with the order. */
static void key_net(const struct plan_net *net, struct buf *out)
{
    key_num(out, net != NULL);
    if (!net)
        return;
    key_num(out, net->any_port);
    key_num(out, net->n_routes);
    for (size_t i = 0; i < net->n_routes; i++) {
        key_bytes(out, net->routes[i].addr, sizeof(net->routes[i].addr));
        key_num(out, (uint64_t)net->routes[i].is_v4 << 8 | net->routes[i].prefix_len);
    }
    key_bytes(out, net->tcp_ports, net->n_tcp_ports * sizeof(*net->tcp_ports));
    key_bytes(out, net->udp_ports, net->n_udp_ports * sizeof(*net->udp_ports));
    key_num(out, plan_net_inner(net));
}

void plan_key(const struct plan *p, struct buf *out)
{
    key_num(out, p->tier);
    key_ops(p, out);
    key_filter(out, &p->filter);
    key_filter(out, &p->quiet_filter);
    key_num(out, p->filter_options.notify);
    key_text(out, p->cwd);
    key_num(out, p->host_uid);
    key_num(out, p->host_gid);
    key_num(out, (uint64_t)p->time_at_exec << 6 | (uint64_t)p->own_host_ids << 5 |
                     (uint64_t)p->time_ns << 4 | (uint64_t)p->host_network << 3 |
                     (uint64_t)p->writes_host << 2 | (uint64_t)p->hands_back_cwd << 1 |
                     p->scope_signals);
    key_num(out, (uint64_t)p->landlock_abi << 32 | p->cores);
    key_num(out, p->fence_light);
    key_net(p->net, out);
    key_groups(p, out);
}

static bool key_is_for_start(const char *variable)
{
    static const char *const names[] = {"PYTHON", "LD_",  "LC_",  "LANGUAGE=", "GLIBC_", "MALLOC_",
                                        "TZ",     "OMP_", "MKL_", "OPENBLAS_", "LANG=",  "HOME="};
    static const char *const usual[] = {"LANG=C.UTF-8", "HOME=" PLAN_HOME, "PYTHONPATH=.cordon"};
    for (size_t i = 0; i < ARRAY_SIZE(usual); i++)
        if (str_eq(variable, usual[i]))
            return false;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (str_starts(variable, names[i]))
            return true;
    return false;
}

bool plan_has_interpreter(const struct plan *p)
{
    if (!str_eq(p->argv[0], "python3") || !p->argv[1] || !p->argv[1][0] || p->argv[1][0] == '-' ||
        strchr(p->argv[1], '/') || strlen(p->argv[1]) > 200 || !str_eq(p->cwd, PLAN_HOME) ||
        (p->preload && strlen(p->preload) > 4000))
        return false;
    bool path = false;
    for (char **e = p->env; *e; e++) {
        path = path || str_eq(*e, "PATH=/usr/local/bin:/usr/bin:/bin");
        if (key_is_for_start(*e))
            return false;
    }
    return path;
}

void plan_key_interpreter(const struct plan *p, struct buf *out)
{
    key_text(out, p->argv[1]);
    key_text(out, p->preload);
}
