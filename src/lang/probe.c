/* Asks languages for their versions, a few guests at a time. Runs in the command. */
#include "lang/probe.h"

#include <string.h>

#include "base/err.h"
#include "base/loop.h"
#include "base/util.h"
#include "lang/derive.h"
#include "lang/tool.h"
#include "run/run.h"

#define PROBE_AT_ONCE 4

struct probe_all;

struct probe_job {
    struct probe_all *all;
    struct lang_probe *out;
    struct policy policy;
    struct run_job run;
    bool started, done;
};

struct probe_all {
    struct loop loop;
    struct arena arena;
    struct probe_job *jobs;
    size_t n, next, running;
};

static void probe_line(struct lang_probe *out, const struct run_job *run)
{
    /* most say it on stdout, some on stderr */
    const struct result_stream *s = &run->result.out[run->result.out[0].len ? 0 : 1];
    size_t n = 0;
    for (size_t i = 0; i < s->len && s->data[i] != '\n' && n < sizeof(out->version) - 1; i++)
        if ((unsigned char)s->data[i] >= 0x20 && s->data[i] != 0x7f)
            out->version[n++] = s->data[i];
    out->version[n] = '\0';
}

static void probe_on_done(struct run_job *run)
{
    struct probe_job *job = run->data;
    job->done = true;
    job->all->running--;
    job->out->is_here = run->result.verdict == VERDICT_OK;
    if (job->out->is_here)
        probe_line(job->out, run);
    else
        snprintf(job->out->why, sizeof(job->out->why), "%.200s: %s%s%.200s",
                 job->out->lang->version[0], result_verdict_name(run->result.verdict),
                 run->result.error[0] ? ": " : "", run->result.error);
}

static int probe_policy(struct probe_job *job, const struct policy *policy,
                        const struct lang_tools *tools, struct cordon_err *err)
{
    static const struct {
        enum field_id id;
        uint64_t num;
    } limits[] = {{FIELD_TIME_LIMIT, 20000000000u},
                  {FIELD_MEMORY_LIMIT, (uint64_t)1 << 30},
                  {FIELD_PROCESSES, 256},
                  {FIELD_CPU_LIMIT, 0},
                  {FIELD_MAX_OUTPUT, 65536}};
    static const enum field_id none[] = {FIELD_WORKSPACE, FIELD_FILES,      FIELD_CPU_TIME,
                                         FIELD_MAX_FILES, FIELD_DISK_LIMIT, FIELD_MAX_FILE_SIZE};
    if (lang_derive_run(policy, job->out->lang, tools, NULL, NULL, &job->all->arena, &job->policy,
                        err) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_SIZE(none); i++)
        job->policy.values[none[i]] = (struct policy_value){0};
    for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
        struct policy_value *v = &job->policy.values[limits[i].id];
        *v = (struct policy_value){.set = true, .num = limits[i].num, .written = ""};
    }
    return 0;
}

/* Starts the guest of one language, or says at once why there is none. */
static void probe_start(struct probe_job *job, const struct policy *policy, const struct host *host,
                        char *const *vars)
{
    struct cordon_err err = {0};
    struct lang_tools tools;
    struct lang_probe *out = job->out;
    int r = lang_tool_all(out->lang, vars, &job->all->arena, &tools, &err);
    if (r == 0 && tools.n > 0)
        snprintf(out->path, sizeof(out->path), "%s", tools.list[0].real);
    if (r == 0 && !out->lang->version) {
        out->is_here = true;
        return;
    }
    if (r == 0)
        r = probe_policy(job, policy, &tools, &err);
    if (r == 0) {
        job->run =
            (struct run_job){.loop = &job->all->loop,
                             .host = *host,
                             .policy = &job->policy,
                             .argv = (char *const *)out->lang->version,
                             .options = {.sinks = {-1, -1}, .keep_output = true, .stdin_fd = -1},
                             .on_done = probe_on_done,
                             .data = job};
        job->started = true;
        r = run_start(&job->run, &err);
    }
    if (r == 0)
        job->all->running++;
    else
        snprintf(out->why, sizeof(out->why), "%.500s", err.message);
}

int lang_probe_all(const struct policy *policy, const struct host *host,
                   const struct lang_registry *registry, char *const *vars, struct lang_probe *ret,
                   struct cordon_err *err)
{
    struct probe_all all = {.jobs = calloc(registry->n + 1, sizeof(*all.jobs)), .n = registry->n};
    int r = 0;
    if (!all.jobs)
        return err_nomem(err, "languages");
    if (loop_init(&all.loop) < 0) {
        free(all.jobs);
        return err_set(err, CORDON_ERR_INTERNAL, "languages", 0, "event loop");
    }
    for (size_t i = 0; i < all.n; i++) {
        ret[i] = (struct lang_probe){.lang = &registry->rows[i]};
        all.jobs[i] = (struct probe_job){.all = &all, .out = &ret[i]};
    }
    while (r == 0 && (all.next < all.n || all.running > 0)) {
        while (all.next < all.n && all.running < PROBE_AT_ONCE)
            probe_start(&all.jobs[all.next++], policy, host, vars);
        if (all.running > 0 && loop_once(&all.loop, -1) < 0)
            r = err_set(err, CORDON_ERR_INTERNAL, "languages", 0, "event loop");
    }
    for (size_t i = 0; i < all.n; i++)
        if (all.jobs[i].started)
            run_done(&all.jobs[i].run);
    loop_done(&all.loop);
    arena_done(&all.arena);
    free(all.jobs);
    return r;
}
