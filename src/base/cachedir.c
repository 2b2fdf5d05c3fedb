/* Opens folders of caches. Runs in the command and the supervisor. */
#include "base/cachedir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"

/* A folder of ours below `parent`, the caller's own; nobody else may have the bits of `others`. */
static int cachedir_enter(int parent, const char *name, mode_t others)
{
    struct stat st;
    if (mkdirat(parent, name, 0700) < 0 && errno != EEXIST)
        return -1;
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & others) == 0)
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
    /* the one between is shared with images and roots, which others may see (`cordon image build`)
     */
    _cleanup_close_ int top = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _cleanup_close_ int cordon = top < 0 ? -1 : cachedir_enter(top, "cordon", 022);
    return cordon < 0 ? -1 : cachedir_enter(cordon, name, 077);
}
