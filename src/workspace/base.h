/* How the host's files looked under what a workspace changed: tells whether the host's tree moved
 * since. Kept beside the workspace's record. */
#ifndef WORKSPACE_BASE_H
#define WORKSPACE_BASE_H

#include "workspace/workspace.h"

struct base_notes;

/* Reads the notes of a kept workspace; none is not an error. */
int base_load(const struct workspace *ws, struct base_notes **ret_notes, struct cordon_err *err);
/* Adds notes for changed paths that have none yet. */
int base_note(const struct workspace *ws, struct base_notes *notes,
              const struct tree_changes *changes, struct cordon_err *err);
/* The host's file is ours now: note it as it is. */
int base_renew(const struct workspace *ws, struct base_notes *notes, const char *path,
               struct cordon_err *err);
/* Is the host's file another one than the guest saw? */
bool base_has_moved(const struct workspace *ws, const struct base_notes *notes, const char *path);
int base_save(const struct workspace *ws, const struct base_notes *notes, struct cordon_err *err);
void base_free(struct base_notes *notes);

#endif
