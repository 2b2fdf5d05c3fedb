/* Where results and reports go. Runs in the command, before the guest exists and after it is gone.
 */
#include "cli/place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
#include "cli/cli.h"

int place_open(struct place *p, const char *path)
{
    struct stat st;
    struct place found = PLACE_NONE;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        if ((found.fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY)) < 0)
            return -1;
        *p = found;
        return 0;
    }
    const char *slash = strrchr(path, '/');
    found.name = slash ? slash + 1 : path;
    if (!*found.name) {
        errno = EISDIR;
        return -1;
    }
    _cleanup_free_ char *dir = !slash          ? strdup(".")
                               : slash == path ? strdup("/")
                                               : strndup(path, (size_t)(slash - path));
    if (!dir || (found.dir = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0)
        return -1;
    if (faccessat(found.dir, ".", W_OK | X_OK, AT_EACCESS) < 0) {
        int e = errno;
        util_close(&found.dir);
        errno = e;
        return -1;
    }
    *p = found;
    return 0;
}

int place_write(const struct place *p, const char *data, size_t len)
{
    if (p->dir < 0)
        return p->fd < 0 ? 0 : cli_write(p->fd, data, len);
    char fresh[48];
    snprintf(fresh, sizeof(fresh), ".cordon-result-%d", (int)getpid());
    unlinkat(p->dir, fresh, 0);
    _cleanup_close_ int fd =
        openat(p->dir, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0 || cli_write(fd, data, len) < 0 || renameat(p->dir, fresh, p->dir, p->name) < 0) {
        int e = errno;
        unlinkat(p->dir, fresh, 0);
        errno = e;
        return -1;
    }
    return 0;
}

void place_close(struct place *p)
{
    util_close(&p->fd);
    util_close(&p->dir);
}
