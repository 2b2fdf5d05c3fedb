/* Writing tar archives (POSIX pax) to a descriptor. */
#ifndef WORKSPACE_TAR_H
#define WORKSPACE_TAR_H

#include <sys/stat.h>

/* One regular file: st->st_size bytes of from_fd under this name; a file that has shrunk meanwhile
 * is filled up with zeros. -1 and errno; the archive is then broken. */
int tar_file(int to_fd, const char *path, int from_fd, const struct stat *st);
/* The two empty records every archive ends with. */
int tar_end(int to_fd);

#endif
