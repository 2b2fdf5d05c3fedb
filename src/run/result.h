/* How a run ended, as the caller sees it: one struct, one JSON object, the same in every front end.
 */
#ifndef RUN_RESULT_H
#define RUN_RESULT_H

#include <stdbool.h>
#include <stdint.h>

#include <cordon.h>

#include "backend/backend.h"
#include "base/buf.h"
#include "supervise/supervise.h"
#include "workspace/collect.h"
#include "workspace/tree.h"

enum verdict {
    VERDICT_OK,
    VERDICT_NONZERO_EXIT,
    VERDICT_SIGNALED,
    VERDICT_TIME_LIMIT,
    VERDICT_CPU_TIME_LIMIT,
    VERDICT_MEMORY_LIMIT,
    VERDICT_OUTPUT_LIMIT,
    VERDICT_PROCESS_LIMIT,
    VERDICT_DISK_LIMIT,
    VERDICT_REJECTED,
    VERDICT_CANCELLED,
    VERDICT_SANDBOX_ERROR,
};

#define RESULT_NOT_FOUND 127 /* exit status: there is no such command in the guest */

struct result_stream {
    const char *data; /* kept bytes; NULL when nothing was kept */
    size_t len;
    bool truncated;
    uint64_t bytes; /* all that was written */
    int lost_errno; /* why it could not be passed on; 0: it was, or nobody was to get it */
    bool in_line;   /* what was passed on does not end with a line */
};

struct result {
    enum verdict verdict;
    enum backend_kind backend; /* what was asked to build the wall */
    const char *stage;         /* "compile" or "run" of a source run, NULL: a command */
    int exit_code;             /* as in the exit status table; always set */
    int signal;                /* 0: none */
    const char *limit_name;    /* config key of the limit that fired, or NULL */
    char limit_value[64];      /* as the caller wrote it */
    char error[1280];          /* one line, or empty */
    struct result_stream out[2];
    uint64_t wall_ns;
    struct backend_usage usage;
    const struct backend_outcome *outcome; /* denials and what stood; NULL before a start */
    const struct plan *plan;               /* NULL before a plan */
    const struct netlog *netlog;           /* NULL: no broker */
    uint64_t overshoot_bytes;              /* how far a sampled limit was passed */
    const struct tree_changes *changes;    /* of an overlay workspace; NULL: none was compared */
    const char *diff;                      /* with changes: UTF-8, NUL-terminated */
    const struct collect *outputs;         /* files copied out; NULL: none were asked for */
    const char *workspace_id;              /* NULL: not kept */
    const char *workspace_mode;            /* NULL: no overlay workspace; "overlay" or "copy" */
};

/* From the end of a guest. Pure. The result borrows from the supervised and its plan. */
void result_judge(struct result *r, const struct supervised *s, const struct policy *policy);
/* From a failure of ours, or a refusal, before or instead of a guest. */
void result_from_error(struct result *r, const struct cordon_err *err);

const char *result_verdict_name(enum verdict v);
bool result_timed_out(const struct result *r);
/* The JSON object of SPEC section 6, without a newline. */
void result_json(const struct result *r, struct buf *out);
/* "changed_files": the list alone. */
struct jsonw;
void result_json_changes(struct jsonw *j, const struct tree_changes *changes);
/* "enforcement": what stood around the guest. */
void result_json_enforcement(struct jsonw *j, const struct result *r);
/* "Error: Execution exceeded time limit (1s)" or empty. */
void result_message(const struct result *r, struct buf *out);

#endif
