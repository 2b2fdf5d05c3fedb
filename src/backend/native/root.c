/* Builds the guest's root from the plan's operations and pivots into it. Runs in the guest's pid 1.
 *
 * The root is a fresh tmpfs, or one that lies ready (root_ready.c), mounted over "/": path lookups
 * of this process still start in the old root, below the new mount, so every host path keeps its
 * meaning until the pivot, and nothing in the new root is ever reached through a name the guest or
 * an image controls. */
#include "backend/native/root_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/sys.h"
#include "base/util.h"

#define ROOT_SIZE "size=2m" /* folders, links and the few synthetic files */

int native_new_fs(const char *type, const char *const *options, unsigned attr)
{
    _cleanup_close_ int fs = sys_fsopen(type, SYS_FSOPEN_CLOEXEC);
    if (fs < 0)
        return -1;
    for (; *options; options++) {
        char key[32];
        const char *eq = strchr(*options, '=');
        size_t len = (size_t)(eq - *options);
        if (len >= sizeof(key)) {
            errno = EINVAL;
            return -1;
        }
        memcpy(key, *options, len);
        key[len] = '\0';
        if (sys_fsconfig(fs, SYS_FSCONFIG_SET_STRING, key, eq + 1, 0) < 0)
            return -1;
    }
    if (sys_fsconfig(fs, SYS_FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return -1;
    return sys_fsmount(fs, SYS_FSMOUNT_CLOEXEC, attr);
}

int root_attach(int mount_fd, int at, const char *dst)
{
    return sys_move_mount(mount_fd, "", at, dst, SYS_MOVE_MOUNT_F_EMPTY_PATH);
}

/* A place of the new root as the guest will see it: links in the caller's own trees may be a
 * guest's doing, and one that begins with "/" means the new root, never the host's. */
static int root_open(int rootfd, const char *dst, bool follow)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW),
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    return sys_openat2(rootfd, dst, &how);
}

static int root_attach_place(int mount_fd, int rootfd, const char *dst)
{
    _cleanup_close_ int target = root_open(rootfd, dst, true);
    if (target < 0)
        return -1;
    return sys_move_mount(mount_fd, "", target, "",
                          SYS_MOVE_MOUNT_F_EMPTY_PATH | SYS_MOVE_MOUNT_T_EMPTY_PATH);
}

/* Where the caller wants something that cannot be there it is not our failure. */
static _Noreturn void root_no_place(struct native_child *c, const char *stage, const char *dst)
{
    int e = errno;
    bool is_callers = e == EROFS || e == ENOTDIR || e == EEXIST || e == EINVAL;
    native_child_fail(c, is_callers ? NATIVE_STAGE_PLACE : stage, e, dst);
}

/* The same as native_root_make_target() below a grant: no name is followed out of the new root. */
static void root_make_below_grant(struct native_child *c, int rootfd, const char *dst, bool is_dir)
{
    char path[PATH_MAX];
    size_t len = strlen(dst);
    if (len >= sizeof(path))
        native_child_fail(c, "root", ENAMETOOLONG, dst);
    memcpy(path, dst, len + 1);
    _cleanup_close_ int parent = root_open(rootfd, ".", true);
    for (char *name = path; parent >= 0 && name;) {
        char *slash = strchr(name, '/');
        if (slash)
            *slash = '\0';
        int next = root_open(rootfd, path, true);
        if (next < 0 && errno == ENOENT) {
            if ((slash || is_dir ? mkdirat(parent, name, 0755)
                                 : mknodat(parent, name, S_IFREG | 0644, 0)) < 0)
                root_no_place(c, "root", dst); /* a dangling link: EEXIST */
            next = root_open(rootfd, path, true);
        }
        close(parent);
        parent = next;
        if (slash)
            *slash = '/';
        name = slash ? slash + 1 : NULL;
    }
    if (parent < 0)
        root_no_place(c, "root", dst);
}

/* Creates the parents of dst and, for a mount, the point it goes on. */
void native_root_make_target(struct native_child *c, int rootfd, const struct plan_op *op,
                             bool is_dir)
{
    char path[PATH_MAX];
    size_t len = strlen(op->dst);
    if (op->kind == PLAN_OP_BIND && (op->flags & (PLAN_BIND_GRANT | PLAN_BIND_KERNELS))) {
        root_make_below_grant(c, rootfd, op->dst, is_dir);
        return;
    }
    if (len >= sizeof(path))
        native_child_fail(c, "root", ENAMETOOLONG, op->dst);
    memcpy(path, op->dst, len + 1);
    if (is_dir ? mkdirat(rootfd, path, 0755) == 0 : mknodat(rootfd, path, S_IFREG | 0644, 0) == 0)
        return;
    if (errno == EEXIST)
        return;
    for (char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdirat(rootfd, path, 0755) < 0 && errno != EEXIST)
            native_child_fail(c, "root", errno, op->dst);
        *slash = '/';
    }
    int r = is_dir ? mkdirat(rootfd, path, 0755) : mknodat(rootfd, path, S_IFREG | 0644, 0);
    if (r < 0 && errno != EEXIST)
        native_child_fail(c, "root", errno, op->dst);
}

void native_root_put_file(struct native_child *c, int rootfd, const struct plan_op *op)
{
    int fd =
        openat(rootfd, op->dst, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, op->mode);
    if (fd < 0 || (op->data_len > 0 && write(fd, op->data, op->data_len) != (ssize_t)op->data_len))
        native_child_fail(c, "root", errno, op->dst);
    close(fd);
}

/* What the caller granted was looked at before, by a path without links: it must still be that. */
int native_open_source(const struct plan_op *op)
{
    unsigned flags = SYS_OPEN_TREE_CLONE | SYS_OPEN_TREE_CLOEXEC | AT_RECURSIVE;
    if (op->flags & (PLAN_BIND_GRANT | PLAN_BIND_HELD | PLAN_BIND_KERNELS)) {
        struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS};
        _cleanup_close_ int fd = sys_openat2(AT_FDCWD, op->src, &how);
        if (fd >= 0)
            return sys_open_tree(fd, "", flags | AT_EMPTY_PATH);
        if (errno != ENOSYS)
            return -1;
    }
    return sys_open_tree(AT_FDCWD, op->src, flags | AT_NO_AUTOMOUNT);
}

static void root_bind_attr(const struct plan_op *op, struct sys_mount_attr *ret_attr)
{
    *ret_attr = (struct sys_mount_attr){.attr_set = SYS_MOUNT_ATTR_NOSUID};
    if (!(op->flags & PLAN_BIND_DEV))
        ret_attr->attr_set |= SYS_MOUNT_ATTR_NODEV;
    if (!(op->flags & PLAN_BIND_RW))
        ret_attr->attr_set |= SYS_MOUNT_ATTR_RDONLY;
    if (op->flags & PLAN_BIND_NOEXEC)
        ret_attr->attr_set |= SYS_MOUNT_ATTR_NOEXEC;
}

/* The devices of a root that lies ready are there; the root itself has none that work. One that
 * lacks is a failure of that root. */
static void root_device(struct root *r, const struct plan_op *op)
{
    struct sys_mount_attr attr = {.attr_clr = SYS_MOUNT_ATTR_NODEV};
    struct stat st;
    if (fstatat(r->fd, op->dst, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISCHR(st.st_mode))
        native_child_fail(r->c, "bind", ENXIO, op->src);
    if (r->dev_up)
        return;
    if (mount("dev", "dev", NULL, MS_BIND, NULL) < 0 ||
        sys_mount_setattr(AT_FDCWD, "dev", 0, &attr) < 0)
        native_child_fail(r->c, "bind", errno, "/dev");
    r->dev_up = true;
}

/* The runtime's own places: no name of theirs is the caller's or a guest's, so two calls with paths
 * do what a grant takes six for. */
static void root_bind_runtime(struct root *r, const struct plan_op *op)
{
    struct sys_mount_attr attr;
    root_bind_attr(op, &attr);
    if (r->has_nodes && (op->flags & PLAN_BIND_DEV)) {
        root_device(r, op);
        return;
    }
    if (!r->is_copy)
        native_root_make_target(r->c, r->fd, op, !(op->flags & PLAN_BIND_FILE));
    if (mount(op->src, op->dst, NULL, MS_BIND | MS_REC, NULL) < 0) {
        /* in a root that was there before, the place may be what is missing */
        int e = errno;
        if (e == ENOENT && (op->flags & PLAN_BIND_OPTIONAL) &&
            !(r->is_copy && access(op->src, F_OK) == 0))
            return;
        native_child_fail(r->c, "bind", e, op->src);
    }
    if (op->flags & PLAN_BIND_DEV)
        return; /* root_no_setuid() */
    if (sys_mount_setattr(AT_FDCWD, op->dst, AT_RECURSIVE, &attr) < 0)
        native_child_fail(r->c, "bind", errno, op->dst);
}

/* Nothing in the root has setuid programs; for the device nodes it is said here, once. */
static void root_no_setuid(struct native_child *c)
{
    struct sys_mount_attr attr = {.attr_set = SYS_MOUNT_ATTR_NOSUID};
    if (sys_mount_setattr(AT_FDCWD, ".", AT_RECURSIVE, &attr) < 0)
        native_child_fail(c, "root", errno, "nosuid");
}

static void root_bind(struct root *r, const struct plan_op *op, int fd)
{
    _cleanup_close_ int tree = fd;
    if (tree < 0) {
        tree = native_open_source(op);
        if (tree < 0 && (op->flags & PLAN_BIND_OPTIONAL))
            return;
        if (tree < 0)
            native_child_fail(r->c, "bind", errno, op->src);
    }
    struct sys_mount_attr attr;
    root_bind_attr(op, &attr);
    if (sys_mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr) < 0)
        native_child_fail(r->c, "bind", errno, op->src);
    native_root_make_target(r->c, r->fd, op, !(op->flags & PLAN_BIND_FILE));
    if (root_attach_place(tree, r->fd, op->dst) == 0)
        return;
    if (op->flags & PLAN_BIND_GRANT)
        root_no_place(r->c, "bind", op->dst);
    native_child_fail(r->c, "bind", errno, op->dst);
}

/* Held before the first grant, which may hide their names. */
static void root_hold_covers(struct root *r)
{
    static const char *const names[] = {PLAN_EMPTY_FILE, PLAN_EMPTY_DIR};
    for (int i = 0; i < 2; i++) {
        if (r->covers[i] < 0)
            r->covers[i] = openat(r->fd, names[i], O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (r->covers[i] < 0)
            native_child_fail(r->c, "mask", errno, names[i]);
    }
}

/* Covering is done with an empty file or folder of the root, which ends up read-only. Both
 * keep their names: a superblock with unlinked inodes in use cannot be made read-only. */
static void root_mask(struct root *r, const struct plan_op *op)
{
    bool dir = op->flags & PLAN_MASK_DIR;
    /* not every kernel has every entry of /proc, and every name in it is the kernel's */
    if (strncmp(op->dst, "proc/", 5) == 0) {
        const char *cover = dir ? PLAN_EMPTY_DIR : PLAN_EMPTY_FILE;
        if ((op->flags & PLAN_MASK_RARE) && access(op->dst, F_OK) < 0 && errno == ENOENT)
            return;
        if (mount(cover, op->dst, NULL, MS_BIND, NULL) < 0 &&
            (errno != ENOENT || access(cover, F_OK) < 0))
            native_child_fail(r->c, "mask", errno, op->dst);
        return;
    }
    root_hold_covers(r);
    int tree = sys_open_tree(r->covers[dir], "",
                             SYS_OPEN_TREE_CLONE | SYS_OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
    if (tree < 0)
        native_child_fail(r->c, "mask", errno, op->dst);
    if (root_attach_place(tree, r->fd, op->dst) < 0 &&
        !(errno == ENOENT && (op->flags & PLAN_MASK_OPTIONAL)))
        native_child_fail(r->c, "mask", errno, op->dst);
    close(tree);
}

/* One tmpfs behind /tmp, home and /dev/shm gives one exact total of bytes and inodes. It is mounted
 * below tmp first, because only an attached mount can be cloned on kernels before 6.15; tmp's own
 * folder then covers it. */
static void root_scratch(struct root *r, const struct plan_op *op)
{
    const struct plan_limits *l = &r->c->plan->limits;
    char path[64];
    if (op->flags & PLAN_SCRATCH_FOLDER)
        return; /* made with the others */
    if (!r->scratch_up) {
        char options[96];
        snprintf(options, sizeof(options), "size=%llu,nr_inodes=%llu,mode=0755",
                 (unsigned long long)l->scratch_bytes, (unsigned long long)l->scratch_inodes);
        if (mount("tmpfs", "tmp", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOATIME, options) < 0)
            native_child_fail(r->c, "scratch", errno, "tmpfs");
        for (size_t i = 0; i < r->c->plan->n_ops; i++) {
            const struct plan_op *s = &r->c->plan->ops[i];
            snprintf(path, sizeof(path), "tmp/%s", s->kind == PLAN_OP_SCRATCH ? s->src : "");
            if (s->kind == PLAN_OP_SCRATCH && mkdirat(r->fd, path, s->mode) < 0)
                native_child_fail(r->c, "scratch", errno, s->src);
        }
        r->scratch_up = true;
    }
    if (!r->is_copy)
        native_root_make_target(r->c, r->fd, op, true);
    snprintf(path, sizeof(path), "tmp/%s", op->src);
    /* by names, where each of them is ours */
    if (r->c->is_ready && mount(path, op->dst, NULL, MS_BIND, NULL) == 0)
        return;
    _cleanup_close_ int tree =
        sys_open_tree(r->fd, path, SYS_OPEN_TREE_CLONE | SYS_OPEN_TREE_CLOEXEC);
    if (tree < 0 || root_attach(tree, r->fd, op->dst) < 0)
        native_child_fail(r->c, "scratch", errno, op->dst);
}

/* By name, below the working directory: one call where the new ones take six, and every name in
 * its way is ours. */
void root_fs_op(struct root *r, const struct plan_op *op)
{
    bool proc = op->kind == PLAN_OP_PROC;
    const char *type = proc ? "proc" : "devpts";
    if (!r->is_copy)
        native_root_make_target(r->c, r->fd, op, true);
    if (mount(type, op->dst, type, MS_NOSUID | MS_NOEXEC | (proc ? MS_NODEV : 0),
              proc ? NULL : "ptmxmode=0666,mode=0620,max=64") < 0)
        native_child_fail(r->c, type, errno, op->dst);
}

/* Relative names in the mount's own options begin in the new root: absolute ones would in the old.
 * An overlay that the kernel would rather have read-only is a refusal. */
void native_root_overlay(struct native_child *c, int rootfd, const struct plan_op *op)
{
    struct statfs fs;
    native_root_make_target(c, rootfd, op, true);
    if (fchdir(rootfd) < 0 ||
        mount("overlay", op->dst, "overlay", MS_NOSUID | MS_NODEV, op->data) < 0 ||
        statfs(op->dst, &fs) < 0)
        native_child_fail(c, "overlay", errno, op->src);
    if (fs.f_flags & ST_RDONLY)
        native_child_fail(c, "overlay", EROFS, op->src);
    /* it holds its layers by itself; by name they must not be reached */
    if (umount2(PLAN_LOWER, MNT_DETACH) < 0 || umount2(PLAN_LAYER, MNT_DETACH) < 0 ||
        unlinkat(rootfd, PLAN_LOWER, AT_REMOVEDIR) < 0 ||
        unlinkat(rootfd, PLAN_LAYER, AT_REMOVEDIR) < 0)
        native_child_fail(c, "overlay", errno, "layers");
}

void root_do(struct root *r, size_t i)
{
    const struct plan_op *op = &r->c->plan->ops[i];
    if (r->c->is_ready && op->kind <= PLAN_OP_FILE)
        return; /* folders, links and files are there */
    switch (op->kind) {
    case PLAN_OP_DIR:
        if (mkdirat(r->fd, op->dst, op->mode) < 0 && errno != EEXIST)
            native_child_fail(r->c, "root", errno, op->dst);
        break;
    case PLAN_OP_SYMLINK:
        if (symlinkat(op->src, r->fd, op->dst) < 0)
            native_child_fail(r->c, "root", errno, op->dst);
        break;
    case PLAN_OP_FILE: native_root_put_file(r->c, r->fd, op); break;
    case PLAN_OP_BIND:
        if (!(op->flags & (PLAN_BIND_GRANT | PLAN_BIND_KERNELS)) && r->c->mount_fds[i] < 0) {
            root_bind_runtime(r, op);
            break;
        }
        root_hold_covers(r);
        root_bind(r, op, r->c->mount_fds[i]);
        break;
    case PLAN_OP_MASK: root_mask(r, op); break;
    case PLAN_OP_SCRATCH: root_scratch(r, op); break;
    case PLAN_OP_OVERLAY: native_root_overlay(r->c, r->fd, op); break;
    case PLAN_OP_PROC:
    case PLAN_OP_DEVPTS: root_fs_op(r, op); break;
    }
}

/* Where a filter outside refuses a piece of the new API, mount(2) does all of it. Every call below
 * is wrong in its arguments: the kernel's own answer is never one of the two a filter gives. */
static bool root_is_refused(int r)
{
    return r < 0 && (errno == ENOSYS || errno == EPERM);
}

bool native_root_is_unfiltered(const struct plan *plan)
{
    return plan->time_at_exec && prctl(PR_GET_SECCOMP) == 0;
}

bool native_root_has_new_api(const struct plan *plan)
{
    if (native_root_is_unfiltered(plan))
        return true;
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT};
    return !root_is_refused(sys_mount_setattr(-1, "", 0, NULL)) &&
           !root_is_refused(sys_open_tree(-1, "", ~0U)) && !root_is_refused(sys_fsopen("", ~0U)) &&
           !root_is_refused(sys_fsconfig(-1, ~0U, NULL, NULL, 0)) &&
           !root_is_refused(sys_fsmount(-1, ~0U, 0)) &&
           !root_is_refused(sys_move_mount(-1, "", -1, "", ~0U)) &&
           !root_is_refused(sys_openat2(-1, "", &how));
}

/* Nothing mounted here may ever propagate back to the host, nor the host's changes in. */
static void root_make_private(struct native_child *c)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        native_child_fail(c, "propagation", errno, "/");
}

int root_make(struct native_child *c, const char *at, void (*act)(struct root *r, size_t i))
{
    static const char *const options[] = {ROOT_SIZE, "nr_inodes=4096", "mode=0755", NULL};
    struct root r = {.c = c, .covers = {-1, -1}};
    mode_t mask = umask(0); /* the plan's modes are meant */
    root_make_private(c);
    r.fd = native_ready_open(c, &r.has_nodes);
    c->is_ready = r.is_copy = r.fd >= 0;
    if (!c->is_ready)
        r.fd = native_new_fs("tmpfs", options, SYS_MOUNT_ATTR_NOSUID | SYS_MOUNT_ATTR_NODEV);
    /* the working directory is the new root from here on: relative names are places in it */
    if (r.fd < 0 || root_attach(r.fd, AT_FDCWD, at) < 0 || fchdir(r.fd) < 0)
        native_child_fail(c, "root", errno, "tmpfs");
    for (size_t i = 0; i < c->plan->n_ops; i++)
        act(&r, i);
    root_no_setuid(c);
    umask(mask);
    for (int i = 0; i < 2; i++)
        util_close(&r.covers[i]);
    return r.fd;
}

int native_root_make(struct native_child *c)
{
    return root_make(c, "/", root_do);
}

static void root_turn(struct native_child *c)
{
    if (sys_pivot_root(".", ".") < 0)
        native_child_fail(c, "pivot_root", errno, "/");
}

/* The working directory is the new root. The superblock is made read-only, not only the mount: the
 * masks are clones of it. One that lay ready is the host's, and its mount was read-only before any
 * mask was cloned from it. */
void native_root_swap(struct native_child *c)
{
    if (!c->is_ready &&
        mount(NULL, ".", NULL, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) < 0)
        native_child_fail(c, "root", errno, "read-only");
    root_turn(c);
}

/* "." is now the old root, stacked on the new one; without it no name leads to the host. The kernel
 * takes it out of reach at once and then waits until nobody on any core is still on a way through
 * it. */
void native_root_forget(struct native_child *c)
{
    if (umount2(".", MNT_DETACH) < 0)
        native_child_fail(c, "pivot_root", errno, "umount");
    if (chdir("/") < 0)
        native_child_fail(c, "pivot_root", errno, "chdir");
}

void root_pivot(struct native_child *c)
{
    root_turn(c);
    native_root_forget(c);
}

void root_enter(struct native_child *c)
{
    native_root_swap(c);
    native_root_forget(c);
}

void native_root_build(struct native_child *c)
{
    if (native_again_has_root(c->plan)) {
        native_root_copy(c);
        return;
    }
    if (!native_root_has_new_api(c->plan)) {
        root_make_private(c);
        native_root_build_old(c);
        return;
    }
    int fd = native_root_make(c);
    root_enter(c);
    close(fd);
}
