/* Small reads and checks of host files: no stdio, no allocation. Runs in the supervisor and in the
 * doctor's children. */
#include "host/read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/sys.h"
#include "base/util.h"
#include "host/host.h"

ssize_t host_read(const char *path, char *ret_text, size_t size)
{
    _cleanup_close_ int fd = sys_open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return -1;

    size_t len = 0;
    for (;;) {
        ssize_t n = read(fd, ret_text + len, size - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        len += (size_t)n;
        if (len >= size) {
            errno = E2BIG;
            return -1;
        }
        if (n == 0)
            break;
    }
    ret_text[len] = '\0';
    return (ssize_t)len;
}

ssize_t host_read_at(const char *dir, const char *name, char *ret_text, size_t size)
{
    char path[HOST_PATH_MAX + 64];
    int n = snprintf(path, sizeof(path), "%s/%s", dir, name);
    if (n < 0 || (size_t)n >= sizeof(path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return host_read(path, ret_text, size);
}

bool host_is_writable(const char *path)
{
    return faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) == 0;
}
