/* The private temporary directory at a path the caller chose, and how many inodes of the scratch
 * tmpfs are not the guest's. */
#include "plan/plan_internal.h"

#include <string.h>

#include "base/err.h"
#include "base/util.h"

/* Both relative to the new root. */
static bool temp_is_at_or_below(const char *path, const char *folder)
{
    size_t len = strlen(folder);
    return strncmp(path, folder, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

static const char *temp_wanted(const struct policy *policy)
{
    const char *path = policy_text(policy, FIELD_TEMP_DIR);
    return policy_bool(policy, FIELD_TEMP_DIR) && path[0] ? path : NULL;
}

static int temp_refuse(const struct policy *policy, const char *place, struct cordon_err *err)
{
    const struct origin *origin = &policy_value(policy, FIELD_TEMP_DIR)->origin;
    char where[256];
    policy_origin_place(origin, where, sizeof(where));
    err_set(err, origin->source == FROM_COMMAND ? CORDON_ERR_USAGE : CORDON_ERR_CONFIG, "plan", 0,
            "%s: temp_dir = %s: /%s is there already", where, temp_wanted(policy), place);
    return err_hint(err, "name a folder of its own, such as /tmp/work or /scratch");
}

/* Folders that are only ways to others may be covered, everything else stays what it is. */
static bool temp_is_in_the_way(const struct plan_op *op, const char *path)
{
    bool within = temp_is_at_or_below(path, op->dst), covers = temp_is_at_or_below(op->dst, path);
    if (within && str_eq(op->dst, PLAN_EMPTY_DIR)) /* it covers what is denied, and stays empty */
        return true;
    if (op->kind == PLAN_OP_SCRATCH || op->kind == PLAN_OP_DIR)
        return covers && !within;
    return within || covers;
}

/* Below a private folder it is a folder of that: no mount of its own. */
static int temp_in_scratch(struct plan *p, const struct plan_op *scratch, const char *path)
{
    const char *src = scratch->src, *rest = path + strlen(scratch->dst) + 1;
    for (size_t len = 0; rest[len];) {
        len += strcspn(rest + len + (len > 0), "/") + (len > 0);
        const char *name = arena_printf(&p->arena, "%s/%.*s", src, (int)len, rest);
        const char *dst = arena_printf(&p->arena, "%.*s", (int)((size_t)(rest - path) + len), path);
        if (!name || !dst ||
            plan_full_scratch(p, name, dst, PLAN_SCRATCH_FOLDER, rest[len] ? 0755 : 01777) < 0)
            return -1;
    }
    return 0;
}

int plan_temp_dir(struct plan *p, const struct policy *policy, const char **ret_tmp,
                  struct cordon_err *err)
{
    const char *path = temp_wanted(policy);
    const struct plan_op *scratch = NULL;
    *ret_tmp = path ? path : "/tmp";
    if (!path)
        return 0;
    if (!path[1])
        return temp_refuse(policy, "", err);
    if (!(path = arena_strdup(&p->arena, path)))
        return err_nomem(err, "plan");
    for (size_t i = 0; i < p->n_ops; i++) {
        const struct plan_op *op = &p->ops[i];
        if (temp_is_in_the_way(op, path + 1))
            return temp_refuse(policy, op->dst, err);
        if (op->kind == PLAN_OP_SCRATCH && temp_is_at_or_below(path + 1, op->dst))
            scratch = op;
    }
    if (scratch && str_eq(scratch->dst, path + 1))
        return 0;
    if (scratch) {
        struct plan_op in = *scratch; /* the list may move */
        return temp_in_scratch(p, &in, path + 1) < 0 ? err_nomem(err, "plan") : 0;
    }
    const char *name = arena_printf(&p->arena, "t%zu", p->n_ops);
    if (!name || plan_full_scratch(p, name, path + 1, 0, 01777) < 0 ||
        plan_add_fence(p, path, true, false) < 0)
        return err_nomem(err, "plan");
    /* /tmp stays the last: it covers the place that the others are taken from */
    struct plan_op *last = &p->ops[p->n_ops - 1], own = *last;
    *last = last[-1];
    last[-1] = own;
    return 0;
}

int plan_temp_check(const struct plan *p, const struct policy *policy, size_t first,
                    struct cordon_err *err)
{
    const char *path = temp_wanted(policy);
    for (size_t i = first; path && i < p->n_ops; i++)
        if (temp_is_at_or_below(path + 1, p->ops[i].dst))
            return temp_refuse(policy, p->ops[i].dst, err);
    return 0;
}

/* ---- max_files ---- */

static const struct plan_op *temp_scratch_of(const struct plan *p, const char *path)
{
    for (size_t i = 0; i < p->n_ops; i++)
        if (p->ops[i].kind == PLAN_OP_SCRATCH && !str_eq(p->ops[i].dst, path) &&
            temp_is_at_or_below(path, p->ops[i].dst))
            return &p->ops[i];
    return NULL;
}

/* Parts of path below `top` that the one before does not have as well. */
static size_t temp_count_parts(const char *path, size_t top, const char *before)
{
    size_t n = 0;
    for (const char *end = path + top + 1;; end++) {
        end += strcspn(end, "/");
        size_t len = (size_t)(end - path);
        bool shared = before && strncmp(before, path, len) == 0 &&
                      (before[len] == '/' || before[len] == '\0');
        n += !shared;
        if (!*end)
            return n;
    }
}

uint64_t plan_scratch_own(const struct plan *p)
{
    uint64_t n = 1; /* the root of the tmpfs */
    const char *before = NULL;
    for (size_t i = 0; i < p->n_ops; i++) {
        const struct plan_op *op = &p->ops[i], *in = NULL;
        if (op->kind == PLAN_OP_SCRATCH) {
            n++;
        } else if (op->kind != PLAN_OP_MASK && (in = temp_scratch_of(p, op->dst))) {
            n += temp_count_parts(op->dst, strlen(in->dst), before);
            before = op->dst;
        }
    }
    if (!str_eq(p->cwd, PLAN_HOME))
        return n;
    before = NULL;
    for (size_t i = 0; i < p->n_files; i++) {
        const char *slash = p->files[i].name;
        for (n++; (slash = strchr(slash, '/')); slash++)
            n += !before ||
                 strncmp(before, p->files[i].name, (size_t)(slash - p->files[i].name) + 1) != 0;
        before = p->files[i].name;
    }
    return n;
}
