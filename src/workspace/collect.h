/* Files of a guest's working directory, copied out when it is gone: regular files only, nothing
 * followed, at most COLLECT_FILES and COLLECT_BYTES in all. */
#ifndef WORKSPACE_COLLECT_H
#define WORKSPACE_COLLECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cordon.h>

#include "base/arena.h"

#define COLLECT_FILES 10000u
#define COLLECT_BYTES (UINT64_C(4) << 30)
#define COLLECT_ENTRIES 1000000u        /* looked at */
#define COLLECT_TEXT ((size_t)64 << 20) /* of names in the list */

struct collect_row {
    const char *path; /* relative, as in the working directory */
    uint64_t size;
    const char *skipped; /* why it was left behind, or NULL */
};

struct collect {
    struct arena arena;
    struct collect_row *rows;
    size_t n, cap;
    uint64_t bytes; /* room on disk that was used */
    size_t entries, text;
    bool is_cut; /* there were more names; the last row says so */
};

/* The folder files go to, made where it is missing. Open it before the guest exists, who may be
 * able to put something else in its place. */
int collect_open_target(const char *path, int *ret_fd, struct cordon_err *err);
/* One pattern: parts matched by the shell's rules, `**` as the last part for everything below.
 * Files go below to_fd, under the names they have below from_fd. */
int collect_pattern(struct collect *c, int from_fd, const char *pattern, int to_fd,
                    struct cordon_err *err);
/* The same as a tar archive on a descriptor, without its end: see tar.h. */
int collect_tar(struct collect *c, int from_fd, const char *pattern, int to_fd,
                struct cordon_err *err);
void collect_done(struct collect *c);

#endif
