/* Protected paths anywhere below a folder a guest writes to directly. Runs in the supervisor,
 * before the guest exists and after it is gone.
 *
 * Only the names of folders' entries are read; a file is looked at when its name is a protected
 * one. The change time is the kernel's: no guest can set it, so what changed since the start shows.
 * A cordon.toml that was carried to another place inside its folder does not change itself; for
 * that the places of all of them are remembered. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/sys.h"
#include "base/util.h"
#include "workspace/protect_internal.h"

#define WALK_FOLDERS 4096
#define WALK_ENTRIES 131072
#define WALK_INSIDE 2048 /* entries of one protected folder */
#define WALK_FOUND 1000
#define WALK_HELD 32 /* policies that are held, to be marked wherever a guest takes them */

struct walk_node {
    const char *path;
    bool has_changed; /* it, or a folder on the way to it */
};

struct walk {
    struct arena arena;
    struct walk_node *queue;
    size_t first, n, cap, entries;
    int top_fd;
    const struct protect_places *before; /* NULL: only the places are wanted */
    int64_t since_ns;
    struct protect_places *places;
    struct protect_found *found;
    bool begins[256]; /* first bytes of protected names: most names need no more than this */
};

static int64_t walk_ctime(const struct stat *st)
{
    return (int64_t)st->st_ctim.tv_sec * 1000000000 + st->st_ctim.tv_nsec;
}

static const char *walk_join(struct arena *a, const char *dir, const char *name)
{
    return *dir ? arena_printf(a, "%s/%s", dir, name) : arena_strdup(a, name);
}

static void walk_push(struct walk *w, const char *dir, const char *name, bool has_changed)
{
    const char *path = walk_join(&w->arena, dir, name);
    if (w->n >= WALK_FOLDERS || !path || strlen(path) > TREE_PATH_MAX) {
        w->places->is_cut = true;
        return;
    }
    if (w->n == w->cap) {
        size_t cap = w->cap ? w->cap * 2 : 256;
        struct walk_node *queue = reallocarray(w->queue, cap, sizeof(*queue));
        if (!queue) {
            w->places->is_cut = true;
            return;
        }
        w->queue = queue;
        w->cap = cap;
    }
    w->queue[w->n++] = (struct walk_node){path, has_changed};
}

/* ---- What was found ---- */

static void walk_found(struct walk *w, const char *path)
{
    struct protect_found *f = w->found;
    struct statx stx;
    if (f->n >= WALK_FOUND) {
        w->places->is_cut = true;
        return;
    }
    struct protect_found_row *rows = reallocarray(f->rows, f->n + 1, sizeof(*rows));
    const char *copy = arena_strdup(&f->arena, path);
    if (rows)
        f->rows = rows;
    if (!rows || !copy) {
        w->places->is_cut = true;
        return;
    }
    /* born since: new; a file system without births tells changes only */
    bool is_new = sys_statx(w->top_fd, path, AT_SYMLINK_NOFOLLOW, STATX_BTIME, &stx) == 0 &&
                  (stx.stx_mask & STATX_BTIME) &&
                  stx.stx_btime.tv_sec * 1000000000 + stx.stx_btime.tv_nsec > w->since_ns;
    f->rows[f->n++] = (struct protect_found_row){copy, is_new ? TREE_ADDED : TREE_MODIFIED};
}

/* Did anything in a protected folder change? Two levels, as far as such folders go. */
static bool walk_changed_inside(const struct walk *w, int at, const char *name, int depth,
                                unsigned *left)
{
    int fd = tree_open_dir(at, name);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    bool changed = false;
    if (!dir)
        util_close(&fd);
    for (struct dirent *e; dir && !changed && *left > 0 && (e = readdir(dir));) {
        struct stat st;
        if (str_eq(e->d_name, ".") || str_eq(e->d_name, "..") ||
            fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        (*left)--;
        changed = walk_ctime(&st) > w->since_ns ||
                  (depth > 1 && S_ISDIR(st.st_mode) &&
                   walk_changed_inside(w, fd, e->d_name, depth - 1, left));
    }
    if (dir)
        closedir(dir);
    return changed;
}

/* ---- Places of cordon.toml ---- */

static void places_add(struct walk *w, int dir_fd, const char *name, const char *path,
                       const struct stat *st)
{
    struct protect_places *p = w->places;
    struct protect_place *rows = reallocarray(p->rows, p->n + 1, sizeof(*rows));
    const char *copy = arena_strdup(&p->arena, path);
    if (rows)
        p->rows = rows;
    if (!rows || !copy) {
        p->is_cut = true;
        return;
    }
    int fd = p->n < WALK_HELD ? openat(dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC) : -1;
    p->rows[p->n++] = (struct protect_place){copy, st->st_dev, st->st_ino, fd};
}

static bool places_has(const struct protect_places *p, const char *path, const struct stat *st)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->rows[i].ino == st->st_ino && p->rows[i].dev == st->st_dev &&
            str_eq(p->rows[i].path, path))
            return true;
    return false;
}

/* A policy that is somewhere else now was the caller's own choice there, not here. Its change time
 * is set to this moment, inside the time the guest could write: the next run refuses it by that. */
static void walk_policy(struct walk *w, int dir_fd, const char *name, const char *path,
                        const struct stat *st, bool way_changed)
{
    if (!w->before) {
        places_add(w, dir_fd, name, path, st);
        return;
    }
    if (walk_ctime(st) > w->since_ns || places_has(w->before, path, st) ||
        (w->before->is_cut && !way_changed))
        return;
    const struct timespec same[2] = {st->st_atim, st->st_mtim};
    (void)!utimensat(dir_fd, name, same, AT_SYMLINK_NOFOLLOW); /* sets the change time */
    walk_found(w, path);
}

/* ---- The walk ---- */

/* One name of a folder against one row, whose name may have two parts. */
static void walk_row(struct walk *w, const struct walk_node *node, int fd, const char *name,
                     const char *row)
{
    struct stat st;
    char inside[512];
    size_t len = strcspn(row, "/");
    if (strncasecmp(name, row, len) != 0 || name[len] != '\0')
        return;
    snprintf(inside, sizeof(inside), "%s%s", name, row + len);
    const char *slash = strrchr(inside, '/');
    char folder[512] = "";
    if (slash)
        snprintf(folder, sizeof(folder), "%.*s", (int)(slash - inside), inside);
    _cleanup_close_ int below = slash ? tree_open_dir(fd, folder) : -1;
    int at = slash ? below : fd;
    const char *last = slash ? slash + 1 : inside;
    if (at < 0 || fstatat(at, last, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    const char *path = walk_join(&w->arena, node->path, inside);
    if (!path) {
        w->places->is_cut = true;
        return;
    }
    if (str_eq(row, protect_row(0)))
        walk_policy(w, at, last, path, &st, node->has_changed);
    /* what lies right below the top is compared with what it was, not by its time */
    unsigned left = WALK_INSIDE;
    if (w->before && *node->path &&
        (walk_ctime(&st) > w->since_ns ||
         (S_ISDIR(st.st_mode) && walk_changed_inside(w, at, last, 2, &left))))
        walk_found(w, path);
}

/* As the kernel writes it. */
struct walk_dirent {
    uint64_t ino;
    int64_t off;
    unsigned short len;
    unsigned char type;
    char name[];
};

static bool walk_is_folder(const struct walk *w, int fd, const struct walk_dirent *e, bool *changed)
{
    struct stat st;
    if (e->type != DT_DIR && e->type != DT_UNKNOWN)
        return false;
    /* git's own folder holds nothing but the rows that name it */
    if (strcasecmp(e->name, ".git") == 0)
        return false;
    if (e->type == DT_DIR && !(w->before && w->before->is_cut))
        return true;
    if (fstatat(fd, e->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    *changed |= walk_ctime(&st) > w->since_ns;
    return S_ISDIR(st.st_mode);
}

static void walk_name(struct walk *w, const struct walk_node *node, int fd,
                      const struct walk_dirent *e)
{
    bool changed = node->has_changed, may = w->begins[(unsigned char)e->name[0]];
    const char *row;
    if (str_eq(e->name, ".") || str_eq(e->name, ".."))
        return;
    for (size_t i = 0; may && (row = protect_row(i)); i++)
        walk_row(w, node, fd, e->name, row);
    if (walk_is_folder(w, fd, e, &changed))
        walk_push(w, node->path, e->name, changed);
}

/* The C library's own way costs four more calls a folder, and there are thousands. */
static void walk_folder(struct walk *w, const struct walk_node *node)
{
    _Alignas(struct walk_dirent) char data[32768];
    _cleanup_close_ int fd = tree_open_dir(w->top_fd, node->path);
    long n = fd < 0 ? -1 : 1;
    while (n > 0 && (n = syscall(SYS_getdents64, fd, data, sizeof(data))) > 0)
        for (long at = 0; at < n;) {
            const struct walk_dirent *e = (const void *)(data + at);
            at += e->len;
            if (++w->entries > WALK_ENTRIES) {
                w->places->is_cut = true;
                return;
            }
            walk_name(w, node, fd, e);
        }
    w->places->is_cut |= n < 0 && errno != ENOENT;
}

static void walk_all(struct walk *w)
{
    const char *row;
    for (size_t i = 0; (row = protect_row(i)); i++)
        w->begins[(unsigned char)tolower(row[0])] = w->begins[(unsigned char)toupper(row[0])] =
            true;
    walk_push(w, "", "", false);
    while (w->first < w->n) {
        struct walk_node node = w->queue[w->first++];
        walk_folder(w, &node);
    }
    free(w->queue);
    arena_done(&w->arena);
}

void protect_places(int top_fd, struct protect_places *ret)
{
    struct walk w = {.top_fd = top_fd, .places = ret};
    *ret = (struct protect_places){0};
    walk_all(&w);
}

void protect_places_done(struct protect_places *p)
{
    for (size_t i = 0; i < p->n; i++)
        util_close(&p->rows[i].fd);
    arena_done(&p->arena);
    free(p->rows);
    *p = (struct protect_places){0};
}

/* Is the policy still where it was, by folders that are no links? */
static bool place_stands(int top_fd, const struct protect_place *place)
{
    char folder[TREE_PATH_MAX + 1] = "";
    struct stat st;
    const char *slash = strrchr(place->path, '/');
    size_t len = slash ? (size_t)(slash - place->path) : 0;
    if (len >= sizeof(folder))
        return false;
    memcpy(folder, place->path, len);
    folder[len] = '\0';
    _cleanup_close_ int at = tree_open_dir(top_fd, folder);
    return at >= 0 && fstatat(at, slash ? slash + 1 : place->path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           st.st_dev == place->dev && st.st_ino == place->ino;
}

/* A guest can make more folders than are looked at, or close one: a policy it carried away is then
 * found by what was held of it. */
static void walk_held(struct walk *w)
{
    for (size_t i = 0; i < w->before->n; i++) {
        const struct protect_place *place = &w->before->rows[i];
        struct stat st;
        if (place->fd < 0 || place_stands(w->top_fd, place) || fstat(place->fd, &st) < 0 ||
            st.st_nlink == 0)
            continue;
        const struct timespec same[2] = {st.st_atim, st.st_mtim};
        (void)!utimensat(place->fd, "", same, AT_EMPTY_PATH);
        walk_found(w, place->path);
    }
}

void protect_find(int top_fd, const struct protect_places *before, int64_t since_ns,
                  struct protect_found *ret)
{
    struct protect_places now = {0};
    struct walk w = {
        .top_fd = top_fd, .before = before, .since_ns = since_ns, .places = &now, .found = ret};
    *ret = (struct protect_found){0};
    walk_all(&w);
    if (now.is_cut)
        walk_held(&w);
    ret->is_cut = now.is_cut || before->is_cut;
    protect_places_done(&now);
}

void protect_found_done(struct protect_found *f)
{
    arena_done(&f->arena);
    free(f->rows);
    *f = (struct protect_found){0};
}
