/* From a failed attempt to its cause and its smallest fix. Pure but for host_facts_read(), so that
 * tests make up hosts that are not at hand. */
#ifndef HOST_EXPLAIN_H
#define HOST_EXPLAIN_H

#include "host/doctor.h"
#include "host/probes.h"

/* What the host says of itself. -1: it does not say. */
struct host_facts {
    int apparmor_restrict; /* kernel.apparmor_restrict_unprivileged_userns */
    int userns_clone;      /* kernel.unprivileged_userns_clone */
    int64_t max_user_ns;   /* user.max_user_namespaces */
    int seccomp;           /* mode of this process: 2 is a filter from outside */
    bool selinux;          /* enforcing */
    bool chrooted;
    bool cgroup_v1;       /* the memory controller is in a v1 hierarchy */
    bool own_controllers; /* our own v2 group is delegated, but we sit in it */
    bool systemd;         /* is the host's init */
    char container[16];   /* "docker", "podman", ... or empty */
    char label[96];       /* AppArmor profile of this process, empty when unconfined */
    unsigned proc_masks;
    char proc_mask[64]; /* the first of them */
    char core_pattern[128];
    int ptrace_scope;
    char exe[256]; /* our own binary */
};

void host_facts_read(const struct host *host, struct host_facts *ret_facts);

/* Fill item->state, detail and fix from the outcome of its attempt. */
typedef void host_explain_fn(const struct host *host, const struct host_facts *facts,
                             const struct host_outcome *out, struct host_item *item);

host_explain_fn host_explain_general, host_explain_user_ns, host_explain_proc, host_explain_notify,
    host_explain_landlock, host_explain_guest_id, host_explain_cgroup, host_explain_idmap,
    host_explain_overlay, host_explain_core, host_explain_yama, host_explain_apparmor;

#endif
