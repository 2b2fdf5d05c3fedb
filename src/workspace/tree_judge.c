/* What one name is on two sides: the same, or which kind of change. Runs on our side after the
 * guest is gone. */
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "workspace/tree_internal.h"

static bool tree_same_target(const struct tree_entry *a, const struct tree_entry *b,
                             const char *path)
{
    _cleanup_buf_ struct buf one = BUF_INIT(65536), two = BUF_INIT(65536);
    return tree_read(a, path, &one) == 0 && tree_read(b, path, &two) == 0 && one.len == two.len &&
           (one.len == 0 || memcmp(one.data, two.data, one.len) == 0);
}

/* A copy has an empty file in the place of one that the caller cannot read. */
static bool tree_is_blank(const struct tree_options *o, const struct tree_entry *old,
                          const struct tree_entry *new, const char *path)
{
    if (!o->has_blanks || new->size != 0)
        return false;
    _cleanup_close_ int fd = tree_open_file(old->layer_fd, path);
    return fd < 0 && errno == EACCES;
}

static bool tree_same_file(const struct tree_options *o, const struct tree_entry *a,
                           const struct tree_entry *b, const char *path)
{
    if (a->size != b->size)
        return tree_is_blank(o, a, b, path);
    if (a->size == 0)
        return true;
    _cleanup_close_ int one = tree_open_file(a->layer_fd, path);
    _cleanup_close_ int two = tree_open_file(b->layer_fd, path);
    return one >= 0 && two >= 0 && tree_same_bytes(one, two) == 1;
}

bool tree_judge(const struct tree_options *o, const struct tree_entry *old,
                const struct tree_entry *new, const char *path, enum tree_kind *ret_kind)
{
    if (new->type == TREE_SPECIAL) {
        *ret_kind = TREE_NOT_FILE;
        return old->type != TREE_SPECIAL;
    }
    if (new->type == TREE_ABSENT) {
        *ret_kind = TREE_DELETED;
        /* pipes, sockets and devices were never in a copy */
        bool had = old->type != TREE_SPECIAL || !o->has_blanks;
        return had && old->type != TREE_ABSENT;
    }
    if (new->type == TREE_SYMLINK) {
        *ret_kind = TREE_LINKED;
        return old->type != TREE_SYMLINK || !tree_same_target(old, new, path);
    }
    if (old->type != TREE_FILE) {
        *ret_kind = old->type == TREE_ABSENT ? TREE_ADDED : TREE_RETYPED;
        return true;
    }
    if (!tree_same_file(o, old, new, path)) {
        *ret_kind = TREE_MODIFIED;
        return true;
    }
    *ret_kind = TREE_MODE;
    return old->mode != new->mode;
}

bool tree_judge_unread(const struct tree_view *old, const struct tree_view *new,
                       enum tree_kind *ret_kind)
{
    bool same = old->entry.size == new->entry.size && old->mtime.tv_sec == new->mtime.tv_sec &&
                old->mtime.tv_nsec == new->mtime.tv_nsec;
    *ret_kind = same ? TREE_MODE : TREE_MODIFIED;
    return !same || old->entry.mode != new->entry.mode;
}
