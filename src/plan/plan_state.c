/* Cordon's own state of this caller: notes on writable folders, caches. A guest that could write to
 * the notes could hide what it left behind, one that could write to the caches could change what
 * the next run executes. */
#include "plan/plan_internal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/util.h"
#include "policy/reach.h"

extern char **environ;

static size_t state_dirs(char ret_dirs[static REACH_DIRS + 1][PATH_MAX])
{
    size_t n = reach_dirs(environ, ret_dirs);
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

int plan_state_cover(struct plan *p, const struct plan_grant *g)
{
    char dirs[REACH_DIRS + 1][PATH_MAX], real[PATH_MAX];
    size_t n = state_dirs(dirs);
    for (size_t i = 0; i < n; i++) {
        if (!realpath(dirs[i], real) || !state_is_below(real, g->src) || str_eq(real, g->src))
            continue;
        const char *path = arena_printf(&p->arena, "%s%s", g->dst, real + strlen(g->src));
        /* a copy may be older than they are */
        if (!path ||
            plan_full_mask(p, path, PLAN_MASK_DIR | (g->overlay ? PLAN_MASK_OPTIONAL : 0)) < 0)
            return -1;
    }
    return 0;
}

int plan_state_refuse(const struct plan_grant *g, bool can_cover, struct cordon_err *err)
{
    char dirs[REACH_DIRS + 1][PATH_MAX], real[PATH_MAX];
    if (!g->write || g->overlay)
        return 0;
    size_t n = reach_dirs(environ, dirs);
    for (size_t i = 0; i < n; i++) {
        if (!realpath(dirs[i], real))
            continue;
        if (state_is_below(g->src, real))
            return err_set(err, CORDON_ERR_CONFIG, "plan", 0,
                           "%s cannot be writable to a guest: Cordon's own notes are there",
                           g->src);
        if (!can_cover && state_is_below(real, g->src)) {
            err_set(err, CORDON_ERR_HOST, "plan", 0,
                    "%s is to be writable and holds Cordon's own notes (%s), which only tier full "
                    "can cover",
                    g->src, real);
            return err_hint(err, "grant a folder further down, or set XDG_STATE_HOME elsewhere");
        }
    }
    return 0;
}
