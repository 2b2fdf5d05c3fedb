/* Commands of a task: the tree held and remembered, a run like any other, then the comparison.
 * Runs in the calling program. */
#include "lib/task.h"

#include <errno.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/util.h"

struct cordon_task_run {
    const struct cordon_task *task;
    struct cordon *handle;
    enum cordon_task_event event;
    char **command; /* as it was given, for the log */
    struct cordon_request *request;
    struct cordon_job *job; /* NULL: refused, or ended */
    struct cordon_task_result *refused;
    struct task_hold hold;
    uint64_t begin_ns;
    int event_fd; /* of a refused one: readable at once */
    bool was_restarted, is_over;
};

static char **run_copy_words(char *const *words)
{
    size_t n = 0;
    while (words[n])
        n++;
    char **copy = calloc(n + 1, sizeof(*copy));
    for (size_t i = 0; copy && i < n; i++)
        if (!(copy[i] = strdup(words[i]))) {
            while (i > 0)
                free(copy[--i]);
            free(copy);
            return NULL;
        }
    return copy;
}

/* ---- The request ---- */

static bool run_is_proxy(const char *pair)
{
    static const char tail[] = "_proxy";
    size_t len = strcspn(pair, "=");
    return len >= strlen(tail) && strncasecmp(pair + len - strlen(tail), tail, strlen(tail)) == 0;
}

static int run_set_env(struct cordon_request *q, enum cordon_task_event event,
                       const char *const *env, struct cordon_err *err)
{
    if (cordon_request_set(q, "env", "PYTHONDONTWRITEBYTECODE=1", err) < 0 ||
        (event == CORDON_TASK_TESTS &&
         cordon_request_set(q, "env", "PYTEST_ADDOPTS=-p no:cacheprovider", err) < 0))
        return -1;
    for (; env && *env; env++)
        if (!run_is_proxy(*env) && cordon_request_set(q, "env", *env, err) < 0)
            return -1;
    return cordon_request_set(q, "env", "NO_PROXY=*", err);
}

static int run_set_limits(struct cordon_request *q, const struct cordon_task *t,
                          const struct cordon_task_action *a, struct cordon_err *err)
{
    _cleanup_buf_ struct buf workspace = BUF_INIT(65536);
    buf_printf(&workspace, "%s:rw", t->path);
    if (workspace.failed)
        return err_nomem(err, "task");
    if (cordon_request_set(q, "max_output", "16M", err) < 0 ||
        cordon_request_set(q, "cpu_time", t->cpu_time, err) < 0 ||
        cordon_request_set(q, "memory_limit", t->memory_limit, err) < 0 ||
        cordon_request_set(q, "backend", t->backend, err) < 0)
        return -1;
    for (char **s = t->settings; *s; s += 2)
        if (cordon_request_set(q, s[0], s[1], err) < 0)
            return -1;
    return cordon_request_set(q, "time_limit", a->time_limit ? a->time_limit : t->time_limit, err) <
                   0
               ? -1
               : cordon_request_set(q, "workspace", workspace.data, err);
}

static int run_make_request(struct cordon_task_run *r, const struct cordon_task_action *a,
                            const char *binary, struct cordon_err *err)
{
    struct cordon_request *q = r->request = cordon_request_new();
    if (!q)
        return err_nomem(err, "task");
    /* the path that was looked up once stands for the name */
    char *first = r->command[0];
    r->command[0] = (char *)(uintptr_t)binary;
    int set = cordon_request_set_argv(q, r->command, err);
    r->command[0] = first;
    if (set < 0 || run_set_limits(q, r->task, a, err) < 0 ||
        run_set_env(q, r->event, a->env, err) < 0 ||
        cordon_request_set_flags(q, CORDON_REQUEST_BRIEF_JSON, err) < 0)
        return -1;
    return a->stdin_data ? cordon_request_set_stdin(q, a->stdin_data, a->stdin_len, err) : 0;
}

/* ---- Start ---- */

static int run_begin(struct cordon_task_run *r, const struct cordon_task_action *a, bool wait,
                     struct cordon_err *err)
{
    const char *binary = task_binary(r->task, a->command[0]);
    if (!task_exists(r->task->root, r->task->id))
        return err_set(err, CORDON_ERR_USAGE, "task", 0,
                       "%.900s is not there: it has to be prepared first", r->task->path);
    if (!binary) {
        r->event_fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
        r->refused = task_result_refused(a->command[0]);
        return r->refused ? 0 : err_nomem(err, "task");
    }
    if (run_make_request(r, a, binary, err) < 0 ||
        task_hold_begin(r->task->root, r->task->id, wait, &r->hold, err) < 0)
        return -1;
    r->begin_ns = clock_ns();
    return cordon_start(r->handle, r->request, &r->job, err);
}

static int run_start(struct cordon *handle, const struct cordon_task *task,
                     enum cordon_task_event event, const struct cordon_task_action *given,
                     bool wait, struct cordon_task_run **ret, struct cordon_err *err)
{
    static char *const tests[] = {"python3", "-m", "pytest", "-q", NULL};
    struct cordon_task_action a = {0};
    if (given)
        memcpy(&a, given, MIN(given->size, sizeof(a)));
    if (event != CORDON_TASK_ACTION && event != CORDON_TASK_TESTS)
        return err_set(err, CORDON_ERR_USAGE, "task", 0, "neither an action nor tests");
    if (!a.command && event == CORDON_TASK_TESTS)
        a.command = tests;
    if (!a.command || !a.command[0] || !*a.command[0])
        return err_set(err, CORDON_ERR_USAGE, "task", 0, "an action needs a command");
    struct cordon_task_run *r = calloc(1, sizeof(*r));
    if (!r || !(r->command = run_copy_words(a.command))) {
        free(r);
        return err_nomem(err, "task");
    }
    r->task = task;
    r->handle = handle;
    r->event = event;
    r->event_fd = -1;
    r->hold = TASK_HOLD_INIT;
    if (run_begin(r, &a, wait, err) < 0) {
        cordon_task_run_free(r);
        return -1;
    }
    *ret = r;
    return 0;
}

int cordon_task_start(struct cordon *handle, const struct cordon_task *task,
                      enum cordon_task_event event, const struct cordon_task_action *action,
                      struct cordon_task_run **ret_run, struct cordon_err *err)
{
    return run_start(handle, task, event, action, false, ret_run, err);
}

int cordon_task_run_fd(struct cordon_task_run *r)
{
    return r->job ? cordon_job_fd(r->job) : r->event_fd;
}

/* ---- End ---- */

/* A request that a dying supervisor never took is begun once more. */
static bool run_restart(struct cordon_task_run *r, const struct cordon_err *failure)
{
    if (r->was_restarted || failure->sys_errno != ECONNRESET)
        return false;
    struct cordon_err drop;
    r->was_restarted = true;
    cordon_job_free(r->job);
    r->job = NULL;
    return cordon_start(r->handle, r->request, &r->job, &drop) == 0;
}

/* 1: ended, 0: not yet. */
static int run_take(struct cordon_task_run *r, int timeout_ms, struct cordon_result **ret,
                    struct cordon_err *err)
{
    uint64_t until = clock_ns() + (uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * 1000000u;
    for (;;) {
        struct cordon_result *result = NULL;
        if (cordon_job_wait(r->job, timeout_ms, &result, err) == 0) {
            *ret = result;
            return result ? 1 : 0;
        }
        if (!run_restart(r, err))
            return -1;
        uint64_t now = clock_ns();
        if (timeout_ms > 0)
            timeout_ms = now < until ? (int)((until - now) / 1000000u) : 0;
    }
}

static int run_finish(struct cordon_task_run *r, struct cordon_result *ended,
                      struct cordon_task_result **ret, struct cordon_err *err)
{
    struct cordon_task_result *result = NULL;
    uint64_t duration_ns = clock_ns() - r->begin_ns;
    if (task_result_make(&r->hold, ended, duration_ns, &result, err) < 0) {
        cordon_result_free(ended);
        return -1;
    }
    if (task_result_log(r->task, r->event, r->command, result, NULL, err) < 0) {
        cordon_task_result_free(result);
        return -1;
    }
    *ret = result;
    return 0;
}

int cordon_task_run_wait(struct cordon_task_run *r, int timeout_ms,
                         struct cordon_task_result **ret_result, struct cordon_err *err)
{
    struct cordon_err own = {0};
    struct cordon_err *e = err ? err : &own, drop;
    struct cordon_result *ended = NULL;
    if (r->is_over)
        return err_set(err, CORDON_ERR_USAGE, "task", 0, "the result was given already");
    if (r->refused) {
        r->is_over = true;
        if (task_result_log(r->task, r->event, r->command, r->refused, NULL, err) < 0)
            return -1;
        *ret_result = TAKE_PTR(r->refused);
        return 0;
    }
    int taken = r->job ? run_take(r, timeout_ms, &ended, e)
                       : err_set(e, CORDON_ERR_INTERNAL, "task", 0, "the run was lost");
    if (taken == 0) {
        *ret_result = NULL;
        return 0;
    }
    r->is_over = true;
    if (taken > 0) {
        taken = run_finish(r, ended, ret_result, e);
    } else {
        /* the log's own failure is less than what it was to tell */
        (void)task_result_log(r->task, r->event, r->command, NULL, e, &drop);
    }
    task_hold_end(&r->hold);
    return taken;
}

int cordon_task_run_cancel(struct cordon_task_run *r, struct cordon_err *err)
{
    return r->job && !r->is_over ? cordon_job_cancel(r->job, err) : 0;
}

void cordon_task_run_free(struct cordon_task_run *r)
{
    if (!r)
        return;
    cordon_job_free(r->job);
    cordon_request_free(r->request);
    cordon_task_result_free(r->refused);
    task_hold_end(&r->hold);
    util_close(&r->event_fd);
    for (char **word = r->command; word && *word; word++)
        free(*word);
    free(r->command);
    free(r);
}

int cordon_task_run(struct cordon *handle, const struct cordon_task *task,
                    enum cordon_task_event event, const struct cordon_task_action *action,
                    struct cordon_task_result **ret_result, struct cordon_err *err)
{
    struct cordon_task_run *r;
    if (run_start(handle, task, event, action, true, &r, err) < 0)
        return -1;
    int done = cordon_task_run_wait(r, -1, ret_result, err);
    cordon_task_run_free(r);
    return done;
}
