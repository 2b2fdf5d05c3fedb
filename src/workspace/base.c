/* Notes on the host's files under a workspace. Runs on our side.
 *
 * A file that was never noted must not have changed since the workspace was made, by its own ctime,
 * which nobody can set; one that was noted must still be the same inode with the same ctime. */
#include "workspace/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/util.h"
#include "workspace/workspace_internal.h"

#define BASE_MAX ((size_t)512 << 20)

struct base_row {
    const char *path;
    char sign[96];
};

struct base_notes {
    struct arena arena;
    struct base_row *rows; /* sorted by path */
    size_t n, cap;
};

static int base_look(const struct workspace *ws, const char *path, struct stat *st)
{
    const char *slash = strrchr(path, '/');
    char parent[TREE_PATH_MAX + 1];
    size_t len = slash ? (size_t)(slash - path) : 0;
    memcpy(parent, path, len);
    parent[len] = '\0';
    _cleanup_close_ int dir = tree_open_dir(ws->base_fd, parent);
    return dir < 0 ? -1 : fstatat(dir, slash ? slash + 1 : path, st, AT_SYMLINK_NOFOLLOW);
}

static void base_sign(const struct workspace *ws, const char *path, bool fresh, char sign[96])
{
    struct stat st;
    if (base_look(ws, path, &st) < 0) {
        snprintf(sign, 96, "absent");
        return;
    }
    const struct timespec *c = &st.st_ctim, *m = &ws->made_at;
    bool later = c->tv_sec > m->tv_sec || (c->tv_sec == m->tv_sec && c->tv_nsec > m->tv_nsec);
    if (later && !fresh)
        snprintf(sign, 96, "moved");
    else
        snprintf(sign, 96, "%o:%llu:%llu:%lld.%ld", (unsigned)st.st_mode,
                 (unsigned long long)st.st_size, (unsigned long long)st.st_ino,
                 (long long)c->tv_sec, c->tv_nsec);
}

static int base_order(const void *a, const void *b)
{
    return strcmp(((const struct base_row *)a)->path, ((const struct base_row *)b)->path);
}

static struct base_row *base_find(const struct base_notes *notes, const char *path)
{
    struct base_row key = {.path = path};
    return notes->n ? bsearch(&key, notes->rows, notes->n, sizeof(key), base_order) : NULL;
}

static int base_add(struct base_notes *notes, const char *path, const char *sign)
{
    if (notes->n == notes->cap) {
        size_t cap = notes->cap ? notes->cap * 2 : 64;
        struct base_row *rows = realloc(notes->rows, cap * sizeof(*rows));
        if (!rows)
            return -1;
        notes->rows = rows;
        notes->cap = cap;
    }
    struct base_row *row = &notes->rows[notes->n];
    if (!(row->path = arena_strdup(&notes->arena, path)))
        return -1;
    snprintf(row->sign, sizeof(row->sign), "%s", sign);
    notes->n++;
    return 0;
}

static void base_name(const struct workspace *ws, char *name, size_t size, const char *suffix)
{
    snprintf(name, size, WORKSPACE_META "/%s.base%s", ws->id, suffix);
}

static int base_parse(struct base_notes *notes, char *text, size_t len)
{
    for (char *p = text, *end = text + len; p < end;) {
        char *space = memchr(p, ' ', (size_t)(end - p));
        if (!space)
            return -1;
        *space = '\0';
        if (base_add(notes, space + 1, p) < 0)
            return -1;
        p = space + 1 + strlen(space + 1) + 1;
    }
    return 0;
}

int base_load(const struct workspace *ws, struct base_notes **ret_notes, struct cordon_err *err)
{
    char name[160], chunk[16384];
    struct base_notes *notes = calloc(1, sizeof(*notes));
    if (!notes)
        return err_nomem(err, "workspace");
    base_name(ws, name, sizeof(name), "");
    _cleanup_buf_ struct buf text = BUF_INIT(BASE_MAX);
    _cleanup_close_ int fd =
        openat(ws->place_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    ssize_t n = 0;
    while (fd >= 0 && (n = read(fd, chunk, sizeof(chunk))) > 0)
        buf_add(&text, chunk, (size_t)n);
    if (n < 0 || text.failed || (text.len && base_parse(notes, text.data, text.len) < 0)) {
        base_free(notes);
        return err_set(err, CORDON_ERR_INTERNAL, "workspace", 0, "%s/%s cannot be read", ws->place,
                       name);
    }
    *ret_notes = notes;
    return 0;
}

int base_note(const struct workspace *ws, struct base_notes *notes,
              const struct tree_changes *changes, struct cordon_err *err)
{
    size_t known = notes->n;
    char sign[96];
    for (size_t i = 0; i < changes->n; i++) {
        const char *path = changes->list[i].path;
        struct base_row key = {.path = path};
        if (known && bsearch(&key, notes->rows, known, sizeof(key), base_order))
            continue;
        base_sign(ws, path, false, sign);
        if (base_add(notes, path, sign) < 0)
            return err_nomem(err, "workspace");
    }
    if (notes->n > 1)
        qsort(notes->rows, notes->n, sizeof(*notes->rows), base_order);
    return 0;
}

int base_renew(const struct workspace *ws, struct base_notes *notes, const char *path,
               struct cordon_err *err)
{
    char sign[96];
    struct base_row *row = base_find(notes, path);
    base_sign(ws, path, true, sign);
    if (row) {
        memcpy(row->sign, sign, sizeof(sign));
        return 0;
    }
    if (base_add(notes, path, sign) < 0)
        return err_nomem(err, "workspace");
    qsort(notes->rows, notes->n, sizeof(*notes->rows), base_order);
    return 0;
}

bool base_has_moved(const struct workspace *ws, const struct base_notes *notes, const char *path)
{
    char sign[96];
    const struct base_row *row = base_find(notes, path);
    base_sign(ws, path, row != NULL, sign);
    return row ? !str_eq(row->sign, sign) : str_eq(sign, "moved");
}

int base_save(const struct workspace *ws, const struct base_notes *notes, struct cordon_err *err)
{
    char name[160], temp[160];
    _cleanup_buf_ struct buf text = BUF_INIT(BASE_MAX);
    for (size_t i = 0; i < notes->n; i++) {
        buf_printf(&text, "%s %s", notes->rows[i].sign, notes->rows[i].path);
        buf_char(&text, '\0');
    }
    base_name(ws, name, sizeof(name), "");
    base_name(ws, temp, sizeof(temp), "~");
    unlinkat(ws->place_fd, temp, 0);
    _cleanup_close_ int fd =
        openat(ws->place_fd, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && !text.failed;
    for (size_t done = 0; ok && done < text.len;) {
        ssize_t n = write(fd, text.data + done, text.len - done);
        ok = n > 0;
        done += ok ? (size_t)n : 0;
    }
    if (!ok || renameat(ws->place_fd, temp, ws->place_fd, name) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "workspace", errno, "%s/%s", ws->place, name);
    return 0;
}

void base_free(struct base_notes *notes)
{
    if (!notes)
        return;
    arena_done(&notes->arena);
    free(notes->rows);
    free(notes);
}
