/* Copying trees. Runs on our side; the trees may be a guest's work. */
#include "workspace/copy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <time.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/util.h"
#include "workspace/tree.h"

#define COPY_FICLONE 0x40049409 /* FICLONE of linux/fs.h, which quarrels with sys/mount.h */

#define COPY_STEP ((off_t)16 << 20) /* between two looks at the bounds */

struct copy_dir {
    struct copy_dir *next;
    mode_t mode, closed; /* closed: the mode it gets back where it was opened up for us */
    bool is_opened;
    char path[];
};

struct copy {
    int from, to;
    const struct copy_options *options;
    struct copy_dir *todo, *done; /* done: those whose own mode is set at the end */
    uint64_t entries, bytes;
    unsigned until_look; /* entries before the clock and the file system are asked again */
    bool is_over;        /* a bound was reached; err says which */
    struct cordon_err *err;
};

/* ---- Bounds ---- */

static int copy_over(struct copy *c, const char *what)
{
    c->is_over = true;
    err_set(c->err, CORDON_ERR_HOST, "workspace", 0,
            "the folder cannot be copied: %s (%llu entries, %llu MiB so far)", what,
            (unsigned long long)c->entries, (unsigned long long)(c->bytes >> 20));
    err_hint(c->err, "name a smaller folder, or one whose files all belong to you so that an "
                     "overlay can serve");
    errno = EFBIG;
    return -1;
}

/* Before more bytes are written: is there time and room for them? */
static int copy_look(struct copy *c, uint64_t more)
{
    const struct copy_options *o = c->options;
    struct timespec now;
    struct statvfs fs;
    c->until_look = 256;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (o->deadline_ns &&
        (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec > o->deadline_ns)
        return copy_over(c, "it takes too long");
    if (o->keep_free && fstatvfs(c->to, &fs) == 0 &&
        (uint64_t)fs.f_bavail * fs.f_frsize < o->keep_free + more)
        return copy_over(c, "the file system of the copy has too little room");
    return 0;
}

static int copy_note_unread(struct copy *c, const char *dir, const char *name)
{
    char path[TREE_PATH_MAX + 258];
    snprintf(path, sizeof(path), "%s%s%s", dir, *dir && *name ? "/" : "", name);
    int r = tree_paths_add(c->options->unread, path);
    return r > 0 ? copy_over(c, "too much of it cannot be read") : r;
}

static int copy_count_entry(struct copy *c)
{
    const struct copy_options *o = c->options;
    if (o->max_entries && c->entries >= o->max_entries)
        return copy_over(c, "it has too many files");
    c->entries++;
    return c->until_look-- == 0 ? copy_look(c, 0) : 0;
}

static int copy_count_bytes(struct copy *c, uint64_t more)
{
    const struct copy_options *o = c->options;
    if (o->max_bytes && (c->bytes > o->max_bytes || more > o->max_bytes - c->bytes))
        return copy_over(c, "it is too large");
    c->bytes += more;
    return more >= (1u << 20) ? copy_look(c, more) : 0;
}

/* ---- One file ---- */

static int copy_range(struct copy *c, int from, int to, off_t pos, off_t end)
{
    char chunk[16384]; /* on the stack of whoever calls, which may be one of many threads */
    off_t counted = pos;
    while (pos < end) {
        off_t in = pos, out = pos, step = MIN(end - pos, COPY_STEP);
        if (c && pos + step > counted) {
            if (copy_count_bytes(c, (uint64_t)(pos + step - counted)) < 0)
                return -1;
            counted = pos + step;
        }
        ssize_t n = copy_file_range(from, &in, to, &out, (size_t)step, 0);
        if (n > 0) {
            pos += n;
            continue;
        }
        if (n == 0)
            return 0; /* shorter than it was */
        if (errno != EXDEV && errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP &&
            errno != EPERM)
            return -1;
        break;
    }
    while (pos < end) {
        if (c && pos >= counted) {
            off_t step = MIN(end - pos, COPY_STEP);
            if (copy_count_bytes(c, (uint64_t)step) < 0)
                return -1;
            counted = pos + step;
        }
        ssize_t n = pread(from, chunk, MIN(sizeof(chunk), (size_t)(end - pos)), pos);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return (int)n;
        for (ssize_t done = 0, w; done < n; done += w)
            if ((w = pwrite(to, chunk + done, (size_t)(n - done), pos + done)) < 0)
                return -1;
        pos += n;
    }
    return 0;
}

static int copy_contents(struct copy *c, int from, int to)
{
    struct stat st;
    if (fstat(from, &st) < 0)
        return -1;
    if (st.st_size == 0 || ioctl(to, COPY_FICLONE, from) == 0)
        return 0;
    for (off_t pos = 0; pos < st.st_size;) {
        off_t data = lseek(from, pos, SEEK_DATA);
        if (data < 0 && errno == ENXIO)
            break;
        off_t end = data < 0 ? -1 : lseek(from, data, SEEK_HOLE);
        if (data < 0 || end < 0) {
            data = pos;
            end = st.st_size;
        }
        if (copy_range(c, from, to, data, end) < 0)
            return -1;
        pos = end;
    }
    return ftruncate(to, st.st_size);
}

int copy_bytes(int from, int to)
{
    return copy_contents(NULL, from, to);
}

/* ---- A tree ---- */

static int copy_fail(struct copy *c, const char *dir, const char *name)
{
    if (c->is_over)
        return -1;
    return err_set(c->err, CORDON_ERR_INTERNAL, "workspace", errno, "copy %s%s%s", dir,
                   *dir ? "/" : "", name);
}

/* What is to be copied; -1 with EACCES or EPERM: the caller may not read it. */
static int copy_open(const struct copy_options *o, int from_dir, const char *name)
{
    int flags = O_RDONLY | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC;
    int fd = openat(from_dir, name, flags | O_NONBLOCK);
    struct stat st;
    /* somebody has a lease on it, and lets go when asked to wait; not for what is no file */
    if (fd < 0 && errno == EAGAIN && fstatat(from_dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(st.st_mode))
        fd = openat(from_dir, name, flags);
    if (fd < 0 && errno == EACCES && o->is_own)
        fd = tree_open_file(from_dir, name);
    return fd;
}

static int copy_file(struct copy *c, const char *dir, int from_dir, int to_dir, const char *name,
                     const struct stat *st)
{
    const struct copy_options *o = c->options;
    bool large = o->file_bytes && (uint64_t)st->st_size > o->file_bytes;
    _cleanup_close_ int from = large ? -1 : copy_open(o, from_dir, name);
    if (from < 0 && !large && errno == ENOENT)
        return 0; /* gone since it was listed */
    /* of what the caller cannot read the name and the mode are there, and no more */
    if (from < 0 && !large && errno != EACCES && errno != EPERM)
        return -1;
    if (from < 0 && !large && o->unread && copy_note_unread(c, dir, name) < 0)
        return -1;
    _cleanup_close_ int to =
        openat(to_dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    struct stat now;
    if (to < 0)
        return -1;
    if (from >= 0 && (fstat(from, &now) < 0 || !S_ISREG(now.st_mode)))
        return -1;
    if (from >= 0 && copy_contents(c, from, to) < 0)
        return -1;
    if (from < 0 && (large || o->unread) && ftruncate(to, st->st_size) < 0)
        return -1;
    struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, st->st_mtim};
    futimens(to, times);
    return fchmod(to, st->st_mode & 0777);
}

static int copy_link(int from_dir, int to_dir, const char *name)
{
    char target[4097];
    ssize_t n = readlinkat(from_dir, name, target, sizeof(target) - 1);
    if (n < 0)
        return -1;
    target[n] = '\0';
    return symlinkat(target, to_dir, name);
}

static bool copy_mark_opaque(int from_dir, int to_dir, const char *name)
{
    char from[320], to[320], value[2];
    snprintf(from, sizeof(from), "/proc/self/fd/%d/%s", from_dir, name);
    snprintf(to, sizeof(to), "/proc/self/fd/%d/%s", to_dir, name);
    ssize_t n = lgetxattr(from, "user.overlay.opaque", value, sizeof(value));
    return n <= 0 || lsetxattr(to, "user.overlay.opaque", value, (size_t)n, 0) == 0;
}

static int copy_push(struct copy *c, const char *dir, const char *name, mode_t mode)
{
    size_t len = strlen(dir) + strlen(name) + 2;
    if (len > TREE_PATH_MAX) {
        if (c->options->layer)
            return 0; /* a guest's doing: no comparison goes that deep */
        if (c->options->ret_cut) {
            *c->options->ret_cut = true;
            return 0;
        }
        errno = ENAMETOOLONG;
        return -1;
    }
    struct copy_dir *d = malloc(sizeof(*d) + len);
    if (!d)
        return -1;
    d->is_opened = false;
    snprintf(d->path, len, "%s%s%s", dir, *dir ? "/" : "", name);
    d->mode = mode;
    d->next = c->todo;
    c->todo = d;
    return 0;
}

static int copy_entry(struct copy *c, const char *dir, int from, int to, const char *name)
{
    struct stat st;
    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -1;
    if (copy_count_entry(c) < 0)
        return -1;
    if (S_ISREG(st.st_mode))
        return copy_file(c, dir, from, to, name, &st);
    if (S_ISLNK(st.st_mode))
        return copy_link(from, to, name);
    if (S_ISCHR(st.st_mode) && st.st_rdev == makedev(0, 0) && c->options->layer)
        return mknodat(to, name, S_IFCHR, makedev(0, 0));
    const struct copy_options *o = c->options;
    if (!S_ISDIR(st.st_mode) ||
        (o->skip_ino && st.st_ino == o->skip_ino && st.st_dev == o->skip_dev))
        return 0;
    if (mkdirat(to, name, 0700) < 0 || (c->options->layer && !copy_mark_opaque(from, to, name)))
        return -1;
    return copy_push(c, dir, name, st.st_mode & 0777);
}

/* -1 with EACCES: closed to the caller. */
static int copy_enter(const struct copy *c, struct copy_dir *d)
{
    int fd = tree_open_dir_here(c->from, d->path);
    if (fd >= 0 && !tree_is_open(fd)) {
        util_close(&fd);
        errno = EACCES;
    }
    if (fd >= 0 || errno != EACCES || !c->options->is_own)
        return fd;
    if (tree_unlock(c->from, d->path, &d->closed) == 0) {
        d->is_opened = true;
        return tree_open_dir_here(c->from, d->path);
    }
    errno = EACCES;
    return -1;
}

static int copy_dir(struct copy *c, struct copy_dir *d)
{
    _cleanup_close_ int to = tree_open_dir(c->to, d->path);
    int fd = copy_enter(c, d);
    if (fd < 0 && errno == EXDEV)
        return 0;                  /* what is mounted there is not part of it */
    if (fd < 0 && errno == EACCES) /* empty in the copy, too */
        return c->options->unread && copy_note_unread(c, d->path, "") < 0
                   ? copy_fail(c, d->path, "")
                   : 0;
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    if (to < 0 || !list) {
        copy_fail(c, d->path, "");
        util_close(&fd);
        return -1;
    }
    int r = 0;
    for (struct dirent *e; r == 0 && (e = readdir(list));) {
        if (str_eq(e->d_name, ".") || str_eq(e->d_name, ".."))
            continue;
        if ((r = copy_entry(c, d->path, fd, to, e->d_name)) < 0)
            copy_fail(c, d->path, e->d_name);
    }
    closedir(list);
    return r;
}

int copy_tree(int from_fd, int to_fd, const struct copy_options *options, struct cordon_err *err)
{
    static const struct copy_options none;
    struct copy c = {
        .from = from_fd, .to = to_fd, .options = options ? options : &none, .err = err};
    struct stat st;
    if (fstat(from_fd, &st) < 0 || copy_push(&c, "", "", st.st_mode & 0777) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "workspace", errno, "copy");
    int r = 0;
    while (c.todo) {
        struct copy_dir *d = c.todo;
        c.todo = d->next;
        if (r == 0)
            r = copy_dir(&c, d);
        d->next = c.done;
        c.done = d;
    }
    /* children were done after their parents, so they are first here: a closed folder closes last
     */
    while (c.done) {
        struct copy_dir *d = c.done;
        c.done = d->next;
        bool puts_back = d->is_opened, sets = r == 0 && !c.options->is_own;
        _cleanup_close_ int from = puts_back ? tree_open_dir(from_fd, d->path) : -1;
        _cleanup_close_ int to = sets ? tree_open_dir(to_fd, d->path) : -1;
        if (from >= 0)
            fchmod(from, d->closed);
        if (to >= 0)
            fchmod(to, d->mode);
        free(d);
    }
    if (r < 0 && c.is_over && c.options->ret_cut) {
        *c.options->ret_cut = true;
        return 0;
    }
    return r;
}
