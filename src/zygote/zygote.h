/* What a warm interpreter and a prepared guest say to each other. Fixed sizes: the interpreter that
 * is forked from reads nothing of any run. */
#ifndef ZYGOTE_ZYGOTE_H
#define ZYGOTE_ZYGOTE_H

#include <stdint.h>

#define ZYGOTE_SOCKET 8 /* in the interpreter: commands */
#define ZYGOTE_FOLDER 9 /* its own modules */
#define ZYGOTE_FDS_MAX 16
#define ZYGOTE_WORDS_MAX 8192 /* the first message: its script, a line end, modules to import */
#define ZYGOTE_FILTER_MAX 32768

/* a guest's pid 1 → interpreter, with descriptors: its pid namespace, a socket to it, three streams
 */
struct zygote_fork {
    uint32_t magic;
};
#define ZYGOTE_MAGIC 0x7a79676fu
#define ZYGOTE_FORK_FDS 5

/* pid 1 → the forked interpreter, with descriptors: mount, ipc, uts, network and user namespace,
 * [fence], [time namespace], entries of groups; the filter and its quiet twin follow */
#define ZYGOTE_SPACES 5
struct zygote_walls {
    uint32_t has_fence, has_time, n_entries, notify;
    uint32_t filter_bytes, quiet_bytes;
    uint32_t uid, gid;
    char cwd[64];
};

/* the forked interpreter → pid 1, with the filter's listener unless there is none: all walls stand.
 * The order follows as pid 1 received it (warm_internal.h), then at most one byte more comes back.
 */
struct zygote_hello {
    int32_t pid;
    uint32_t no_listener;
};
#define ZYGOTE_REFUSED 'R' /* the source was refused before anything of it ran */

#endif
