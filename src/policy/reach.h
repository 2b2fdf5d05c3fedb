/* Was a file in reach of a guest when it was last changed?
 *
 * A guest with a writable folder of the host can leave a cordon.toml anywhere below it. Each run
 * with such a folder is noted before its guest exists (run/reach_note.c): a window of time for that
 * folder. A file below it whose last change falls into a window may be the guest's; the change time
 * is the kernel's and no guest can set it. */
#ifndef POLICY_REACH_H
#define POLICY_REACH_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#define REACH_DIRS 3
#define REACH_ROOT_DIR "/var/lib/cordon" /* what is root's and of use to every run */
#define REACH_WINDOWS 64
#define REACH_NAME 40

struct reach_window {
    int64_t start_ns, end_ns; /* of the real-time clock; end 0: still open */
    long pid;                 /* who has it open, and since when that process lives */
    uint64_t born;
};

struct reach_windows {
    struct reach_window rows[REACH_WINDOWS];
    size_t n;
};

/* Where notes lie: root's first, then the caller's own. Returns how many there are. */
size_t reach_dirs(char *const *environ, char ret_dirs[static REACH_DIRS][PATH_MAX]);

/* Name of a folder's note. */
void reach_name(const struct stat *st, char ret_name[static REACH_NAME]);

/* Reads a note from its open descriptor; what cannot be read counts as one window without end. */
void reach_read(int fd, struct reach_windows *ret_windows);

/* The file behind fd, which lies in the folder `dir`. */
bool reach_had(char *const *environ, const char *dir, const struct stat *st);

#endif
