/* Writing tar archives (POSIX pax) to a descriptor. */
#ifndef WORKSPACE_TAR_H
#define WORKSPACE_TAR_H

#include <sys/stat.h>

#include "workspace/extents.h"

/* One regular file of st->st_size bytes under this name, of which the data in x is written; what is
 * no longer there is filled up with zeros. -1 and errno; the archive is then broken. */
int tar_file(int to_fd, const char *path, int from_fd, const struct stat *st,
             const struct extents *x);
/* The two empty records every archive ends with. */
int tar_end(int to_fd);

#endif
