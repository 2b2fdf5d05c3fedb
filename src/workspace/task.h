/* The tree of one task: WORK_ROOT/ID/, made from files, held while a command works on it, compared,
 * removed. Runs in the caller's own process (libcordon), in any of its threads; everything below
 * the tree is a guest's work and is reached through descriptors only. */
#ifndef WORKSPACE_TASK_H
#define WORKSPACE_TASK_H

#include "workspace/tree.h"

struct task_file {
    const char *name; /* relative, in its plain form */
    const void *data;
    size_t len;
    bool is_executable;
};

/* Relative, without empty parts, "." and "..", and short enough for a path. */
bool task_is_safe_name(const char *name);

/* A new tree with these files, marked as ours; an earlier one of the same id goes. Until it is
 * whole it has another name. Out-of-place names and files that cannot be written are
 * CORDON_ERR_USAGE, and so is with EWOULDBLOCK an earlier one that is in use, and whatever lies
 * there without our mark, unless it is an empty folder. */
int task_make(const char *root, const char *id, const struct task_file *files, size_t n_files,
              struct cordon_err *err);
/* Is it there, and a folder? */
bool task_exists(const char *root, const char *id);
/* Absent is fine; in use is CORDON_ERR_USAGE with EWOULDBLOCK, not ours CORDON_ERR_USAGE. */
int task_remove(const char *root, const char *id, struct cordon_err *err);

/* A tree in use: locked, and remembered as it was. What a killed process leaves of it is named for
 * `cordon workspace gc`. */
struct task_hold {
    int root_fd, tree_fd, state_fd, before_fd;
    char state[64];
    struct timespec copied_at;
    bool is_cut;              /* not all of the tree was remembered: it is too large or too deep */
    struct tree_paths unread; /* what could not be, since it is somebody else's and closed to us */
};

#define TASK_HOLD_INIT                                                                             \
    ((struct task_hold){.root_fd = -1, .tree_fd = -1, .state_fd = -1, .before_fd = -1})

/* wait: until whoever uses the tree is done; else that is CORDON_ERR_USAGE with EWOULDBLOCK. */
int task_hold_begin(const char *root, const char *id, bool wait, struct task_hold *ret_hold,
                    struct cordon_err *err);
int task_hold_compare(struct task_hold *hold, struct tree_changes *ret_changes,
                      struct cordon_err *err);
void task_hold_end(struct task_hold *hold);

#endif
