/* Jobs and submissions as the sides read them. Runs in the supervisor. */
#include "grade/tests_send.h"

#include <string.h>

#include "base/err.h"
#include "base/jsonw.h"
#include "base/util.h"
#include "lang/guard.h"

struct party *tests_theirs(struct tests_run *r)
{
    return r->task->in_process ? &r->desk->party : &r->user;
}

/* Rules of module control for the submission's side; NULL: none. */
static int tests_import_rules(struct tests_run *r, const char **ret, struct cordon_err *err)
{
    const struct policy *policy = r->task->policy ? r->task->policy : r->desk->place.policy;
    const char *const *vars = NULL;
    if (lang_guard_wanted(policy) &&
        lang_guard_vars(policy, ".", &tests_theirs(r)->arena, &vars, err) < 0)
        return -1;
    *ret = vars ? vars[0] + strlen("CORDON_IMPORTS=") : NULL;
    return 0;
}

int tests_send_inside(struct tests_run *r, struct cordon_err *err)
{
    _cleanup_buf_ struct buf text = BUF_INIT(CHANNEL_FRAME_MAX);
    struct jsonw j = {.out = &text};
    const char *rules;
    if (tests_import_rules(r, &rules, err) < 0)
        return -1;
    jsonw_open(&j, NULL, '{');
    jsonw_str(&j, "module", r->task->module);
    jsonw_bytes(&j, "source", r->task->source, r->task->source_len);
    jsonw_str(&j, "imports", rules);
    jsonw_str(&j, "guard", rules ? lang_guard_text : NULL);
    jsonw_close(&j, '}');
    if (text.failed)
        return err_set(err, CORDON_ERR_USAGE, "grade", 0, "the submission is too large");
    party_send(&r->desk->party, 'U', text.data, text.len);
    return 0;
}

/* Options as the guest's own reader takes them: a tagged dictionary. */
int tests_send_source(struct tests_run *r, struct cordon_err *err)
{
    const struct tests_task *t = r->task;
    const char *rules;
    if (tests_import_rules(r, &rules, err) < 0)
        return -1;
    _cleanup_buf_ struct buf text = BUF_INIT(1 << 20);
    struct jsonw j = {.out = &text};
    jsonw_open(&j, NULL, '{');
    jsonw_open(&j, "d", '[');
    jsonw_str(&j, NULL, "module");
    jsonw_str(&j, NULL, t->module);
    jsonw_str(&j, NULL, "copy_back");
    jsonw_bool(&j, NULL, t->copy_back);
    jsonw_str(&j, NULL, "entry");
    jsonw_open(&j, NULL, '[');
    for (size_t i = 0; i < t->n_entry; i++)
        jsonw_str(&j, NULL, t->entry[i]);
    jsonw_close(&j, ']');
    if (r->user.warm) {
        jsonw_str(&j, NULL, "environ");
        party_environ(&r->user, &j);
    }
    if (rules) {
        jsonw_str(&j, NULL, "imports");
        jsonw_str(&j, NULL, rules);
    }
    jsonw_close(&j, ']');
    jsonw_close(&j, '}');
    if (text.failed)
        return err_nomem(err, "grade");
    party_send_text(&r->user, text.data, text.len);
    party_send_text(&r->user, t->source, t->source_len);
    party_send_text(&r->user, rules ? lang_guard_text : "", rules ? strlen(lang_guard_text) : 0);
    return 0;
}

int tests_send_job(struct tests_run *r, struct cordon_err *err)
{
    const struct tests_task *t = r->task;
    _cleanup_buf_ struct buf text = BUF_INIT(CHANNEL_FRAME_MAX);
    struct jsonw j = {.out = &text};
    jsonw_open(&j, NULL, '{');
    jsonw_str(&j, "name", t->name);
    jsonw_str(&j, "module", t->module);
    jsonw_str(&j, "mode", t->in_process ? "in-process" : "strict");
    jsonw_bool(&j, "doctest", t->doctest);
    jsonw_bool(&j, "copy_back", t->copy_back);
    jsonw_open(&j, "entry", '[');
    for (size_t i = 0; i < t->n_entry; i++)
        jsonw_str(&j, NULL, t->entry[i]);
    jsonw_close(&j, ']');
    jsonw_str(&j, "prelude", t->prelude);
    jsonw_str(&j, "reference", t->reference);
    jsonw_bytes(&j, "tests", t->tests, t->tests_len);
    jsonw_close(&j, '}');
    if (text.failed)
        return err_set(err, CORDON_ERR_USAGE, "grade", 0, "the tests are too large");
    party_send(&r->desk->party, 'T', text.data, text.len);
    return 0;
}
