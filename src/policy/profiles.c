/* Listing and showing of levels and profiles. Reads the files that a run would read. */
#include "policy/show.h"

#include <errno.h>

#include "base/err.h"
#include "base/util.h"
#include "policy/levels.h"
#include "policy/resolve.h"

static bool is_replaced(struct config *const files[static RESOLVE_N_FILES], size_t from,
                        const char *name)
{
    for (size_t f = 0; f < from; f++) {
        if (config_find_profile(files[f], name))
            return true;
    }
    return false;
}

static void list_all(struct config *const files[static RESOLVE_N_FILES], struct buf *out)
{
    for (size_t i = 0; levels_at(i); i++) {
        const struct level *l = levels_at(i);
        if (!is_replaced(files, RESOLVE_N_FILES, l->name))
            buf_printf(out, "%s\t%s\t%s\n", l->name, l->is_profile ? "profile" : "level", l->doc);
    }
    for (size_t f = RESOLVE_N_FILES; f-- > 0;) {
        for (size_t i = 0; files[f] && i < files[f]->n_profiles; i++) {
            const struct config_profile *p = &files[f]->profiles[i];
            if (is_replaced(files, f, p->name))
                continue;
            buf_printf(out, "%s\tprofile\t%s:%u", p->name, files[f]->name, p->line);
            if (p->inherits)
                buf_printf(out, ", inherits %s", p->inherits);
            buf_char(out, '\n');
        }
    }
}

int policy_profiles_ls(const struct policy_input *input, struct buf *out, struct cordon_err *err)
{
    struct config *files[RESOLVE_N_FILES] = {0};
    _cleanup_free_ char *own_cwd = input->cwd ? NULL : resolve_cwd();
    const char *cwd = input->cwd ? input->cwd : own_cwd;
    if (!cwd)
        return err_nomem(err, "policy");

    int r = resolve_load_files(input, cwd, files, err);
    if (r == 0)
        list_all(files, out);
    for (size_t f = 0; f < RESOLVE_N_FILES; f++)
        config_free(files[f]);
    if (r < 0)
        policy_err_clean(err);
    return r;
}

int policy_profiles_show(const struct policy_input *input, const char *name, struct buf *out,
                         struct cordon_err *err)
{
    struct policy_input with = *input;
    struct policy *policy;
    with.profile = name;
    if (policy_resolve(&with, &policy, err) < 0)
        return -1;
    policy_explain_text(policy, out);
    policy_free(policy);
    return 0;
}
