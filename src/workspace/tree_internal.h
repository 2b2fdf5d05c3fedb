/* Between the files of tree.h. */
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

/* The side's view of a name: the entry, and which of its layers go on below if it is a folder. */
struct tree_view {
    struct tree_entry entry;
    struct timespec ctime, mtime;
    unsigned layers;
};

/* tree_judge.c: which kind of change is it, if it is one? Folders count as absent here. */
bool tree_judge(const struct tree_options *options, const struct tree_entry *old,
                const struct tree_entry *new, const char *path, enum tree_kind *ret_kind);
/* Of a file whose contents were never seen, its size and time are there to go by. */
bool tree_judge_unread(const struct tree_view *old, const struct tree_view *new,
                       enum tree_kind *ret_kind);

struct tree_names {
    char **list;
    size_t n, cap, text;
};

/* 0, 1: not all could be listed, -1: memory is out. */
int tree_names_add(struct tree_names *names, int dir_fd);
void tree_names_done(struct tree_names *names);
int tree_names_order(const void *a, const void *b);

/* Room for one more; NULL: memory is out, and the list is as it was. */
void *tree_grow(void *list, size_t n, size_t *cap, size_t size);
/* By path, for qsort and bsearch. */
int tree_change_order(const void *a, const void *b);

#endif
