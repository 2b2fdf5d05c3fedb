/* Between root.c, root_template.c and root_ready.c. */
#ifndef NATIVE_ROOT_INTERNAL_H
#define NATIVE_ROOT_INTERNAL_H

#include "backend/native/native_internal.h"

struct root {
    struct native_child *c;
    int fd;          /* the new root */
    int covers[2];   /* the empty file and the empty folder, -1: not opened yet */
    bool scratch_up; /* the scratch tmpfs is mounted (below tmp) */
    bool is_copy;    /* of a template, or ready: where things are mounted is there already */
    bool has_nodes;  /* ready, and its devices are devices */
    bool dev_up;     /* its dev is mounted on itself, where devices work */
};

int root_attach(int mount_fd, int at, const char *dst);
void root_fs_op(struct root *r, const struct plan_op *op);
/* One operation of the plan. */
void root_do(struct root *r, size_t i);
/* A new root over a folder, with what act does for each operation; the working directory is in it.
 */
int root_make(struct native_child *c, const char *at, void (*act)(struct root *r, size_t i));
/* From the working directory's mount on, nothing else is in reach. */
void root_pivot(struct native_child *c);
/* The same, and the root is read-only for good. */
void root_enter(struct native_child *c);

#endif
