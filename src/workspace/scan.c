/* Owners in a tree. Runs on our side, over the host's own files. */
#include "workspace/scan.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/util.h"
#include "workspace/tree.h"

#define SCAN_ENTRIES 4096
#define SCAN_FOLDERS 1024
#define MISSED_ENTRIES 32768

struct scan {
    char *folders[SCAN_FOLDERS]; /* a queue: breadth first */
    size_t first, n;
    size_t entries, max_entries;
    bool is_cut;
};

static void scan_push(struct scan *s, const char *dir, const char *name)
{
    size_t len = strlen(dir) + strlen(name) + 2;
    char *path = s->n < SCAN_FOLDERS && len <= TREE_PATH_MAX ? malloc(len) : NULL;
    if (!path) {
        s->is_cut = true;
        return;
    }
    snprintf(path, len, "%s%s%s", dir, *dir ? "/" : "", name);
    s->folders[s->n++] = path;
}

static void scan_free(struct scan *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->folders[i]);
}

static bool scan_is_foreign(const struct stat *st)
{
    return st->st_uid != geteuid() || st->st_gid != getegid();
}

/* The next name of a folder that is worth a look, or NULL. */
static struct dirent *scan_next(struct scan *s, DIR *list, struct stat *st)
{
    for (struct dirent *e; (e = readdir(list));) {
        if (str_eq(e->d_name, ".") || str_eq(e->d_name, ".."))
            continue;
        if (s->entries >= s->max_entries) {
            s->is_cut = true;
            return NULL;
        }
        s->entries++;
        if (fstatat(dirfd(list), e->d_name, st, AT_SYMLINK_NOFOLLOW) == 0)
            return e;
    }
    return NULL;
}

static DIR *scan_open(int base_fd, const char *path)
{
    int fd = tree_open_dir(base_fd, path);
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    if (!list)
        util_close(&fd);
    return list;
}

static void missed_note(struct scan_missed *m, const char *dir, const char *name)
{
    if (m->n++ > 0)
        return;
    snprintf(m->first, sizeof(m->first), "%s%s%s", dir, *dir ? "/" : "", name);
    for (char *p = m->first; *p; p++)
        if ((unsigned char)*p < 0x20 || (unsigned char)*p > 0x7e)
            *p = '?';
}

/* Notes what belongs to others, or only tells that there is something. */
static bool scan_folder(struct scan *s, int base_fd, const char *dir, struct scan_missed *m)
{
    DIR *list = scan_open(base_fd, dir);
    struct stat st;
    bool found = false;
    for (struct dirent *e; list && (m || !found) && (e = scan_next(s, list, &st));) {
        found = scan_is_foreign(&st);
        if (found && m)
            missed_note(m, dir, e->d_name);
        if (S_ISDIR(st.st_mode))
            scan_push(s, dir, e->d_name);
    }
    if (list)
        closedir(list);
    return found;
}

enum scan_owners scan_owners(int base_fd)
{
    struct scan s = {.max_entries = SCAN_ENTRIES};
    struct stat st;
    bool found = fstat(base_fd, &st) < 0 || scan_is_foreign(&st);
    scan_push(&s, "", "");
    while (!found && s.first < s.n && !s.is_cut)
        found = scan_folder(&s, base_fd, s.folders[s.first++], NULL);
    scan_free(&s);
    return found ? SCAN_FOREIGN : s.is_cut ? SCAN_PARTLY : SCAN_OWN;
}

/* ---- After the run ---- */

/* Files of others in the base's folder that the layer above does not have. */
static void missed_folder(struct scan *s, int upper_fd, int base_fd, const char *dir,
                          struct scan_missed *m)
{
    struct stat st, above;
    _cleanup_close_ int upper = tree_open_dir(upper_fd, dir);
    DIR *list = upper < 0 ? NULL : scan_open(base_fd, dir);
    for (struct dirent *e; list && (e = scan_next(s, list, &st));)
        if (scan_is_foreign(&st) && fstatat(upper, e->d_name, &above, AT_SYMLINK_NOFOLLOW) < 0)
            missed_note(m, dir, e->d_name);
    if (list)
        closedir(list);
    /* the folders the kernel copied up are where the guest went */
    list = upper < 0 ? NULL : scan_open(upper_fd, dir);
    for (struct dirent *e; list && (e = scan_next(s, list, &st));)
        if (S_ISDIR(st.st_mode))
            scan_push(s, dir, e->d_name);
    if (list)
        closedir(list);
}

void scan_missed(int upper_fd, int base_fd, struct scan_missed *ret)
{
    struct scan s = {.max_entries = MISSED_ENTRIES};
    *ret = (struct scan_missed){0};
    scan_push(&s, "", "");
    while (s.first < s.n && !s.is_cut)
        missed_folder(&s, upper_fd, base_fd, s.folders[s.first++], ret);
    scan_free(&s);
    ret->is_partly = s.is_cut;
}

void scan_closed(int base_fd, struct scan_missed *ret)
{
    struct scan s = {.max_entries = MISSED_ENTRIES};
    *ret = (struct scan_missed){0};
    scan_push(&s, "", "");
    while (s.first < s.n && !s.is_cut)
        scan_folder(&s, base_fd, s.folders[s.first++], ret);
    scan_free(&s);
    ret->is_partly = s.is_cut;
}
