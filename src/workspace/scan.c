/* Owners in a tree. Runs on our side, over the host's own files. */
#include "workspace/scan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/util.h"
#include "workspace/tree.h"

#define SCAN_ENTRIES 4096
#define WHOLE_ENTRIES 1000000
#define WHOLE_SECONDS 10
#define MISSED_ENTRIES 32768
#define SCAN_TEXT ((size_t)64 << 20) /* of folders that wait for their turn */

struct scan_dir {
    struct scan_dir *next;
    char path[];
};

struct scan {
    struct scan_dir *first, **last; /* a queue: breadth first */
    size_t entries, max_entries, text;
    time_t deadline; /* of CLOCK_MONOTONIC; 0: none */
    bool is_cut;
};

static void scan_push(struct scan *s, const char *dir, const char *name)
{
    size_t len = strlen(dir) + strlen(name) + 2;
    struct scan_dir *d =
        len <= TREE_PATH_MAX && s->text + len <= SCAN_TEXT ? malloc(sizeof(*d) + len) : NULL;
    if (!d) {
        s->is_cut = true;
        return;
    }
    snprintf(d->path, len, "%s%s%s", dir, *dir ? "/" : "", name);
    d->next = NULL;
    s->text += len;
    *s->last = d;
    s->last = &d->next;
}

/* The next folder, which the caller frees; NULL when there is none or something was cut off. */
static struct scan_dir *scan_pop(struct scan *s)
{
    struct scan_dir *d = s->is_cut ? NULL : s->first;
    struct timespec now;
    if (!d)
        return NULL;
    s->first = d->next;
    if (!s->first)
        s->last = &s->first;
    s->text -= strlen(d->path) + 1;
    if (s->deadline && clock_gettime(CLOCK_MONOTONIC, &now) == 0 && now.tv_sec > s->deadline)
        s->is_cut = true;
    return d;
}

static void scan_begin(struct scan *s, size_t max_entries)
{
    *s = (struct scan){.max_entries = max_entries};
    s->last = &s->first;
    scan_push(s, "", "");
}

static void scan_end(struct scan *s)
{
    for (struct scan_dir *d = s->first, *next; d; d = next) {
        next = d->next;
        free(d);
    }
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
    int fd = tree_open_dir_here(base_fd, path);
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    if (!list)
        util_close(&fd);
    return list;
}

/* Mounts below the folder are not part of it. */
static bool scan_is_mount(int dir_fd, const char *name, const struct stat *st)
{
    if (!S_ISDIR(st->st_mode))
        return false;
    _cleanup_close_ int fd = tree_open_dir_here(dir_fd, name);
    return fd < 0 && errno == EXDEV;
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
        found = scan_is_foreign(&st) && !scan_is_mount(dirfd(list), e->d_name, &st);
        if (found && m)
            missed_note(m, dir, e->d_name);
        if (S_ISDIR(st.st_mode))
            scan_push(s, dir, e->d_name);
    }
    if (list)
        closedir(list);
    return found;
}

static enum scan_owners scan_look(int base_fd, struct scan *s)
{
    struct stat st;
    bool found = fstat(base_fd, &st) < 0 || scan_is_foreign(&st);
    for (struct scan_dir *d; !found && (d = scan_pop(s)); free(d))
        found = scan_folder(s, base_fd, d->path, NULL);
    scan_end(s);
    return found ? SCAN_FOREIGN : s->is_cut ? SCAN_PARTLY : SCAN_OWN;
}

enum scan_owners scan_owners(int base_fd)
{
    struct scan s;
    scan_begin(&s, SCAN_ENTRIES);
    return scan_look(base_fd, &s);
}

enum scan_owners scan_whole(int base_fd)
{
    struct scan s;
    struct timespec now;
    scan_begin(&s, WHOLE_ENTRIES);
    clock_gettime(CLOCK_MONOTONIC, &now);
    s.deadline = now.tv_sec + WHOLE_SECONDS;
    return scan_look(base_fd, &s);
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
    struct scan s;
    *ret = (struct scan_missed){0};
    scan_begin(&s, MISSED_ENTRIES);
    for (struct scan_dir *d; (d = scan_pop(&s)); free(d))
        missed_folder(&s, upper_fd, base_fd, d->path, ret);
    scan_end(&s);
    ret->is_partly = s.is_cut;
}

void scan_closed(int base_fd, struct scan_missed *ret)
{
    struct scan s;
    *ret = (struct scan_missed){0};
    scan_begin(&s, MISSED_ENTRIES);
    for (struct scan_dir *d; (d = scan_pop(&s)); free(d))
        scan_folder(&s, base_fd, d->path, ret);
    scan_end(&s);
    ret->is_partly = s.is_cut;
}
