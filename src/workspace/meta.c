/* The folder of records, WORK_ROOT/.meta, and the marks in it. Runs on our side, and with the tasks
 * of libcordon in the calling program.
 *
 * A mark, .meta/ID~task, says that the tree WORK_ROOT/ID is one that Cordon made, and when: whoever
 * names a folder of their own by mistake keeps it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/sys.h"
#include "base/util.h"
#include "workspace/workspace_internal.h"

#define META_HEAD "cordon-task 1\n"
#define META_TEXT_MAX 128

int meta_hold(int place_fd)
{
    for (int tries = 0; tries < 64; tries++) {
        struct stat own, named;
        if (mkdirat(place_fd, WORKSPACE_META, 0700) < 0 && errno != EEXIST)
            return -1;
        _cleanup_close_ int fd =
            openat(place_fd, WORKSPACE_META, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 && errno == ENOENT)
            continue;
        if (fd < 0 || workspace_lock(fd, true) < 0)
            return -1;
        /* whoever held it before may have removed it, with nothing left in it */
        if (fstat(fd, &own) == 0 &&
            fstatat(place_fd, WORKSPACE_META, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
            own.st_ino == named.st_ino && own.st_dev == named.st_dev)
            return TAKE_FD(fd);
    }
    errno = EWOULDBLOCK;
    return -1;
}

void meta_release(int place_fd, int *fd)
{
    int e = errno;
    if (*fd >= 0)
        unlinkat(place_fd, WORKSPACE_META, AT_REMOVEDIR);
    util_close(fd);
    errno = e;
}

/* ---- Marks ---- */

static void meta_name(const char *id, const char *suffix, char ret_name[static 160])
{
    snprintf(ret_name, 160, WORKSPACE_META "/%s~task%s", id, suffix);
}

/* When a folder was made tells it from one that was put in its place. Not every file system knows:
 * then it is 0, and the name has to do. */
static void meta_text(int place_fd, const char *name, char ret_text[static META_TEXT_MAX])
{
    struct statx stx;
    long long sec = 0;
    unsigned nsec = 0;
    if (sys_statx(place_fd, name, AT_SYMLINK_NOFOLLOW, STATX_BTIME, &stx) == 0 &&
        (stx.stx_mask & STATX_BTIME)) {
        sec = stx.stx_btime.tv_sec;
        nsec = stx.stx_btime.tv_nsec;
    }
    snprintf(ret_text, META_TEXT_MAX, META_HEAD "born %lld %u\n", sec, nsec);
}

int meta_mark(int place_fd, const char *id, const char *folder)
{
    char name[160], temp[160], text[META_TEXT_MAX];
    meta_name(id, "", name);
    meta_name(id, "~", temp);
    meta_text(place_fd, folder, text);
    unlinkat(place_fd, temp, 0);
    _cleanup_close_ int fd =
        openat(place_fd, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) &&
        renameat(place_fd, temp, place_fd, name) == 0)
        return 0;
    int e = errno;
    unlinkat(place_fd, temp, 0);
    errno = e;
    return -1;
}

bool meta_is_marked(int place_fd, const char *id)
{
    char name[160], text[META_TEXT_MAX], want[META_TEXT_MAX];
    meta_name(id, "", name);
    meta_text(place_fd, id, want);
    _cleanup_close_ int fd = openat(place_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st, tree;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (st.st_mode & 022) ||
        (st.st_uid != geteuid() && st.st_uid != 0 && geteuid() != 0) ||
        fstatat(place_fd, id, &tree, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(tree.st_mode))
        return false;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    return str_eq(text, want) || str_eq(text, META_HEAD "born 0 0\n");
}

void meta_unmark(int place_fd, const char *id)
{
    char name[160];
    meta_name(id, "", name);
    unlinkat(place_fd, name, 0);
}
