/* Owners in a tree. Runs on our side, over the host's own files. */
#include "workspace/scan.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/util.h"
#include "workspace/tree.h"

#define SCAN_ENTRIES 4096
#define SCAN_FOLDERS 1024

struct scan {
    char *folders[SCAN_FOLDERS]; /* a queue: breadth first */
    size_t first, n;
    size_t entries;
};

static void scan_push(struct scan *s, const char *dir, const char *name)
{
    size_t len = strlen(dir) + strlen(name) + 2;
    char *path = s->n < SCAN_FOLDERS && len <= TREE_PATH_MAX ? malloc(len) : NULL;
    if (!path)
        return;
    snprintf(path, len, "%s%s%s", dir, *dir ? "/" : "", name);
    s->folders[s->n++] = path;
}

static bool scan_is_foreign(const struct stat *st)
{
    return st->st_uid != geteuid() || st->st_gid != getegid();
}

static bool scan_folder(struct scan *s, int base_fd, const char *dir)
{
    int fd = tree_open_dir(base_fd, dir);
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    bool found = false;
    if (!list)
        util_close(&fd);
    for (struct dirent *e; list && !found && s->entries < SCAN_ENTRIES && (e = readdir(list));) {
        struct stat st;
        if (str_eq(e->d_name, ".") || str_eq(e->d_name, "..") ||
            fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        s->entries++;
        found = scan_is_foreign(&st);
        if (S_ISDIR(st.st_mode))
            scan_push(s, dir, e->d_name);
    }
    if (list)
        closedir(list);
    return found;
}

bool scan_has_foreign(int base_fd)
{
    struct scan s = {.n = 0};
    struct stat st;
    bool found = fstat(base_fd, &st) < 0 || scan_is_foreign(&st);
    scan_push(&s, "", "");
    while (!found && s.first < s.n && s.entries < SCAN_ENTRIES)
        found = scan_folder(&s, base_fd, s.folders[s.first++]);
    for (size_t i = 0; i < s.n; i++)
        free(s.folders[i]);
    return found;
}
