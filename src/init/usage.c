/* Numbers of the container's own control groups, read from the read-only /sys/fs/cgroup that
 * runtimes show inside: v2, or the v1 hierarchies. Runs in a container's pid 1; what is not there
 * stays 0. */
#include "init/usage.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"

/* Opened before the guest exists and read again at offset 0. */
enum usage_file {
    CPU,
    MEMORY_PEAK,
    MEMORY_EVENTS,
    PIDS_EVENTS,
    PIDS_PEAK,
    CPU_STAT,
    PIDS_NOW,
    MEMORY_LIMIT,
    PIDS_LIMIT,
    CPU_LIMIT,
    N_FILES
};
static int usage_fds[N_FILES];
static bool usage_v2;
static uint64_t usage_pids_base; /* highest before the guest: the runtime's own threads */
static uint64_t usage_pids_seen;
/* What was there before the guest: a container may have served others. */
static uint64_t usage_cpu_base, usage_oom_base, usage_refused_base, usage_throttled_base;

static bool usage_read(enum usage_file file, char *text, size_t size)
{
    ssize_t n = usage_fds[file] < 0 ? -1 : pread(usage_fds[file], text, size - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* The number alone (key NULL) or behind a word at the start of a line; 0 where it is not. */
static uint64_t usage_number(enum usage_file file, const char *key)
{
    char text[1024];
    if (!usage_read(file, text, sizeof(text)))
        return 0;
    if (!key)
        return strtoull(text, NULL, 10);
    size_t len = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, len) == 0 && line[len] == ' ')
            return strtoull(line + len, NULL, 10);
        if (!*line)
            break;
    }
    return 0;
}

static uint64_t usage_cpu_all(void)
{
    return usage_v2 ? usage_number(CPU, "usage_usec") * 1000 : usage_number(CPU, NULL);
}

static uint64_t usage_throttled(void)
{
    return usage_v2 ? usage_number(CPU_STAT, "throttled_usec") * 1000
                    : usage_number(CPU_STAT, "throttled_time");
}

void usage_open(void)
{
    static const char *const v2[N_FILES] = {
        "cpu.stat", "memory.peak",  "memory.events", "pids.events", "pids.peak",
        "cpu.stat", "pids.current", "memory.max",    "pids.max",    "cpu.max"};
    static const char *const v1[N_FILES] = {"cpuacct/cpuacct.usage",
                                            "memory/memory.memsw.max_usage_in_bytes",
                                            "memory/memory.oom_control",
                                            "pids/pids.events",
                                            "pids/pids.peak",
                                            "cpu/cpu.stat",
                                            "pids/pids.current",
                                            "memory/memory.limit_in_bytes",
                                            "pids/pids.max",
                                            "cpu/cpu.cfs_quota_us"};
    char path[96];
    usage_v2 = access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0;
    for (int i = 0; i < N_FILES; i++) {
        snprintf(path, sizeof(path), "/sys/fs/cgroup/%s", usage_v2 ? v2[i] : v1[i]);
        usage_fds[i] = open(path, O_RDONLY | O_CLOEXEC);
        if (usage_fds[i] < 0 && i == MEMORY_PEAK && !usage_v2)
            usage_fds[i] =
                open("/sys/fs/cgroup/memory/memory.max_usage_in_bytes", O_RDONLY | O_CLOEXEC);
    }
    usage_pids_base = usage_number(PIDS_PEAK, NULL);
    usage_cpu_base = usage_cpu_all();
    usage_oom_base = usage_number(MEMORY_EVENTS, "oom_kill");
    usage_refused_base = usage_number(PIDS_EVENTS, "max");
    usage_throttled_base = usage_throttled();
}

static bool usage_is_at_most(enum usage_file file, uint64_t limit)
{
    uint64_t value = usage_number(file, NULL); /* "max" and nothing read as 0 */
    return limit == 0 || (value > 0 && value <= limit);
}

uint32_t usage_held(const struct init_order *order)
{
    uint32_t held = 0;
    /* the kernel rounds to pages */
    if (usage_is_at_most(MEMORY_LIMIT, order->memory_bytes ? order->memory_bytes + 4096 : 0))
        held |= INIT_HELD_MEMORY;
    if (usage_is_at_most(PIDS_LIMIT, order->processes ? order->processes + 1u : 0))
        held |= INIT_HELD_PIDS;
    if (usage_is_at_most(CPU_LIMIT, order->cpu_percent ? order->cpu_percent * 1000u : 0))
        held |= INIT_HELD_CPU;
    return held;
}

void usage_look(void)
{
    uint64_t now = usage_number(PIDS_NOW, NULL);
    usage_pids_seen = MAX(usage_pids_seen, now);
}

bool usage_has_cpu(void)
{
    return usage_cpu_all() > 0;
}

uint64_t usage_cpu_ns(void)
{
    return usage_cpu_all() - usage_cpu_base;
}

void usage_fill(struct init_report *report)
{
    report->peak_memory_bytes = usage_number(MEMORY_PEAK, NULL);
    report->oom_kills = usage_number(MEMORY_EVENTS, "oom_kill") - usage_oom_base;
    report->processes_refused = usage_number(PIDS_EVENTS, "max") - usage_refused_base;
    report->processes_peak = usage_number(PIDS_PEAK, NULL);
    if (report->processes_peak <= usage_pids_base)
        report->processes_peak = usage_pids_seen;
    /* ourselves, and where a container is kept the one that keeps it */
    report->processes_peak -= MIN(report->processes_peak, getpid() == 1 ? 1u : 2u);
    report->throttled_ns = usage_throttled() - usage_throttled_base;
}
