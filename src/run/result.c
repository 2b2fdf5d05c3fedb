/* The judgement: what ended the guest, told apart from what Cordon did. Pure; runs in the
 * supervisor. */
#include "run/result.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include <unistd.h>

#include "base/jsonw.h"
#include "base/util.h"

#define EXIT_TIME 124
#define EXIT_MEMORY 125
#define EXIT_LIMIT 122
#define EXIT_CANNOT_EXEC 126

static const char *const verdict_names[] = {
    [VERDICT_OK] = "ok",
    [VERDICT_NONZERO_EXIT] = "nonzero_exit",
    [VERDICT_SIGNALED] = "signaled",
    [VERDICT_TIME_LIMIT] = "time_limit",
    [VERDICT_CPU_TIME_LIMIT] = "cpu_time_limit",
    [VERDICT_MEMORY_LIMIT] = "memory_limit",
    [VERDICT_OUTPUT_LIMIT] = "output_limit",
    [VERDICT_PROCESS_LIMIT] = "process_limit",
    [VERDICT_DISK_LIMIT] = "disk_limit",
    [VERDICT_REJECTED] = "rejected",
    [VERDICT_CANCELLED] = "cancelled",
    [VERDICT_SANDBOX_ERROR] = "sandbox_error",
};

const char *result_verdict_name(enum verdict v)
{
    return verdict_names[v];
}

bool result_timed_out(const struct result *r)
{
    return r->verdict == VERDICT_TIME_LIMIT || r->verdict == VERDICT_CPU_TIME_LIMIT;
}

static void result_limit(struct result *r, enum verdict v, int exit_code,
                         const struct policy *policy, enum field_id id, const char *sentence)
{
    r->verdict = v;
    r->exit_code = exit_code;
    r->signal = 0; /* whoever held the limit: the kernel by one, or we */
    r->limit_name = policy_fields[id].key;
    const char *written = policy_has(policy, id) ? policy_written(policy, id) : "";
    snprintf(r->limit_value, sizeof(r->limit_value), "%s", written);
    snprintf(r->error, sizeof(r->error), "%s (%s)", sentence, r->limit_value);
}

static void result_memory(struct result *r, const struct policy *policy)
{
    result_limit(r, VERDICT_MEMORY_LIMIT, EXIT_MEMORY, policy, FIELD_MEMORY_LIMIT,
                 "Memory limit exceeded");
}

/* A limit that is set and tighter than another one. */
static bool result_is_tighter(const struct policy *policy, enum field_id id, enum field_id than)
{
    uint64_t value = policy_num(policy, id), other = policy_num(policy, than);
    return value && (!other || value < other);
}

/* Of the limits that the guest's private folders stand under, the one that is reached first. */
static enum field_id result_scratch_limit(const struct policy *policy, bool by_files)
{
    enum field_id id = by_files ? FIELD_SCRATCH_INODES : FIELD_SCRATCH_SIZE;
    enum field_id asked = by_files ? FIELD_MAX_FILES : FIELD_DISK_LIMIT;
    if (policy_num(policy, asked) && !result_is_tighter(policy, id, asked))
        id = asked;
    if (!by_files && result_is_tighter(policy, FIELD_MEMORY_LIMIT, id))
        id = FIELD_MEMORY_LIMIT; /* their pages are the guest's memory */
    return id;
}

static void result_scratch(struct result *r, const struct policy *policy, bool by_files)
{
    result_limit(r, VERDICT_DISK_LIMIT, EXIT_LIMIT, policy, result_scratch_limit(policy, by_files),
                 by_files ? "File count limit exceeded" : "Disk limit exceeded");
}

/* What the caller puts into the guest's folders is larger than the caller's own limit allows:
 * neither the guest's doing nor a failure of ours. */
static bool result_does_not_fit(struct result *r, const struct cordon_err *err,
                                const struct policy *policy)
{
    if (err->sys_errno != ENOSPC || !str_eq(err->stage, "files"))
        return false;
    enum field_id bytes = result_scratch_limit(policy, false),
                  files = result_scratch_limit(policy, true);
    r->exit_code = CORDON_ERR_CONFIG;
    snprintf(r->error, sizeof(r->error), "%s: it does not fit into %s (%s) and %s (%s)",
             err->message, policy_fields[bytes].key, policy_written(policy, bytes),
             policy_fields[files].key, policy_written(policy, files));
    return true;
}

/* Without a limit of its own the guest's private folders are one. */
static void result_bytes(struct result *r, const struct policy *policy)
{
    result_limit(r, VERDICT_DISK_LIMIT, EXIT_LIMIT, policy,
                 policy_has(policy, FIELD_DISK_LIMIT) ? FIELD_DISK_LIMIT : FIELD_SCRATCH_SIZE,
                 "Disk limit exceeded");
}

static void result_files(struct result *r, const struct policy *policy)
{
    result_limit(r, VERDICT_DISK_LIMIT, EXIT_LIMIT, policy,
                 policy_has(policy, FIELD_MAX_FILES) ? FIELD_MAX_FILES : FIELD_SCRATCH_INODES,
                 "File count limit exceeded");
}

/* We ended it: the cause says why. */
static void result_by_cause(struct result *r, const struct supervised *s,
                            const struct policy *policy)
{
    switch (s->cause) {
    case CAUSE_TIME:
        result_limit(r, VERDICT_TIME_LIMIT, EXIT_TIME, policy, FIELD_TIME_LIMIT,
                     "Execution exceeded time limit");
        break;
    case CAUSE_CPU_TIME:
        result_limit(r, VERDICT_CPU_TIME_LIMIT, EXIT_TIME, policy, FIELD_CPU_TIME,
                     "Execution exceeded CPU time limit");
        break;
    case CAUSE_CPU_SHARE:
        result_limit(r, VERDICT_CPU_TIME_LIMIT, EXIT_TIME, policy, FIELD_CPU_LIMIT,
                     "Execution went on while it was paused for its CPU limit");
        break;
    case CAUSE_MEMORY: result_memory(r, policy); break;
    case CAUSE_OUTPUT:
        result_limit(r, VERDICT_OUTPUT_LIMIT, EXIT_LIMIT, policy, FIELD_MAX_OUTPUT,
                     "Output limit exceeded");
        break;
    case CAUSE_DISK:
        result_bytes(r, policy);
        if (s->plan->limits.disk_bytes && s->disk_used > s->plan->limits.disk_bytes)
            r->overshoot_bytes = s->disk_used - s->plan->limits.disk_bytes;
        break;
    case CAUSE_FILES: result_files(r, policy); break;
    case CAUSE_CANCELLED:
        r->verdict = VERDICT_CANCELLED;
        r->exit_code = CORDON_ERR_CANCELLED;
        snprintf(r->error, sizeof(r->error), "cancelled");
        break;
    case CAUSE_BROKER:
        r->verdict = VERDICT_SANDBOX_ERROR;
        r->exit_code = CORDON_ERR_INTERNAL;
        snprintf(r->error, sizeof(r->error), "network: %s",
                 s->net_failure[0] ? s->net_failure : "the broker ended unexpectedly");
        break;
    case CAUSE_STUCK:
    case CAUSE_NONE:
        r->verdict = VERDICT_SANDBOX_ERROR;
        r->exit_code = CORDON_ERR_INTERNAL;
        snprintf(r->error, sizeof(r->error), "%s",
                 s->cause == CAUSE_STUCK ? "the guest's root was not ready in time"
                                         : "the guest's first process ended unexpectedly");
        break;
    }
}

/* Peak resident sets count pages that the guest shares with the host too: beyond the limit by less
 * than this they prove nothing. */
#define RESULT_RSS_SLACK (16u << 20)

/* Where no group holds memory: a guest that was over the limit and gone before anybody looked. */
static bool result_is_over(const struct result *r, const struct plan *p)
{
    return p->limits.memory_bytes && !p->by_group.memory &&
           r->usage.peak_memory_bytes > p->limits.memory_bytes + RESULT_RSS_SLACK;
}

#define RESULT_LEAST_MEMORY (1u << 20)

/* A limit that Cordon's own first process does not fit in, and a group that was full to the last
 * page: the kernel does not count who dies of a page it cannot have as one that it chose to kill.
 */
static bool result_is_starved(const struct result *r, const struct plan *p)
{
    return p->limits.memory_bytes && p->limits.memory_bytes < RESULT_LEAST_MEMORY &&
           p->by_group.memory &&
           r->usage.peak_memory_bytes + (uint64_t)sysconf(_SC_PAGESIZE) > p->limits.memory_bytes;
}

/* It failed: because it was refused memory? Asking for more than can be given, or a program file
 * whose static arrays do (the kernel ends it half loaded: SIGSEGV, before 5.17 SIGKILL). */
static bool result_is_memory(const struct result *r, const struct plan *p,
                             const struct backend_outcome *o)
{
    if (!p->limits.memory_bytes)
        return false;
    bool unloadable = p->filter_options.map_limit && o->static_bytes > p->filter_options.map_limit;
    return o->memory_refused > 0 || ((r->signal == SIGSEGV || r->signal == SIGKILL) && unloadable);
}

/* It failed: because it was refused a process? A group counts refusals. Without one the kernel
 * tells nobody; having been at the limit is the sign then, which one process alone always is. */
static bool result_is_processes(const struct result *r, const struct plan *p,
                                const struct backend_outcome *o)
{
    if (o->usage.processes_refused > 0)
        return true;
    return !p->by_group.pids && p->limits.processes > 1 &&
           r->usage.processes_peak >= p->limits.processes;
}

/* A shell hands the signal of its last command on as its own status. */
static bool result_is_file_size(const struct result *r, const struct policy *policy)
{
    return (r->signal == SIGXFSZ || r->exit_code == 128 + SIGXFSZ) &&
           policy_has(policy, FIELD_MAX_FILE_SIZE);
}

/* It ended by itself: an exit status or a signal, unless a limit of the kernel's own keeping stood
 * behind it. */
static void result_by_exit(struct result *r, const struct supervised *s,
                           const struct policy *policy)
{
    const struct backend_outcome *o = &s->outcome;
    if (WIFSIGNALED(o->wstatus)) {
        r->verdict = VERDICT_SIGNALED;
        r->signal = WTERMSIG(o->wstatus);
        r->exit_code = 128 + r->signal;
    } else {
        r->exit_code = WEXITSTATUS(o->wstatus);
        r->verdict = r->exit_code == 0 ? VERDICT_OK : VERDICT_NONZERO_EXIT;
    }
    if (o->rejected && r->exit_code == CORDON_ERR_REJECTED) {
        const struct buf *said = &s->out[1].kept;
        const char *end = said->data ? memchr(said->data, '\n', said->len) : NULL;
        r->verdict = VERDICT_REJECTED;
        snprintf(r->error, sizeof(r->error), "%.*s", end ? (int)MIN(end - said->data, 1000) : 0,
                 said->data ? said->data : "");
        return;
    }
    if (o->usage.oom_kills > 0 || result_is_over(r, s->plan)) {
        result_memory(r, policy);
        return;
    }
    if (r->verdict == VERDICT_OK)
        return;
    if (result_is_memory(r, s->plan, o))
        result_memory(r, policy);
    else if (result_is_file_size(r, policy))
        result_limit(r, VERDICT_DISK_LIMIT, EXIT_LIMIT, policy, FIELD_MAX_FILE_SIZE,
                     "File size limit exceeded");
    else if (o->scratch_full)
        result_scratch(r, policy, o->scratch_by_files);
    else if (result_is_processes(r, s->plan, o))
        result_limit(r, VERDICT_PROCESS_LIMIT, EXIT_LIMIT, policy, FIELD_PROCESSES,
                     "Process limit exceeded");
}

static void result_by_exec(struct result *r, const struct supervised *s,
                           const struct policy *policy)
{
    int e = s->outcome.exec_errno;
    if (e == ENOMEM || s->outcome.usage.oom_kills > 0) {
        result_memory(r, policy); /* a program too large to be loaded under the limit */
        return;
    }
    r->verdict = VERDICT_NONZERO_EXIT;
    r->exit_code = e == ENOENT || e == ENOTDIR ? RESULT_NOT_FOUND : EXIT_CANNOT_EXEC;
    if (e == ENOENT || e == ENOTDIR)
        snprintf(r->error, sizeof(r->error), "%s: command not found",
                 s->plan->command[0] ? s->plan->command : "''");
    else
        snprintf(r->error, sizeof(r->error), "%s: cannot be executed: %s", s->plan->command,
                 e == ELIBACC ? "the interpreter it names is not there" : strerror(e));
}

/* A wall that ended the guest itself says for which limit. */
static bool result_by_backend(struct result *r, const struct backend_outcome *o,
                              const struct policy *policy)
{
    if (o->cpu_time_hit)
        result_limit(r, VERDICT_CPU_TIME_LIMIT, EXIT_TIME, policy, FIELD_CPU_TIME,
                     "Execution exceeded CPU time limit");
    else if (o->time_hit)
        result_limit(r, VERDICT_TIME_LIMIT, EXIT_TIME, policy, FIELD_TIME_LIMIT,
                     "Execution exceeded time limit");
    else if (o->memory_hit)
        result_memory(r, policy);
    else if (o->processes_hit)
        result_limit(r, VERDICT_PROCESS_LIMIT, EXIT_LIMIT, policy, FIELD_PROCESSES,
                     "Process limit exceeded");
    else if (o->disk_hit)
        result_bytes(r, policy);
    else if (o->files_hit)
        result_files(r, policy);
    else
        return false;
    return true;
}

void result_judge(struct result *r, const struct supervised *s, const struct policy *policy)
{
    const struct backend_outcome *o = &s->outcome;
    memset(r, 0, sizeof(*r));
    r->outcome = o;
    r->plan = s->plan;
    r->netlog = s->plan->net ? &s->netlog : NULL;
    for (int i = 0; i < 2; i++) {
        const struct stream_out *out = &s->out[i];
        r->out[i] = (struct result_stream){out->kept.data, out->kept.len,   out->truncated,
                                           out->total,     out->sink_errno, out->in_line};
    }
    r->usage = o->usage;
    r->usage.peak_memory_bytes = MAX(o->usage.peak_memory_bytes, s->peak.memory_bytes);
    r->usage.processes_peak = MAX(MAX(o->usage.processes_peak, s->processes_peak), s->peak.tasks);
    if (s->peak.cpu_user_ns + s->peak.cpu_sys_ns > o->usage.cpu_user_ns + o->usage.cpu_sys_ns) {
        r->usage.cpu_user_ns = s->peak.cpu_user_ns;
        r->usage.cpu_sys_ns = s->peak.cpu_sys_ns;
    }
    r->usage.throttled_ns = MAX(o->usage.throttled_ns, s->duty.throttled_ns);
    if (o->started_ns) {
        r->wall_ns = o->ended_ns > o->started_ns ? o->ended_ns - o->started_ns : 0;
        r->usage.processes_peak = MAX(r->usage.processes_peak, 1u);
    }

    if (o->end == BACKEND_SETUP_FAILED && s->cause == CAUSE_NONE) {
        r->verdict = VERDICT_SANDBOX_ERROR;
        if (o->usage.oom_kills > 0 || result_is_starved(r, s->plan))
            result_memory(r, policy);
        else if (!result_does_not_fit(r, &s->err, policy))
            result_from_error(r, &s->err);
        return;
    }
    /* Output that was lost to us must not look like output the guest did not write. */
    if (s->out[0].kept.failed || s->out[1].kept.failed) {
        r->verdict = VERDICT_SANDBOX_ERROR;
        r->exit_code = CORDON_ERR_INTERNAL;
        snprintf(r->error, sizeof(r->error), "supervise: out of memory for the guest's output");
        return;
    }
    /* A guest that ended by itself before our kill arrived was not ended by us; the time it took
     * decides, not who was faster. */
    if (s->cause != CAUSE_NONE && !(s->cause == CAUSE_TIME && o->end == BACKEND_EXITED &&
                                    r->wall_ns < s->plan->limits.wall_ns)) {
        result_by_cause(r, s, policy);
        return;
    }
    if (result_by_backend(r, o, policy))
        return;
    switch (o->end) {
    case BACKEND_EXITED: result_by_exit(r, s, policy); break;
    case BACKEND_EXEC_FAILED: result_by_exec(r, s, policy); break;
    case BACKEND_KILLED:
    case BACKEND_SETUP_FAILED:
        if (o->usage.oom_kills > 0 || (s->cause == CAUSE_NONE && result_is_starved(r, s->plan)))
            result_memory(r, policy); /* the kernel took the whole group, pid 1 included */
        else
            result_by_cause(r, s, policy);
        break;
    }
}

void result_from_error(struct result *r, const struct cordon_err *err)
{
    r->verdict = err->code == CORDON_ERR_REJECTED    ? VERDICT_REJECTED
                 : err->code == CORDON_ERR_CANCELLED ? VERDICT_CANCELLED
                                                     : VERDICT_SANDBOX_ERROR;
    r->exit_code = err->code;
    snprintf(r->error, sizeof(r->error), "%s: %s", err->stage, err->message);
}

void result_message(const struct result *r, struct buf *out)
{
    if (r->error[0])
        buf_printf(out, "Error: %s", r->error);
}
