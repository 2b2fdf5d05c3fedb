/* Folders and files that their modes close to us: opened up where they are ours, else remembered by
 * their paths. Runs on our side, before and after a guest. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/sys.h"
#include "base/util.h"
#include "workspace/tree_internal.h"

bool tree_is_open(int dir_fd)
{
    struct stat st;
    return fstatat(dir_fd, ".", &st, 0) == 0;
}

int tree_unlock(int dir_fd, const char *path, mode_t *ret_mode)
{
    const struct open_how look = {.flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
                                  .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
                                             RESOLVE_NO_MAGICLINKS};
    struct stat st;
    char self[32];
    /* of dir_fd itself not even "." can be looked up while it is closed */
    _cleanup_close_ int below = *path ? sys_openat2(dir_fd, path, &look) : -1;
    int fd = *path ? below : dir_fd;
    if (fd < 0 || fstat(fd, &st) < 0)
        return -1;
    if (st.st_uid != geteuid()) {
        errno = EACCES;
        return -1;
    }
    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    if (chmod(self, 0700) < 0)
        return -1;
    *ret_mode = st.st_mode & 07777;
    return 0;
}

/* ---- Paths ---- */

int tree_paths_add(struct tree_paths *paths, const char *path)
{
    size_t len = strlen(path) + 1;
    if (len > TREE_TEXT_MAX - paths->text)
        return 1;
    const char **list = tree_grow(paths->list, paths->n, &paths->cap, sizeof(*list));
    if (!list)
        return -1;
    paths->list = list;
    if (!(list[paths->n] = arena_strdup(&paths->arena, path)))
        return -1;
    paths->n++;
    paths->text += len;
    return 0;
}

void tree_paths_sort(struct tree_paths *paths)
{
    if (paths->n > 1)
        qsort(paths->list, paths->n, sizeof(*paths->list), tree_names_order);
}

bool tree_paths_has(const struct tree_paths *paths, const char *path)
{
    return paths->n > 0 &&
           bsearch(&path, paths->list, paths->n, sizeof(*paths->list), tree_names_order);
}

void tree_paths_done(struct tree_paths *paths)
{
    free(paths->list);
    arena_done(&paths->arena);
    *paths = (struct tree_paths){0};
}
