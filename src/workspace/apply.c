/* Applying changes to the host's folder. Runs on our side, with the caller's rights, on names and
 * contents of a guest: parents are opened beneath the folder without following anything, files are
 * written under a name of ours and renamed, setuid and setgid bits and attributes stay behind. */
#include "workspace/apply.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/util.h"
#include "workspace/copy.h"
#include "workspace/protect.h"

#define APPLY_TEMP ".cordon-apply~"

static bool apply_covers(const char *chosen, const char *path)
{
    size_t len = strlen(chosen);
    while (len > 0 && chosen[len - 1] == '/')
        len--;
    return strncmp(path, chosen, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

static bool apply_is_chosen(const struct apply_options *o, const char *path)
{
    for (size_t i = 0; i < o->n_paths; i++)
        if (apply_covers(o->paths[i], path))
            return true;
    return o->n_paths == 0;
}

static bool apply_is_named(const struct apply_options *o, const char *path)
{
    for (size_t i = 0; i < o->n_paths; i++)
        if (str_eq(o->paths[i], path))
            return true;
    return false;
}

static int apply_check_paths(const struct tree_changes *changes, const struct apply_options *o,
                             struct cordon_err *err)
{
    for (size_t i = 0; i < o->n_paths; i++) {
        bool hit = false;
        for (size_t k = 0; !hit && k < changes->n; k++)
            hit = apply_covers(o->paths[i], changes->list[k].path);
        if (!hit)
            return err_set(err, CORDON_ERR_USAGE, "apply", 0, "%.200s: nothing changed there",
                           o->paths[i]);
    }
    return 0;
}

static int apply_path_order(const void *path, const void *change)
{
    return strcmp(path, ((const struct tree_change *)change)->path);
}

/* Asked for every change below such a path: a guest may have made many. */
static bool apply_removes(const struct tree_changes *changes, const struct apply_options *o,
                          const char *path)
{
    const struct tree_change *c =
        changes->n ? bsearch(path, changes->list, changes->n, sizeof(*c), apply_path_order) : NULL;
    return c && c->new.type == TREE_ABSENT &&apply_is_chosen(o, path);
}

static bool apply_is_barred(int e)
{
    return e == ELOOP || e == ENOTDIR;
}

/* Does a link or a file of the host's stand where a folder on the way to it was? Not one that goes
 * with this apply, because the guest put a folder in its place. */
static bool apply_has_bar(const struct workspace *ws, const struct tree_changes *changes,
                          const struct apply_options *o, const char *path)
{
    char part[TREE_PATH_MAX + 1];
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) : 0;
    for (size_t i = 1; i <= len; i++) {
        if (path[i] != '/')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        _cleanup_close_ int dir = tree_open_dir(ws->base_fd, part);
        if (dir < 0 && apply_is_barred(errno))
            return !apply_removes(changes, o, part);
    }
    return false;
}

static int apply_decide(const struct workspace *ws, const struct tree_changes *changes,
                        const struct base_notes *notes, const struct apply_options *o,
                        struct apply_report *report, struct cordon_err *err)
{
    report->conflicts = calloc(changes->n + 1, sizeof(char *));
    report->refused = calloc(changes->n + 1, sizeof(char *));
    if (!report->conflicts || !report->refused)
        return err_nomem(err, "apply");
    for (size_t i = 0; i < changes->n; i++) {
        const struct tree_change *c = &changes->list[i];
        if (!apply_is_chosen(o, c->path))
            continue;
        bool is_barred = !c->is_elsewhere && apply_has_bar(ws, changes, o, c->path);
        report->n_barred += is_barred;
        if (is_barred || (!o->force && notes && base_has_moved(ws, notes, c->path)))
            report->conflicts[report->n_conflicts++] = c->path;
        else if (!o->force && c->is_protected && !apply_is_named(o, c->path))
            report->refused[report->n_refused++] = c->path;
    }
    if (report->n_conflicts)
        return err_set(
            err, CORDON_ERR_REJECTED, "apply", 0,
            "the host's tree moved underneath: %zu paths in conflict, nothing was applied",
            report->n_conflicts);
    if (report->n_refused)
        return err_set(err, CORDON_ERR_REJECTED, "apply", 0,
                       "%zu protected path%s changed, nothing was applied", report->n_refused,
                       report->n_refused == 1 ? " was" : "s were");
    if (changes->truncated && !o->force)
        return err_set(err, CORDON_ERR_REJECTED, "apply", 0,
                       "the list of changes is not complete, nothing was applied");
    return 0;
}

/* A file of somebody else's that root changes stays somebody else's. */
static void apply_keep_owner(int dir, const char *name, int fd)
{
    struct stat st;
    if (geteuid() == 0 && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
        (void)!fchown(fd, st.st_uid, st.st_gid);
}

static int apply_file(const struct tree_change *c, int dir, const char *name)
{
    _cleanup_close_ int from = tree_open_file(c->new.layer_fd, c->path);
    if (from < 0)
        return -1;
    unlinkat(dir, APPLY_TEMP, 0); /* of an apply that was killed */
    _cleanup_close_ int to =
        openat(dir, APPLY_TEMP, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (to < 0)
        return -1;
    apply_keep_owner(dir, name, to);
    if (copy_bytes(from, to) == 0 && fchmod(to, c->new.mode & 0777) == 0 &&
        renameat(dir, APPLY_TEMP, dir, name) == 0)
        return 0;
    int e = errno;
    unlinkat(dir, APPLY_TEMP, 0);
    errno = e;
    return -1;
}

static int apply_link(const struct tree_change *c, int dir, const char *name)
{
    _cleanup_buf_ struct buf target = BUF_INIT(8192);
    if (tree_read(&c->new, c->path, &target) < 0)
        return -1;
    unlinkat(dir, APPLY_TEMP, 0);
    if (symlinkat(target.data, dir, APPLY_TEMP) == 0 && renameat(dir, APPLY_TEMP, dir, name) == 0)
        return 0;
    int e = errno;
    unlinkat(dir, APPLY_TEMP, 0);
    errno = e;
    return -1;
}

static int apply_mode(const struct tree_change *c, int base_fd)
{
    _cleanup_close_ int fd = tree_open_file(base_fd, c->path);
    return fd < 0 ? -1 : fchmod(fd, c->new.mode & 0777);
}

static int apply_one(const struct workspace *ws, const struct tree_change *c)
{
    const char *name;
    if (c->kind == TREE_MODE)
        return apply_mode(c, ws->base_fd);
    _cleanup_close_ int dir = tree_make_parent(ws->base_fd, c->path, &name);
    if (dir < 0)
        return c->new.type == TREE_ABSENT &&errno == ENOENT ? 0 : -1;
    if (c->new.type == TREE_ABSENT)
        return unlinkat(dir, name, 0) == 0 || errno == ENOENT ? 0 : -1;
    return c->new.type == TREE_SYMLINK ? apply_link(c, dir, name) : apply_file(c, dir, name);
}

/* Files that a folder takes the place of, and folders that a file takes the place of, go first. */
static int apply_pass(const struct workspace *ws, const struct tree_changes *changes,
                      struct base_notes *notes, const struct apply_options *o, bool deletions,
                      struct apply_report *report, struct cordon_err *err)
{
    for (size_t i = 0; i < changes->n; i++) {
        const struct tree_change *c = &changes->list[i];
        if (c->is_elsewhere || !apply_is_chosen(o, c->path) ||
            (c->new.type == TREE_ABSENT) != deletions)
            continue;
        if (c->kind == TREE_NOT_FILE) {
            report->skipped++;
            continue;
        }
        if (apply_one(ws, c) < 0) /* barred: only since it was decided */
            return err_set(err, apply_is_barred(errno) ? CORDON_ERR_REJECTED : CORDON_ERR_INTERNAL,
                           "apply", errno, "%s (%zu paths were applied before it)", c->path,
                           report->applied);
        report->applied++;
        if (notes && base_renew(ws, notes, c->path, err) < 0)
            return -1;
    }
    return 0;
}

static void apply_gone_folders(const struct workspace *ws, const struct tree_changes *changes,
                               const struct apply_options *o)
{
    for (size_t i = changes->n_gone; i-- > 0;) {
        const char *path = changes->gone_dirs[i], *name;
        if (!apply_is_chosen(o, path))
            continue;
        _cleanup_close_ int dir = tree_make_parent(ws->base_fd, path, &name);
        if (dir >= 0)
            unlinkat(dir, name, AT_REMOVEDIR); /* not empty: something of the host's is in it */
    }
}

static int apply_new_folders(const struct workspace *ws, const struct tree_changes *changes,
                             struct cordon_err *err)
{
    for (size_t i = 0; i < changes->n_new; i++) {
        const char *path = changes->new_dirs[i], *name;
        _cleanup_close_ int dir = tree_make_parent(ws->base_fd, path, &name);
        if (dir < 0 || (mkdirat(dir, name, 0777) < 0 && errno != EEXIST))
            return err_set(err, CORDON_ERR_INTERNAL, "apply", errno, "%.900s", path);
    }
    return 0;
}

int apply_changes(const struct workspace *ws, const struct tree_changes *changes,
                  struct base_notes *notes, const struct apply_options *options,
                  struct apply_report *report, struct cordon_err *err)
{
    *report = (struct apply_report){0};
    if (apply_check_paths(changes, options, err) < 0 ||
        apply_decide(ws, changes, notes, options, report, err) < 0 ||
        apply_pass(ws, changes, notes, options, true, report, err) < 0)
        return -1;
    apply_gone_folders(ws, changes, options);
    if (options->folders && apply_new_folders(ws, changes, err) < 0)
        return -1;
    return apply_pass(ws, changes, notes, options, false, report, err);
}

/* Only beside paths the workspace changes: nowhere else can an apply have been writing. */
static unsigned apply_gc_changes(const struct workspace *ws, const struct tree_changes *changes)
{
    unsigned removed = 0;
    for (size_t i = 0; i < changes->n; i++) {
        struct stat st;
        char parent[TREE_PATH_MAX + 1];
        const char *path = changes->list[i].path, *slash = strrchr(path, '/');
        size_t len = slash ? (size_t)(slash - path) : 0;
        memcpy(parent, path, len);
        parent[len] = '\0';
        _cleanup_close_ int dir = tree_open_dir(ws->base_fd, parent);
        if (dir >= 0 && fstatat(dir, APPLY_TEMP, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            st.st_uid == geteuid() && unlinkat(dir, APPLY_TEMP, 0) == 0)
            removed++;
    }
    return removed;
}

unsigned apply_gc(const char *root)
{
    struct cordon_err ignored;
    char **ids = NULL;
    unsigned removed = 0;
    if (workspace_list(root, &ids, &ignored) < 0)
        return 0;
    for (size_t i = 0; ids[i]; i++) {
        struct workspace ws;
        struct tree_changes changes;
        if (workspace_open(root, ids[i], &ws, &ignored) < 0)
            continue; /* in use: its apply lives */
        if (ws.base_fd >= 0 && workspace_compare(&ws, false, &changes, &ignored) == 0) {
            removed += apply_gc_changes(&ws, &changes);
            tree_changes_done(&changes);
        }
        workspace_close(&ws);
    }
    workspace_list_free(ids);
    return removed;
}

void apply_report_done(struct apply_report *report)
{
    free(report->conflicts);
    free(report->refused);
    *report = (struct apply_report){0};
}
