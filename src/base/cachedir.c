/* Opens folders of caches. Runs in the command and the supervisor. */
#include "base/cachedir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"

/* A folder of ours below `parent`; it must be the caller's alone. */
static int cachedir_enter(int parent, const char *name)
{
    struct stat st;
    if (mkdirat(parent, name, 0700) < 0 && errno != EEXIST)
        return -1;
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & 077) == 0)
        return fd;
    util_close(&fd);
    return -1;
}

int cachedir_open(const char *cache_home, const char *home, const char *name)
{
    char path[PATH_MAX];
    bool own = cache_home && cache_home[0] == '/';
    if (!own && (!home || home[0] != '/'))
        return -1;
    if (snprintf(path, sizeof(path), "%s%s", own ? cache_home : home, own ? "" : "/.cache") >=
        (int)sizeof(path))
        return -1;
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return -1;
    _cleanup_close_ int top = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _cleanup_close_ int cordon = top < 0 ? -1 : cachedir_enter(top, "cordon");
    return cordon < 0 ? -1 : cachedir_enter(cordon, name);
}
