/* Reads the notes on folders guests could write to. Runs where configuration is looked for. */
#include "policy/reach.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "policy/value.h"

#define REACH_DEPTH 256
#define NS_PER_S 1000000000LL

/* Root's notes are read by everybody: what root's guest writes belongs to root, whose files every
 * caller trusts. Who has no home keeps them in the place for files that outlive a boot. */
size_t reach_dirs(char *const *environ, char ret_dirs[static REACH_DIRS][PATH_MAX])
{
    size_t n = 0;
    snprintf(ret_dirs[n++], PATH_MAX, REACH_ROOT_DIR "/writable");
    const char *state = value_env(environ, "XDG_STATE_HOME", strlen("XDG_STATE_HOME"));
    const char *home = value_env(environ, "HOME", strlen("HOME"));
    if (state && state[0] == '/')
        n += snprintf(ret_dirs[n], PATH_MAX, "%s/cordon/writable", state) < PATH_MAX;
    else if (home && home[0] == '/')
        n += snprintf(ret_dirs[n], PATH_MAX, "%s/.local/state/cordon/writable", home) < PATH_MAX;
    snprintf(ret_dirs[n++], PATH_MAX, "/var/tmp/cordon-%u/writable", (unsigned)geteuid());
    return n;
}

void reach_name(const struct stat *st, char ret_name[static REACH_NAME])
{
    snprintf(ret_name, REACH_NAME, "%llx-%llx", (unsigned long long)st->st_dev,
             (unsigned long long)st->st_ino);
}

void reach_read(int fd, struct reach_windows *ret_windows)
{
    char text[REACH_WINDOWS * 96 + 1];
    ret_windows->n = 0;
    ssize_t n;
    do
        n = pread(fd, text, sizeof(text) - 1, 0);
    while (n < 0 && errno == EINTR);
    bool good = n >= 0;
    text[good ? n : 0] = '\0';
    for (char *line = text; good && *line;) {
        struct reach_window w;
        long long start, end;
        unsigned long long born;
        char *next = strchr(line, '\n');
        good = next && ret_windows->n < REACH_WINDOWS &&
               sscanf(line, "%lld %lld %ld %llu", &start, &end, &w.pid, &born) == 4;
        if (!good)
            break;
        w.start_ns = start;
        w.end_ns = end;
        w.born = born;
        ret_windows->rows[ret_windows->n++] = w;
        line = next + 1;
    }
    if (!good) {
        ret_windows->rows[0] = (struct reach_window){0};
        ret_windows->n = 1;
    }
}

static bool reach_in_note(const char *dir, const char *name, int64_t changed_ns)
{
    struct reach_windows windows;
    char path[PATH_MAX + REACH_NAME];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno != ENOENT && errno != ENOTDIR && errno != EACCES;
    reach_read(fd, &windows);
    for (size_t i = 0; i < windows.n; i++)
        if (changed_ns > windows.rows[i].start_ns &&
            (windows.rows[i].end_ns == 0 || changed_ns <= windows.rows[i].end_ns))
            return true;
    return false;
}

bool reach_had(char *const *environ, const char *dir, const struct stat *st)
{
    char dirs[REACH_DIRS][PATH_MAX];
    size_t n = reach_dirs(environ, dirs);
    int64_t changed_ns = st->st_ctim.tv_sec * NS_PER_S + st->st_ctim.tv_nsec;
    struct stat at = *st;
    /* the file itself, its folder, and every folder above it, whatever name led here */
    _cleanup_close_ int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (int depth = 0; depth < REACH_DEPTH; depth++) {
        char name[REACH_NAME];
        reach_name(&at, name);
        for (size_t i = 0; i < n; i++)
            if (reach_in_note(dirs[i], name, changed_ns))
                return true;
        struct stat above;
        if (fd < 0 || fstat(fd, &above) < 0)
            return true; /* not to be told */
        if (above.st_dev == at.st_dev && above.st_ino == at.st_ino)
            return false; /* the root is its own parent */
        at = above;
        int up = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        close(fd);
        fd = up;
    }
    return true;
}
