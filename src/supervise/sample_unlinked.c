/* Files of a guest that have no name: made without one or removed while they are held, so that no
 * look at a folder finds them. Held is what is open, mapped, executed, or on its way through a
 * socket. Runs in the supervisor, when a file system grew by more than is seen below its folders.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/sys.h"
#include "supervise/sample_walk.h"

#define BUDGET_NS                                                                                  \
    UINT64_C(150000000)   /* of our own CPU time: a busy host is not the guest's doing */
#define FILES_MAX 16384u  /* told apart; a power of two */
#define KCMP_FILES_TYPE 2 /* KCMP_FILES of linux/kcmp.h */

struct unlinked {
    struct sample_disk sum;
    uint64_t end_ns;
    struct unlinked_file {
        uint64_t device, inode;
    } * seen; /* a hash; inode 0: free */
    size_t n;
    const int *disks;
    size_t n_disks;
};

/* Descriptors are inherited and handed on: a file counts once. */
static bool unlinked_is_new(struct unlinked *u, uint64_t device, uint64_t inode)
{
    size_t at = (size_t)((inode * UINT64_C(0x9e3779b97f4a7c15)) >> 32) % FILES_MAX;
    while (u->seen[at].inode != 0) {
        if (u->seen[at].inode == inode && u->seen[at].device == device)
            return false;
        at = (at + 1) % FILES_MAX;
    }
    if (u->n + 1 >= FILES_MAX) {
        u->sum.truncated = true; /* so many are there to hide others */
        return false;
    }
    u->seen[at] = (struct unlinked_file){device, inode};
    u->n++;
    return true;
}

static bool unlinked_is_disk(const struct unlinked *u, dev_t device)
{
    struct stat disk;
    for (size_t i = 0; i < u->n_disks; i++)
        if (fstat(u->disks[i], &disk) == 0 && disk.st_dev == device)
            return true;
    return false;
}

/* The guest's own memory is held by other limits; a folder of the host's may lie in memory, too. */
static bool unlinked_is_guests(const struct unlinked *u, int dir_fd, const char *name)
{
    struct statfs fs;
    struct stat st;
    _cleanup_close_ int fd = openat(dir_fd, name, O_PATH | O_CLOEXEC);
    if (fd < 0 || fstatfs(fd, &fs) < 0 || fstat(fd, &st) < 0)
        return true;
    return !unlinked_is_disk(u, st.st_dev) &&
           (fs.f_type == TMPFS_MAGIC || fs.f_type == HUGETLBFS_MAGIC);
}

/* Whoever closed himself to us holds what counts as hidden. A task on its way out is closed to
 * everybody but root, too, as soon as its memory is gone; its descriptors go next. */
static void unlinked_note_closed(struct unlinked *u, int dir_fd, const char *task)
{
    char path[300], text[1024];
    struct sample_stat st;
    if (errno != EACCES && errno != EPERM)
        return;
    snprintf(path, sizeof(path), "%s/stat", task);
    if (walk_read(dir_fd, path, text, sizeof(text)) < 0)
        return;
    if (sample_parse_stat(text, &st) < 0 || !(st.is_exiting || st.state == 'Z' || st.state == 'X'))
        u->sum.truncated = true;
}

/* -1 with errno: it cannot be looked at. */
static int unlinked_try(struct unlinked *u, int dir_fd, const char *name, mode_t *ret_mode)
{
    struct statx stx;
    int flags = AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC;
    unsigned mask = STATX_TYPE | STATX_NLINK | STATX_INO | STATX_BLOCKS;
    if (sys_statx(dir_fd, name, flags, mask, &stx) < 0)
        return -1;
    *ret_mode = stx.stx_mode;
    uint64_t device = (uint64_t)stx.stx_dev_major << 32 | stx.stx_dev_minor;
    if (!S_ISREG(stx.stx_mode) || stx.stx_nlink > 0 || stx.stx_ino == 0 ||
        unlinked_is_guests(u, dir_fd, name) || !unlinked_is_new(u, device, stx.stx_ino))
        return 0;
    u->sum.files++;
    u->sum.bytes += stx.stx_blocks * 512;
    return 0;
}

/* Which files are on their way through a socket nobody tells, but that there are some. */
static void unlinked_socket(struct unlinked *u, int dir_fd, const char *name)
{
    char path[300], text[1024];
    snprintf(path, sizeof(path), "../fdinfo/%s", name);
    const char *line =
        walk_read(dir_fd, path, text, sizeof(text)) > 0 ? strstr(text, "scm_fds:") : NULL;
    if (line && strtoul(line + strlen("scm_fds:"), NULL, 10) > 0)
        u->sum.truncated = true;
}

static void unlinked_look(struct unlinked *u, int dir_fd, const char *name)
{
    mode_t mode;
    if (unlinked_try(u, dir_fd, name, &mode) < 0)
        unlinked_note_closed(u, dir_fd, "..");
    else if (S_ISSOCK(mode))
        unlinked_socket(u, dir_fd, name);
}

/* Nothing when it is not there: somebody has ended. */
static DIR *unlinked_open(int from, const char *path)
{
    int fd = openat(from, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir)
        util_close(&fd);
    return dir;
}

static uint64_t unlinked_cpu_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* The next look would begin at the same end: what comes after is hidden. */
static bool unlinked_is_late(struct unlinked *u)
{
    u->sum.truncated |= unlinked_cpu_ns() > u->end_ns;
    return u->sum.truncated;
}

/* Memory that the kernel shows as a file that was removed. */
static bool unlinked_is_no_file(const char *name)
{
    static const char *const names[] = {"/memfd:", "/dev/zero (", "/SYSV", "/anon_hugepage (",
                                        "/[aio] ("};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (str_starts(name, names[i]))
            return true;
    return false;
}

/* Is it the file system of the guest's private folders? */
static bool unlinked_is_private(const struct unlinked *u, int proc_fd, pid_t pid, dev_t device)
{
    char path[32];
    struct statfs fs;
    struct stat st;
    snprintf(path, sizeof(path), "%d/root/tmp", (int)pid);
    _cleanup_close_ int fd = openat(proc_fd, path, O_PATH | O_CLOEXEC);
    return fd >= 0 && fstat(fd, &st) == 0 && fstatfs(fd, &fs) == 0 && st.st_dev == device &&
           fs.f_type == TMPFS_MAGIC && !unlinked_is_disk(u, device);
}

/* One line of maps. Only root is shown the file itself. */
static void unlinked_mapping(struct unlinked *u, int proc_fd, pid_t pid, const char *line)
{
    static const char deleted[] = " (deleted)\n";
    char path[64];
    uint64_t start, end;
    unsigned major, minor;
    int at = 0;
    mode_t mode;
    size_t len = strlen(line);
    if (len < sizeof(deleted) || !str_eq(line + len - (sizeof(deleted) - 1), deleted) ||
        sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %*x %x:%x %*u %n", &start, &end, &major, &minor,
               &at) != 4 ||
        unlinked_is_no_file(line + at))
        return;
    snprintf(path, sizeof(path), "%d/map_files/%" PRIx64 "-%" PRIx64, (int)pid, start, end);
    if (unlinked_try(u, proc_fd, path, &mode) < 0 && (errno == EPERM || errno == EACCES) &&
        !unlinked_is_private(u, proc_fd, pid, makedev(major, minor)))
        u->sum.truncated = true;
}

static void unlinked_memory(struct unlinked *u, int proc_fd, pid_t pid)
{
    char path[32];
    mode_t mode;
    snprintf(path, sizeof(path), "%d/exe", (int)pid);
    (void)unlinked_try(u, proc_fd, path, &mode);
    snprintf(path, sizeof(path), "%d/maps", (int)pid);
    int fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
    _cleanup_fclose_ FILE *maps = fd < 0 ? NULL : fdopen(fd, "r");
    _cleanup_free_ char *line = NULL;
    size_t size = 0;
    if (!maps)
        util_close(&fd);
    while (maps && !unlinked_is_late(u) && getline(&line, &size, maps) > 0)
        unlinked_mapping(u, proc_fd, pid, line);
}

static void unlinked_descriptors(struct unlinked *u, int task_fd, const char *task)
{
    char path[300];
    const struct dirent *e;
    snprintf(path, sizeof(path), "%s/fd", task);
    DIR *dir = unlinked_open(task_fd, path);
    if (!dir)
        unlinked_note_closed(u, task_fd, task);
    while (dir && !unlinked_is_late(u) && (e = readdir(dir)))
        if (e->d_name[0] != '.')
            unlinked_look(u, dirfd(dir), e->d_name);
    if (dir)
        closedir(dir);
}

/* A thread may have a table of its own; mostly it has its process's. The first one may have ended
 * before the others. */
static void unlinked_process(struct unlinked *u, const struct walk *walk,
                             const struct walk_process *process)
{
    char path[32];
    pid_t pid = process->pid;
    const struct dirent *e;
    snprintf(path, sizeof(path), "%d/task", (int)pid);
    DIR *dir = unlinked_open(walk->proc_fd, path);
    while (dir && !unlinked_is_late(u) && (e = readdir(dir))) {
        pid_t tid = (pid_t)atoi(e->d_name);
        if (tid > 0 && (tid == pid || syscall(SYS_kcmp, pid, tid, KCMP_FILES_TYPE, 0, 0) != 0))
            unlinked_descriptors(u, dirfd(dir), e->d_name);
    }
    if (dir)
        closedir(dir);
    unlinked_memory(u, walk->proc_fd, process->memory_pid);
}

int sample_unlinked(pid_t root, const int *disk_fds, size_t n_disks, struct sample_disk *ret_disk)
{
    struct walk walk = {.root = root, .max = SAMPLE_MAX_PROCESSES};
    struct walk_set set = {0};
    uint64_t start = clock_ns();
    struct unlinked u = {.disks = disk_fds,
                         .n_disks = n_disks,
                         .end_ns = unlinked_cpu_ns() + BUDGET_NS,
                         .seen = calloc(FILES_MAX, sizeof(*u.seen))};
    walk.proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool many = false; /* processes, more than are looked at */
    int r = u.seen && walk.proc_fd >= 0 && walk_tree(&walk, &set, &many) == 0 ? 0 : -1;
    for (size_t i = 0; r == 0 && i < set.n && !unlinked_is_late(&u); i++)
        if (set.list[i].pid != root)
            unlinked_process(&u, &walk, &set.list[i]);
    u.sum.truncated |= many;
    walk_set_done(&set);
    util_close(&walk.proc_fd);
    free(u.seen);
    u.sum.cost_ns = clock_ns() - start;
    if (r == 0)
        *ret_disk = u.sum;
    return r;
}
