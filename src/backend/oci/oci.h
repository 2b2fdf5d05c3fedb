/* An OCI runtime (runc, crun, runsc) as the builder of the wall, without a daemon.
 *
 * Theory of operation. The native backend's outer half stays as it is: it clones a first process
 * into new user, mount and pid namespaces and watches it. For this wall that process is the
 * *launcher*: host root to nobody, pid 1 of everything that follows, so that its end takes the
 * runtime, the container and what else they started along. It lays the bundle out in a private
 * tmpfs that vanishes with it, and runs the runtime in detached mode. The container's pid 1 is our
 * own *init*, which is the native wall's pid 1 from there on: limits, Landlock, filter, execve,
 * reaping, the count of refused calls, all told on the same status page.
 *
 *   supervisor ── launcher (pid 1, namespaces of ours) ── runtime, gone after the start
 *                      └── init (pid 1 of the container) ── the guest's program
 *
 * runsc cannot hand descriptors in: there the launcher keeps the status page, the runtime stays as
 * the sandbox's parent, and init (inside.c) reports in a file that the launcher reads (gvisor.c).
 */
#ifndef OCI_OCI_H
#define OCI_OCI_H

#include <stddef.h>

#include "backend/native/native_internal.h"

/* Descriptors of init, by the runtime's --preserve-fds. */
enum oci_fd {
    OCI_FD_STATUS = 3, /* the status page */
    OCI_FD_GO,         /* lifeline and signals */
    OCI_FD_STDIN,      /* the guest's streams; those of init belong to the runtime */
    OCI_FD_STDOUT,
    OCI_FD_STDERR,
    OCI_FD_V2,      /* cgroup.procs of the v2 group, or /dev/null */
    OCI_FD_ENTRIES, /* entries of v1 groups, as many as there are */
};

#define OCI_REPORT "/.cordon/report" /* inside: where gVisor's init reports */
#define OCI_INIT_BROKEN 125          /* not a status of the guest: init could not do its work */

/* What gVisor's init has to say; written as a whole. */
struct oci_report {
    uint32_t state; /* enum native_state: NATIVE_STARTED, then how it ended */
    uint32_t hit;   /* enum native_hit */
    int32_t wstatus, exec_errno, fail_errno;
    uint32_t scratch_full;
    uint64_t wall_ns, cpu_user_ns, cpu_sys_ns, throttled_ns;
    uint64_t memory_peak, static_bytes;
    uint32_t tasks_peak;
    char stage[24];
    char what[256];
};

/* What the supervisor opens and makes before the clone. */
struct oci_start {
    int status_fd, exe_fd, v2_fd; /* -1: none */
    size_t exe_len;               /* of what has to be loaded */
    unsigned root_id;             /* started by root: who the launcher's root is on the host */
    char *job;                    /* what init is to do, see job.c */
    size_t job_len;
};

/* start.c, in the supervisor. The status page comes from oci_prepare(). */
int oci_prepare(const struct plan *p, struct oci_start **ret, struct native_status **ret_status,
                struct cordon_err *err);
void oci_free(struct oci_start *o);
/* The id map of the launcher: root of its own, and the guest. Without root gVisor's launcher maps
 * itself. */
int oci_write_maps(const struct plan *p, const struct oci_start *o, pid_t pid, unsigned id,
                   bool *ret_refused, struct cordon_err *err);

/* launch.c: the launcher; never returns */
_Noreturn void oci_launch_main(struct native_child *c);
bool oci_is_gvisor(const struct native_child *c);

/* spaces.c, in the launcher: begun beside the layout, entered before the runtime starts */
struct oci_spaces {
    struct native_child *c;
    struct native_netns net;
    pid_t group_pid;
    int group_fd; /* or -errno */
};
void oci_spaces_begin(struct native_child *c, struct oci_spaces *s);
void oci_spaces_enter(struct native_child *c, struct oci_spaces *s);

/* runtime.c, in the launcher or a copy of it; the first three do not return */
_Noreturn void oci_runtime_exec(struct native_child *c);
_Noreturn void oci_runtime_failed(struct native_child *c);
_Noreturn void oci_runtime_reap(struct native_child *c, pid_t runtime);

/* gVisor's kernel fell because the host refused it one more task. */
bool oci_runtime_lacked_task(void);

/* gvisor.c, in the launcher: the file of the report, and the watch over a runtime that stays */
void oci_gvisor_prepare(struct native_child *c);
_Noreturn void oci_gvisor_watch(struct native_child *c, pid_t runtime, int sig_fd);

/* start.c, in the supervisor: what the guest's own kernel told goes before what the host measured
 * of that kernel. */
struct backend_outcome;
struct backend_usage;
void oci_usage(struct native *n, struct backend_usage *u); /* while it runs; from its start on */
void oci_outcome(const struct plan *p, const struct native *n, struct backend_outcome *o);

/* job.c: the plan's inner half as bytes. The text is made by the supervisor and read by init, which
 * is the same program. */
int oci_job_make(const struct plan *p, char **ret, size_t *ret_len, struct cordon_err *err);
/* The plan's pointers lead into the text. -1: not one of ours. */
int oci_job_read(char *text, size_t len, struct plan *ret);
#define OCI_JOB_MAX ((size_t)64 << 20)

/* init.c: main() of the container's pid 1; inside.c: the same under gVisor */
int oci_init_main(void);
int oci_inside_main(struct native_child *c);

#endif
