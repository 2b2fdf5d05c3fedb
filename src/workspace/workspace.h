/* Workspaces: a folder of the host (the base) that guests see and change, while the host's stays as
 * it is. What they changed lies in a state folder of ours, as an overlay layer or in a copy.
 *
 * A kept workspace has a name:  WORK_ROOT/ID/         its state
 *                               WORK_ROOT/.meta/ID    what it is; guests never see this folder
 * A folder WORK_ROOT/ID without such a record is a task's own tree: guests see it, and what a run
 * changed is put into it when the run is over. WORK_ROOT/.meta/ID~task says that Cordon made it.
 * Other states live for one run, in a temporary folder.
 *
 * Whoever works on a state holds a lock on its folder; a state that can be locked belongs to
 * nobody. */
#ifndef WORKSPACE_WORKSPACE_H
#define WORKSPACE_WORKSPACE_H

#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

#include <cordon.h>

#include "base/buf.h"
#include "workspace/tree.h"

#define WORKSPACE_ROOT ".sandbox"
#define WORKSPACE_ID_MAX 100
#define WORKSPACE_TEMP_PREFIX "cordon-workspace-"

struct workspace {
    char id[WORKSPACE_ID_MAX + 1];   /* empty: lives for one run */
    char *place;                     /* absolute: the folder the state lies in */
    char *state;                     /* absolute path of the state */
    char *base;                      /* absolute */
    int place_fd, state_fd, base_fd; /* state_fd holds the lock */
    bool is_kept;
    bool is_tree;  /* a task's own tree: base is WORK_ROOT/ID, there is no state but for a run's */
    bool is_copy;  /* guests work on STATE/copy, not on an overlay of STATE/layer */
    bool has_prev; /* STATE/prev is the layer as it was before this run */
    bool is_fresh; /* nothing was there before this run */
    bool wants_copy;         /* see workspace_copy_begin() */
    bool wants_look;         /* the same, if it turns out that the base is not all the caller's */
    bool owners_unknown;     /* the base was not looked at whole just now: see scan.h */
    struct timespec made_at; /* the file system's own clock when the state was complete */
};

/* task.c: letters, digits, '.', '_' and '-', the first neither '.' nor '-' */
bool workspace_is_id(const char *id);

/* A state for one run. */
int workspace_temp(const char *base, struct workspace *ret_ws, struct cordon_err *err);
/* A new kept one; id NULL: one is made up. base NULL: a task's own tree. */
int workspace_new(const char *root, const char *id, const char *base, struct workspace *ret_ws,
                  struct cordon_err *err);
/* An existing one. */
int workspace_open(const char *root, const char *id, struct workspace *ret_ws,
                   struct cordon_err *err);
/* Lets go; a state for one run is removed. */
void workspace_close(struct workspace *ws);
/* The same, with the removal done by a process of its own that keeps the lock until then. */
void workspace_close_beside(struct workspace *ws);
/* Throws the changes away and begins anew. */
int workspace_discard(struct workspace *ws, struct cordon_err *err);
/* Removes a workspace with its record; the caller still closes it. A tree that is not empty and has
 * no mark of ours (somebody else's folder, or one of an earlier version) only with force. */
int workspace_remove(struct workspace *ws, bool force, struct cordon_err *err);

/* workspace_run.c. Before a run: decides between overlay and copy where that is not decided yet,
 * remembers the layer. A copy, or a look at all owners of a large folder, is only asked for
 * (wants_copy, wants_look). */
int workspace_prepare(struct workspace *ws, struct cordon_err *err);
/* The kernel refused the overlay: a copy is to take its place. Only before anything was changed. */
int workspace_fall_back(struct workspace *ws, struct cordon_err *err);
/* The copy, in three steps because the second can take minutes: it touches nothing of ws and may
 * be done by a child. Its bounds: entries, time, and room that must be left on the file system. */
int workspace_copy_begin(struct workspace *ws, int *ret_fd, struct cordon_err *err);
int workspace_copy_work(const struct workspace *ws, int base_fd, int to_fd, struct cordon_err *err);
int workspace_copy_end(struct workspace *ws, struct cordon_err *err);
/* Or, in place of the second and third: no copy is needed. is_whole: everything was looked at. */
void workspace_look_end(struct workspace *ws, bool is_whole);
/* STATE/layer or STATE/copy, for the plan; the caller frees. */
char *workspace_layer(const struct workspace *ws);
/* What runs wrote there, -1: not to be had. */
int workspace_open_layer(const struct workspace *ws);

/* What changed against the base; since_run: against the state before this run. */
int workspace_compare(const struct workspace *ws, bool since_run, struct tree_changes *ret_changes,
                      struct cordon_err *err);

/* workspace_gc.c: names of kept ones, sorted, NULL-terminated, one allocation each; removal of what
 * killed runs left behind. Both never fail on what other people own. */
int workspace_list(const char *root, char ***ret_ids, struct cordon_err *err);
void workspace_list_free(char **ids);
unsigned workspace_gc(const char *root);

#endif
