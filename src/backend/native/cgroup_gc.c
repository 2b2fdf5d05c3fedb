/* Names of groups, who owns them, and the end of those whose owner is gone. Runs in the supervisor
 * and in `doctor`. */
#include "backend/native/cgroup_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/nsnum.h"
#include "base/sys.h"
#include "base/util.h"

#define NAME_PREFIX "cordon-"
#define NAME_NUMBER 'p' /* before a mark that is a process's number */
#define PIDFS_MAGIC 0x50494446
#define KILL_WAIT_NS 100000000u
#define REMOVE_WAIT_NS 100000000u
/* An empty group of another pid namespace: whether its owner lives cannot be seen from here, but no
 * Cordon keeps a group without a process in it for that long. */
#define FOREIGN_AGE_S 3600

static void sleep_ns(uint64_t ns)
{
    struct timespec ts = {.tv_sec = (time_t)(ns / 1000000000u),
                          .tv_nsec = (long)(ns % 1000000000u)};
    nanosleep(&ts, NULL);
}

static int read_stat(pid_t pid, char *ret_state, uint64_t *ret_start)
{
    char path[32], text[1024];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    ssize_t n = cgroup_file_read(AT_FDCWD, path, text, sizeof(text));
    if (n < 0)
        return (int)n;
    return cgroup_parse_stat(text, ret_state, ret_start);
}

/* 0, -errno, or -EOPNOTSUPP on kernels whose processes have no number (a descriptor of theirs is
 * like any other then). */
static int process_number(int pidfd, uint64_t *ret_number)
{
    struct statfs fs;
    struct stat st;
    if (fstatfs(pidfd, &fs) < 0 || fstat(pidfd, &st) < 0)
        return -errno;
    if (fs.f_type != PIDFS_MAGIC)
        return -EOPNOTSUPP;
    *ret_number = st.st_ino;
    return 0;
}

static int owner_mark(struct cgroup_owner *owner)
{
    char state;
    _cleanup_close_ int fd = sys_pidfd_open(owner->pid);
    owner->is_begin = fd < 0 || process_number(fd, &owner->mark) < 0;
    return owner->is_begin ? read_stat(owner->pid, &state, &owner->mark) : 0;
}

int cgroup_owner_self(struct cgroup_owner *ret_owner)
{
    static struct cgroup_owner known; /* asked for three times in every start */
    struct cgroup_owner owner = {.pid = getpid()};
    if (known.pid == owner.pid) {
        *ret_owner = known;
        return 0;
    }
    int r = owner_mark(&owner);
    if (r < 0)
        return r;
    owner.pid_ns = namespace_number("/proc/self/ns/pid");
    if (owner.pid_ns == 0)
        return -ENOENT;
    *ret_owner = known = owner;
    return 0;
}

void cgroup_name_format(const struct cgroup_owner *owner, char name[static CGROUP_NAME_MAX])
{
    static const char number[] = {NAME_NUMBER, '\0'};
    snprintf(name, CGROUP_NAME_MAX, NAME_PREFIX "%d-%s%llu-%llu-%u", (int)owner->pid,
             owner->is_begin ? "" : number, (unsigned long long)owner->mark,
             (unsigned long long)owner->pid_ns, owner->n);
}

/* One number of a name; strict, since what parses may be killed and removed. */
static bool take_number(const char **p, char end, uint64_t max, uint64_t *ret_value)
{
    const char *s = *p;
    uint64_t value = 0;
    if (*s < '0' || *s > '9' || (*s == '0' && s[1] != end))
        return false;
    for (; *s >= '0' && *s <= '9'; s++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*s - '0'), &value) || value > max)
            return false;
    }
    if (*s != end)
        return false;
    *p = end ? s + 1 : s;
    *ret_value = value;
    return true;
}

int cgroup_name_parse(const char *name, struct cgroup_owner *ret_owner)
{
    uint64_t pid, mark, pid_ns, n;
    if (!str_starts(name, NAME_PREFIX))
        return -EINVAL;
    name += sizeof(NAME_PREFIX) - 1;
    if (!take_number(&name, '-', INT32_MAX, &pid) || pid == 0)
        return -EINVAL;
    bool is_number = *name == NAME_NUMBER;
    name += is_number;
    if (!take_number(&name, '-', UINT64_MAX, &mark) ||
        !take_number(&name, '-', UINT64_MAX, &pid_ns) || !take_number(&name, '\0', UINT32_MAX, &n))
        return -EINVAL;
    *ret_owner = (struct cgroup_owner){.pid = (pid_t)pid,
                                       .mark = mark,
                                       .is_begin = !is_number,
                                       .pid_ns = pid_ns,
                                       .n = (unsigned)n};
    return 0;
}

const char *cgroup_slot_parent(const struct host_cgroups *where, enum cgroup_slot slot)
{
    if (slot == SLOT_V2)
        return where->v2;
    if (where->kind != HOST_CGROUP_V1)
        return "";
    switch (slot) {
    case SLOT_MEMORY: return where->memory;
    case SLOT_PIDS: return where->pids;
    case SLOT_CPUACCT: /* v2 keeps CPU time itself */
        return where->v2[0] || where->unread ? "" : where->cpuacct;
    case SLOT_CPU: return where->cpu;
    case SLOT_V2:
    case SLOT_COUNT: break;
    }
    return "";
}

/* Where groups of that kind can have been left: also those of a run that had no v2 group. */
const char *cgroup_slot_left(const struct host_cgroups *where, enum cgroup_slot slot)
{
    return slot == SLOT_CPUACCT && where->kind == HOST_CGROUP_V1 ? where->cpuacct
                                                                 : cgroup_slot_parent(where, slot);
}

int cgroup_rmdir(const char *path, uint64_t deadline_ns)
{
    uint64_t pause_ns = 100000;
    for (;;) {
        if (rmdir(path) == 0 || errno == ENOENT)
            return 0;
        if (errno != EBUSY && errno != EINTR)
            return -errno;
        if (clock_ns() >= deadline_ns)
            return -EBUSY;
        sleep_ns(pause_ns);
        pause_ns = MIN(pause_ns * 2, 5000000u);
    }
}

/* The group of a pool has others in it, which are empty a moment after a kill. */
int cgroup_rmdir_pool(const char *path, uint64_t deadline_ns)
{
    for (;;) {
        struct cgroup_owner owner;
        const struct dirent *entry;
        DIR *list = opendir(path);
        while (list && (entry = readdir(list)) != NULL)
            if (entry->d_type == DT_DIR && cgroup_name_parse(entry->d_name, &owner) == 0)
                unlinkat(dirfd(list), entry->d_name, AT_REMOVEDIR);
        if (list)
            closedir(list);
        int r = cgroup_rmdir(path, 0);
        if (r != -EBUSY || clock_ns() >= deadline_ns)
            return r;
        sleep_ns(1000000);
    }
}

/* A pid read from the group may have ended and been given to a stranger since: hold it by
 * descriptor, then look whether it is in the group still. */
static void kill_member(pid_t pid, const char *name)
{
    _cleanup_close_ int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0)
        return;
    char path[32], text[4096];
    snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
    if (cgroup_file_read(AT_FDCWD, path, text, sizeof(text)) <= 0 || !strstr(text, name))
        return;
    syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
}

/* One pass over the list; how many were there. */
static int kill_listed(int dir_fd, const char *name)
{
    char text[4096];
    _cleanup_close_ int fd = openat(dir_fd, "cgroup.procs", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return 0;
    int seen = 0;
    size_t kept = 0;
    for (;;) {
        ssize_t n = read(fd, text + kept, sizeof(text) - kept - 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return seen;
        text[kept + (size_t)n] = '\0';
        char *line = text, *end;
        while ((end = strchr(line, '\n')) != NULL) {
            *end = '\0';
            uint64_t pid;
            seen++;
            /* 0 is a process of a pid namespace we cannot see into. */
            if (cgroup_parse_u64(line, &pid) == 0 && pid > 0 && pid <= INT32_MAX)
                kill_member((pid_t)pid, name);
            line = end + 1;
        }
        kept = strlen(line);
        memmove(text, line, kept);
    }
}

void cgroup_kill_dir(int dir_fd, const char *name)
{
    if (cgroup_file_write(dir_fd, "cgroup.kill", "1") == 0)
        return;
    /* v2 before 5.14: frozen processes cannot fork away from us, and still die of SIGKILL. v1 has
     * no such file here; there repeated passes win, because pids.max and a dead pid 1 bound the
     * race. */
    bool frozen = cgroup_file_write(dir_fd, "cgroup.freeze", "1") == 0;
    uint64_t end = clock_ns() + KILL_WAIT_NS;
    while (kill_listed(dir_fd, name) > 0 && clock_ns() < end)
        sleep_ns(500000);
    if (frozen)
        cgroup_file_write(dir_fd, "cgroup.freeze", "0");
}

static bool has_begun_otherwise(const struct cgroup_owner *owner)
{
    char state;
    uint64_t begin;
    int r = read_stat(owner->pid, &state, &begin);
    if (r == -ENOENT || r == -ESRCH)
        return true;
    if (r < 0)
        return false; /* cannot tell: leave it */
    return begin != owner->mark || state == 'Z' || state == 'X';
}

static bool has_other_number(const struct cgroup_owner *owner)
{
    uint64_t number;
    _cleanup_close_ int fd = sys_pidfd_open(owner->pid);
    if (fd < 0) /* nobody's, or by now a thread's */
        return errno == ESRCH || errno == EINVAL || errno == ENOENT;
    if (process_number(fd, &number) < 0)
        return false; /* cannot tell: leave it */
    struct pollfd ended = {.fd = fd, .events = POLLIN};
    return number != owner->mark || poll(&ended, 1, 0) > 0;
}

bool cgroup_is_stale(const struct cgroup_owner *owner, const struct cgroup_owner *self, int list_fd,
                     const char *name, bool *ret_may_kill)
{
    *ret_may_kill = false;
    if (owner->pid_ns != self->pid_ns) {
        struct stat st;
        return fstatat(list_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
               time(NULL) - st.st_mtime > FOREIGN_AGE_S;
    }
    *ret_may_kill = true;
    if (owner->pid == self->pid && owner->is_begin == self->is_begin)
        return owner->mark != self->mark;
    return owner->is_begin ? has_begun_otherwise(owner) : has_other_number(owner);
}

static bool remove_stale(const struct host_cgroups *where, const char *name, bool may_kill)
{
    char path[HOST_PATH_MAX + NAME_MAX + 2];
    bool gone = true;
    for (int slot = SLOT_COUNT - 1; slot >= 0 && may_kill; slot--) {
        const char *parent = cgroup_slot_left(where, (enum cgroup_slot)slot);
        if (!parent[0])
            continue;
        snprintf(path, sizeof(path), "%s/%s", parent, name);
        _cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (fd >= 0)
            cgroup_kill_dir(fd, name);
    }
    uint64_t deadline = clock_ns() + REMOVE_WAIT_NS;
    for (int slot = SLOT_COUNT - 1; slot >= 0; slot--) {
        const char *parent = cgroup_slot_left(where, (enum cgroup_slot)slot);
        if (!parent[0])
            continue;
        snprintf(path, sizeof(path), "%s/%s", parent, name);
        /* The anchor goes last and only when the rest is gone, else nothing would lead here again.
         */
        if (gone && (may_kill ? cgroup_rmdir_pool(path, deadline) : cgroup_rmdir(path, 0)) < 0)
            gone = false;
    }
    return gone;
}

int cgroup_gc(const struct host_cgroups *where, nlink_t known)
{
    struct cgroup_owner self, owner;
    const char *anchor = "";
    for (int slot = 0; slot < SLOT_COUNT && !anchor[0]; slot++)
        anchor = cgroup_slot_parent(where, (enum cgroup_slot)slot);
    if (!anchor[0] || cgroup_owner_self(&self) < 0)
        return 0;

    /* Folders count the ones in them: where there is no more than our own there is nothing to list.
     */
    struct stat st;
    if (stat(anchor, &st) == 0 && st.st_nlink == 2 + known)
        return 0;
    DIR *list = opendir(anchor);
    if (!list)
        return 0;
    int removed = 0;
    struct dirent *entry;
    while ((entry = readdir(list)) != NULL) {
        bool may_kill;
        if (cgroup_name_parse(entry->d_name, &owner) < 0)
            continue;
        if (cgroup_is_stale(&owner, &self, dirfd(list), entry->d_name, &may_kill) &&
            remove_stale(where, entry->d_name, may_kill))
            removed++;
    }
    closedir(list);
    return removed;
}
