/* Trees of tasks. Runs in the caller's process, see task.h. */
#include "workspace/task.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "base/err.h"
#include "base/util.h"
#include "workspace/copy.h"
#include "workspace/patch.h"
#include "workspace/workspace_internal.h"

/* What is remembered of a tree before a command: enough for the trees of tasks, and never a
 * caller's whole disk or day. */
#define TASK_BYTES ((uint64_t)1 << 30)
#define TASK_ENTRIES 200000
#define TASK_SECONDS 30
#define TASK_KEEP_FREE ((uint64_t)64 << 20)

bool workspace_is_id(const char *id)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t len = strlen(id);
    return len > 0 && len <= WORKSPACE_ID_MAX && strspn(id, letters) == len && id[0] != '.' &&
           id[0] != '-';
}

int workspace_lock(int fd, bool wait)
{
    int r;
    do
        r = flock(fd, LOCK_EX | (wait ? 0 : LOCK_NB));
    while (r < 0 && errno == EINTR);
    return r;
}

int workspace_make_locked(int dir_fd, const char *prefix, mode_t mode,
                          char ret_name[static WORKSPACE_NAME_MAX])
{
    for (int tries = 0; tries < 16; tries++) {
        struct stat st;
        size_t len = (size_t)snprintf(ret_name, WORKSPACE_NAME_MAX, "%s-", prefix);
        tree_random(ret_name + len, 12);
        if (mkdirat(dir_fd, ret_name, mode) < 0)
            return -1;
        int fd = openat(dir_fd, ret_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0 && workspace_lock(fd, false) == 0 && fstat(fd, &st) == 0 && st.st_nlink > 0)
            return fd;
        bool taken = fd >= 0 || errno == ENOENT;
        util_close(&fd);
        unlinkat(dir_fd, ret_name, AT_REMOVEDIR);
        if (!taken)
            return -1;
    }
    errno = EAGAIN;
    return -1;
}

static int task_open_root(const char *root)
{
    return tree_open_own(root, WORKSPACE_ROOT, 0, 0);
}

/* A guest may have closed it: it is opened up for this one moment. */
static int task_open_tree(int root_fd, const char *id)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(root_fd, id, flags);
    mode_t mode;
    if (fd >= 0 || errno != EACCES || tree_unlock(root_fd, id, &mode) < 0)
        return fd;
    fd = openat(root_fd, id, flags);
    if (fd >= 0)
        fchmod(fd, mode);
    return fd;
}

/* ---- Making and removing ---- */

bool task_is_safe_name(const char *name)
{
    size_t len = strlen(name);
    if (len == 0 || len > TREE_PATH_MAX - 95 || *name == '/')
        return false;
    for (const char *part = name; *part;) {
        size_t n = strcspn(part, "/");
        if (n == 0 || n > 255 || (n == 1 && part[0] == '.') ||
            (n == 2 && part[0] == '.' && part[1] == '.'))
            return false;
        part += n;
        if (*part == '/' && !*++part)
            return false;
    }
    return true;
}

static int task_write_file(int tree_fd, const struct task_file *f)
{
    const char *name, *data = f->data;
    _cleanup_close_ int dir = tree_make_parent(tree_fd, f->name, &name);
    _cleanup_close_ int fd =
        dir < 0 ? -1
                : openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                         f->is_executable ? 0755 : 0644);
    if (fd < 0)
        return -1;
    for (size_t done = 0; done < f->len;) {
        ssize_t n = write(fd, data + done, f->len - done);
        if (n < 0 && errno != EINTR)
            return -1;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int task_fill(int tree_fd, const struct task_file *files, size_t n, struct cordon_err *err)
{
    for (size_t i = 0; i < n; i++)
        if (task_write_file(tree_fd, &files[i]) < 0)
            return err_set(err, CORDON_ERR_USAGE, "task", errno, "%.200s", files[i].name);
    return 0;
}

/* Locks the tree that has the id: between opening and locking it may have been removed, and another
 * one made with its name, which is then the one that is meant. -1 and errno. */
static int task_lock_tree(int root_fd, const char *id, bool wait)
{
    for (int tries = 0; tries < 64; tries++) {
        struct stat own, named;
        _cleanup_close_ int fd = task_open_tree(root_fd, id);
        if (fd < 0 || workspace_lock(fd, wait) < 0)
            return -1;
        if (fstat(fd, &own) == 0 && fstatat(root_fd, id, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
            own.st_ino == named.st_ino && own.st_dev == named.st_dev)
            return TAKE_FD(fd);
    }
    errno = EWOULDBLOCK;
    return -1;
}

/* A tree that has lost its name, and is still to be removed. The lock is kept until it is gone, so
 * that gc does not remove it as well. */
struct task_old {
    int lock;
    char trash[64]; /* empty: there is none */
};

#define TASK_OLD_NONE ((struct task_old){.lock = -1})

/* Out of the way first, then gone: a removal that is cut off leaves only what gc knows. Not while
 * somebody works in it, and not if it is somebody else's (EEXIST): what has no mark of ours goes
 * only if nothing is in it. The records are held. */
static int task_unname(int root_fd, const char *id, struct task_old *ret_old)
{
    struct task_old old = {-1, WORKSPACE_TRASH "-"};
    _cleanup_close_ int lock = task_lock_tree(root_fd, id, false);
    /* no folder at all, or one that is closed to us, has nobody in it */
    if (lock < 0 && errno != ENOENT && errno != ENOTDIR && errno != ELOOP && errno != EACCES)
        return -1;
    if (unlinkat(root_fd, id, AT_REMOVEDIR) < 0 && errno != ENOENT) {
        if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR)
            return -1;
        if (!meta_is_marked(root_fd, id)) {
            errno = EEXIST;
            return -1;
        }
        tree_random(old.trash + strlen(old.trash), 12);
        if (renameat(root_fd, id, root_fd, old.trash) < 0)
            return -1;
        old.lock = TAKE_FD(lock);
        *ret_old = old;
    }
    meta_unmark(root_fd, id);
    return 0;
}

/* One that has no name of its own yet. */
struct task_new {
    int fd; /* locked */
    char name[WORKSPACE_NAME_MAX];
};

static int task_remove_old(int root_fd, struct task_old *old)
{
    int r = old->trash[0] ? copy_remove(root_fd, old->trash) : 0;
    util_close(&old->lock);
    return r;
}

/* "In use" reads better than what the lock says. */
static int task_fail(const char *root, const char *id, int code, struct cordon_err *err)
{
    if (errno == EWOULDBLOCK)
        return err_set(err, CORDON_ERR_USAGE, "task", errno, "workspace %s is in use", id);
    if (errno != EEXIST)
        return err_set(err, code, "task", errno, "%.900s/%s", root, id);
    err_set(err, CORDON_ERR_USAGE, "task", 0, WORKSPACE_NOT_OURS, root, id);
    return err_hint(err,
                    "remove it yourself, or name another work root; one of an earlier version: "
                    "cordon workspace --work-root DIR rm --force %s",
                    id);
}

static int task_hold_records(int root_fd, const char *root, struct cordon_err *err)
{
    int records = meta_hold(root_fd);
    if (records < 0)
        err_set(err, CORDON_ERR_USAGE, "task", errno, "%.900s/" WORKSPACE_META, root);
    return records;
}

/* The mark is there before what it stands for: without it the tree would be somebody else's. The
 * lock that kept gc away ends with the name: nobody is to find a new tree in use. */
static int task_rename(int root_fd, const struct task_new *tree, const char *id)
{
    if (meta_mark(root_fd, id, tree->name) < 0)
        return -1;
    if (renameat(root_fd, tree->name, root_fd, id) == 0) {
        flock(tree->fd, LOCK_UN);
        return 0;
    }
    int e = errno;
    meta_unmark(root_fd, id);
    errno = e;
    return -1;
}

/* What has the id goes, for another tree or for nothing (NULL). That takes its time, during which
 * the records are everybody's: somebody else may make another one, and the last one stays. */
static int task_replace(int root_fd, const char *root, const char *id, const struct task_new *tree,
                        struct cordon_err *err)
{
    for (int tries = 0; tries < 64; tries++) {
        struct task_old old = TASK_OLD_NONE;
        int records = task_hold_records(root_fd, root, err);
        if (records < 0)
            return -1;
        int r = task_unname(root_fd, id, &old);
        bool is_free = r == 0 && !old.trash[0];
        if (is_free && tree)
            r = task_rename(root_fd, tree, id);
        meta_release(root_fd, &records);
        if (r == 0)
            r = task_remove_old(root_fd, &old);
        if (r < 0)
            return task_fail(root, id, CORDON_ERR_INTERNAL, err);
        if (is_free || !tree)
            return 0;
    }
    errno = EWOULDBLOCK;
    return task_fail(root, id, CORDON_ERR_INTERNAL, err);
}

int task_make(const char *root, const char *id, const struct task_file *files, size_t n_files,
              struct cordon_err *err)
{
    struct task_new tree;
    for (size_t i = 0; i < n_files; i++)
        if (!files[i].name || !task_is_safe_name(files[i].name))
            return err_set(err, CORDON_ERR_USAGE, "task", 0,
                           "%.200s: not a relative path inside the workspace",
                           files[i].name ? files[i].name : "(no name)");
    _cleanup_close_ int root_fd =
        tree_open_own(root, WORKSPACE_ROOT, TREE_MAKE | TREE_MAKE_ABOVE, 0777);
    _cleanup_close_ int tree_fd =
        root_fd < 0 ? -1 : workspace_make_locked(root_fd, WORKSPACE_NEW, 0755, tree.name);
    tree.fd = tree_fd;
    if (tree_fd < 0)
        return err_set(err, CORDON_ERR_USAGE, "task", errno, "%.900s", root);
    int r = task_fill(tree_fd, files, n_files, err);
    if (r == 0)
        r = task_replace(root_fd, root, id, &tree, err);
    if (r < 0)
        copy_remove(root_fd, tree.name);
    return r;
}

bool task_exists(const char *root, const char *id)
{
    _cleanup_close_ int root_fd = task_open_root(root);
    struct stat st;
    return root_fd >= 0 && fstatat(root_fd, id, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(st.st_mode);
}

int task_remove(const char *root, const char *id, struct cordon_err *err)
{
    _cleanup_close_ int root_fd = task_open_root(root);
    struct stat st;
    if (root_fd < 0 || fstatat(root_fd, id, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : task_fail(root, id, CORDON_ERR_INTERNAL, err);
    return task_replace(root_fd, root, id, NULL, err);
}

/* ---- In use ---- */

static uint64_t task_deadline(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)(now.tv_sec + TASK_SECONDS) * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The state lies beside the tree, where no guest of this task can see it, and is locked as long as
 * somebody is behind it. */
static int task_make_state(struct task_hold *h)
{
    h->state_fd = workspace_make_locked(h->root_fd, WORKSPACE_TRASH, 0700, h->state);
    if (h->state_fd < 0)
        h->state[0] = '\0';
    if (h->state_fd < 0 || mkdirat(h->state_fd, "before", 0700) < 0)
        return -1;
    h->before_fd = task_open_tree(h->state_fd, "before");
    return h->before_fd < 0 ? -1 : 0;
}

_Static_assert(PATCH_FILE_MAX == TREE_LARGE, "of larger files only size and time are kept");

static int task_remember(struct task_hold *h, struct cordon_err *err)
{
    struct copy_options options = {.is_own = true,
                                   .file_bytes = PATCH_FILE_MAX,
                                   .max_bytes = TASK_BYTES,
                                   .max_entries = TASK_ENTRIES,
                                   .deadline_ns = task_deadline(),
                                   .keep_free = TASK_KEEP_FREE,
                                   .unread = &h->unread,
                                   .ret_cut = &h->is_cut};
    struct stat st;
    if (task_make_state(h) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "task", errno, "%s", h->state);
    if (copy_tree(h->tree_fd, h->before_fd, &options, err) < 0)
        return -1;
    tree_paths_sort(&h->unread);
    /* the clock of the files themselves: what they show from now on is the command's doing */
    _cleanup_close_ int mark =
        openat(h->state_fd, "copied", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (mark < 0 || futimens(mark, NULL) < 0 || fstat(mark, &st) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "task", errno, "%s/copied", h->state);
    h->copied_at = st.st_ctim;
    return 0;
}

int task_hold_begin(const char *root, const char *id, bool wait, struct task_hold *ret_hold,
                    struct cordon_err *err)
{
    struct task_hold h = TASK_HOLD_INIT;
    h.root_fd = task_open_root(root);
    h.tree_fd = h.root_fd < 0 ? -1 : task_lock_tree(h.root_fd, id, wait);
    int r = h.tree_fd < 0 ? task_fail(root, id, CORDON_ERR_USAGE, err) : task_remember(&h, err);
    if (r < 0)
        task_hold_end(&h);
    else
        *ret_hold = h;
    return r;
}

int task_hold_compare(struct task_hold *h, struct tree_changes *ret_changes, struct cordon_err *err)
{
    struct tree_state old = {-1, h->before_fd}, new = {-1, h->tree_fd};
    struct tree_options options = {.copied_at = h->copied_at, .unread = &h->unread};
    return tree_compare(&old, &new, &options, ret_changes, err);
}

void task_hold_end(struct task_hold *h)
{
    tree_paths_done(&h->unread);
    util_close(&h->before_fd);
    if (h->state[0])
        copy_remove(h->root_fd, h->state);
    util_close(&h->state_fd);
    util_close(&h->tree_fd);
    util_close(&h->root_fd);
    *h = TASK_HOLD_INIT;
}
