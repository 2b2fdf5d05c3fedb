/* Builds the guest's root with mount(2), where something outside refuses the new mount API. The
 * steps and their order are those of root.c, which calls this; runs in the guest's pid 1.
 *
 * The root is a tmpfs mounted over "/". Lookups of this process still start below it, so host paths
 * keep their meaning until the pivot; the one way up is "/..", which the kernel follows onto
 * whatever is mounted on the root. Everything inside is opened relative to that descriptor and
 * mounted on through /proc/self/fd: no target is ever a path that a link could lead out to the
 * host.
 *
 * mount(2) gives a bind the flags of its source, and changes one mount at a time. So after each
 * bind every mount of it is found in mountinfo and changed alone. In a user namespace flags that a
 * mount was born with are locked: they are repeated, and no access-time flag is named, which keeps
 * those. */
#include "backend/native/native_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sys.h"
#include "base/util.h"

#define ROOT_OPTIONS "size=2m,nr_inodes=4096,mode=0755" /* as in root.c */
#define FD_PATH_MAX 40
#define MOVE_MOUNT_T_FOLLOW 0x10 /* MOVE_MOUNT_T_SYMLINKS */
#ifndef MS_NOSYMFOLLOW
#define MS_NOSYMFOLLOW 256
#endif

struct old {
    struct native_child *c;
    int fd;          /* the new root */
    bool scratch_up; /* the scratch tmpfs is mounted (below tmp) */
};

/* One line of mountinfo. */
struct old_mount {
    uint64_t id;
    char *path;
    unsigned long flags;
};

/* What a bind asks of each of its mounts. */
struct old_tree {
    const struct plan_op *op;
    unsigned long want;
    uint64_t top_id;
    char top[PATH_MAX]; /* where it is, as mountinfo says it */
    bool top_done;
};

static const char *old_fd_path(int fd, char path[static FD_PATH_MAX])
{
    snprintf(path, FD_PATH_MAX, "/proc/self/fd/%d", fd);
    return path;
}

static int old_mount_on(int fd, const char *src, const char *type, unsigned long flags,
                        const char *data)
{
    char path[FD_PATH_MAX];
    return mount(src, old_fd_path(fd, path), type, flags, data);
}

/* Component by component, for where openat2 is refused as well: links are not followed at all. */
static int old_open_walk(int rootfd, const char *path)
{
    char part[NAME_MAX + 1];
    int fd = openat(rootfd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    while (fd >= 0 && *path) {
        size_t len = strcspn(path, "/");
        struct stat st;
        if (len >= sizeof(part)) {
            close(fd);
            errno = ENAMETOOLONG;
            return -1;
        }
        memcpy(part, path, len);
        part[len] = '\0';
        path += len + strspn(path + len, "/");
        int next = openat(fd, part, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        int saved = errno;
        close(fd);
        errno = saved;
        fd = next;
        if (fd >= 0 && (fstat(fd, &st) < 0 || S_ISLNK(st.st_mode) || str_eq(part, ".."))) {
            close(fd);
            errno = ELOOP;
            return -1;
        }
    }
    return fd;
}

/* A place of the new root: links in the caller's own trees mean what they will mean to the guest.
 */
static int old_open(int rootfd, const char *path)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    int fd = sys_openat2(rootfd, path, &how);
    if (fd < 0 && (errno == ENOSYS || errno == EPERM))
        fd = old_open_walk(rootfd, path);
    return fd;
}

static int old_mount_id(int fd, uint64_t *ret_id)
{
    struct statx stx;
    if (sys_statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &stx) < 0)
        return -1;
    if (!(stx.stx_mask & STATX_MNT_ID)) {
        errno = ENOSYS;
        return -1;
    }
    *ret_id = stx.stx_mnt_id;
    return 0;
}

static int old_where(int fd, char path[static PATH_MAX])
{
    char link[FD_PATH_MAX];
    ssize_t n = readlink(old_fd_path(fd, link), path, PATH_MAX);
    if (n >= PATH_MAX)
        errno = ENAMETOOLONG;
    if (n < 0 || n >= PATH_MAX)
        return -1;
    path[n] = '\0';
    return 0;
}

/* The kernel writes blank, tab, newline and backslash as three octal digits. */
static void old_unescape(char *s)
{
    char *to = s;
    for (; *s; s++, to++) {
        if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
            s[3] >= '0' && s[3] <= '7') {
            *to = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
            s += 3;
        } else {
            *to = *s;
        }
    }
    *to = '\0';
}

static unsigned long old_flags(char *options)
{
    static const struct {
        const char *name;
        unsigned long flag;
    } rows[] = {{"ro", MS_RDONLY},
                {"nosuid", MS_NOSUID},
                {"nodev", MS_NODEV},
                {"noexec", MS_NOEXEC},
                {"nosymfollow", MS_NOSYMFOLLOW}};
    unsigned long flags = 0;
    char *save = NULL;
    for (char *o = strtok_r(options, ",", &save); o; o = strtok_r(NULL, ",", &save))
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
            if (str_eq(o, rows[i].name))
                flags |= rows[i].flag;
    return flags;
}

/* "36 35 98:0 /sub /where rw,nosuid ..." */
static bool old_parse(char *line, struct old_mount *m)
{
    char *words[6], *save = NULL, *end;
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if (!(words[i] = strtok_r(i ? NULL : line, " ", &save)))
            return false;
    m->id = strtoull(words[0], &end, 10);
    if (*end)
        return false;
    m->path = words[4];
    old_unescape(m->path);
    m->flags = old_flags(words[5]);
    return m->path[0] == '/';
}

/* The same path may be one of the host's mounts, or one that something covers: only the mount that
 * the guest would come to is of interest. One it cannot even be asked about stops the run. */
static void old_apply(struct old *o, struct old_tree *t, const struct old_mount *m)
{
    uint64_t id;
    size_t len = strlen(t->top);
    if (strncmp(m->path, t->top, len) != 0 || (m->path[len] != '\0' && m->path[len] != '/'))
        return;
    _cleanup_close_ int fd = old_open(o->fd, m->path + 1);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return;
    if (fd < 0 || old_mount_id(fd, &id) < 0)
        native_child_fail(o->c, "bind", errno, m->path);
    if (id != m->id)
        return;
    if ((m->flags & t->want) != t->want &&
        old_mount_on(fd, NULL, NULL, MS_REMOUNT | MS_BIND | m->flags | t->want, NULL) < 0)
        native_child_fail(o->c, "bind", errno, m->path);
    if (id == t->top_id)
        t->top_done = true;
}

static void old_apply_all(struct old *o, struct old_tree *t)
{
    static char text[65536];
    size_t kept = 0;
    _cleanup_close_ int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        native_child_fail(o->c, "bind", errno, "/proc/self/mountinfo");
    for (;;) {
        ssize_t n = read(fd, text + kept, sizeof(text) - 1 - kept);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 || (n == 0 && kept > 0))
            native_child_fail(o->c, "bind", n < 0 ? errno : E2BIG, "/proc/self/mountinfo");
        if (n == 0)
            break;
        text[kept + (size_t)n] = '\0';
        char *line = text, *end;
        for (; (end = strchr(line, '\n')); line = end + 1) {
            struct old_mount m;
            *end = '\0';
            if (!old_parse(line, &m))
                native_child_fail(o->c, "bind", EBADMSG, "/proc/self/mountinfo");
            old_apply(o, t, &m);
        }
        kept = strlen(line);
        memmove(text, line, kept);
    }
    if (!t->top_done)
        native_child_fail(o->c, "bind", ESTALE, t->op->dst);
}

/* Descriptors of the supervisor's are detached mounts, which mount(2) cannot use: where only the
 * call that maps ids is refused they are moved in, otherwise the path must serve. */
static void old_bind_mount(struct old *o, const struct plan_op *op, int detached, int target)
{
    char path[FD_PATH_MAX];
    if (detached >= 0 && sys_move_mount(detached, "", AT_FDCWD, old_fd_path(target, path),
                                        SYS_MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_FOLLOW) == 0)
        return;
    if (old_mount_on(target, op->src, NULL, MS_BIND | MS_REC, NULL) < 0)
        native_child_fail(o->c, "bind", errno, op->src);
}

static void old_bind(struct old *o, const struct plan_op *op, int mount_fd)
{
    _cleanup_close_ int detached = mount_fd;
    if (detached < 0 && (op->flags & PLAN_BIND_OPTIONAL) && access(op->src, F_OK) < 0)
        return;
    native_root_make_target(o->c, o->fd, op, !(op->flags & PLAN_BIND_FILE));
    _cleanup_close_ int target = old_open(o->fd, op->dst);
    struct old_tree t = {.op = op, .want = MS_NOSUID};
    if (target < 0 || old_where(target, t.top) < 0)
        native_child_fail(o->c, "bind", errno, op->dst);
    old_bind_mount(o, op, detached, target);

    uint64_t below;
    char again[PATH_MAX];
    _cleanup_close_ int top = old_open(o->fd, op->dst);
    if (top < 0 || old_where(top, again) < 0 || old_mount_id(target, &below) < 0 ||
        old_mount_id(top, &t.top_id) < 0)
        native_child_fail(o->c, "bind", errno, op->dst);
    if (below == t.top_id || !str_eq(again, t.top))
        native_child_fail(o->c, "bind", ESTALE, op->dst); /* somebody moved the target meanwhile */
    if (!(op->flags & PLAN_BIND_DEV))
        t.want |= MS_NODEV;
    if (!(op->flags & PLAN_BIND_RW))
        t.want |= MS_RDONLY;
    if (op->flags & PLAN_BIND_NOEXEC)
        t.want |= MS_NOEXEC;
    old_apply_all(o, &t);
}

/* Covers a place with an empty file or folder of the root tmpfs; see root.c. */
static void old_mask(struct old *o, const struct plan_op *op)
{
    char path[FD_PATH_MAX];
    _cleanup_close_ int target = old_open(o->fd, op->dst);
    if (target < 0 && errno == ENOENT &&
        (strncmp(op->dst, "proc/", 5) == 0 || (op->flags & PLAN_MASK_OPTIONAL)))
        return; /* not every kernel has every entry */
    bool dir = op->flags & PLAN_MASK_DIR;
    static int covers[2] = {-1, -1}; /* held from the first cover on: a grant may hide the names */
    if (covers[dir] < 0)
        covers[dir] = old_open(o->fd, dir ? PLAN_EMPTY_DIR : PLAN_EMPTY_FILE);
    if (target < 0 || covers[dir] < 0 ||
        old_mount_on(target, old_fd_path(covers[dir], path), NULL, MS_BIND, NULL) < 0)
        native_child_fail(o->c, "mask", errno, op->dst);
}

static void old_scratch_make(struct old *o)
{
    const struct plan *p = o->c->plan;
    char options[96];
    snprintf(options, sizeof(options), "size=%llu,nr_inodes=%llu,mode=0755",
             (unsigned long long)p->limits.scratch_bytes,
             (unsigned long long)p->limits.scratch_inodes);
    _cleanup_close_ int tmp = old_open(o->fd, "tmp");
    if (tmp < 0 ||
        old_mount_on(tmp, "none", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOATIME, options) < 0)
        native_child_fail(o->c, "scratch", errno, "tmpfs");
    _cleanup_close_ int fs = old_open(o->fd, "tmp");
    if (fs < 0)
        native_child_fail(o->c, "scratch", errno, "tmp");
    for (size_t i = 0; i < p->n_ops; i++) {
        const struct plan_op *s = &p->ops[i];
        if (s->kind == PLAN_OP_SCRATCH &&
            (mkdirat(fs, s->src, 0700) < 0 || fchmodat(fs, s->src, s->mode, 0) < 0))
            native_child_fail(o->c, "scratch", errno, s->src);
    }
    o->scratch_up = true;
}

static void old_scratch(struct old *o, const struct plan_op *op)
{
    char path[64], from[FD_PATH_MAX];
    if (op->flags & PLAN_SCRATCH_FOLDER)
        return; /* made with the others */
    if (!o->scratch_up)
        old_scratch_make(o);
    native_root_make_target(o->c, o->fd, op, true);
    snprintf(path, sizeof(path), "tmp/%s", op->src);
    _cleanup_close_ int folder = old_open(o->fd, path);
    _cleanup_close_ int target = old_open(o->fd, op->dst);
    if (folder < 0 || target < 0 ||
        old_mount_on(target, old_fd_path(folder, from), NULL, MS_BIND, NULL) < 0)
        native_child_fail(o->c, "scratch", errno, op->dst);
}

static void old_fs_op(struct old *o, const struct plan_op *op)
{
    bool proc = op->kind == PLAN_OP_PROC;
    const char *type = proc ? "proc" : "devpts";
    unsigned long flags = MS_NOSUID | MS_NOEXEC | (proc ? MS_NODEV : 0);
    native_root_make_target(o->c, o->fd, op, true);
    _cleanup_close_ int target = old_open(o->fd, op->dst);
    if (target < 0 || old_mount_on(target, "none", type, flags,
                                   proc ? NULL : "newinstance,ptmxmode=0666,mode=0620") < 0)
        native_child_fail(o->c, type, errno, op->dst);
}

static void old_do(struct old *o, size_t i)
{
    const struct plan_op *op = &o->c->plan->ops[i];
    switch (op->kind) {
    case PLAN_OP_DIR:
        if (mkdirat(o->fd, op->dst, op->mode) < 0 && errno != EEXIST)
            native_child_fail(o->c, "root", errno, op->dst);
        return;
    case PLAN_OP_SYMLINK:
        if (symlinkat(op->src, o->fd, op->dst) < 0)
            native_child_fail(o->c, "root", errno, op->dst);
        return;
    case PLAN_OP_FILE: native_root_put_file(o->c, o->fd, op); return;
    case PLAN_OP_BIND: old_bind(o, op, o->c->mount_fds[i]); return;
    case PLAN_OP_MASK: old_mask(o, op); return;
    case PLAN_OP_SCRATCH: old_scratch(o, op); return;
    case PLAN_OP_OVERLAY: native_root_overlay(o->c, o->fd, op); return;
    case PLAN_OP_PROC:
    case PLAN_OP_DEVPTS: old_fs_op(o, op); return;
    }
    native_child_fail(o->c, "root", ENOTSUP, op->dst); /* never a root without what was planned */
}

/* Opens what was just mounted over "/", and makes sure that it is that and not the host's root. */
static int old_root_open(struct native_child *c)
{
    uint64_t host, ours;
    _cleanup_close_ int under = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    _cleanup_close_ int fd = open("/..", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (under < 0 || fd < 0 || old_mount_id(under, &host) < 0 || old_mount_id(fd, &ours) < 0)
        native_child_fail(c, "root", errno, "open");
    if (host == ours)
        native_child_fail(c, "root", ENOTSUP, "the new root cannot be reached");
    return TAKE_FD(fd);
}

void native_root_build_old(struct native_child *c)
{
    if (mount("none", "/", "tmpfs", MS_NOSUID | MS_NODEV, ROOT_OPTIONS) < 0)
        native_child_fail(c, "root", errno, "tmpfs");
    struct old o = {.c = c, .fd = old_root_open(c)};
    for (size_t i = 0; i < c->plan->n_ops; i++)
        old_do(&o, i);

    if (fchdir(o.fd) < 0)
        native_child_fail(c, "root", errno, "/");
    native_root_swap(c);
    native_root_forget(c);
    close(o.fd);
}
