/* Limits and numbers of the unified hierarchy; also its group beside v1 groups, which has no
 * controllers but kills in one write and keeps CPU time (cpu.stat is there without the controller).
 * Runs in the supervisor. */
#include "backend/native/cgroup_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"

#define PERIOD_US 100000u

/* Is the word in a list separated by spaces? */
static bool has_word(const char *list, const char *word)
{
    size_t len = strlen(word);
    for (const char *p = list; (p = strstr(p, word)) != NULL; p += len) {
        bool starts = p == list || p[-1] == ' ';
        if (starts && (p[len] == ' ' || p[len] == '\n' || p[len] == '\0'))
            return true;
    }
    return false;
}

/* A group with processes of its own hands no memory down. Where the only one is ourselves (a scope
 * that was made for this Cordon), it goes to a group beside the guests'. Anyone else's stays where
 * it is. The place we moved to carries our name: cgroup_gc() removes it after us. */
static int step_aside(int fd)
{
    char procs[64], mine[32];
    struct cgroup_owner owner;
    int r = cgroup_owner_self(&owner);
    if (r < 0)
        return r;
    ssize_t n = cgroup_file_read(fd, "cgroup.procs", procs, sizeof(procs));
    if (n < 0)
        return (int)n;
    snprintf(mine, sizeof(mine), "%d\n", (int)owner.pid);
    if (!str_eq(procs, mine))
        return -EBUSY;
    char name[CGROUP_NAME_MAX];
    owner.n = UINT32_MAX; /* the numbers of guests begin at 0 */
    cgroup_name_format(&owner, name);
    if (mkdirat(fd, name, 0755) < 0 && errno != EEXIST)
        return -errno;
    _cleanup_close_ int leaf = openat(fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    r = leaf < 0 ? -errno : cgroup_file_write(leaf, "cgroup.procs", "0");
    if (r < 0)
        unlinkat(fd, name, AT_REMOVEDIR);
    return r;
}

int cgroup_v2_prepare(const struct host_cgroups *where, struct cordon_err *err)
{
    const struct {
        bool wanted;
        const char *name, *add;
    } rows[] = {{where->v2_memory, "memory", "+memory"},
                {where->v2_pids, "pids", "+pids"},
                {where->v2_cpu, "cpu", "+cpu"}};
    char have[512];
    if (!where->v2_own || !where->v2[0])
        return 0;
    _cleanup_close_ int fd = open(where->v2, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return cgroup_err(err, errno, where->v2, NULL);
    ssize_t n = cgroup_file_read(fd, "cgroup.subtree_control", have, sizeof(have));
    if (n < 0)
        return cgroup_err(err, (int)-n, where->v2, "cgroup.subtree_control");
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        if (!rows[i].wanted || has_word(have, rows[i].name))
            continue;
        int r = cgroup_file_write(fd, "cgroup.subtree_control", rows[i].add);
        if (r == -EBUSY && (r = step_aside(fd)) == 0)
            r = cgroup_file_write(fd, "cgroup.subtree_control", rows[i].add);
        if (r < 0)
            return cgroup_err(err, -r, where->v2, "cgroup.subtree_control");
    }
    return 0;
}

static int limit_memory(struct cgroup *cg, uint64_t bytes, struct cordon_err *err)
{
    const struct cgroup_dir *dir = &cg->dir[SLOT_V2];
    int r = cgroup_file_write_u64(dir->fd, "memory.max", bytes);
    if (r < 0)
        return cgroup_err(err, -r, dir->path, "memory.max");
    r = cgroup_file_write(dir->fd, "memory.swap.max", "0");
    if (r < 0 && r != -ENOENT) /* absent: a kernel without swap */
        return cgroup_err(err, -r, dir->path, "memory.swap.max");
    /* All or nothing: a guest that lost one of its processes gives no answer worth having. */
    r = cgroup_file_write(dir->fd, "memory.oom.group", "1");
    if (r < 0)
        return cgroup_err(err, -r, dir->path, "memory.oom.group");
    return 0;
}

static int limit_cpu(struct cgroup *cg, unsigned percent, struct cordon_err *err)
{
    const struct cgroup_dir *dir = &cg->dir[SLOT_V2];
    char text[48];
    snprintf(text, sizeof(text), "%llu %u", (unsigned long long)percent * (PERIOD_US / 100),
             PERIOD_US);
    int r = cgroup_file_write(dir->fd, "cpu.max", text);
    return r < 0 ? cgroup_err(err, -r, dir->path, "cpu.max") : 0;
}

int cgroup_v2_limit(struct cgroup *cg, const struct plan_limits *limits, struct cordon_err *err)
{
    const struct cgroup_dir *dir = &cg->dir[SLOT_V2];
    if (cg->v2_controls & CGROUP_MEMORY) {
        if (limits->memory_bytes && limit_memory(cg, limits->memory_bytes, err) < 0)
            return -1;
        cg->sample_memory = faccessat(dir->fd, "memory.peak", F_OK, 0) < 0;
    }
    if (cg->v2_controls & CGROUP_PIDS) {
        uint64_t most = MIN((uint64_t)limits->processes + cg->own_tasks, CGROUP_PIDS_MAX);
        int r = limits->processes ? cgroup_file_write_u64(dir->fd, "pids.max", most) : 0;
        if (r < 0)
            return cgroup_err(err, -r, dir->path, "pids.max");
        cg->sample_pids = faccessat(dir->fd, "pids.peak", F_OK, 0) < 0;
    }
    if ((cg->v2_controls & CGROUP_CPU) && limit_cpu(cg, limits->cpu_percent, err) < 0)
        return -1;
    return 0;
}

static void usage_memory(int fd, struct cgroup_usage *usage)
{
    char text[512];
    if (cgroup_file_read(fd, "memory.events", text, sizeof(text)) <= 0)
        return;
    usage->has_memory = true;
    cgroup_parse_key(text, "oom_kill", &usage->oom_kills);
    cgroup_file_u64(fd, "memory.peak", &usage->memory_peak_bytes);
}

static void usage_pids(const struct cgroup *cg, struct cgroup_usage *usage)
{
    int fd = cg->dir[SLOT_V2].fd;
    char text[256];
    usage->own_tasks = cg->own_tasks;
    cgroup_file_u64(fd, "pids.peak", &usage->pids_peak);
    if (cgroup_file_read(fd, "pids.events", text, sizeof(text)) > 0)
        cgroup_parse_key(text, "max", &usage->pids_refused);
}

void cgroup_v2_usage(struct cgroup *cg, struct cgroup_usage *usage)
{
    int fd = cg->dir[SLOT_V2].fd;
    char text[1024];
    uint64_t us = 0;
    if (cg->v2_controls & CGROUP_MEMORY)
        usage_memory(fd, usage);
    if (cg->v2_controls & CGROUP_PIDS)
        usage_pids(cg, usage);
    if ((cg->v2_controls & CGROUP_CPU) &&
        cgroup_file_read(fd, "cpu.stat", text, sizeof(text)) > 0 &&
        cgroup_parse_key(text, "throttled_usec", &us) == 0)
        usage->throttled_ns = us * 1000;
}

int cgroup_v2_cpu(struct cgroup *cg, uint64_t *ret_user_ns, uint64_t *ret_sys_ns)
{
    char text[1024];
    uint64_t user, sys;
    if (cg->cpu_fd < 0)
        cg->cpu_fd = openat(cg->dir[SLOT_V2].fd, "cpu.stat", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (cg->cpu_fd < 0 || cgroup_file_pread(cg->cpu_fd, text, sizeof(text)) <= 0)
        return -1;
    if (cgroup_parse_key(text, "user_usec", &user) < 0 ||
        cgroup_parse_key(text, "system_usec", &sys) < 0)
        return -1;
    *ret_user_ns = user * 1000;
    *ret_sys_ns = sys * 1000;
    return 0;
}
