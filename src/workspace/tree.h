/* What is different between two states of a folder, found without looking at what is the same.
 *
 * A state is a plain folder (base) under an optional overlay layer (upper). Names are enumerated
 * from the layers that can differ: with the same base on both sides only the uppers are read, so
 * the cost follows what changed. Nothing is followed, nothing but folders and regular files is
 * opened. */
#ifndef WORKSPACE_TREE_H
#define WORKSPACE_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include <cordon.h>

#include "base/arena.h"
#include "base/buf.h"

#define TREE_PATH_MAX 4095               /* longer names cannot be given to a system call */
#define TREE_ENTRIES_MAX 1000000u        /* changes that are listed; then the list says it is cut */
#define TREE_TEXT_MAX ((size_t)64 << 20) /* bytes of names that are kept, likewise */

struct tree_state {
    int upper_fd; /* overlay layer, -1: none */
    int base_fd;  /* -1: an empty folder */
};

enum tree_type { TREE_ABSENT, TREE_FILE, TREE_SYMLINK, TREE_DIR, TREE_SPECIAL };

/* One path on one side. */
struct tree_entry {
    enum tree_type type;
    mode_t mode; /* permission bits without setuid, setgid and sticky */
    uint64_t size;
    int layer_fd;   /* where it lies; borrowed from the state */
    bool is_unread; /* of a copy: its contents are not there, they could not be read */
};

enum tree_kind {
    TREE_ADDED,
    TREE_MODIFIED,
    TREE_DELETED,
    TREE_MODE,     /* nothing but permission bits */
    TREE_LINKED,   /* is a symbolic link now, or another one */
    TREE_RETYPED,  /* a file where a link was */
    TREE_BINARY,   /* modified, and not text */
    TREE_NOT_FILE, /* a FIFO, socket or device: reported, never carried over */
};

struct tree_change {
    const char *path; /* relative, no leading slash; belongs to the list */
    enum tree_kind kind;
    struct tree_entry old, new;
    bool omitted; /* not in the diff's text: too large, a special file, or a name git refuses */
    bool is_protected;     /* see protect.h */
    bool is_elsewhere;     /* not of this tree: told, never applied */
    size_t added, removed; /* lines */
};

#define TREE_LARGE (UINT64_C(16) << 20) /* files that are not always there as a whole */

/* Paths in a list of their own; sorted before anybody looks one up. */
struct tree_paths {
    struct arena arena;
    const char **list;
    size_t n, cap, text;
};

/* 0, 1: there is no room for more than TREE_TEXT_MAX bytes, -1: memory is out. */
int tree_paths_add(struct tree_paths *paths, const char *path);
void tree_paths_sort(struct tree_paths *paths);
bool tree_paths_has(const struct tree_paths *paths, const char *path);
void tree_paths_done(struct tree_paths *paths);

struct tree_options {
    /* The new side is a copy of the old one made at this time (of the file system's own clock):
     * what was not touched since is not compared. 0: compare. */
    struct timespec copied_at;
    bool has_blanks; /* and what could not be read is empty there, what is no file is missing: no
                      * changes */
    /* The old side is a copy of the new one as it was, without these, which could not be read.
     * What lies in such a folder, or in one that cannot be read now, is left out; that is told by
     * the list's own `unread` and not by `truncated`. NULL: it is not such a copy. */
    const struct tree_paths *unread;
    /* A folder that is not there for this comparison (Cordon's own state). 0: none. */
    dev_t skip_dev;
    ino_t skip_ino;
};

struct tree_fix;

#define TREE_CHANGES_INIT ((struct tree_changes){.own_fds = {-1, -1}})

struct tree_changes {
    struct arena arena;
    struct tree_change *list; /* sorted by path */
    size_t n, cap;
    const char **gone_dirs; /* folders of the old side that the new one lacks, sorted */
    size_t n_gone, cap_gone;
    const char **new_dirs; /* the other way round */
    size_t n_new, cap_new;
    size_t looked;  /* names that were read to find them */
    size_t text;    /* bytes of names that are kept */
    bool truncated; /* more than TREE_ENTRIES_MAX or TREE_TEXT_MAX, deeper than TREE_PATH_MAX, or
                       unreadable folders */
    struct tree_paths unread; /* see the options; and files that a diff was to show. Not sorted */
    struct tree_fix
        *fixes;     /* folders whose mode was opened up for us; put back by tree_changes_done */
    int own_fds[2]; /* layers the list keeps open for its entries, -1: none */
};

int tree_compare(const struct tree_state *old, const struct tree_state *new,
                 const struct tree_options *options, struct tree_changes *ret_changes,
                 struct cordon_err *err);
/* Puts the modes of opened-up folders back: the states' descriptors are needed until here. */
void tree_changes_settle(struct tree_changes *changes);
void tree_changes_done(struct tree_changes *changes);
/* Adds a change that was found by other means; for lists that are not compared again. */
int tree_changes_add(struct tree_changes *changes, const char *path, enum tree_kind kind);

/* The whole as one patch for `git apply`; fills added, removed, binary kinds and omitted. At most
 * max bytes: files that no longer fit are omitted. */
int tree_diff(struct tree_changes *changes, size_t max, struct buf *ret_text,
              struct cordon_err *err);

const char *tree_kind_name(enum tree_kind kind);

/* Opens a regular file of a layer for reading, without following or waiting for anything. */
int tree_open_file(int layer_fd, const char *path);
/* Opens a folder beneath dir_fd ("" is dir_fd itself), following nothing. */
int tree_open_dir(int dir_fd, const char *path);
/* The same on the mount of dir_fd: EXDEV where another one is on the way. */
int tree_open_dir_here(int dir_fd, const char *path);
/* Can what is in an open folder be reached? That takes more than the right to list it. */
bool tree_is_open(int dir_fd);
/* Opens up a folder beneath dir_fd that its mode closes to its owner, if that is us. */
int tree_unlock(int dir_fd, const char *path, mode_t *ret_mode);
/* Opens the folder a path beneath base_fd lies in, made where it is missing; the rest is a name. */
int tree_make_parent(int base_fd, const char *path, const char **ret_name);
/* mkdir -p; the caller's own path, links in it are followed. */
int tree_make_path(const char *dir);
/* A folder of ours. Where its path ends with `own`, a name of our choosing, it may lie in a folder
 * that guests write to: no link is followed in that part, ELOOP. TREE_MAKE makes that part,
 * TREE_MAKE_ABOVE also what it lies in. */
enum { TREE_MAKE = 1, TREE_MAKE_ABOVE = 2 };
int tree_open_own(const char *path, const char *own, unsigned make, mode_t mode);
/* len letters and digits nobody can guess, and a NUL. */
void tree_random(char *text, size_t len);
/* Reads a whole file of at most PATCH_FILE_MAX bytes, or a link's target. */
int tree_read(const struct tree_entry *entry, const char *path, struct buf *out);
/* -1: cannot be read, 0: differ, 1: same bytes */
int tree_same_bytes(int a, int b);

#endif
