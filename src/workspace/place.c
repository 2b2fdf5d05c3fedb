/* Files that get their name when they are whole. Whoever writes one that has another name before
 * holds a lock on it: one that can be locked belongs to nobody. */
#include "workspace/place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "workspace/copy.h"
#include "workspace/tree.h"

#define PLACE_NAME 32
#define PLACE_AGE_S 3600

static void place_noise(char temp[static PLACE_NAME])
{
    strcpy(temp, PLACE_TEMP);
    tree_random(temp + strlen(temp), 12);
}

static int place_fill(int from, int to, mode_t mode)
{
    return copy_bytes(from, to) < 0 ? -1 : fchmod(to, mode);
}

static int place_drop(int at, const char *temp)
{
    int e = errno;
    unlinkat(at, temp, 0);
    errno = e;
    return -1;
}

static int place_rename(int at, const char *temp, int dir, const char *name)
{
    return renameat(at, temp, dir, name) == 0 ? 0 : place_drop(at, temp);
}

/* A file without a name leaves nothing behind however this process ends. Not every file system has
 * them, it takes /proc to name one, and it cannot take the place of another: 1 where one with a
 * name has to serve. */
static int place_unnamed(int top, int dir, const char *name, int from, mode_t mode)
{
    char self[32], temp[PLACE_NAME];
    _cleanup_close_ int to = openat(dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (to < 0)
        return 1;
    if (place_fill(from, to, mode) < 0)
        return -1;
    snprintf(self, sizeof(self), "/proc/self/fd/%d", to);
    if (linkat(AT_FDCWD, self, dir, name, AT_SYMLINK_FOLLOW) == 0)
        return 0;
    place_noise(temp);
    if (errno != EEXIST || flock(to, LOCK_EX | LOCK_NB) < 0 ||
        linkat(AT_FDCWD, self, top, temp, AT_SYMLINK_FOLLOW) < 0)
        return 1;
    return place_rename(top, temp, dir, name);
}

/* A new file, locked. Between the two somebody who sweeps may have taken it for a left one. */
static int place_make(int at, char temp[static PLACE_NAME])
{
    for (int tries = 0; tries < 16; tries++) {
        struct stat st;
        place_noise(temp);
        _cleanup_close_ int fd =
            openat(at, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
            return -1;
        bool taken = flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
        if (!taken && fstat(fd, &st) == 0 && st.st_nlink > 0)
            return TAKE_FD(fd);
    }
    errno = EAGAIN;
    return -1;
}

static int place_named(int at, int dir, const char *name, int from, mode_t mode)
{
    char temp[PLACE_NAME];
    _cleanup_close_ int to = place_make(at, temp);
    if (to < 0)
        return -1;
    return place_fill(from, to, mode) == 0 ? place_rename(at, temp, dir, name)
                                           : place_drop(at, temp);
}

int place_file(int top, int dir, const char *name, int from, mode_t mode)
{
    int r = place_unnamed(top, dir, name, from, mode);
    if (r <= 0)
        return r;
    r = place_named(top, dir, name, from, mode);
    /* the folder is on another file system, or the one at the top is not ours to write to */
    if (r < 0 && (errno == EXDEV || errno == EACCES || errno == EPERM || errno == EROFS))
        r = place_named(dir, dir, name, from, mode);
    return r;
}

/* Nobody holds a lock on it. One that its mode closes to us cannot be asked, and tells by its age.
 */
static bool place_is_left(int top, const char *name, const struct stat *st)
{
    struct stat open_st;
    _cleanup_close_ int fd = openat(top, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno == EACCES && st->st_mtime + PLACE_AGE_S < time(NULL);
    return fstat(fd, &open_st) == 0 && open_st.st_ino == st->st_ino &&
           flock(fd, LOCK_EX | LOCK_NB) == 0;
}

void place_sweep(int top)
{
    int fd = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (!list)
        util_close(&fd);
    for (const struct dirent *e; list && (e = readdir(list));) {
        struct stat st;
        if (str_starts(e->d_name, PLACE_TEMP) && strlen(e->d_name) == strlen(PLACE_TEMP) + 12 &&
            fstatat(top, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
            st.st_uid == geteuid() && place_is_left(top, e->d_name, &st))
            unlinkat(top, e->d_name, 0);
    }
    if (list)
        closedir(list);
}
