/* The supervisor behind a handle of the library: many guests on one loop.
 *
 * Started by libcordon with two descriptors (lib/wire.h), it greets, then runs what it is asked to
 * until the control socket or the program it serves ends. */
#ifndef SERVE_SERVE_H
#define SERVE_SERVE_H

#include <stdbool.h>

#include "base/loop.h"
#include "host/host.h"
#include "lang/source.h"
#include "lib/wire.h"
#include "run/run.h"
#include "serve/message.h"
#include "serve/relay.h"

struct serve_job;

/* memo.c: requests that were equal byte by byte to one whose policy and plan are still there. Only
 * those whose guests can be prepared: their plan names nothing of the caller's on the host. */
struct memo {
    unsigned refs; /* the list's and one per job */
    uint64_t made_ns;
    struct message message;
    struct policy *policy;
    struct plan *plan;
};
#define SERVE_MEMOS 4
#define SERVE_SPARE 4

struct serve {
    struct loop loop;
    struct host host;
    struct pool pool;
    struct loop_watch control, host_gone;
    struct serve_job *jobs; /* every one that is not freed */
    struct serve_job *over; /* to be freed when no callback of theirs is on the stack */
    size_t n_jobs;
    struct memo *memos[SERVE_MEMOS]; /* the youngest first */
    uint64_t plan_ids;
    struct serve_job *spare[SERVE_SPARE]; /* memory of jobs that are over */
    bool closing;
};

/* One run, from its message to the last byte of its streams. */
struct serve_job {
    struct serve *serve;
    struct serve_job *prev, *next, *next_over;
    struct loop_watch client; /* the job's socket; fd -1 once nobody listens */
    struct message message;   /* with a memo: its descriptors and flags alone */
    struct memo *memo;        /* NULL: policy and plan are the job's own */
    struct policy *policy;
    struct run_job run;
    struct lang_source source;
    struct lang_job lang;
    struct arena arena; /* of the policy below */
    struct policy venv_policy;
    struct relay relays[2];
    uint64_t begun_ns; /* before anything was looked at */
    bool started, replied, is_over;
};

/* Serves until there is nobody left to serve. The exit status of the process. */
int serve_main(void);

/* job.c. From here on a request counts as taken; -1 is accepted. */
void job_take_ticket(int job_fd);
/* Takes the message over; whatever happens is said on the job's socket. It is parsed unless there
 * is a memo of an equal one, which stays the caller's. */
void job_new(struct serve *serve, struct message *message, struct memo *memo);
/* The caller has closed its side, or we end: the guest is cancelled, live output stops, a reply is
 * still sent when there is one. */
void job_end(struct serve_job *job);
void job_free(struct serve_job *job);

/* The memo of an equal request, or NULL. */
struct memo *memo_find(struct serve *serve, const struct message *message);
/* The job is over: keeps what the next equal request can use. Takes it out of the job. */
void memo_keep(struct serve_job *job);
void memo_unref(struct memo *memo);
/* Lets those go that are too old. */
void memo_sweep(struct serve *serve, bool all);

/* reply.c. False: the other side does not take it. */
bool reply_result(int sock, const struct result *result, bool brief_json);
bool reply_error(int sock, const struct cordon_err *err);
bool reply_stats(int sock, const struct serve *serve);

#endif
