/* Files of a guest that have no name: made without one or removed while they are open, so that no
 * look at a folder finds them. Runs in the supervisor, when a file system grew by more than is seen
 * below its folders. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/sys.h"
#include "supervise/sample_walk.h"

#define BUDGET_NS UINT64_C(100000000)
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
    if (u->n + 1 >= FILES_MAX)
        return false;
    u->seen[at] = (struct unlinked_file){device, inode};
    u->n++;
    return true;
}

/* The guest's own memory is held by other limits; a folder of the host's may lie in memory, too. */
static bool unlinked_is_guests(const struct unlinked *u, int dir_fd, const char *name)
{
    struct statfs fs;
    struct stat st, disk;
    _cleanup_close_ int fd = openat(dir_fd, name, O_PATH | O_CLOEXEC);
    if (fd < 0 || fstatfs(fd, &fs) < 0 || fstat(fd, &st) < 0)
        return true;
    for (size_t i = 0; i < u->n_disks; i++)
        if (fstat(u->disks[i], &disk) == 0 && disk.st_dev == st.st_dev)
            return false;
    return fs.f_type == TMPFS_MAGIC || fs.f_type == HUGETLBFS_MAGIC;
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

static void unlinked_look(struct unlinked *u, int dir_fd, const char *name)
{
    struct statx stx;
    int flags = AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC;
    unsigned mask = STATX_TYPE | STATX_NLINK | STATX_INO | STATX_BLOCKS;
    if (sys_statx(dir_fd, name, flags, mask, &stx) < 0) {
        unlinked_note_closed(u, dir_fd, "..");
        return;
    }
    if (!S_ISREG(stx.stx_mode) || stx.stx_nlink > 0 || stx.stx_ino == 0 ||
        unlinked_is_guests(u, dir_fd, name))
        return;
    uint64_t device = (uint64_t)stx.stx_dev_major << 32 | stx.stx_dev_minor;
    if (!unlinked_is_new(u, device, stx.stx_ino))
        return;
    u->sum.files++;
    u->sum.bytes += stx.stx_blocks * 512;
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

/* There is always another look: one that takes too long counts what it saw. */
static bool unlinked_is_late(const struct unlinked *u)
{
    return clock_ns() > u->end_ns;
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
static void unlinked_process(struct unlinked *u, const struct walk *walk, pid_t pid)
{
    char path[32];
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
}

int sample_unlinked(pid_t root, const int *disk_fds, size_t n_disks, struct sample_disk *ret_disk)
{
    struct walk walk = {.root = root, .max = SAMPLE_MAX_PROCESSES};
    struct walk_set set = {0};
    uint64_t start = clock_ns();
    struct unlinked u = {.disks = disk_fds,
                         .n_disks = n_disks,
                         .end_ns = start + BUDGET_NS,
                         .seen = calloc(FILES_MAX, sizeof(*u.seen))};
    walk.proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool many; /* processes; the rest is looked at when these have ended */
    int r = u.seen && walk.proc_fd >= 0 && walk_tree(&walk, &set, &many) == 0 ? 0 : -1;
    for (size_t i = 0; r == 0 && i < set.n && !unlinked_is_late(&u); i++)
        if (set.list[i].pid != root)
            unlinked_process(&u, &walk, set.list[i].pid);
    walk_set_done(&set);
    util_close(&walk.proc_fd);
    free(u.seen);
    u.sum.cost_ns = clock_ns() - start;
    if (r == 0)
        *ret_disk = u.sum;
    return r;
}
