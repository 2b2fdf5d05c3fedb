/* Policy and host become a plan. Pure but for looking at the named host paths (stat), so that a
 * missing grant is an error before anything starts, and at the limits of the process itself. */
#include "plan/plan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/err.h"
#include "base/util.h"
#include "plan/plan_internal.h"

void *plan_grow(struct plan *p, void *array, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return array;
    size_t more = *cap ? *cap * 2 : 32;
    void *grown = arena_alloc(&p->arena, more * size);
    if (!grown)
        return NULL;
    if (n > 0)
        memcpy(grown, array, n * size);
    *cap = more;
    return grown;
}

static int plan_rlimit(struct plan *p, int resource, uint64_t value)
{
    struct plan_rlimit *r = plan_grow(p, p->rlimits, p->n_rlimits, &p->cap_rlimits, sizeof(*r));
    if (!r)
        return -1;
    p->rlimits = r;
    r[p->n_rlimits++] = (struct plan_rlimit){resource, value};
    return 0;
}

static void plan_limits(struct plan *p, const struct policy *policy)
{
    struct plan_limits *l = &p->limits;
    l->wall_ns = policy_num(policy, FIELD_TIME_LIMIT);
    l->cpu_ns = policy_num(policy, FIELD_CPU_TIME);
    l->memory_bytes = policy_num(policy, FIELD_MEMORY_LIMIT);
    l->cpu_percent = (unsigned)policy_num(policy, FIELD_CPU_LIMIT);
    l->processes = (unsigned)policy_num(policy, FIELD_PROCESSES);
    l->max_output = policy_num(policy, FIELD_MAX_OUTPUT);
    l->kill_on_output = policy_bool(policy, FIELD_KILL_ON_OUTPUT_LIMIT);
    l->disk_bytes = policy_num(policy, FIELD_DISK_LIMIT);
    l->max_files = policy_num(policy, FIELD_MAX_FILES);
    l->scratch_bytes = policy_num(policy, FIELD_SCRATCH_SIZE);
    l->scratch_inodes = policy_num(policy, FIELD_SCRATCH_INODES);
    if (l->disk_bytes && l->disk_bytes < l->scratch_bytes)
        l->scratch_bytes = l->disk_bytes;
    /* scratch pages are charged to the guest's memory: more than the limit could never be used */
    if (l->memory_bytes && l->memory_bytes < l->scratch_bytes)
        l->scratch_bytes = l->memory_bytes;
    p->scratch_exact = l->max_files != 0 || l->disk_bytes != 0;
}

#define PLAN_THREAD_STACK (UINT64_C(8) << 20)
#define PLAN_THREADS_UNLIMITED 256u
#define PLAN_NPROC_MARGIN 16u

static void plan_by_group(struct plan *p)
{
    const struct host_cgroups *g = &p->cgroups;
    bool v2 = g->v2[0] != '\0';
    p->by_group = (struct plan_held){
        .memory = g->memory[0] || (v2 && g->v2_memory),
        .pids = g->pids[0] || (v2 && g->v2_pids),
        .cpu = g->cpu[0] || (v2 && g->v2_cpu),
    };
    if (p->limits.cpu_percent && !p->by_group.cpu)
        p->cores = (p->limits.cpu_percent + 99) / 100;
}

/* Private memory one process may ask for where sampling holds the limit; a lid on what it can take
 * between two looks. It counts what was asked for, not what is used: room for runtimes that commit
 * more than they touch, and for a stack of each thread. Not RLIMIT_AS: the JVM, Go and Node reserve
 * gigabytes of address space. */
static uint64_t plan_data_limit(const struct plan_limits *l)
{
    uint64_t threads = l->processes ? MIN(l->processes, 1024u) : PLAN_THREADS_UNLIMITED;
    return MIN(l->memory_bytes, UINT64_MAX / 4) * 2 + threads * PLAN_THREAD_STACK;
}

/* The largest request for private memory that can succeed, 0: not known. */
static uint64_t plan_map_limit(const struct plan *p, const struct host *host)
{
    if (p->by_group.memory || p->own_kernel)
        return host->memory_bytes;
    uint64_t data = plan_data_limit(&p->limits);
    return host->memory_bytes ? MIN(data, host->memory_bytes) : data;
}

/* Nobody raises his own hard limit. A level's number may be more than this host allows and is then
 * lowered; one that was asked for is not. */
static int plan_check_descriptors(const struct policy *policy, struct cordon_err *err)
{
    char where[512];
    struct rlimit files;
    const struct origin *origin = &policy_value(policy, FIELD_FILE_DESCRIPTORS)->origin;
    uint64_t asked = policy_num(policy, FIELD_FILE_DESCRIPTORS);
    if (!policy_has(policy, FIELD_FILE_DESCRIPTORS) || origin->source == FROM_BUILTIN ||
        getrlimit(RLIMIT_NOFILE, &files) < 0 || asked <= files.rlim_max)
        return 0;
    policy_origin_place(origin, where, sizeof(where));
    err_set(err, CORDON_ERR_HOST, "plan", 0,
            "%s: file_descriptors = %" PRIu64 ": a process may have %" PRIu64 " here", where, asked,
            (uint64_t)files.rlim_max);
    return err_hint(err, "raise the hard limit (ulimit -Hn), or ask for less");
}

static int plan_rlimits(struct plan *p, const struct policy *policy)
{
    int r = 0;
    /* 1, not 0: with a piped core_pattern 0 still starts the handler, as host root, on guest data
     */
    r |= plan_rlimit(p, RLIMIT_CORE, 1);
    r |= plan_rlimit(p, RLIMIT_MEMLOCK, 8u << 20);
    r |= plan_rlimit(p, RLIMIT_RTPRIO, 0);
    r |= plan_rlimit(p, RLIMIT_NICE, 0);
    r |= plan_rlimit(p, RLIMIT_MSGQUEUE, 819200);
    r |= plan_rlimit(p, RLIMIT_SIGPENDING, 4096);
    if (policy_has(policy, FIELD_FILE_DESCRIPTORS))
        r |= plan_rlimit(p, RLIMIT_NOFILE, policy_num(policy, FIELD_FILE_DESCRIPTORS));
    if (policy_has(policy, FIELD_MAX_FILE_SIZE))
        r |= plan_rlimit(p, RLIMIT_FSIZE, policy_num(policy, FIELD_MAX_FILE_SIZE));
    if (p->limits.memory_bytes && !p->by_group.memory && !p->own_kernel)
        r |= plan_rlimit(p, RLIMIT_DATA, plan_data_limit(&p->limits));
    /* Counted per user namespace, so exact in tier full; pid 1 shares the id and is not counted
     * against the guest. A backstop where a pids group holds the limit already, and above it: the
     * kernel asks this limit first, and the group would never count a refusal. */
    if (p->limits.processes && p->tier == TIER_FULL && p->backend != BACKEND_DOCKER)
        r |= plan_rlimit(p, RLIMIT_NPROC,
                         p->limits.processes + 1 + (p->by_group.pids ? PLAN_NPROC_MARGIN : 0));
    if (p->process_rlimit)
        r |= plan_rlimit(p, RLIMIT_NPROC, p->process_rlimit);
    return r;
}

static int plan_env(struct plan *p, const struct policy *policy, const char *home, const char *tmp)
{
    const struct policy_value *env = policy_value(policy, FIELD_ENV);
    p->env = arena_alloc(&p->arena, (env->n_items + 8) * sizeof(char *));
    if (!p->env)
        return -1;
    size_t n = 0;
    p->env[n++] = arena_strdup(&p->arena, "PATH=/usr/local/bin:/usr/bin:/bin");
    p->env[n++] = arena_printf(&p->arena, "HOME=%s", home);
    p->env[n++] = arena_strdup(&p->arena, "USER=sandbox");
    p->env[n++] = arena_strdup(&p->arena, "LANG=C.UTF-8");
    p->env[n++] = arena_printf(&p->arena, "TMPDIR=%s", tmp);
    for (size_t i = 0; i < env->n_items; i++) {
        const struct policy_item *item = &env->items[i];
        char *text = arena_printf(&p->arena, "%s=%s", item->text, item->extra);
        if (!text)
            return -1;
        size_t len = strlen(item->text) + 1, at = 0;
        while (at < n && strncmp(p->env[at], text, len) != 0)
            at++;
        p->env[at] = text;
        if (at == n)
            n++;
    }
    for (size_t i = 0; i < n; i++)
        if (!p->env[i])
            return -1;
    return 0;
}

/* One process is the limit and no group counts: the filter holds it. gVisor's kernel is asked,
 * which would be too late for a first fork. */
static bool plan_is_alone(const struct plan *p)
{
    if (p->own_kernel)
        return p->oci->look.processes == 1;
    bool gvisor = p->container.runtime && str_eq(p->container.runtime, "runsc");
    return p->limits.processes == 1 && (!p->by_group.pids || gvisor);
}

static int plan_filters(struct plan *p, const struct policy *policy, const struct host *host,
                        struct cordon_err *err)
{
    struct seccomp_options *o = &p->filter_options;
    o->notify = p->tier == TIER_FULL || p->landlock_abi >= 1;
    o->refuse_memfd = p->limits.memory_bytes && !p->by_group.memory && !p->own_kernel;
    o->refuse_affinity = p->cores != 0;
    o->refuse_fork = plan_is_alone(p);
    if (p->limits.memory_bytes)
        o->map_limit = plan_map_limit(p, host);
    /* SysV segments outlive their mappings, where neither rlimits nor sampling see them */
    o->refuse_shared_ipc = o->refuse_memfd;
    o->refuse_suid_bits = p->writes_host;
    o->refuse_rulesets = p->writes_host && (p->limits.disk_bytes || p->limits.max_files);
    if (p->tier == TIER_LANDLOCK) {
        o->refuse_inet = true;
        o->refuse_shared_ipc = true;
        o->own_limits_only = true;
        o->refuse_new_session = !p->scope_signals;
    }
    const char *profile = policy_has(policy, FIELD_SECCOMP_PROFILE)
                              ? policy_text(policy, FIELD_SECCOMP_PROFILE)
                              : NULL;
    p->own_profile = profile != NULL;
    if (plan_build_filter(p, o, profile, &p->filter, err) < 0)
        return -1;
    if (p->tier == TIER_LANDLOCK && plan_landlock_filter(p, err) < 0)
        return -1;
    if (!o->notify)
        return 0;
    return seccomp_quiet(&p->filter, &p->quiet_filter, err);
}

/* A command that is not on the caller's own list is refused before anything starts. Both the name
 * and the path must be plain: a listed `python3` does not admit `./python3`. */
static int plan_check_binary(const struct policy *policy, const char *command,
                             struct cordon_err *err)
{
    const struct policy_value *v = policy_value(policy, FIELD_ALLOWED_BINARIES);
    if (!v->set)
        return 0;
    for (size_t i = 0; i < v->n_items; i++)
        if (str_eq(v->items[i].text, command))
            return 0;
    return err_set(err, CORDON_ERR_REJECTED, "policy", 0,
                   "command not allowed: %s (allowed_binaries)", command);
}

static bool plan_is_oci(const struct policy *policy)
{
    uint64_t backend = policy_num(policy, FIELD_BACKEND);
    return backend == BACKEND_OCI || backend == BACKEND_GVISOR;
}

static int plan_check_backend(const struct policy *policy, struct cordon_err *err)
{
    if (plan_is_oci(policy))
        return plan_check_network(policy, err); /* says itself what else it cannot do */
    if (policy_num(policy, FIELD_BACKEND) != BACKEND_NATIVE)
        return err_set(err, CORDON_ERR_HOST, "plan", 0, "backend %s is not available in this build",
                       policy_written(policy, FIELD_BACKEND));
    static const enum field_id absent[] = {FIELD_RUNTIME, FIELD_REUSE};
    for (size_t i = 0; i < ARRAY_SIZE(absent); i++) {
        const struct policy_value *v = policy_value(policy, absent[i]);
        if (v->set && !(policy_fields[absent[i]].type == FT_BOOL && !v->num)) {
            err_set(err, CORDON_ERR_HOST, "plan", 0, "%s: the native backend has no such thing",
                    policy_fields[absent[i]].key);
            return err_hint(err, "leave it out, or choose --backend docker%s",
                            absent[i] == FIELD_RUNTIME ? ", oci or gvisor" : "");
        }
    }
    return plan_check_network(policy, err);
}

/* The name is written to the kernel behind a word of ours: it must not be able to say more than a
 * name, and never that the guest leaves the profile Cordon itself is under. */
static int plan_apparmor(struct plan *p, const struct policy *policy, const struct host *host,
                         struct cordon_err *err)
{
    if (!policy_has(policy, FIELD_APPARMOR_PROFILE))
        return 0;
    const char *name = policy_text(policy, FIELD_APPARMOR_PROFILE);
    char where[512];
    const struct origin *origin = &policy_value(policy, FIELD_APPARMOR_PROFILE)->origin;
    int code = origin->source == FROM_COMMAND ? CORDON_ERR_USAGE : CORDON_ERR_CONFIG;
    policy_origin_place(origin, where, sizeof(where));
    bool plain = name[0] && name[0] != ' ' && strlen(name) <= PLAN_APPARMOR_MAX;
    for (const char *c = name; *c; c++)
        plain = plain && (unsigned char)*c >= 0x20 && *c != 0x7f;
    if (!plain)
        return err_set(err, code, "plan", 0,
                       "%s: apparmor_profile: not the name of a profile (at most %d printable "
                       "characters)",
                       where, PLAN_APPARMOR_MAX);
    if (strstr(name, "unconfined")) {
        err_set(err, code, "plan", 0, "%s: apparmor_profile = %s: that confines nothing", where,
                name);
        return err_hint(err, "leave it out to keep what Cordon itself is under");
    }
    if (!host->apparmor) {
        err_set(err, CORDON_ERR_HOST, "plan", 0,
                "%s: apparmor_profile = %s: this host has no AppArmor", where, name);
        return err_hint(err, "leave it out, or use a kernel with AppArmor switched on");
    }
    p->apparmor = arena_strdup(&p->arena, name);
    return p->apparmor ? 0 : err_nomem(err, "plan");
}

/* A copy: the guest's pid 1 wipes the memory the caller's own arguments live in. */
static char *const *plan_argv(struct plan *p, char *const *argv)
{
    size_t n = 0;
    while (argv[n])
        n++;
    char **copy = arena_alloc(&p->arena, (n + 1) * sizeof(char *));
    for (size_t i = 0; copy && i < n; i++)
        if (!(copy[i] = arena_strdup(&p->arena, argv[i])))
            return NULL;
    return copy;
}

/* The engine holds the limits by groups of its own; what it cannot is refused. */
static int plan_fill_container(struct plan *p, const struct plan_request *req,
                               struct cordon_err *err)
{
    p->cgroups = (struct host_cgroups){0};
    p->by_group = (struct plan_held){.memory = true, .pids = true, .cpu = true};
    if (plan_container(p, req, err) < 0)
        return -1;
    if (plan_rlimits(p, req->policy) < 0)
        return err_nomem(err, "plan");
    return plan_filters(p, req->policy, req->host, err);
}

static int plan_preload(struct plan *p, const struct policy *policy)
{
    const struct policy_value *v = policy_value(policy, FIELD_PRELOAD);
    for (size_t i = 0; i < v->n_items; i++)
        if (!(p->preload = arena_printf(&p->arena, "%s%s%s", p->preload ? p->preload : "",
                                        p->preload ? "," : "", v->items[i].text)))
            return -1;
    return 0;
}

/* Beside v1 groups that hold everything a v2 one would only kill, which the end of a pid namespace
 * does as well, and pid 1 would have to wait for it. */
static void plan_groups(struct plan *p, const struct host_cgroups *host)
{
    p->cgroups = *host;
    if (p->tier != TIER_FULL)
        host_cgroups_ask_v2(&p->cgroups);
    bool holds_all = host->memory[0] && host->pids[0] && host->cpu[0] && host->cpuacct[0];
    if (p->tier == TIER_FULL && host->kind == HOST_CGROUP_V1 && holds_all)
        p->cgroups.v2[0] = '\0';
}

static int plan_fill(struct plan *p, const struct plan_request *req, struct cordon_err *err)
{
    const struct policy *policy = req->policy;
    const struct host *host = req->host;

    p->tier = host->user_ns ? TIER_FULL : TIER_LANDLOCK;
    p->argv = plan_argv(p, req->argv);
    if (!p->argv)
        return err_nomem(err, "plan");
    p->command = p->argv[0];
    p->terminal = req->terminal;
    p->rows = req->rows;
    p->columns = req->columns;
    p->time_ns = host->time_ns;
    p->time_at_exec =
        host->kernel_major > 6 || (host->kernel_major == 6 && host->kernel_minor >= 3);
    plan_groups(p, &host->cgroups);
    p->own_host_ids = host->is_root;
    p->host_uid = host->is_root ? PLAN_ID_BASE : host->uid;
    p->host_gid = host->is_root ? PLAN_ID_BASE : host->gid;
    /* ABI 1 refuses every rename between folders; there the mounts alone are the wall */
    p->landlock_abi = p->tier == TIER_FULL && host->landlock_abi < 2 ? 0 : host->landlock_abi;
    p->scope_signals = p->landlock_abi >= 6;

    p->backend = (enum backend_kind)policy_num(policy, FIELD_BACKEND);
    if (plan_check_binary(policy, p->command, err) < 0 ||
        (p->backend != BACKEND_DOCKER && plan_check_backend(policy, err) < 0) ||
        plan_apparmor(p, policy, host, err) < 0)
        return -1;
    plan_limits(p, policy);
    if (plan_preload(p, policy) < 0)
        return err_nomem(err, "plan");
    if (p->backend == BACKEND_DOCKER)
        return plan_fill_container(p, req, err);
    if (p->backend == BACKEND_NATIVE && plan_check_descriptors(policy, err) < 0)
        return -1;
    plan_by_group(p);
    int r = p->tier == TIER_FULL ? plan_full(p, req, err) : plan_landlock(p, req, err);
    if (r < 0 || (plan_is_oci(policy) && plan_oci(p, req, err) < 0))
        return -1;
    if (plan_rlimits(p, policy) < 0)
        return err_nomem(err, "plan");
    if (p->oci && plan_oci_bundle(p, err) < 0)
        return -1;
    return plan_filters(p, policy, host, err);
}

int plan_make(const struct plan_request *request, struct plan **ret_plan, struct cordon_err *err)
{
    struct plan *p = calloc(1, sizeof(*p));
    if (!p)
        return err_nomem(err, "plan");
    p->is_handle = request->is_handle;
    if (plan_fill(p, request, err) < 0) {
        plan_free(p);
        return -1;
    }
    *ret_plan = p;
    return 0;
}

int plan_set_env(struct plan *p, const struct policy *policy, const char *home, const char *tmp,
                 struct cordon_err *err)
{
    return plan_env(p, policy, home, tmp) < 0 ? err_nomem(err, "plan") : 0;
}

void plan_free(struct plan *p)
{
    if (!p)
        return;
    seccomp_done(&p->filter);
    seccomp_done(&p->quiet_filter);
    arena_done(&p->arena);
    free(p);
}
