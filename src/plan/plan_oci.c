/* The same plan for an OCI runtime: the operations on the guest's root become a bundle. What the
 * runtime has no word for (one tmpfs with one total, mapped owners, recursive read-only, an
 * overlay, the filter with its listener) is prepared by ours before it starts or done by ours
 * inside, so that no operation is honoured less here than by the native wall. Pure but for finding
 * the runtime. */
#include "plan/plan_internal.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/jsonw.h"
#include "base/util.h"
#include "plan/plan_print.h"

#define CONFIG_MAX (4u << 20)

static const char *const oci_names[] = {"runc", "crun", "runsc"};

/* By fixed folders and only what root owns: the runtime runs before the wall stands. */
static int oci_find(struct plan *p, struct plan_oci *o, struct cordon_err *err)
{
    static const char *const folders[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
                                          "/usr/bin",        "/sbin",          "/bin"};
    struct stat st;
    for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
        const char *path = arena_printf(&p->arena, "%s/%s", folders[i], o->name);
        if (!path)
            return err_nomem(err, "plan");
        if (stat(path, &st) < 0 || !S_ISREG(st.st_mode) || !(st.st_mode & S_IXOTH))
            continue;
        if (st.st_uid != 0 || (st.st_mode & (S_IWGRP | S_IWOTH)))
            return err_set(err, CORDON_ERR_HOST, "plan", 0,
                           "runtime %s: others than root can change it", path);
        o->path = path;
        return 0;
    }
    err_set(err, CORDON_ERR_HOST, "plan", 0, "runtime %s is not installed", o->name);
    return err_hint(err, "install the package %s, or choose another with --runtime", o->name);
}

/* The caller's name in /etc/passwd, or "": a range can be given to the number as well. */
static void oci_user_name(uid_t uid, char *ret_name, size_t size)
{
    _cleanup_fclose_ FILE *f = fopen("/etc/passwd", "re");
    char line[1024];
    *ret_name = '\0';
    while (f && fgets(line, sizeof(line), f)) {
        char *save = NULL, *name = strtok_r(line, ":", &save);
        const char *password = strtok_r(NULL, ":", &save), *id = strtok_r(NULL, ":", &save);
        if (name && password && id && strtoul(id, NULL, 10) == uid) {
            snprintf(ret_name, size, "%s", name);
            return;
        }
    }
}

/* First id of the caller's own range in /etc/subuid or /etc/subgid; 0: there is none. */
static unsigned oci_sub_id(const char *file, const char *user, uid_t uid)
{
    _cleanup_fclose_ FILE *f = fopen(file, "re");
    char line[512], id[16];
    snprintf(id, sizeof(id), "%u", (unsigned)uid);
    while (f && fgets(line, sizeof(line), f)) {
        char *save = NULL, *name = strtok_r(line, ":", &save);
        const char *first = strtok_r(NULL, ":", &save), *count = strtok_r(NULL, ":\n", &save);
        if (name && first && count && (str_eq(name, id) || (*user && str_eq(name, user))) &&
            strtoul(count, NULL, 10) >= 1)
            return (unsigned)strtoul(first, NULL, 10);
    }
    return 0;
}

/* A runtime needs a root of its own beside the guest's id. Root has ids enough; others may own a
 * range. gVisor's users exist in its own kernel: it can do with one id, but then no file outside
 * can be given to the guest's. */
static int oci_ids(const struct plan *p, const struct plan_request *req, struct plan_oci *o,
                   struct cordon_err *err)
{
    if (p->own_host_ids)
        return 0;
    char name[256];
    oci_user_name(p->host_uid, name, sizeof(name));
    o->sub_uid = oci_sub_id("/etc/subuid", name, p->host_uid);
    o->sub_gid = oci_sub_id("/etc/subgid", name, p->host_uid);
    if (o->sub_uid && o->sub_gid && access("/usr/bin/newuidmap", X_OK) == 0)
        return 0;
    const char *what = o->runtime != PLAN_RUNTIME_RUNSC ? "to run at all"
                       : p->writes_host                 ? "for writable host files"
                       : p->scratch_exact               ? "for disk_limit and max_files"
                       : p->n_files || req->n_files     ? "to put files into the guest"
                       : p->hands_back_cwd              ? "to collect files"
                                                        : NULL;
    o->alone = true;
    if (!what)
        return 0;
    err_set(err, CORDON_ERR_HOST, "plan", 0,
            "runtime %s without root needs a second id beside the caller's %s: newuidmap with a "
            "range in /etc/subuid and /etc/subgid",
            o->name, what);
    return err_hint(err, "install uidmap and add a range (usermod --add-subuids), or use "
                         "--backend native");
}

/* gVisor counts and spends for itself: its kernel is made of ordinary processes that live inside
 * the same limits. Memory below what it takes to start is refused. Processes are held by pid 1,
 * which asks that kernel, and outside by a bound on its own tasks, which is coarse; one process
 * alone by the filter. */
#define GVISOR_MEMORY (UINT64_C(64) << 20)
/* a runtime that was never loaded before, on a busy machine */
#define OCI_SETUP_NS (UINT64_C(60) * 1000000000)
#define GVISOR_TASKS(processes) ((processes)*16u + 1024u) /* 8 each at rest */

static int oci_gvisor_limits(struct plan *p, struct plan_oci *o, struct cordon_err *err)
{
    struct plan_limits *l = &p->limits;
    if (l->memory_bytes && l->memory_bytes < GVISOR_MEMORY) {
        err_set(err, CORDON_ERR_HOST, "plan", 0,
                "memory_limit: gVisor's own kernel needs 64M of it");
        return err_hint(err, "raise it, or use another backend");
    }
    o->look.memory_bytes = p->by_group.memory ? 0 : l->memory_bytes;
    o->look.processes = l->processes;
    /* whole cores are given by affinity */
    o->look.cpu_percent = p->by_group.cpu || l->cpu_percent % 100 == 0 ? 0 : l->cpu_percent;
    if (l->processes)
        l->processes = GVISOR_TASKS(MIN(l->processes, 1u << 20));
    return 0;
}

/* What this wall cannot do is refused here; everything else of the plan it does. */
static int oci_check(const struct plan *p, const struct plan_request *req, const struct plan_oci *o,
                     struct cordon_err *err)
{
    const char *what = NULL;
    if (p->tier != TIER_FULL)
        return err_set(err, CORDON_ERR_HOST, "plan", 0,
                       "backend %s needs user namespaces, which are refused here: %s", o->wall,
                       req->host->user_ns_why);
    if (str_eq(o->wall, "gvisor") && o->runtime != PLAN_RUNTIME_RUNSC)
        return err_set(err, CORDON_ERR_CONFIG, "plan", 0, "backend gvisor has one runtime: runsc");
    bool gvisor = o->runtime == PLAN_RUNTIME_RUNSC;
    if (policy_bool(req->policy, FIELD_REUSE))
        what = "reuse";
    else if (gvisor && p->terminal)
        what = "a terminal";
    else if (gvisor && p->apparmor)
        what = "an AppArmor profile";
    if (!what)
        return 0;
    err_set(err, CORDON_ERR_HOST, "plan", 0, "%s: not possible with backend %s and runtime %s",
            what, o->wall, o->name);
    return err_hint(err, "--backend %s does it", str_eq(what, "reuse") ? "docker" : "native");
}

static void oci_strings(struct jsonw *j, const char *key, const char *const *list, size_t n)
{
    jsonw_open(j, key, '[');
    for (size_t i = 0; i < n; i++)
        jsonw_str(j, NULL, list[i]);
    jsonw_close(j, ']');
}

bool plan_oci_is_said(const struct plan *p, const struct plan_rlimit *limit)
{
    switch (limit->resource) {
    case RLIMIT_CORE:
    case RLIMIT_MEMLOCK:
    case RLIMIT_RTPRIO:
    case RLIMIT_NICE:
    case RLIMIT_MSGQUEUE:
    case RLIMIT_SIGPENDING: return p->own_kernel;
    default: return false;
    }
}

static void oci_rlimits(struct jsonw *j, const struct plan *p)
{
    jsonw_open(j, "rlimits", '[');
    for (size_t i = 0; i < p->n_rlimits; i++) {
        const struct plan_rlimit *r = &p->rlimits[i];
        if (!plan_oci_is_said(p, r))
            continue;
        char type[32] = "RLIMIT_";
        const char *name = plan_print_rlimit(r->resource);
        for (size_t at = strlen(type); *name && at < sizeof(type) - 1; at++)
            type[at] = (char)toupper((unsigned char)*name++);
        jsonw_open(j, NULL, '{');
        jsonw_str(j, "type", type);
        jsonw_uint(j, "hard", r->value);
        jsonw_uint(j, "soft", r->value);
        jsonw_close(j, '}');
    }
    jsonw_close(j, ']');
}

/* pid 1 is the guest's id without a capability; under gVisor it is root of that kernel, see
 * backend/oci/inside.c. */
static void oci_process(struct jsonw *j, const struct plan *p)
{
    static const char *const args[] = {PLAN_OCI_INIT}, *const env[] = {"PATH=/usr/bin:/bin"};
    static const char *const sets[] = {"effective", "permitted", "bounding", "inheritable",
                                       "ambient"};
    static const char *const rights[] = {"CAP_KILL", "CAP_SETGID", "CAP_SETUID"};
    size_t n_sets = p->own_kernel ? 2 : 0; /* that have any */
    jsonw_open(j, "process", '{');
    jsonw_bool(j, "terminal", false);
    jsonw_open(j, "user", '{');
    jsonw_uint(j, "uid", p->own_kernel ? 0 : PLAN_GUEST_UID);
    jsonw_uint(j, "gid", p->own_kernel ? 0 : PLAN_GUEST_GID);
    jsonw_uint(j, "umask", 022);
    jsonw_close(j, '}');
    oci_strings(j, "args", args, ARRAY_SIZE(args));
    oci_strings(j, "env", env, ARRAY_SIZE(env));
    jsonw_str(j, "cwd", p->own_kernel ? "/" : p->cwd);
    jsonw_bool(j, "noNewPrivileges", true);
    jsonw_open(j, "capabilities", '{');
    for (size_t i = 0; i < ARRAY_SIZE(sets); i++)
        oci_strings(j, sets[i], rights, i < n_sets ? ARRAY_SIZE(rights) : 0);
    jsonw_close(j, '}');
    oci_rlimits(j, p);
    jsonw_close(j, '}');
}

static void oci_mount(struct jsonw *j, const char *dst, const char *type, const char *src,
                      const char *const *options, size_t n)
{
    jsonw_open(j, NULL, '{');
    jsonw_str(j, "destination", dst);
    jsonw_str(j, "type", type);
    jsonw_str(j, "source", src);
    oci_strings(j, "options", options, n);
    jsonw_close(j, '}');
}

/* A place that ours has prepared, with its flags: the runtime only puts it where it belongs. */
static int oci_bind(struct plan *p, struct jsonw *j, const struct plan_op *op, const char *src,
                    bool write, struct cordon_err *err)
{
    const char *dst = arena_printf(&p->arena, "/%s", op->dst);
    if (!dst || !src)
        return err_nomem(err, "plan");
    if (!jsonw_is_utf8(dst, strlen(dst)))
        return err_set(err, CORDON_ERR_CONFIG, "plan", 0,
                       "%s: a bundle cannot name a place that is not UTF-8", dst);
    const char *options[] = {"rbind",    "nosuid",
                             "nodev",    write ? "rw" : "ro",
                             "rprivate", op->flags & PLAN_BIND_NOEXEC ? "noexec" : "exec"};
    oci_mount(j, dst, "bind", src, options, ARRAY_SIZE(options));
    return 0;
}

/* gVisor's own, one per place: each may hold the total. */
static int oci_own_tmpfs(struct plan *p, struct jsonw *j, const struct plan_op *op,
                         struct cordon_err *err)
{
    const char *dst = arena_printf(&p->arena, "/%s", op->dst);
    const char *mode = arena_printf(&p->arena, "mode=%o", (unsigned)op->mode | 0777);
    const char *size =
        arena_printf(&p->arena, "size=%llu", (unsigned long long)p->limits.scratch_bytes);
    if (!dst || !mode || !size)
        return err_nomem(err, "plan");
    const char *options[] = {"nosuid", "nodev", mode, size};
    oci_mount(j, dst, "tmpfs", "tmpfs", options, ARRAY_SIZE(options));
    return 0;
}

static int oci_op(struct plan *p, struct jsonw *j, size_t i, struct cordon_err *err)
{
    const struct plan_op *op = &p->ops[i];
    switch (op->kind) {
    case PLAN_OP_BIND:
        if ((op->flags & PLAN_BIND_DEV) || plan_oci_is_layer(op) || plan_oci_is_laid(p, op))
            return 0; /* devices are the runtime's own; layers go into the overlay */
        return oci_bind(p, j, op, arena_printf(&p->arena, PLAN_OCI_BINDS "/%zu", i),
                        op->flags & PLAN_BIND_RW, err);
    case PLAN_OP_OVERLAY:
        return oci_bind(p, j, op, arena_printf(&p->arena, PLAN_OCI_OVERLAY "/%s", op->dst), true,
                        err);
    case PLAN_OP_SCRATCH:
        if (plan_oci_is_laid(p, op))
            return 0;
        if (p->oci->alone)
            return oci_own_tmpfs(p, j, op, err);
        if (op->flags & PLAN_SCRATCH_FOLDER)
            return 0;
        return oci_bind(p, j, op, arena_printf(&p->arena, PLAN_OCI_SCRATCH "/%s", op->src), true,
                        err);
    case PLAN_OP_MASK:
        if (str_starts(op->dst, "proc/"))
            return 0; /* maskedPaths */
        return oci_bind(p, j, op,
                        op->flags & PLAN_MASK_DIR ? PLAN_OCI_ROOT "/" PLAN_EMPTY_DIR
                                                  : PLAN_OCI_ROOT "/" PLAN_EMPTY_FILE,
                        false, err);
    case PLAN_OP_DIR:
    case PLAN_OP_SYMLINK:
    case PLAN_OP_FILE:
    case PLAN_OP_PROC:
    case PLAN_OP_DEVPTS: break; /* in the root that ours lays out, or above */
    }
    return 0;
}

static int oci_mounts(struct plan *p, struct jsonw *j, struct cordon_err *err)
{
    static const char *const proc[] = {"nosuid", "noexec", "nodev"};
    static const char *const dev[] = {"nosuid", "noexec", "mode=755", "size=64k"};
    static const char *const pts[] = {"nosuid", "noexec", "newinstance", "ptmxmode=0666",
                                      "mode=0620"};
    jsonw_open(j, "mounts", '[');
    oci_mount(j, "/proc", "proc", "proc", proc, ARRAY_SIZE(proc));
    oci_mount(j, "/dev", "tmpfs", "tmpfs", dev, ARRAY_SIZE(dev));
    oci_mount(j, "/dev/pts", "devpts", "devpts", pts, ARRAY_SIZE(pts));
    for (size_t i = 0; i < p->n_ops; i++)
        if (oci_op(p, j, i, err) < 0)
            return -1;
    jsonw_close(j, ']');
    return 0;
}

static int oci_linux(struct plan *p, struct jsonw *j, struct cordon_err *err)
{
    static const char *const spaces[] = {"pid", "mount", "ipc", "uts", "network", "cgroup"};
    jsonw_open(j, "linux", '{');
    jsonw_open(j, "namespaces", '[');
    for (size_t i = 0; i < ARRAY_SIZE(spaces); i++) {
        /* the host's, or one that the launcher is in already */
        if (((p->host_network || p->net) && str_eq(spaces[i], "network")) ||
            ((p->own_kernel || p->oci->group_view) && str_eq(spaces[i], "cgroup")))
            continue;
        jsonw_open(j, NULL, '{');
        jsonw_str(j, "type", spaces[i]);
        jsonw_close(j, '}');
    }
    jsonw_close(j, ']');
    jsonw_open(j, "maskedPaths", '[');
    for (size_t i = 0; i < p->n_ops; i++)
        if (p->ops[i].kind == PLAN_OP_MASK && str_starts(p->ops[i].dst, "proc/")) {
            const char *path = arena_printf(&p->arena, "/%s", p->ops[i].dst);
            if (!path)
                return err_nomem(err, "plan");
            jsonw_str(j, NULL, path);
        }
    jsonw_close(j, ']');
    jsonw_close(j, '}');
    return 0;
}

int plan_oci_bundle(struct plan *p, struct cordon_err *err)
{
    struct plan_oci *o = p->oci;
    _cleanup_buf_ struct buf text = BUF_INIT(CONFIG_MAX);
    struct jsonw j = {.out = &text};
    jsonw_open(&j, NULL, '{');
    jsonw_str(&j, "ociVersion", "1.0.2");
    oci_process(&j, p);
    jsonw_open(&j, "root", '{');
    jsonw_str(&j, "path", "rootfs");
    /* gVisor's as well, but by its mount: writable places are laid into it */
    jsonw_bool(&j, "readonly", !p->own_kernel);
    jsonw_close(&j, '}');
    jsonw_str(&j, "hostname", PLAN_HOSTNAME);
    if (oci_mounts(p, &j, err) < 0 || oci_linux(p, &j, err) < 0)
        return -1;
    jsonw_open(&j, "annotations", '{');
    jsonw_str(&j, "cordon", "1");
    jsonw_close(&j, '}');
    jsonw_close(&j, '}');
    o->config = text.failed ? NULL : arena_strdup(&p->arena, text.data);
    return o->config ? 0 : err_nomem(err, "plan");
}

bool plan_oci_is_laid(const struct plan *p, const struct plan_op *op)
{
    /* gVisor puts a tmpfs of its own over a /tmp that it finds empty */
    if (!p->own_kernel || str_starts(op->dst, "dev/") || str_eq(op->dst, "tmp"))
        return false;
    if (op->kind == PLAN_OP_SCRATCH)
        return !p->oci->alone;
    return op->kind == PLAN_OP_BIND && !plan_oci_is_layer(op) &&
           !(op->flags & (PLAN_BIND_RW | PLAN_BIND_DEV | PLAN_BIND_GRANT));
}

bool plan_oci_is_layer(const struct plan_op *op)
{
    return op->kind == PLAN_OP_BIND && (str_eq(op->dst, PLAN_LOWER) || str_eq(op->dst, PLAN_LAYER));
}

int plan_oci(struct plan *p, const struct plan_request *req, struct cordon_err *err)
{
    const struct policy *policy = req->policy;
    bool gvisor = policy_num(policy, FIELD_BACKEND) == BACKEND_GVISOR;
    struct plan_oci *o = arena_alloc(&p->arena, sizeof(*o));
    if (!o)
        return err_nomem(err, "plan");
    o->wall = gvisor ? "gvisor" : "oci";
    o->runtime = gvisor ? PLAN_RUNTIME_RUNSC : PLAN_RUNTIME_RUNC;
    if (policy_has(policy, FIELD_RUNTIME))
        o->runtime = (enum plan_runtime)policy_num(policy, FIELD_RUNTIME);
    o->name = oci_names[o->runtime];
    if (oci_check(p, req, o, err) < 0 || oci_find(p, o, err) < 0 || oci_ids(p, req, o, err) < 0)
        return -1;
    p->oci = o;
    p->time_ns = false;
    p->setup_ns = OCI_SETUP_NS;
    /* A v2 group that only serves the kill is not needed: the launcher's end is everybody's, and a
     * process that moves into it waits for a grace period of the kernel (3 to 15 ms). */
    if (p->cgroups.kind != HOST_CGROUP_V2)
        p->cgroups.v2[0] = '\0';
    p->own_kernel = o->runtime == PLAN_RUNTIME_RUNSC;
    o->group_view = !p->own_kernel && p->cgroups.kind != HOST_CGROUP_NONE;
    if (p->own_kernel) {
        p->landlock_abi = 0; /* its kernel has none */
        if (oci_gvisor_limits(p, o, err) < 0)
            return -1;
    }
    return 0;
}
