/* Gives a tree to a guest: the copy of a workspace where no mount can map who owns what. Runs in
 * the supervisor, which is root, and a guest may have made the tree, or still be at work in it.
 *
 * So no name is looked up twice: what was opened is what is looked at, given and entered, and
 * nothing is opened by way of a link or of a mount in the tree. */
#include "backend/native/native_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sys.h"
#include "base/util.h"

#define GIVE_DEPTH 256 /* folders in each other, each of them open: deeper is an error */

struct give {
    DIR *at[GIVE_DEPTH];
    size_t depth;
    unsigned id;
};

/* A file that has other names is given only if it was a guest's already. A guest cannot link
 * anything of ours into its tree (a link does not leave a mount, and its tree is a mount of its
 * own), and a copy has every file for itself; what root or a program of root's has linked there
 * would change hands outside as well. It is shown as it is: less access, never more. */
static bool give_is_shared(const struct stat *st)
{
    return !S_ISDIR(st->st_mode) && st->st_nlink > 1 && st->st_uid < PLAN_ID_BASE;
}

/* Takes fd, a path descriptor. Enters it if it is a folder. */
static int give_one(struct give *g, int fd)
{
    struct stat st;
    _cleanup_close_ int path = fd, list = -1;
    if (fstat(path, &st) < 0)
        return -1;
    if (give_is_shared(&st))
        return 0;
    if (S_ISDIR(st.st_mode) && g->depth == GIVE_DEPTH) {
        errno = ENAMETOOLONG;
        return -1;
    }
    if (S_ISDIR(st.st_mode) && (list = openat(path, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        return errno == ENOENT ? 0 : -1; /* it was removed */
    if (fchownat(path, "", g->id, g->id, AT_EMPTY_PATH) < 0)
        return -1;
    if (list < 0)
        return 0;
    if (!(g->at[g->depth] = fdopendir(list)))
        return -1;
    g->depth++;
    (void)TAKE_FD(list);
    return 0;
}

/* The next entry of the deepest folder; the end of its list is the way up. */
static int give_next(struct give *g)
{
    static const struct open_how how = {.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC,
                                        .resolve = RESOLVE_BENEATH | RESOLVE_NO_XDEV};
    DIR *at = g->at[g->depth - 1];
    errno = 0;
    const struct dirent *e = readdir(at);
    if (!e) {
        if (errno)
            return -1;
        closedir(at);
        g->depth--;
        return 0;
    }
    if (str_eq(e->d_name, ".") || str_eq(e->d_name, ".."))
        return 0;
    int fd = sys_openat2(dirfd(at), e->d_name, &how);
    if (fd < 0) /* gone, or a mount: not part of the tree */
        return errno == ENOENT || errno == EXDEV ? 0 : -1;
    return give_one(g, fd);
}

int native_give_tree(const char *path, unsigned id)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS};
    struct give g = {.id = id};
    int fd = sys_openat2(AT_FDCWD, path, &how);
    int r = fd < 0 ? -1 : give_one(&g, fd);
    while (r == 0 && g.depth > 0)
        r = give_next(&g);
    int saved = errno;
    while (g.depth > 0)
        closedir(g.at[--g.depth]);
    errno = saved;
    return r;
}
