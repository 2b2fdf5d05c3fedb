/* What this kernel and host can do: a plain struct that tests can make up.
 *
 * host_probe_quick() reads only what costs microseconds and is what a run uses; whether user
 * namespaces work is found by using them (a refusal leads to a new plan for the weaker tier, before
 * anything of the guest exists). host_doctor() tries every feature in a throw-away child. */
#ifndef HOST_HOST_H
#define HOST_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cordon.h>

#define HOST_PATH_MAX 512

enum host_cgroup { HOST_CGROUP_NONE, HOST_CGROUP_V1, HOST_CGROUP_V2 };

/* Where limits can be attached. Paths are of directories in which this process may make groups;
 * empty when there is none. A path that does not fit counts as none: it is never cut. */
struct host_cgroups {
    enum host_cgroup kind; /* NONE: no controller is usable; .v2 may still serve cgroup.kill */
    char
        v2[HOST_PATH_MAX]; /* v2: parent for our groups; with v1: group used for cgroup.kill only */
    char memory[HOST_PATH_MAX]; /* v1 hierarchies; equal strings are one hierarchy (cpu,cpuacct) */
    char pids[HOST_PATH_MAX];
    char cpu[HOST_PATH_MAX];
    char cpuacct[HOST_PATH_MAX];
    bool v2_memory, v2_pids, v2_cpu; /* controllers that v2 hands down to children of .v2 */
    bool v2_own;     /* .v2 was given to us by name: the v2_* controllers are available there, and
                      * writing them to its cgroup.subtree_control (if not yet in it) is ours to do.
                      * Else never. */
    bool v2_unasked; /* .v2 was not looked for: v1 holds everything, and tier full needs no more */
    bool may_ask_scope; /* no controller here, but the user's systemd might give a group */
    bool unread; /* nobody is told, or limits, how much CPU time there was: a group of v1 that
                  * does nothing but count it is left out */
};

struct host {
    uid_t uid;
    gid_t gid;
    bool is_root;          /* euid 0 in a namespace that may map ids and make detached mounts */
    bool user_ns;          /* assumed true until a start was refused */
    char user_ns_why[256]; /* why not */
    int landlock_abi;      /* 0: none */
    bool time_ns;
    bool merged_bin, merged_sbin, merged_lib, merged_lib64; /* merged: symlink into /usr */
    bool has_lib64;
    bool apparmor;
    bool init_user_ns; /* root in the host's first user namespace: identity-mapped mounts work */
    uint64_t memory_bytes; /* RAM and swap; no single request for more succeeds. 0: not known */
    int kernel_major, kernel_minor;
    struct host_cgroups cgroups;
};

/* Never fails for a missing feature; fails only when the host is not one Cordon runs on. */
int host_probe_quick(struct host *ret_host, struct cordon_err *err);

/* 0: none, or switched off at boot. */
int host_landlock_abi(void);

/* A start was refused its user namespace or a wall that needs one: notes it in *host (user_ns,
 * user_ns_why) with the cause and gives the smallest fix. step: "unshare" for the clone or unshare
 * itself, "write uid_map" and the like for id maps, "mount proc" for the new /proc. */
void host_user_ns_refused(struct host *host, const char *step, int sys_errno, char *ret_fix,
                          size_t fix_size);

/* The part of the above that looks for cgroups. Reads only, makes nothing. quick: .v2_unasked where
 * it can be; may_all: the caller has every right over files of the first user namespace. */
void host_cgroups_find(struct host_cgroups *ret_cgroups);
void host_cgroups_find_quick(bool may_all, struct host_cgroups *ret_cgroups);
/* Looks for it now. */
void host_cgroups_ask_v2(struct host_cgroups *cgroups);

/* Where .may_ask_scope: asks the user's systemd for a scope, moves this process into it and looks
 * again. Takes tens of milliseconds, at most a second; a refusal leaves everything as it was. */
void host_scope_join(struct host_cgroups *cgroups);

/* --cgroup PATH: a v2 group somebody delegated to us, as a folder or as systemd writes it
 * ("/user.slice/..."). CORDON_ERR_CONFIG: not a v2 group; CORDON_ERR_HOST: not usable by us. */
int host_cgroups_explicit(const char *path, struct host_cgroups *ret_cgroups,
                          struct cordon_err *err);

#endif
