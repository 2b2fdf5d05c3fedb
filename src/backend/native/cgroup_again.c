/* Version 1 groups that are used for one guest after another. Runs in the supervisor.
 *
 * Making and removing four groups costs more than a short guest. Those of a prepared guest go to
 * the next one of the same kind if what they hold and count is as exact for it as in new ones:
 * nobody is left in them, no more memory is charged to them than the kernel hands out to its cores
 * ahead of use, and every number can be set back or told from what it was. What cannot is made
 * anew: the highest number of processes is kept for ever.
 *
 * Its way of reading files that stay open serves the groups of a single run as well. */
#include "backend/native/cgroup_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/util.h"

#define AGAIN_CORE_PAGES 64     /* what the kernel charges in advance on every core */
#define AGAIN_PAGES 16          /* begun by small objects of the kernel's, some still to be freed */
#define AGAIN_MEMORY_PART 64    /* and no more than this part of the limit */
#define AGAIN_MEMORY (2u << 20) /* nor than this, however many cores there are */
#define AGAIN_PERCENT 50        /* of a core, below which a quota is always filled again */
#define AGAIN_QUOTA_NS 1000000u /* of CPU time per percent that may be used: a whole period's */

static const struct {
    enum cgroup_slot slot;
    const char *name;
} kept_files[KEPT_COUNT] = {
    [KEPT_MEMORY_PEAK] = {SLOT_MEMORY, "memory.max_usage_in_bytes"},
    [KEPT_MEMORY_NOW] = {SLOT_MEMORY, "memory.usage_in_bytes"},
    [KEPT_OOM] = {SLOT_MEMORY, "memory.oom_control"},
    [KEPT_PIDS_NOW] = {SLOT_PIDS, "pids.current"},
    [KEPT_PIDS_PEAK] = {SLOT_PIDS, "pids.peak"},
    [KEPT_PIDS_EVENTS] = {SLOT_PIDS, "pids.events"},
    [KEPT_CPU_STAT] = {SLOT_CPU, "cpu.stat"},
    [KEPT_CPU_TOTAL] = {SLOT_CPUACCT, "cpuacct.usage"},
    [KEPT_CPU_SYS] = {SLOT_CPUACCT, "cpuacct.usage_sys"},
};

static int cgroup_kept_open(struct cgroup *cg, enum cgroup_kept which)
{
    return cgroup_dir_open(&cg->dir[kept_files[which].slot], kept_files[which].name,
                           which == KEPT_MEMORY_PEAK ? O_RDWR : O_RDONLY);
}

ssize_t cgroup_kept_read(struct cgroup *cg, enum cgroup_kept which, char *buf, size_t size)
{
    int fd = cg->kept[which];
    if (fd < 0 && (fd = cgroup_kept_open(cg, which)) < 0)
        return fd;
    ssize_t n = cgroup_file_pread(fd, buf, size);
    if (cg->keeps)
        cg->kept[which] = fd;
    else
        close(fd);
    return n;
}

void cgroup_keep_files(struct cgroup *cg)
{
    static const enum cgroup_kept always[] = {KEPT_MEMORY_PEAK, KEPT_PIDS_PEAK};
    for (size_t i = 0; i < ARRAY_SIZE(always); i++) {
        enum cgroup_kept which = always[i];
        if (cg->kept[which] >= 0 || !cgroup_has(cg, kept_files[which].slot))
            continue;
        int fd = cgroup_kept_open(cg, which);
        cg->kept[which] = fd >= 0 ? fd : -1;
    }
    cg->keeps = true;
}

int cgroup_kept_u64(struct cgroup *cg, enum cgroup_kept which, uint64_t *ret_value)
{
    char text[32];
    ssize_t n = cgroup_kept_read(cg, which, text, sizeof(text));
    return n < 0 ? (int)n : cgroup_parse_u64(text, ret_value);
}

void cgroup_kept_close(struct cgroup *cg)
{
    for (int i = 0; i < KEPT_COUNT; i++)
        util_close(&cg->kept[i]);
    cg->keeps = false;
}

uint64_t cgroup_again_most(long cores, uint64_t page, uint64_t limit)
{
    uint64_t stock = ((uint64_t)MAX(cores, 1) * AGAIN_CORE_PAGES + AGAIN_PAGES) * page;
    return MIN(MIN(stock, AGAIN_MEMORY), limit ? limit / AGAIN_MEMORY_PART : UINT64_MAX);
}

bool cgroup_is_drained(struct cgroup *cg, const struct plan_limits *limits)
{
    static long cores;
    uint64_t now;
    if (!cgroup_has(cg, SLOT_MEMORY))
        return true;
    cg->keeps = true;
    if (cores == 0)
        cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cgroup_kept_u64(cg, KEPT_MEMORY_NOW, &now) == 0 &&
           now <= cgroup_again_most(cores, (uint64_t)sysconf(_SC_PAGESIZE), limits->memory_bytes);
}

static bool again_peak(struct cgroup *cg)
{
    if (!cgroup_has(cg, SLOT_MEMORY))
        return true;
    int *fd = &cg->kept[KEPT_MEMORY_PEAK];
    if (*fd < 0)
        *fd = cgroup_kept_open(cg, KEPT_MEMORY_PEAK);
    return *fd >= 0 && pwrite(*fd, "0", 1, 0) == 1;
}

static bool again_pids(struct cgroup *cg, const struct plan_limits *limits)
{
    uint64_t now;
    if (cgroup_kept_u64(cg, KEPT_PIDS_NOW, &now) < 0 || now > 0)
        return false;
    if (cg->last.pids_peak == 1)
        return true;
    for (int i = KEPT_PIDS_NOW; i <= KEPT_PIDS_EVENTS; i++)
        util_close(&cg->kept[i]);
    cg->last.pids_refused = 0;
    return cgroup_remake(cg, SLOT_PIDS) == 0 &&
           (!limits->processes ||
            cgroup_dir_write_u64(&cg->dir[SLOT_PIDS], "pids.max",
                                 MIN(limits->processes, CGROUP_PIDS_MAX)) == 0);
}

/* A new group has a whole period's quota; writing the limit again gives it back. */
static bool again_share(struct cgroup *cg, const struct plan_limits *limits)
{
    if (!cgroup_has(cg, SLOT_CPU))
        return true;
    if (cg->yields_until_ns && cgroup_weight(cg, false) < 0)
        return false;
    cg->weighed_ns = cg->yields_until_ns = 0;
    cg->share_used_ns += cg->last.total_ns - MIN(cg->last.total_ns, cg->since.total_ns);
    if (limits->cpu_percent >= AGAIN_PERCENT &&
        cg->share_used_ns < (uint64_t)limits->cpu_percent * AGAIN_QUOTA_NS / 4)
        return true;
    cg->share_used_ns = 0;
    return cgroup_v1_share(cg, limits->cpu_percent) == 0;
}

bool cgroup_again(struct cgroup *cg, const struct plan_limits *limits)
{
    if (cg->serves_one || cg->dir[SLOT_V2].fd >= 0 || cg->left_behind ||
        !cgroup_has(cg, SLOT_PIDS) || !cgroup_has(cg, SLOT_CPUACCT))
        return false;
    for (int slot = 0; slot < SLOT_COUNT; slot++)
        if (cg->dir[slot].alias)
            return false;
    cg->keeps = true;
    if (!cgroup_is_drained(cg, limits) || !again_pids(cg, limits) || !again_share(cg, limits) ||
        !again_peak(cg))
        return false;
    cg->since = cg->last;
    cg->own_user_ns = cg->own_sys_ns = 0;
    cg->memory_peak = cg->pids_peak = 0;
    cgroup_note_end(cg, false, 0, 0);
    return true;
}
