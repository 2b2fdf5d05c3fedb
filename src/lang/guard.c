/* Module control: the rules as text. Pure; runs in the command and the supervisor. */
#include "lang/guard.h"

#include <ctype.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/util.h"

#define GUARD_RULES_MAX (64 * 1024)

bool lang_guard_wanted(const struct policy *policy)
{
    return policy_has(policy, FIELD_ALLOWED_IMPORTS) || policy_has(policy, FIELD_BLOCKED_IMPORTS);
}

const char *lang_guard_option(const struct policy *policy)
{
    static const enum field_id ids[] = {FIELD_ALLOWED_IMPORTS, FIELD_BLOCKED_IMPORTS};
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
        const struct policy_value *v = policy_value(policy, ids[i]);
        if (v->n_items > 0 && v->items[v->n_items - 1].origin.source == FROM_COMMAND)
            return policy_fields[ids[i]].flag;
    }
    return NULL;
}

/* Identifiers with dots between them; letters beyond ASCII are Python's to judge. */
static bool guard_is_module(const char *name)
{
    bool start = true;
    for (; *name; name++) {
        unsigned char c = (unsigned char)*name;
        if (c == '.' && start)
            return false;
        if (c != '.' && c != '_' && c < 0x80 && !(start ? isalpha(c) : isalnum(c)))
            return false;
        start = c == '.';
    }
    return !start;
}

static int guard_list(struct buf *out, const struct policy_value *v, struct cordon_err *err)
{
    for (size_t i = 0; i < v->n_items; i++) {
        const struct policy_item *item = &v->items[i];
        char where[512];
        if (!guard_is_module(item->text)) {
            policy_origin_text(&item->origin, where, sizeof(where));
            err_set(err, item->origin.source == FROM_COMMAND ? CORDON_ERR_USAGE : CORDON_ERR_CONFIG,
                    "source", 0, "%s: '%.100s' is not the name of a Python module", where,
                    item->text);
            policy_err_clean(err);
            return -1;
        }
        buf_printf(out, "%s%s", i ? "," : "", item->text);
    }
    return 0;
}

int lang_guard_vars(const struct policy *policy, const char *dir, struct arena *arena,
                    const char *const **ret, struct cordon_err *err)
{
    const struct policy_value *env = policy_value(policy, FIELD_ENV);
    const char *theirs = NULL;
    for (size_t i = 0; i < env->n_items; i++)
        if (str_eq(env->items[i].text, "PYTHONPATH"))
            theirs = env->items[i].extra;

    _cleanup_buf_ struct buf rules = BUF_INIT(GUARD_RULES_MAX);
    buf_printf(&rules, "CORDON_IMPORTS=%s;",
               policy_has(policy, FIELD_ALLOWED_IMPORTS) ? "only" : "any");
    if (guard_list(&rules, policy_value(policy, FIELD_ALLOWED_IMPORTS), err) < 0)
        return -1;
    buf_char(&rules, ';');
    if (guard_list(&rules, policy_value(policy, FIELD_BLOCKED_IMPORTS), err) < 0)
        return -1;
    const char **vars = arena_alloc(arena, 3 * sizeof(*vars));
    if (rules.failed || !vars)
        return err_set(err, CORDON_ERR_USAGE, "source", 0, "too many module names");
    vars[0] = arena_strdup(arena, rules.data);
    vars[1] = theirs ? arena_printf(arena, "PYTHONPATH=%s:%s", dir, theirs)
                     : arena_printf(arena, "PYTHONPATH=%s", dir);
    if (!vars[0] || !vars[1])
        return err_nomem(err, "source");
    *ret = vars;
    return 0;
}
