/* Folders of ours that somebody may have closed to their owner. */
#ifndef BASE_OPENDIR_H
#define BASE_OPENDIR_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/util.h"

/* Makes a folder its owner's to use; of what is no folder, or a link to one, nothing is changed. */
static inline int opendir_unlock(int dir_fd, const char *name)
{
    char self[32];
    _cleanup_close_ int fd = openat(dir_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    return chmod(self, 0700);
}

#endif
