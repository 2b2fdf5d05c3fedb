/* A root file system of the caller's in the place of the host's runtime: every entry of its top
 * folder is bound read-only into the guest's own root, which stays ours. So the image decides
 * nothing about /dev, /proc, /tmp or the few synthetic files, whatever links it puts in their
 * places, and nothing is ever resolved by a name that it controls. Looks at the folder (one list of
 * names), opens nothing in it. */
#include "plan/plan_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/util.h"

#define ROOTFS_ENTRIES 2000 /* of one folder: each becomes a mount */

struct rootfs {
    struct plan *p;
    const char *top;
};

static bool rootfs_is_taken(const struct plan *p, const char *dst)
{
    for (size_t i = 0; i < p->n_ops; i++)
        if (str_eq(p->ops[i].dst, dst))
            return true;
    return false;
}

/* Kernel file systems and scratch are ours alone; what an image has there is not shown. */
static bool rootfs_is_ours(const char *dst)
{
    static const char *const ours[] = {"dev", "proc", "sys", "tmp", "run", "home/sandbox"};
    for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
        if (str_eq(dst, ours[i]))
            return true;
    return false;
}

/* Folders that hold something of ours as well: their entries are shown one by one. */
static bool rootfs_is_shared(const char *dst)
{
    return str_eq(dst, "etc") || str_eq(dst, "home") || str_eq(dst, "var");
}

static int rootfs_folder(struct rootfs *r, const char *below, struct cordon_err *err);

static int rootfs_link(struct rootfs *r, int dir, const char *name, const char *dst,
                       struct cordon_err *err)
{
    char target[PATH_MAX];
    ssize_t n = readlinkat(dir, name, target, sizeof(target) - 1);
    if (n <= 0)
        return err_set(err, CORDON_ERR_CONFIG, "plan", errno, "%s/%s", r->top, dst);
    target[n] = '\0';
    const char *kept = arena_strdup(&r->p->arena, target);
    return kept && plan_full_op(r->p, PLAN_OP_SYMLINK, kept, dst, 0) == 0 ? 0
                                                                          : err_nomem(err, "plan");
}

static int rootfs_entry(struct rootfs *r, int dir, const char *below, const char *name,
                        struct cordon_err *err)
{
    struct stat st;
    const char *dst = arena_printf(&r->p->arena, "%s%s%s", below, *below ? "/" : "", name);
    if (!dst)
        return err_nomem(err, "plan");
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_set(err, CORDON_ERR_CONFIG, "plan", errno, "%s/%s", r->top, dst);
    if (rootfs_is_shared(dst) && S_ISDIR(st.st_mode))
        return rootfs_folder(r, dst, err);
    if (rootfs_is_ours(dst) || rootfs_is_taken(r->p, dst))
        return 0;
    if (S_ISLNK(st.st_mode))
        return rootfs_link(r, dir, name, dst, err);
    if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
        return 0; /* devices, sockets and pipes of an image are nothing to run with */
    const char *src = arena_printf(&r->p->arena, "%s/%s", r->top, dst);
    unsigned flags = PLAN_BIND_HELD | (S_ISREG(st.st_mode) ? PLAN_BIND_FILE : 0);
    return src && plan_full_op(r->p, PLAN_OP_BIND, src, dst, flags) == 0 ? 0
                                                                         : err_nomem(err, "plan");
}

static int rootfs_by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int rootfs_folder(struct rootfs *r, const char *below, struct cordon_err *err)
{
    struct dirent **names = NULL;
    _cleanup_free_ char *path = NULL;
    if (asprintf(&path, "%s/%s", r->top, below) < 0) {
        path = NULL;
        return err_nomem(err, "plan");
    }
    _cleanup_close_ int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int n = dir < 0 ? -1 : scandir(path, &names, NULL, rootfs_by_name);
    if (n < 0)
        return err_set(err, CORDON_ERR_CONFIG, "plan", errno, "root file system %s", path);
    int result = n <= ROOTFS_ENTRIES
                     ? 0
                     : err_set(err, CORDON_ERR_CONFIG, "plan", 0,
                               "root file system %s: more than %d entries", path, ROOTFS_ENTRIES);
    for (int i = 0; i < n; i++) {
        const char *name = names[i]->d_name;
        if (result == 0 && !str_eq(name, ".") && !str_eq(name, ".."))
            result = rootfs_entry(r, dir, below, name, err);
        free(names[i]);
    }
    free(names);
    return result;
}

int plan_rootfs(struct plan *p, const char *top, struct cordon_err *err)
{
    struct rootfs r = {.p = p, .top = top};
    return rootfs_folder(&r, "", err);
}
