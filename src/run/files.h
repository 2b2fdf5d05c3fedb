/* The overlay workspace of a run. Used by run.c only. */
#ifndef RUN_FILES_H
#define RUN_FILES_H

#include "run/run.h"

/* Makes the workspace the policy asks for, once per job. 1: a copy is being made by a child, and
 * run_continue() follows from the loop. */
int files_begin(struct run_job *job, struct cordon_err *err);
/* Was it the overlay that was refused (err)? True when a copy is to take its place and a new start
 * is worth it; else err says why not. */
bool files_fall_back(struct run_job *job, struct cordon_err *err);
/* Compares and fills the result. */
void files_end(struct run_job *job);
void files_done(struct run_job *job);

/* files_copy.c: copies a folder in a child, so that the loop goes on. Always 1 or -1. */
int files_copy_begin(struct run_job *job, struct cordon_err *err);
/* Ends the child, if there is one. */
void files_copy_stop(struct run_job *job);
/* run.c: the copy is there, or err says why not. */
void run_continue(struct run_job *job, const struct cordon_err *err);

#endif
