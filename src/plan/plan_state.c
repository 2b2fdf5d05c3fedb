/* Cordon's own state of this caller: notes on writable folders, caches, roots that lie ready. A
 * guest that could write to the notes could hide what it left behind, one that could write to the
 * rest could change what the next run executes, or where its walls stand. */
#include "plan/plan_internal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/util.h"
#include "policy/reach.h"

extern char **environ;

#define STATE_LINKS 40 /* as many as the kernel follows */

static size_t state_dirs(char ret_dirs[static REACH_DIRS + 1][PATH_MAX])
{
    size_t n = reach_dirs(environ, ret_dirs);
    /* root's: not only the notes */
    snprintf(ret_dirs[0], PATH_MAX, REACH_ROOT_DIR);
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && cache[0] == '/')
        n += snprintf(ret_dirs[n], PATH_MAX, "%s/cordon", cache) < PATH_MAX;
    else if (home && home[0] == '/')
        n += snprintf(ret_dirs[n], PATH_MAX, "%s/.cache/cordon", home) < PATH_MAX;
    return n;
}

static bool state_is_below(const char *path, const char *dir)
{
    size_t len = strlen(dir);
    return strncmp(path, dir, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

/* What is not there cannot be covered, and a guest could make it: the place of the caches is made
 * first. The notes are: this run's own is among them. */
static void state_make_cache(const struct plan_grant *g)
{
    char dirs[REACH_DIRS + 1][PATH_MAX], real[PATH_MAX];
    size_t notes = reach_dirs(environ, dirs), n = state_dirs(dirs);
    if (!g->write || g->overlay || !g->is_dir || n == notes)
        return;
    char *cache = dirs[n - 1], *end;
    /* the deepest folder on the way that is there: it must be the guest's to write to */
    for (end = cache + strlen(cache); end > cache && !realpath(cache, real);) {
        while (end > cache && *--end != '/')
            ;
        *end = '\0';
    }
    if (end == cache || !state_is_below(real, g->src))
        return;
    (void)state_dirs(dirs);
    for (end = strchr(cache + 1, '/'); end; end = strchr(end + 1, '/')) {
        *end = '\0';
        (void)mkdir(cache, 0700);
        *end = '/';
    }
    (void)mkdir(cache, 0700);
}

/* A guest could move a folder on the way, with what is covered in it, and make another. */
static int state_pin(struct plan *p, const struct plan_grant *g, const char *real)
{
    size_t top = strlen(g->src);
    if (!g->write || g->overlay)
        return 0;
    for (const char *end = strchr(real + top + 1, '/'); end; end = strchr(end + 1, '/')) {
        const char *src = arena_printf(&p->arena, "%.*s", (int)(end - real), real);
        const char *dst = src ? arena_printf(&p->arena, "%s%s", g->dst, src + top) : NULL;
        bool pinned = false;
        if (!dst)
            return -1;
        for (size_t i = 0; i < p->n_ops; i++)
            pinned |= (p->ops[i].flags & PLAN_BIND_PINNED) && str_eq(p->ops[i].dst, dst + 1);
        if (!pinned && plan_full_op(p, PLAN_OP_BIND, src, dst + 1,
                                    PLAN_BIND_GRANT | PLAN_BIND_RW | PLAN_BIND_PINNED) < 0)
            return -1;
    }
    return 0;
}

int plan_state_cover(struct plan *p, const struct plan_grant *g)
{
    char dirs[REACH_DIRS + 1][PATH_MAX], real[PATH_MAX];
    size_t n = state_dirs(dirs);
    for (size_t i = 0; i < n; i++) {
        if (!realpath(dirs[i], real) || !state_is_below(real, g->src) || str_eq(real, g->src))
            continue;
        const char *path = arena_printf(&p->arena, "%s%s", g->dst, real + strlen(g->src));
        /* a copy may be older than they are */
        if (!path || state_pin(p, g, real) < 0 ||
            plan_full_mask(p, path, PLAN_MASK_DIR | (g->overlay ? PLAN_MASK_OPTIONAL : 0)) < 0)
            return -1;
    }
    return 0;
}

/* The next part of a path, and the rest of it. */
static const char *state_part(char **rest)
{
    *rest += strspn(*rest, "/");
    char *part = *rest;
    *rest += strcspn(part, "/");
    if (**rest)
        *(*rest)++ = '\0';
    return part;
}

/* Is a link on the way to path that lies in dir? Whoever may write there can put something else in
 * its place, wherever it leads. */
static bool state_has_link(const char *path, const char *dir, char ret_link[static PATH_MAX])
{
    char at[PATH_MAX] = "", todo[PATH_MAX], target[PATH_MAX];
    char *rest = todo;
    int links = 0;
    if (!str_join(todo, sizeof(todo), path, "", ""))
        return false;
    for (const char *part = state_part(&rest); *part; part = state_part(&rest)) {
        size_t len = strlen(at);
        struct stat st;
        if (str_eq(part, ".."))
            *(len ? strrchr(at, '/') : at) = '\0';
        if (str_eq(part, ".") || str_eq(part, ".."))
            continue;
        if (snprintf(at + len, sizeof(at) - len, "/%s", part) >= (int)(sizeof(at) - len) ||
            lstat(at, &st) < 0)
            return false;
        if (!S_ISLNK(st.st_mode))
            continue;
        ssize_t n = readlink(at, target, sizeof(target) - 1);
        memcpy(ret_link, at, sizeof(at));
        at[len] = '\0';
        if (state_is_below(len ? at : "/", dir))
            return true;
        target[MAX(n, 0)] = '\0';
        char more[PATH_MAX];
        if (++links > STATE_LINKS || !str_join(more, sizeof(more), target, "/", rest))
            return false;
        if (target[0] == '/')
            at[0] = '\0';
        memcpy(rest = todo, more, sizeof(todo));
    }
    return false;
}

/* Of an overlay too: what a guest makes in its layer may be applied. What is not there cannot be
 * covered. */
static int state_keep_roots(const struct plan_grant *g, struct cordon_err *err)
{
    char real[PATH_MAX], parent[] = REACH_ROOT_DIR;
    if (geteuid() != 0 || (!g->write && !g->overlay))
        return 0;
    if (realpath(REACH_ROOT_DIR, real)) {
        if (!state_is_below(g->src, real))
            return 0;
        return err_set(err, CORDON_ERR_CONFIG, "plan", 0,
                       "%s cannot be writable to a guest: Cordon's own notes are there", g->src);
    }
    *strrchr(parent, '/') = '\0';
    if (realpath(parent, real) && state_is_below(real, g->src)) {
        mode_t mask = umask(022);
        (void)mkdir(REACH_ROOT_DIR, 0755);
        umask(mask);
    }
    return 0;
}

int plan_state_refuse(const struct plan_grant *g, bool can_cover, struct cordon_err *err)
{
    char dirs[REACH_DIRS + 1][PATH_MAX], real[PATH_MAX];
    if (state_keep_roots(g, err) < 0)
        return -1;
    if (!g->write || g->overlay)
        return 0;
    state_make_cache(g);
    size_t notes = reach_dirs(environ, dirs), n = state_dirs(dirs);
    for (size_t i = 0; i < n; i++) {
        if (state_has_link(dirs[i], g->src, real)) {
            err_set(err, CORDON_ERR_CONFIG, "plan", 0,
                    "%s is to be writable, and %s in it is a link on the way to Cordon's own %s",
                    g->src, real, i < notes ? "notes" : "caches");
            return err_hint(err, "set %s to where it leads, or grant a folder further down",
                            i < notes ? "XDG_STATE_HOME" : "XDG_CACHE_HOME");
        }
        if (!realpath(dirs[i], real))
            continue;
        if (i < notes && state_is_below(g->src, real))
            return err_set(err, CORDON_ERR_CONFIG, "plan", 0,
                           "%s cannot be writable to a guest: Cordon's own notes are there",
                           g->src);
        if (!can_cover && state_is_below(real, g->src)) {
            err_set(err, CORDON_ERR_HOST, "plan", 0,
                    "%s is to be writable and holds Cordon's own %s (%s), which only tier full can "
                    "cover",
                    g->src, i < notes ? "notes" : "caches", real);
            return err_hint(err, "grant a folder further down, or set %s elsewhere",
                            i < notes ? "XDG_STATE_HOME" : "XDG_CACHE_HOME");
        }
    }
    return 0;
}
