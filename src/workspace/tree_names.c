/* The names in a folder of a layer. Runs on our side after the guest is gone: what a guest made
 * many of is read up to a bound. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "workspace/tree_internal.h"

void tree_names_done(struct tree_names *names)
{
    for (size_t i = 0; i < names->n; i++)
        free(names->list[i]);
    free(names->list);
}

int tree_names_add(struct tree_names *names, int dir_fd)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        util_close(&fd);
        return errno == ENOMEM ? -1 : 1; /* 1: may not be listed */
    }
    struct dirent *e;
    int r = 0;
    while (r == 0 && (e = readdir(dir))) {
        if (str_eq(e->d_name, ".") || str_eq(e->d_name, ".."))
            continue;
        if (names->n == names->cap) {
            size_t cap = names->cap ? names->cap * 2 : 64;
            char **list = realloc(names->list, cap * sizeof(*list));
            if (!list) {
                r = -1;
                break;
            }
            names->list = list;
            names->cap = cap;
        }
        names->text += strlen(e->d_name) + 1;
        if (names->n >= 4 * (size_t)TREE_ENTRIES_MAX || names->text > 4 * TREE_TEXT_MAX) {
            r = 1;
            break;
        }
        names->list[names->n] = strdup(e->d_name);
        if (!names->list[names->n])
            r = -1;
        else
            names->n++;
    }
    closedir(dir);
    return r;
}

int tree_names_order(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}
