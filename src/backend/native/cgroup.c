/* The groups of one guest: made, filled, entered, read, killed, removed. Runs in the supervisor;
 * cgroup_enter() runs in the guest's pid 1. What the two versions do differently is in cgroup_v1.c
 * and cgroup_v2.c. */
#include "backend/native/cgroup_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/raw.h"
#include "base/sys.h"
#include "base/util.h"

#define DESTROY_WAIT_NS 200000000u
#define YIELD_NS 1000000000u

int cgroup_err(struct cordon_err *err, int sys_errno, const char *path, const char *file)
{
    bool refused = sys_errno == EACCES || sys_errno == EPERM || sys_errno == EROFS;
    err_set(err, refused ? CORDON_ERR_HOST : CORDON_ERR_INTERNAL, "cgroup", sys_errno, "%s%s%s",
            path, file ? "/" : "", file ? file : "");
    if (refused)
        err_hint(err, "delegate a control group to this user and name it with --cgroup");
    return -1;
}

unsigned cgroup_offers(const struct host_cgroups *where)
{
    unsigned mask = 0;
    bool has_v2 = cgroup_slot_parent(where, SLOT_V2)[0] != '\0';
    if (cgroup_slot_parent(where, SLOT_MEMORY)[0] || (has_v2 && where->v2_memory))
        mask |= CGROUP_MEMORY;
    if (cgroup_slot_parent(where, SLOT_PIDS)[0] || (has_v2 && where->v2_pids))
        mask |= CGROUP_PIDS;
    if (cgroup_slot_parent(where, SLOT_CPU)[0] || (has_v2 && where->v2_cpu))
        mask |= CGROUP_CPU;
    if (cgroup_slot_parent(where, SLOT_CPUACCT)[0] || has_v2)
        mask |= CGROUP_CPU_ACCOUNT;
    if (has_v2)
        mask |= CGROUP_KILL;
    return mask;
}

static void describe(struct cgroup *cg)
{
    static const struct {
        unsigned bit;
        const char *name;
    } names[] = {{CGROUP_MEMORY, "memory"}, {CGROUP_PIDS, "pids"}, {CGROUP_CPU, "cpu"}};
    size_t len = 0;
    cg->describe[0] = '\0';
    for (int version = 1; version <= 2; version++) {
        unsigned mask = version == 2 ? cg->v2_controls : cg->controls & ~cg->v2_controls;
        bool first = true;
        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
            if (!(mask & names[i].bit))
                continue;
            if (first)
                len += (size_t)snprintf(cg->describe + len, sizeof(cg->describe) - len, "%sv%d ",
                                        len ? " " : "", version);
            len += (size_t)snprintf(cg->describe + len, sizeof(cg->describe) - len, "%s%s",
                                    first ? "" : ",", names[i].name);
            first = false;
        }
    }
    if (!len && (cg->controls & CGROUP_KILL))
        snprintf(cg->describe, sizeof(cg->describe), "v2 kill");
    else if (!len)
        snprintf(cg->describe, sizeof(cg->describe), "none");
}

/* Is it the directory of an earlier slot, seen through another mount or link? */
static bool find_alias(const struct cgroup *cg, enum cgroup_slot slot, const char *path)
{
    struct stat mine, other;
    if (lstat(path, &mine) < 0)
        return false;
    for (int i = 0; i < (int)slot; i++) {
        if (cg->dir[i].path[0] && lstat(cg->dir[i].path, &other) == 0 &&
            other.st_dev == mine.st_dev && other.st_ino == mine.st_ino)
            return true;
    }
    return false;
}

/* 0, -EEXIST when the name is taken
 * (nothing of this slot is ours then), or another -errno. */
static int make_dir(struct cgroup *cg, const char *parent, enum cgroup_slot slot)
{
    struct cgroup_dir *dir = &cg->dir[slot];
    char path[CGROUP_PATH_MAX];
    if (!str_join(path, sizeof(path), parent, "/", cg->name))
        return -ENAMETOOLONG;
    bool existed = mkdir(path, 0755) < 0;
    if (existed && errno != EEXIST)
        return -errno;
    dir->alias = existed && find_alias(cg, slot, path);
    if (existed && !dir->alias)
        return -EEXIST;
    memcpy(dir->path, path, sizeof(path));
    if (dir->alias)
        return 0;
    /* A thread may write 0 to v1's tasks file to move itself alone, which needs no grace period. */
    int r = cgroup_dir_open(dir, slot == SLOT_V2 ? "cgroup.procs" : "tasks", O_WRONLY);
    if (r >= 0) {
        dir->enter_fd = r;
        if (slot != SLOT_V2 ||
            (dir->fd = sys_open(path, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)) >= 0)
            return 0;
        r = -errno;
    }
    util_close(&dir->enter_fd);
    dir->path[0] = '\0';
    rmdir(path);
    return r;
}

int cgroup_remake(struct cgroup *cg, enum cgroup_slot slot)
{
    struct cgroup_dir *dir = &cg->dir[slot];
    char parent[CGROUP_PATH_MAX];
    snprintf(parent, sizeof(parent), "%s", dir->path);
    *strrchr(parent, '/') = '\0';
    int r = cgroup_rmdir(dir->path, 0);
    if (r < 0)
        return r;
    util_close(&dir->enter_fd);
    util_close(&dir->fd);
    dir->path[0] = '\0';
    return make_dir(cg, parent, slot);
}

static void remove_dirs(struct cgroup *cg, int down_to, uint64_t deadline_ns)
{
    bool gone = !cg->left_behind;
    util_close(&cg->cpu_fd);
    cgroup_kept_close(cg);
    for (int slot = SLOT_COUNT - 1; slot >= down_to; slot--) {
        struct cgroup_dir *dir = &cg->dir[slot];
        util_close(&dir->enter_fd);
        util_close(&dir->fd);
        if (!dir->path[0])
            continue;
        /* The anchor is left when another one is: cgroup_gc() finds the rest by it. */
        if (!dir->alias && gone && cgroup_rmdir(dir->path, deadline_ns) < 0)
            gone = !(cg->left_behind = true);
        dir->path[0] = '\0';
        dir->alias = false;
    }
}

static atomic_uint name_counter;

int cgroup_name_next(char ret_name[static CGROUP_NAME_MAX])
{
    struct cgroup_owner owner;
    int r = cgroup_owner_self(&owner);
    if (r < 0)
        return r;
    owner.n = atomic_fetch_add(&name_counter, 1);
    cgroup_name_format(&owner, ret_name);
    return 0;
}

/* Makes the groups of the slots from first to last. A first name that is taken is passed over. */
static int make_dirs(struct cgroup *cg, const struct host_cgroups *where,
                     const struct plan_limits *limits, int first, int last, struct cordon_err *err)
{
    int r = 0, wanted = first;
    while (wanted <= last && !cgroup_slot_parent(where, (enum cgroup_slot)wanted)[0])
        wanted++;
    if (wanted > last)
        return 0; /* nobody has to know our name yet */
    for (int tries = 0; tries < CGROUP_NAME_TRIES; tries++) {
        if (!cg->named && (r = cgroup_name_next(cg->name)) < 0)
            return cgroup_err(err, -r, "/proc/self/stat", NULL);
        int slot;
        const char *parent = "";
        bool made = false;
        for (slot = first; slot <= last; slot++) {
            parent = cgroup_slot_parent(where, (enum cgroup_slot)slot);
            if (!parent[0] || (slot == SLOT_CPU && !limits->cpu_percent))
                continue;
            r = make_dir(cg, parent, (enum cgroup_slot)slot);
            if (r < 0)
                break;
            made = true;
        }
        if (slot > last) {
            cg->named |= made;
            return 0;
        }
        remove_dirs(cg, first, 0);
        /* Taken: left by what this process was before it executed Cordon. */
        if (r != -EEXIST || cg->named)
            return cgroup_err(err, -r, parent, cg->name);
    }
    return cgroup_err(err, EEXIST, cg->name, NULL);
}

static void take_controls(struct cgroup *cg, const struct host_cgroups *where,
                          const struct plan_limits *limits)
{
    static const struct {
        enum cgroup_slot slot;
        unsigned bit;
    } v1[] = {{SLOT_MEMORY, CGROUP_MEMORY}, {SLOT_PIDS, CGROUP_PIDS}, {SLOT_CPU, CGROUP_CPU}};
    cg->controls = cg->v2_controls = 0; /* asked again when the v1 groups are there */
    for (size_t i = 0; i < ARRAY_SIZE(v1); i++) {
        if (cgroup_has(cg, v1[i].slot))
            cg->controls |= v1[i].bit;
    }
    if (cg->dir[SLOT_V2].fd >= 0) {
        unsigned offered = (where->v2_memory ? CGROUP_MEMORY : 0u) |
                           (where->v2_pids ? CGROUP_PIDS : 0u) |
                           (where->v2_cpu && limits->cpu_percent ? CGROUP_CPU : 0u);
        cg->v2_controls = offered & ~cg->controls;
        cg->v2_controls |= CGROUP_KILL | CGROUP_CPU_ACCOUNT;
    }
    cg->controls |= cg->v2_controls;
    if (cgroup_has(cg, SLOT_CPUACCT))
        cg->controls |= CGROUP_CPU_ACCOUNT;
    describe(cg);
}

int cgroup_create(const struct host_cgroups *where, const struct plan_limits *limits,
                  unsigned own_tasks, struct cgroup **ret_cgroup, struct cordon_err *err)
{
    struct cgroup *cg = calloc(1, sizeof(*cg));
    if (!cg)
        return err_nomem(err, "cgroup");
    cg->cpu_fd = -1;
    cg->own_tasks = own_tasks;
    for (int i = 0; i < KEPT_COUNT; i++)
        cg->kept[i] = -1;
    for (int slot = 0; slot < SLOT_COUNT; slot++)
        cg->dir[slot].fd = cg->dir[slot].enter_fd = -1;

    if (cgroup_v2_prepare(where, err) < 0 ||
        make_dirs(cg, where, limits, SLOT_V2, SLOT_V2, err) < 0)
        goto fail;
    take_controls(cg, where, limits);
    if (cgroup_v2_limit(cg, limits, err) < 0)
        goto fail;
    *ret_cgroup = cg;
    return 0;

fail:
    remove_dirs(cg, SLOT_V2, 0);
    free(cg);
    return -1;
}

int cgroup_make_v1(struct cgroup *cg, const struct host_cgroups *where,
                   const struct plan_limits *limits, struct cordon_err *err)
{
    return make_dirs(cg, where, limits, SLOT_V2 + 1, SLOT_COUNT - 1, err);
}

int cgroup_limit_v1(struct cgroup *cg, const struct host_cgroups *where,
                    const struct plan_limits *limits, struct cordon_err *err)
{
    take_controls(cg, where, limits);
    return cgroup_v1_limit(cg, limits, err);
}

int cgroup_create_v1(struct cgroup *cg, const struct host_cgroups *where,
                     const struct plan_limits *limits, struct cordon_err *err)
{
    return cgroup_make_v1(cg, where, limits, err) < 0 ? -1
                                                      : cgroup_limit_v1(cg, where, limits, err);
}

int cgroup_relimit(struct cgroup *cg, const struct plan_limits *limits, struct cordon_err *err)
{
    return cgroup_v1_limit(cg, limits, err) < 0 ? -1 : cgroup_v2_limit(cg, limits, err);
}

void cgroup_remove_v1(struct cgroup *cg)
{
    remove_dirs(cg, SLOT_V2 + 1, clock_ns() + DESTROY_WAIT_NS);
}

unsigned cgroup_controls(const struct cgroup *cg)
{
    return cg->controls;
}

const char *cgroup_describe(const struct cgroup *cg)
{
    return cg->describe;
}

int cgroup_clone_fd(const struct cgroup *cg)
{
    return cg->dir[SLOT_V2].fd;
}

size_t cgroup_entries(const struct cgroup *cg, int *ret_fds)
{
    size_t n = 0;
    for (int slot = SLOT_V2 + 1; slot < SLOT_COUNT; slot++)
        if (cg->dir[slot].enter_fd >= 0)
            ret_fds[n++] = cg->dir[slot].enter_fd;
    return n;
}

int cgroup_entry_v2(const struct cgroup *cg)
{
    return cg->dir[SLOT_V2].enter_fd;
}

int cgroup_enter(const int *fds, size_t n_fds)
{
    for (size_t i = 0; i < n_fds; i++) {
        long n;
        do
            n = raw_call(SYS_write, fds[i], "0", 1);
        while (n == -EINTR);
        if (n != 1)
            return n < 0 ? (int)n : -EIO;
    }
    return 0;
}

int cgroup_join(const struct cgroup *cg)
{
    const int fd = cg->dir[SLOT_V2].enter_fd;
    return fd >= 0 ? cgroup_enter(&fd, 1) : 0;
}

void cgroup_exclude_cpu(struct cgroup *cg, uint64_t user_ns, uint64_t sys_ns)
{
    cg->own_user_ns = user_ns;
    cg->own_sys_ns = sys_ns;
}

void cgroup_note_end(struct cgroup *cg, bool exited, uint64_t user_ns, uint64_t sys_ns)
{
    cg->exited = exited;
    cg->waited_user_ns = user_ns;
    cg->waited_sys_ns = sys_ns;
}

static int read_cpu(struct cgroup *cg, uint64_t *ret_user_ns, uint64_t *ret_sys_ns)
{
    if (cg->dir[SLOT_V2].fd < 0)
        return cgroup_v1_cpu(cg, ret_user_ns, ret_sys_ns);
    uint64_t user, sys;
    if (cgroup_v2_cpu(cg, &user, &sys) < 0)
        return -1;
    /* Pid 1, or who becomes the guest, is in this group from its clone on; groups of version 1 the
     * guest enters by itself, when the work of its start is done. */
    *ret_user_ns = user - MIN(user, cg->own_user_ns);
    *ret_sys_ns = sys - MIN(sys, cg->own_sys_ns);
    return 0;
}

int cgroup_cpu_ns(struct cgroup *cg, uint64_t *ret_ns)
{
    uint64_t user, sys;
    if (read_cpu(cg, &user, &sys) < 0)
        return -1;
    *ret_ns = user + sys;
    return 0;
}

int cgroup_usage(struct cgroup *cg, struct cgroup_usage *ret_usage)
{
    struct cgroup_usage usage = {0};
    cgroup_v1_usage_pids(cg, &usage); /* in this order: what is known need not be read */
    usage.has_cpu = read_cpu(cg, &usage.cpu_user_ns, &usage.cpu_sys_ns) == 0;
    cgroup_v1_usage(cg, &usage);
    cgroup_v2_usage(cg, &usage);

    if (cg->sample_memory || cg->sample_pids)
        cgroup_sample(cg);
    usage.memory_peak_bytes = MAX(usage.memory_peak_bytes, cg->memory_peak);
    usage.pids_peak = MAX(usage.pids_peak, cg->pids_peak);
    *ret_usage = usage;
    return 0;
}

int cgroup_weight(struct cgroup *cg, bool yields)
{
    if (cg->v2_controls & CGROUP_CPU)
        return cgroup_file_write(cg->dir[SLOT_V2].fd, "cpu.weight", yields ? "50" : "100");
    return cgroup_dir_write(&cg->dir[SLOT_CPU], "cpu.shares", yields ? "512" : "1024");
}

void cgroup_weigh(struct cgroup *cg, uint64_t throttled_ns)
{
    uint64_t now = clock_ns();
    bool held_back = throttled_ns > cg->weighed_ns, yields = cg->yields_until_ns != 0;
    if (!(cg->controls & CGROUP_CPU))
        return;
    cg->weighed_ns = throttled_ns;
    if (held_back)
        cg->yields_until_ns = now + YIELD_NS;
    else if (yields && now >= cg->yields_until_ns)
        cg->yields_until_ns = 0;
    /* A matter of fairness, not of a limit: where it cannot be written the quota holds as before.
     */
    if (yields != (cg->yields_until_ns != 0))
        cgroup_weight(cg, !yields);
}

bool cgroup_needs_sampling(struct cgroup *cg)
{
    cgroup_v1_look_for_peak(cg);
    return cg->sample_memory || cg->sample_pids;
}

void cgroup_sample(struct cgroup *cg)
{
    uint64_t now;
    const struct cgroup_dir *pids = &cg->dir[cg->v2_controls & CGROUP_PIDS ? SLOT_V2 : SLOT_PIDS];
    if (cg->sample_memory && cgroup_file_u64(cg->dir[SLOT_V2].fd, "memory.current", &now) == 0)
        cg->memory_peak = MAX(cg->memory_peak, now);
    if (cg->sample_pids && cgroup_dir_u64(pids, "pids.current", &now) == 0)
        cg->pids_peak = MAX(cg->pids_peak, now);
}

int cgroup_freeze(struct cgroup *cg, bool freeze)
{
    if (cg->dir[SLOT_V2].fd < 0)
        return -EOPNOTSUPP;
    return cgroup_file_write(cg->dir[SLOT_V2].fd, "cgroup.freeze", freeze ? "1" : "0");
}

void cgroup_kill(struct cgroup *cg)
{
    for (int slot = 0; slot < SLOT_COUNT; slot++) {
        const struct cgroup_dir *dir = &cg->dir[slot];
        if (!dir->path[0] || dir->alias)
            continue;
        _cleanup_close_ int fd =
            dir->fd >= 0 ? -1 : cgroup_dir_open(dir, ".", O_PATH | O_DIRECTORY);
        if (dir->fd < 0 && fd < 0)
            continue;
        /* Every guest process is in every group: the first one that can be used is enough. */
        cgroup_kill_dir(dir->fd >= 0 ? dir->fd : fd, cg->name);
        return;
    }
}

void cgroup_destroy(struct cgroup *cg)
{
    if (!cg)
        return;
    remove_dirs(cg, SLOT_V2, clock_ns() + DESTROY_WAIT_NS);
    free(cg);
}
