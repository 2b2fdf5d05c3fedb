/* The overlay workspace of a run. Used by run.c only. */
#ifndef RUN_FILES_H
#define RUN_FILES_H

#include "run/run.h"

/* Makes the workspace the policy asks for, once per job. */
int files_begin(struct run_job *job, struct cordon_err *err);
/* The kernel refused the overlay: true when a copy has taken its place and a new start is worth it.
 */
bool files_fall_back(struct run_job *job, struct cordon_err *err);
/* Compares and fills the result. */
void files_end(struct run_job *job);
void files_done(struct run_job *job);

#endif
