/* Bytes and files below a writable host path. Runs in the supervisor while the guest changes the
 * same tree: nothing here may be led outside by what the guest moves, links or mounts. */
#include "supervise/sample.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "base/sys.h"
#include "base/util.h"

/* One open descriptor per level. Going up again by ".." would follow a folder the guest has moved.
 */
#define MAX_DEPTH 128
#define MAX_ENTRIES UINT64_C(1000000)
#define BUDGET_NS UINT64_C(50000000)
#define CLOCK_EVERY 256

#ifndef STATX_MNT_ID
#define STATX_MNT_ID 0x00001000U
#endif

struct walk {
    DIR *level[MAX_DEPTH];
    int depth; /* of levels in use */
    uint64_t mount;
    uint64_t entries, max_entries;
    uint64_t end_ns;
    struct sample_disk sum;
};

static int look(int dir_fd, const char *name, struct statx *stx)
{
    int flags =
        AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC | (*name ? 0 : AT_EMPTY_PATH);
    return sys_statx(dir_fd, name, flags, STATX_TYPE | STATX_BLOCKS | STATX_NLINK | STATX_MNT_ID,
                     stx);
}

/* Takes the descriptor. */
static int push(struct walk *walk, int fd)
{
    DIR *dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return -1;
    }
    walk->level[walk->depth++] = dir;
    return 0;
}

static void enter(struct walk *walk, int parent, const char *name)
{
    struct statx stx;
    if (walk->depth == MAX_DEPTH) {
        walk->sum.truncated = true;
        return;
    }
    _cleanup_close_ int fd =
        openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        /* Gone since it was listed, or closed to us by its mode: what it holds is then not known.
         */
        if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
            walk->sum.truncated = true;
        return;
    }
    /* Asked of what was opened: the guest may have put another folder there since it was listed. */
    if (look(fd, "", &stx) < 0 || stx.stx_mnt_id != walk->mount)
        return;
    if (push(walk, TAKE_FD(fd)) < 0)
        walk->sum.truncated = true;
}

static void count(struct walk *walk, int parent, const char *name)
{
    struct statx stx;
    if (look(parent, name, &stx) < 0) {
        walk->sum.truncated |= errno != ENOENT; /* a folder that is listed, but closed to us */
        return;
    }
    if (stx.stx_mnt_id != walk->mount)
        return;
    bool is_dir = S_ISDIR(stx.stx_mode);
    walk->sum.files++;
    walk->sum.bytes += stx.stx_blocks * 512 / (is_dir ? 1 : MAX(stx.stx_nlink, 1u));
    if (is_dir)
        enter(walk, parent, name);
}

static bool is_over_budget(struct walk *walk)
{
    if (++walk->entries > walk->max_entries)
        return true;
    return walk->entries % CLOCK_EVERY == 0 && clock_ns() > walk->end_ns;
}

int sample_disk(int dir_fd, const struct sample_disk_options *options, struct sample_disk *ret_disk)
{
    uint64_t start = clock_ns();
    struct walk walk = {
        .max_entries = options && options->max_entries ? options->max_entries : MAX_ENTRIES,
        .end_ns = start + (options && options->budget_ns ? options->budget_ns : BUDGET_NS),
    };
    struct statx stx;
    /* not opened anew: the guest may have closed it to us since */
    _cleanup_close_ int top = fcntl(dir_fd, F_DUPFD_CLOEXEC, 0);
    if (top < 0 || look(top, "", &stx) < 0)
        return -1;
    if (!S_ISDIR(stx.stx_mode)) {
        ret_disk->bytes += stx.stx_blocks * 512;
        ret_disk->files++;
        return 0;
    }
    walk.mount = stx.stx_mnt_id;
    if (push(&walk, TAKE_FD(top)) < 0)
        return -1;
    rewinddir(walk.level[0]);

    while (walk.depth > 0) {
        DIR *dir = walk.level[walk.depth - 1];
        const struct dirent *entry = readdir(dir);
        if (!entry) {
            closedir(dir);
            walk.depth--;
            continue;
        }
        if (str_eq(entry->d_name, ".") || str_eq(entry->d_name, ".."))
            continue;
        if (is_over_budget(&walk)) {
            walk.sum.truncated = true;
            break;
        }
        count(&walk, dirfd(dir), entry->d_name);
    }
    while (walk.depth > 0)
        closedir(walk.level[--walk.depth]);

    ret_disk->bytes += walk.sum.bytes;
    ret_disk->files += walk.sum.files;
    ret_disk->truncated |= walk.sum.truncated;
    ret_disk->cost_ns += clock_ns() - start;
    return 0;
}
