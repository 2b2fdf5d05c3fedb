/* Files and folders of a layer, opened and compared. Runs on our side after the guest is gone, over
 * files it made: nothing is followed, and only what is a regular file is opened for reading. */
#include "workspace/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sys.h"
#include "base/util.h"

static const struct open_how dir_how = {
    .flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK,
    .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
};

int tree_open_dir(int dir_fd, const char *path)
{
    return sys_openat2(dir_fd, *path ? path : ".", &dir_how);
}

int tree_open_dir_here(int dir_fd, const char *path)
{
    struct open_how how = dir_how;
    how.resolve |= RESOLVE_NO_XDEV;
    return sys_openat2(dir_fd, *path ? path : ".", &how);
}

int tree_make_parent(int base_fd, const char *path, const char **ret_name)
{
    const char *slash = strrchr(path, '/');
    char parent[TREE_PATH_MAX + 1];
    size_t len = slash ? (size_t)(slash - path) : 0;
    memcpy(parent, path, len);
    parent[len] = '\0';
    *ret_name = slash ? slash + 1 : path;
    int fd = tree_open_dir(base_fd, parent);
    if (fd >= 0 || errno != ENOENT)
        return fd;
    _cleanup_close_ int at = tree_open_dir(base_fd, "");
    for (char *p = parent; at >= 0 && *p;) {
        size_t n = strcspn(p, "/");
        bool last = p[n] == '\0';
        p[n] = '\0';
        int next = tree_open_dir(at, p);
        if (next < 0 && errno == ENOENT && mkdirat(at, p, 0777) == 0)
            next = tree_open_dir(at, p);
        close(at);
        at = next;
        p += n + !last;
    }
    return TAKE_FD(at);
}

int tree_make_path(const char *dir)
{
    char path[TREE_PATH_MAX + 1];
    size_t len = strlen(dir);
    if (len >= sizeof(path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(path, dir, len + 1);
    for (char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = '\0';
        if (mkdir(path, 0777) < 0 && errno != EEXIST)
            return -1;
        *p = '/';
    }
    return mkdir(path, 0777) < 0 && errno != EEXIST ? -1 : 0;
}

/* Takes at; the next folder below it, made if asked. */
static int own_step(int at, const char *name, bool make, mode_t mode)
{
    struct stat st;
    if (make && mkdirat(at, name, mode) < 0 && errno != EEXIST)
        goto fail;
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0) {
        close(at);
        return fd;
    }
    if (errno == ENOTDIR && fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        errno = S_ISLNK(st.st_mode) ? ELOOP : ENOTDIR;
fail:;
    int e = errno;
    close(at);
    errno = e;
    return -1;
}

int tree_open_own(const char *path, const char *own, unsigned make, mode_t mode)
{
    char above[TREE_PATH_MAX + 1], parts[64];
    size_t len = strlen(path), tail = strlen(own);
    while (len > 1 && path[len - 1] == '/')
        len--;
    if (len >= sizeof(above) || tail >= sizeof(parts)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    bool is_own = len >= tail && memcmp(path + len - tail, own, tail) == 0 &&
                  (len == tail || path[len - tail - 1] == '/');
    if (!is_own) {
        if ((make & TREE_MAKE_ABOVE ? tree_make_path(path)
             : make                 ? mkdir(path, mode)
                                    : 0) < 0 &&
            errno != EEXIST)
            return -1;
        return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    memcpy(above, path, len - tail);
    memcpy(above + len - tail, ".", 2);
    memcpy(parts, own, tail + 1);
    if ((make & TREE_MAKE_ABOVE) && len > tail && tree_make_path(above) < 0)
        return -1;
    int fd = open(above, O_PATH | O_DIRECTORY | O_CLOEXEC);
    char *rest = NULL;
    for (char *name = strtok_r(parts, "/", &rest); name && fd >= 0;
         name = strtok_r(NULL, "/", &rest))
        fd = own_step(fd, name, make != 0, mode);
    return fd;
}

void tree_random(char *text, size_t len)
{
    static const char letters[] = "abcdefghijkmnpqrstuvwxyz23456789";
    unsigned char bytes[16] = {0};
    (void)!getrandom(bytes, sizeof(bytes), 0);
    for (size_t i = 0; i < len; i++)
        text[i] = letters[bytes[i % sizeof(bytes)] % 32];
    text[len] = '\0';
}

int tree_open_file(int layer_fd, const char *path)
{
    struct open_how how = dir_how;
    how.flags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    /* looked at before it is opened: opening a device or a FIFO can have effects of its own */
    struct open_how look = dir_how;
    look.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
    struct stat st;
    _cleanup_close_ int place = sys_openat2(layer_fd, path, &look);
    if (place < 0 || fstat(place, &st) < 0)
        return -1;
    if (!S_ISREG(st.st_mode)) {
        errno = EINVAL;
        return -1;
    }
    int fd = sys_openat2(layer_fd, path, &how);
    if (fd < 0 && errno == EACCES && st.st_uid == geteuid()) {
        /* our own file without the read bit: open it up for this one moment */
        char self[32];
        snprintf(self, sizeof(self), "/proc/self/fd/%d", place);
        if (chmod(self, st.st_mode | S_IRUSR) < 0)
            return -1;
        fd = sys_openat2(layer_fd, path, &how);
        chmod(self, st.st_mode & 07777);
    }
    if (fd < 0)
        return -1;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        errno = EINVAL;
        return -1;
    }
    return fd;
}

static off_t tree_next_data(int fd, off_t pos)
{
    off_t at = lseek(fd, pos, SEEK_DATA);
    return at >= 0 ? at : errno == ENXIO ? INT64_MAX : pos;
}

static ssize_t tree_read_full(int fd, char *data, size_t len, off_t pos)
{
    size_t done = 0;
    while (done < len) {
        ssize_t n = pread(fd, data + done, len - done, pos + (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

/* Files of the same size; holes on both sides are passed over. */
int tree_same_bytes(int a, int b)
{
    char one[16384], two[16384]; /* on the stack: this runs in threads of the caller's, too */
    for (off_t pos = 0;;) {
        off_t data = MIN(tree_next_data(a, pos), tree_next_data(b, pos));
        if (data == INT64_MAX)
            return 1;
        pos = data;
        ssize_t n = tree_read_full(a, one, sizeof(one), pos);
        ssize_t m = tree_read_full(b, two, sizeof(two), pos);
        if (n < 0 || m < 0)
            return -1;
        if (n != m || memcmp(one, two, (size_t)n) != 0)
            return 0;
        if (n == 0)
            return 1;
        pos += n;
    }
}
