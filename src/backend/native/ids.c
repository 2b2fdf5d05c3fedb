/* Who the guest is on the host: id maps of its user namespace, and identity-mapped mounts for what
 * root grants. Runs in the supervisor, but for native_map_self(). */
#include "backend/native/native_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/sys.h"
#include "base/util.h"

static int ids_write(int dirfd, const char *name, const char *text)
{
    _cleanup_close_ int fd = openat(dirfd, name, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        return -1;
    return 0;
}

/* Maps one uid and one gid of a process (0: this one). Without privilege the kernel wants setgroups
 * refused first. */
static int ids_map(pid_t pid, unsigned in_uid, unsigned out_uid, unsigned in_gid, unsigned out_gid,
                   bool refuse_setgroups)
{
    char dir[32] = "/proc/self", path[48], map[48];
    if (pid)
        snprintf(dir, sizeof(dir), "/proc/%d", (int)pid);
    str_join(path, sizeof(path), dir, "/", "setgroups");
    if (refuse_setgroups && ids_write(AT_FDCWD, path, "deny") < 0)
        return -1;
    str_join(path, sizeof(path), dir, "/", "uid_map");
    snprintf(map, sizeof(map), "%u %u 1\n", in_uid, out_uid);
    if (ids_write(AT_FDCWD, path, map) < 0)
        return -1;
    str_join(path, sizeof(path), dir, "/", "gid_map");
    snprintf(map, sizeof(map), "%u %u 1\n", in_gid, out_gid);
    return ids_write(AT_FDCWD, path, map);
}

/* Guests of root get an id of their own: 512 per process id of a supervisor, so that no two living
 * guests share an id and with it the kernel's per-user quotas. One that was given back rests while
 * the others have their turn. Should all be taken, the oldest is shared. */
static bool ids_taken[NATIVE_IDS];

unsigned native_id_first(void)
{
    return PLAN_ID_BASE + (unsigned)getpid() * NATIVE_IDS;
}

unsigned native_id_take(void)
{
    static unsigned next;
    unsigned i = 0;
    while (i < NATIVE_IDS && ids_taken[(next + i) % NATIVE_IDS])
        i++;
    unsigned at = (next + i) % NATIVE_IDS; /* none is free: the oldest */
    next = (at + 1) % NATIVE_IDS;
    ids_taken[at] = true;
    return native_id_first() + at;
}

void native_id_give(unsigned id)
{
    unsigned at = id - native_id_first();
    if (id && at < NATIVE_IDS)
        ids_taken[at] = false;
}

int native_write_maps(pid_t pid, unsigned id, bool *ret_refused, struct cordon_err *err)
{
    if (ids_map(pid, PLAN_GUEST_UID, id, PLAN_GUEST_GID, id, false) == 0)
        return 0;
    *ret_refused = errno == EPERM || errno == EACCES;
    err_set(err, CORDON_ERR_HOST, "ids", errno, "id map of the guest's user namespace");
    return err_hint(err, "`cordon doctor` says what this host refuses and the smallest fix");
}

/* Without privilege the one map the kernel allows is to the caller's own ids, and the child may
 * write it itself: nobody has to wait for anybody. */
int native_map_self(const struct plan *p)
{
    return ids_map(0, PLAN_GUEST_UID, p->host_uid, PLAN_GUEST_GID, p->host_gid, true);
}

int native_map_own(uid_t uid, gid_t gid)
{
    return ids_map(0, uid, uid, gid, gid, true);
}

/* Our ids become the guest's. A launcher's root that makes files for the guest and then gives them
 * away needs to be somebody as well: it stays who it is. */
static int ids_map_caller(pid_t pid, unsigned id, unsigned helper)
{
    char path[32], map[96];
    if (!helper)
        return ids_map(pid, geteuid(), id, getegid(), id, false);
    snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    _cleanup_close_ int dir = sys_open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    snprintf(map, sizeof(map), "%u %u 1\n%u %u 1\n", (unsigned)geteuid(), id, helper, helper);
    if (dir < 0 || ids_write(dir, "uid_map", map) < 0)
        return -1;
    snprintf(map, sizeof(map), "%u %u 1\n%u %u 1\n", (unsigned)getegid(), id, helper, helper);
    return ids_write(dir, "gid_map", map);
}

/* The same, and everybody else stays who they are; whoever has the guest's number is nobody. */
static int ids_map_all(int dir, const char *name, unsigned caller, unsigned id)
{
    char map[160];
    size_t n = (size_t)snprintf(map, sizeof(map), "%u %u 1\n", caller, id);
    const struct {
        unsigned first, end;
    } rest[] = {{0, caller}, {caller + 1, id}, {id + 1, (unsigned)-1}};
    for (size_t i = 0; i < ARRAY_SIZE(rest); i++)
        if (rest[i].first < rest[i].end)
            n += (size_t)snprintf(map + n, sizeof(map) - n, "%u %u %u\n", rest[i].first,
                                  rest[i].first, rest[i].end - rest[i].first);
    return ids_write(dir, name, map);
}

static int ids_map_everyone(pid_t pid, unsigned id)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    _cleanup_close_ int dir = sys_open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return dir < 0 || ids_map_all(dir, "uid_map", geteuid(), id) < 0
               ? -1
               : ids_map_all(dir, "gid_map", getegid(), id);
}

/* A user namespace whose only use is its map: the caller's ids become the guest's. It lives as long
 * as the descriptor; the process that made it is gone when this returns. */
static int ids_map_namespace(unsigned id, unsigned helper, bool everyone)
{
    _cleanup_close_ int pidfd = -1;
    struct clone_args args = {.flags = CLONE_NEWUSER | CLONE_PIDFD,
                              .pidfd = (uint64_t)(uintptr_t)&pidfd,
                              .exit_signal = SIGCHLD};
    pid_t parent = getpid(), pid = sys_clone3(&args);
    if (pid < 0 && errno == ENOSYS)
        pid = (pid_t)syscall(SYS_clone, CLONE_NEWUSER | CLONE_PIDFD | SIGCHLD, 0, &pidfd, 0, 0);
    if (pid < 0)
        return -1;
    if (pid == 0) {
        /* It has every descriptor of ours: neither may it hold them (a caller waits for the end of
         * its pipe), nor outlive a supervisor that is killed just now. */
        sys_close_range(0, ~0U);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(0);
        for (;;)
            pause();
    }
    int fd = -1, saved = 0;
    if ((everyone ? ids_map_everyone(pid, id) : ids_map_caller(pid, id, helper)) == 0) {
        char path[48];
        snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    saved = errno;
    native_kill_child(pid, pidfd);
    while (waitpid(pid, NULL, __WALL) < 0 && errno == EINTR)
        ;
    errno = saved;
    return fd;
}

int native_map_namespace(unsigned id)
{
    return ids_map_namespace(id, 0, false);
}

/* ---- Where a file system cannot be mapped ---- */

/* The guest would meet files of somebody who is nobody to it, and could not change them:
 * - an overlay would say EOVERFLOW: a copy takes its place (stage "overlay");
 * - a copy is ours, and becomes the guest's;
 * - what is granted for writing and can be written to by the caller alone is an error, as the guest
 *   would not have what was asked for;
 * - the rest is shown as it is: less access, never more. */
static int ids_unmapped(const struct plan_op *op, unsigned id, struct cordon_err *err)
{
    struct stat st;
    int e = errno;
    if (!(op->flags & PLAN_BIND_GRANT))
        return 0;
    if (str_eq(op->dst, PLAN_LOWER) || str_eq(op->dst, PLAN_LAYER))
        return err_set(err, CORDON_ERR_HOST, "overlay", e, "mapped mount of %s", op->src);
    if (op->flags & PLAN_BIND_COPY) {
        if (native_give_tree(op->src, id) == 0)
            return 0;
        return err_set(err, CORDON_ERR_INTERNAL, "ids", errno, "owner of %s", op->src);
    }
    if (!(op->flags & PLAN_BIND_RW) || lstat(op->src, &st) < 0 || st.st_uid != geteuid() ||
        !(S_ISDIR(st.st_mode) || S_ISREG(st.st_mode)) || (st.st_mode & S_IWOTH))
        return 0;
    err_set(err, CORDON_ERR_HOST, "bind", e,
            "%s is to be writable, and its file system has no identity-mapped mounts", op->src);
    return err_hint(err, "use DIR:overlay, a folder on another file system (ext4, xfs, btrfs), or "
                         "start Cordon as an ordinary user who owns it");
}

/* One grant or part of an image as a detached mount. -1 and errno: not by this way. */
static int ids_open_tree(const struct plan_op *op, int map, bool *ret_mapped)
{
    _cleanup_close_ int tree = native_open_source(op);
    if (tree < 0)
        return -1;
    /* This copy was made in the host's mount namespace and is still a peer of the mount it was
     * made from: what is mounted on it inside the guest would appear on the host. One that is not
     * private is never handed on. */
    struct sys_mount_attr alone = {.propagation = MS_PRIVATE};
    if (sys_mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &alone) < 0)
        return -1;
    /* with what is mounted below, or where that cannot be mapped alone */
    struct sys_mount_attr attr = {.attr_set = SYS_MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)map};
    *ret_mapped = map < 0 ||
                  sys_mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr) == 0 ||
                  sys_mount_setattr(tree, "", AT_EMPTY_PATH, &attr) == 0;
    return TAKE_FD(tree);
}

/* Opens what root grants as detached mounts on which the caller's files belong to the guest. They
 * are made here because the guest's pid 1 may be unable to reach the source by its path. */
int native_idmap_open(const struct plan *p, unsigned id, unsigned helper, int *mount_fds,
                      struct cordon_err *err)
{
    _cleanup_close_ int userns = -1, everyone = -1;
    bool by_path = false; /* no new mount API: the child binds by path, and maps nothing */
    for (size_t i = 0; i < p->n_ops; i++) {
        const struct plan_op *op = &p->ops[i];
        if (op->kind != PLAN_OP_BIND ||
            !(op->flags & (PLAN_BIND_GRANT | PLAN_BIND_HELD | PLAN_BIND_KERNELS)))
            continue;
        bool mapped = op->flags & PLAN_BIND_GRANT, is_mapped = false;
        if (mapped && userns < 0 && (userns = ids_map_namespace(id, helper, false)) < 0)
            return err_set(err, CORDON_ERR_INTERNAL, "ids", errno,
                           "user namespace for mapped mounts");
        /* root of a namespace has no such map to give: then without */
        if (op->flags & PLAN_BIND_OWNERS && everyone < 0)
            everyone = ids_map_namespace(id, helper, true);
        int map = op->flags & PLAN_BIND_OWNERS && everyone >= 0 ? everyone : userns;
        int tree = by_path ? -1 : ids_open_tree(op, mapped ? map : -1, &is_mapped);
        if (tree < 0 && !by_path && errno == ENOENT && (op->flags & PLAN_BIND_OPTIONAL))
            continue;
        if (tree < 0 && !by_path && errno != ENOSYS && errno != EPERM)
            return err_set(err, CORDON_ERR_INTERNAL, "bind", errno, "%s", op->src);
        by_path = tree < 0;
        mount_fds[i] = tree;
        if (!is_mapped && ids_unmapped(op, id, err) < 0)
            return -1;
    }
    return 0;
}
