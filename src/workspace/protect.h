/* Paths of a project that make its owner's tools run something: not a guest's to change unasked. */
#ifndef WORKSPACE_PROTECT_H
#define WORKSPACE_PROTECT_H

#include "workspace/tree.h"

/* Why the path is protected ("git hook", "CI configuration"), or NULL. */
const char *protect_why(const char *path);
/* Marks the changes of protected paths, and links that lead out of the tree. */
void protect_mark(struct tree_changes *changes);
/* Does this link's target leave the folder that path lies in, or begin at the root? */
bool protect_leads_out(const char *path, const char *target);

#endif
