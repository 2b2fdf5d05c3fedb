/* Small reads and checks of host files, shared by the files of this folder. */
#ifndef HOST_READ_H
#define HOST_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The file's text, NUL-terminated, at most size-1 bytes; -1 with errno on failure, E2BIG when there
 * is more than fits (half a file is worse than none). */
ssize_t host_read(const char *path, char *ret_text, size_t size);

/* dir + "/" + name */
ssize_t host_read_at(const char *dir, const char *name, char *ret_text, size_t size);

/* By effective ids. */
bool host_is_writable(const char *path);

#endif
