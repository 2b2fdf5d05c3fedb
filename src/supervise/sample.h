/* Usage of a guest where no control group measures it: memory, CPU time and tasks of the process
 * tree from /proc, bytes and files below writable host paths, and the pace at which to look. Runs
 * in the supervisor, outside the guest's pid namespace.
 *
 * What is held this way is held by sampling: the guest can pass a limit for as long as one
 * interval. The result says so ("sampled"). */
#ifndef SUPERVISE_SAMPLE_H
#define SUPERVISE_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cordon.h>

struct sample {
    uint64_t memory_bytes;
    uint64_t cpu_user_ns, cpu_sys_ns; /* the living and the dead; in steps of 10 ms per process */
    unsigned tasks;                   /* processes and threads, the root not counted */
    bool is_pss; /* memory counts shared pages once; else it is the sum of resident sets: an upper
                    bound */
    bool truncated;         /* more processes than one look bears: all numbers are lower bounds */
    uint64_t growing_bytes; /* what it could be at most, in memory that no process shows */
    uint64_t cost_ns;
};

struct sample_options {
    uint64_t memory_limit;  /* resident sets beyond 70 % of it are looked at in detail; 0: never */
    unsigned max_processes; /* 0: SAMPLE_MAX_PROCESSES */
    unsigned own_sockets;   /* of ours in the guest's network namespace */
};

#define SAMPLE_MAX_PROCESSES 4096

struct sample_watch;

/* root: the guest's pid 1, or the keeper (a subreaper) in tier landlock. It is Cordon's own: its
 * memory and its task are not counted, the CPU time of the children it reaped is. beside: another
 * one like it, which has had other guests: what it had reaped of those does not count; NULL: none.
 */
struct backend_beside;
int sample_open(pid_t root, const struct backend_beside *beside, struct sample_watch **ret_watch,
                struct cordon_err *err);
void sample_close(struct sample_watch *watch);
/* -1 when one of them is gone or /proc cannot be read. CPU time never falls from one call to the
 * next, also when a process ignores SIGCHLD so that the kernel forgets what its children used. */
int sample_tree(struct sample_watch *watch, const struct sample_options *options,
                struct sample *ret_sample);
/* Stops or continues every process below the root, in passes until none is new. The guest can
 * notice: prefer a v2 group's freezer (cgroup_freeze()). */
void sample_stop(struct sample_watch *watch, bool stop);
/* Keeps the larger of each number. */
void sample_merge(struct sample *peak, const struct sample *now);

/* Numbers of one /proc/<pid>/stat line. */
struct sample_stat {
    char state;
    pid_t ppid;
    uint64_t utime, stime, cutime, cstime; /* clock ticks */
    uint64_t threads, start, rss_pages;
    uint64_t address_bytes; /* of address space */
    bool is_exiting;        /* runs no more, but is not yet a zombie */
};
/* Pure. -1 when it is not such a line; the name in it may be anything. */
int sample_parse_stat(const char *text, struct sample_stat *ret_stat);
/* Pure: VmPTE of status text, in bytes. */
int sample_parse_tables(const char *text, uint64_t *ret_bytes);
/* Pure: of one line of maps (without its newline) that shows a shared anonymous mapping: the object
 * and how far into it the mapping reaches. -1 for any other line. */
int sample_parse_shared(const char *line, uint64_t *ret_inode, uint64_t *ret_end);
/* Pure: how many sockets sockstat text says are in use. */
int sample_parse_sockets(const char *text, uint64_t *ret_used);
/* Pure: Pss_Shmem of smaps_rollup text, in bytes; 0 where the kernel does not tell. */
uint64_t sample_parse_pss_shared(const char *text);
/* Pure: Pss + SwapPss of smaps_rollup text, in bytes. */
int sample_parse_pss(const char *text, uint64_t *ret_bytes);

/* When to look again: half the time the limit is away at the growth seen (never taken as less than
 * `fastest_per_s`, what a guest could do from one moment to the next), 1 ms to 25 ms, and rarely
 * enough that looking costs at most a tenth of one core (then up to 50 ms). */
uint64_t sample_interval_ns(uint64_t used, uint64_t limit, uint64_t growth_per_s,
                            uint64_t fastest_per_s, uint64_t cost_ns);
#define SAMPLE_MEMORY_FASTEST (UINT64_C(2) << 30) /* bytes a core or two can touch in a second */

/* CPU percent without a cpu controller. Whole cores are given by affinity (sample_duty_cores(); the
 * filter must then refuse sched_setaffinity); what is left by stopping the tree when it is ahead of
 * its share. Pure arithmetic: the caller stops and continues. */
struct sample_duty {
    unsigned percent;
    uint64_t last_ns, last_cpu_ns;
    int64_t credit_ns; /* CPU time the guest may still use */
    bool stopped;
    bool runs_on;       /* CPU time was used while it stood still: it has to be stopped again */
    uint64_t stolen_ns; /* so much beyond its share while it should have stood still */
    uint64_t throttled_ns;
};
/* A guest can send itself SIGCONT (by a timer, too). More than this is no late signal. */
#define SAMPLE_DUTY_STOLEN_NS UINT64_C(1000000000)
unsigned sample_duty_cores(unsigned percent);
void sample_duty_start(struct sample_duty *duty, unsigned percent, uint64_t now_ns);
/* cpu_ns: CPU time of the tree so far. Returns when to call again; *ret_stop: must it stand still.
 */
uint64_t sample_duty_step(struct sample_duty *duty, uint64_t now_ns, uint64_t cpu_ns,
                          bool *ret_stop);

/* Bytes and entries below one writable host path. */
struct sample_disk {
    uint64_t bytes; /* blocks in use; a file with several links counts once if they are all below */
    uint64_t files; /* entries of any kind */
    bool
        truncated; /* deeper, larger or slower than allowed: compare with the baseline's own flag */
    uint64_t cost_ns;
};
struct sample_disk_options {
    uint64_t max_entries; /* 0: 1,000,000 */
    uint64_t budget_ns;   /* 0: 50 ms */
};
/* dir_fd is not consumed; its position moves. A file (also O_PATH) is one entry. Never follows a
 * link, never opens anything but folders, never crosses a mount; adds to *ret_disk only on success.
 */
int sample_disk(int dir_fd, const struct sample_disk_options *options,
                struct sample_disk *ret_disk);
/* Open and executed files of the tree below root that have no name and are not in the guest's own
 * memory: of what lies in memory only the file systems of the disks count. truncated: there is
 * something that holds files and does not tell which. */
int sample_unlinked(pid_t root, const int *disk_fds, size_t n_disks, struct sample_disk *ret_disk);

#endif
