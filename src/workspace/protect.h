/* Paths of a project that make its owner's tools run something: not a guest's to change unasked. */
#ifndef WORKSPACE_PROTECT_H
#define WORKSPACE_PROTECT_H

#include <stdbool.h>
#include <stddef.h>

#include <cordon.h>

#include "workspace/tree.h"

/* Why the path is protected ("git hook", "CI configuration"), or NULL. */
const char *protect_why(const char *path);
/* Marks the changes of protected paths, and links that lead out of the tree. */
void protect_mark(struct tree_changes *changes);
/* Protected paths below folders that a guest writes to directly: looked at before and after. */
struct protect_watch;
int protect_watch_add(struct protect_watch **watch, const char *folder, bool relative_names,
                      struct cordon_err *err);
/* When the guest is gone, and before the time it could write is noted as over: what changed further
 * down. Policies that were moved are marked as changed. */
void protect_watch_look(struct protect_watch *watch);
/* Appends what is different now; names are relative to the folder or absolute. */
int protect_watch_compare(const struct protect_watch *watch, struct tree_changes *changes,
                          struct cordon_err *err);
void protect_watch_free(struct protect_watch *watch);

/* The rows, for those who look: NULL after the last. */
const char *protect_row(size_t index);

/* Does this link's target leave the folder that path lies in, or begin at the root? */
bool protect_leads_out(const char *path, const char *target);

#endif
