/* Limits of one guest as control groups: v2 by delegation, v1 as root (with a v2 group beside it
 * for cgroup.kill where there is a v2 tree). Runs in the supervisor; cgroup_enter() alone runs in
 * the process that becomes the guest's program.
 *
 * Groups are named cordon-<supervisor pid>-<what tells it from others of that pid>-<pid
 * namespace>-<n>, so that what a killed Cordon left behind can be told from the living (also from
 * those of another container that shares the tree) and be removed by cgroup_gc().
 *
 * The v2 group is made first and pid 1 is cloned into it. The v1 groups are made while pid 1 builds
 * the guest's root, and are entered by the process that becomes the guest's program, last thing
 * before its execve: what our own set-up allocates is then not charged to the guest, and they are
 * empty and can be removed while the kernel still takes pid 1's namespaces apart. A thread that
 * moves itself into a v1 group waits for nothing; moving another process, or a process into a v2
 * group, waits for a grace period (3 to 15 ms measured). */
#ifndef NATIVE_CGROUP_H
#define NATIVE_CGROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <cordon.h>

#include "host/host.h"
#include "plan/plan.h"

struct cgroup;

/* Which limits a set of groups holds; the others need their fallback. */
enum cgroup_control {
    CGROUP_MEMORY = 1 << 0,
    CGROUP_PIDS = 1 << 1,
    CGROUP_CPU = 1 << 2,         /* CPU percent */
    CGROUP_CPU_ACCOUNT = 1 << 3, /* CPU time is measured */
    CGROUP_KILL = 1 << 4,        /* one write ends every process */
};

struct cgroup_usage {
    bool has_memory, has_cpu; /* which of the numbers below are measured */
    uint64_t memory_peak_bytes;
    uint64_t oom_kills; /* processes the kernel killed for the memory limit */
    uint64_t cpu_user_ns, cpu_sys_ns;
    uint64_t pids_peak;    /* 0 when not known */
    uint64_t own_tasks;    /* so many of them are Cordon's */
    uint64_t pids_refused; /* forks refused at the limit */
    uint64_t throttled_ns;
};

/* What groups made at this place would hold (CPU percent included, whether asked for or not). */
unsigned cgroup_offers(const struct host_cgroups *where);

/* Makes the v2 group, where there is one, and writes its limits. Nothing is left behind on failure.
 * A controller that the host does not offer is left out: see cgroup_controls(). Worth calling also
 * where .kind is NONE but .v2 is not empty: kill, CPU time and freezer without limits. own_tasks:
 * so many of Cordon's own will be in the v2 group beside the guest, and are not counted: its pid 1,
 * or none (guests of a room). */
#define CGROUP_OWN_TASKS 1u
int cgroup_create(const struct host_cgroups *where, const struct plan_limits *limits,
                  unsigned own_tasks, struct cgroup **ret_cgroup, struct cordon_err *err);
/* Makes the v1 groups beside it; then they can be entered, and hold nothing. On failure of this and
 * the next two cgroup_destroy() clears up. */
int cgroup_make_v1(struct cgroup *cg, const struct host_cgroups *where,
                   const struct plan_limits *limits, struct cordon_err *err);
/* Writes their limits. */
int cgroup_limit_v1(struct cgroup *cg, const struct host_cgroups *where,
                    const struct plan_limits *limits, struct cordon_err *err);
/* Before it: they serve one guest and are removed (cgroup_again() says no). Then what a short guest
 * does not need is left out, as each file of a group costs the kernel its making and removal: the
 * limit for swap, where the host has none, waits for cgroup_limit_late(), and CPU time of a guest
 * that was a single process is taken from who waited for it. */
void cgroup_serves_one(struct cgroup *cg);
/* On a timer. */
void cgroup_limit_late(struct cgroup *cg);
/* Both. */
int cgroup_create_v1(struct cgroup *cg, const struct host_cgroups *where,
                     const struct plan_limits *limits, struct cordon_err *err);
/* Other values for limits that were set when the groups were made; before the guest is in them. */
int cgroup_relimit(struct cgroup *cg, const struct plan_limits *limits, struct cordon_err *err);
/* Removes the v1 groups; the guest is gone, pid 1 need not be. Call cgroup_usage() before. */
void cgroup_remove_v1(struct cgroup *cg);
/* The guest is gone and its numbers were read: can the groups serve another one as new ones would?
 * limits: what they hold. False: remove them; nothing else may be done with them. */
bool cgroup_again(struct cgroup *cg, const struct plan_limits *limits);
/* Is no more memory charged to them than that? What the guest's processes had goes in a moment, but
 * not at once. */
bool cgroup_is_drained(struct cgroup *cg, const struct plan_limits *limits);
/* A v2 group for a pool of guests whose users on the host are others than ours: its spawner is
 * cloned into cgroup_pool_fd(), the groups of its guests are made at *ret_where, each admitted
 * before a guest is born in it. owner: the spawner's user, who may write to their lists of
 * processes, and to nothing else. Removed when everybody in it is gone; NULL is accepted. */
struct cgroup_pool;
int cgroup_pool_make(const struct host_cgroups *above, uid_t owner, struct cgroup_pool **ret_pool,
                     struct host_cgroups *ret_where, struct cordon_err *err);
int cgroup_pool_fd(const struct cgroup_pool *pool);
int cgroup_pool_admit(const struct cgroup_pool *pool, struct cgroup *cg, struct cordon_err *err);
void cgroup_pool_remove(struct cgroup_pool *pool);
/* Mask of enum cgroup_control that is in force. */
unsigned cgroup_controls(const struct cgroup *cg);
/* Descriptor for CLONE_INTO_CGROUP, or -1. Belongs to the group. */
int cgroup_clone_fd(const struct cgroup *cg);
#define CGROUP_ENTRIES_MAX 8
/* The descriptors through which a process enters the v1 groups; they belong to the groups. */
size_t cgroup_entries(const struct cgroup *cg, int *ret_fds);
/* The same of the v2 group, -1: there is none. For a process that could not be born in it: it waits
 * for every core. */
int cgroup_entry_v2(const struct cgroup *cg);
/* Moves the calling thread, which must be its process's only one, into v1 groups. Only write(2):
 * works after every privilege, root and namespace was given up, and allocates nothing. 0 or -errno.
 */
int cgroup_enter(const int *fds, size_t n_fds);
/* The same into the v2 group, where there is one, for a process that clone3 could not place. */
int cgroup_join(const struct cgroup *cg);
/* CPU time of our own set-up inside the groups, which is not the guest's and is taken off the
 * numbers (pid 1 knows it from getrusage() just before it starts the guest). */
void cgroup_exclude_cpu(struct cgroup *cg, uint64_t user_ns, uint64_t sys_ns);
/* What is known of the guest's end before its numbers are read: that its main process ended by
 * itself, and the CPU time of all that was waited for (0: nobody did). */
void cgroup_note_end(struct cgroup *cg, bool exited, uint64_t user_ns, uint64_t sys_ns);
int cgroup_usage(struct cgroup *cg, struct cgroup_usage *ret_usage);
/* Opens what cgroup_usage() always reads of v1 groups, until they are removed. */
void cgroup_keep_files(struct cgroup *cg);
/* With what cgroup_usage() said, on a timer. A guest that runs into its CPU percentage wants more
 * cores than it was given, and is on all of them until the kernel stops it for the rest of a
 * period: the kernel gives a group its weight once for every core on which it has much to run, so
 * that a neighbour that computes beside it gets less than its half of a core. Half the weight, from
 * then until it has kept within the percentage for a second, makes up for that; where nobody else
 * wants the cores it changes nothing. */
void cgroup_weigh(struct cgroup *cg, uint64_t throttled_ns);
/* CPU time only; cheap enough for a timer. */
int cgroup_cpu_ns(struct cgroup *cg, uint64_t *ret_ns);
/* True where the kernel keeps no peak of memory (v2 before 5.19) or of tasks (before 6.1): then
 * cgroup_sample() should be called every few milliseconds and cgroup_usage() gives what it saw. */
bool cgroup_needs_sampling(struct cgroup *cg);
void cgroup_sample(struct cgroup *cg);
/* Stops or continues all of it, unseen by the guest, where CGROUP_KILL is in force (v2): the duty
 * cycle of a host without a cpu controller. 0 or -errno; a frozen guest can be killed. */
int cgroup_freeze(struct cgroup *cg, bool freeze);
/* Kills every process in the groups (cgroup.kill where there is one). */
void cgroup_kill(struct cgroup *cg);
/* Removes the groups; they must be empty. Waits at most 200 ms for stragglers; what still cannot be
 * removed is left for cgroup_gc(). NULL is accepted. */
void cgroup_destroy(struct cgroup *cg);
/* "v1 memory,pids,cpu", "v2 memory,pids,cpu" for the enforcement report: exactly the controllers in
 * force (cpu only when a percentage is asked for); "v2 kill" when the group serves only the kill.
 */
const char *cgroup_describe(const struct cgroup *cg);
/* Removes groups of Cordon processes that no longer exist (what still runs in them is killed
 * first); returns how many. known: so many folders there are the caller's, at this moment; with no
 * more than those nothing is looked at. Else it costs a directory listing and one read per other
 * living Cordon: call it off the critical path. */
int cgroup_gc(const struct host_cgroups *where, nlink_t known);
/* The same for every group of the trees that can be seen from here, wherever the Cordon was started
 * that left it. Walks thousands of folders on a large host. */
int cgroup_gc_everywhere(const struct host_cgroups *where);

#endif
