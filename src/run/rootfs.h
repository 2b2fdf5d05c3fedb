/* The folder behind --image and --rootfs. */
#ifndef RUN_ROOTFS_H
#define RUN_ROOTFS_H

#include <cordon.h>

#include "policy/policy.h"

/* The host folder that is to be the guest's root: a folder as it is; an archive or an image layout
 * after it was unpacked into the cache, once per content. *ret_dir is NULL when the policy asks for
 * none; the caller frees it. cwd: of the caller, for relative paths; NULL: our own. */
int rootfs_resolve(const struct policy *policy, const char *cwd, char **ret_dir,
                   struct cordon_err *err);

#endif
