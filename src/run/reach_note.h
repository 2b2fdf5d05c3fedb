/* Notes when a guest could write to a folder of the host: see policy/reach.h. */
#ifndef RUN_REACH_NOTE_H
#define RUN_REACH_NOTE_H

#include <cordon.h>

#include "policy/policy.h"

struct reach_note;

/* For every folder the policy lets the guest write to; NULL when there is none. Returns when no
 * change of the guest's can carry a time from before. */
int reach_note_begin(const struct policy *policy, struct reach_note **ret_note,
                     struct cordon_err *err);
/* The guest is gone; frees the note. */
void reach_note_end(struct reach_note *note);
/* Closes what killed commands of this caller left open. */
void reach_note_gc(void);

#endif
