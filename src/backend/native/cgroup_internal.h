/* Shared by the cgroup_*.c files only. */
#ifndef NATIVE_CGROUP_INTERNAL_H
#define NATIVE_CGROUP_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/native/cgroup.h"

/* Four numbers of at most 20 digits. */
#define CGROUP_NAME_MAX 96
#define CGROUP_PATH_MAX (HOST_PATH_MAX + CGROUP_NAME_MAX)
#define CGROUP_PIDS_MAX UINT64_C(4194304) /* the kernel takes no larger limit, and has no more */

/* In the order they are made; removed in reverse. The first one that a place offers is the anchor:
 * it exists whenever any other does, so that a search for leftovers lists one directory only. */
enum cgroup_slot { SLOT_V2, SLOT_MEMORY, SLOT_PIDS, SLOT_CPUACCT, SLOT_CPU, SLOT_COUNT };

struct cgroup_dir {
    char path[CGROUP_PATH_MAX]; /* empty: not used */
    int fd;       /* of version 2; files of version 1 are opened by path: few are, and once each */
    int enter_fd; /* what a process writes "0" to */
    bool alias;   /* the same directory as an earlier slot (co-mounted controllers) */
};

/* Files of v1 groups that are read for every guest; kept open in groups that are used again, and
 * while the guest of a single run is there. */
enum cgroup_kept {
    KEPT_MEMORY_PEAK,
    KEPT_MEMORY_NOW,
    KEPT_OOM,
    KEPT_PIDS_NOW,
    KEPT_PIDS_PEAK,
    KEPT_PIDS_EVENTS,
    KEPT_CPU_STAT,
    KEPT_CPU_TOTAL,
    KEPT_CPU_SYS,
    KEPT_COUNT
};

struct cgroup {
    char name[CGROUP_NAME_MAX];
    bool named;       /* a group of that name was made */
    bool left_behind; /* one could not be removed: the anchor stays for cgroup_gc() */
    char describe[48];
    struct cgroup_dir dir[SLOT_COUNT];
    unsigned controls;    /* enum cgroup_control */
    unsigned v2_controls; /* those of them that v2 holds */
    unsigned own_tasks;   /* of Cordon's, in the v2 group (in those of v1 there are none) */
    int cpu_fd;           /* kept open for cgroup_cpu_ns() */
    bool sample_memory, sample_pids;
    bool asks_peak;                  /* whether to sample pids is not known yet */
    uint64_t memory_peak, pids_peak; /* sampled */
    uint64_t own_user_ns, own_sys_ns;
    /* of groups that are used again */
    bool keeps;           /* files stay open: */
    int kept[KEPT_COUNT]; /* -1: not open */
    /* the kernel's counters as they were last read, and as they stood when the guest came */
    struct cgroup_counters {
        uint64_t oom_kills, pids_refused, throttled_ns, total_ns, sys_ns;
        uint64_t pids_peak;
    } last, since;
    /* limits of version 1 as they were written, 0: none: below them nothing was refused */
    uint64_t pids_limit;
    unsigned cpu_percent;
    uint64_t swap_limit; /* of memory and swap, not written yet; 0: it is */
    bool serves_one;
    /* of cgroup_note_end() */
    bool exited;
    uint64_t waited_user_ns, waited_sys_ns;
    uint64_t share_used_ns; /* of the CPU quota since it was last filled */
    /* of cgroup_weigh(): what it saw last, and until when the guest has the lower weight; 0: not */
    uint64_t weighed_ns, yields_until_ns;
};

/* Whose group it is. */
struct cgroup_owner {
    pid_t pid;
    /* tells it from others that have or had the pid: the number the kernel gives every process
     * once (Linux 6.9), which costs a twentieth of looking into /proc; else when it began, in clock
     * ticks after boot, field 22 of /proc/<pid>/stat */
    uint64_t mark;
    bool is_begin; /* the latter */
    uint64_t pid_ns;
    unsigned n;
};

/* cgroup_file.c: 0 or -errno. Nothing here uses stdio or allocates. */
int cgroup_file_write(int dir_fd, const char *file, const char *text);
int cgroup_file_write_u64(int dir_fd, const char *file, uint64_t value);
/* Reads at most size-1 bytes and ends them with NUL; returns how many or -errno. */
ssize_t cgroup_file_read(int dir_fd, const char *file, char *buf, size_t size);
ssize_t cgroup_file_pread(int fd, char *buf, size_t size);
int cgroup_file_u64(int dir_fd, const char *file, uint64_t *ret_value);
/* The same by path. */
int cgroup_dir_open(const struct cgroup_dir *dir, const char *file, int flags);
int cgroup_dir_write(const struct cgroup_dir *dir, const char *file, const char *text);
int cgroup_dir_write_u64(const struct cgroup_dir *dir, const char *file, uint64_t value);
int cgroup_dir_u64(const struct cgroup_dir *dir, const char *file, uint64_t *ret_value);
/* "123\n"; "max" is UINT64_MAX. -EINVAL when it is neither. */
int cgroup_parse_u64(const char *text, uint64_t *ret_value);
/* Line "key value" of a flat-keyed file; -ENOENT when the key is not there. */
int cgroup_parse_key(const char *text, const char *key, uint64_t *ret_value);
/* State letter and start time of a /proc/<pid>/stat line. */
int cgroup_parse_stat(const char *text, char *ret_state, uint64_t *ret_start);

static inline bool cgroup_has(const struct cgroup *cg, enum cgroup_slot slot)
{
    return cg->dir[slot].path[0] != '\0';
}

/* cgroup.c: a name that nobody of ours has used. 0 or -errno. */
#define CGROUP_NAME_TRIES 64
int cgroup_name_next(char ret_name[static CGROUP_NAME_MAX]);

/* cgroup_gc.c */
int cgroup_owner_self(struct cgroup_owner *ret_owner);
void cgroup_name_format(const struct cgroup_owner *owner, char name[static CGROUP_NAME_MAX]);
int cgroup_name_parse(const char *name, struct cgroup_owner *ret_owner);
/* Is the owner gone? list_fd is the group's parent. *ret_may_kill: what still runs in it may go. */
bool cgroup_is_stale(const struct cgroup_owner *owner, const struct cgroup_owner *self, int list_fd,
                     const char *name, bool *ret_may_kill);
/* Path of the parent directory of a slot, or "" when this place does not offer it. */
const char *cgroup_slot_parent(const struct host_cgroups *where, enum cgroup_slot slot);
const char *cgroup_slot_left(const struct host_cgroups *where, enum cgroup_slot slot);
/* rmdir that bears the short EBUSY after the last process ended; 0 or -errno. */
int cgroup_rmdir(const char *path, uint64_t deadline_ns);
/* With groups of ours that are below it: its owner is gone, or asks for it. */
int cgroup_rmdir_pool(const char *path, uint64_t deadline_ns);
/* Kills what is listed in the directory, again and again until it is empty, at most for 100 ms. */
void cgroup_kill_dir(int dir_fd, const char *name);

/* cgroup_v1.c, cgroup_v2.c. 0 or -1 with err set; the read functions only add what they know. */
int cgroup_v1_limit(struct cgroup *cg, const struct plan_limits *limits, struct cordon_err *err);
void cgroup_v1_look_for_peak(struct cgroup *cg);
void cgroup_v1_usage_pids(struct cgroup *cg, struct cgroup_usage *usage);
void cgroup_v1_usage(struct cgroup *cg, struct cgroup_usage *usage);
int cgroup_v1_cpu(struct cgroup *cg, uint64_t *ret_user_ns, uint64_t *ret_sys_ns);
int cgroup_v1_share(struct cgroup *cg,
                    unsigned percent); /* 0 or -errno; also fills the quota anew */
/* cgroup_again.c */
ssize_t cgroup_kept_read(struct cgroup *cg, enum cgroup_kept which, char *buf, size_t size);
int cgroup_kept_u64(struct cgroup *cg, enum cgroup_kept which, uint64_t *ret_value);
void cgroup_kept_close(struct cgroup *cg);
/* How much may be charged to a group already for another guest to get it: what the kernel hands out
 * to this many cores ahead of use, within an absolute bound and a part of the limit (0: none). */
uint64_t cgroup_again_most(long cores, uint64_t page, uint64_t limit);
/* cgroup.c: makes the group of one slot anew, under its name. 0 or -errno. */
int cgroup_remake(struct cgroup *cg, enum cgroup_slot slot);
/* cgroup.c: the weight of a new group, or half of it. 0 or -errno. */
int cgroup_weight(struct cgroup *cg, bool yields);
/* Hands the controllers down in a group that is ours (.v2_own). Nothing else is touched. */
int cgroup_v2_prepare(const struct host_cgroups *where, struct cordon_err *err);
int cgroup_v2_limit(struct cgroup *cg, const struct plan_limits *limits, struct cordon_err *err);
void cgroup_v2_usage(struct cgroup *cg, struct cgroup_usage *usage);
int cgroup_v2_cpu(struct cgroup *cg, uint64_t *ret_user_ns, uint64_t *ret_sys_ns);
/* Says which file of which group refused. */
int cgroup_err(struct cordon_err *err, int sys_errno, const char *path, const char *file);

#endif
