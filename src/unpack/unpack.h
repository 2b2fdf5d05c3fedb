/* Shared by the files of cordon-unpack: archives and image layouts into a folder of the cache.
 *
 * Everything read here may be hostile. What is written goes below one held folder, never through a
 * link that the archive put there, and never with a right: no owner, no setuid, no device, no
 * extended attribute. */
#ifndef UNPACK_UNPACK_H
#define UNPACK_UNPACK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include <cordon.h>

#include "base/sha256.h"

#define UNPACK_STAGE "image"
#define UNPACK_BYTES (UINT64_C(32) << 30) /* of all files, holes included */
#define UNPACK_ENTRIES 1000000u
#define UNPACK_DEPTH 128
#define UNPACK_LAYERS 512
/* More than this many bytes out of one in, past a start that small archives may have, is a bomb. */
#define UNPACK_RATIO 200u
#define UNPACK_RATIO_FREE (UINT64_C(256) << 20)

/* The folder being filled. */
struct unpack_tree {
    int fd;
    bool layered; /* parents may lead through links of an earlier layer, inside the folder */
    uint64_t bytes_in, bytes_out;
    unsigned entries;
};

/* tree.c. Names are those of the archive; each is checked here. */
int unpack_tree_dir(struct unpack_tree *t, const char *name, mode_t mode, struct cordon_err *err);
int unpack_tree_symlink(struct unpack_tree *t, const char *name, const char *target,
                        struct cordon_err *err);
int unpack_tree_hardlink(struct unpack_tree *t, const char *name, const char *target,
                         struct cordon_err *err);
/* A fresh file to be written by the caller. */
int unpack_tree_file(struct unpack_tree *t, const char *name, int *ret_fd, struct cordon_err *err);
/* Removes a name and what is below it (keep_top: only what is below); none is no error. */
int unpack_tree_remove(struct unpack_tree *t, const char *name, bool keep_top,
                       struct cordon_err *err);
/* Is the name, cleaned, the folder or below it? */
bool unpack_name_is_below(const char *name, const char *folder);
/* The whole folder, by its name below dir. */
void unpack_remove_all(int dir, const char *name);

/* archive.c */
enum unpack_pass {
    UNPACK_PLAIN,     /* an archive by itself: no whiteouts */
    UNPACK_WHITEOUTS, /* a layer: only what it takes away from the ones below */
    UNPACK_FILES,     /* a layer: only what it adds */
};
/* Reads the archive to its end; ret_hash gets the digest of its bytes. */
int unpack_archive(struct unpack_tree *t, int fd, const char *shown, enum unpack_pass pass,
                   char ret_hash[SHA256_HEX], struct cordon_err *err);

/* layout.c: an image layout in an open folder. ret_hash: the digest of its manifest. */
int unpack_layout(struct unpack_tree *t, int layout, const char *shown, char ret_hash[SHA256_HEX],
                  struct cordon_err *err);

#endif
