/* The doctor's single attempts. Each runs in a child of its own, which it may wreck. */
#ifndef HOST_PROBES_H
#define HOST_PROBES_H

#include "host/host.h"

/* What an attempt leaves behind, in memory shared with the doctor. */
struct host_outcome {
    int done;      /* set last: the attempt ended by itself */
    int error;     /* errno of the step that failed, 0: it works */
    char step[64]; /* the operation that failed */
    char note[192];
};

typedef void host_probe_fn(const struct host *host, struct host_outcome *out);

host_probe_fn host_probe_user_ns, host_probe_id_maps, host_probe_mount_ns, host_probe_pid_ns,
    host_probe_net_ns, host_probe_ipc_ns, host_probe_uts_ns, host_probe_cgroup_ns,
    host_probe_time_ns;
host_probe_fn host_probe_tmpfs, host_probe_proc, host_probe_devpts, host_probe_pivot_root,
    host_probe_mount_api, host_probe_idmap, host_probe_overlay;
host_probe_fn host_probe_landlock, host_probe_guest_id, host_probe_seccomp,
    host_probe_seccomp_notify, host_probe_clone3, host_probe_pidfd, host_probe_close_range,
    host_probe_openat2;
host_probe_fn host_probe_cgroup, host_probe_veth, host_probe_tproxy;

/* A new user namespace with this process's own id mapped, and more namespaces in it. Returns -1
 * with the outcome filled. */
int host_probe_enter(const struct host *host, int flags, struct host_outcome *out);

/* Notes the failing step with errno; returns -1. */
int host_probe_fail(struct host_outcome *out, const char *step);

#endif
