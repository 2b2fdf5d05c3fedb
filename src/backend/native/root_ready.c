/* A root that lies ready.
 *
 * Making the folders, links and small files of the guest's root anew costs a tenth of a start, and
 * they are the same for every guest without grants. So root keeps them, for everybody: in a folder
 * below READY_DIR that is named after what is in it, that only root can write to, and that no guest
 * ever sees but as its read-only root (plan_state.c covers or refuses the place in every grant).
 * Nobody's guest is root to the kernel: the files are none of theirs to change, whatever becomes of
 * the mount. Only places and text of ours are there; what is mounted on them, the host's programs,
 * /proc, devices, scratch, is made for each guest as ever. Without such a folder, or one that is as
 * it must be, the root is a tmpfs that pid 1 fills by itself.
 *
 * The supervisor looks for it before the start. Where there is none, and the caller is root, a
 * process of its own makes it while the guest runs: nobody waits for it. One that does not serve is
 * put aside, not removed: whoever runs in it would lose what is mounted on its places. */
#include "backend/native/root_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/detach.h"
#include "base/sys.h"
#include "base/util.h"
#include "policy/reach.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif
#define READY_DIR REACH_ROOT_DIR "/roots"
/* First in every name: another one when the same operations mean other folders. */
#define READY_FORM "3-"
#define READY_NAME (sizeof(READY_FORM) + 16)
#define READY_MOST 64 /* kinds of roots that are kept */
#define READY_NEW ".new"
#define READY_LOCK ".lock"
#define READY_BAD ".bad-"
#define READY_DEPTH 8
#define READY_STAMP 1 /* time of change of folders in which all is that was put there */
#define READY_NOSYMFOLLOW 0x2000
#define READY_NODEV 4

static bool ready_is_off; /* one did not serve: this process takes no other */

static bool ready_is_place(const struct plan_op *op)
{
    return op->kind == PLAN_OP_BIND || op->kind == PLAN_OP_PROC || op->kind == PLAN_OP_DEVPTS ||
           (op->kind == PLAN_OP_SCRATCH && !(op->flags & PLAN_SCRATCH_FOLDER));
}

static uint64_t ready_mix(uint64_t key, const void *bytes, size_t len)
{
    const char *p = bytes;
    key ^= len;
    for (; len > 0; p += MIN(len, 8), len -= MIN(len, 8)) {
        uint64_t word = 0;
        if (len >= sizeof(word))
            memcpy(&word, p, sizeof(word)); /* one instruction */
        else
            memcpy(&word, p, len);
        key = (key ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        key ^= key >> 29;
    }
    return key;
}

static uint64_t ready_mix_text(uint64_t key, const char *text)
{
    return ready_mix(key, text, strlen(text) + 1);
}

/* Something of the caller's: made, or covered, for this guest alone. */
static bool ready_is_own(const struct plan_op *op)
{
    return op->kind == PLAN_OP_OVERLAY ||
           (op->kind == PLAN_OP_MASK && !str_starts(op->dst, "proc/")) ||
           (op->kind == PLAN_OP_BIND &&
            (op->flags & (PLAN_BIND_GRANT | PLAN_BIND_HELD | PLAN_BIND_KERNELS | PLAN_BIND_COPY)));
}

bool native_ready_key(const struct plan *p, uint64_t *ret_key)
{
    uint64_t key = UINT64_C(0xcbf29ce484222325);
    /* root without the rights for ids of others: its guests are root to the kernel */
    if (p->tier != TIER_FULL || p->host_uid == 0 || p->rootfs || p->oci || p->net || p->enter)
        return false;
    for (size_t i = 0; i < p->n_ops; i++) {
        const struct plan_op *op = &p->ops[i];
        if (ready_is_own(op))
            return false;
        const unsigned head[] = {(unsigned)op->kind, op->flags & PLAN_BIND_FILE, op->mode};
        /* in /proc and in the scratch */
        if (op->kind == PLAN_OP_MASK || (op->flags & PLAN_SCRATCH_FOLDER))
            continue;
        key = ready_mix_text(ready_mix(key, head, sizeof(head)), op->dst);
        if (op->kind == PLAN_OP_SYMLINK)
            key = ready_mix_text(key, op->src);
        if (op->kind == PLAN_OP_FILE) {
            key = ready_mix(key, &op->data_len, sizeof(op->data_len));
            key = ready_mix(key, op->data, op->data_len);
        }
    }
    *ret_key = key;
    return true;
}

static void ready_name(uint64_t key, char ret_name[static READY_NAME])
{
    static const char digits[] = "0123456789abcdef";
    char *number = ret_name + sizeof(READY_FORM) - 1;
    memcpy(ret_name, READY_FORM, sizeof(READY_FORM) - 1);
    for (int i = 15; i >= 0; i--, key >>= 4)
        number[i] = digits[key & 15];
    number[16] = '\0';
}

/* Nobody but root can have put anything there. */
static bool ready_may_be_trusted(const struct stat *st)
{
    return S_ISDIR(st->st_mode) && st->st_uid == 0 && (st->st_mode & 022) == 0;
}

static bool ready_is_roots(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && ready_may_be_trusted(&st);
}

/* Whoever takes something away from these, or adds to them, changes their time. The last one is the
 * root itself. */
static const char *const ready_stamped[] = {"/etc", "/dev", "/var", ""};

static bool ready_is_whole(const char *path, struct stat *ret_st)
{
    char part[sizeof(((struct native_child *)NULL)->ready_path) + 8];
    for (size_t i = 0; i < ARRAY_SIZE(ready_stamped); i++) {
        str_join(part, sizeof(part), path, ready_stamped[i], "");
        if (lstat(part, ret_st) < 0 || ret_st->st_mtim.tv_sec != READY_STAMP ||
            ret_st->st_mtim.tv_nsec != 0)
            return false;
    }
    return true;
}

void native_ready_find(struct native_child *c)
{
    char name[READY_NAME];
    uint64_t key;
    struct stat st;
    c->ready_path[0] = '\0';
    if (ready_is_off || !c->is_alone || !native_ready_key(c->plan, &key))
        return;
    ready_name(key, name);
    str_join(c->ready_path, sizeof(c->ready_path), READY_DIR, "/", name);
    c->ready_ino = 0;
    if (!ready_is_roots(READY_DIR) || !ready_is_whole(c->ready_path, &st) ||
        !ready_may_be_trusted(&st))
        return; /* the path stays: it can be made */
    c->ready_dev = st.st_dev;
    c->ready_ino = st.st_ino;
}

/* What /proc is covered with: without these a cover would pass for one that this kernel does not
 * need (root.c). */
static bool ready_has_covers(int fd)
{
    struct stat file, dir;
    return fstatat(fd, PLAN_EMPTY_FILE, &file, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(file.st_mode) &&
           file.st_size == 0 && fstatat(fd, PLAN_EMPTY_DIR, &dir, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(dir.st_mode);
}

/* Its devices are devices, and may be used where it lies. */
static bool ready_has_nodes(int fd, const struct statfs *fs)
{
    struct stat st;
    return !(fs->f_flags & READY_NODEV) && fstatat(fd, "dev/null", &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISCHR(st.st_mode);
}

int native_ready_open(struct native_child *c, bool *ret_has_nodes)
{
    struct stat st;
    struct statfs fs;
    struct sys_mount_attr attr = {.attr_set = SYS_MOUNT_ATTR_NOSUID | SYS_MOUNT_ATTR_NODEV |
                                              SYS_MOUNT_ATTR_RDONLY};
    if (!c->ready_path[0] || !c->ready_ino)
        return -1;
    _cleanup_close_ int fd = sys_open_tree(
        AT_FDCWD, c->ready_path, SYS_OPEN_TREE_CLONE | SYS_OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW);
    /* a mount on which links lead nowhere would stay one */
    if (fd < 0 || fstatfs(fd, &fs) < 0 || (fs.f_flags & READY_NOSYMFOLLOW) || fstat(fd, &st) < 0 ||
        st.st_dev != c->ready_dev || st.st_ino != c->ready_ino || !ready_has_covers(fd) ||
        sys_mount_setattr(fd, "", AT_EMPTY_PATH, &attr) < 0)
        return -1;
    *ret_has_nodes = ready_has_nodes(fd, &fs);
    return TAKE_FD(fd);
}

/* ---- making one ---- */

/* All of them, or none: who may not make the first has places for the host's mounted on them. */
static bool ready_make_node(struct root *r, const struct plan_op *op)
{
    struct stat st;
    if (stat(op->src, &st) < 0 || !S_ISCHR(st.st_mode))
        native_child_fail(r->c, "root", ENXIO, op->src);
    if (mknodat(r->fd, op->dst, S_IFCHR | (st.st_mode & 0666), st.st_rdev) == 0)
        return r->has_nodes = true;
    if (r->has_nodes)
        native_child_fail(r->c, "root", errno, op->dst);
    return false;
}

/* The folders that lead to it are 0755 and root's: a name in the way that is not is left alone. */
static int ready_open_dir(void)
{
    mode_t mask = umask(022); /* everybody's commands read root's notes beside it */
    bool made = (mkdir(REACH_ROOT_DIR, 0755) == 0 || errno == EEXIST) &&
                (mkdir(READY_DIR, 0755) == 0 || errno == EEXIST);
    umask(mask);
    if (!made || !ready_is_roots(REACH_ROOT_DIR) || !ready_is_roots(READY_DIR))
        return -1;
    return open(READY_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static DIR *ready_list(int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (fd >= 0 && !d)
        close(fd);
    return d;
}

static void ready_remove(int dir, const char *name, int depth)
{
    if (unlinkat(dir, name, 0) == 0 || depth == 0)
        return;
    DIR *d = ready_list(dir, name);
    for (struct dirent *e; d && (e = readdir(d));)
        if (!str_eq(e->d_name, ".") && !str_eq(e->d_name, ".."))
            ready_remove(dirfd(d), e->d_name, depth - 1);
    if (d)
        closedir(d);
    unlinkat(dir, name, AT_REMOVEDIR);
}

static bool ready_has_room(int dir)
{
    unsigned n = 0;
    DIR *d = ready_list(dir, ".");
    for (struct dirent *e; d && (e = readdir(d));)
        n += str_starts(e->d_name, READY_FORM);
    if (d)
        closedir(d);
    return d && n < READY_MOST;
}

/* Nobody runs in it any more: it was made or put aside before the machine was started. Whoever does
 * would lose what is mounted on its places. */
static bool ready_is_left(int dir, const char *name)
{
    struct stat st;
    struct sysinfo now;
    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && sysinfo(&now) == 0 &&
           st.st_ctime < time(NULL) - (time_t)now.uptime;
}

/* What a maker that failed or was killed left, roots that were not trusted any more, and those of
 * another Cordon's form. */
static void ready_clear(int dir)
{
    DIR *d = ready_list(dir, ".");
    for (struct dirent *e; d && (e = readdir(d));) {
        bool is_old = str_starts(e->d_name, READY_BAD) ||
                      (e->d_name[0] != '.' && !str_starts(e->d_name, READY_FORM));
        if (str_eq(e->d_name, READY_NEW) || (is_old && ready_is_left(dir, e->d_name)))
            ready_remove(dir, e->d_name, READY_DEPTH);
    }
    if (d)
        closedir(d);
}

/* A host that goes down must not find a finished folder with unwritten files in it. */
static void ready_write_out(struct root *r, const struct plan_op *op)
{
    _cleanup_close_ int fd = openat(r->fd, op->dst, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0)
        native_child_fail(r->c, "root", errno, op->dst);
}

/* As pid 1 makes it in its tmpfs; a failure ends the process (child.c). */
static void ready_fill(struct root *r)
{
    static const struct timespec stamp[2] = {{.tv_sec = READY_STAMP}, {.tv_sec = READY_STAMP}};
    const struct plan *p = r->c->plan;
    for (size_t i = 0; i < p->n_ops; i++) {
        const struct plan_op *op = &p->ops[i];
        if (op->kind == PLAN_OP_BIND && (op->flags & PLAN_BIND_DEV) && ready_make_node(r, op))
            continue;
        if (ready_is_place(op))
            native_root_make_target(r->c, r->fd, op,
                                    op->kind != PLAN_OP_BIND || !(op->flags & PLAN_BIND_FILE));
        else if (op->kind != PLAN_OP_MASK && op->kind != PLAN_OP_SCRATCH)
            root_do(r, i);
        if (op->kind == PLAN_OP_FILE)
            ready_write_out(r, op);
    }
    for (size_t i = 0; i < ARRAY_SIZE(ready_stamped); i++) {
        const char *name = ready_stamped[i][0] ? ready_stamped[i] + 1 : ".";
        if (utimensat(r->fd, name, stamp, AT_SYMLINK_NOFOLLOW) < 0)
            native_child_fail(r->c, "root", errno, name);
    }
}

/* Under another name first, by one process at a time: what has its own name is whole. */
static _Noreturn void ready_build(const struct plan *p, int dir, const char *name)
{
    struct native_status status = {0};
    struct native_child c = {.plan = p, .status = &status};
    struct root r = {.c = &c, .covers = {-1, -1}};
    struct stat st;
    prctl(PR_SET_NAME, "cordon-ready");
    umask(0); /* the plan's modes are meant */
    /* nothing of the caller's is held, and what ends its processes does not end this one halfway; a
     * lock on the folder would be anybody's to take */
    int lock = openat(dir, READY_LOCK, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (setsid() < 0 || chdir("/") < 0 || lock < 0 || flock(lock, LOCK_EX | LOCK_NB) < 0)
        _exit(1);
    ready_clear(dir);
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 || mkdirat(dir, READY_NEW, 0755) < 0)
        _exit(1);
    r.fd = openat(dir, READY_NEW, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (r.fd < 0)
        _exit(1);
    ready_fill(&r);
    (void)!syscall(SYS_renameat2, dir, READY_NEW, dir, name, RENAME_NOREPLACE);
    _exit(0);
}

void native_ready_make(const char *path, const struct plan *p)
{
    struct stat st;
    const char *name = strrchr(path, '/') + 1;
    _cleanup_close_ int dir = geteuid() == 0 ? ready_open_dir() : -1;
    if (dir < 0)
        return;
    if (ready_is_whole(path, &st) && ready_may_be_trusted(&st))
        return; /* somebody made it meanwhile */
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        native_ready_distrust(path);
    if (ready_has_room(dir) && detach_fork(&dir, 1) == 1)
        ready_build(p, 0, name);
}

void native_ready_stop(void)
{
    ready_is_off = true;
}

/* Whoever runs in it keeps it. */
void native_ready_distrust(const char *path)
{
    char bad[sizeof(READY_DIR) + 32];
    snprintf(bad, sizeof(bad), READY_DIR "/" READY_BAD "%d", (int)getpid());
    (void)!rename(path, bad);
}
