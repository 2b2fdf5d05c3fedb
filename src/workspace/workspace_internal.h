/* Shared by the files of the workspace room only. */
#ifndef WORKSPACE_INTERNAL_H
#define WORKSPACE_INTERNAL_H

#include "workspace/workspace.h"

#define WORKSPACE_META ".meta"                    /* records of kept workspaces */
#define WORKSPACE_TRASH ".cordon-workspace-trash" /* prefix of what is being removed */
#define WORKSPACE_NEW ".cordon-workspace-new"     /* prefix of what is being made */

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
/* The folder of all records, made where it is missing and locked: nobody else makes or clears away
 * records as long as the descriptor is open. */
int record_hold(int place_fd);

#endif
