/* Protected paths in folders a guest writes to directly, before and after. Runs in the supervisor.
 *
 * Right below the folder the fixed names are compared with what they were, a folder among them two
 * levels deep; further down what changed since is looked for (protect_walk.c). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/err.h"
#include "base/util.h"
#include "workspace/protect_internal.h"

#define WATCH_ROWS 96
#define WATCH_ENTRIES 2048 /* per protected folder */
#define WATCH_DEPTH 2

struct protect_watch {
    struct protect_watch *next;
    bool relative_names;
    int fd;
    char *folder;
    uint64_t signs[WATCH_ROWS]; /* 0: absent */
    int64_t since_ns;
    struct protect_places places;
    struct protect_found found;
};

static uint64_t watch_mix(uint64_t h, uint64_t v)
{
    h ^= v + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
    return h * 0xbf58476d1ce4e5b9u;
}

static uint64_t watch_stat(const struct stat *st)
{
    uint64_t h = watch_mix(1, st->st_mode);
    h = watch_mix(h, st->st_ino);
    /* a folder's own times change with reading tools; what it holds is looked at instead */
    if (S_ISDIR(st->st_mode))
        return h;
    h = watch_mix(h, (uint64_t)st->st_ctim.tv_sec);
    h = watch_mix(h, (uint64_t)st->st_ctim.tv_nsec);
    return watch_mix(h, (uint64_t)st->st_size);
}

static uint64_t watch_name(const char *name)
{
    uint64_t h = 7;
    for (; *name; name++)
        h = watch_mix(h, (unsigned char)*name);
    return h;
}

/* The sum does not depend on the order of the names. Depth is bounded by the caller. */
static uint64_t watch_folder(int at, const char *name, int depth, unsigned *left)
{
    uint64_t sum = 0;
    int fd = tree_open_dir(at, name);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        util_close(&fd);
        return 1;
    }
    for (struct dirent *e; *left > 0 && (e = readdir(dir));) {
        struct stat st;
        if (str_eq(e->d_name, ".") || str_eq(e->d_name, "..") ||
            fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        (*left)--;
        uint64_t h = watch_mix(watch_stat(&st), watch_name(e->d_name));
        if (S_ISDIR(st.st_mode) && depth > 1)
            h = watch_mix(h, watch_folder(fd, e->d_name, depth - 1, left));
        sum += h;
    }
    closedir(dir);
    return sum;
}

static uint64_t watch_sign(int fd, const char *path)
{
    struct stat st;
    const char *slash = strrchr(path, '/');
    char parent[256];
    size_t len = slash ? (size_t)(slash - path) : 0;
    memcpy(parent, path, len);
    parent[len] = '\0';
    _cleanup_close_ int dir = tree_open_dir(fd, parent);
    const char *name = slash ? slash + 1 : path;
    if (dir < 0 || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    uint64_t h = watch_stat(&st);
    unsigned left = WATCH_ENTRIES;
    if (S_ISDIR(st.st_mode))
        h = watch_mix(h, watch_folder(dir, name, WATCH_DEPTH, &left));
    return h ? h : 1;
}

int protect_watch_add(struct protect_watch **watch, const char *folder, bool relative_names,
                      struct cordon_err *err)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return 0; /* a single file, or nothing: the plan has its say about that */
    struct protect_watch *w = calloc(1, sizeof(*w));
    if (!w || !(w->folder = strdup(folder))) {
        free(w);
        close(fd);
        return err_nomem(err, "workspace");
    }
    w->fd = fd;
    w->relative_names = relative_names;
    for (size_t i = 0; i < WATCH_ROWS && protect_row(i); i++)
        w->signs[i] = watch_sign(fd, protect_row(i));
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    w->since_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    protect_places(fd, &w->places);
    w->next = *watch;
    *watch = w;
    return 0;
}

void protect_watch_look(struct protect_watch *watch)
{
    for (struct protect_watch *w = watch; w; w = w->next) {
        protect_found_done(&w->found);
        protect_find(w->fd, &w->places, w->since_ns, &w->found);
    }
}

static int watch_tell(const struct protect_watch *w, const char *name, enum tree_kind kind,
                      struct tree_changes *changes)
{
    _cleanup_buf_ struct buf path = BUF_INIT(8192);
    if (!w->relative_names)
        buf_printf(&path, "%s/", w->folder);
    buf_str(&path, name);
    return path.failed ? -1 : tree_changes_add(changes, path.data, kind);
}

int protect_watch_compare(const struct protect_watch *watch, struct tree_changes *changes,
                          struct cordon_err *err)
{
    for (const struct protect_watch *w = watch; w; w = w->next) {
        for (size_t i = 0; i < WATCH_ROWS && protect_row(i); i++) {
            uint64_t now = watch_sign(w->fd, protect_row(i));
            if (now == w->signs[i])
                continue;
            enum tree_kind kind = !now ? TREE_DELETED : !w->signs[i] ? TREE_ADDED : TREE_MODIFIED;
            if (watch_tell(w, protect_row(i), kind, changes) < 0)
                return err_nomem(err, "workspace");
        }
        for (size_t i = 0; i < w->found.n; i++)
            if (watch_tell(w, w->found.rows[i].path, w->found.rows[i].kind, changes) < 0)
                return err_nomem(err, "workspace");
        changes->truncated |= w->found.is_cut;
    }
    return 0;
}

void protect_watch_free(struct protect_watch *watch)
{
    while (watch) {
        struct protect_watch *next = watch->next;
        util_close(&watch->fd);
        protect_places_done(&watch->places);
        protect_found_done(&watch->found);
        free(watch->folder);
        free(watch);
        watch = next;
    }
}
