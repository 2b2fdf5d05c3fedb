/* Between tree.c and tree_changes.c. */
#ifndef WORKSPACE_TREE_INTERNAL_H
#define WORKSPACE_TREE_INTERNAL_H

#include "workspace/tree.h"

/* A folder of the guest's that even its owner may not enter: opened up while we look. */
struct tree_fix {
    struct tree_fix *next;
    int layer_fd;
    mode_t mode;
    char path[];
};

/* Room for one more; NULL: memory is out, and the list is as it was. */
void *tree_grow(void *list, size_t n, size_t *cap, size_t size);
/* By path, for qsort and bsearch. */
int tree_change_order(const void *a, const void *b);

#endif
