/* Files of a guest, received. Runs in `cordon-docker`. The sender is our own pid 1; the names and
 * the bytes are the guest's, and so is the container. Everything is checked, made anew below a
 * folder of ours, and nothing that comes is ever followed. */
#include "backend/docker/files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/native/native_internal.h"
#include "base/err.h"
#include "base/sys.h"
#include "base/util.h"

#define FILES_OWN_BYTES (UINT64_C(1) << 20) /* folders and ends of pages cost here, too */

static int files_enter_namespaces(struct cordon_err *err)
{
    uid_t uid = geteuid();
    gid_t gid = getegid();
    if (uid == 0)
        return 0;
    prctl(PR_SET_DUMPABLE, 1); /* or the maps would be root's to write */
    int r = unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0 || native_map_own(uid, gid) < 0 ? -1 : 0;
    prctl(PR_SET_DUMPABLE, 0);
    if (r < 0)
        return err_set(err, CORDON_ERR_HOST, "docker", errno,
                       "output: collecting files needs user namespaces");
    return 0;
}

int files_open(struct files *f, uint64_t bytes, uint64_t inodes, struct cordon_err *err)
{
    char size[48], count[48];
    if (files_enter_namespaces(err) < 0)
        return -1;
    snprintf(size, sizeof(size), "size=%" PRIu64, bytes ? bytes + FILES_OWN_BYTES : 0);
    snprintf(count, sizeof(count), "nr_inodes=%" PRIu64, inodes ? inodes + 16 : 0);
    const char *const options[] = {size, count, "mode=0700", NULL};
    _cleanup_close_ int fs = native_new_fs(
        "tmpfs", options, SYS_MOUNT_ATTR_NOSUID | SYS_MOUNT_ATTR_NODEV | SYS_MOUNT_ATTR_NOEXEC);
    int top = fs < 0 ? -1 : openat(fs, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top < 0)
        return err_set(err, CORDON_ERR_HOST, "docker", errno, "output: memory for the files");
    f->dirs[0] = top;
    f->depth = 0;
    return 0;
}

static bool files_is_name(const char *name, size_t len)
{
    return len > 0 && len <= 255 && !memchr(name, '/', len) && !memchr(name, '\0', len) &&
           !(len == 1 && name[0] == '.') && !(len == 2 && name[0] == '.' && name[1] == '.');
}

static bool files_no_room(void)
{
    return errno == ENOSPC || errno == EDQUOT;
}

/* No inode is left for a name. */
static void files_no_name(struct files *f)
{
    f->crowded = files_no_room();
    f->failed = true;
}

static void files_dir(struct files *f, const char *name, mode_t mode)
{
    if (f->deeper > 0 || f->depth == INIT_FILES_DEPTH) {
        f->deeper++;
        return;
    }
    int at = f->dirs[f->depth];
    int fd = mkdirat(at, name, 0700) < 0
                 ? -1
                 : openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        files_no_name(f);
        return;
    }
    (void)fchmod(fd, (mode & 0777) | 0700);
    f->dirs[++f->depth] = fd;
}

static void files_up(struct files *f)
{
    if (f->deeper > 0)
        f->deeper--;
    else if (f->depth > 0)
        util_close(&f->dirs[f->depth--]);
    else
        f->failed = true;
}

static void files_file(struct files *f, const char *name, const struct init_entry *e)
{
    f->in_file = true;
    if (f->deeper > 0)
        return;
    f->file_fd =
        openat(f->dirs[f->depth], name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (f->file_fd < 0)
        files_no_name(f);
    else if (e->size > INT64_MAX || ftruncate(f->file_fd, (off_t)e->size) < 0 ||
             fchmod(f->file_fd, (e->mode & 0777) | 0400) < 0)
        f->failed = true;
}

/* What is not taken out is named in the result by its kind; where a link leads is nobody's
 * business. */
static void files_other(struct files *f, const char *name, mode_t mode)
{
    if (f->deeper > 0)
        return;
    int at = f->dirs[f->depth];
    if ((S_ISLNK(mode) ? symlinkat("?", at, name)
                       : mknodat(at, name, (S_ISSOCK(mode) ? S_IFSOCK : S_IFIFO) | 0600, 0)) < 0)
        files_no_name(f);
}

static void files_entry(struct files *f, const struct init_entry *e, const char *bytes)
{
    char name[256];
    bool named =
        e->kind == INIT_ENTRY_DIR || e->kind == INIT_ENTRY_FILE || e->kind == INIT_ENTRY_OTHER;
    if (named && !files_is_name(bytes, e->name_len)) {
        f->failed = true;
        return;
    }
    memcpy(name, bytes, named ? e->name_len : 0);
    name[named ? e->name_len : 0] = '\0';
    if (e->kind == INIT_ENTRY_DIR)
        files_dir(f, name, e->mode);
    else if (e->kind == INIT_ENTRY_FILE)
        files_file(f, name, e);
    else if (e->kind == INIT_ENTRY_OTHER)
        files_other(f, name, e->mode);
    else if (e->kind == INIT_ENTRY_UP)
        files_up(f);
    else if (e->kind == INIT_ENTRY_END && f->depth == 0 && f->deeper == 0)
        f->ended = true;
    else
        f->failed = true;
}

static size_t files_write(struct files *f, const char *data, size_t len)
{
    size_t n = (size_t)MIN(len, f->piece_rest);
    for (size_t done = 0; f->file_fd >= 0 && done < n;) {
        ssize_t w = pwrite(f->file_fd, data + done, n - done, (off_t)(f->piece_offset + done));
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0) {
            f->full = w < 0 && files_no_room();
            f->failed = true;
            break;
        }
        done += (size_t)w;
    }
    f->piece_offset += n;
    f->piece_rest -= n;
    return n;
}

static void files_piece(struct files *f, const struct init_piece *piece)
{
    if (piece->len == 0) {
        util_close(&f->file_fd);
        f->in_file = false;
    } else if (piece->offset > INIT_FILES_BYTES || piece->len > INIT_FILES_BYTES) {
        f->failed = true;
    } else {
        f->piece_offset = piece->offset;
        f->piece_rest = piece->len;
    }
}

/* Bytes of `data` that were understood; 0: more are needed. */
static size_t files_step(struct files *f, const char *data, size_t len)
{
    if (f->piece_rest > 0)
        return files_write(f, data, len);
    if (f->in_file) {
        struct init_piece piece;
        if (len < sizeof(piece))
            return 0;
        memcpy(&piece, data, sizeof(piece));
        files_piece(f, &piece);
        return sizeof(piece);
    }
    struct init_entry e;
    if (len < sizeof(e))
        return 0;
    memcpy(&e, data, sizeof(e));
    if (e.name_len > 255) {
        f->failed = true;
        return 0;
    }
    if (len < sizeof(e) + e.name_len)
        return 0;
    files_entry(f, &e, data + sizeof(e));
    return sizeof(e) + e.name_len;
}

void files_feed(struct files *f, const char *data, size_t len)
{
    size_t done = 0, n;
    if (f->depth < 0 || f->ended || f->failed || buf_add(&f->in, data, len) < 0) {
        f->failed |= f->in.failed;
        return;
    }
    while (!f->failed && !f->ended && done < f->in.len &&
           (n = files_step(f, f->in.data + done, f->in.len - done)) > 0)
        done += n;
    memmove(f->in.data, f->in.data + done, f->in.len - done);
    f->in.len -= done;
}

void files_close(struct files *f)
{
    util_close(&f->file_fd);
    while (f->depth >= 0)
        util_close(&f->dirs[f->depth--]);
    buf_done(&f->in);
}
