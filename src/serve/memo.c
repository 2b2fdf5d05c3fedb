/* What was made of a request serves the next one that is equal to it: the same bytes give the same
 * policy and the same plan. Runs in the supervisor.
 *
 * A policy that is looked for on the disk, and a plan that binds paths the caller named, are made
 * for every run: what a name means when the run starts counts. The rest depends on the host as far
 * as a prepared guest's root does, and is forgotten sooner than that one. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/util.h"
#include "serve/serve.h"

#define MEMO_AGE_NS 1000000000ull
#define MEMO_BODY_MAX 4096 /* larger ones carry files or input, and are rarely sent again */
#define MEMO_FLAGS_NOT (WIRE_RUN_DISCOVER | WIRE_RUN_BODY_FD)

void memo_unref(struct memo *m)
{
    if (!m || --m->refs > 0)
        return;
    plan_free(m->plan);
    policy_free(m->policy);
    message_done(&m->message);
    free(m);
}

void memo_sweep(struct serve *s, bool all)
{
    uint64_t now = clock_ns();
    for (size_t i = 0; i < SERVE_MEMOS; i++)
        if (s->memos[i] && (all || s->memos[i]->made_ns + MEMO_AGE_NS < now)) {
            memo_unref(s->memos[i]);
            s->memos[i] = NULL;
        }
}

struct memo *memo_find(struct serve *s, const struct message *message)
{
    if (message->body_len > MEMO_BODY_MAX || (message->flags & MEMO_FLAGS_NOT))
        return NULL;
    memo_sweep(s, false);
    for (size_t i = 0; i < SERVE_MEMOS; i++) {
        struct memo *m = s->memos[i];
        if (m && m->message.flags == message->flags && m->message.body_len == message->body_len &&
            memcmp(m->message.body, message->body, message->body_len) == 0)
            return m;
    }
    return NULL;
}

static bool memo_is_lasting(const struct serve_job *job)
{
    const struct run_job *run = &job->run;
    const struct message *m = &job->message;
    return !job->memo && !m->is_source && !m->config_file && m->body_len <= MEMO_BODY_MAX &&
           !(m->flags & MEMO_FLAGS_NOT) && run->plan && run->policy == job->policy &&
           !run->rootfs && !run->files_changed.workspace && !run->files_changed.watch &&
           !run->files_changed.note && plan_is_parkable(run->plan) &&
           plan_count_grants(run->plan) == 0;
}

void memo_keep(struct serve_job *job)
{
    struct serve *s = job->serve;
    if (!memo_is_lasting(job) || job->begun_ns + MEMO_AGE_NS < clock_ns())
        return;
    struct memo *m = calloc(1, sizeof(*m));
    if (!m)
        return;
    *m = (struct memo){.refs = 1,
                       .made_ns = job->begun_ns,
                       .message = job->message,
                       .policy = TAKE_PTR(job->policy),
                       .plan = job->run.plan};
    m->message.job_fd = m->message.stdin_fd = -1;
    m->message.stream_fds[0] = m->message.stream_fds[1] = -1;
    m->plan->id = ++s->plan_ids;
    job->message.body = NULL;
    job->message.settings = NULL;
    job->message.argv = job->message.environ = job->message.places = NULL;
    job->run.given = job->run.plan; /* no longer the run's */
    memo_unref(s->memos[SERVE_MEMOS - 1]);
    memmove(s->memos + 1, s->memos, (SERVE_MEMOS - 1) * sizeof(s->memos[0]));
    s->memos[0] = m;
}
