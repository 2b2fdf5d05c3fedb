/* A workspace around one run: overlay or copy, what it was before, what changed. Runs on our side.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/err.h"
#include "base/util.h"
#include "workspace/copy.h"
#include "workspace/owners.h"
#include "workspace/scan.h"
#include "workspace/workspace_internal.h"

#define COPY_ENTRIES 2000000u
#define COPY_SECONDS 300
#define COPY_KEEP_FREE                                                                             \
    ((uint64_t)1 << 30) /* or a twentieth of the file system, if that is less                      \
                         */

static void workspace_own_root(const struct workspace *ws, dev_t *ret_dev, ino_t *ret_ino)
{
    struct stat st;
    *ret_dev = 0;
    *ret_ino = 0;
    if (fstat(ws->place_fd, &st) == 0 && (ws->is_kept || ws->is_tree)) {
        *ret_dev = st.st_dev;
        *ret_ino = st.st_ino;
    }
}

int workspace_copy_begin(struct workspace *ws, int *ret_fd, struct cordon_err *err)
{
    /* there is one only where an earlier copy was cut off: guests never worked on it */
    if (copy_remove(ws->state_fd, "copy") < 0 || mkdirat(ws->state_fd, "copy", 0700) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "workspace", errno, "%s/copy", ws->state);
    int to = openat(ws->state_fd, "copy", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (to < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "workspace", errno, "%s/copy", ws->state);
    *ret_fd = to;
    return 0;
}

int workspace_copy_work(const struct workspace *ws, int base_fd, int to_fd, struct cordon_err *err)
{
    struct copy_options options = {.max_entries = COPY_ENTRIES};
    struct timespec now;
    struct statvfs fs;
    workspace_own_root(ws, &options.skip_dev, &options.skip_ino);
    clock_gettime(CLOCK_MONOTONIC, &now);
    options.deadline_ns =
        (uint64_t)(now.tv_sec + COPY_SECONDS) * 1000000000u + (uint64_t)now.tv_nsec;
    if (fstatvfs(to_fd, &fs) == 0)
        options.keep_free = MIN((uint64_t)fs.f_blocks * fs.f_frsize / 20, COPY_KEEP_FREE);
    return copy_tree(base_fd, to_fd, &options, err);
}

void workspace_look_end(struct workspace *ws, bool is_whole)
{
    copy_remove(ws->state_fd, "copy"); /* nothing is in it */
    ws->wants_look = false;
    ws->owners_unknown = !is_whole;
    /* a folder too large to be looked at is not looked at again for a while either */
    owners_remember(ws->base_fd);
}

int workspace_copy_end(struct workspace *ws, struct cordon_err *err)
{
    struct stat st;
    /* the clock of the files themselves: what they show from now on is the guest's doing */
    _cleanup_close_ int mark =
        openat(ws->state_fd, "copied", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (mark < 0 || futimens(mark, NULL) < 0 || fstat(mark, &st) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "workspace", errno, "%s/copied", ws->state);
    ws->made_at = st.st_ctim;
    ws->is_copy = true;
    ws->wants_copy = ws->wants_look = false;
    return ws->is_kept ? record_write(ws, err) : 0;
}

/* What runs wrote. They may have closed it to us, its owner: it is opened up, for good, as whatever
 * they did must be told. */
int workspace_open_layer(const struct workspace *ws)
{
    char self[32];
    struct stat st;
    _cleanup_close_ int fd = openat(ws->state_fd, ws->is_copy ? "copy" : "layer/upper",
                                    O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -1;
    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    if ((st.st_mode & 0700) != 0700 && st.st_uid == geteuid() &&
        chmod(self, (st.st_mode & 07777) | 0700) < 0)
        return -1;
    return open(self, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* The layer before the run is what the run's own changes are counted against. */
static int workspace_remember(struct workspace *ws, struct cordon_err *err)
{
    struct copy_options options = {.layer = true};
    _cleanup_close_ int upper = workspace_open_layer(ws);
    if (upper < 0 || copy_remove(ws->state_fd, "prev") < 0 ||
        mkdirat(ws->state_fd, "prev", 0700) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "workspace", errno, "%s/prev", ws->state);
    _cleanup_close_ int prev = openat(ws->state_fd, "prev", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (prev < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "workspace", errno, "%s/prev", ws->state);
    ws->has_prev = true;
    return copy_tree(upper, prev, &options, err);
}

/* No run has changed anything yet: nothing in the layer, and its folder as the base's. */
static bool workspace_is_untouched(const struct workspace *ws)
{
    struct stat layer, base;
    int fd = openat(ws->state_fd, "layer/upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        util_close(&fd);
        return false;
    }
    bool empty =
        fstat(fd, &layer) == 0 && fstat(ws->base_fd, &base) == 0 && layer.st_mode == base.st_mode;
    for (const struct dirent *e; empty && (e = readdir(dir));)
        empty = str_eq(e->d_name, ".") || str_eq(e->d_name, "..");
    closedir(dir);
    return empty;
}

/* Overlay or copy: what the layer's file system and the owners of the first files say. A large
 * folder is looked at whole by whoever would copy it, unless that was done lately. */
static void workspace_choose(struct workspace *ws)
{
    char path[4200];
    snprintf(path, sizeof(path), "%s/layer/upper", ws->state);
    bool has_attributes = setxattr(path, "user.overlay.probe", "y", 1, 0) == 0;
    removexattr(path, "user.overlay.probe");
    enum scan_owners owners = scan_owners(ws->base_fd);
    ws->wants_copy = !has_attributes || owners == SCAN_FOREIGN;
    ws->owners_unknown = owners == SCAN_PARTLY;
    ws->wants_look = !ws->wants_copy && ws->owners_unknown && !owners_is_known(ws->base_fd);
}

int workspace_prepare(struct workspace *ws, struct cordon_err *err)
{
    if (ws->is_copy || ws->wants_copy || ws->wants_look)
        return 0;
    /* with changes in the layer it is decided: a copy would not have them */
    bool is_open = ws->is_fresh || workspace_is_untouched(ws);
    ws->owners_unknown = true;
    if (!ws->is_fresh && workspace_remember(ws, err) < 0)
        return -1;
    /* left by a run without an orderly end: the overlay would refuse to use the layer again */
    copy_remove(ws->state_fd, "layer/work/work");
    copy_remove(ws->state_fd, "layer/work/incompat");
    if (is_open)
        workspace_choose(ws);
    return 0;
}

int workspace_fall_back(struct workspace *ws, struct cordon_err *err)
{
    if (ws->is_copy || (!ws->is_fresh && !workspace_is_untouched(ws))) {
        err_set(err, CORDON_ERR_HOST, "workspace", 0, "the overlay of workspace %s is refused here",
                ws->id);
        return err_hint(
            err, "its changes were made where it was not: `cordon workspace diff` still works");
    }
    ws->wants_copy = true;
    ws->wants_look = false;
    return 0;
}

char *workspace_layer(const struct workspace *ws)
{
    return workspace_join(ws->state, ws->is_copy ? "copy" : "layer");
}

int workspace_compare(const struct workspace *ws, bool since_run, struct tree_changes *ret_changes,
                      struct cordon_err *err)
{
    struct tree_options options = {0};
    struct tree_state old = {-1, ws->base_fd}, new = {-1, ws->base_fd};
    workspace_own_root(ws, &options.skip_dev, &options.skip_ino);
    if (ws->is_tree) { /* it began empty */
        old.base_fd = -1;
        return tree_compare(&old, &new, &options, ret_changes, err);
    }
    /* the descriptors stay open as long as the changes refer to them: they are the list's own */
    int prev = since_run && ws->has_prev
                   ? openat(ws->state_fd, "prev", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                   : -1;
    int layer = workspace_open_layer(ws);
    if (layer < 0) {
        util_close(&prev);
        return err_set(err, CORDON_ERR_INTERNAL, "workspace", errno, "%s", ws->state);
    }
    old.upper_fd = prev;
    if (ws->is_copy) {
        new.base_fd = layer;
        options.copied_at = ws->made_at;
        options.has_blanks = true;
    } else {
        new.upper_fd = layer;
    }
    if (tree_compare(&old, &new, &options, ret_changes, err) < 0) {
        util_close(&prev);
        util_close(&layer);
        return -1;
    }
    ret_changes->own_fds[0] = prev;
    ret_changes->own_fds[1] = layer;
    return 0;
}
