/* A plan as JSON. Pure; called by `cordon explain --json`. */
#include "plan/plan_print.h"

#include <string.h>

#include "base/util.h"
#include "policy/show.h"

static void json_mounts(const struct plan *p, struct jsonw *j)
{
    jsonw_open(j, "mounts", '[');
    for (size_t i = 0; p->tier == TIER_FULL && i < p->n_ops; i++) {
        const struct plan_op *op = &p->ops[i];
        _cleanup_buf_ struct buf target = BUF_INIT(65536);
        buf_printf(&target, "/%s", op->dst);
        if (target.failed)
            j->out->failed = true;
        jsonw_open(j, NULL, '{');
        jsonw_str(j, "kind", plan_print_op(op->kind));
        jsonw_str(j, "target", target.data);
        if (op->src && op->kind != PLAN_OP_SCRATCH)
            jsonw_str(j, "source", op->src);
        if (op->kind == PLAN_OP_FILE)
            jsonw_uint(j, "bytes", op->data_len);
        if (op->kind == PLAN_OP_BIND || op->kind == PLAN_OP_SCRATCH)
            jsonw_bool(j, "writable", op->kind == PLAN_OP_SCRATCH || op->flags & PLAN_BIND_RW);
        if (op->kind == PLAN_OP_BIND) {
            jsonw_bool(j, "granted", op->flags & PLAN_BIND_GRANT);
            jsonw_bool(j, "optional", op->flags & PLAN_BIND_OPTIONAL);
        }
        jsonw_close(j, '}');
    }
    jsonw_close(j, ']');
    jsonw_open(j, "files", '[');
    for (size_t i = 0; i < p->n_files; i++) {
        jsonw_open(j, NULL, '{');
        jsonw_str(j, "name", p->files[i].name);
        if (p->files[i].source)
            jsonw_str(j, "source", p->files[i].source);
        else
            jsonw_uint(j, "bytes", p->files[i].data_len);
        jsonw_close(j, '}');
    }
    jsonw_close(j, ']');
}

static void json_calls(const struct plan *p, struct jsonw *j, const char *key,
                       enum plan_print_call wanted)
{
    enum plan_print_call call;
    jsonw_open(j, key, '[');
    for (int nr = 0; nr < PLAN_PRINT_CALLS; nr++)
        if (plan_print_call(p, nr, &call) && call == wanted)
            jsonw_str(j, NULL, seccomp_call_name(nr));
    jsonw_close(j, ']');
}

static void json_filter(const struct plan *p, struct jsonw *j)
{
    jsonw_open(j, "seccomp", '{');
    jsonw_uint(j, "instructions", p->filter.len);
    jsonw_bool(j, "counted", p->filter_options.notify);
    json_calls(p, j, "allowed", PLAN_CALL_ALLOWED);
    json_calls(p, j, "checked", PLAN_CALL_CHECKED);
    json_calls(p, j, "refused", PLAN_CALL_REFUSED);
    json_calls(p, j, "narrowed", PLAN_CALL_NARROWED);
    jsonw_str(j, "other", "ENOSYS");
    jsonw_open(j, "notes", '[');
    for (const char *note = p->profile_notes; note && *note;) {
        size_t len = strcspn(note, "\n");
        jsonw_bytes(j, NULL, note, len);
        note += len + (note[len] == '\n');
    }
    jsonw_close(j, ']');
    jsonw_close(j, '}');
}

static void json_landlock(const struct plan *p, struct jsonw *j)
{
    jsonw_open(j, "landlock", '{');
    jsonw_int(j, "abi", p->landlock_abi);
    jsonw_bool(j, "scoped", p->landlock_abi && p->scope_signals);
    jsonw_str(j, "rights", p->landlock_abi ? plan_fence_rights(p) : NULL);
    jsonw_open(j, "rules", '[');
    for (size_t i = 0; p->landlock_abi && i < p->n_fences; i++) {
        jsonw_open(j, NULL, '{');
        jsonw_str(j, "path", p->fences[i].path);
        jsonw_bool(j, "writable", p->fences[i].write);
        jsonw_bool(j, "optional", p->fences[i].optional);
        if (p->fences[i].connects)
            jsonw_bool(j, "socket", true);
        jsonw_close(j, '}');
    }
    jsonw_close(j, ']');
    jsonw_close(j, '}');
}

static void json_groups(const struct plan *p, const struct policy *policy, struct jsonw *j)
{
    struct plan_print_group rows[PLAN_PRINT_GROUPS_MAX];
    size_t n = plan_print_groups(p, rows);
    static const char *const kinds[] = {"none", "v1", "v2"};

    jsonw_open(j, "cgroup", '{');
    jsonw_str(j, "kind", kinds[p->cgroups.kind]);
    jsonw_open(j, "values", '[');
    for (size_t i = 0; i < n; i++) {
        char origin[512];
        policy_origin_text(&policy_value(policy, rows[i].field)->origin, origin, sizeof(origin));
        jsonw_open(j, NULL, '{');
        jsonw_str(j, "file", rows[i].file);
        jsonw_str(j, "value", rows[i].value);
        jsonw_str(j, "folder", rows[i].folder);
        jsonw_str(j, "key", policy_shown_key(rows[i].field));
        jsonw_str(j, "origin", origin);
        jsonw_close(j, '}');
    }
    jsonw_close(j, ']');
    jsonw_str(j, "without_group", plan_print_fallback(p));
    jsonw_str(j, "kill", p->cgroups.v2[0] ? p->cgroups.v2 : NULL);
    jsonw_close(j, '}');
}

static void json_environment(const struct plan *p, const struct policy *policy, struct jsonw *j)
{
    jsonw_open(j, "environment", '[');
    for (char **e = p->env; *e; e++) {
        size_t len = strcspn(*e, "=");
        bool taken = plan_print_is_taken(policy, *e);
        jsonw_open(j, NULL, '{');
        jsonw_bytes(j, "name", *e, len);
        jsonw_str(j, "value", taken || !(*e)[len] ? NULL : *e + len + 1);
        jsonw_bool(j, "taken", taken);
        jsonw_close(j, '}');
    }
    jsonw_close(j, ']');
}

static void json_wall(const struct plan *p, struct jsonw *j)
{
    const char *name;
    bool container = p->backend == BACKEND_DOCKER;
    jsonw_str(j, "tier", container ? NULL : p->tier == TIER_FULL ? "full" : "landlock");
    if (container) {
        jsonw_str(j, "backend", "docker");
        jsonw_str(j, "image", p->container.image);
        jsonw_str(j, "runtime", p->container.runtime);
    }
    jsonw_open(j, "namespaces", '[');
    for (size_t i = 0; (name = plan_print_namespace(p, i)) != NULL; i++)
        jsonw_str(j, NULL, name);
    jsonw_close(j, ']');
    jsonw_str(j, "missing", p->missing);
    jsonw_bool(j, "own_host_ids", p->own_host_ids);
    jsonw_uint(j, "host_uid", p->host_uid);
    jsonw_str(j, "apparmor", p->apparmor);
    jsonw_str(j, "cwd", p->cwd);
    plan_print_net_json(p, j);
}

void plan_print_json(const struct plan *plan, const struct policy *policy, struct jsonw *out)
{
    json_wall(plan, out);
    json_mounts(plan, out);
    json_filter(plan, out);
    json_landlock(plan, out);
    jsonw_open(out, "rlimits", '{');
    for (size_t i = 0; i < plan->n_rlimits; i++)
        jsonw_uint(out, plan_print_rlimit(plan->rlimits[i].resource), plan->rlimits[i].value);
    jsonw_close(out, '}');
    jsonw_open(out, "scratch", '{');
    jsonw_uint(out, "bytes", plan->limits.scratch_bytes);
    jsonw_uint(out, "inodes", plan->limits.scratch_inodes);
    jsonw_close(out, '}');
    json_groups(plan, policy, out);
    json_environment(plan, policy, out);
}
