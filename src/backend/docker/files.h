/* The guest's working directory as its pid 1 sends it, received into memory of ours: a tmpfs that
 * is mounted nowhere and gone with the last descriptor. Used by session.c and stdio.c. */
#ifndef BACKEND_DOCKER_FILES_H
#define BACKEND_DOCKER_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include <cordon.h>

#include "base/buf.h"
#include "init/init.h"

struct files {
    int dirs[INIT_FILES_DEPTH + 1]; /* [0]: the top */
    int depth;                      /* of the folder that is being filled, -1: nothing is wanted */
    unsigned deeper;                /* folders below the deepest that is kept */
    struct buf in;                  /* received, not yet understood */
    int file_fd;                    /* being filled, -1: none */
    bool in_file;                   /* pieces come, whether they are kept or not */
    uint64_t piece_offset, piece_rest;
    bool ended;   /* everything came */
    bool failed;  /* what came is nothing pid 1 sends, or there was no room */
    bool full;    /* failed: more bytes than the guest's own folder could hold (hard links) */
    bool crowded; /* failed: more files */
};

#define FILES_INIT ((struct files){.depth = -1, .in = BUF_INIT(1 << 20), .file_fd = -1})

/* An ordinary user needs a user namespace of its own for it, which this process enters. */
int files_open(struct files *f, uint64_t bytes, uint64_t inodes, struct cordon_err *err);
/* Never fails: see `failed`. */
void files_feed(struct files *f, const char *data, size_t len);
void files_close(struct files *f);

#endif
