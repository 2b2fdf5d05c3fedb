/* Where results and reports go. Runs in the command, before the guest exists and after it is gone.
 */
#include "cli/place.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/util.h"
#include "cli/cli.h"

/* The number of a descriptor in its name in /dev, /dev/fd or /proc/PID/fd, or -1. */
static int place_number(const char *name)
{
    static const char *const own[] = {"stdin", "stdout", "stderr"};
    for (size_t i = 0; i < ARRAY_SIZE(own); i++)
        if (str_eq(name, own[i]))
            return (int)i;
    size_t len = strspn(name, "0123456789");
    return len > 0 && len < 8 && !name[len] ? (int)strtol(name, NULL, 10) : -1;
}

/* A plain file behind the kernel's name for a descriptor of ours: written to where the descriptor
 * stands, like everything else that goes there. Any other link may be an earlier guest's doing. */
static int place_open_link(const struct place *at, const struct stat *target)
{
    struct statfs fs;
    struct stat dir, dev, own;
    int fd = place_number(at->name);
    bool is_kernels = fstatfs(at->dir, &fs) == 0 && fs.f_type == PROC_SUPER_MAGIC;
    bool is_dev = fstat(at->dir, &dir) == 0 && stat("/dev", &dev) == 0 &&
                  dir.st_dev == dev.st_dev && dir.st_ino == dev.st_ino;
    if ((!is_kernels && !is_dev) || fd < 0 || fstat(fd, &own) < 0 || own.st_dev != target->st_dev ||
        own.st_ino != target->st_ino) {
        errno = ELOOP;
        return -1;
    }
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY) {
        errno = EBADF;
        return -1;
    }
    return fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

/* Is a new file to be put at the name? A link there is opened instead, or refused. */
static int place_look(struct place *p)
{
    struct stat st, target = {0};
    if (fstatat(p->dir, p->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode)) {
        (void)fstatat(p->dir, p->name, &target, 0);
        p->fd = place_open_link(p, &target);
        int e = errno;
        util_close(&p->dir);
        errno = e;
        return p->fd < 0 ? -1 : 0;
    }
    if (faccessat(p->dir, ".", W_OK | X_OK, AT_EACCESS) < 0) {
        int e = errno;
        util_close(&p->dir);
        errno = e;
        return -1;
    }
    return 0;
}

int place_open(struct place *p, const char *path)
{
    struct stat st;
    struct place found = PLACE_NONE;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        if ((found.fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY)) < 0)
            return -1;
        *p = found;
        return 0;
    }
    const char *slash = strrchr(path, '/');
    found.name = slash ? slash + 1 : path;
    if (!*found.name) {
        errno = EISDIR;
        return -1;
    }
    _cleanup_free_ char *dir = !slash          ? strdup(".")
                               : slash == path ? strdup("/")
                                               : strndup(path, (size_t)(slash - path));
    if (!dir || (found.dir = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0)
        return -1;
    if (place_look(&found) < 0)
        return -1;
    *p = found;
    return 0;
}

const char *place_why(int *error)
{
    bool is_link = *error == ELOOP;
    *error = is_link ? 0 : *error;
    return is_link ? " is a link: name the file it leads to" : "";
}

int place_write(const struct place *p, const char *data, size_t len)
{
    if (p->dir < 0)
        return p->fd < 0 ? 0 : cli_write(p->fd, data, len);
    char fresh[48];
    snprintf(fresh, sizeof(fresh), ".cordon-result-%d", (int)getpid());
    unlinkat(p->dir, fresh, 0);
    /* what takes the place of a file that fewer may read is not for more of them */
    struct stat old;
    bool is_old = fstatat(p->dir, p->name, &old, AT_SYMLINK_NOFOLLOW) == 0;
    _cleanup_close_ int fd =
        openat(p->dir, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
               0644 & (is_old ? old.st_mode | 0200 : 0777));
    if (fd < 0 || cli_write(fd, data, len) < 0 || renameat(p->dir, fresh, p->dir, p->name) < 0) {
        int e = errno;
        unlinkat(p->dir, fresh, 0);
        errno = e;
        return -1;
    }
    return 0;
}

void place_close(struct place *p)
{
    util_close(&p->fd);
    util_close(&p->dir);
}
