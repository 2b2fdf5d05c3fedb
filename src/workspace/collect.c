/* Collecting files. Runs on our side after the guest is gone, over files it made. */
#include "workspace/collect.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/util.h"
#include "workspace/extents.h"
#include "workspace/place.h"
#include "workspace/tar.h"
#include "workspace/tree.h"

/* A folder to look into, and which part of the pattern its entries are matched with. */
struct collect_dir {
    struct collect_dir *next;
    const char *rest; /* of the pattern */
    char path[];
};

struct collect_walk {
    struct collect *out;
    int from, to;
    bool tar;               /* to is an archive, not a folder */
    struct extents extents; /* of the file that goes there */
    struct collect_dir *todo;
    struct cordon_err *err;
    int held_fd; /* the folder in which the next ones are, -1: none; a path from the top costs more
                  */
    char held[TREE_PATH_MAX + 1];
};

static void collect_hold(struct collect_walk *w, int fd, const char *path, size_t len)
{
    util_close(&w->held_fd);
    w->held_fd = fd;
    memcpy(w->held, path, len);
    w->held[len] = '\0';
}

static int collect_open(struct collect_walk *w, const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) : 0;
    char parent[TREE_PATH_MAX + 1];
    if (!*path)
        return tree_open_dir(w->from, "");
    memcpy(parent, path, len);
    parent[len] = '\0';
    if (w->held_fd < 0 || !str_eq(parent, w->held))
        collect_hold(w, tree_open_dir(w->from, parent), parent, len);
    return w->held_fd < 0 ? -1 : tree_open_dir(w->held_fd, slash ? slash + 1 : path);
}

static int collect_add(struct collect *c, const char *path, uint64_t size, const char *skipped)
{
    if (c->n == c->cap) {
        size_t cap = c->cap ? c->cap * 2 : 64;
        struct collect_row *rows = realloc(c->rows, cap * sizeof(*rows));
        if (!rows)
            return -1;
        c->rows = rows;
        c->cap = cap;
    }
    const char *copy = arena_strdup(&c->arena, path);
    if (!copy)
        return -1;
    c->rows[c->n++] = (struct collect_row){copy, size, skipped};
    c->text += strlen(path) + 1;
    return 0;
}

/* The folder of a file below the target, made where it is missing; a link there is not followed. */
static int collect_parent(int to, const char *path)
{
    int at = tree_open_dir(to, "");
    for (const char *p = path, *slash; at >= 0 && (slash = strchr(p, '/')); p = slash + 1) {
        char name[256];
        size_t len = (size_t)(slash - p);
        if (len >= sizeof(name)) {
            close(at);
            errno = ENAMETOOLONG;
            return -1;
        }
        memcpy(name, p, len);
        name[len] = '\0';
        if (mkdirat(at, name, 0777) < 0 && errno != EEXIST) {
            close(at);
            return -1;
        }
        int next = tree_open_dir(at, name);
        close(at);
        at = next;
    }
    return at;
}

/* What the guest left under this name may have another size than when it was looked at; an archive
 * that cannot be gone on with is an error of its own. */
static int collect_into_tar(struct collect_walk *w, const char *path, int from)
{
    struct stat st;
    if (fstat(from, &st) < 0 || !S_ISREG(st.st_mode))
        return -1;
    /* what is on disk was looked at; compressed or without known holes it is more in the archive */
    bool fits = (uint64_t)st.st_size <= COLLECT_BYTES;
    if (fits && extents_look(&w->extents, from, (uint64_t)st.st_size) < 0)
        return err_nomem(w->err, "output");
    if (!fits || w->extents.bytes > COLLECT_BYTES - w->out->bytes) {
        errno = EFBIG;
        return -1;
    }
    if (tar_file(w->to, path, from, &st, &w->extents) == 0)
        return 0;
    return err_set(w->err, CORDON_ERR_INTERNAL, "output", errno, "fd:%d", w->to);
}

static int collect_copy(struct collect_walk *w, int dir_fd, const char *path, const struct stat *st)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    _cleanup_close_ int from = tree_open_file(dir_fd, name);
    if (w->tar)
        return from < 0 ? -1 : collect_into_tar(w, path, from);
    _cleanup_close_ int dir = from < 0 ? -1 : collect_parent(w->to, path);
    if (dir < 0)
        return -1;
    return place_file(w->to, dir, name, from, st->st_mode & 0777);
}

static const char *collect_kind(mode_t mode)
{
    return S_ISLNK(mode)    ? "symlink"
           : S_ISFIFO(mode) ? "fifo"
           : S_ISSOCK(mode) ? "socket"
                            : "device";
}

static int collect_file(struct collect_walk *w, int dir_fd, const char *path, const struct stat *st)
{
    struct collect *c = w->out;
    uint64_t size = (uint64_t)st->st_size, room = (uint64_t)st->st_blocks * 512;
    if (!S_ISREG(st->st_mode))
        return collect_add(c, path, 0, collect_kind(st->st_mode));
    if (c->n >= COLLECT_FILES)
        return collect_add(c, path, size, "too many files");
    if (c->bytes + room > COLLECT_BYTES || size > COLLECT_BYTES)
        return collect_add(c, path, size, "too large");
    if (collect_copy(w, dir_fd, path, st) == 0) {
        c->bytes += w->tar ? w->extents.bytes : room;
        return collect_add(c, path, size, NULL);
    }
    if (w->err->code)
        return -1;
    if (errno == ENOSPC || errno == EDQUOT || errno == EIO || errno == EROFS)
        return err_set(w->err, CORDON_ERR_INTERNAL, "output", errno, "%s", path);
    return collect_add(c, path, size, errno == EFBIG ? "too large" : "cannot be copied");
}

static int collect_push(struct collect_walk *w, const char *path, const char *rest)
{
    size_t len = strlen(path) + 1;
    struct collect_dir *d = malloc(sizeof(*d) + len);
    if (!d)
        return err_nomem(w->err, "output");
    memcpy(d->path, path, len);
    d->rest = rest;
    d->next = w->todo;
    w->todo = d;
    return 0;
}

static int collect_entry(struct collect_walk *w, const struct collect_dir *d, int fd,
                         const char *name)
{
    char part[512], path[TREE_PATH_MAX + 1];
    struct stat st;
    size_t len = strcspn(d->rest, "/");
    bool last = d->rest[len] == '\0', deep = last && str_eq(d->rest, "**");
    if (len >= sizeof(part))
        return 0;
    memcpy(part, d->rest, len);
    part[len] = '\0';
    if (!deep && fnmatch(part, name, FNM_PERIOD) != 0)
        return 0;
    int n = snprintf(path, sizeof(path), "%s%s%s", d->path, *d->path ? "/" : "", name);
    if (n < 0 || (size_t)n >= sizeof(path) || fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    if (S_ISDIR(st.st_mode))
        return deep   ? collect_push(w, path, d->rest)
               : last ? 0
                      : collect_push(w, path, d->rest + len + 1);
    return last ? collect_file(w, fd, path, &st) : 0;
}

/* Names are the guest's: their number and what they take are bounded, and the cut is told once. */
static bool collect_has_room(struct collect *c)
{
    return ++c->entries <= COLLECT_ENTRIES && c->text <= COLLECT_TEXT;
}

/* 1: there is more than is looked at. */
static int collect_dir(struct collect_walk *w, const struct collect_dir *d)
{
    const struct collect_dir *before = w->todo;
    int fd = collect_open(w, d->path);
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    if (!list) {
        int e = errno;
        util_close(&fd);
        /* closed by the guest: told */
        return e == EACCES ? collect_add(w->out, d->path, 0, "cannot be read") : 0;
    }
    int r = 0;
    for (struct dirent *e; r == 0 && (e = readdir(list));) {
        if (str_eq(e->d_name, ".") || str_eq(e->d_name, "..") || str_starts(e->d_name, PLACE_TEMP))
            continue;
        r = collect_has_room(w->out) ? collect_entry(w, d, fd, e->d_name) : 1;
    }
    if (w->todo != before)
        collect_hold(w, fcntl(fd, F_DUPFD_CLOEXEC, 0), d->path, strlen(d->path));
    closedir(list);
    return r;
}

static int collect_walk(struct collect_walk *w, const char *pattern)
{
    int r = collect_push(w, "", pattern);
    while (w->todo) {
        struct collect_dir *d = w->todo;
        w->todo = d->next;
        if (r == 0)
            r = collect_dir(w, d);
        free(d);
    }
    util_close(&w->held_fd);
    extents_done(&w->extents);
    if (r > 0 && !w->out->is_cut) {
        w->out->is_cut = true;
        r = collect_add(w->out, "", 0, "too many names");
    }
    if (r < 0 && !w->err->code)
        return err_nomem(w->err, "output");
    return MIN(r, 0);
}

int collect_tar(struct collect *c, int from_fd, const char *pattern, int to_fd,
                struct cordon_err *err)
{
    struct collect_walk w = {
        .out = c, .from = from_fd, .to = to_fd, .tar = true, .err = err, .held_fd = -1};
    return collect_walk(&w, pattern);
}

static const char *target_name(const struct collect_target *t)
{
    const char *slash = strrchr(t->path, '/');
    return slash ? slash + 1 : t->path;
}

int collect_target_open(struct collect_target *t, const char *path, struct cordon_err *err)
{
    struct stat st;
    struct collect_target found = {.above = -1, .path = path};
    found.fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (found.fd >= 0 && faccessat(found.fd, ".", W_OK | X_OK, AT_EACCESS) < 0) {
        int e = errno;
        util_close(&found.fd);
        errno = e == ENOENT ? EACCES : e; /* it is there */
    }
    if (found.fd < 0 && errno == ENOENT) {
        const char *name = target_name(&found);
        _cleanup_free_ char *above = name == path       ? strdup(".")
                                     : name == path + 1 ? strdup("/")
                                                        : strndup(path, (size_t)(name - path - 1));
        if (!above)
            return err_nomem(err, "output");
        found.above = open(above, O_PATH | O_DIRECTORY | O_CLOEXEC);
        /* a link to nothing is there, and leads nowhere */
        if (found.above >= 0 && (fstatat(found.above, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ||
                                 faccessat(found.above, ".", W_OK | X_OK, AT_EACCESS) < 0)) {
            int e = errno;
            util_close(&found.above);
            errno = e;
        }
    }
    if (found.fd < 0 && found.above < 0)
        return err_set(err, CORDON_ERR_CONFIG, "output", errno, "%s", path);
    *t = found;
    return 0;
}

void collect_target_close(struct collect_target *t)
{
    util_close(&t->fd);
    util_close(&t->above);
}

/* -1 and an error that is ours; 0 also where a guest stands in the way. */
static int target_make(struct collect_target *t, struct cordon_err *err)
{
    const char *name = target_name(t);
    if (t->fd >= 0)
        return 0;
    if (mkdirat(t->above, name, 0777) == 0 || errno == EEXIST)
        t->fd = openat(t->above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    /* something else at the name, the folder above removed, or closed to us */
    static const int in_the_way[] = {ENOTDIR, ELOOP, EEXIST, ENOENT, EACCES, EPERM};
    for (size_t i = 0; i < ARRAY_SIZE(in_the_way); i++)
        if (t->fd >= 0 || errno == in_the_way[i])
            return 0;
    return err_set(err, CORDON_ERR_CONFIG, "output", errno, "%s", t->path);
}

int collect_pattern(struct collect *c, int from_fd, const char *pattern, struct collect_target *to,
                    struct cordon_err *err)
{
    if (target_make(to, err) < 0)
        return -1;
    struct collect_walk w = {.out = c, .from = from_fd, .to = to->fd, .err = err, .held_fd = -1};
    if (to->fd >= 0)
        place_sweep(to->fd);
    return collect_walk(&w, pattern);
}

void collect_done(struct collect *c)
{
    arena_done(&c->arena);
    free(c->rows);
    *c = (struct collect){0};
}
