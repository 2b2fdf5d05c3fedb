/* What a command of a task did. Runs in the calling program, when the guest is gone. */
#include "lib/task.h"

#include <stdio.h>

#include "base/err.h"
#include "base/util.h"
#include "workspace/events.h"
#include "workspace/patch.h"

#define TASK_DIFF_MAX ((size_t)64 << 20)

void cordon_task_result_free(struct cordon_task_result *r)
{
    if (!r)
        return;
    if (r->has_changes)
        tree_changes_done(&r->changes);
    buf_done(&r->diff);
    cordon_result_free(r->run);
    free(r);
}

struct cordon_task_result *task_result_refused(const char *command)
{
    struct cordon_task_result *r = calloc(1, sizeof(*r));
    if (!r)
        return NULL;
    r->exit_code = CORDON_ERR_REJECTED;
    snprintf(r->error, sizeof(r->error), "command not allowed: %.1000s", command);
    return r;
}

static void task_result_say(struct cordon_task_result *r, const char *what)
{
    size_t len = strlen(r->error);
    snprintf(r->error + len, sizeof(r->error) - len, "%s%s", len ? "; " : "", what);
}

/* What the list and the diff lack, if anything; after what the run itself has to say. */
static void task_result_say_missing(struct cordon_task_result *r, bool is_cut)
{
    struct tree_paths *unread = &r->changes.unread;
    if (is_cut || r->changes.truncated)
        task_result_say(r, "the workspace is too large or too deep: not every change is listed");
    if (unread->n == 0)
        return;
    char what[640], more[48] = "";
    _cleanup_buf_ struct buf first = BUF_INIT(32768);
    tree_paths_sort(unread);
    patch_quote("", *unread->list[0] ? unread->list[0] : ".", &first);
    if (unread->n > 1)
        snprintf(more, sizeof(more), " and %zu more", unread->n - 1);
    snprintf(what, sizeof(what), "%.400s%s cannot be read: what changed there is not in the diff",
             first.data ? first.data : "?", more);
    task_result_say(r, what);
}

/* The folders the list was made from are let go of after this; its paths are its own. */
static int task_result_compare(struct cordon_task_result *r, struct task_hold *hold,
                               struct cordon_err *err)
{
    if (task_hold_compare(hold, &r->changes, err) < 0)
        return -1;
    r->has_changes = true;
    /* against a part of what was there a patch would be wrong */
    int made = hold->is_cut ? 0 : tree_diff(&r->changes, TASK_DIFF_MAX, &r->diff, err);
    tree_changes_settle(&r->changes);
    if (made < 0)
        return -1;
    task_result_say_missing(r, hold->is_cut);
    return 0;
}

int task_result_make(struct task_hold *hold, struct cordon_result *run, uint64_t duration_ns,
                     struct cordon_task_result **ret_result, struct cordon_err *err)
{
    struct cordon_task_result *r = calloc(1, sizeof(*r));
    if (!r)
        return err_nomem(err, "task");
    const char *error = cordon_result_error(run);
    r->changes = TREE_CHANGES_INIT;
    r->exit_code = cordon_result_exit_code(run);
    r->duration_ns = duration_ns;
    snprintf(r->error, sizeof(r->error), "%s", error ? error : "");
    if (task_result_compare(r, hold, err) < 0) {
        cordon_task_result_free(r);
        return -1;
    }
    r->run = run;
    *ret_result = r;
    return 0;
}

int task_result_log(const struct cordon_task *task, enum cordon_task_event event,
                    char *const *command, const struct cordon_task_result *r,
                    const struct cordon_err *failure, struct cordon_err *err)
{
    struct events_row row = {.event = event == CORDON_TASK_TESTS ? "tests" : "action",
                             .cmd = command,
                             .has_result = true};
    if (r) {
        row.exit_code = r->exit_code;
        row.duration_ns = r->duration_ns;
        row.error = r->error[0] ? r->error : NULL;
        row.changes = r->has_changes ? &r->changes : NULL;
        row.diff_len = r->diff.len;
    } else {
        row.exit_code = failure->code;
        row.error = failure->message;
    }
    return events_append(task->logs, task->id, &row, err);
}

const struct cordon_result *cordon_task_result_run(const struct cordon_task_result *r)
{
    return r->run;
}

int cordon_task_result_exit_code(const struct cordon_task_result *r)
{
    return r->exit_code;
}

const char *cordon_task_result_error(const struct cordon_task_result *r)
{
    return r->error[0] ? r->error : NULL;
}

uint64_t cordon_task_result_duration_ns(const struct cordon_task_result *r)
{
    return r->duration_ns;
}

const char *cordon_task_result_diff(const struct cordon_task_result *r, size_t *ret_len)
{
    if (ret_len)
        *ret_len = r->diff.len;
    return r->diff.data ? r->diff.data : "";
}

const char *cordon_task_result_changed(const struct cordon_task_result *r, size_t index,
                                       const char **ret_kind)
{
    if (!r->has_changes || index >= r->changes.n)
        return NULL;
    if (ret_kind)
        *ret_kind = tree_kind_name(r->changes.list[index].kind);
    return r->changes.list[index].path;
}
