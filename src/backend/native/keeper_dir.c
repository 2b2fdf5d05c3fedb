/* Tier landlock: the guest's one folder on the host, made before it starts and removed after it
 * ended, and the removal of what keepers left behind. Runs in the supervisor.
 *
 * The maker holds a lock on the folder for as long as it lives; a folder of that name which can be
 * locked belongs to nobody any more. That works across pid namespaces and needs no clock: a folder
 * gets its name when it is locked (only what never got so far is judged by its maker or its age).
 */
#include "backend/native/keeper_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/detach.h"
#include "base/err.h"
#include "base/helpers.h"
#include "base/nsnum.h"
#include "base/opendir.h"
#include "base/sys.h"
#include "base/util.h"

#define NEW_SUFFIX ".new" /* made, not locked yet */
#define NEW_AGE_S 60
#define STALE_MAX 16                    /* leftovers one start clears away */
#define REMOVE_BUDGET_NS 10000000000ull /* 65,536 files on a busy disk take seconds */
#define MOMENT_NS 20000000ull
#define DETACHED_BUDGET_NS 300000000000ull
#define STALE_BUDGET_NS 1000000000ull /* of one start, for all of them */
#define SWEEP_BUDGET_NS 1000000000ull
#define FEW_IDS_FIRST 61184u /* systemd's ids for transient services */
#define FEW_IDS_LAST 65519u

/* Guests close folders to themselves; we may have to open them again to empty them. */
static int dir_open_at(int dirfd, const char *name)
{
    int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NOATIME;
    int fd = openat(dirfd, name, flags);
    if (fd < 0 && errno == EPERM)
        fd = openat(dirfd, name, flags & ~O_NOATIME);
    if (fd >= 0 || errno != EACCES)
        return fd;
    return opendir_unlock(dirfd, name) < 0 ? -1 : openat(dirfd, name, flags & ~O_NOATIME);
}

/* The kernel's own list of a folder: when memory is out the folder must still go. */
struct dir_list {
    int fd;
    size_t at, len;
    _Alignas(8) char bytes[8192];
};

struct dir_entry {
    uint64_t ino;
    int64_t off;
    uint16_t size;
    uint8_t type;
    char d_name[];
};

static const struct dir_entry *dir_next(struct dir_list *list)
{
    if (list->at >= list->len) {
        long n = syscall(SYS_getdents64, list->fd, list->bytes, sizeof(list->bytes));
        if (n <= 0)
            return NULL;
        list->at = 0;
        list->len = (size_t)n;
    }
    const struct dir_entry *e = (const void *)(list->bytes + list->at);
    list->at += e->size;
    return e;
}

/* Removes entries of an open folder until it meets a folder that is not empty (1: *ret_child is
 * it), or until nothing is left (0). -1: something cannot be removed, or the time is over. */
static int dir_clear(int fd, int top, unsigned long long *n, uint64_t deadline_ns, int *ret_child)
{
    struct dir_list list;
    list.at = list.len = 0;
    list.fd = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (list.fd < 0)
        return -1;
    int r = 0;
    unsigned seen = 0;
    const struct dir_entry *e;
    while (r == 0 && (e = dir_next(&list))) {
        if (str_eq(e->d_name, ".") || str_eq(e->d_name, ".."))
            continue;
        if (++seen % 256 == 0 && clock_ns() >= deadline_ns) {
            r = -1;
            break;
        }
        if (unlinkat(fd, e->d_name, 0) == 0 || errno == ENOENT)
            continue;
        if (errno == EACCES && fchmod(fd, 0700) == 0 && unlinkat(fd, e->d_name, 0) == 0)
            continue;
        if (unlinkat(fd, e->d_name, AT_REMOVEDIR) == 0)
            continue;
        if (errno != ENOTEMPTY && errno != EEXIST) {
            r = -1;
            break;
        }
        if (fd == top) {
            *ret_child = dir_open_at(fd, e->d_name);
            r = *ret_child < 0 ? -1 : 1;
            continue;
        }
        char name[40];
        do
            snprintf(name, sizeof(name), ".cordon-%llu", (*n)++);
        while ((r = (int)syscall(SYS_renameat2, fd, e->d_name, top, name,
                                 1 /* RENAME_NOREPLACE */)) < 0 &&
               errno == EEXIST);
        /* a folder closed to its owner cannot be moved: its ".." is part of it */
        if (r < 0 && errno == EACCES && opendir_unlock(fd, e->d_name) == 0)
            r = (int)syscall(SYS_renameat2, fd, e->d_name, top, name, 1 /* RENAME_NOREPLACE */);
    }
    close(list.fd);
    return r;
}

/* Never up by "..": whoever survived a killed keeper may move the folder we are in, and the way up
 * would then lead out of the one we were given. A folder that is not empty is moved to the top and
 * emptied there: two descriptors whatever the depth, no recursion, never through a link, linear. */
static int dir_empty(int top, uint64_t deadline_ns)
{
    unsigned long long n = 0;
    while (clock_ns() < deadline_ns) {
        int child = -1, r = dir_clear(top, top, &n, deadline_ns, &child);
        if (r <= 0)
            return r;
        do {
            int below = -1;
            r = dir_clear(child, top, &n, deadline_ns, &below);
            util_close(&below);
        } while (r == 1 && clock_ns() < deadline_ns);
        util_close(&child);
        if (r < 0)
            return -1;
    }
    return -1;
}

/* What takes longer than a moment is done beside a loop that others use. The lock goes along: it
 * stays the folder's owner until it is gone. */
void native_keeper_dir_remove(const char *path, bool is_shared, int *fd)
{
    if (*fd < 0)
        return;
    fchmod(*fd, 0700);
    uint64_t now = clock_ns();
    int r = dir_empty(*fd, now + (is_shared ? MOMENT_NS : REMOVE_BUDGET_NS));
    if (r < 0 && is_shared && detach_fork(fd, 1) == 1) {
        dir_empty(0, clock_ns() + DETACHED_BUDGET_NS);
        _exit(rmdir(path) < 0 ? 1 : 0);
    }
    rmdir(path); /* not empty: another's business now, or the next start's */
    util_close(fd);
}

/* Ours: the caller's own, or as root those of guests. */
static bool dir_is_ours(const struct stat *st)
{
    uid_t me = geteuid();
    return st->st_uid == me || (me == 0 && st->st_uid >= PLAN_ID_BASE) ||
           (me == 0 && st->st_uid >= FEW_IDS_FIRST && st->st_uid <= FEW_IDS_LAST);
}

static uint64_t dir_pid_namespace(void)
{
    return namespace_number("/proc/self/ns/pid");
}

/* Never locked: its maker is dead if it had a number in our own pid namespace that nobody has now,
 * or if it is old. The name is cordon-guest-PID-NOISE.NAMESPACE.new. */
static bool dir_is_abandoned(const char *name, const struct stat *st)
{
    const char *dot = strchr(name, '.');
    pid_t maker = (pid_t)strtol(name + strlen(PLAN_PRIVATE_PREFIX), NULL, 10);
    if (time(NULL) - st->st_ctime >= NEW_AGE_S)
        return true;
    return dot && maker > 0 && strtoull(dot + 1, NULL, 10) == dir_pid_namespace() &&
           kill(maker, 0) < 0 && errno == ESRCH;
}

static void dir_remove_stale(const char *base)
{
    DIR *dir = opendir(base);
    struct dirent *e;
    int found = 0;
    uint64_t deadline_ns = clock_ns() + STALE_BUDGET_NS;
    while (dir && found < STALE_MAX && (e = readdir(dir))) {
        struct stat st;
        if (!str_starts(e->d_name, PLAN_PRIVATE_PREFIX))
            continue;
        if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode) ||
            !dir_is_ours(&st) ||
            (strstr(e->d_name, NEW_SUFFIX) && !dir_is_abandoned(e->d_name, &st)))
            continue;
        _cleanup_close_ int fd = dir_open_at(dirfd(dir), e->d_name);
        if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
            continue;
        found++;
        if (dir_empty(fd, deadline_ns) == 0)
            unlinkat(dirfd(dir), e->d_name, AT_REMOVEDIR);
    }
    if (dir)
        closedir(dir);
}

static int dir_give(int fd, const char *path, unsigned *id, struct cordon_err *err)
{
    if (fchown(fd, *id, *id) == 0)
        return 0;
    /* a user namespace with few ids: one of those services get for a moment */
    unsigned small = FEW_IDS_FIRST + *id % (FEW_IDS_LAST - FEW_IDS_FIRST + 1);
    if (errno == EINVAL && fchown(fd, small, small) == 0) {
        *id = small;
        return 0;
    }
    err_set(err, CORDON_ERR_HOST, "ids", errno, "%s cannot be given to an unprivileged uid", path);
    return err_hint(err,
                    "start Cordon as an ordinary user, or as root with CAP_CHOWN, CAP_SETUID and "
                    "CAP_SETGID");
}

int native_keeper_dir_make(const struct plan *p, unsigned *id, int *ret_fd, struct cordon_err *err)
{
    char base[512], made[560];
    snprintf(base, sizeof(base), "%s", p->private_dir);
    *strrchr(base, '/') = '\0';
    dir_remove_stale(base);

    snprintf(made, sizeof(made), "%s.%llu" NEW_SUFFIX, p->private_dir,
             (unsigned long long)dir_pid_namespace());
    if (mkdir(made, 0700) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "start", errno, "%s", made);
    _cleanup_close_ int fd = open(made, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int r = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0
                ? 0
                : err_set(err, CORDON_ERR_INTERNAL, "start", errno, "%s", made);
    if (r == 0 && p->own_host_ids)
        r = dir_give(fd, p->private_dir, id, err);
    if (r == 0 && rename(made, p->private_dir) < 0)
        r = err_set(err, CORDON_ERR_INTERNAL, "start", errno, "%s", p->private_dir);
    if (r < 0) {
        rmdir(made);
        return -1;
    }
    /* What a dead keeper leaves comes to us, not to the host's init. */
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* Filters of a process, as /proc shows them; 0 when it does not. */
static unsigned sweep_filters(const char *pid)
{
    char path[64], text[4096];
    snprintf(path, sizeof(path), "/proc/%s/status", pid);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    unsigned filters = 0;
    if (n <= 0)
        return 0;
    text[n] = '\0';
    const char *line = strstr(text, "\nSeccomp_filters:");
    if (line)
        sscanf(line, "\nSeccomp_filters: %u", &filters);
    return filters;
}

/* One pass over our children: those with a filter more than ours are guests without a keeper (other
 * keepers have none of their own, and brokers are known). How many there were. */
static unsigned sweep_pass(void)
{
    char path[64], list[65536];
    unsigned n = 0, own = sweep_filters("self");
    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd >= 0 ? read(fd, list, sizeof(list) - 1) : -1;
    list[len > 0 ? len : 0] = '\0';
    for (char *save, *word = strtok_r(list, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        pid_t pid = (pid_t)atoi(word);
        if (pid <= 1 || helpers_has(pid) || sweep_filters(word) <= own)
            continue;
        n++;
        kill(pid, SIGKILL); /* a child nobody else waits for keeps its number */
        waitpid(pid, NULL, WNOHANG | __WALL);
    }
    return n;
}

void native_keeper_sweep(void)
{
    uint64_t end = clock_ns() + SWEEP_BUDGET_NS;
    /* orphans arrive when their parent is gone: two empty looks in a row */
    for (int quiet = 0; quiet < 2 && clock_ns() < end;) {
        quiet = sweep_pass() == 0 ? quiet + 1 : 0;
        struct timespec ms = {.tv_nsec = 1000000};
        nanosleep(&ms, NULL);
    }
}
