/* Limits and numbers of version 1 hierarchies, which only root can use. Runs in the supervisor. */
#include "backend/native/cgroup_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/util.h"

#define PERIOD_US 100000u                /* of every new group */
#define SLICE_NS 10000000u               /* twice that of the kernel */
#define NS_PER_TICK (1000000000u / 100u) /* USER_HZ is 100 on x86-64, whatever the kernel's HZ */

static bool limit_has_swap(void)
{
    struct sysinfo now;
    return sysinfo(&now) < 0 || now.totalswap > 0;
}

static int limit_swap(struct cgroup *cg)
{
    const struct cgroup_dir *dir = &cg->dir[SLOT_MEMORY];
    if (!cg->swap_limit)
        return 0;
    int r = cgroup_dir_write_u64(dir, "memory.memsw.limit_in_bytes", cg->swap_limit);
    if (r ==
        -ENOENT) /* no swap accounting: then nothing of the guest is swapped out for the limit */
        r = cgroup_dir_write(dir, "memory.swappiness", "0");
    if (r == 0)
        cg->swap_limit = 0;
    return r;
}

void cgroup_serves_one(struct cgroup *cg)
{
    cg->serves_one = true;
}

void cgroup_limit_late(struct cgroup *cg)
{
    limit_swap(cg); /* else with the next tick */
}

static int limit_memory(struct cgroup *cg, uint64_t bytes, struct cordon_err *err)
{
    const struct cgroup_dir *dir = &cg->dir[SLOT_MEMORY];
    int r = cgroup_dir_write_u64(dir, "memory.limit_in_bytes", bytes);
    /* a limit that is raised: memory+swap has to make room first */
    if (r == -EINVAL && cgroup_dir_write_u64(dir, "memory.memsw.limit_in_bytes", bytes) == 0)
        r = cgroup_dir_write_u64(dir, "memory.limit_in_bytes", bytes);
    if (r < 0)
        return cgroup_err(err, -r, dir->path, "memory.limit_in_bytes");

    /* After the other one: the kernel refuses memory+swap below memory. */
    cg->swap_limit = bytes;
    if (!cg->serves_one || limit_has_swap())
        r = limit_swap(cg);
    if (r < 0)
        return cgroup_err(err, -r, dir->path, "memory.memsw.limit_in_bytes");

    /* Buffers of TCP are not charged with the rest here, and without a limit not at all. */
    r = cgroup_dir_write_u64(dir, "memory.kmem.tcp.limit_in_bytes", bytes);
    if (r < 0 && r != -ENOENT)
        return cgroup_err(err, -r, dir->path, "memory.kmem.tcp.limit_in_bytes");
    return 0;
}

int cgroup_v1_share(struct cgroup *cg, unsigned percent)
{
    return cgroup_dir_write_u64(&cg->dir[SLOT_CPU], "cpu.cfs_quota_us",
                                (uint64_t)percent * (PERIOD_US / 100));
}

static int limit_cpu(struct cgroup *cg, unsigned percent, struct cordon_err *err)
{
    const struct cgroup_dir *dir = &cg->dir[SLOT_CPU];
    int r = cgroup_v1_share(cg, percent);
    /* EINVAL: a group above us has less than that. Then it holds the guest below our limit. */
    if (r < 0 && r != -EINVAL)
        return cgroup_err(err, -r, dir->path, "cpu.cfs_quota_us");
    return 0;
}

void cgroup_v1_look_for_peak(struct cgroup *cg)
{
    uint64_t peak;
    if (cg->asks_peak)
        cg->sample_pids = cgroup_kept_u64(cg, KEPT_PIDS_PEAK, &peak) < 0;
    cg->asks_peak = false;
}

int cgroup_v1_limit(struct cgroup *cg, const struct plan_limits *limits, struct cordon_err *err)
{
    unsigned mine = cg->controls & ~cg->v2_controls;
    if ((mine & CGROUP_MEMORY) && limits->memory_bytes &&
        limit_memory(cg, limits->memory_bytes, err) < 0)
        return -1;
    if (mine & CGROUP_PIDS) {
        const struct cgroup_dir *dir = &cg->dir[SLOT_PIDS];
        uint64_t most = MIN(limits->processes, CGROUP_PIDS_MAX);
        int r = limits->processes ? cgroup_dir_write_u64(dir, "pids.max", most) : 0;
        if (r < 0)
            return cgroup_err(err, -r, dir->path, "pids.max");
        cg->asks_peak = true;
        if (!cg->serves_one)
            cgroup_v1_look_for_peak(cg);
        cg->pids_limit = limits->processes;
    }
    if ((mine & CGROUP_CPU) && limit_cpu(cg, limits->cpu_percent, err) < 0)
        return -1;
    cg->cpu_percent = limits->cpu_percent;
    return 0;
}

/* Every file of a group that is read costs the kernel as much as the reading of five, made and
 * removed with the group: what others show not to have happened is not asked for. Where there was
 * one process, and nothing killed it, nobody was killed for want of memory. */
static void usage_memory(struct cgroup *cg, struct cgroup_usage *usage)
{
    char text[256];
    usage->oom_kills = cg->since.oom_kills;
    if (cgroup_kept_u64(cg, KEPT_MEMORY_PEAK, &usage->memory_peak_bytes) < 0)
        return;
    usage->has_memory = true;
    if (cg->last.pids_peak == 1 && cg->exited)
        return;
    if (cgroup_kept_read(cg, KEPT_OOM, text, sizeof(text)) > 0)
        cgroup_parse_key(text, "oom_kill", &usage->oom_kills);
}

/* A fork is refused when the limit is reached, not before. */
void cgroup_v1_usage_pids(struct cgroup *cg, struct cgroup_usage *usage)
{
    char text[256];
    if (!(cg->controls & ~cg->v2_controls & CGROUP_PIDS))
        return;
    usage->pids_refused = cg->since.pids_refused;
    bool is_known = cgroup_kept_u64(cg, KEPT_PIDS_PEAK, &usage->pids_peak) == 0;
    cg->last.pids_peak = usage->pids_peak;
    if (is_known && (!cg->pids_limit || usage->pids_peak < cg->pids_limit))
        return;
    if (cgroup_kept_read(cg, KEPT_PIDS_EVENTS, text, sizeof(text)) > 0)
        cgroup_parse_key(text, "max", &usage->pids_refused);
}

/* The kernel hands the quota of a period out to the cores in slices of 5 ms, so that one may wait
 * while others have some left. Nobody does while what was used and what they could have is less. */
static bool usage_may_have_waited(const struct cgroup *cg, const struct cgroup_usage *usage)
{
    static long cores;
    if (cores == 0)
        cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t used_ns = cg->share_used_ns + usage->cpu_user_ns + usage->cpu_sys_ns;
    return !usage->has_cpu || used_ns + (uint64_t)MAX(cores, 1) * SLICE_NS >
                                  (uint64_t)cg->cpu_percent * PERIOD_US / 100 * 1000;
}

static void usage_share(struct cgroup *cg, struct cgroup_usage *usage)
{
    char text[512];
    usage->throttled_ns = cg->since.throttled_ns;
    if (usage_may_have_waited(cg, usage) &&
        cgroup_kept_read(cg, KEPT_CPU_STAT, text, sizeof(text)) > 0)
        cgroup_parse_key(text, "throttled_time", &usage->throttled_ns);
}

void cgroup_v1_usage(struct cgroup *cg, struct cgroup_usage *usage)
{
    unsigned mine = cg->controls & ~cg->v2_controls;
    if (mine & CGROUP_MEMORY)
        usage_memory(cg, usage);
    if (mine & CGROUP_CPU)
        usage_share(cg, usage);
    struct cgroup_counters *last = &cg->last;
    last->oom_kills = usage->oom_kills;
    last->pids_refused = usage->pids_refused;
    last->throttled_ns = usage->throttled_ns;
    usage->oom_kills -= MIN(usage->oom_kills, cg->since.oom_kills);
    usage->pids_refused -= MIN(usage->pids_refused, cg->since.pids_refused);
    usage->throttled_ns -= MIN(usage->throttled_ns, cg->since.throttled_ns);
}

/* The CPU time of a guest that was one process, or thread, is known to who waited for it. Of more
 * than one some may have ended without anybody waiting: only the group knows. Groups that are used
 * again are read, as the next guest's time begins where this one's ended. */
static bool v1_was_one(const struct cgroup *cg)
{
    return cg->serves_one && cg->waited_user_ns + cg->waited_sys_ns > 0 && cg->last.pids_peak == 1;
}

static int v1_cpu_counters(struct cgroup *cg)
{
    uint64_t sys, total;
    char text[128];
    if (cgroup_kept_u64(cg, KEPT_CPU_TOTAL, &total) < 0)
        return -1;
    if (cgroup_kept_u64(cg, KEPT_CPU_SYS, &sys) < 0) {
        _cleanup_close_ int fd = cgroup_dir_open(&cg->dir[SLOT_CPUACCT], "cpuacct.stat", O_RDONLY);
        if (fd < 0 || cgroup_file_pread(fd, text, sizeof(text)) <= 0 ||
            cgroup_parse_key(text, "system", &sys) < 0)
            return -1;
        sys *= NS_PER_TICK;
    }
    cg->last.total_ns = total;
    cg->last.sys_ns = sys;
    return 0;
}

int cgroup_v1_cpu(struct cgroup *cg, uint64_t *ret_user_ns, uint64_t *ret_sys_ns)
{
    if (v1_was_one(cg)) {
        *ret_user_ns = cg->waited_user_ns;
        *ret_sys_ns = cg->waited_sys_ns;
        return 0;
    }
    if (!cgroup_has(cg, SLOT_CPUACCT) || v1_cpu_counters(cg) < 0)
        return -1;
    uint64_t total = cg->last.total_ns - MIN(cg->last.total_ns, cg->since.total_ns);
    uint64_t sys = cg->last.sys_ns - MIN(cg->last.sys_ns, cg->since.sys_ns);
    /* The total is exact; the split is by where the timer tick found the task. */
    *ret_sys_ns = MIN(sys, total);
    *ret_user_ns = total - *ret_sys_ns;
    return 0;
}
