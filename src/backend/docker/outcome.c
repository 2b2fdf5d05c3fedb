/* How a guest in a container ended, from what its pid 1 reported, or from the engine where it could
 * not. Runs in `cordon-docker`. */
#include <signal.h>
#include <string.h>
#include <time.h>

#include "backend/docker/session.h"
#include "base/err.h"
#include "base/util.h"

/* pid 1 ended without a report: was it the memory limit? The container is gone, the engine's list
 * of events is not. Where one is kept, what earlier commands did there is none of this one's. */
static bool outcome_was_oom(struct session *s)
{
    _cleanup_buf_ struct buf path = BUF_INIT(4096), answer = BUF_INIT(1 << 20),
                             filter = BUF_INIT(512);
    struct cordon_err drop;
    struct timespec now, since;
    clock_gettime(CLOCK_REALTIME, &now);
    since = s->inside ? s->began : (struct timespec){.tv_sec = now.tv_sec - 86400};
    buf_printf(&filter, "{\"container\":[\"%s\"],\"event\":[\"oom\"]}", s->id);
    buf_printf(&path, "/events?since=%lld.%09ld&until=%lld&filters=", (long long)since.tv_sec,
               since.tv_nsec, (long long)now.tv_sec + 1);
    engine_escape(&path, filter.data);
    return engine_call(&s->engine, "GET", path.data, NULL, ENGINE_CALL_MS, &answer, &drop) == 200 &&
           answer.len > 2;
}

static void outcome_usage(struct backend_outcome *o, const struct init_report *r)
{
    o->usage = (struct backend_usage){.cpu_user_ns = r->cpu_user_ns,
                                      .cpu_sys_ns = r->cpu_sys_ns,
                                      .peak_memory_bytes = r->peak_memory_bytes,
                                      .processes_peak = r->processes_peak,
                                      .processes_refused = r->processes_refused,
                                      .oom_kills = r->oom_kills,
                                      .throttled_ns = r->throttled_ns};
    o->memory_refused = r->memory_refused;
    o->scratch_full = r->scratch_full != 0;
    o->scratch_by_files = r->scratch_full == 2;
    o->denials_unobserved = r->denials_unobserved != 0;
    for (uint32_t i = 0; i < MIN(r->n_denials, BACKEND_DENIALS_MAX); i++)
        o->denials[o->n_denials++] = (struct backend_denial){r->denials[i].nr, r->denials[i].count};
    o->refused_unobserved = r->refused_unobserved != 0;
    o->refused_more = r->refused_more;
    for (uint32_t i = 0; i < MIN(r->n_refused, BACKEND_REFUSED_MAX); i++) {
        const struct init_refused *from = &r->refused[i];
        struct backend_refused *to = &o->refused[o->n_refused++];
        *to = (struct backend_refused){
            .is_v4 = from->is_v4 != 0, .port = from->port, .count = from->count};
        memcpy(to->addr, from->addr, sizeof(to->addr));
    }
}

/* What pid 1 saw of the container's groups before the guest began. */
static void outcome_held(const struct init_report *r, struct backend_outcome *o)
{
    o->memory_sampled = !(r->held & INIT_HELD_MEMORY);
    o->processes_sampled = !(r->held & INIT_HELD_PIDS);
    o->cpu_sampled = !(r->held & INIT_HELD_CPU);
    o->user_ns = r->user_ns != 0;
    o->internal_blocked = r->guarded != 0;
    snprintf(o->cgroup, sizeof(o->cgroup), "%s%s%s%s", r->held ? "docker" : "none",
             o->memory_sampled ? "" : " memory", o->processes_sampled ? "" : " pids",
             o->cpu_sampled ? "" : " cpu");
}

/* pid 1 could not begin. */
static void outcome_failed(const struct init_report *r, struct helper_message *m)
{
    m->type = HELPER_FAILED;
    if (strncmp(r->stage, INIT_STAGE_FOREIGN, sizeof(r->stage)) == 0) {
        err_set(&m->err, CORDON_ERR_HOST, "docker", 0,
                "the Docker engine has other files under the names that were granted");
        err_hint(&m->err, "grants need an engine on this host, in the same mount namespace");
    } else if (strncmp(r->stage, INIT_STAGE_GUARD, sizeof(r->stage)) == 0) {
        err_set(&m->err, CORDON_ERR_HOST, "docker", r->error,
                "network bridge: internal addresses cannot be blocked there");
        err_hint(&m->err,
                 "the engine's kernel needs nf_tables; --block-internal=false does without");
    } else {
        err_set(&m->err, CORDON_ERR_INTERNAL, "start", r->error, "%.31s", r->stage);
    }
}

static bool outcome_still_runs(struct session *s)
{
    _cleanup_buf_ struct buf answer = BUF_INIT(1 << 20);
    struct cordon_err drop;
    struct arena arena = {0};
    const struct jsonr_node *root;
    const char *status;
    char path[128];
    snprintf(path, sizeof(path), "/containers/%.64s/json", s->id);
    bool runs = engine_call(&s->engine, "GET", path, NULL, ENGINE_CALL_MS, &answer, &drop) == 200 &&
                engine_parse(&answer, &arena, &root, &drop) == 0 &&
                (status = jsonr_cstr(jsonr_get(jsonr_get(root, "State"), "Status"))) &&
                str_eq(status, "running");
    arena_done(&arena);
    return runs;
}

/* Nobody has said how it ended. In a kept container the process that would have is no pid 1: a
 * guest that kills everything it can kills it too, and so has ended itself. */
static void outcome_silent(struct session *s, struct backend_outcome *o)
{
    o->denials_unobserved = true;
    if (s->killed)
        return;
    if (outcome_was_oom(s)) {
        o->usage.oom_kills = 1;
    } else if (s->inside && s->stdio.started && outcome_still_runs(s)) {
        o->end = BACKEND_EXITED;
        o->wstatus = SIGKILL;
        o->ended_ns = s->ended_ns;
    }
}

/* A guest whose files are more to send than they were to keep has passed its own limit. */
static void outcome_without_files(const struct session *s, struct helper_message *m)
{
    if (s->files.full || s->files.crowded) {
        m->outcome.disk_hit |= s->files.full;
        m->outcome.files_hit |= s->files.crowded;
    } else if (s->files.failed || !s->forced) {
        m->type = HELPER_FAILED;
        err_set(&m->err, CORDON_ERR_INTERNAL, "output", 0, "the guest's files did not come whole");
    }
}

void outcome_fill(struct session *s, struct helper_message *m)
{
    const struct init_report *r = &s->stdio.report;
    struct backend_outcome *o = &m->outcome;
    m->type = HELPER_DONE;
    o->started_ns = s->started_ns;
    o->cwd_fd = -1;
    outcome_held(&s->stdio.begin, o);
    o->reused = s->inside;
    if (s->inside) /* made from an equal request, or it would not be shared */
        o->internal_blocked = s->request.block_internal;
    o->end = BACKEND_KILLED;
    if (!s->stdio.ended) {
        outcome_silent(s, o);
        return;
    }
    if (s->stdio.files && s->files.ended)
        o->cwd_fd = s->files.dirs[0];
    outcome_usage(o, r);
    o->ended_ns = s->started_ns + r->wall_ns;
    o->wstatus = r->wstatus;
    o->exec_errno = r->error;
    if (r->kind == INIT_EXITED)
        o->end = BACKEND_EXITED;
    else if (r->kind == INIT_EXEC_FAILED)
        o->end = BACKEND_EXEC_FAILED;
    else if (r->kind == INIT_CPU_TIME)
        o->cpu_time_hit = true;
    else if (r->kind == INIT_TIME)
        o->time_hit = true;
    else if (r->kind == INIT_MEMORY)
        o->memory_hit = true;
    else if (r->kind == INIT_PROCESSES)
        o->processes_hit = true;
    else if (r->kind == INIT_DISK)
        o->disk_hit = true;
    else if (r->kind == INIT_FILES)
        o->files_hit = true;
    else if (r->kind == INIT_ENDED && !s->killed) {
        m->type = HELPER_FAILED;
        err_set(&m->err, CORDON_ERR_INTERNAL, "docker", 0,
                "the container was stopped from outside: the engine stops or restarts, or somebody "
                "told it to");
        return;
    } else if (r->kind == INIT_FAILED) {
        outcome_failed(r, m);
        return;
    }
    if (s->stdio.files && !s->files.ended)
        outcome_without_files(s, m);
}
