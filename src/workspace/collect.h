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

/* The folder files go to. It is looked up before the guest exists, who may be able to put something
 * else in its place; one that is missing is made when the guest is gone, in the folder where it is
 * to be. */
struct collect_target {
    int fd;           /* the folder, or -1 */
    int above;        /* of one that is missing; else -1 */
    const char *path; /* as given, which must stay */
};
#define COLLECT_TARGET_NONE ((struct collect_target){.fd = -1, .above = -1})

int collect_target_open(struct collect_target *t, const char *path, struct cordon_err *err);
void collect_target_close(struct collect_target *t);
/* One pattern: parts matched by the shell's rules, `**` as the last part for everything below.
 * Files go below the target, under the names they have below from_fd. Where a guest put something
 * else in the place of a missing one, nothing can be copied. */
int collect_pattern(struct collect *c, int from_fd, const char *pattern, struct collect_target *to,
                    struct cordon_err *err);
/* The same as a tar archive on a descriptor, without its end: see tar.h. */
int collect_tar(struct collect *c, int from_fd, const char *pattern, int to_fd,
                struct cordon_err *err);
void collect_done(struct collect *c);

#endif
