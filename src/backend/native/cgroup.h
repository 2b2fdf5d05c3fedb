/* Limits of one guest as control groups: v2 by delegation, v1 as root (with a v2 group beside it for
 * cgroup.kill where there is a v2 tree). Runs in the supervisor.
 *
 * Groups are named cordon-<supervisor pid>-<start time of that pid>-<n>, so that what a killed Cordon
 * left behind can be told from the living and be removed by cgroup_gc(). */
#ifndef NATIVE_CGROUP_H
#define NATIVE_CGROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <cordon.h>

#include "host/host.h"
#include "plan/plan.h"

struct cgroup;

struct cgroup_usage {
    bool has_memory, has_cpu, has_pids; /* which of the numbers below are measured */
    uint64_t memory_peak_bytes;
    uint64_t oom_kills;        /* processes the kernel killed for the memory limit */
    uint64_t memory_fails;     /* allocations refused at the limit (v1 failcnt, v2 memory.events max) */
    uint64_t cpu_user_ns, cpu_sys_ns;
    uint64_t pids_peak;        /* 0 when the kernel does not keep it */
    uint64_t pids_now;
    uint64_t pids_refused;     /* forks refused at the limit */
    uint64_t throttled_ns;
};

/* Makes the groups and writes the limits. Nothing is left behind on failure. */
int cgroup_create(const struct host_cgroups *where, const struct plan_limits *limits,
                  struct cgroup **ret_cgroup, struct cordon_err *err);
/* Descriptor for CLONE_INTO_CGROUP, or -1: then cgroup_attach() must place the process. */
int cgroup_clone_fd(const struct cgroup *cg);
int cgroup_attach(struct cgroup *cg, pid_t pid, struct cordon_err *err);
int cgroup_usage(struct cgroup *cg, struct cgroup_usage *ret_usage);
/* CPU time only; cheap enough for a timer. */
int cgroup_cpu_ns(struct cgroup *cg, uint64_t *ret_ns);
/* Kills every process in the group (cgroup.kill where there is one). */
void cgroup_kill(struct cgroup *cg);
/* Removes the groups; they must be empty. Waits at most 200 ms for stragglers; what still cannot be
 * removed is left for cgroup_gc(). NULL is accepted. */
void cgroup_destroy(struct cgroup *cg);
/* "v1 memory,pids,cpu", "v2 memory,pids,cpu" for the enforcement report. */
const char *cgroup_describe(const struct cgroup *cg);
/* Removes groups of Cordon processes that no longer exist; returns how many. */
int cgroup_gc(const struct host_cgroups *where);

#endif
