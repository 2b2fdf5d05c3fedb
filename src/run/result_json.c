/* The result as JSON: every key of SPEC section 6, in its order. Pure. */
#include <arpa/inet.h>
#include <signal.h>
#include <string.h>

#include "base/jsonw.h"
#include "base/utf8.h"
#include "base/util.h"
#include "run/result.h"

static void json_stream(struct jsonw *j, const char *name, const char *encoding_name,
                        const struct result_stream *s)
{
    const char *data = s->data ? s->data : "";
    /* a cut may fall inside a character: what is left of it goes too, so that text stays text */
    size_t len = s->len - (s->truncated ? utf8_unfinished(data, s->len) : 0);
    bool text = jsonw_is_utf8(data, len);
    if (text)
        jsonw_bytes(j, name, data, len);
    else
        jsonw_base64(j, name, data, s->len);
    jsonw_str(j, encoding_name, text ? "utf-8" : "base64");
}

static void json_usage(struct jsonw *j, const struct result *r)
{
    jsonw_ms(j, "wall_ms", r->wall_ns);
    jsonw_ms(j, "cpu_user_ms", r->usage.cpu_user_ns);
    jsonw_ms(j, "cpu_sys_ms", r->usage.cpu_sys_ns);
    jsonw_uint(j, "peak_memory_bytes", r->usage.peak_memory_bytes);
    jsonw_uint(j, "processes_peak", r->usage.processes_peak);
    jsonw_uint(j, "oom_kills", r->usage.oom_kills);
    jsonw_ms(j, "throttled_ms", r->usage.throttled_ns);
}

static void json_denial(struct jsonw *j, const char *kind, const char *target, const char *rule,
                        uint64_t count)
{
    jsonw_open(j, NULL, '{');
    jsonw_str(j, "kind", kind);
    jsonw_str(j, "target", target);
    jsonw_str(j, "rule", rule);
    jsonw_uint(j, "count", count);
    jsonw_close(j, '}');
}

static void json_refused(struct jsonw *j, const struct backend_outcome *o)
{
    for (size_t i = 0; i < o->n_refused; i++) {
        const struct backend_refused *to = &o->refused[i];
        struct netwire_record where = {.port = to->port};
        char target[320];
        inet_ntop(to->is_v4 ? AF_INET : AF_INET6, to->addr, where.address, sizeof(where.address));
        netlog_target(&where, target, sizeof(target));
        json_denial(j, "network", target, "block_internal", to->count);
    }
    if (o->refused_more)
        json_denial(j, "network", "other", "block_internal", o->refused_more);
}

static void json_denials(struct jsonw *j, const struct result *r)
{
    const struct backend_outcome *o = r->outcome;
    const struct netlog *log = r->netlog;
    jsonw_open(j, "denials", '[');
    for (size_t i = 0; o && i < o->n_denials; i++) {
        const char *name = o->denials[i].nr >= 0 ? seccomp_call_name(o->denials[i].nr) : NULL;
        json_denial(j, "syscall", name ? name : "unknown", "default", o->denials[i].count);
    }
    if (o)
        json_refused(j, o);
    for (size_t i = 0; log && i < log->n_denials; i++)
        json_denial(j, "network", log->denials[i].target, log->denials[i].rule,
                    log->denials[i].count);
    if (log && log->other_denials)
        json_denial(j, "network", "other", "default", log->other_denials);
    jsonw_close(j, ']');
}

/* What was tried on the network, in the order in which it ended. */
static void json_network(struct jsonw *j, const struct netlog *log)
{
    jsonw_open(j, "network", '{');
    jsonw_open(j, "attempts", '[');
    for (size_t i = 0; i < log->n_attempts; i++) {
        const struct netwire_record *r = &log->attempts[i];
        jsonw_open(j, NULL, '{');
        jsonw_ms(j, "time_ms", r->time_ns > log->begin_ns ? r->time_ns - log->begin_ns : 0);
        jsonw_str(j, "name", r->name[0] ? r->name : NULL);
        jsonw_str(j, "address", r->address[0] ? r->address : NULL);
        if (r->port)
            jsonw_uint(j, "port", r->port);
        else
            jsonw_null(j, "port");
        jsonw_str(j, "protocol", netlog_protocol_name(r));
        if (r->is_inward)
            jsonw_bool(j, "published", true);
        jsonw_str(j, "verdict", netlog_verdict_name(r));
        jsonw_str(j, "rule", r->rule);
        jsonw_uint(j, "bytes_up", r->bytes_up);
        jsonw_uint(j, "bytes_down", r->bytes_down);
        jsonw_ms(j, "duration_ms", r->duration_ns);
        jsonw_close(j, '}');
    }
    jsonw_close(j, ']');
    jsonw_uint(j, "attempts_dropped", log->dropped);
    jsonw_bool(j, "all_observed", !log->is_blind);
    jsonw_uint(j, "bytes_up", log->bytes_up);
    jsonw_uint(j, "bytes_down", log->bytes_down);
    jsonw_close(j, '}');
}

/* A container: what the engine was asked for and granted, and what pid 1 saw of it. */
static void json_container(struct jsonw *j, const struct result *r)
{
    static const char *const on[] = {"mount_ns", "pid_ns", "net_ns",
                                     "ipc_ns",   "uts_ns", "cgroup_ns"};
    const struct plan *p = r->plan;
    const struct backend_outcome *o = r->outcome;
    jsonw_str(j, "user_ns", o->user_ns ? "on" : "off");
    for (size_t i = 0; i < ARRAY_SIZE(on); i++)
        jsonw_str(j, on[i], "on");
    jsonw_str(j, "time_ns", "off");
    jsonw_str(j, "seccomp", "on");
    jsonw_str(j, "landlock", "off");
    jsonw_str(j, "cgroup", o->cgroup[0] ? o->cgroup : "none");
    if (p->apparmor)
        jsonw_str(j, "apparmor", p->apparmor);
    jsonw_str(j, "no_new_privs", "on");
    jsonw_str(j, "caps", "none");
    jsonw_str(j, "denials", o->denials_unobserved ? "not observed" : "observed");
    char limits[96];
    snprintf(limits, sizeof(limits), "memory %s, cpu %s, processes %s",
             o->memory_sampled ? "sampled" : "by cgroup", o->cpu_sampled ? "sampled" : "by cgroup",
             o->processes_sampled ? "sampled" : "by cgroup");
    jsonw_str(j, "limits", limits);
    jsonw_str(j, "root", "read-only image");
    if (p->container.runtime)
        jsonw_str(j, "runtime", p->container.runtime);
    jsonw_str(j, "network",
              p->container.network != NETWORK_BRIDGE ? "none"
              : !o->internal_blocked                 ? "bridge, internal addresses not blocked"
              : o->refused_unobserved ? "bridge, internal addresses blocked, refusals not recorded"
                                      : "bridge, internal addresses blocked");
    if (o->reused)
        jsonw_str(j, "reuse",
                  "one container for many commands: weaker, they see each other's traces");
}

/* What stood around the host's own files. */
static void result_json_files(struct jsonw *j, const struct result *r)
{
    const struct plan *p = r->plan;
    char text[128], unplaced[48] = "";
    if (r->workspace_mode)
        jsonw_str(j, "workspace", r->workspace_mode);
    if (!p->covers_sockets)
        return;
    if (p->n_unplaced)
        snprintf(unplaced, sizeof(unplaced), "%u of unknown place and ", p->n_unplaced);
    if (p->landlock_abi >= PLAN_ABI_SOCKETS)
        snprintf(text, sizeof(text), "refused");
    else
        snprintf(text, sizeof(text), "%u known in grants covered, %slater ones not", p->n_sockets,
                 unplaced);
    jsonw_str(j, "host_sockets", text);
}

/* What stood around the guest. With no start there was no wall, and it says so. */
void result_json_enforcement(struct jsonw *j, const struct result *r)
{
    static const char *const namespaces[] = {"user_ns", "mount_ns", "pid_ns",    "net_ns",
                                             "ipc_ns",  "uts_ns",   "cgroup_ns", "time_ns"};
    const struct plan *p = r->plan;
    const struct backend_outcome *o = r->outcome;
    jsonw_open(j, "enforcement", '{');
    static const char *const backends[] = {[BACKEND_NATIVE] = "native",
                                           [BACKEND_DOCKER] = "docker",
                                           [BACKEND_GVISOR] = "gvisor",
                                           [BACKEND_OCI] = "oci"};
    bool container = p && p->backend == BACKEND_DOCKER;
    jsonw_str(j, "backend", backends[r->backend]);
    jsonw_str(j, "tier", !p || container ? NULL : p->tier == TIER_FULL ? "full" : "landlock");
    jsonw_open(j, "layers", '{');
    if (container && o && o->started_ns)
        json_container(j, r);
    if (container)
        p = NULL; /* the rest is the native wall's */
    for (size_t i = 0; p && i < ARRAY_SIZE(namespaces); i++) {
        bool on = p->tier == TIER_FULL;
        if (str_eq(namespaces[i], "net_ns"))
            on = on && !p->host_network;
        if (str_eq(namespaces[i], "time_ns"))
            on = on && p->time_ns;
        jsonw_str(j, namespaces[i], on ? "on" : "off");
    }
    if (p) {
        char landlock[32];
        snprintf(landlock, sizeof(landlock), "on (abi %d)", p->landlock_abi);
        jsonw_str(j, "seccomp", "on");
        jsonw_str(j, "landlock", p->landlock_abi ? landlock : "off");
        if (p->landlock_abi)
            jsonw_str(j, "landlock_rights", plan_fence_rights(p));
        jsonw_str(j, "cgroup", o && o->cgroup[0] ? o->cgroup : "none");
        if (p->apparmor)
            jsonw_str(j, "apparmor", p->apparmor);
        if (p->net || p->host_network)
            jsonw_str(j, "network", p->net ? "broker" : "host");
        jsonw_str(j, "no_new_privs", "on");
        jsonw_str(j, "caps", "none");
        jsonw_str(j, "denials", o && o->denials_unobserved ? "not observed" : "observed");
        char limits[96];
        snprintf(limits, sizeof(limits), "memory %s, cpu %s, processes %s",
                 p->by_group.memory ? "by cgroup" : "sampled",
                 p->by_group.cpu ? "by cgroup" : "sampled",
                 p->own_kernel      ? "sampled"
                 : p->by_group.pids ? "by cgroup"
                                    : "by rlimit");
        jsonw_str(j, "limits", limits);
        if (p->missing)
            jsonw_str(j, "missing", p->missing);
        if (p->oci)
            jsonw_str(j, "runtime", p->oci->name);
        if (p->rootfs)
            jsonw_str(j, "root", "read-only image");
        result_json_files(j, r);
    }
    jsonw_close(j, '}');
    jsonw_close(j, '}');
}

static void json_outputs(struct jsonw *j, const struct collect *outputs)
{
    jsonw_open(j, "outputs", '[');
    for (size_t i = 0; i < outputs->n; i++) {
        const struct collect_row *row = &outputs->rows[i];
        jsonw_open(j, NULL, '{');
        jsonw_str(j, "path", row->path);
        jsonw_uint(j, "size", row->size);
        if (row->skipped)
            jsonw_str(j, "skipped", row->skipped);
        jsonw_close(j, '}');
    }
    jsonw_close(j, ']');
}

/* A name that is not UTF-8 comes twice: readable, and exact as base64. */
void result_json_changes(struct jsonw *j, const struct tree_changes *changes)
{
    jsonw_open(j, "changed_files", '[');
    for (size_t i = 0; changes && i < changes->n; i++) {
        const struct tree_change *c = &changes->list[i];
        size_t len = strlen(c->path);
        jsonw_open(j, NULL, '{');
        jsonw_bytes(j, "path", c->path, len);
        if (!jsonw_is_utf8(c->path, len))
            jsonw_base64(j, "path_base64", c->path, len);
        jsonw_str(j, "kind", tree_kind_name(c->kind));
        if (c->omitted)
            jsonw_bool(j, "omitted", true);
        if (c->is_protected)
            jsonw_bool(j, "protected", true);
        jsonw_close(j, '}');
    }
    if (changes && changes->truncated) {
        jsonw_open(j, NULL, '{');
        jsonw_str(j, "path", "");
        jsonw_str(j, "kind", "truncated");
        jsonw_close(j, '}');
    }
    jsonw_close(j, ']');
}

void result_json(const struct result *r, struct buf *out)
{
    struct jsonw j = {.out = out};
    jsonw_open(&j, NULL, '{');
    jsonw_int(&j, "version", 1);
    jsonw_str(&j, "verdict", result_verdict_name(r->verdict));
    jsonw_int(&j, "exit_code", r->exit_code);
    if (r->signal)
        jsonw_int(&j, "signal", r->signal);
    else
        jsonw_null(&j, "signal");
    jsonw_bool(&j, "timed_out", result_timed_out(r));
    json_stream(&j, "stdout", "stdout_encoding", &r->out[0]);
    json_stream(&j, "stderr", "stderr_encoding", &r->out[1]);
    jsonw_bool(&j, "stdout_truncated", r->out[0].truncated);
    jsonw_bool(&j, "stderr_truncated", r->out[1].truncated);
    jsonw_uint(&j, "stdout_bytes", r->out[0].bytes);
    jsonw_uint(&j, "stderr_bytes", r->out[1].bytes);
    json_usage(&j, r);
    if (r->limit_name) {
        jsonw_open(&j, "limit", '{');
        jsonw_str(&j, "name", r->limit_name);
        jsonw_str(&j, "value", r->limit_value);
        if (r->overshoot_bytes)
            jsonw_uint(&j, "overshoot_bytes", r->overshoot_bytes);
        jsonw_close(&j, '}');
    } else {
        jsonw_null(&j, "limit");
    }
    jsonw_str(&j, "error", r->error[0] ? r->error : NULL);
    if (r->stage)
        jsonw_str(&j, "stage", r->stage);
    json_denials(&j, r);
    if (r->netlog)
        json_network(&j, r->netlog);
    result_json_enforcement(&j, r);
    result_json_changes(&j, r->changes);
    jsonw_str(&j, "diff", r->diff);
    if (r->workspace_id)
        jsonw_str(&j, "workspace_id", r->workspace_id);
    if (r->outputs)
        json_outputs(&j, r->outputs);
    jsonw_close(&j, '}');
}
