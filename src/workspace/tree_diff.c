/* The changes of a tree as one patch. Runs on our side after the guest is gone. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/util.h"
#include "workspace/patch.h"
#include "workspace/tree.h"

const char *tree_kind_name(enum tree_kind kind)
{
    static const char *const names[] = {
        [TREE_ADDED] = "added",   [TREE_MODIFIED] = "modified", [TREE_DELETED] = "deleted",
        [TREE_MODE] = "mode",     [TREE_LINKED] = "symlink",    [TREE_RETYPED] = "type",
        [TREE_BINARY] = "binary", [TREE_NOT_FILE] = "special",
    };
    return names[kind];
}

static int diff_read_link(const struct tree_entry *e, const char *path, struct buf *out)
{
    /* the parent is opened beneath the layer; readlinkat itself follows nothing in the last part */
    const char *slash = strrchr(path, '/');
    char parent[TREE_PATH_MAX + 1], target[4096];
    size_t len = slash ? (size_t)(slash - path) : 0;
    memcpy(parent, path, len);
    parent[len] = '\0';
    _cleanup_close_ int dir = tree_open_dir(e->layer_fd, parent);
    ssize_t n = dir < 0 ? -1 : readlinkat(dir, slash ? slash + 1 : path, target, sizeof(target));
    if (n < 0)
        return -1;
    return buf_add(out, target, (size_t)n);
}

int tree_read(const struct tree_entry *e, const char *path, struct buf *out)
{
    if (e->type == TREE_SYMLINK)
        return diff_read_link(e, path, out);
    if (e->type != TREE_FILE)
        return buf_add(out, "", 0);
    _cleanup_close_ int fd = tree_open_file(e->layer_fd, path);
    if (fd < 0 || buf_reserve(out, MIN(e->size, (uint64_t)out->max)) < 0)
        return -1;
    char chunk[32768];
    ssize_t n;
    while ((n = read(fd, chunk, sizeof(chunk))) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 || buf_add(out, chunk, (size_t)n) < 0)
            return -1;
    }
    return buf_add(out, "", 0);
}

static enum patch_type diff_type(const struct tree_entry *e)
{
    return e->type == TREE_FILE      ? PATCH_FILE
           : e->type == TREE_SYMLINK ? PATCH_SYMLINK
                                     : PATCH_ABSENT;
}

static bool diff_is_printable(const struct tree_change *c)
{
    return patch_is_nameable(c->path) && !c->old.is_unread && c->old.type != TREE_SPECIAL &&
           c->new.type != TREE_SPECIAL && c->old.size <= PATCH_FILE_MAX &&
           c->new.size <= PATCH_FILE_MAX;
}

/* Unreadable or too large files are omitted, not errors: the list of changes still has them. */
static int diff_one(struct tree_changes *changes, struct tree_change *c, struct buf *text,
                    struct cordon_err *err)
{
    _cleanup_buf_ struct buf old = BUF_INIT(PATCH_FILE_MAX), new = BUF_INIT(PATCH_FILE_MAX);
    c->omitted = !diff_is_printable(c);
    if (c->omitted)
        return 0;
    if (tree_read(&c->old, c->path, &old) < 0 || tree_read(&c->new, c->path, &new) < 0) {
        c->omitted = true;
        return errno == EACCES && tree_paths_add(&changes->unread, c->path) < 0
                   ? err_nomem(err, "diff")
                   : 0;
    }
    struct patch_side a = {diff_type(&c->old), c->old.mode & 0100, old.data, old.len};
    struct patch_side b = {diff_type(&c->new), c->new.mode & 0100, new.data, new.len};
    struct patch_stat stat;
    size_t before = text->len;
    if (patch_write(c->path, &a, &b, text, &stat, err) < 0)
        return -1;
    if (text->failed) {
        if (text->len >= before && text->data) {
            text->len = before;
            text->data[before] = '\0';
        }
        text->failed = false;
        c->omitted = true;
        return 0;
    }
    c->added = stat.added;
    c->removed = stat.removed;
    if (stat.binary && c->kind == TREE_MODIFIED)
        c->kind = TREE_BINARY;
    return 0;
}

int tree_diff(struct tree_changes *changes, size_t max, struct buf *ret_text,
              struct cordon_err *err)
{
    struct buf text = BUF_INIT(max);
    for (size_t i = 0; i < changes->n; i++)
        if (diff_one(changes, &changes->list[i], &text, err) < 0) {
            buf_done(&text);
            return -1;
        }
    if (!text.data && buf_add(&text, "", 0) < 0)
        return err_nomem(err, "diff");
    *ret_text = text;
    return 0;
}
