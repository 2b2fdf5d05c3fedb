/* Shared by the files of the plan room only. */
#ifndef PLAN_INTERNAL_H
#define PLAN_INTERNAL_H

#include "plan/plan.h"

#define PLAN_APPARMOR_MAX 1024

void *plan_grow(struct plan *p, void *array, size_t n, size_t *cap, size_t size);
int plan_set_env(struct plan *p, const struct policy *policy, const char *home, const char *tmp,
                 struct cordon_err *err);

/* plan_full.c: the mount list of tier full */
int plan_full(struct plan *p, const struct plan_request *req, struct cordon_err *err);
/* One more operation on the guest's root; -1: out of memory. */
int plan_full_op(struct plan *p, enum plan_op_kind kind, const char *src, const char *dst,
                 unsigned flags);
/* plan_oci.c: what this wall changes in the plan; and the bundle, made of the finished operations
 * and limits */
int plan_oci(struct plan *p, const struct plan_request *req, struct cordon_err *err);
int plan_oci_bundle(struct plan *p, struct cordon_err *err);
/* plan_rootfs.c: an image in the place of the host's runtime */
int plan_rootfs(struct plan *p, const char *top, struct cordon_err *err);
/* plan_landlock.c: the fences of tier landlock, and what it must refuse */
int plan_landlock(struct plan *p, const struct plan_request *req, struct cordon_err *err);
/* plan_container.c: the same for a container, and what no container can do */
int plan_container(struct plan *p, const struct plan_request *req, struct cordon_err *err);
/* plan_full.c: the caller's grants as operations, masks and read-only policies included */
int plan_full_grants(struct plan *p, const struct plan_request *req, struct cordon_err *err);
/* plan_landlock_filter.c: puts in front of the filter what Landlock cannot see */
int plan_landlock_filter(struct plan *p, struct cordon_err *err);
/* plan_grants.c: what the policy adds to either */
int plan_collect_files(struct plan *p, const struct plan_request *req, struct cordon_err *err);
int plan_add_fence(struct plan *p, const char *path, bool write, bool optional);
int plan_check_network(const struct policy *policy, struct cordon_err *err);
/* plan_net.c: the way out, if the policy asks for one */
bool plan_net_is_wanted(const struct policy *policy);
int plan_net(struct plan *p, const struct policy *policy, struct cordon_err *err);
/* The built-in filter, tightened by the profile in `path` unless that is NULL. */
int plan_build_filter(struct plan *p, const struct seccomp_options *options, const char *path,
                      struct seccomp_prog *ret_prog, struct cordon_err *err);
/* Grants of the policy in one list, checked: they exist, are not ours, not /proc, /sys or a device.
 */
struct plan_grant {
    const char *src, *dst;
    const char *real; /* src without links: what deny patterns and refusals are about */
    bool write, is_dir, optional;
    bool is_socket, is_device;
    bool is_kernels; /* a device, or in /sys: nobody's file, so that nobody's identity is mapped */
    bool overlay;    /* the guest's writes go into a layer over src */
    const char
        *copy; /* of that: a copy on the host is shown instead; NULL: none, or not yet made */
};
int plan_grants(struct plan *p, const struct policy *policy, struct plan_grant **ret, size_t *ret_n,
                struct cordon_err *err);

/* Covers what deny patterns match inside the grants. */
int plan_deny_masks(struct plan *p, const struct policy *policy, const struct plan_grant *grants,
                    size_t n, struct cordon_err *err);
/* Refuses a path that is used by its own name and lies in what they match. */
int plan_deny_named(struct plan *p, const struct policy *policy, const char *what, const char *path,
                    struct cordon_err *err);
/* Flags: PLAN_MASK_... */
int plan_full_mask(struct plan *p, const char *path, unsigned flags);
int plan_full_scratch(struct plan *p, const char *src, const char *dst, unsigned flags,
                      mode_t mode);

/* plan_temp.c: TMPDIR, after the private folders and before the grants. The check is for the
 * operations from `first` on: a grant that holds the path would leave the guest without it. */
int plan_temp_dir(struct plan *p, const struct policy *policy, const char **ret_tmp,
                  struct cordon_err *err);
int plan_temp_check(const struct plan *p, const struct policy *policy, size_t first,
                    struct cordon_err *err);
/* Inodes of the scratch tmpfs that are not the guest's: its root, what is mounted in it, the files
 * put there before the start. */
uint64_t plan_scratch_own(const struct plan *p);

/* plan_sockets.c: sockets of the host's programs below the grants are covered. */
int plan_sockets(struct plan *p, const struct plan_grant *grants, size_t n, struct cordon_err *err);
/* One that the caller named outright; only a wall that shares the host's kernel can show it. */
int plan_socket_grant(struct plan *p, const struct plan_grant *g, struct cordon_err *err);
/* plan_sockets_relative.c: where the sockets lie that were bound by a relative name. Adds absolute
 * paths to the arena. */
struct plan_relative {
    unsigned long inode; /* of the socket itself, not of its file */
    const char *name;
    const char *path; /* NULL: cannot be told */
};
void plan_sockets_place(struct plan *p, struct plan_relative *list, size_t n);

/* plan_state.c: Cordon's own state inside a grant is covered; as a grant it is refused, also around
 * it where nothing can be covered. */
int plan_state_cover(struct plan *p, const struct plan_grant *g);
int plan_state_refuse(const struct plan_grant *g, bool can_cover, struct cordon_err *err);

#endif
