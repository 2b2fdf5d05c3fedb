/* States of workspaces: made, locked, compared, removed. Runs on our side. */
#include "workspace/workspace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/detach.h"
#include "base/err.h"
#include "base/util.h"
#include "workspace/copy.h"
#include "workspace/workspace_internal.h"

void workspace_init(struct workspace *ws)
{
    *ws = (struct workspace){.place_fd = -1, .state_fd = -1, .base_fd = -1};
}

char *workspace_join(const char *dir, const char *name)
{
    struct buf b = BUF_INIT(65536);
    buf_str(&b, dir);
    if (b.len == 0 || b.data[b.len - 1] != '/')
        buf_char(&b, '/');
    buf_str(&b, name);
    return buf_take(&b);
}

static int workspace_open_base(struct workspace *ws, struct cordon_err *err)
{
    ws->base_fd = open(ws->base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (ws->base_fd < 0)
        return err_set(err, CORDON_ERR_CONFIG, "workspace", errno, "%s", ws->base);
    return 0;
}

/* The state's own folders, and the time from which on a change is somebody's. */
static int workspace_fill(struct workspace *ws, struct cordon_err *err)
{
    static const char *const parts[] = {"layer", "layer/upper", "layer/work"};
    struct stat base, st;
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
        if (mkdirat(ws->state_fd, parts[i], 0700) < 0 && errno != EEXIST)
            return err_set(err, CORDON_ERR_INTERNAL, "workspace", errno, "%s", ws->state);
    /* the guest's view of the top folder has the upper's mode */
    if (fstat(ws->base_fd, &base) < 0 ||
        fchmodat(ws->state_fd, "layer/upper", base.st_mode & 0777, 0) < 0 ||
        fstatat(ws->state_fd, "layer/work", &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "workspace", errno, "%s", ws->state);
    ws->made_at = st.st_ctim;
    ws->is_fresh = true;
    return 0;
}

/* The last step. A kept one has its record first: a record without a state is nothing and goes with
 * the next gc, a state without a record would be somebody's tree. */
static int workspace_name_state(struct workspace *ws, const char *temp, const char *name,
                                struct cordon_err *err)
{
    struct stat st;
    _cleanup_close_ int records = ws->is_kept ? meta_hold(ws->place_fd) : -1;
    if (ws->is_kept && records < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "workspace", errno, "%s", ws->place);
    if (fstatat(ws->place_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
        return err_set(err, CORDON_ERR_USAGE, "workspace", EEXIST, "%s", ws->state);
    if (ws->is_kept) {
        record_forget_base(ws); /* of one with this id whose removal was cut off */
        meta_unmark(ws->place_fd, ws->id);
        if (record_write(ws, err) < 0)
            return -1;
    }
    if (renameat(ws->place_fd, temp, ws->place_fd, name) == 0)
        return 0;
    err_set(err, CORDON_ERR_USAGE, "workspace", errno, "%s", ws->state);
    if (ws->is_kept)
        record_remove(ws);
    return -1;
}

/* Made under another name, locked, then renamed: a state with its real name is whole and locked. */
static int workspace_make_state(struct workspace *ws, const char *name, struct cordon_err *err)
{
    char temp[WORKSPACE_NAME_MAX];
    ws->state = workspace_join(ws->place, name);
    if (!ws->state)
        return err_nomem(err, "workspace");
    ws->state_fd = workspace_make_locked(ws->place_fd, WORKSPACE_NEW, 0700, temp);
    if (ws->state_fd < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "workspace", errno, "%s", ws->place);
    if (workspace_fill(ws, err) == 0 && workspace_name_state(ws, temp, name, err) == 0)
        return 0;
    copy_remove(ws->place_fd, temp);
    return -1;
}

/* A folder the state of one run may lie in: ours to write, outside of what the guest will see, and
 * able to hold the attributes of an overlay. */
static bool workspace_try_place(struct workspace *ws, const char *path)
{
    _cleanup_free_ char *real = path ? realpath(path, NULL) : NULL;
    size_t len = strlen(ws->base);
    if (!real || (strncmp(real, ws->base, len) == 0 && (real[len] == '/' || !real[len])) ||
        len == 1)
        return false;
    int fd = open(real, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return false;
    if (faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) < 0) {
        close(fd);
        return false;
    }
    ws->place_fd = fd;
    ws->place = TAKE_PTR(real);
    return true;
}

static bool workspace_find_place(struct workspace *ws)
{
    const char *const places[] = {getenv("TMPDIR"), "/var/tmp", "/tmp"};
    for (size_t i = 0; i < ARRAY_SIZE(places); i++)
        if (workspace_try_place(ws, places[i]))
            return true;
    return false;
}

int workspace_temp(const char *base, struct workspace *ret_ws, struct cordon_err *err)
{
    struct workspace ws;
    char name[64] = WORKSPACE_TEMP_PREFIX;
    workspace_init(&ws);
    tree_random(name + strlen(name), 12);
    ws.base = realpath(base, NULL);
    if (!ws.base) {
        err_set(err, CORDON_ERR_CONFIG, "workspace", errno, "%s", base);
        return err_hint(err, "create it, or name another folder");
    }
    if (workspace_open_base(&ws, err) == 0) {
        if (!workspace_find_place(&ws))
            err_set(err, CORDON_ERR_CONFIG, "workspace", 0,
                    "%s: no temporary folder outside of it for what the guest changes", base);
        else if (workspace_make_state(&ws, name, err) == 0) {
            *ret_ws = ws;
            return 0;
        }
    }
    workspace_close(&ws);
    return -1;
}

static int workspace_open_root(struct workspace *ws, const char *root, bool make,
                               struct cordon_err *err)
{
    struct stat held, named;
    ws->place_fd = tree_open_own(root, WORKSPACE_ROOT, make ? TREE_MAKE : 0, 0700);
    if (ws->place_fd < 0) {
        int e = errno;
        if (e == ENOENT && !make)
            return err_set(err, CORDON_ERR_USAGE, "workspace", 0, "no workspace %s in %s", ws->id,
                           root);
        err_set(err, CORDON_ERR_USAGE, "workspace", e, "%s", root);
        return e == ELOOP ? err_hint(err, "it is a link, which a guest may have left; name the "
                                          "folder that is meant with --work-root")
                          : -1;
    }
    ws->place = realpath(root, NULL);
    if (!ws->place || fstat(ws->place_fd, &held) < 0 || stat(ws->place, &named) < 0)
        return err_set(err, CORDON_ERR_USAGE, "workspace", errno, "%s", root);
    if (held.st_dev != named.st_dev || held.st_ino != named.st_ino)
        return err_set(err, CORDON_ERR_USAGE, "workspace", 0, "%s was replaced meanwhile", root);
    return 0;
}

static int workspace_make_tree(struct workspace *ws, struct cordon_err *err)
{
    ws->is_tree = true;
    ws->base = workspace_join(ws->place, ws->id);
    if (!ws->base)
        return err_nomem(err, "workspace");
    int records = meta_hold(ws->place_fd);
    if (records < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "workspace", errno, "%s/" WORKSPACE_META,
                       ws->place);
    int r = 0;
    if (mkdirat(ws->place_fd, ws->id, 0700) < 0)
        r = err_set(err, CORDON_ERR_USAGE, "workspace", errno, "%s", ws->base);
    else if (meta_mark(ws->place_fd, ws->id, ws->id) < 0) {
        r = err_set(err, CORDON_ERR_INTERNAL, "workspace", errno, "mark of %s", ws->base);
        unlinkat(ws->place_fd, ws->id, AT_REMOVEDIR);
    } else
        record_remove(ws); /* left by a removal that was cut off: the tree would be taken for it */
    meta_release(ws->place_fd, &records);
    return r < 0 ? -1 : workspace_open_base(ws, err);
}

int workspace_new(const char *root, const char *id, const char *base, struct workspace *ret_ws,
                  struct cordon_err *err)
{
    struct workspace ws;
    workspace_init(&ws);
    if (id && !workspace_is_id(id))
        return err_set(err, CORDON_ERR_USAGE, "workspace", 0,
                       "not an id: letters, digits, '.', '_' and '-', at most 100, the first a "
                       "letter or digit");
    if (id)
        snprintf(ws.id, sizeof(ws.id), "%s", id);
    else
        tree_random(ws.id, 8);
    if (base && !(ws.base = realpath(base, NULL)))
        return err_set(err, CORDON_ERR_CONFIG, "workspace", errno, "%s", base);
    int r = workspace_open_root(&ws, root, true, err);
    if (r == 0 && !base)
        r = workspace_make_tree(&ws, err);
    else if (r == 0) {
        ws.is_kept = true;
        r = workspace_open_base(&ws, err);
        if (r == 0 && str_eq(ws.base, ws.place))
            r = err_set(err, CORDON_ERR_USAGE, "workspace", 0, "%s holds the workspaces themselves",
                        base);
        if (r == 0)
            r = workspace_make_state(&ws, ws.id, err);
    }
    if (r < 0)
        workspace_close(&ws);
    else
        *ret_ws = ws;
    return r;
}

/* Over an empty layer. The record is replaced, never absent: without it the state would be a tree.
 */
static int workspace_begin_again(struct workspace *ws, struct cordon_err *err)
{
    ws->is_copy = false;
    if (workspace_fill(ws, err) < 0)
        return -1;
    record_forget_base(ws);
    return record_write(ws, err);
}

/* Between opening and locking it may have been removed, and another one made with its name. */
static int workspace_lock_state(struct workspace *ws, struct cordon_err *err)
{
    struct stat own, named;
    _cleanup_close_ int fd =
        openat(ws->place_fd, ws->id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && workspace_lock(fd, false) < 0) {
        if (errno != EWOULDBLOCK)
            return err_set(err, CORDON_ERR_INTERNAL, "workspace", errno, "lock %s", ws->id);
        return err_set(err, CORDON_ERR_USAGE, "workspace", 0, "workspace %s is in use", ws->id);
    }
    if (fd < 0 || fstat(fd, &own) < 0 ||
        fstatat(ws->place_fd, ws->id, &named, AT_SYMLINK_NOFOLLOW) < 0)
        return err_set(err, CORDON_ERR_USAGE, "workspace", errno == ENOENT ? 0 : errno,
                       "no workspace %s in %s", ws->id, ws->place);
    if (own.st_ino != named.st_ino || own.st_dev != named.st_dev)
        return err_set(err, CORDON_ERR_USAGE, "workspace", 0, "workspace %s is in use", ws->id);
    ws->state_fd = TAKE_FD(fd);
    return 0;
}

/* The record is read under the lock; the state has no path before it is known whose it is, so that
 * no error on the way removes it. */
static int workspace_open_state(struct workspace *ws, struct cordon_err *err)
{
    int r = workspace_lock_state(ws, err) < 0 ? -1 : record_read(ws, err);
    if (r < 0)
        return -1;
    ws->is_kept = r == 1;
    ws->is_tree = r == 0;
    ws->state = workspace_join(ws->place, ws->id);
    if (ws->is_tree)
        ws->base = workspace_join(ws->place, ws->id);
    if (!ws->state || !ws->base)
        return err_nomem(err, "workspace");
    if (workspace_open_base(ws, err) < 0)
        return -1;
    struct stat st;
    if (ws->is_tree ||
        fstatat(ws->state_fd, ws->is_copy ? "copy" : "layer/work", &st, AT_SYMLINK_NOFOLLOW) == 0)
        return 0;
    return workspace_begin_again(ws, err); /* a discard that was cut off */
}

int workspace_open(const char *root, const char *id, struct workspace *ret_ws,
                   struct cordon_err *err)
{
    struct workspace ws;
    workspace_init(&ws);
    if (!workspace_is_id(id))
        return err_set(err, CORDON_ERR_USAGE, "workspace", 0,
                       "'%.100s' is not an id of a workspace", id);
    snprintf(ws.id, sizeof(ws.id), "%s", id);
    if (workspace_open_root(&ws, root, false, err) < 0 || workspace_open_state(&ws, err) < 0) {
        workspace_close(&ws);
        return -1;
    }
    *ret_ws = ws;
    return 0;
}

void workspace_close_beside(struct workspace *ws)
{
    bool removes = ws->state_fd >= 0 && !ws->is_kept && !ws->is_tree && ws->state;
    int fds[2] = {ws->place_fd, ws->state_fd}, r = removes ? detach_fork(fds, 2) : -1;
    if (r > 0)
        _exit(copy_remove(0, strrchr(ws->state, '/') + 1) < 0 ? 1 : 0);
    if (r == 0)
        util_close(&ws->state_fd);
    workspace_close(ws);
}

void workspace_close(struct workspace *ws)
{
    if (ws->state_fd >= 0 && !ws->is_kept && !ws->is_tree && ws->state)
        copy_remove(ws->place_fd, strrchr(ws->state, '/') + 1);
    else if (ws->has_prev)
        copy_remove(ws->state_fd, "prev");
    util_close(&ws->state_fd);
    util_close(&ws->base_fd);
    util_close(&ws->place_fd);
    free(ws->place);
    free(ws->state);
    free(ws->base);
    workspace_init(ws);
}

int workspace_discard(struct workspace *ws, struct cordon_err *err)
{
    if (ws->is_tree)
        return err_set(err, CORDON_ERR_USAGE, "workspace", 0,
                       "%s is a task's own tree: there is nothing beneath it to go back to",
                       ws->id);
    /* each at once, so that a part is whole or absent however far this comes */
    static const char *const parts[] = {"copy", "layer", "prev"};
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
        if (copy_remove(ws->state_fd, "old") < 0 ||
            (renameat(ws->state_fd, parts[i], ws->state_fd, "old") < 0 && errno != ENOENT) ||
            copy_remove(ws->state_fd, "old") < 0)
            return err_set(err, CORDON_ERR_INTERNAL, "workspace", errno, "%s/%s", ws->state,
                           parts[i]);
    return workspace_begin_again(ws, err);
}

/* The state first: a record without a state is nothing, a state without a record would be a tree.
 * Nobody makes a new one with this id in between, whose record would go in its place. */
static int workspace_unname(const struct workspace *ws, const char *trash)
{
    int records = meta_hold(ws->place_fd), r = -1;
    if (records >= 0 &&
        (renameat(ws->place_fd, ws->id, ws->place_fd, trash) == 0 || errno == ENOENT)) {
        record_remove(ws);
        meta_unmark(ws->place_fd, ws->id);
        r = 0;
    }
    meta_release(ws->place_fd, &records);
    return r;
}

/* Out of the way first, then gone: a removal that is cut off leaves only what gc knows. */
int workspace_remove(struct workspace *ws, bool force, struct cordon_err *err)
{
    char trash[64] = WORKSPACE_TRASH "-";
    tree_random(trash + strlen(trash), 12);
    if (ws->is_tree && !force && !meta_is_marked(ws->place_fd, ws->id) &&
        unlinkat(ws->place_fd, ws->id, AT_REMOVEDIR) < 0) {
        err_set(err, CORDON_ERR_USAGE, "workspace", 0, WORKSPACE_NOT_OURS, ws->place, ws->id);
        return err_hint(err, "look at what is in it; --force removes it all the same");
    }
    if (workspace_unname(ws, trash) < 0 || copy_remove(ws->place_fd, trash) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "workspace", errno, "%s", ws->state);
    ws->has_prev = false;
    return 0;
}
