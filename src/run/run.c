/* The run path. Runs in the supervisor. */
#include "run/run.h"

#include <string.h>

#include "backend/helper/helper.h"
#include "base/err.h"
#include "base/util.h"
#include "run/files.h"
#include "run/rootfs.h"

static void run_on_done(void *data);

/* The next one is made anew. */
static void run_drop_plan(struct run_job *job)
{
    if (job->plan != job->given)
        plan_free(job->plan);
    job->plan = NULL;
    job->given = NULL;
}

/* The host refused the tier: remember why, and plan again with what is left. */
static void run_note_refusal(struct run_job *job, const struct cordon_err *err)
{
    job->host.user_ns = false;
    snprintf(job->host.user_ns_why, sizeof(job->host.user_ns_why), "%.40s: %.200s", err->stage,
             err->message);
    run_drop_plan(job);
}

/* The one place where the policy's word becomes a wall. */
static const struct backend *run_backend(const struct plan *plan)
{
    return plan->backend == BACKEND_DOCKER ? &backend_helper : &backend_native;
}

/* 1: not yet, run_continue() follows. */
static int run_try(struct run_job *job, bool *ret_refused, struct cordon_err *err)
{
    struct plan_request request = {.policy = job->policy,
                                   .host = &job->host,
                                   .argv = job->argv,
                                   .files = job->files,
                                   .n_files = job->n_files,
                                   .terminal = job->terminal,
                                   .rows = job->rows,
                                   .columns = job->columns,
                                   .rootfs = job->rootfs,
                                   .vars = job->vars,
                                   .is_handle = job->is_handle};
    *ret_refused = false;
    int begun = files_begin(job, err);
    if (begun != 0)
        return begun;
    _cleanup_free_ char *layer = NULL;
    if (job->files_changed.workspace) {
        request.workspace_layer = layer = workspace_layer(job->files_changed.workspace);
        request.workspace_copy = job->files_changed.workspace->is_copy;
        request.workspace_owners = job->files_changed.workspace->owners_unknown;
        if (!layer)
            return err_nomem(err, "plan");
    }
    if (job->given)
        job->plan = (struct plan *)job->given; /* nobody changes a plan that was made */
    else if (plan_make(&request, &job->plan, err) < 0)
        return -1;
    struct supervise_options options = job->options;
    options.on_done = run_on_done;
    options.data = job;
    /* an error in the request shows before a guest is used up for it */
    uint64_t hits = job->pool ? job->pool->hits : 0;
    options.prepared = job->pool ? pool_take(job->pool, job->plan, job->only_interpreter) : NULL;
    job->was_ready = job->pool && job->pool->hits > hits;
    if (job->only_interpreter && !options.prepared) {
        run_drop_plan(job);
        return err_set(err, CORDON_ERR_INTERNAL, "pool", 0, "no interpreter is ready");
    }
    const struct backend *backend = job->backend ? job->backend : run_backend(job->plan);
    int r = supervise_start(&job->supervised, job->loop, backend, job->plan, &options, ret_refused,
                            err);
    if (options.prepared && !job->supervised.was_prepared)
        pool_not_used(job->pool, job->was_ready);
    return r;
}

/* What the judgement cannot know. */
static void run_note(struct run_job *job)
{
    job->result.stage = job->stage;
    job->result.backend = (enum backend_kind)policy_num(job->policy, FIELD_BACKEND);
}

int run_place(const struct policy *policy, struct host *host, struct cordon_err *err)
{
#ifdef CORDON_TEST_HOOKS
    const char *tier = getenv("CORDON_TEST_FORCE_TIER");
    if (tier && str_eq(tier, "landlock")) {
        host->user_ns = false;
        snprintf(host->user_ns_why, sizeof(host->user_ns_why), "refused for a test");
    }
#endif
    if (!policy_has(policy, FIELD_CGROUP))
        return 0;
    if (host_cgroups_explicit(policy_text(policy, FIELD_CGROUP), &host->cgroups, err) < 0)
        return policy_err_place(&policy_value(policy, FIELD_CGROUP)->origin, err);
    return 0;
}

int run_start(struct run_job *job, struct cordon_err *err)
{
    bool refused = false;
    int r = run_place(job->policy, &job->host, err);
    if (r == 0 && !job->rootfs)
        r = rootfs_resolve(job->policy, job->cwd, &job->rootfs, err);
    if (r == 0)
        r = run_try(job, &refused, err);
    if (r < 0 && refused) {
        run_note_refusal(job, err);
        r = run_try(job, &refused, err);
    }
    if (r < 0 && files_fall_back(job, err)) {
        run_drop_plan(job);
        r = run_try(job, &refused, err);
    }
    if (r < 0) {
        memset(&job->result, 0, sizeof(job->result));
        result_from_error(&job->result, err);
        run_note(job);
        return -1;
    }
    job->preparing = r > 0;
    job->running = r == 0;
    if (r == 0)
        supervise_catch_up(&job->supervised);
    return 0;
}

void run_continue(struct run_job *job, const struct cordon_err *failure)
{
    struct cordon_err err = *failure;
    job->preparing = false;
    /* while a folder was looked at or copied, no interpreter was asked for one, and none waits */
    if (err.code == 0 && job->only_interpreter) {
        job->only_interpreter = false;
        job->on_lost(job->lost_data);
        return;
    }
    if (err.code == 0 && run_start(job, &err) == 0)
        return;
    job->supervised.err = err;
    memset(&job->result, 0, sizeof(job->result));
    result_from_error(&job->result, &err);
    run_note(job);
    if (job->on_done)
        job->on_done(job);
}

/* A prepared guest that ended before any code of the run's began is replaced by one from nothing,
 * unless it may have taken input along that cannot be read twice. */
static bool run_lost_prepared(const struct run_job *job)
{
    const struct supervised *s = &job->supervised;
    return s->was_prepared && s->outcome.end == BACKEND_SETUP_FAILED && s->cause == CAUSE_NONE &&
           job->options.stdin_fd < 0;
}

static void run_on_done(void *data)
{
    struct run_job *job = data;
    struct supervised *s = &job->supervised;
    job->running = false;
    if (s->outcome.end == BACKEND_SETUP_FAILED && s->outcome.host_refused &&
        s->cause == CAUSE_NONE) {
        struct cordon_err err = s->err;
        supervise_free(s);
        run_note_refusal(job, &err);
        if (run_start(job, &err) == 0)
            return;
        s->err = err;
    } else if (run_lost_prepared(job)) {
        struct cordon_err err;
        supervise_free(s);
        run_drop_plan(job);
        pool_not_used(job->pool, job->was_ready);
        job->pool = NULL;
        if (job->only_interpreter) {
            job->only_interpreter = false;
            job->on_lost(job->lost_data);
            return;
        }
        if (run_start(job, &err) == 0)
            return;
        s->err = err;
    } else if (s->outcome.end == BACKEND_SETUP_FAILED && s->cause == CAUSE_NONE &&
               files_fall_back(job, &s->err)) {
        struct cordon_err err;
        supervise_free(s);
        run_drop_plan(job);
        if (run_start(job, &err) == 0)
            return;
        s->err = err;
    } else {
        result_judge(&job->result, s, job->policy);
        run_note(job);
        files_end(job);
    }
    struct pool *pool = job->pool;
    uint64_t started = s->outcome.started_ns;
    uint64_t start_ns = s->was_prepared && started > s->begin_ns ? started - s->begin_ns : 0;
    if (job->on_done)
        job->on_done(job);
    if (pool && job->plan && job->plan->backend == BACKEND_NATIVE)
        pool_note(pool, job->plan, start_ns);
}

void run_cancel(struct run_job *job)
{
    struct cordon_err err;
    if (job->running)
        supervise_end(&job->supervised, CAUSE_CANCELLED);
    if (!job->preparing)
        return;
    files_copy_stop(job);
    err_set(&err, CORDON_ERR_CANCELLED, "workspace", 0, "cancelled while the folder was copied");
    run_continue(job, &err);
}

void run_settle(void)
{
    backend_native.settle();
}

void run_done(struct run_job *job)
{
    if (job->running)
        supervise_abort(&job->supervised); /* the loop itself failed */
    job->running = false;
    job->preparing = false;
    files_done(job);
    if (job->plan)
        supervise_free(&job->supervised);
    run_drop_plan(job);
    free(job->rootfs);
    job->rootfs = NULL;
}
