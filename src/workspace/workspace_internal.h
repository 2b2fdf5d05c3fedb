/* Shared by the files of the workspace room only. */
#ifndef WORKSPACE_INTERNAL_H
#define WORKSPACE_INTERNAL_H

#include "workspace/workspace.h"

#define WORKSPACE_META ".meta"                    /* records of kept workspaces, marks of trees */
#define WORKSPACE_TRASH ".cordon-workspace-trash" /* prefix of what is being removed */
#define WORKSPACE_NEW ".cordon-workspace-new"     /* prefix of what is being made */

/* Why a folder stays that somebody wants removed: %s of the root, %s of the id. */
#define WORKSPACE_NOT_OURS "%.700s/%s is not empty and was not made by Cordon: it is not removed"

void workspace_init(struct workspace *ws);
char *workspace_join(const char *dir, const char *name); /* the caller frees */
int workspace_lock(int fd, bool wait);                   /* task.c */
/* A new folder PREFIX-NOISE, locked: the descriptor, or -1. gc leaves it alone from here on; before
 * it may take it away, and another one is made. */
#define WORKSPACE_NAME_MAX 64
int workspace_make_locked(int dir_fd, const char *prefix, mode_t mode,
                          char ret_name[static WORKSPACE_NAME_MAX]);

/* record.c: the text of WORK_ROOT/.meta/ID */
int record_write(const struct workspace *ws, struct cordon_err *err);
/* 1: read, 0: there is none */
int record_read(struct workspace *ws, struct cordon_err *err);
void record_remove(const struct workspace *ws);
void record_forget_base(const struct workspace *ws);

/* meta.c: the folder of all records, made where it is missing and locked: nobody else makes or
 * clears away records as long as the descriptor is open. Released, it goes if nothing is in it. */
int meta_hold(int place_fd);
void meta_release(int place_fd, int *fd);
/* The mark of a tree that Cordon made, which has the name folder for now; -1 and errno. */
int meta_mark(int place_fd, const char *id, const char *folder);
/* Is WORK_ROOT/ID the very folder that was marked? */
bool meta_is_marked(int place_fd, const char *id);
void meta_unmark(int place_fd, const char *id);

#endif
