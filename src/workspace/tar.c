/* A tar writer for collected files: regular files, names of any length, holes kept. Runs on our
 * side.
 *
 * Holes are told as GNU tar does in pax archives (version 1.0 of its sparse format), which
 * libarchive and Python read as well. */
#include "workspace/tar.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/jsonw.h"
#include "base/util.h"
#include "workspace/tree.h"

#define TAR_BLOCK 512
#define TAR_MAP_MAX (EXTENTS_MAX * 44u + 1024) /* two numbers of at most 20 digits a piece */

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

/* "LEN KEY=VALUE\n", LEN counting itself. */
static void tar_record(struct buf *b, const char *key, const char *value)
{
    size_t body = strlen(" =\n") + strlen(key) + strlen(value), digits = 1;
    for (size_t power = 10; body + digits >= power; power *= 10)
        digits++;
    buf_printf(b, "%zu %s=", body + digits, key);
    buf_str(b, value);
    buf_char(b, '\n');
}

static void tar_number(struct buf *b, const char *key, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    tar_record(b, key, text);
}

/* What the plain head of a file cannot say goes into an entry of its own before it. */
static int tar_extended(int fd, const char *path, const struct extents *x)
{
    _cleanup_buf_ struct buf b = BUF_INIT(4 * TREE_PATH_MAX);
    bool sparse = extents_has_holes(x);
    if (!sparse && strlen(path) <= sizeof(((struct tar_head *)0)->name))
        return 0;
    if (!jsonw_is_utf8(path, strlen(path)))
        tar_record(&b, "hdrcharset", "BINARY");
    if (sparse) {
        tar_number(&b, "GNU.sparse.major", 1);
        tar_number(&b, "GNU.sparse.minor", 0);
        tar_number(&b, "GNU.sparse.realsize", x->size);
    }
    tar_record(&b, sparse ? "GNU.sparse.name" : "path", path);
    if (b.failed) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return tar_head(fd, "pax", 'x', 0644, b.len, 0) < 0 || tar_write(fd, b.data, b.len) < 0
               ? -1
               : tar_pad(fd, b.len);
}

/* The map of a file with holes: how many pieces, then where each begins and how long it is. The
 * last piece may be an empty one at the end, which says how long the file is. */
static int tar_map(const struct extents *x, struct buf *b)
{
    bool ends_in_hole = x->n == 0 || x->list[x->n - 1].at + x->list[x->n - 1].len < x->size;
    buf_printf(b, "%zu\n", x->n + ends_in_hole);
    for (size_t i = 0; i < x->n; i++)
        buf_printf(b, "%llu\n%llu\n", (unsigned long long)x->list[i].at,
                   (unsigned long long)x->list[i].len);
    if (ends_in_hole)
        buf_printf(b, "%llu\n0\n", (unsigned long long)x->size);
    while (b->len % TAR_BLOCK && !b->failed)
        buf_char(b, '\0');
    return b->failed ? -1 : 0;
}

static int tar_piece(int to_fd, int from_fd, const struct extent *e)
{
    static char chunk[65536];
    for (uint64_t done = 0; done < e->len;) {
        size_t want = (size_t)MIN(e->len - done, (uint64_t)sizeof(chunk));
        ssize_t n = pread(from_fd, chunk, want, (off_t)(e->at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0) { /* it was cut meanwhile: the archive goes on */
            memset(chunk, 0, want);
            n = (ssize_t)want;
        }
        if (tar_write(to_fd, chunk, (size_t)n) < 0)
            return -1;
        done += (uint64_t)n;
    }
    return 0;
}

int tar_file(int to_fd, const char *path, int from_fd, const struct stat *st,
             const struct extents *x)
{
    _cleanup_buf_ struct buf map = BUF_INIT(TAR_MAP_MAX);
    const char *slash = strrchr(path, '/');
    char other[sizeof(((struct tar_head *)0)->name) + 1] = "";
    if (extents_has_holes(x)) {
        if (tar_map(x, &map) < 0) {
            errno = ENOMEM;
            return -1;
        }
        /* whoever does not know of maps gets the pieces under a name that says so */
        snprintf(other, sizeof(other), "GNUSparseFile.0/%s", slash ? slash + 1 : path);
    }
    if (tar_extended(to_fd, path, x) < 0 ||
        tar_head(to_fd, map.len ? other : path, '0', st->st_mode, map.len + x->bytes,
                 (long long)st->st_mtim.tv_sec) < 0 ||
        (map.len && tar_write(to_fd, map.data, map.len) < 0))
        return -1;
    for (size_t i = 0; i < x->n; i++)
        if (tar_piece(to_fd, from_fd, &x->list[i]) < 0)
            return -1;
    return tar_pad(to_fd, x->bytes);
}

int tar_end(int to_fd)
{
    static const char zeros[2 * TAR_BLOCK];
    return tar_write(to_fd, zeros, sizeof(zeros));
}
