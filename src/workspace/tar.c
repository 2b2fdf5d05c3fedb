/* A tar writer for collected files: regular files, names of any length. Runs on our side. */
#include "workspace/tar.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"

#define TAR_BLOCK 512

struct tar_head {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type, link[100];
    char magic[6], version[2], owner[32], group[32], major[8], minor[8], prefix[155], rest[12];
};

_Static_assert(sizeof(struct tar_head) == TAR_BLOCK, "a record of tar has 512 bytes");

static int tar_write(int fd, const void *data, size_t len)
{
    const char *p = data;
    while (len > 0) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EAGAIN) {
            struct pollfd room = {.fd = fd, .events = POLLOUT};
            poll(&room, 1, -1);
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

static int tar_pad(int fd, uint64_t len)
{
    static const char zeros[TAR_BLOCK];
    size_t over = (size_t)(len % TAR_BLOCK);
    return over ? tar_write(fd, zeros, TAR_BLOCK - over) : 0;
}

static int tar_head(int fd, const char *name, char type, mode_t mode, uint64_t size,
                    long long mtime)
{
    struct tar_head h = {.type = type, .magic = "ustar", .version = {'0', '0'}};
    memcpy(h.name, name, MIN(strlen(name), sizeof(h.name)));
    snprintf(h.mode, sizeof(h.mode), "%07o", (unsigned)(mode & 0777));
    snprintf(h.uid, sizeof(h.uid), "%07o", 0u);
    snprintf(h.gid, sizeof(h.gid), "%07o", 0u);
    snprintf(h.size, sizeof(h.size), "%011llo", (unsigned long long)(size & 077777777777ULL));
    snprintf(h.mtime, sizeof(h.mtime), "%011llo",
             mtime > 0 ? (unsigned long long)mtime & 077777777777ULL : 0ULL);
    memset(h.sum, ' ', sizeof(h.sum));
    unsigned sum = 0;
    for (size_t i = 0; i < sizeof(h); i++)
        sum += ((const unsigned char *)&h)[i];
    snprintf(h.sum, sizeof(h.sum), "%06o", sum & 0777777u);
    return tar_write(fd, &h, sizeof(h));
}

/* A record of its own for a name that does not fit: "LEN path=NAME\n", LEN counting itself. */
static int tar_long_name(int fd, const char *path)
{
    size_t body = strlen(" path=\n") + strlen(path), digits = 1;
    for (size_t power = 10; body + digits >= power; power *= 10)
        digits++;
    size_t len = body + digits;
    char head[48];
    int n = snprintf(head, sizeof(head), "%zu path=", len);
    return tar_head(fd, "pax", 'x', 0644, len, 0) < 0 || tar_write(fd, head, (size_t)n) < 0 ||
                   tar_write(fd, path, strlen(path)) < 0 || tar_write(fd, "\n", 1) < 0 ||
                   tar_pad(fd, len) < 0
               ? -1
               : 0;
}

int tar_file(int to_fd, const char *path, int from_fd, const struct stat *st)
{
    static char chunk[65536];
    uint64_t left = (uint64_t)st->st_size;
    if (strlen(path) > sizeof(((struct tar_head *)0)->name) && tar_long_name(to_fd, path) < 0)
        return -1;
    if (tar_head(to_fd, path, '0', st->st_mode, left, (long long)st->st_mtim.tv_sec) < 0)
        return -1;
    while (left > 0) {
        size_t want = (size_t)MIN(left, (uint64_t)sizeof(chunk));
        ssize_t n = read(from_fd, chunk, want);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            memset(chunk, 0, want);
            n = (ssize_t)want;
        }
        if (tar_write(to_fd, chunk, (size_t)n) < 0)
            return -1;
        left -= (uint64_t)n;
    }
    return tar_pad(to_fd, (uint64_t)st->st_size);
}

int tar_end(int to_fd)
{
    static const char zeros[2 * TAR_BLOCK];
    return tar_write(to_fd, zeros, sizeof(zeros));
}
