/* Is a room as it was before its last guest? Runs in the porter, behind the guests' own walls.
 *
 * A guest can change, and leave behind for the next one in the same namespaces:
 *
 *   processes           a child of pid 1, whose children all orphans become
 *   pid 1 itself        its user is the guest's: priorities and cores (the filter refuses its
 *                       limits); and whatever makes it run shows in its clocks, which any guest
 *                       may read
 *   the scratch         entries, owners, modes, times, attributes of its three folders; space and
 *                       inodes; and inodes that never had a name, by the number of the next one
 *   the terminals       entries and times of /dev/pts
 *   /proc               nothing but what the first look at each of its files does: they are looked
 *                       at before
 *   the network         what warm_netns.c looks at, if there was a socket of it
 *   System V objects    nothing shows that there were some
 *
 * Who makes a socket of the network or such an object is noted by the filter (init.c).
 *
 * Numbers of processes and clocks begin anew with each guest (warm_porter.c). All else that lives
 * in these namespaces takes rights to change that no guest has, or ends with its process. A change
 * that is taken back is one: times of a change cannot be set, and the clock they are taken from has
 * moved since the first look. What is not as it was serves nobody again. */
#include "backend/native/warm_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"

#define ROOM_DEPTH 8  /* of /proc; 6 are seen */
#define ROOM_TICKS 50 /* looks until the clock of file times has moved on */

static const char *const room_folders[] = {"/tmp", PLAN_HOME, "/dev/shm", "/dev/pts",
                                           "/dev/pts/ptmx"};
#define ROOM_FOLDERS ARRAY_SIZE(room_folders)
#define ROOM_SCRATCH 3 /* the first of them, on one file system */

struct room_state {
    struct stat folders[ROOM_FOLDERS];
    uint64_t free_blocks, free_files;
    ino_t next_inode;
    struct timespec ran; /* CPU time of pid 1 */
    cpu_set_t cores;
    long io_priority;
    struct {
        uint32_t words[14]; /* as sched_getattr() fills it */
    } scheduling;
};

static struct room_state first;
static int folder_fds[ROOM_FOLDERS], children_fd = -1;
static pid_t first_pid;
static uint64_t looks;

bool warm_room_open(const struct warm_porter *porter)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)porter->pid, (int)porter->pid);
    children_fd = open(path, O_RDONLY | O_CLOEXEC);
    first_pid = porter->pid;
    return children_fd >= 0 && warm_netns_own_open();
}

static struct timespec room_ran(void)
{
    struct timespec ran = {.tv_sec = -1};
    clock_gettime((clockid_t)(~(unsigned)first_pid << 3 | 2), &ran);
    return ran;
}

static bool room_same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

/* What pid 1 is given from outside. */
static bool room_look_pid1(struct room_state *ret)
{
    CPU_ZERO(&ret->cores);
    memset(&ret->scheduling, 0, sizeof(ret->scheduling));
    if (syscall(SYS_sched_getaffinity, first_pid, sizeof(ret->cores), &ret->cores) < 0 ||
        syscall(SYS_sched_getattr, first_pid, &ret->scheduling, sizeof(ret->scheduling), 0) < 0)
        return false;
    ret->io_priority = syscall(SYS_ioprio_get, 1, first_pid);
    ret->ran = room_ran();
    return ret->ran.tv_sec >= 0;
}

/* The number that the next file would have had. */
static bool room_next_inode(ino_t *ret)
{
    struct stat st;
    _cleanup_close_ int fd = open(room_folders[0], O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0 || fstat(fd, &st) < 0)
        return false;
    *ret = st.st_ino;
    return true;
}

static bool room_look_files(struct room_state *ret)
{
    struct statfs fs;
    memset(ret->folders, 0, sizeof(ret->folders));
    for (size_t i = 0; i < ROOM_FOLDERS; i++)
        if (fstat(folder_fds[i], &ret->folders[i]) < 0)
            return false;
    if (fstatfs(folder_fds[0], &fs) < 0 || !room_next_inode(&ret->next_inode))
        return false;
    ret->free_blocks = fs.f_bfree;
    ret->free_files = fs.f_ffree;
    return true;
}

static bool room_open_folders(void)
{
    for (size_t i = 0; i < ROOM_FOLDERS; i++)
        if ((folder_fds[i] = open(room_folders[i], O_PATH | O_NOFOLLOW | O_CLOEXEC)) < 0)
            return false;
    return true;
}

/* A change within the tick of the clock that the folders were made in would bear their time. */
static bool room_await_tick(void)
{
    for (int i = 0; i < ROOM_TICKS; i++) {
        struct timespec now;
        bool later = clock_gettime(CLOCK_REALTIME_COARSE, &now) == 0;
        for (size_t k = 0; k < ROOM_FOLDERS && later; k++) {
            const struct timespec *at = &first.folders[k].st_ctim;
            later =
                now.tv_sec > at->tv_sec || (now.tv_sec == at->tv_sec && now.tv_nsec > at->tv_nsec);
        }
        if (later)
            return true;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return false;
}

/* Files of /proc get their number and times when they are looked at for the first time, and links
 * another time when they are followed for the first time in a day. So that no guest sees what
 * others have looked at, all are, once: those of the kernel and of pid 1. By somebody in the
 * guests' pid and user namespace, which some belong to. (Under pressure the kernel forgets some,
 * whoever looked at them.) */
struct room_entry { /* struct linux_dirent64 */
    uint64_t inode;
    int64_t next;
    unsigned short size;
    unsigned char type;
    char name[];
};

static void room_look_around(int dir, int depth);

static void room_look_at(int dir, const char *name, int depth)
{
    struct stat st;
    char target[64];
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    if (S_ISLNK(st.st_mode))
        (void)!readlinkat(dir, name, target, sizeof(target));
    if (!S_ISDIR(st.st_mode) || depth == ROOM_DEPTH)
        return;
    _cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0)
        room_look_around(fd, depth + 1);
}

static void room_look_around(int dir, int depth)
{
    _Alignas(struct room_entry) char entries[2048];
    long n;
    while ((n = syscall(SYS_getdents64, dir, entries, sizeof(entries))) > 0)
        for (long at = 0; at < n;) {
            const struct room_entry *e = (const void *)(entries + at);
            bool is_process = depth == 0 && e->name[0] >= '0' && e->name[0] <= '9';
            at += e->size;
            if (e->name[0] != '.' && (!is_process || str_eq(e->name, "1")))
                room_look_at(dir, e->name, depth);
        }
}

bool warm_room_look_at_proc(void)
{
    _cleanup_close_ int fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        room_look_around(fd, 0);
    return fd >= 0;
}

bool warm_room_begin(void)
{
    if (!room_open_folders() || !room_look_files(&first) || !room_await_tick() ||
        !room_look_pid1(&first) || !warm_netns_own_begin())
        return false;
    for (size_t i = 1; i < ROOM_SCRATCH; i++)
        if (first.folders[i].st_dev != first.folders[0].st_dev)
            return false;
    return true;
}

bool warm_room_is_alone(unsigned *ret_others)
{
    char text[4096];
    ssize_t n = pread(children_fd, text, sizeof(text), 0);
    *ret_others = 0;
    for (ssize_t i = 0; i < n; i++)
        *ret_others += text[i] == ' ';
    return n == 0 && room_same_time(room_ran(), first.ran);
}

static bool room_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_mode == b->st_mode && a->st_nlink == b->st_nlink &&
           a->st_uid == b->st_uid && a->st_gid == b->st_gid && a->st_size == b->st_size &&
           a->st_blocks == b->st_blocks && room_same_time(a->st_atim, b->st_atim) &&
           room_same_time(a->st_mtim, b->st_mtim) && room_same_time(a->st_ctim, b->st_ctim);
}

static bool room_same_pid1(const struct room_state *now)
{
    return room_same_time(now->ran, first.ran) && now->io_priority == first.io_priority &&
           memcmp(&now->cores, &first.cores, sizeof(now->cores)) == 0 &&
           memcmp(&now->scheduling, &first.scheduling, sizeof(now->scheduling)) == 0;
}

bool warm_room_is_as_new(bool had_sockets)
{
    struct room_state now;
    if (!room_look_files(&now) || !room_look_pid1(&now) || !room_same_pid1(&now))
        return false;
    looks++; /* each takes a number itself */
    if (now.free_blocks != first.free_blocks || now.free_files != first.free_files ||
        now.next_inode != first.next_inode + looks)
        return false;
    for (size_t i = 0; i < ROOM_FOLDERS; i++)
        if (!room_same_file(&now.folders[i], &first.folders[i]))
            return false;
    return warm_netns_own_is_untouched(had_sockets);
}
