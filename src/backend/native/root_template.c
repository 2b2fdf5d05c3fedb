/* Roots that many guests are copied from, and what each of them makes anew.
 *
 * A pool's spawner stands in its template, and guests' pid 1 in copies of its mount namespace. A
 * maker that cannot leave the host's root (plan.enter) has the template mounted beside it and its
 * working directory there, which the clone finds in the copy. Not over "/": who has another root
 * than its mount namespace may make no user namespace. */
#include "backend/native/root_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sys.h"
#include "base/util.h"

/* Made anew for every guest. */
static bool root_is_own(const struct plan_op *op)
{
    return op->kind == PLAN_OP_PROC || op->kind == PLAN_OP_DEVPTS || op->kind == PLAN_OP_SCRATCH ||
           (op->kind == PLAN_OP_MASK && str_starts(op->dst, "proc/"));
}

/* In the place of what is made anew: where it will be mounted. The template's own /proc must stay
 * uncovered: the kernel lets nobody mount a new one who cannot see an old one in full. */
static void root_do_template(struct root *r, size_t i)
{
    const struct plan_op *op = &r->c->plan->ops[i];
    if (plan_is_grant(op)) /* the root will be read-only when it is bound */
        native_root_make_target(r->c, r->fd, op, !(op->flags & PLAN_BIND_FILE));
    else if (!root_is_own(op))
        root_do(r, i);
    else if (op->kind == PLAN_OP_PROC)
        root_fs_op(r, op);
    else if (op->kind != PLAN_OP_MASK && !(op->flags & PLAN_SCRATCH_FOLDER))
        native_root_make_target(r->c, r->fd, op, true);
}

void native_root_template(struct native_child *c)
{
    if (!native_root_has_new_api(c->plan))
        native_child_fail(c, "root", ENOSYS, "template");
    int fd = root_make(c, "/", root_do_template);
    root_enter(c);
    close(fd);
    if (chdir("/") < 0)
        native_child_fail(c, "root", errno, "/");
}

/* Who takes this guest looks whether its path still means the same. */
static void root_grant(struct root *r, size_t i, struct native_bound *ret)
{
    const struct plan_op *op = &r->c->plan->ops[i];
    struct stat st;
    if (r->c->mount_fds[i] < 0 && (op->flags & PLAN_BIND_OPTIONAL))
        return;
    if (r->c->mount_fds[i] < 0 || fstat(r->c->mount_fds[i], &st) < 0)
        native_child_fail(r->c, "bind", ENOENT, op->src);
    *ret = (struct native_bound){st.st_dev, st.st_ino};
    root_do(r, i);
}

void native_root_complete(struct native_child *c)
{
    struct root r = {.c = c, .covers = {-1, -1}, .is_copy = true};
    umask(0); /* the plan's modes are meant; the guest's own is set before it starts */
    size_t bound = 0;
    r.fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (r.fd < 0 || fchdir(r.fd) < 0)
        native_child_fail(c, "root", errno, "/");
    for (size_t i = 0; i < c->plan->n_ops; i++) {
        const struct plan_op *op = &c->plan->ops[i];
        if (plan_is_grant(op))
            root_grant(&r, i, &c->status->bound[bound++]);
        else if (root_is_own(op) && op->kind != PLAN_OP_PROC)
            root_do(&r, i);
    }
    close(r.fd);
}

/* ---- beside the host's root ---- */

/* The maker's own /proc stays in reach: the one of the template may be just a place. */
static void root_do_beside(struct root *r, size_t i)
{
    const struct plan_op *op = &r->c->plan->ops[i];
    if (!root_is_own(op))
        root_do(r, i);
    else if (op->kind != PLAN_OP_MASK && !(op->flags & PLAN_SCRATCH_FOLDER))
        native_root_make_target(r->c, r->fd, op, true);
}

void native_root_beside(struct native_child *c)
{
    int fd = root_make(c, NATIVE_BESIDE, root_do_beside);
    /* the superblock, which no guest owns: none of them changes it, nor could */
    if (mount(NULL, ".", NULL, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) < 0)
        native_child_fail(c, "root", errno, "read-only");
    close(fd);
}

/* The mounts that came with our mount namespace are locked into their places; a copy of them as a
 * whole is not. */
void native_root_copy(struct native_child *c)
{
    struct root r = {.c = c, .covers = {-1, -1}, .is_copy = true};
    umask(0); /* the plan's modes are meant; the guest's own is set before it starts */
    r.fd = sys_open_tree(AT_FDCWD, ".", SYS_OPEN_TREE_CLONE | SYS_OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    if (r.fd < 0 || root_attach(r.fd, AT_FDCWD, "/") < 0 || fchdir(r.fd) < 0)
        native_child_fail(c, "root", errno, "copy");
    for (size_t i = 0; i < c->plan->n_ops; i++)
        if (root_is_own(&c->plan->ops[i]))
            root_do(&r, i);
    root_pivot(c);
    close(r.fd);
}
