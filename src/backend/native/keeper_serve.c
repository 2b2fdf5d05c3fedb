/* Calls that Landlock does not watch over and that the filter of tier landlock therefore hands to
 * the keeper: changes of mode and times of files, and signals before Landlock's ABI 6. Runs in the
 * keeper, which has the guest's ids and no privileges.
 *
 * Arguments are copied out of the guest once and only the copies are used; the call itself is never
 * let through. A path is followed from a folder the guest may write to and never leaves it, so that
 * neither another thread nor a link changes what is meant, and nothing outside is ever touched (or
 * waited for). */
#include "backend/native/keeper_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/sys.h"
#include "base/util.h"

#define NR_FCHMODAT2 452
#define MODE_BITS 01777u /* setuid and setgid bits are not given */

struct call {
    struct keeper *k;
    int listener;
    uint64_t id;
    int nr;
    pid_t tid;
    uint64_t args[6];
};

void keeper_serve_open_roots(struct keeper *k)
{
    const struct plan *p = k->c->plan;
    for (size_t i = 0; i < p->n_fences && k->n_roots < KEEPER_ROOTS_MAX; i++) {
        struct keeper_root *r = &k->roots[k->n_roots];
        char link[40];
        if (!p->fences[i].write || str_starts(p->fences[i].path, "/dev/"))
            continue;
        r->fd = open(p->fences[i].path, O_PATH | O_CLOEXEC);
        if (r->fd < 0)
            continue;
        snprintf(link, sizeof(link), "/proc/self/fd/%d", r->fd);
        ssize_t n = readlink(link, r->path, sizeof(r->path));
        if (n <= 0 || n >= (ssize_t)sizeof(r->path)) {
            close(r->fd);
            continue;
        }
        r->path[n] = '\0';
        k->n_roots++;
    }
}

/* Memory of a living guest, up to the first page that is not there. By file: the filter of a
 * container may refuse process_vm_readv. */
static ssize_t serve_read(const struct call *c, uint64_t addr, void *to, size_t size)
{
    char path[40];
    snprintf(path, sizeof(path), "/proc/%d/mem", (int)c->tid);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 || addr > INT64_MAX ? -1 : pread(fd, to, size, (off_t)addr);
}

/* 0 or -errno */
static int serve_read_path(const struct call *c, uint64_t addr, char path[static PATH_MAX])
{
    ssize_t n = serve_read(c, addr, path, PATH_MAX);
    if (n <= 0)
        return -EFAULT;
    return memchr(path, '\0', (size_t)n) ? 0 : -ENAMETOOLONG;
}

/* Does the request still stand? Only then was it this guest's memory and these its files. */
static bool serve_is_valid(const struct call *c)
{
    uint64_t id = c->id;
    return ioctl(c->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0;
}

/* Where one of the guest's folders or descriptors is; "cwd" or "fd/N". */
static int serve_where(const struct call *c, const char *what, char path[static PATH_MAX])
{
    char link[64];
    snprintf(link, sizeof(link), "/proc/%d/%s", (int)c->tid, what);
    ssize_t n = readlink(link, path, PATH_MAX - 1);
    if (n < 0)
        return errno == ENOENT ? -EBADF : -EPERM;
    path[n] = '\0';
    return 0;
}

static const struct keeper_root *serve_root(const struct keeper *k, const char *path)
{
    for (size_t i = 0; i < k->n_roots; i++) {
        size_t len = strlen(k->roots[i].path);
        if (strncmp(path, k->roots[i].path, len) == 0 && (path[len] == '\0' || path[len] == '/'))
            return &k->roots[i];
    }
    return NULL;
}

/* An open descriptor of the guest, held by us without any right but to name it. */
static int serve_open_fd(const struct call *c, int fd)
{
    char what[32], path[PATH_MAX], link[64];
    snprintf(what, sizeof(what), "fd/%d", fd);
    int r = serve_where(c, what, path);
    if (r < 0)
        return r;
    if (!serve_root(c->k, path))
        return -EPERM;
    snprintf(link, sizeof(link), "/proc/%d/%s", (int)c->tid, what);
    int ours = open(link, O_PATH | O_CLOEXEC);
    if (ours < 0)
        return -EPERM;
    /* the number may have become another file meanwhile: look at what is held */
    char self[40];
    snprintf(self, sizeof(self), "/proc/self/fd/%d", ours);
    ssize_t n = readlink(self, path, sizeof(path) - 1);
    if (n > 0)
        path[n] = '\0';
    if (n <= 0 || !serve_root(c->k, path)) {
        close(ours);
        return -EPERM;
    }
    return ours;
}

/* "/proc/self/fd/N" is how libraries name an open file, and not ours to follow: "self" is who asks.
 * -1: it is not that. */
static int serve_fd_of(const char *path)
{
    static const char prefix[] = "/proc/self/fd/";
    int fd = 0;
    if (!str_starts(path, prefix) || !path[sizeof(prefix) - 1])
        return -1;
    for (const char *p = path + sizeof(prefix) - 1; *p; p++) {
        if (*p < '0' || *p > '9' || fd > INT_MAX / 10 - 1)
            return -1;
        fd = fd * 10 + (*p - '0');
    }
    return fd;
}

/* The file a path of the guest names, if it lies in a writable folder. */
static int serve_open_path(const struct call *c, int dirfd, const char *path, bool follow)
{
    char full[2 * PATH_MAX], what[32] = "cwd";
    int r, fd;
    if (!*path)
        return -ENOENT;
    if ((fd = serve_fd_of(path)) >= 0)
        return serve_open_fd(c, fd);
    size_t len = 0;
    if (path[0] != '/') {
        if (dirfd != AT_FDCWD)
            snprintf(what, sizeof(what), "fd/%d", dirfd);
        if ((r = serve_where(c, what, full)) < 0)
            return r;
        len = strlen(full);
        full[len++] = '/';
    }
    memcpy(full + len, path, strlen(path) + 1);
    const struct keeper_root *root = serve_root(c->k, full);
    if (!root)
        return -EPERM;
    const char *rest = full + strlen(root->path);
    while (*rest == '/')
        rest++;
    struct open_how how = {.flags = O_PATH | O_CLOEXEC | (follow ? 0u : O_NOFOLLOW),
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    /* the grant itself, which may be a file */
    fd = *rest ? sys_openat2(root->fd, rest, &how) : fcntl(root->fd, F_DUPFD_CLOEXEC, 3);
    if (fd < 0)
        return errno == EXDEV ? -EPERM : -errno;
    return fd;
}

static int serve_chmod(const struct call *c, int fd, uint64_t mode)
{
    char link[40];
    if (mode & 06000)
        return -EPERM;
    if (!serve_is_valid(c))
        return -EPERM;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    return fchmodat(AT_FDCWD, link, (mode_t)(mode & MODE_BITS), 0) < 0 ? -errno : 0;
}

/* times: NULL for now */
static int serve_utimens(const struct call *c, int fd, const struct timespec *times)
{
    char link[40];
    if (!serve_is_valid(c))
        return -EPERM;
    if (utimensat(fd, "", times, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOENT)
        return -errno;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    return utimensat(AT_FDCWD, link, times, 0) < 0 ? -errno : 0;
}

/* The times argument of the four calls, as utimensat wants it. */
static int serve_read_times(const struct call *c, uint64_t addr, struct timespec times[2])
{
    int64_t raw[4];
    size_t size = c->nr == SYS_utime ? 16 : 32;
    if (serve_read(c, addr, raw, size) != (ssize_t)size)
        return -EFAULT;
    for (int i = 0; i < 2; i++) {
        times[i].tv_sec = (time_t)(c->nr == SYS_utime ? raw[i] : raw[2 * i]);
        times[i].tv_nsec = c->nr == SYS_utime       ? 0
                           : c->nr == SYS_utimensat ? (long)raw[2 * i + 1]
                                                    : (long)raw[2 * i + 1] * 1000;
        if (c->nr != SYS_utimensat && c->nr != SYS_utime &&
            (raw[2 * i + 1] < 0 || raw[2 * i + 1] > 999999))
            return -EINVAL;
    }
    return 0;
}

/* Modes and times: which file, then what. */
static int serve_file(const struct call *c)
{
    char path[PATH_MAX];
    const bool at = c->nr == SYS_fchmodat || c->nr == NR_FCHMODAT2 || c->nr == SYS_utimensat ||
                    c->nr == SYS_futimesat;
    const bool is_mode =
        c->nr == SYS_chmod || c->nr == SYS_fchmod || c->nr == SYS_fchmodat || c->nr == NR_FCHMODAT2;
    int dirfd = at ? (int)c->args[0] : AT_FDCWD, r = 0, fd;
    uint64_t flags = c->nr == NR_FCHMODAT2 || c->nr == SYS_utimensat ? c->args[3] : 0;
    uint64_t value = at ? c->args[2] : c->args[1];
    uint64_t name = at ? c->args[1] : c->args[0];
    struct timespec times[2];

    if (flags & ~(uint64_t)(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH))
        return -EINVAL;
    if (!is_mode && value && (r = serve_read_times(c, value, times)) < 0)
        return r;
    if (c->nr == SYS_fchmod) {
        fd = serve_open_fd(c, (int)c->args[0]);
    } else if (!name && !is_mode && at) {
        fd = serve_open_fd(c, dirfd);
    } else {
        if ((r = serve_read_path(c, name, path)) < 0)
            return r;
        fd = !*path && (flags & AT_EMPTY_PATH)
                 ? serve_open_fd(c, dirfd)
                 : serve_open_path(c, dirfd, path, !(flags & AT_SYMLINK_NOFOLLOW));
    }
    if (fd < 0)
        return fd;
    r = is_mode ? serve_chmod(c, fd, value) : serve_utimens(c, fd, value ? times : NULL);
    close(fd);
    return r;
}

/* Everybody in the guest's process group is the guest's, and nobody else is: the filter lets none
 * of them leave it. */
static int serve_kill(const struct call *c)
{
    pid_t target = (pid_t)(int)c->args[0], main_pid = c->k->main_pid;
    int sig = (int)c->args[c->nr == SYS_tgkill ? 2 : 1];
    if (sig < 0 || sig > 64)
        return -EINVAL;
    if (c->nr == SYS_kill && (target == 0 || target == -1 || target == -main_pid))
        return kill(-main_pid, sig) < 0 ? -errno : 0;
    pid_t who = c->nr == SYS_tgkill ? (pid_t)(int)c->args[1] : target;
    if (who <= 0)
        return c->nr == SYS_kill ? -EPERM : -EINVAL;
    pid_t group = getpgid(who);
    if (group != main_pid)
        return group < 0 ? -ESRCH : -EPERM;
    long r = c->nr == SYS_tgkill  ? syscall(SYS_tgkill, (int)c->args[0], who, sig)
             : c->nr == SYS_tkill ? syscall(SYS_tkill, who, sig)
                                  : kill(who, sig);
    return r < 0 ? -errno : 0;
}

int keeper_serve(struct keeper *k, int listener)
{
    struct seccomp_notif req;
    memset(&req, 0, sizeof(req));
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &req) < 0)
        return native_is_notify_broken(errno) ? -1 : 0; /* else: the caller died meanwhile */
    struct call c = {
        .k = k, .listener = listener, .id = req.id, .nr = req.data.nr, .tid = (pid_t)req.pid};
    for (int i = 0; i < 6; i++)
        c.args[i] = req.data.args[i];
    int r = -EPERM;
    switch (c.nr) {
    case SYS_chmod:
    case SYS_fchmod:
    case SYS_fchmodat:
    case NR_FCHMODAT2:
    case SYS_utime:
    case SYS_utimes:
    case SYS_futimesat:
    case SYS_utimensat: r = serve_file(&c); break;
    case SYS_kill:
    case SYS_tkill:
    case SYS_tgkill:
        if (!k->scoped && serve_is_valid(&c))
            r = serve_kill(&c);
        break;
    case SYS_mmap:
    case SYS_mremap:
        atomic_fetch_add(&k->c->status->memory_refused, 1);
        r = -ENOMEM;
        break;
    default:
        if (native_is_plain_fork(k->c->plan, (unsigned)c.nr, c.args[0])) {
            atomic_fetch_add(&k->c->status->processes_refused, 1);
            r = -EAGAIN;
        }
        break;
    }
    unsigned nr = (unsigned)c.nr;
    if (r == -EPERM || r == -ENOMEM || r == -EAGAIN)
        native_pace_refusals(); /* not what is served: an archive sets a mode for each of its files
                                 */
    if (r == -EPERM)
        atomic_fetch_add(&k->c->status->denials[nr < NATIVE_CALLS ? nr : NATIVE_CALLS - 1], 1);
    struct seccomp_notif_resp resp = {.id = c.id, .error = r};
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &resp);
    return 0;
}
