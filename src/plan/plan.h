/* The plan: everything the backend will do, in order, and nothing it may decide itself.
 *
 * Pure: made from a policy and what the host can do, printed by `explain`, executed by a backend.
 * All memory belongs to the plan's arena. */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cordon.h>

#include "base/arena.h"
#include "base/buf.h"
#include "host/host.h"
#include "plan/seccomp.h"
#include "policy/policy.h"

#define PLAN_GUEST_UID 1000u
#define PLAN_GUEST_GID 1000u
#define PLAN_HOME "/home/sandbox"
#define PLAN_HOSTNAME "cordon"
/* Empty things of the guest's root that also serve to cover what must not be seen. */
#define PLAN_EMPTY_FILE "var/none"
#define PLAN_EMPTY_DIR "var/empty"
/* Where the parts of an overlay are bound while it is made. */
#define PLAN_LOWER ".lower"
#define PLAN_LAYER ".layer"
/* Cordon's own state in a folder of the caller's: covered in every grant of that folder. */
#define PLAN_STATE_DIR ".sandbox"
/* Name of a guest's one folder in tier landlock; what is left of them is found by it. */
#define PLAN_PRIVATE_PREFIX "cordon-guest-"
/* Ids for guests of root: above everything distributions hand out (systemd's containers end at
 * 1879048191), below the highest valid id. One per live process id, so no two guests share quotas.
 */
#define PLAN_ID_BASE 2000000000u

/* Where a bundle for an OCI runtime is laid out: a private tmpfs over a folder that exists
 * everywhere and that no grant can name. */
#define PLAN_OCI_PLACE "/dev/shm"
#define PLAN_OCI_BUNDLE PLAN_OCI_PLACE "/bundle"
#define PLAN_OCI_ROOT PLAN_OCI_BUNDLE "/rootfs"
#define PLAN_OCI_BINDS PLAN_OCI_PLACE "/binds"     /* per operation: what it shows */
#define PLAN_OCI_OVERLAY PLAN_OCI_PLACE "/overlay" /* where the workspace's overlay is mounted */
#define PLAN_OCI_STATE PLAN_OCI_PLACE "/state"     /* the runtime's own */
#define PLAN_OCI_REPORT PLAN_OCI_PLACE "/report"   /* what gVisor's pid 1 has to say */
#define PLAN_OCI_SCRATCH PLAN_OCI_PLACE "/scratch" /* the one tmpfs behind /tmp, home, shm */
/* What a kernel of the guest's own may take beside the memory it gives out, where it is held by
 * looking: its text, its heap, its helpers. */
#define PLAN_KERNEL_BYTES (UINT64_C(256) << 20)
#define PLAN_OCI_INIT "/.cordon/init" /* inside: ours, the container's pid 1 */

/* Operations on the guest's root, executed in order by the guest's pid 1 before the pivot. dst is
 * relative to the new root, without a leading slash. */
enum plan_op_kind {
    PLAN_OP_DIR,     /* make a folder */
    PLAN_OP_SYMLINK, /* make dst a link to src */
    PLAN_OP_FILE,    /* make a file with data */
    PLAN_OP_BIND,    /* show host path src at dst */
    PLAN_OP_PROC,    /* a new /proc */
    PLAN_OP_MASK,    /* cover dst with nothing, if it exists */
    PLAN_OP_DEVPTS,  /* a new devpts */
    PLAN_OP_SCRATCH, /* the writable private tmpfs: src is the folder inside it, dst where it
                        appears */
    PLAN_OP_OVERLAY, /* an overlay at dst of PLAN_LOWER and PLAN_LAYER, which disappear; src is for
                        print */
};

enum plan_op_flag {
    PLAN_BIND_RW = 1 << 0,       /* else read-only */
    PLAN_BIND_OPTIONAL = 1 << 1, /* a missing source is skipped */
    PLAN_BIND_DEV = 1 << 2,      /* device node of ours: nodev is not set */
    PLAN_BIND_FILE = 1 << 3,     /* the target is a file */
    PLAN_BIND_GRANT = 1 << 4,    /* asked for by the caller: identity-mapped when root started us */
    PLAN_BIND_NOEXEC = 1 << 5,
    PLAN_MASK_DIR = 1 << 6,
    PLAN_BIND_OWNERS = 1 << 8, /* of a grant: other owners stay known. The lower folder of an
                                  overlay, so that a change of their files gets as far as the copy,
                                  and what the kernel did on the way shows it afterwards */
    PLAN_BIND_HELD = 1 << 7,   /* part of an image: opened by the supervisor, which may be the only
                                  one that can reach it; shown with the owners it has */
    PLAN_BIND_KERNELS = 1 << 10,  /* a device or a part of /sys that was asked for: handled as a
                                     grant  is, but shown with the owners it has */
    PLAN_BIND_PINNED = 1 << 13,   /* part of a grant, on its own place: what is mounted on cannot be
                                     moved away, nor can what lies below it */
    PLAN_BIND_COPY = 1 << 11,     /* of a grant: made by us for this guest, and given to it where it
                                     cannot be mapped */
    PLAN_MASK_OPTIONAL = 1 << 12, /* below a layer: a place that a guest took away before, or that
                                     was never there, has nothing to cover */
    PLAN_MASK_RARE = 1 << 14,     /* few kernels have it: to look first costs less */
    PLAN_SCRATCH_FOLDER = 1 << 9, /* a folder of a scratch that is mounted before: made, no more */
};

struct plan_op {
    enum plan_op_kind kind;
    unsigned flags;
    mode_t mode;
    const char *src;
    const char *dst;
    const char *data;
    size_t data_len;
};

/* One place the Landlock fence lets the guest use. */
struct plan_fence {
    const char *path; /* as the guest sees it (tier full), on the host (tier landlock) */
    bool write;
    bool optional;
    bool connects; /* a socket of the host's that the caller named */
};

/* From this ABI on Landlock refuses connections to sockets with a name that were made outside. */
#define PLAN_ABI_SOCKETS 9

/* An OCI runtime builds the wall: what it is given, besides the operations. */
enum plan_runtime { PLAN_RUNTIME_RUNC, PLAN_RUNTIME_CRUN, PLAN_RUNTIME_RUNSC }; /* as the field's */
struct plan_oci {
    enum plan_runtime runtime;
    const char *wall;   /* "oci" or "gvisor" */
    const char *name;   /* of the runtime */
    const char *path;   /* of its program */
    const char *config; /* config.json of the bundle */
    /* A caller who is not root: ids for the launcher's own root beside the caller's. */
    unsigned sub_uid, sub_gid;
    /* The launcher makes the guest's view of control groups: there are groups of ours to hide. */
    bool group_view;
    /* Limits that pid 1 holds in a kernel of the guest's own, by looking; 0: not needed. */
    struct {
        uint64_t memory_bytes;
        unsigned processes, cpu_percent;
    } look;
    bool alone; /* there are none: gVisor can do with one id, for guests that write no host files */
};

/* Rows of setrlimit. */
struct plan_rlimit {
    int resource;
    uint64_t value;
};

/* Files copied into the working directory before the guest starts. */
struct plan_file {
    const char *name;
    const char *source; /* host path, or NULL with data */
    const char *data;
    size_t data_len;
};

struct plan_limits {
    uint64_t wall_ns, cpu_ns; /* 0: none */
    uint64_t memory_bytes;    /* 0: none */
    unsigned cpu_percent;     /* 0: none */
    unsigned processes;       /* 0: none */
    uint64_t max_output;
    bool kill_on_output;
    uint64_t scratch_bytes, scratch_inodes;
    uint64_t disk_bytes, max_files; /* 0: none beyond the scratch limits */
};

/* What the engine of a container needs beyond the rest of the plan. */
struct plan_container {
    const char *image, *runtime; /* NULL: not asked for */
    const char *dns, *http_proxy;
    char **vars; /* variables of the caller's that say where the engine is */
    enum network_mode network;
    bool block_internal; /* on a bridge: packet rules in the container */
    bool reuse;          /* one container for a sequence of trusted commands of one handle */
};

/* A prefix the guest may send to, besides the addresses that stand for names. */
struct plan_route {
    uint8_t addr[16];   /* IPv4 in mapped form */
    uint8_t prefix_len; /* of its own family */
    bool is_v4;
};

struct plan_publish {
    uint16_t host_port, guest_port;
};

/* Connections into the guest at one time, over all published ports, for each family of addresses.
 */
#define PLAN_PUBLISH_SOCKETS 256
/* Who answers the guest's lookups; the same address as in net/netwire.h. */
#define PLAN_NET_DNS "198.18.0.1"

/* The way out. Whom the broker lets the guest reach is the policy's; this is what the guest's
 * namespace needs for it. */
struct plan_net {
    const struct policy *policy;
    struct plan_route *routes;
    size_t n_routes;
    uint16_t *tcp_ports, *udp_ports; /* on which anybody may be reached */
    size_t n_tcp_ports, n_udp_ports;
    bool any_port; /* TCP to every port of every address is redirected */
    struct plan_publish *publish;
    size_t n_publish;
};
/* Sockets beside the guest that dial it for published ports, both families in turn. The broker
 * keeps them all: fewer where this process may have few descriptors. */
unsigned plan_net_inner(const struct plan_net *net);

struct plan {
    uint64_t id; /* of a plan that serves more than one run; 0: made for one */
    struct arena arena;
    enum backend_kind backend;
    struct plan_container container; /* of the docker backend */
    enum tier tier;                  /* of the native backend */
    bool is_handle;                  /* one of many runs of a caller, perhaps at once */
    bool covers_sockets; /* folders of the host are granted: sockets in them that were known when
                            the plan was made are covered, others only by PLAN_ABI_SOCKETS */
    unsigned n_sockets;  /* how many that were */
    unsigned n_unplaced; /* bound by a relative name to a folder that cannot be told */

    struct plan_op *ops;
    size_t n_ops, cap_ops;
    struct plan_fence *fences;
    size_t n_fences, cap_fences;
    struct plan_rlimit *rlimits;
    size_t n_rlimits, cap_rlimits;
    struct plan_file *files;
    size_t n_files;

    struct seccomp_prog filter; /* built in */
    struct seccomp_prog
        quiet_filter; /* the same with plain errors, for hosts where the listener is taken */
    struct seccomp_options filter_options;
    const char
        *profile_notes; /* call names of the profile that were skipped, one per line, or NULL */

    /* Not NULL: the guest's process does not execve, it goes on here (a warm interpreter). It is a
     * copy of the process that starts it, which therefore must never have held anything that is not
     * this guest's to see. Does not return. Tier full, native. */
    void (*enter)(void *data);
    void *enter_data;

    char *const *argv;
    char **env;
    const char *preload;  /* modules of a warm interpreter, with commas, or NULL */
    const char *cwd;      /* inside */
    const char *command;  /* written form, for the log */
    const char *apparmor; /* profile the guest's program gets at its execve, or NULL */
    uid_t host_uid;       /* what the guest's uid is on the host (tier full) */
    gid_t host_gid;
    bool own_host_ids;    /* true: root started us and the guest gets an id of its own */
    struct plan_oci *oci; /* NULL: the wall is our own */
    const char *rootfs;   /* host folder in the place of the host's runtime, or NULL */
    bool time_ns;
    bool own_profile;  /* the caller's profile narrows the filter: it may refuse what our own
                          steps behind it need, so there must be none */
    bool time_at_exec; /* execve enters a time namespace that waits (Linux 6.3) */
    bool host_network; /* --unsafe-host-network */
    /* gVisor: the guest's tasks are not the host's, and what the host measures is that kernel too.
     */
    bool own_kernel;
    struct plan_net *net;    /* NULL: no way out */
    const char *private_dir; /* tier landlock: home, TMPDIR and cwd in one; made before the start,
                                removed after */
    unsigned process_rlimit; /* tier landlock without a pids group: RLIMIT_NPROC, 0: none */
    /* Which limits control groups hold; the others have their fallback: memory by RLIMIT_DATA and
     * sampling, processes by RLIMIT_NPROC, CPU percent by cores and pausing. */
    struct plan_held {
        bool memory, pids, cpu;
    } by_group;
    unsigned cores; /* the guest runs on so many cores of ours, 0: on all */
    bool terminal;  /* its standard streams are a terminal of its own, of this size */
    unsigned short rows, columns;
    bool writes_host;    /* some host path is writable to the guest */
    bool hands_back_cwd; /* the working directory is read after the guest is gone: outcome.cwd_fd */
    bool scratch_exact;  /* disk_limit or max_files was asked for: a full scratch is that limit */
    int landlock_abi;
    bool scope_signals; /* Landlock ABI 6 */
    /* Landlock does not look at plain files and folders that are read, made or removed: all that is
     * in reach is mounted read-only, the system's files and what was granted alike, or the guest's
     * own. Each look costs a fiftieth of what is done with a small file, and half of the opening of
     * a folder. */
    bool fence_light;

    uint64_t setup_ns; /* longest the wall may take to stand, 0: the usual */
    struct plan_limits limits;
    struct host_cgroups cgroups; /* where the limits go; kind NONE: rlimits and sampling */
    const char *missing;         /* not NULL: layers this tier lacks, for the result */
};

struct plan_request {
    const struct policy *policy;
    const struct host *host;
    char *const *argv;             /* command and arguments */
    const struct plan_file *files; /* besides the policy's own */
    size_t n_files;
    bool terminal;
    unsigned short rows, columns;
    char *const *vars; /* the caller's environment, as far as it says where an engine is */
    bool is_handle;    /* more runs may follow from the same caller */
    const char *workspace_layer; /* overlay workspace: host folder of its upper and work folders, or
                                    with workspace_copy of the copy; NULL: not made yet (explain) */
    bool workspace_copy;
    bool workspace_owners; /* not every owner in it is known */
    const char *rootfs; /* host folder that serves as the guest's root; NULL: the host's runtime */
};

/* One of the two parts an overlay is made of, which no guest sees by itself. */
bool plan_oci_is_layer(const struct plan_op *op);
/* Lies in the bundle's root already, where the runtime need not put it: under gVisor every mount is
 * a connection of its own to a file server, which takes milliseconds to be there. Not what others
 * change meanwhile: of this one place gVisor believes that nobody else does. */
bool plan_oci_is_laid(const struct plan *plan, const struct plan_op *op);
/* The bundle sets this resource limit, where pid 1 lives with it too and setting it inside would
 * cost calls or be refused (gVisor). */
bool plan_oci_is_said(const struct plan *plan, const struct plan_rlimit *limit);

/* Refuses with CORDON_ERR_HOST and names the missing capability when no tier can honour the policy.
 */
int plan_make(const struct plan_request *request, struct plan **ret_plan, struct cordon_err *err);
void plan_free(struct plan *plan);

/* plan_key.c: can a guest for this plan be prepared before it is asked for? With host paths only if
 * each of them can be looked at again when the guest is taken. */
bool plan_is_parkable(const struct plan *plan);
#define PLAN_PARKED_GRANTS 16
bool plan_is_grant(const struct plan_op *op);
/* For people: which rights Landlock handles. */
const char *plan_fence_rights(const struct plan *plan);
size_t plan_count_grants(const struct plan *plan);
/* Can its program be forked from a Python interpreter that is there already? `python3 SCRIPT ...`
 * with nothing in the environment that an interpreter looks at when it starts. */
bool plan_has_interpreter(const struct plan *plan);
/* What such an interpreter has built in besides; for the end of a key. */
void plan_key_interpreter(const struct plan *plan, struct buf *out);
/* Two plans with equal keys can use the same prepared guest. */
void plan_key(const struct plan *plan, struct buf *out);

#endif
