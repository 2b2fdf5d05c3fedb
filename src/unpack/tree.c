/* Writes what an archive names below one folder. Every parent is opened by the kernel's own rules
 * for staying beneath a folder (openat2), so a link that was unpacked a moment ago leads nowhere
 * else. Runs in cordon-unpack. */
#include "unpack/unpack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/sys.h"
#include "base/util.h"

/* A checked name: components without "." and without a slash at either end. */
struct tree_name {
    char text[PATH_MAX];
    char *base;     /* last component, inside text; "" for the top folder itself */
    unsigned depth; /* components */
    size_t dir_len; /* of the folder part, without its slash */
};

static int tree_refuse(struct cordon_err *err, const char *name, const char *why)
{
    return err_set(err, CORDON_ERR_CONFIG, UNPACK_STAGE, 0, "refused: %s: %s", name, why);
}

/* "./usr//bin/" → "usr/bin". */
static int tree_name(const char *name, struct tree_name *ret, struct cordon_err *err)
{
    size_t len = 0;
    ret->depth = 0;
    ret->dir_len = 0;
    if (name[0] == '/')
        return tree_refuse(err, name, "an absolute name");
    for (const char *p = name; *p;) {
        size_t n = strcspn(p, "/");
        if (n == 2 && p[0] == '.' && p[1] == '.')
            return tree_refuse(err, name, "a name that leads out of the archive (..)");
        if (n > 0 && !(n == 1 && p[0] == '.')) {
            if (n > NAME_MAX || len + n + 2 > sizeof(ret->text))
                return tree_refuse(err, name, "a name that is too long");
            if (++ret->depth > UNPACK_DEPTH)
                return tree_refuse(err, name, "folders nested too deep");
            ret->dir_len = len;
            if (len > 0)
                ret->text[len++] = '/';
            memcpy(ret->text + len, p, n);
            len += n;
        }
        p += n;
        p += strspn(p, "/");
    }
    ret->text[len] = '\0';
    ret->base = ret->text + (ret->dir_len > 0 ? ret->dir_len + 1 : 0);
    return 0;
}

bool unpack_name_is_below(const char *name, const char *folder)
{
    struct tree_name n;
    struct cordon_err drop;
    size_t len = strlen(folder);
    return tree_name(name, &n, &drop) == 0 && strncmp(n.text, folder, len) == 0 &&
           (n.text[len] == '\0' || n.text[len] == '/');
}

static int tree_open(const struct unpack_tree *t, const char *path)
{
    struct open_how how = {
        .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
        .resolve = RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV |
                   (t->layered ? RESOLVE_IN_ROOT : RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS)};
    return sys_openat2(t->fd, path, &how);
}

/* Opens the folder a name lies in and, with make, makes what is missing of it. */
static int tree_parent(struct unpack_tree *t, struct tree_name *n, bool make, int *ret_fd,
                       struct cordon_err *err)
{
    char path[PATH_MAX];
    memcpy(path, n->text, n->dir_len);
    path[n->dir_len] = '\0';
    int fd = tree_open(t, n->dir_len ? path : ".");
    if (fd < 0 && errno == ENOENT && make) {
        for (char *slash = strchr(path, '/');; slash = strchr(slash + 1, '/')) {
            if (slash)
                *slash = '\0';
            char *last = strrchr(path, '/');
            if (last)
                *last = '\0';
            _cleanup_close_ int above = tree_open(t, last ? path : ".");
            if (last)
                *last = '/';
            if (above >= 0 && mkdirat(above, last ? last + 1 : path, 0755) < 0 && errno != EEXIST)
                return err_set(err, CORDON_ERR_INTERNAL, UNPACK_STAGE, errno, "%s", n->text);
            if (!slash)
                break;
            *slash = '/';
        }
        fd = tree_open(t, path);
    }
    if (fd >= 0) {
        *ret_fd = fd;
        return 0;
    }
    if (errno == ENOENT && !make) {
        *ret_fd = -1;
        return 0;
    }
    if (errno == ELOOP || errno == EXDEV || errno == ENOTDIR)
        return tree_refuse(err, n->text, "it would be written through a link or a file");
    return err_set(err, CORDON_ERR_INTERNAL, UNPACK_STAGE, errno, "%s", n->text);
}

static int tree_count(struct unpack_tree *t, struct cordon_err *err)
{
    if (++t->entries > UNPACK_ENTRIES)
        return err_set(err, CORDON_ERR_CONFIG, UNPACK_STAGE, 0, "refused: more than %u entries",
                       UNPACK_ENTRIES);
    return 0;
}

/* Only folders we made ourselves are walked: none is a link, none deeper than UNPACK_DEPTH. */
static void tree_empty(int fd)
{
    DIR *d = fdopendir(fd);
    const struct dirent *e;
    if (!d) {
        close(fd);
        return;
    }
    while ((e = readdir(d)))
        if (!str_eq(e->d_name, ".") && !str_eq(e->d_name, ".."))
            unpack_remove_all(dirfd(d), e->d_name);
    closedir(d);
}

void unpack_remove_all(int dir, const char *name)
{
    if (unlinkat(dir, name, 0) == 0 || (errno != EISDIR && errno != EPERM))
        return;
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0)
        tree_empty(fd);
    unlinkat(dir, name, AT_REMOVEDIR);
}

/* Checks the name, opens its folder, and takes away what an earlier entry left in its place. */
static int tree_place(struct unpack_tree *t, const char *name, struct tree_name *n, int *ret_fd,
                      struct cordon_err *err)
{
    if (tree_count(t, err) < 0 || tree_name(name, n, err) < 0)
        return -1;
    if (!n->depth)
        return tree_refuse(err, name, "the top folder cannot be anything else");
    if (tree_parent(t, n, true, ret_fd, err) < 0)
        return -1;
    unpack_remove_all(*ret_fd, n->base);
    return 0;
}

int unpack_tree_dir(struct unpack_tree *t, const char *name, mode_t mode, struct cordon_err *err)
{
    struct tree_name n;
    struct stat st;
    _cleanup_close_ int parent = -1;
    if (tree_count(t, err) < 0 || tree_name(name, &n, err) < 0)
        return -1;
    if (!n.depth)
        return 0;
    if (tree_parent(t, &n, true, &parent, err) < 0)
        return -1;
    if (fstatat(parent, n.base, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(st.st_mode))
        unpack_remove_all(parent, n.base);
    if (mkdirat(parent, n.base, 0700) < 0 && errno != EEXIST)
        return err_set(err, CORDON_ERR_INTERNAL, UNPACK_STAGE, errno, "%s", n.text);
    /* ours to fill and to remove, whatever the archive says */
    if (fchmodat(parent, n.base, (mode & 01777) | 0700, 0) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, UNPACK_STAGE, errno, "%s", n.text);
    return 0;
}

/* Inside, "/" is the image's own root, so absolute targets are ordinary; one that climbs above the
 * top is made for somebody who resolves it from outside. */
static bool tree_climbs_out(const struct tree_name *n, const char *target)
{
    int depth = target[0] == '/' ? 0 : (int)n->depth - 1;
    for (const char *p = target; *p;) {
        size_t len = strcspn(p, "/");
        if (len == 2 && p[0] == '.' && p[1] == '.') {
            if (--depth < 0)
                return true;
        } else if (len > 0 && !(len == 1 && p[0] == '.')) {
            depth++;
        }
        p += len;
        p += strspn(p, "/");
    }
    return false;
}

int unpack_tree_symlink(struct unpack_tree *t, const char *name, const char *target,
                        struct cordon_err *err)
{
    struct tree_name n;
    _cleanup_close_ int parent = -1;
    if (tree_place(t, name, &n, &parent, err) < 0)
        return -1;
    if (!*target || strlen(target) >= PATH_MAX)
        return tree_refuse(err, name, "a link to nothing");
    if (tree_climbs_out(&n, target))
        return tree_refuse(err, name, "a link that leads out of the archive");
    if (symlinkat(target, parent, n.base) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, UNPACK_STAGE, errno, "%s", n.text);
    return 0;
}

int unpack_tree_hardlink(struct unpack_tree *t, const char *name, const char *target,
                         struct cordon_err *err)
{
    struct tree_name n, to;
    struct stat st;
    _cleanup_close_ int parent = -1;
    _cleanup_close_ int other = -1;
    /* the target first: a name that is its own target must not be removed */
    if (tree_name(target, &to, err) < 0 || tree_parent(t, &to, false, &other, err) < 0)
        return -1;
    if (other < 0 || !to.depth || fstatat(other, to.base, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        !(S_ISREG(st.st_mode) || S_ISLNK(st.st_mode)))
        return tree_refuse(err, name, "a hard link to nothing in the archive");
    if (tree_name(name, &n, err) == 0 && str_eq(n.text, to.text))
        return 0;
    if (tree_place(t, name, &n, &parent, err) < 0)
        return -1;
    if (linkat(other, to.base, parent, n.base, 0) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, UNPACK_STAGE, errno, "%s", n.text);
    return 0;
}

int unpack_tree_file(struct unpack_tree *t, const char *name, int *ret_fd, struct cordon_err *err)
{
    struct tree_name n;
    _cleanup_close_ int parent = -1;
    if (tree_place(t, name, &n, &parent, err) < 0)
        return -1;
    int fd = openat(parent, n.base, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set(err, CORDON_ERR_INTERNAL, UNPACK_STAGE, errno, "%s", n.text);
    *ret_fd = fd;
    return 0;
}

int unpack_tree_remove(struct unpack_tree *t, const char *name, bool keep_top,
                       struct cordon_err *err)
{
    struct tree_name n;
    _cleanup_close_ int parent = -1;
    if (tree_count(t, err) < 0 || tree_name(name, &n, err) < 0 ||
        tree_parent(t, &n, false, &parent, err) < 0)
        return -1;
    if (parent < 0)
        return 0;
    if (!keep_top) {
        if (n.depth)
            unpack_remove_all(parent, n.base);
        return 0;
    }
    /* a link of a lower layer may stand for the folder, as it may for those on the way */
    int fd = tree_open(t, n.depth ? n.text : ".");
    if (fd >= 0)
        tree_empty(fd);
    return 0;
}
