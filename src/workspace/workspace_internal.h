/* Shared by the files of the workspace room only. */
#ifndef WORKSPACE_INTERNAL_H
#define WORKSPACE_INTERNAL_H

#include "workspace/workspace.h"

#define WORKSPACE_META ".meta"                    /* records of kept workspaces */
#define WORKSPACE_TRASH ".cordon-workspace-trash" /* prefix of what is being removed */
#define WORKSPACE_NEW ".cordon-workspace-new"     /* prefix of what is being made */

void workspace_init(struct workspace *ws);
int workspace_lock(int fd, bool wait); /* task.c */

/* record.c: the text of WORK_ROOT/.meta/ID */
int record_write(const struct workspace *ws, struct cordon_err *err);
/* 1: read, 0: there is none */
int record_read(struct workspace *ws, struct cordon_err *err);
void record_remove(const struct workspace *ws);

#endif
