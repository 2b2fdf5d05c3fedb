/* A plan as text, and what text and JSON share. Pure; called by `cordon explain`. */
#include "plan/plan_print.h"

#include <linux/audit.h>
#include <string.h>
#include <sys/resource.h>

#include "base/util.h"
#include "policy/show.h"

#define TEXT_WIDTH 96
#define CPU_PERIOD_US 100000u /* as the groups have it */

/* ---- shared ---------------------------------------------------------------------------------- */

bool plan_print_call(const struct plan *plan, int nr, enum plan_print_call *ret_call)
{
    const struct seccomp_data zero = {.nr = nr, .arch = AUDIT_ARCH_X86_64};
    switch (seccomp_call_verdict(&plan->filter_options, nr)) {
    case SECCOMP_UNKNOWN: return false;
    case SECCOMP_REFUSED: *ret_call = PLAN_CALL_REFUSED; return true;
    case SECCOMP_CHECKED: *ret_call = PLAN_CALL_CHECKED; return true;
    case SECCOMP_ALLOWED: break;
    }
    bool allows = seccomp_eval(&plan->filter, &zero) == SECCOMP_RET_ALLOW;
    *ret_call = allows ? PLAN_CALL_ALLOWED : PLAN_CALL_NARROWED;
    return true;
}

const char *plan_print_rlimit(int resource)
{
    switch (resource) {
    case RLIMIT_CORE: return "core";
    case RLIMIT_CPU: return "cpu";
    case RLIMIT_DATA: return "data";
    case RLIMIT_AS: return "as";
    case RLIMIT_STACK: return "stack";
    case RLIMIT_FSIZE: return "fsize";
    case RLIMIT_MEMLOCK: return "memlock";
    case RLIMIT_NOFILE: return "nofile";
    case RLIMIT_NPROC: return "nproc";
    case RLIMIT_RTPRIO: return "rtprio";
    case RLIMIT_NICE: return "nice";
    case RLIMIT_MSGQUEUE: return "msgqueue";
    case RLIMIT_SIGPENDING: return "sigpending";
    default: return "unknown";
    }
}

const char *plan_print_op(enum plan_op_kind kind)
{
    switch (kind) {
    case PLAN_OP_DIR: return "dir";
    case PLAN_OP_SYMLINK: return "link";
    case PLAN_OP_FILE: return "file";
    case PLAN_OP_BIND: return "bind";
    case PLAN_OP_PROC: return "proc";
    case PLAN_OP_MASK: return "mask";
    case PLAN_OP_DEVPTS: return "devpts";
    case PLAN_OP_SCRATCH: return "scratch";
    case PLAN_OP_OVERLAY: return "overlay";
    }
    return "unknown";
}

const char *plan_print_namespace(const struct plan *plan, size_t index)
{
    static const char *const names[] = {"user", "mount",  "pid", "ipc",
                                        "uts",  "cgroup", "net", "time"};
    size_t at = 0;
    if (plan->tier != TIER_FULL)
        return NULL;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        bool on = str_eq(names[i], "net")    ? !plan->host_network
                  : str_eq(names[i], "time") ? plan->time_ns
                                             : true;
        if (on && at++ == index)
            return names[i];
    }
    return NULL;
}

struct groups {
    struct plan_print_group *rows;
    size_t n;
};

static void group_row(struct groups *g, const char *file, const char *folder, enum field_id field,
                      uint64_t value, const char *after)
{
    struct plan_print_group *row = &g->rows[g->n++];
    *row = (struct plan_print_group){.file = file, .folder = folder, .field = field};
    snprintf(row->value, sizeof(row->value), "%llu%s", (unsigned long long)value, after);
}

size_t plan_print_groups(const struct plan *plan, struct plan_print_group *ret_rows)
{
    const struct host_cgroups *h = &plan->cgroups;
    const struct plan_limits *l = &plan->limits;
    struct groups g = {.rows = ret_rows};
    uint64_t quota = (uint64_t)l->cpu_percent * (CPU_PERIOD_US / 100);
    bool v1 = h->kind == HOST_CGROUP_V1, v2 = h->kind == HOST_CGROUP_V2;

    if (l->memory_bytes && v1 && h->memory[0]) {
        group_row(&g, "memory.limit_in_bytes", h->memory, FIELD_MEMORY_LIMIT, l->memory_bytes, "");
        group_row(&g, "memory.memsw.limit_in_bytes", h->memory, FIELD_MEMORY_LIMIT, l->memory_bytes,
                  "");
    }
    if (l->memory_bytes && v2 && h->v2_memory) {
        group_row(&g, "memory.max", h->v2, FIELD_MEMORY_LIMIT, l->memory_bytes, "");
        group_row(&g, "memory.swap.max", h->v2, FIELD_MEMORY_LIMIT, 0, "");
    }
    if (l->processes && v1 && h->pids[0])
        group_row(&g, "pids.max", h->pids, FIELD_PROCESSES, l->processes, "");
    if (l->processes && v2 && h->v2_pids) /* Cordon's own pid 1 lives in the group too */
        group_row(&g, "pids.max", h->v2, FIELD_PROCESSES, (uint64_t)l->processes + 1, "");
    if (l->cpu_percent && v1 && h->cpu[0])
        group_row(&g, "cpu.cfs_quota_us", h->cpu, FIELD_CPU_LIMIT, quota, " of 100000");
    if (l->cpu_percent && v2 && h->v2_cpu)
        group_row(&g, "cpu.max", h->v2, FIELD_CPU_LIMIT, quota, " 100000");
    return g.n;
}

const char *plan_print_fallback(const struct plan *plan)
{
    const struct host_cgroups *h = &plan->cgroups;
    const struct plan_limits *l = &plan->limits;
    bool v1 = h->kind == HOST_CGROUP_V1, v2 = h->kind == HOST_CGROUP_V2;
    bool memory = !l->memory_bytes || (v1 && h->memory[0]) || (v2 && h->v2_memory);
    bool pids = !l->processes || (v1 && h->pids[0]) || (v2 && h->v2_pids);
    bool cpu = !l->cpu_percent || (v1 && h->cpu[0]) || (v2 && h->v2_cpu);
    static const char *const texts[] = {
        NULL,
        "cpu_limit by pausing",
        "processes by rlimit",
        "processes by rlimit, cpu_limit by pausing",
        "memory_limit by sampling",
        "memory_limit by sampling, cpu_limit by pausing",
        "memory_limit by sampling, processes by rlimit",
        "memory_limit by sampling, processes by rlimit, cpu_limit by pausing",
    };
    return texts[(memory ? 0 : 4) + (pids ? 0 : 2) + (cpu ? 0 : 1)];
}

bool plan_print_is_taken(const struct policy *policy, const char *assignment)
{
    const struct policy_value *v = policy_value(policy, FIELD_ENV);
    size_t len = strcspn(assignment, "=");
    bool taken = false; /* the last one given for a name counts */
    for (size_t i = 0; i < v->n_items; i++)
        if (strlen(v->items[i].text) == len && memcmp(v->items[i].text, assignment, len) == 0)
            taken = strchr(v->items[i].written, '=') == NULL;
    return taken;
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Paths and values may hold anything; a line stays one line. */
static void text_word(struct buf *out, const char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            buf_printf(out, "\\x%02x", (unsigned char)*text);
        else
            buf_char(out, *text);
    }
}

static void text_line(struct buf *out, const char *name, const char *value)
{
    buf_printf(out, "  %s = ", name);
    text_word(out, value);
    buf_char(out, '\n');
}

static void text_wall(const struct plan *p, struct buf *out)
{
    const char *name;
    buf_printf(out, "  tier = %s\n", p->tier == TIER_FULL ? "full" : "landlock");
    buf_str(out, "  namespaces =");
    for (size_t i = 0; (name = plan_print_namespace(p, i)) != NULL; i++)
        buf_printf(out, " %s", name);
    buf_str(out, p->tier == TIER_FULL ? "\n" : " none\n");
    if (p->missing)
        text_line(out, "missing", p->missing);
    if (p->own_host_ids)
        buf_printf(out, "  user = %s, on the host an id of its own from %u on\n",
                   p->tier == TIER_FULL ? "sandbox (1000)" : "dropped", PLAN_ID_BASE);
    else
        buf_printf(out, "  user = %s, on the host %u\n",
                   p->tier == TIER_FULL ? "sandbox (1000)" : "the caller", (unsigned)p->host_uid);
    buf_str(out, "  capabilities = none\n  no_new_privs = on\n");
    if (p->apparmor)
        text_line(out, "apparmor", p->apparmor);
    text_line(out, "cwd", p->cwd);
    if (p->private_dir)
        buf_str(out, "  (the private folder has another name in every run)\n");
}

static void text_op(const struct plan_op *op, const struct plan_limits *l, struct buf *out)
{
    buf_printf(out, "  %-7s /", plan_print_op(op->kind));
    text_word(out, op->dst);
    if (op->kind == PLAN_OP_SYMLINK) {
        buf_str(out, " -> ");
        text_word(out, op->src);
    } else if (op->kind == PLAN_OP_FILE) {
        buf_printf(out, " (%zu bytes)", op->data_len);
    } else if (op->kind == PLAN_OP_SCRATCH) {
        buf_printf(out, " rw, of one tmpfs with %llu bytes and %llu inodes in all",
                   (unsigned long long)l->scratch_bytes, (unsigned long long)l->scratch_inodes);
    } else if (op->kind == PLAN_OP_OVERLAY) {
        buf_str(out, " rw, over the host's ");
        text_word(out, op->src);
        buf_str(out, ", which stays as it is");
    } else if (op->kind == PLAN_OP_BIND) {
        buf_str(out, op->flags & PLAN_BIND_RW ? " rw" : " ro");
        if (op->src[0] != '/' || !str_eq(op->src + 1, op->dst)) {
            buf_str(out, ", the host's ");
            text_word(out, op->src);
        }
        if (op->flags & PLAN_BIND_GRANT)
            buf_str(out, ", granted");
        if (op->flags & PLAN_BIND_OPTIONAL)
            buf_str(out, ", if it exists");
    }
    buf_char(out, '\n');
}

static void text_mounts(const struct plan *p, struct buf *out)
{
    buf_str(out, "\nmounts\n");
    if (p->tier != TIER_FULL)
        buf_str(
            out,
            "  none: the guest stays in the host's tree, Landlock says what of it it may use\n");
    for (size_t i = 0; p->tier == TIER_FULL && i < p->n_ops; i++)
        text_op(&p->ops[i], &p->limits, out);
    if (p->n_files > 0)
        buf_str(out, "\nfiles copied into the working directory\n");
    for (size_t i = 0; i < p->n_files; i++) {
        buf_str(out, "  ");
        text_word(out, p->files[i].name);
        if (p->files[i].source) {
            buf_str(out, ", the host's ");
            text_word(out, p->files[i].source);
        } else {
            buf_printf(out, " (%zu bytes)", p->files[i].data_len);
        }
        buf_char(out, '\n');
    }
}

static void text_calls(const struct plan *p, enum plan_print_call wanted, const char *title,
                       struct buf *out)
{
    enum plan_print_call call;
    size_t n = 0, column = 0;
    for (int nr = 0; nr < PLAN_PRINT_CALLS; nr++)
        n += plan_print_call(p, nr, &call) && call == wanted;
    if (n == 0)
        return;
    buf_printf(out, "  %zu %s\n", n, title);
    for (int nr = 0; wanted != PLAN_CALL_ALLOWED && nr < PLAN_PRINT_CALLS; nr++) {
        if (!plan_print_call(p, nr, &call) || call != wanted)
            continue;
        const char *name = seccomp_call_name(nr);
        if (column && column + 1 + strlen(name) > TEXT_WIDTH) {
            buf_char(out, '\n');
            column = 0;
        }
        const char *gap = column ? " " : "      ";
        buf_printf(out, "%s%s", gap, name);
        column += strlen(gap) + strlen(name);
    }
    if (column)
        buf_char(out, '\n');
}

static void text_filter(const struct plan *p, struct buf *out)
{
    buf_str(out, "\nsystem calls\n");
    text_calls(p, PLAN_CALL_ALLOWED, "allowed", out);
    text_calls(p, PLAN_CALL_CHECKED, "depend on their arguments:", out);
    text_calls(
        p, PLAN_CALL_REFUSED,
        p->filter_options.notify ? "refused with EPERM and counted:" : "refused with EPERM:", out);
    text_calls(p, PLAN_CALL_NARROWED, "narrowed further by a profile or by the tier:", out);
    buf_printf(out, "  every other: ENOSYS; %u instructions\n", p->filter.len);
    for (const char *note = p->profile_notes; note && *note;) {
        size_t len = strcspn(note, "\n");
        buf_printf(out, "  note: %.*s\n", (int)len, note);
        note += len + (note[len] == '\n');
    }
}

const char *plan_fence_rights(const struct plan *p)
{
    return p->fence_light ? "all but to read, make and remove plain files and folders" : "all";
}

static void text_landlock(const struct plan *p, struct buf *out)
{
    buf_str(out, "\nLandlock\n");
    if (!p->landlock_abi) {
        buf_str(out, "  off: the mounts alone are the wall\n");
        return;
    }
    buf_printf(out, "  abi = %d%s\n", p->landlock_abi,
               p->scope_signals ? ", signals and abstract sockets stay inside" : "");
    buf_printf(out, "  rights = %s\n", plan_fence_rights(p));
    for (size_t i = 0; i < p->n_fences; i++) {
        buf_printf(out, "  %s ", p->fences[i].write ? "rw" : "ro");
        text_word(out, p->fences[i].path);
        buf_str(out, p->fences[i].optional ? ", if it exists\n" : "\n");
    }
}

static void text_groups(const struct plan *p, const struct policy *policy, struct buf *out)
{
    struct plan_print_group rows[PLAN_PRINT_GROUPS_MAX];
    size_t n = plan_print_groups(p, rows);
    const char *fallback = plan_print_fallback(p);
    buf_str(out, "\ncontrol groups\n");
    for (size_t i = 0; i < n; i++) {
        char origin[512];
        policy_origin_text(&policy_value(policy, rows[i].field)->origin, origin, sizeof(origin));
        buf_printf(out, "  %s = %s   %s = ", rows[i].file, rows[i].value,
                   policy_shown_key(rows[i].field));
        text_word(out, policy_written(policy, rows[i].field));
        buf_str(out, ", ");
        text_word(out, origin);
        buf_str(out, "   in ");
        text_word(out, rows[i].folder);
        buf_char(out, '\n');
    }
    if (fallback)
        buf_printf(out, "  no group: %s\n", fallback);
    if (p->cgroups.v2[0])
        text_line(out, "kill through a group in", p->cgroups.v2);
}

/* What the engine is asked for; the rest of its container is the image's. */
static void text_container(const struct plan *p, struct buf *out)
{
    text_line(out, "backend", "docker");
    text_line(out, "image", p->container.image ? p->container.image : "cordon-sandbox:latest");
    text_line(out, "runtime", p->container.runtime ? p->container.runtime : "the engine's default");
    text_line(out, "namespaces", "mount pid ipc uts cgroup net");
    text_line(out, "root", "the image's, read-only; /tmp and /home/sandbox are tmpfs");
    text_line(out, "user", "sandbox (1000; with grants the caller's own id, unless that is root)");
    text_line(out, "capabilities", "none");
    text_line(out, "no_new_privs", "on");
    text_line(out, "network",
              p->container.network != NETWORK_BRIDGE ? "none"
              : p->container.block_internal
                  ? "the engine's bridge; internal addresses are refused by packet rules inside"
                  : "the engine's bridge: internal addresses are not blocked");
    text_line(out, "limits", "memory with swap, pids and CPU by the engine's control groups");
    text_line(out, "cwd", p->cwd);
}

void plan_print_text(const struct plan *plan, const struct policy *policy, struct buf *out)
{
    bool container = plan->backend == BACKEND_DOCKER;
    buf_str(out, "wall\n");
    if (container)
        text_container(plan, out);
    else
        text_wall(plan, out);
    text_mounts(plan, out);
    if (!container)
        plan_print_net_text(plan, out);
    text_filter(plan, out);
    if (!container)
        text_landlock(plan, out);
    buf_str(out, "\nrlimits\n");
    for (size_t i = 0; i < plan->n_rlimits; i++)
        buf_printf(out, "  %s = %llu\n", plan_print_rlimit(plan->rlimits[i].resource),
                   (unsigned long long)plan->rlimits[i].value);
    if (!container)
        text_groups(plan, policy, out);
    buf_str(out, "\nenvironment\n");
    for (char **e = plan->env; *e; e++) {
        bool taken = plan_print_is_taken(policy, *e);
        buf_str(out, "  ");
        if (taken)
            buf_printf(out, "%.*s   (taken from the caller's environment)", (int)strcspn(*e, "="),
                       *e);
        else
            text_word(out, *e);
        buf_char(out, '\n');
    }
}
