/* Tier landlock: where user namespaces are refused, the guest stays in the host's tree and Landlock
 * says what of it may be used. There is no root of its own, so everything that needs one (hidden
 * paths, mounts at another place, an overlay) and everything that needs a network namespace is
 * refused here, before anything starts. Runs in the supervisor; looks at named paths only.
 *
 * /proc: Landlock cannot hide one process from another, and all of /proc would show every process
 * of the host with its arguments. So /proc as a whole is not granted. What programs read there at
 * their start is: a handful of files about the machine (below), and of its own entries the guest's
 * main process gets those the keeper adds (keeper_proc.c). Links such as /proc/self/fd/1 need no
 * grant. */
#include "plan/plan_internal.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/err.h"
#include "base/util.h"
#include "host/explain.h"

#define MISSING_ALWAYS                                                                             \
    "hidden paths, mounts at another path, overlay, hidden host /etc, private /tmp, "              \
    "hidden processes (/proc is not granted), private shared memory, System V ipc and message "    \
    "queues, private loopback, network allowlist, connections over unix sockets, inotify, "        \
    "extended attributes, "                                                                        \
    "host name, clocks"
#define MISSING_OWN_UID ", uid of its own, pseudo-terminals, empty capability bounding set"
#define MISSING_OLD ", sessions and process groups of its own (Landlock before ABI 6)"

/* Fails closed: which capability is missing, why the stronger tier is, and the smallest fix. */
static int landlock_refuse(const struct plan_request *req, struct cordon_err *err, const char *what)
{
    struct host host = *req->host;
    struct host_facts facts;
    char fix[512];
    const char *why = req->host->user_ns_why;
    host_facts_read(&host, &facts);
    host_user_ns_refused(&host, str_starts(why, "proc") ? "mount proc" : "unshare",
                         facts.max_user_ns == 0 ? ENOSPC : EPERM, fix, sizeof(fix));
    err_set(err, CORDON_ERR_HOST, "plan", 0,
            "%s: not possible in tier landlock, and tier full is refused here: %s", what,
            host.user_ns_why[0] ? host.user_ns_why : why);
    return err_hint(err, "%s", fix[0] ? fix : "`cordon doctor` says what this host refuses");
}

static int landlock_refuse_field(struct plan *p, const struct plan_request *req, enum field_id id,
                                 const char *what, struct cordon_err *err)
{
    const char *text = arena_printf(&p->arena, "%s (%s)", what, policy_fields[id].key);
    return text ? landlock_refuse(req, err, text) : err_nomem(err, "plan");
}

/* What needs namespaces, field by field. */
static int landlock_check(struct plan *p, const struct plan_request *req, struct cordon_err *err)
{
    static const struct {
        enum field_id id;
        const char *what;
    } lists[] = {
        {FIELD_ALLOW_NETWORK, "a network allowlist"},
        {FIELD_ALLOW_DOMAINS, "a network allowlist"},
        {FIELD_ALLOW_PATTERNS, "a network allowlist"},
        {FIELD_ALLOW_HOST_PORT, "a network allowlist"},
        {FIELD_PUBLISH, "published ports"},
        {FIELD_OUTPUT, "collecting files"},
    };
    const struct policy *policy = req->policy;
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        const struct policy_value *v = policy_value(policy, lists[i].id);
        if (v->n_items > 0 || (lists[i].id == FIELD_ALLOW_NETWORK && v->num))
            return landlock_refuse_field(p, req, lists[i].id, lists[i].what, err);
    }
    /* Without a network namespace the host's network could only be given together with its unix
     * sockets (message buses, agents): connecting to those cannot be told apart by a filter. */
    if (policy_num(policy, FIELD_NETWORK) != NETWORK_NONE)
        return landlock_refuse_field(p, req, FIELD_NETWORK, "network access", err);
    if (policy_bool(policy, FIELD_LOG_NETWORK))
        return landlock_refuse_field(p, req, FIELD_LOG_NETWORK, "a log of network attempts", err);
    if (policy_bool(policy, FIELD_VIRTUAL_FS))
        return landlock_refuse_field(p, req, FIELD_VIRTUAL_FS, "hidden paths", err);
    if (policy_has(policy, FIELD_ROOTFS) || policy_has(policy, FIELD_IMAGE))
        return landlock_refuse_field(p, req,
                                     policy_has(policy, FIELD_ROOTFS) ? FIELD_ROOTFS : FIELD_IMAGE,
                                     "a root of its own", err);
    if (policy_bool(policy, FIELD_TEMP_DIR) && policy_text(policy, FIELD_TEMP_DIR)[0])
        return landlock_refuse_field(p, req, FIELD_TEMP_DIR,
                                     "a temporary directory at a named path", err);
    const struct policy_value *ws = policy_value(policy, FIELD_WORKSPACE);
    if (ws->set && ws->num == WORKSPACE_OVERLAY)
        return landlock_refuse_field(p, req, FIELD_WORKSPACE, "an overlay", err);
    if (ws->set && ws->num != WORKSPACE_NONE)
        return landlock_refuse_field(p, req, FIELD_WORKSPACE, "mounts at another path", err);
    return 0;
}

static int landlock_fences(struct plan *p, const char *const *paths, size_t n, bool write)
{
    for (size_t i = 0; i < n; i++)
        if (plan_add_fence(p, paths[i], write, true) < 0)
            return -1;
    return 0;
}

static int landlock_runtime(struct plan *p)
{
    static const char *const runtime[] = {
        "/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32", "/etc",
        /* the machine, not its processes */
        "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/uptime", "/proc/loadavg",
        "/proc/version", "/proc/filesystems", "/proc/sys/kernel/osrelease",
        "/proc/sys/kernel/ostype", "/proc/sys/kernel/version", "/proc/sys/kernel/pid_max",
        "/proc/sys/kernel/threads-max", "/proc/sys/kernel/ngroups_max",
        "/proc/sys/kernel/cap_last_cap", "/proc/sys/kernel/randomize_va_space",
        "/proc/sys/kernel/random/uuid", "/proc/sys/vm/overcommit_memory",
        "/proc/sys/vm/max_map_count", "/proc/sys/fs/pipe-max-size", "/proc/sys/fs/file-max"};
    static const char *const devices[] = {"/dev/null",   "/dev/zero",    "/dev/full",
                                          "/dev/random", "/dev/urandom", "/dev/tty"};
    /* Terminals of the caller are the guest's to open when they share a uid: only a guest with a
     * uid of its own gets any. */
    static const char *const terminals[] = {"/dev/ptmx", "/dev/pts"};
    if (landlock_fences(p, runtime, ARRAY_SIZE(runtime), false) < 0 ||
        landlock_fences(p, devices, ARRAY_SIZE(devices), true) < 0)
        return -1;
    return p->own_host_ids ? landlock_fences(p, terminals, ARRAY_SIZE(terminals), true) : 0;
}

static bool landlock_below(const char *path, const char *dir)
{
    size_t len = strlen(dir);
    return strncmp(path, dir, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

/* A deny pattern that takes a whole grant away takes it away; one that would hide something inside
 * a grant cannot be honoured: rules of Landlock only add. */
static int landlock_denied(struct plan *p, const struct plan_request *req,
                           struct plan_grant *grants, size_t n, struct cordon_err *err)
{
    size_t first = p->n_ops;
    if (plan_deny_masks(p, req->policy, grants, n, err) < 0)
        return -1;
    for (size_t i = first; i < p->n_ops; i++) {
        bool whole = false;
        for (size_t k = 0; k < n; k++)
            if (str_eq(grants[k].dst + 1, p->ops[i].dst)) {
                grants[k].src = NULL;
                whole = true;
            }
        if (whole)
            continue;
        const char *what =
            arena_printf(&p->arena, "hidden paths (deny_patterns matches /%s)", p->ops[i].dst);
        return what ? landlock_refuse(req, err, what) : err_nomem(err, "plan");
    }
    p->n_ops = first;
    return 0;
}

/* For the supervisor's watch over bytes on the host's own disk; no backend of this tier executes
 * it. */
static int landlock_watched(struct plan *p, const char *path, bool is_dir)
{
    struct plan_op *ops = plan_grow(p, p->ops, p->n_ops, &p->cap_ops, sizeof(*ops));
    if (!ops)
        return -1;
    p->ops = ops;
    ops[p->n_ops++] =
        (struct plan_op){.kind = PLAN_OP_BIND,
                         .src = path,
                         .dst = path + 1,
                         .flags = PLAN_BIND_GRANT | PLAN_BIND_RW | (is_dir ? 0 : PLAN_BIND_FILE)};
    return 0;
}

static int landlock_grants(struct plan *p, const struct plan_request *req, struct cordon_err *err)
{
    struct plan_grant *grants;
    size_t n;
    const char *what = NULL;
    if (plan_grants(p, req->policy, &grants, &n, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (grants[i].is_socket) {
            what = arena_printf(&p->arena, "a connection to a unix socket (%s)", grants[i].src);
            return what ? landlock_refuse(req, err, what) : err_nomem(err, "plan");
        }
        if (!str_eq(grants[i].src, grants[i].dst)) {
            what = arena_printf(&p->arena, "mounts at another path (%s at %s)", grants[i].src,
                                grants[i].dst);
            return what ? landlock_refuse(req, err, what) : err_nomem(err, "plan");
        }
    }
    if (landlock_denied(p, req, grants, n, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (!grants[i].src)
            continue;
        if (plan_state_refuse(&grants[i], false, err) < 0)
            return -1;
        for (size_t k = 0; k < n && !grants[i].write; k++)
            if (grants[k].src && grants[k].write && landlock_below(grants[i].src, grants[k].src)) {
                what = arena_printf(&p->arena, "a read-only path inside a writable one (%s in %s)",
                                    grants[i].src, grants[k].src);
                return what ? landlock_refuse(req, err, what) : err_nomem(err, "plan");
            }
        if (plan_add_fence(p, grants[i].src, grants[i].write, grants[i].optional) < 0 ||
            (grants[i].write && !grants[i].is_device && p->scratch_exact &&
             landlock_watched(p, grants[i].src, grants[i].is_dir) < 0))
            return err_nomem(err, "plan");
    }
    return 0;
}

/* A folder below which only the caller can go is best; a guest with a uid of its own must be able
 * to pass through it, and programs must be executable in it. */
static const char *landlock_base(const struct plan *p)
{
    const char *run = getenv("XDG_RUNTIME_DIR");
    struct stat st;
    struct statvfs fs;
    if (!p->own_host_ids && run && run[0] == '/' && strlen(run) < 128 && stat(run, &st) == 0 &&
        S_ISDIR(st.st_mode) && st.st_uid == p->host_uid && (st.st_mode & 0777) == 0700 &&
        statvfs(run, &fs) == 0 && !(fs.f_flag & (ST_NOEXEC | ST_RDONLY)))
        return run;
    return access("/tmp", W_OK | X_OK) == 0 ? "/tmp" : "/var/tmp";
}

/* HOME, TMPDIR and working directory in one. The name cannot be guessed, so nobody can stand in its
 * way; the backend makes exactly this folder and removes it. */
static int landlock_private_dir(struct plan *p, struct cordon_err *err)
{
    uint64_t noise = 0;
    if (getrandom(&noise, sizeof(noise), 0) != (ssize_t)sizeof(noise))
        return err_set(err, CORDON_ERR_INTERNAL, "plan", errno, "getrandom");
    p->private_dir = arena_printf(&p->arena, "%s/" PLAN_PRIVATE_PREFIX "%d-%016llx",
                                  landlock_base(p), (int)getpid(), (unsigned long long)noise);
    if (!p->private_dir || plan_add_fence(p, p->private_dir, true, false) < 0 ||
        landlock_watched(p, p->private_dir, true) < 0)
        return err_nomem(err, "plan");
    /* the only limits on it, held by looking: there is no file system of its own */
    struct plan_limits *l = &p->limits;
    if (!p->scratch_exact) {
        l->disk_bytes = l->scratch_bytes;
        l->max_files = l->scratch_inodes;
    }
    p->scratch_exact = false;
    p->writes_host = true;
    p->cwd = p->private_dir;
    return 0;
}

/* Processes and threads that count against the caller's own limit already. */
static unsigned landlock_count_tasks(uid_t uid)
{
    unsigned n = 0;
    DIR *dir = opendir("/proc");
    struct dirent *e;
    while (dir && (e = readdir(dir))) {
        struct stat st;
        char path[300];
        if (e->d_name[0] < '0' || e->d_name[0] > '9')
            continue;
        snprintf(path, sizeof(path), "%s/task", e->d_name);
        if (fstatat(dirfd(dir), path, &st, 0) == 0 && st.st_uid == uid)
            n += st.st_nlink > 2 ? (unsigned)st.st_nlink - 2 : 1;
    }
    if (dir)
        closedir(dir);
    return n;
}

static void landlock_processes(struct plan *p, const struct host *host)
{
    if (!p->limits.processes || p->by_group.pids)
        return;
    p->process_rlimit = p->limits.processes + 1; /* the keeper counts too */
    if (!p->own_host_ids)
        p->process_rlimit += landlock_count_tasks(host->uid);
}

int plan_landlock(struct plan *p, const struct plan_request *req, struct cordon_err *err)
{
    const struct policy *policy = req->policy;
    const struct host *host = req->host;

    if (policy_has(policy, FIELD_REQUIRE_TIER) &&
        policy_num(policy, FIELD_REQUIRE_TIER) == TIER_FULL)
        return landlock_refuse_field(p, req, FIELD_REQUIRE_TIER, "tier full is required", err);
    if (host->landlock_abi < 1)
        return landlock_refuse(req, err, "file access without Landlock");
    if (landlock_check(p, req, err) < 0)
        return -1;

    p->time_ns = false;
    /* root gives itself up: the guest gets an id of its own, whatever else this root may do */
    p->own_host_ids = host->uid == 0;
    p->host_uid = p->own_host_ids ? PLAN_ID_BASE : host->uid;
    p->host_gid = p->own_host_ids ? PLAN_ID_BASE : host->gid;
    p->missing =
        arena_printf(&p->arena, "%s%s%s", MISSING_ALWAYS, p->own_host_ids ? "" : MISSING_OWN_UID,
                     p->scope_signals ? "" : MISSING_OLD);
    if (!p->missing)
        return err_nomem(err, "plan");

    if (landlock_runtime(p) < 0)
        return err_nomem(err, "plan");
    if (landlock_grants(p, req, err) < 0 || landlock_private_dir(p, err) < 0)
        return -1;
    landlock_processes(p, host);
    if (plan_set_env(p, policy, p->private_dir, p->private_dir, err) < 0)
        return -1;
    return plan_collect_files(p, req, err);
}
