/* The one path that joins the stages: policy and host → plan → backend → supervise → result.
 *
 * A job runs on a loop that may carry many. When the host refuses the tier that was planned, a new
 * plan for the weaker tier is made before anything of the guest has run; when no tier can honour
 * the policy, the job fails closed. */
#ifndef RUN_RUN_H
#define RUN_RUN_H

#include <cordon.h>

#include "host/host.h"
#include "plan/plan.h"
#include "policy/policy.h"
#include "run/pool.h"
#include "run/result.h"
#include "supervise/supervise.h"
#include "workspace/collect.h"
#include "workspace/workspace.h"

/* What an overlay workspace shows after the run. */
struct run_files {
    struct workspace *workspace; /* NULL: the run had none */
    bool compared;
    struct tree_changes changes;
    struct buf diff;
    struct collect outputs;
    struct collect_target *targets; /* where outputs go, one for each; none: to a descriptor */
    size_t n_targets;
    struct protect_watch *watch; /* over folders the guest writes to directly */
    struct reach_note *note;     /* that it could write to them */
    struct files_copy *copying;  /* a child that copies the workspace; the run starts after it */
    char mode[256];              /* of an overlay that could not do everything, for the result */
};

struct run_job {
    struct loop *loop;
    struct host host; /* a copy: a refusal noted here does not outlive the job */
    const struct policy *policy;
    char *const *argv;
    const struct plan_file *files;
    size_t n_files;
    bool terminal; /* the guest's streams are a terminal of its own, not pipes */
    unsigned short rows, columns;
    const char *stage; /* of a source run, for the result; NULL: a command */
    struct supervise_options options;
    const struct backend *backend; /* another way to build the native wall; NULL: the usual one */
    char *rootfs;                  /* folder behind image or rootfs, found by run_start(); owned */
    char *const *vars;    /* the caller's variables that say where an engine is; NULL: none */
    bool has_descriptors; /* outputs may go to descriptors of ours: they are the caller's */
    bool is_handle;       /* more runs may follow from the same caller */
    const char *cwd; /* the caller's working directory, where kept workspaces go; NULL: our own */
    struct workspace *workspace; /* an open one to use instead of a new one; stays the caller's */
    struct workspace own_workspace;
    struct pool *pool; /* of prepared guests; NULL: none */
    /* Start only with a warm interpreter, which does what steps before the run would: run_start()
     * fails without one, and should it be lost before the guest's code began, on_lost is called in
     * the place of on_done. */
    bool only_interpreter;
    bool was_ready; /* the pool had a guest ready for it */
    void (*on_lost)(void *data);
    void *lost_data;
    struct run_files files_changed; /* valid once done; kept until run_done() */
    const struct plan *given; /* the plan of an equal request, to start with; stays the giver's */
    struct plan *plan;        /* owned unless it is the one given */
    struct supervised supervised;
    bool running;
    bool preparing;       /* started, and no guest yet: a copy is being made */
    struct result result; /* valid once done */
    void (*on_done)(struct run_job *job);
    void *data;
    void *source; /* whose source it is: lang/source.c */
};

/* Puts what the caller named in the place of what the probe found: the group, or the run fails.
 * Called by run_start(); `explain` shows the same. */
int run_place(const struct policy *policy, struct host *host, struct cordon_err *err);

/* policy, argv, files and what options point to must outlive the job. on_done is called once, from
 * the loop. Returns -1 (and does not call on_done) when the job never started; the result is then
 * filled from the error. */
int run_start(struct run_job *job, struct cordon_err *err);
void run_cancel(struct run_job *job);
void run_done(struct run_job *job);
/* Before the end of a process whose jobs had options.is_last. */
void run_settle(void);

#endif
