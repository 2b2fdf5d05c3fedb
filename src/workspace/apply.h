/* Changes of a workspace, put into the host's folder: each file whole or not at all. */
#ifndef WORKSPACE_APPLY_H
#define WORKSPACE_APPLY_H

#include "workspace/base.h"
#include "workspace/workspace.h"

struct apply_options {
    char *const *paths; /* relative; a folder stands for all below it. NULL: everything */
    size_t n_paths;
    bool folders; /* empty folders, too: the tree is to be as the guest left it */
    bool force;   /* over what moved on the host, and protected paths that were not named */
};

struct apply_report {
    size_t applied, skipped; /* skipped: special files */
    const char **conflicts;  /* moved on the host since; borrowed from the changes */
    size_t n_conflicts;
    size_t n_barred; /* of these: below a link or a file of the host's, which force does not pass */
    const char **refused; /* protected, and neither named outright nor forced */
    size_t n_refused;
};

/* Decides first: with a conflict or a refusal nothing is written and -1 is returned with
 * CORDON_ERR_REJECTED. The target is ws->base. notes may be NULL (a tree of the task's own). */
int apply_changes(const struct workspace *ws, const struct tree_changes *changes,
                  struct base_notes *notes, const struct apply_options *options,
                  struct apply_report *report, struct cordon_err *err);
/* Files under a name of ours that killed applies of kept workspaces left in the host's folders. */
unsigned apply_gc(const char *root);

void apply_report_done(struct apply_report *report);

#endif
