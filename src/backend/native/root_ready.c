/* A root that lies ready, for guests of root.
 *
 * Making the folders, links and small files of the guest's root anew costs a tenth of a start, and
 * they are the same for every guest without grants. So they are kept: in a folder below READY_DIR
 * that is named after what is in it, that only root can write to, and that no guest ever sees but
 * as its read-only root (plan_state.c covers or refuses the place in every grant). Only places and
 * text of ours are there; what is mounted on them, the host's programs, /proc, devices, scratch, is
 * made for each guest as ever. Without such a folder, or one that is as it must be, the root is a
 * tmpfs that pid 1 fills by itself.
 *
 * The supervisor looks for it before the start, and where there is none a process of its own makes
 * it while the guest runs: nobody waits for it. */
#include "backend/native/root_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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
#define READY_FORM "1" /* of the folders: another one when the same operations mean something else */
#define READY_MOST 16  /* kinds of roots that are kept */
#define READY_NEW ".new-"
#define READY_NEW_S 3600 /* longest one can be in the making */

static bool ready_is_place(const struct plan_op *op)
{
    return op->kind == PLAN_OP_BIND || op->kind == PLAN_OP_PROC || op->kind == PLAN_OP_DEVPTS ||
           (op->kind == PLAN_OP_SCRATCH && !(op->flags & PLAN_SCRATCH_FOLDER));
}

static uint64_t ready_mix(uint64_t key, const void *bytes, size_t len)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < len; i++)
        key = (key ^ p[i]) * UINT64_C(0x100000001b3);
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
    uint64_t key = ready_mix_text(UINT64_C(0xcbf29ce484222325), READY_FORM);
    if (p->tier != TIER_FULL || !p->own_host_ids || p->rootfs || p->oci || p->net || p->enter)
        return false;
    for (size_t i = 0; i < p->n_ops; i++) {
        const struct plan_op *op = &p->ops[i];
        if (ready_is_own(op))
            return false;
        const unsigned head[] = {(unsigned)op->kind, op->flags & PLAN_BIND_FILE, op->mode};
        if (op->kind == PLAN_OP_MASK)
            continue; /* in /proc */
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

static void ready_name(uint64_t key, char ret_name[static 17])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 15; i >= 0; i--, key >>= 4)
        ret_name[i] = digits[key & 15];
    ret_name[16] = '\0';
}

/* Nobody but root can have put anything there. */
static bool ready_is_good(const char *path, struct stat *ret_st)
{
    return lstat(path, ret_st) == 0 && S_ISDIR(ret_st->st_mode) && ret_st->st_uid == 0 &&
           (ret_st->st_mode & 022) == 0;
}

void native_ready_find(struct native_child *c)
{
    char name[17];
    uint64_t key;
    struct stat st;
    c->ready_path[0] = '\0';
    if (geteuid() != 0 || !native_ready_key(c->plan, &key))
        return;
    ready_name(key, name);
    str_join(c->ready_path, sizeof(c->ready_path), READY_DIR, "/", name);
    c->ready_ino = 0;
    if (!ready_is_good(READY_DIR, &st) || !ready_is_good(c->ready_path, &st))
        return; /* the path stays: it can be made */
    c->ready_dev = st.st_dev;
    c->ready_ino = st.st_ino;
}

int native_ready_open(struct native_child *c)
{
    struct stat st;
    struct sys_mount_attr attr = {
        .attr_set = SYS_MOUNT_ATTR_NOSUID | SYS_MOUNT_ATTR_NODEV | SYS_MOUNT_ATTR_RDONLY};
    if (!c->ready_path[0] || !c->ready_ino)
        return -1;
    _cleanup_close_ int fd =
        sys_open_tree(AT_FDCWD, c->ready_path,
                      SYS_OPEN_TREE_CLONE | SYS_OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_dev != c->ready_dev || st.st_ino != c->ready_ino ||
        sys_mount_setattr(fd, "", AT_EMPTY_PATH, &attr) < 0)
        return -1;
    return TAKE_FD(fd);
}

/* ---- making one ---- */

/* The folders that lead to it are 0755 and root's: a name in the way that is not is left alone. */
static int ready_open_dir(void)
{
    struct stat st;
    if ((mkdir(REACH_ROOT_DIR, 0755) < 0 && errno != EEXIST) ||
        (mkdir(READY_DIR, 0755) < 0 && errno != EEXIST) || !ready_is_good(REACH_ROOT_DIR, &st) ||
        !ready_is_good(READY_DIR, &st))
        return -1;
    return open(READY_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
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
    const struct plan *p = r->c->plan;
    for (size_t i = 0; i < p->n_ops; i++) {
        const struct plan_op *op = &p->ops[i];
        if (ready_is_place(op))
            native_root_make_target(r->c, r->fd, op,
                                    op->kind != PLAN_OP_BIND || !(op->flags & PLAN_BIND_FILE));
        else if (op->kind != PLAN_OP_MASK && op->kind != PLAN_OP_SCRATCH)
            root_do(r, i);
        if (op->kind == PLAN_OP_FILE)
            ready_write_out(r, op);
    }
}

/* What was begun goes again: it holds nothing but what the plan names, and folders on the way. */
static void ready_clear(const struct plan *p, int dir, int fd, const char *name)
{
    char path[PATH_MAX];
    for (size_t i = p->n_ops; i-- > 0;) {
        if (!str_join(path, sizeof(path), p->ops[i].dst, "", ""))
            continue;
        if (unlinkat(fd, path, 0) < 0)
            unlinkat(fd, path, AT_REMOVEDIR);
        for (char *slash; (slash = strrchr(path, '/'));) {
            *slash = '\0';
            unlinkat(fd, path, AT_REMOVEDIR);
        }
    }
    unlinkat(dir, name, AT_REMOVEDIR);
}

/* What a maker that was killed left behind goes. False: there are enough. */
static bool ready_has_room(const struct plan *p, int dir)
{
    unsigned n = 0;
    struct stat st;
    int list = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = list < 0 ? NULL : fdopendir(list);
    if (list >= 0 && !d)
        close(list);
    for (struct dirent *e; d && (e = readdir(d));) {
        n += e->d_name[0] != '.';
        if (!str_starts(e->d_name, READY_NEW) ||
            fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            time(NULL) - st.st_mtime < READY_NEW_S)
            continue;
        _cleanup_close_ int fd =
            openat(dir, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0)
            ready_clear(p, dir, fd, e->d_name);
    }
    if (d)
        closedir(d);
    return d && n < READY_MOST;
}

/* Under a name of its own first: what has its own name is whole. */
static _Noreturn void ready_build(const struct plan *p, int dir, const char *name)
{
    struct native_status status = {0};
    struct native_child c = {.plan = p, .status = &status};
    char temp[32];
    struct root r = {.c = &c, .covers = {-1, -1}};
    prctl(PR_SET_NAME, "cordon-ready");
    umask(0); /* the plan's modes are meant */
    snprintf(temp, sizeof(temp), READY_NEW "%d", (int)getpid());
    if (!ready_has_room(p, dir) || mkdirat(dir, temp, 0755) < 0)
        _exit(1);
    r.fd = openat(dir, temp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (r.fd < 0)
        _exit(1);
    ready_fill(&r);
    if (syscall(SYS_renameat2, dir, temp, dir, name, RENAME_NOREPLACE) < 0)
        ready_clear(p, dir, r.fd, temp);
    _exit(0);
}

void native_ready_make(const struct plan *p)
{
    char name[17];
    uint64_t key;
    struct stat st;
    if (geteuid() != 0 || !native_ready_key(p, &key))
        return;
    ready_name(key, name);
    _cleanup_close_ int dir = ready_open_dir();
    if (dir < 0 || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return;
    if (detach_fork(&dir, 1) == 1)
        ready_build(p, 0, name);
}
