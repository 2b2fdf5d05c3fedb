/* Removing trees. Runs on our side; the trees may be a guest's work. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/opendir.h"
#include "base/util.h"
#include "workspace/copy.h"

/* Opens a folder for emptying, opening it up if its own mode is against it. */
static DIR *remove_open(int dir_fd, const char *name)
{
    int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(dir_fd, name, flags);
    struct stat st;
    if (fd >= 0 && fstat(fd, &st) == 0 && (st.st_mode & 0700) != 0700)
        fchmod(fd, 0700);
    if (fd < 0 && errno == EACCES && opendir_unlock(dir_fd, name) == 0)
        fd = openat(dir_fd, name, flags);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir)
        util_close(&fd);
    return dir;
}

/* A removal under way: the folder all others move up into, the next number there, and how much has
 * gone or moved so far. */
struct removal {
    int top;
    unsigned long counter, done;
};

/* A file goes: 1. A folder stays: 0. What can neither go nor be a folder is an error: -1. */
static int remove_file(struct removal *r, int fd, const struct dirent *e)
{
    if (e->d_type == DT_DIR)
        return 0;
    if (unlinkat(fd, e->d_name, 0) == 0) {
        r->done++;
        return 1;
    }
    /* the kernel looks at the rights first: any other refusal would also keep a folder here */
    return errno == EISDIR ? 0 : errno == ENOENT ? 1 : -1;
}

static int remove_folder(struct removal *r, int fd, const char *name)
{
    if (unlinkat(fd, name, AT_REMOVEDIR) < 0)
        return -1;
    r->done++;
    return 0;
}

/* Under the next number that is free. */
static int remove_move_up(struct removal *r, int fd, const char *from)
{
    char name[32];
    for (int tries = 0; tries < 1000; tries++) {
        snprintf(name, sizeof(name), ".r%lu", r->counter++);
        if (renameat(fd, from, r->top, name) == 0) {
            r->done++;
            return 0;
        }
        if (errno != EEXIST && errno != ENOTEMPTY && errno != ENOTDIR &&
            (errno != EACCES || opendir_unlock(fd, from) < 0))
            break;
    }
    /* what can neither go nor move would be met again for ever */
    return errno == ENOENT ? 0 : -1;
}

/* Files go; folders move up into top, where their turn comes: no depth, no path, two descriptors.
 */
static int remove_empty_into(struct removal *r, DIR *dir)
{
    int fd = dirfd(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        if (str_eq(e->d_name, ".") || str_eq(e->d_name, ".."))
            continue;
        int gone = remove_file(r, fd, e);
        if (gone == 0 && remove_folder(r, fd, e->d_name) < 0)
            gone = remove_move_up(r, fd, e->d_name);
        if (gone < 0)
            return -1;
    }
    return 0;
}

/* One folder in top: what is in it goes or moves up, then itself. */
static int remove_one(struct removal *r, const char *name)
{
    if (remove_folder(r, r->top, name) == 0)
        return 0;
    DIR *sub = remove_open(r->top, name);
    if (!sub)
        return errno == ENOENT || errno == ENOTDIR ? 0 : -1;
    int result = remove_empty_into(r, sub);
    closedir(sub);
    if (result == 0 && remove_folder(r, r->top, name) < 0 && errno != ENOENT && errno != ENOTEMPTY)
        result = -1;
    return result;
}

/* What is in top, and then what moved there: by its number, since a folder that once held much
 * stays slow to list. */
static int remove_pass(struct removal *r)
{
    int fd = openat(r->top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    if (!list) {
        util_close(&fd);
        return -1;
    }
    int result = 0;
    unsigned long next = r->counter;
    for (struct dirent *e; result == 0 && (e = readdir(list));) {
        if (str_eq(e->d_name, ".") || str_eq(e->d_name, ".."))
            continue;
        int gone = remove_file(r, r->top, e);
        result = gone == 0 ? remove_one(r, e->d_name) : MIN(gone, 0);
    }
    closedir(list);
    for (; result == 0 && next < r->counter; next++) {
        char name[32];
        snprintf(name, sizeof(name), ".r%lu", next);
        result = remove_one(r, name);
    }
    return result;
}

int copy_remove(int dir_fd, const char *name)
{
    if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
        return 0;
    DIR *top = remove_open(dir_fd, name);
    if (!top)
        return -1;
    struct removal r = {.top = dirfd(top)};
    /* a pass that changes nothing is the last one: if something is left, the folder's own removal
     * says so */
    int result;
    unsigned long before;
    do {
        before = r.done;
        result = remove_pass(&r);
    } while (result == 0 && r.done != before);
    closedir(top);
    return result < 0 ? -1 : unlinkat(dir_fd, name, AT_REMOVEDIR);
}
