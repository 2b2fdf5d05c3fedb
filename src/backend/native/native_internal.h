/* What the two sides of a native start share: the supervisor, and the child that becomes the
 * guest's pid 1 (tier full) or its keeper (tier landlock).
 *
 * The status page is a shared anonymous mapping made before the clone. It is the only way back from
 * the child: the guest loses the mapping at its execve, and pid 1 is not dumpable, so a guest can
 * neither read nor forge it. */
#ifndef NATIVE_INTERNAL_H
#define NATIVE_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sched.h>
#include <stdint.h>
#include <sys/time.h>
#include <sys/types.h>

#include "backend/backend.h"
#include "backend/native/cgroup.h"
#include "base/raw.h"
#include "plan/plan.h"

#define NATIVE_CALLS 512 /* denial counters, one per call number; the last one takes the rest */

enum native_state {
    NATIVE_SETUP,       /* the wall is being built */
    NATIVE_STARTED,     /* the guest's program runs */
    NATIVE_EXEC_FAILED, /* everything stood, execve was refused: exec_errno */
    NATIVE_EXITED,      /* the guest's main process ended: wstatus */
    NATIVE_FAILED,      /* the wall could not be built: stage, fail_errno, what */
};

/* A limit that pid 1 itself held, by looking. */
enum native_hit { NATIVE_HIT_NONE, NATIVE_HIT_MEMORY, NATIVE_HIT_PROCESSES };

struct native_status {
    _Atomic uint32_t state;
    int32_t fail_errno;
    int32_t exec_errno;
    int32_t wstatus;
    uint64_t started_ns; /* CLOCK_MONOTONIC of the host */
    uint64_t exited_ns;
    uint64_t setup_user_ns, setup_sys_ns; /* CPU time of pid 1 and its helpers before the guest */
    uint64_t guest_user_ns, guest_sys_ns, guest_rss_bytes; /* valid with all_dead */
    _Atomic uint32_t limited;                              /* the v1 groups hold their limits */
    _Atomic uint32_t is_alone; /* the supervisor has, and starts, no other guest */
    _Atomic uint32_t failing;  /* somebody is about to tell why the wall could not be built */
    _Atomic uint32_t
        all_dead; /* every process of the guest was reaped; only pid 1 itself is left */
    uint32_t
        ended_together; /* processes alive or unreaped when the main one ended, itself included */
    uint64_t static_bytes; /* memory its program file asks for; noted when a signal ended it */
    _Atomic uint32_t memory_refused; /* requests for more memory than can be given */
    _Atomic uint32_t
        processes_refused; /* forks, where one process is the limit and no group counts */
    uint64_t
        wall_ns; /* its time limit, 0: none: pid 1 ends it when nobody else gets to it in time */
    uint32_t time_hit;     /* pid 1 did */
    uint32_t scratch_full; /* when the main process ended no space was left: 1, no inode: 2 */
    int32_t net_ns_fd;     /* the guest's network namespace, from the helper that made it */
    char stage[24];
    char what[256];
    _Atomic int32_t
        listener_fd; /* number in the descriptor table shared by pid 1 and the guest; -1: none */
    _Atomic uint32_t no_listener; /* denials were not observed (an outer listener exists) */
    /* of a guest that was prepared before it was asked for (warm.h) */
    uint32_t rejected;       /* its source was refused before anything of it ran */
    _Atomic uint32_t ready;  /* it stands and waits for its order */
    _Atomic uint32_t reaped; /* its pid 1 is gone, with what it used in all: */
    uint64_t reaped_user_ns, reaped_sys_ns, reaped_rss_bytes;
    _Atomic uint32_t room;              /* how far a room is: enum warm_stand */
    uint64_t room_user_ns, room_sys_ns; /* what its pid 1 used before the first guest */
    struct backend_beside porter;       /* its pid is the supervisor's to fill in */
    uint32_t had_sockets;               /* of a room: its guest made one of the network */
    _Atomic uint32_t over; /* a room that serves nobody any more, which is no failure */
    struct native_bound {
        uint64_t device, inode;  /* 0: an optional one that was not there */
    } bound[PLAN_PARKED_GRANTS]; /* the host paths it was given, in the plan's order */
    /* of a guest with a kernel of its own: what that kernel measured, and pid 1 found */
    struct native_inner {
        bool told; /* the rest was filled in */
        enum native_hit hit;
        uint64_t cpu_user_ns, cpu_sys_ns, throttled_ns, memory_peak;
        unsigned tasks_peak;
    } inner;
    _Atomic uint32_t denials[NATIVE_CALLS];
};

/* Of functions that run on a stack of ours and do not return: a sanitizer that cleans up behind
 * them would look for the end of the usual one, and say so on the guest's standard error. */
#define NATIVE_OWN_STACK __attribute__((no_sanitize("address")))

struct oci_start;

/* Words on done_fd. */
#define NATIVE_WORD_BEGUN 'b' /* the program runs, and pid 1 waits for its end */
#define NATIVE_WORD_ENDED 'e' /* every process of the guest was reaped */

/* Everything the child needs, laid out before the clone: it allocates nothing. */
#define NATIVE_READY_PATH 48
struct native_child {
    const struct plan *plan;
    struct native_status *status;
    int done_fd; /* closed by our end, whatever brings it: the supervisor reads end of file */
    int entries[CGROUP_ENTRIES_MAX]; /* of v1 groups, received from the supervisor */
    size_t n_entries;
    int go_fd; /* a byte arrives when the ids are mapped (guests of root), later ones are signals to
                  forward; end of file means the supervisor is gone */
    const uint64_t
        *key;         /* of who lives behind the guests' filter (seccomp_keyed.c); NULL: nobody */
    bool notes_calls; /* it is told of calls that leave something (enum seccomp_note) */
    unsigned noted;   /* and these there were */
    int join_fd;      /* to an interpreter that becomes the guest's program; 0 or -1: none */
    int broker_fd;    /* takes the sockets of the guest's gate; -1: no way out */
    int stdio[3];     /* ends of our pipes */
    int *mount_fds;   /* per op: detached mount made by the supervisor, or -1 */
    const int *file_fds; /* per plan file: open source, or -1 */
    char *argv_area;     /* the supervisor's own argument memory, wiped in the child */
    size_t argv_area_len;
    uint64_t clock_offset_ns;    /* what the guest's monotonic clock lacks of the host's */
    unsigned id;                 /* tier landlock, guests of root: uid and gid of the guest */
    const struct oci_start *oci; /* an OCI runtime builds the wall: what its launcher needs */
    bool has_netns;              /* it was born in its network namespace */
    bool is_inside;              /* the host's root is out of reach */
    bool leaves_mounts;          /* nobody waits for the end of the guest's mounts */
    /* root_ready.c: where the guest's root lies ready, or could ("": not for this plan), and which
     * folder that is; 0: none yet */
    char ready_path[NATIVE_READY_PATH];
    dev_t ready_dev;
    ino_t ready_ino;
    bool is_ready;     /* it is the root */
    bool makes_mounts; /* pid 1 makes the mount namespace, not the clone */
    cpu_set_t cores;   /* of the supervisor of a single run */
    unsigned n_cores;  /* so many; 0: nobody is placed */
    bool is_crowded;   /* as all of them have something to do */
    unsigned core;     /* where it ran when it cloned us */
    bool is_alone;     /* the supervisor has no other guest, and ends after it */
    bool tells_begun;  /* the supervisor has work that waits until the guest runs */
};

/* A call that the guests' filter refuses, or asks about, unless it comes with the key; for who has
 * none it is a bare call like any other. */
static inline long native_keyed_call(const struct native_child *child, long nr, long a, long b,
                                     long c)
{
    const uint64_t *key = child->key;
    return raw_call6(nr, a, b, c, 0, key ? (long)key[0] : 0, key ? (long)key[1] : 0);
}

/* One guest as the supervisor holds it: guest.priv. */
struct native {
    struct native_status *status;
    struct cgroup *cgroup;
    int go_fd; /* our end of the lifeline */
    int pidfd;
    int dir_fd;      /* tier landlock: holds the lock of the guest's folder */
    bool is_shared;  /* other guests may be waiting for the same loop */
    const char *dir; /* belongs to the plan */
    unsigned ids[2]; /* of ours, 0: none: the guest's, and the root's of a container */
    /* own_kernel: what that kernel had used when the guest began, by its groups */
    uint64_t kernel_user_ns, kernel_sys_ns;
    bool was_killed;         /* by us */
    struct warm_guest *warm; /* a prepared guest: a child of its spawner, not of ours; NULL: not */
    bool has_groups;         /* v1 groups of an earlier guest */
    char ready_path[NATIVE_READY_PATH]; /* as of native_child */
    bool has_ready;                     /* its root lay ready; else it could */
    cpu_set_t cores;                    /* as of native_child */
    unsigned n_cores;
    unsigned net_slot; /* of the network namespace that is used again, 0: its own */
};

/* again.c: what guests of one maker (plan.enter) use one after the other */
struct cgroup;
struct cgroup *native_again_groups(const struct plan *plan); /* NULL: make some */
/* Empty groups, which belong to the store from now on; false: they are the caller's. */
bool native_again_keep(const struct plan *plan, struct cgroup *cgroup);
/* Around the clone: the maker is in the guest's network namespace in between. False: it makes its
 * own. */
bool native_again_netns_begin(const struct plan *plan, unsigned *ret_slot);
void native_again_netns_end(void);
void native_again_netns_return(unsigned slot); /* every process of the guest is gone */
/* Guests of this plan copy their root. */
bool native_again_has_root(const struct plan *plan);

/* Opens the sources of the plan's files; fds has room for all and is -1 where there is none. */
int native_open_files(const struct plan *p, int *fds, struct cordon_err *err);

/* native.c: the start, and the end of what it made */
struct guest;
int native_start(const struct plan *plan, struct guest *ret_guest, bool *ret_host_refused,
                 struct cordon_err *err);
void native_free(struct native *n);
bool native_has_started(struct guest *g); /* its program was begun */
/* native_run.c: groups of a Cordon that was killed go, once */
void native_sweep(const struct plan *plan, bool has_groups);

/* child.c, runs as the guest's pid 1; never returns */
_Noreturn void native_child_main(struct native_child *c);
/* Does the process that becomes the guest work beside pid 1? Asked in the supervisor, too. */
bool native_child_is_beside(const struct plan *p);
/* Records the failure on the status page and ends the child. */
_Noreturn void native_child_fail(struct native_child *c, const char *stage, int err,
                                 const char *what);

/* Steps every inner process of ours begins with: keep only our descriptors, wipe the arguments. */
void native_child_begin(struct native_child *c);
/* Waits for the v1 groups the supervisor made meanwhile: 0 or -errno. A bare call. */
int native_child_receive_groups(struct native_child *c);
/* Every guest process was reaped: says so, with what they used. */
void native_child_note_end(struct native_child *c);
/* collect.c: the working directory as a descriptor, from the child to the supervisor. It holds the
 * guest's tmpfs or overlay after the last process is gone. */
void native_collect_send(struct native_child *c);
int native_collect_receive(int go_fd);
void native_child_wipe_arguments(struct native_child *c);
void native_child_plain_manners(struct native_child *c);
void native_child_plain_score(struct native_child *c, const char *path);
/* child_files.c: puts the plan's files into the working directory. */
void native_child_copy_files(struct native_child *c);
void native_child_leave_keyring(struct native_child *c);
/* The ids of the guest, when they are mapped. Bare calls. */
void native_child_take_ids(struct native_child *c);
/* One of our own namespaces: by an ioctl of our process, else by its file. -1 with errno. */
int native_own_namespace(unsigned long which, const char *path);
/* Waits for the supervisor's word: the ids are mapped. */
void native_child_wait(struct native_child *c);
/* Our own CPU time so far goes on the status page: it is not the guest's. */
void native_child_note_usage(struct native_child *c);

/* netns.c: the guest's network namespace, made beside the root */
struct native_netns {
    struct native_child *c;
    pid_t pid; /* of the helper */
    int ns_fd; /* set by the helper: the table of descriptors is shared */
    int proc_fd;
    int error; /* errno of the helper */
};
void native_netns_begin(struct native_child *c, struct native_netns *net);
void native_netns_enter(struct native_child *c, struct native_netns *net);
/* Into the namespace a process below us made, whose loopback comes up. */
void native_netns_join(struct native_child *c, pid_t pid);
/* 0 or -errno; bare calls. */
int native_netns_loopback_up(void);
/* netns_broker.c, in the supervisor: the broker is there before the helper that hands it sockets.
 */
struct netclient;
int native_broker_start(const struct plan_net *net, struct native_child *c,
                        struct netclient **ret_client, struct cordon_err *err);
/* Its second half, for one that was started before anybody knew what it is to allow. */
int native_broker_begin(const struct plan_net *net, struct netclient *client,
                        struct cordon_err *err);
/* The child is there: its end is its own. NULL is accepted. */
void native_broker_started(struct netclient *client);
/* Does the kernel lack, or refuse, a part of the guest's gate? */
bool native_stage_is_netless(const struct native_status *status);
/* netns_gate.c: the way out, if the plan has one. In the process itself, which is in the guest's
 * namespace afterwards; as a helper's main function, for pid 1 to follow. */
void native_gate_enter(struct native_child *c);
int native_gate_make(void *child);

/* A host path of the plan as a detached copy of its mounts. */
int native_open_source(const struct plan_op *op);

/* root.c: executes the plan's operations and pivots */
void native_root_build(struct native_child *c);
/* A new file system as a detached mount. options: "key=value" strings, NULL-terminated. */
int native_new_fs(const char *type, const char *const *options, unsigned attr);
/* The same in steps, with the new mount API: all mounts in place and the working directory there,
 * the way in, the host's files out of reach. */
bool native_root_has_new_api(const struct plan *plan);
/* A kernel of an age that has all of it, and no filter from outside that could refuse a piece. */
bool native_root_is_unfiltered(const struct plan *plan);
int native_root_make(struct native_child *c);
void native_root_swap(struct native_child *c);
void native_root_forget(struct native_child *c);
/* The same in two halves: what guests with one key share, by their spawner, and what each makes
 * for itself, in a copy of the spawner's mount namespace. */
void native_root_template(struct native_child *c);
void native_root_complete(struct native_child *c);
/* The same for a maker that stays in the host's root, in a mount namespace of its own, and for its
 * guests. The template covers a folder that the maker has no use for. */
#define NATIVE_BESIDE "/tmp"
void native_root_beside(struct native_child *c);
void native_root_copy(struct native_child *c);
/* root_ready.c: the root of guests that have nothing of the caller's in it. The key tells
 * roots apart; false: it is made for the guest alone. open runs in pid 1, and gives a detached
 * mount or -1; the others run in the supervisor. stop: this process takes none any more; distrust:
 * nobody takes this one. */
bool native_ready_key(const struct plan *p, uint64_t *ret_key);
void native_ready_find(struct native_child *c);
int native_ready_open(struct native_child *c, bool *ret_has_nodes);
void native_ready_make(const char *path, const struct plan *p);
void native_ready_stop(void);
void native_ready_distrust(const char *path);
/* root_old.c: the same steps with mount(2), for hosts that refuse the new mount API */
void native_root_build_old(struct native_child *c);
/* shared by both ways of building */
void native_root_make_target(struct native_child *c, int rootfd, const struct plan_op *op,
                             bool is_dir);
void native_root_put_file(struct native_child *c, int rootfd, const struct plan_op *op);
void native_root_overlay(struct native_child *c, int rootfd, const struct plan_op *op);

/* Shared between pid 1 and the process that becomes the guest's program, until its execve. */
struct native_guest {
    struct native_child *child;
    int fence_fd;       /* Landlock ruleset, -1: none */
    uint64_t cloned_ns; /* by the host's clock */
    int sig_fd;         /* tells of ended children */
    pid_t pid;          /* its own, in the guest's pid namespace */
    /* where it works beside pid 1 */
    int ipc_fd;    /* the guest's ipc namespace, when the ids are mapped */
    int mounts_fd; /* the same of its mounts, -1: it was born there */
    int root_fd;
    int clocks_fd;   /* of a prepared guest: where the offsets of its clocks go, -1: nowhere */
    bool looks;      /* each is nearly there when the other waits for it */
    bool is_ahead;   /* it began before pid 1 had done anything for both */
    bool has_noted;  /* when it began: not to be asked behind the caller's filter */
    cpu_set_t cores; /* of whoever starts it */
    _Atomic bool is_spread;
    _Atomic int32_t tid;   /* not 0: it still shares our memory */
    _Atomic uint32_t done; /* how far it is, and how far pid 1 */
    _Atomic uint32_t step;
};

enum native_done {
    NATIVE_SPACES_MADE = 1, /* network and time, ipc and mounts joined; it has the guest's ids */
    NATIVE_FENCED,          /* of a prepared guest: it waits for its order */
};

enum native_step {
    NATIVE_IDS_MAPPED = 1,
    NATIVE_ROOT_MADE,    /* root_fd, fence_fd */
    NATIVE_ROOT_ENTERED, /* the guest may start, if nothing of the host is left in reach */
    NATIVE_HOST_GONE,    /* which is so */
};

/* Blocks SIGCHLD (and, with all, every other signal) and gives the descriptor that tells of it:
 * made before the guest exists, so that there is none without somebody who would notice its end. */
int native_child_signals(struct native_child *c, bool all);

/* fence.c: what fences the guest in */
void native_drop_bounding_set(struct native_child *c);
/* keep: capabilities (in the guest's own user namespace) that the last steps need; they go with
 * native_drop_last_capability(). */
void native_drop_capabilities(struct native_child *c, unsigned keep);
void native_drop_last_capability(struct native_child *c);
void native_set_capabilities(struct native_child *c, unsigned set); /* effective and permitted */
/* root_fd: the guest's root where it is not ours yet, else -1 */
int native_fence_make(struct native_child *c, int root_fd);
/* File rights that an ABI of Landlock knows, and what a rule gives of them. */
uint64_t native_fence_handled(int abi, bool light);
int native_fence_apparmor(const char *name); /* bare calls; 0 or -errno */
uint64_t native_fence_allowed(const struct plan_fence *f, bool is_dir, uint64_t handled);

/* guest.c: the process that becomes the guest's program */
pid_t native_guest_clone(struct native_guest *g); /* after pid 1, which waits for its execve */
void native_guest_begin(struct native_guest *g);  /* beside pid 1 */
void native_guest_forget_signals(void);           /* bare calls */
/* The last steps, for who starts guests without a pid 1 of its own: rlimits; execve, or the reason
 * why not on the status page. Bare calls. */
void native_guest_limits(struct native_child *c);
_Noreturn void native_guest_start(struct native_guest *g);
/* The same for a prepared guest: fenced at once, it starts with NATIVE_ROOT_ENTERED, which is when
 * pid 1 has its order. */
void native_guest_park(struct native_guest *g);
void native_guest_limit(struct native_guest *g);
void native_guest_step(struct native_guest *g, uint32_t step);
void native_guest_clocks(struct native_guest *g); /* in pid 1, when the namespace was made */
void native_guest_score(struct native_guest *g);
bool native_guest_wait(struct native_guest *g, uint32_t done); /* false: it ended before */
void native_guest_wait_exec(struct native_guest *g);
void native_guest_forget(void);
/* In the supervisor: the guest may start, as far as its v1 groups are concerned. */
void native_guest_limited(struct native_status *status);
/* cores.c: the process that becomes the guest leaves pid 1's core to it, until it takes back all,
 * or as many as the plan says */
/* The cores of the supervisor, and the one it is on, before the clone; pid 1 begins on another one
 * than its: _begin in the supervisor and _born in pid 1, whoever comes first. */
void native_cores_note(struct native_child *c);
void native_cores_before(struct native_child *c);
void native_cores_begin(struct native_child *c, pid_t pid);
void native_cores_born(struct native_child *c);
/* The process gets all of these cores; all but the one we run on. */
void native_cores_give(const cpu_set_t *cores, pid_t pid);
void native_cores_leave(const cpu_set_t *cores, unsigned n_cores, pid_t pid);
void native_cores_spread(struct native_guest *g);
void native_cores_gather(struct native_guest *g);
/* Binds the calling process to as many cores as the plan says. Bare calls. */
void native_fence_cores(struct native_child *c);
void native_fence_cores_of(struct native_child *c, pid_t pid); /* another process of the guest */
/* The offsets of the guest's clocks, for the kernel. */
void native_clock_text(struct native_child *c, char *ret_text, size_t size);
uint64_t native_tv_ns(struct timeval tv);

/* command.c: tries the command in the guest's own PATH; try() gives an errno, or 0 to end it */
int native_command_find(const struct plan *p,
                        int (*try)(const struct plan *p, const char *path, void *data), void *data);

/* After a death by signal: notes what the program's own file asks for (static arrays). A program
 * that cannot be loaded for them is killed by the kernel, which says no more than the signal. */
void native_command_note_static(const struct plan *p, struct native_status *status);

/* init.c: reaps, serves the listener, reports */
#define NATIVE_WAIT_KILLABLE (1U << 5) /* SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV */
bool native_is_notify_broken(int error);
/* After each answer: past some thousand they wait, those to calls that go on much later. A new
 * guest begins at nothing. */
void native_pace_begin(void);
void native_pace_refusals(void);
/* Answers one call that the filter sent to the listener. */
void native_init_answer(struct native_child *c, int listener);
/* Takes a signal for the main process from the supervisor and sends it; false: it is gone. */
bool native_init_forward(int go_fd, pid_t main_pid);
/* Milliseconds until nobody but us has ended the guest in time, -1: for ever. */
int native_init_rest_ms(const struct native_status *status, uint64_t begun_ns);
/* Was the guest's own disk full? Asked while its mounts still stand. */
void native_init_note_scratch(struct native_status *status);
/* Was this call sent to the listener because one process is the limit? One that asks for namespaces
 * would be refused anyway. */
bool native_is_plain_fork(const struct plan *plan, unsigned nr, uint64_t flags);
_Noreturn void native_init_run(struct native_child *c, pid_t main_pid, struct native_guest *g);

/* ids.c, in the supervisor */
#define NATIVE_IDS 512u
unsigned native_id_first(void);
unsigned native_id_take(void);
void native_id_give(unsigned id); /* 0 is accepted */
int native_write_maps(pid_t pid, unsigned id, bool *ret_refused, struct cordon_err *err);
/* in the child */
int native_map_self(const struct plan *p);
/* The caller's own ids, in a user namespace it has just entered. */
int native_map_own(uid_t uid, gid_t gid);
/* A user namespace for mapped mounts: the caller's ids become this one. The descriptor, or -1. */
int native_map_namespace(unsigned id);
/* helper: id of a process of ours that also makes files there, 0: none */
int native_idmap_open(const struct plan *p, unsigned id, unsigned helper, int *mount_fds,
                      struct cordon_err *err);

/* ids_give.c, in the supervisor: all that is in the folder becomes the guest's. Neither links nor
 * mounts are followed, whoever changes the tree meanwhile. -1 with errno. */
int native_give_tree(const char *path, unsigned id);

/* keeper.c: tier landlock. The keeper stands in for pid 1. */
_Noreturn void native_keeper_main(struct native_child *c);
/* In the process that becomes the guest's program, before it is fenced. */
void native_keeper_guest(struct native_guest *g);
/* In the supervisor: ends the guest by closing its lifeline. */
void native_keeper_kill(int pidfd, int *go_fd);
/* In the supervisor, after a keeper that did not end by itself: kills what it left to us. */
void native_keeper_sweep(void);
/* keeper_dir.c, in the supervisor: the guest's one folder. make gives a descriptor that holds the
 * folder's lock, for remove; the id changes where this user namespace does not have it. */
int native_keeper_dir_make(const struct plan *p, unsigned *id, int *ret_fd, struct cordon_err *err);
void native_keeper_dir_remove(const char *path, bool is_shared, int *fd);

/* The stage of a mount of the caller's that has no place where it was to go. */
#define NATIVE_STAGE_PLACE "mount"
/* Is a failure in this stage the host's refusal of the tier (rather than a fault of the request)?
 */
bool native_stage_is_tier(const char *stage);
/* pty.c: a terminal; the near end is ours, the far end the guest's. -1 with errno. */
int native_pty_open(unsigned short rows, unsigned short columns, int *ret_near, int *ret_far);
/* In the guest, after setsid: standard input becomes its controlling terminal. */
int native_pty_control(void);

/* The memory behind this process's arguments, as the kernel shows it in /proc/PID/cmdline. */
void native_argv_area(char **ret_area, size_t *ret_len);
extern char **native_main_argv;

/* Kills a child of this process that was not waited for yet: its number is still its own, so it
 * serves where process descriptors are refused. */
void native_kill_child(pid_t pid, int pidfd);

#endif
