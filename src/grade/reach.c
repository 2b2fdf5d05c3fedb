/* Grants and the files they would show. Runs in the command. */
#include "grade/reach.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/util.h"

/* What is not there shows nothing: the start refuses it, or leaves it out. */
static int reach_add(struct reach *r, enum field_id field, const char *path,
                     const struct origin *origin, struct cordon_err *err)
{
    char real[PATH_MAX], where[512];
    struct stat st;
    if (!path || !realpath(path, real) || stat(real, &st) < 0)
        return 0;
    if (r->n == r->cap) {
        size_t cap = r->cap ? 2 * r->cap : 16;
        struct reach_grant *grants = realloc(r->grants, cap * sizeof(*grants));
        if (!grants)
            return err_nomem(err, "grade");
        r->grants = grants;
        r->cap = cap;
    }
    struct reach_grant g = {
        .real = arena_strdup(&r->arena, real), .dev = st.st_dev, .ino = st.st_ino, .field = field};
    if (origin) {
        policy_origin_text(origin, where, sizeof(where));
        g.origin = arena_strdup(&r->arena, where);
    }
    if (!g.real || (origin && !g.origin))
        return err_nomem(err, "grade");
    r->grants[r->n++] = g;
    return 0;
}

int reach_init(struct reach *r, const struct policy *p, struct cordon_err *err)
{
    static const char *const runtime[] = {"/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc"};
    static const enum field_id lists[] = {FIELD_ALLOW_READ, FIELD_ALLOW_WRITE, FIELD_MOUNTS,
                                          FIELD_FILES};
    static const enum field_id paths[] = {FIELD_WORKSPACE, FIELD_VENV, FIELD_ROOTFS};
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        const struct policy_value *v = policy_value(p, lists[i]);
        for (size_t k = 0; k < v->n_items; k++) {
            const struct policy_item *item = &v->items[k];
            const char *path = lists[i] == FIELD_FILES ? item->extra : item->text;
            if (reach_add(r, lists[i], path, &item->origin, err) < 0)
                return -1;
        }
    }
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        const struct policy_value *v = policy_value(p, paths[i]);
        bool shown = v->set && (paths[i] != FIELD_WORKSPACE || v->num != WORKSPACE_NONE);
        if (shown && reach_add(r, paths[i], v->text, &v->origin, err) < 0)
            return -1;
    }
    for (size_t i = 0; i < ARRAY_SIZE(runtime); i++)
        if (reach_add(r, FIELD_COUNT_, runtime[i], NULL, err) < 0)
            return -1;
    return 0;
}

void reach_done(struct reach *r)
{
    free(r->grants);
    arena_done(&r->arena);
    *r = (struct reach){0};
}

static bool is_below(const char *path, const char *dir)
{
    size_t len = strlen(dir);
    return str_eq(dir, "/") ||
           (strncmp(path, dir, len) == 0 && (path[len] == '\0' || path[len] == '/'));
}

static const struct reach_grant *reach_same(const struct reach *r, const char *path)
{
    struct stat st;
    if (stat(path, &st) == 0)
        for (size_t i = 0; i < r->n; i++)
            if (r->grants[i].dev == st.st_dev && r->grants[i].ino == st.st_ino)
                return &r->grants[i];
    return NULL;
}

/* By name, and by what the name means: a folder may be mounted at two places, and a granted file
 * may be a second name of this one. */
static const struct reach_grant *reach_find(const struct reach *r, char *path)
{
    const struct reach_grant *found = NULL;
    bool asked = false;
    for (size_t i = 0; i < r->n; i++) {
        if (is_below(path, r->grants[i].real))
            return &r->grants[i];
        asked = asked || r->grants[i].origin;
    }
    while (asked && !found && *path) {
        found = reach_same(r, path);
        *strrchr(path, '/') = '\0';
    }
    return found || !asked ? found : reach_same(r, "/");
}

/* The real path of a file that is there, or of the place where it would be made. */
static bool real_place(const char *path, char *ret)
{
    char folder[PATH_MAX], name[NAME_MAX + 1];
    if (realpath(path, ret))
        return true;
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    if (errno != ENOENT || n >= sizeof(folder))
        return false;
    snprintf(name, sizeof(name), "%s", slash ? slash + 1 : path);
    snprintf(folder, sizeof(folder), "%.*s", slash ? (int)MAX(n, (size_t)1) : 1,
             slash ? path : ".");
    if (!realpath(folder, ret) || strlen(ret) + strlen(name) + 2 > PATH_MAX)
        return false;
    strcat(strcat(ret, "/"), name);
    return true;
}

int reach_check(const struct reach *r, const char *path, const char *what, struct cordon_err *err)
{
    char real[PATH_MAX];
    if (!path || !real_place(str_eq(path, "-") ? "/dev/stdin" : path, real))
        return 0;
    const struct reach_grant *g = reach_find(r, real);
    if (!g)
        return 0;
    err_set(err, CORDON_ERR_USAGE, "grade", 0,
            "%.200s: the submission could read this %s, it lies in %.200s (%.100s)", path, what,
            g->real, g->origin ? g->origin : "which every guest sees");
    if (g->field == FIELD_WORKSPACE && g->origin && !str_eq(g->origin, "--workspace"))
        return err_hint(err, "name a folder that has nothing of yours in it: --workspace DIR");
    return err_hint(err, "keep it outside of what the submission is shown");
}
