/* Copies and removals of whole trees, beneath descriptors. Nothing is followed; setuid, setgid and
 * sticky bits and extended attributes stay behind; FIFOs, sockets and devices are not copied. */
#ifndef WORKSPACE_COPY_H
#define WORKSPACE_COPY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <cordon.h>

struct tree_paths;

struct copy_options {
    bool layer;     /* an overlay layer: its whiteouts and opaque marks are copied as well */
    dev_t skip_dev; /* a folder that is left out; 0: none */
    ino_t skip_ino;
    bool is_own; /* the tree is ours alone: what its mode closes to us, its owner, is read all the
                  * same. The copy is for comparing: its folders are open whatever those here are */
    struct tree_paths *unread; /* gets what could not be read: an empty folder in the copy, a file
                                * of its size and time; no room for more counts as a bound. NULL:
                                * not asked for, and such a file is empty */
    uint64_t file_bytes;       /* of larger files only the size is copied; 0: no such bound */
    /* Bounds of the whole; 0: none. Going over one is CORDON_ERR_HOST, or with ret_cut the end of
     * a copy that is not complete; so is a path longer than TREE_PATH_MAX. */
    uint64_t max_entries, max_bytes;
    uint64_t deadline_ns; /* of CLOCK_MONOTONIC */
    uint64_t keep_free;   /* bytes the file system must have left */
    bool *ret_cut;
};

/* Into an existing empty folder. What the caller cannot read is an empty file in the copy. */
int copy_tree(int from_fd, int to_fd, const struct copy_options *options, struct cordon_err *err);

/* The bytes of one file: a shared extent where the file system has that, else with its holes. */
int copy_bytes(int from, int to);

/* Removes name below dir_fd with everything in it, however deep; -1 and errno. Absent is fine. */
int copy_remove(int dir_fd, const char *name);

#endif
