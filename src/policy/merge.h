/* Layers into one policy: precedence, what clears what, and what a project's file may not allow. */
#ifndef POLICY_MERGE_H
#define POLICY_MERGE_H

#include "policy/value.h"

struct merge {
    struct policy *policy;
    unsigned layer;            /* of what is being applied; raise it with merge_next_layer */
    unsigned scratch_capped;   /* layer whose scratch_size is at most the memory limit, or 0 */
    bool denied[FIELD_COUNT_]; /* by the user's own file: a project's file cannot set these */
};

void merge_next_layer(struct merge *merge);

/* Takes over the assignment's contents whatever happens. */
int merge_apply(struct merge *merge, struct assign *assign, struct cordon_err *err);

/* Records what the assignment denies without applying it; true: it denies something. */
bool merge_note_denial(struct merge *merge, const struct assign *assign);

/* Checks that need the whole policy, values that follow from others, the text of lists. */
int merge_finish(struct merge *merge, const char *cwd, struct cordon_err *err);

/* Over-broad rules among the items of the current layer, unless all of the network was allowed. */
int merge_check_broad(const struct merge *merge, struct cordon_err *err);

/* The same for one item; code for the error. */
int merge_refuse_broad(const struct policy_item *item, int code, struct cordon_err *err);

/* Of an error whose cause was said there: usage on the command line, else configuration. */
int merge_code(const struct origin *origin);

#endif
