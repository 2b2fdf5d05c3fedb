/* One tar archive, plain or compressed, read with libarchive; every entry is handed to tree.c. Only
 * the decompressors that live in this process are on: none that starts a program. Runs in
 * cordon-unpack. */
#include "unpack/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/util.h"

#define WHITEOUT ".wh."
#define OPAQUE ".wh..wh..opq"

struct reader {
    int fd;
    struct sha256 hash;
    struct unpack_tree *tree;
    char chunk[65536];
};

static la_ssize_t reader_read(struct archive *a, void *data, const void **ret)
{
    struct reader *r = data;
    ssize_t n;
    do
        n = read(r->fd, r->chunk, sizeof(r->chunk));
    while (n < 0 && errno == EINTR);
    if (n < 0) {
        archive_set_error(a, errno, "read");
        return ARCHIVE_FATAL;
    }
    sha256_add(&r->hash, r->chunk, (size_t)n);
    r->tree->bytes_in += (uint64_t)n;
    *ret = r->chunk;
    return n;
}

static int archive_bomb(const struct unpack_tree *t, struct cordon_err *err)
{
    if (t->bytes_out > UNPACK_BYTES)
        return err_set(err, CORDON_ERR_CONFIG, UNPACK_STAGE, 0, "refused: more than %llu GiB",
                       (unsigned long long)(UNPACK_BYTES >> 30));
    if (t->bytes_out > UNPACK_RATIO_FREE && t->bytes_out / UNPACK_RATIO > t->bytes_in)
        return err_set(err, CORDON_ERR_CONFIG, UNPACK_STAGE, 0,
                       "refused: it grows by more than %u times", UNPACK_RATIO);
    return 0;
}

static int archive_fail(struct archive *a, const char *shown, struct cordon_err *err)
{
    const char *text = archive_error_string(a);
    return err_set(err, CORDON_ERR_CONFIG, UNPACK_STAGE, 0, "%s: not a readable archive: %s", shown,
                   text ? text : "unknown error");
}

/* Blocks may come with holes between them; the size may be larger than the last one's end. */
static int archive_data(struct unpack_tree *t, struct archive *a, struct archive_entry *e, int fd,
                        const char *shown, struct cordon_err *err)
{
    const void *block;
    size_t len;
    la_int64_t at;
    int64_t size = archive_entry_size(e), end = 0;
    int r;
    uint64_t before = t->bytes_out;
    if (size < 0 || (uint64_t)size > UNPACK_BYTES)
        return err_set(err, CORDON_ERR_CONFIG, UNPACK_STAGE, 0, "refused: %s: too large",
                       archive_entry_pathname(e));
    while ((r = archive_read_data_block(a, &block, &len, &at)) == ARCHIVE_OK) {
        if (at < 0 || (uint64_t)at + len > UNPACK_BYTES)
            return err_set(err, CORDON_ERR_CONFIG, UNPACK_STAGE, 0, "refused: %s: too large",
                           archive_entry_pathname(e));
        for (size_t done = 0; done < len;) {
            ssize_t n = pwrite(fd, (const char *)block + done, len - done, at + (la_int64_t)done);
            if (n < 0 && errno == EINTR)
                continue;
            if (n <= 0)
                return err_set(err, CORDON_ERR_INTERNAL, UNPACK_STAGE, errno, "%s",
                               archive_entry_pathname(e));
            done += (size_t)n;
        }
        end = MAX(end, at + (la_int64_t)len);
        t->bytes_out = before + (uint64_t)end;
        if (archive_bomb(t, err) < 0)
            return -1;
    }
    if (r != ARCHIVE_EOF)
        return archive_fail(a, shown, err);
    /* holes count: they are real bytes to whoever copies the file */
    t->bytes_out = before + (uint64_t)MAX(end, size);
    if (archive_bomb(t, err) < 0)
        return -1;
    if (ftruncate(fd, MAX(end, size)) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, UNPACK_STAGE, errno, "%s",
                       archive_entry_pathname(e));
    return 0;
}

static int archive_file(struct unpack_tree *t, struct archive *a, struct archive_entry *e,
                        const char *shown, struct cordon_err *err)
{
    _cleanup_close_ int fd = -1;
    const char *name = archive_entry_pathname(e);
    if (unpack_tree_file(t, name, &fd, err) < 0 || archive_data(t, a, e, fd, shown, err) < 0)
        return -1;
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = archive_entry_mtime(e)}};
    /* times serve interpreters that compare them; without setuid and setgid bits */
    if (fchmod(fd, (archive_entry_perm(e) & 0777) | 0400) < 0 || futimens(fd, times) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, UNPACK_STAGE, errno, "%s", name);
    return 0;
}

static int archive_entry_add(struct unpack_tree *t, struct archive *a, struct archive_entry *e,
                             const char *shown, struct cordon_err *err)
{
    const char *name = archive_entry_pathname(e), *link = archive_entry_hardlink(e);
    if (link)
        return unpack_tree_hardlink(t, name, link, err);
    switch (archive_entry_filetype(e)) {
    case AE_IFDIR: return unpack_tree_dir(t, name, archive_entry_perm(e), err);
    case AE_IFREG: return archive_file(t, a, e, shown, err);
    case AE_IFLNK: {
        const char *target = archive_entry_symlink(e);
        return unpack_tree_symlink(t, name, target ? target : "", err);
    }
    case AE_IFIFO:
    case AE_IFSOCK: return 0; /* nothing to run with */
    default: break;
    }
    /* every root file system made by root has them below /dev, which is ours alone */
    if (unpack_name_is_below(name, "dev"))
        return 0;
    return err_set(err, CORDON_ERR_CONFIG, UNPACK_STAGE, 0, "refused: %s: a device", name);
}

/* ".wh.NAME" takes NAME away, ".wh..wh..opq" everything below its folder. */
static int archive_whiteout(struct unpack_tree *t, const char *name, const char *base,
                            struct cordon_err *err)
{
    _cleanup_free_ char *target = NULL;
    bool opaque = str_eq(base, OPAQUE);
    if (asprintf(&target, "%.*s%s", (int)(base - name), name,
                 opaque ? "" : base + sizeof(WHITEOUT) - 1) < 0) {
        target = NULL;
        return err_nomem(err, UNPACK_STAGE);
    }
    if (!opaque && !base[sizeof(WHITEOUT) - 1])
        return err_set(err, CORDON_ERR_CONFIG, UNPACK_STAGE, 0, "refused: %s: hides nothing", name);
    return unpack_tree_remove(t, target, opaque, err);
}

static int archive_one(struct unpack_tree *t, struct archive *a, struct archive_entry *e,
                       const char *shown, enum unpack_pass pass, struct cordon_err *err)
{
    const char *name = archive_entry_pathname(e);
    if (!name || !*name)
        return err_set(err, CORDON_ERR_CONFIG, UNPACK_STAGE, 0,
                       "refused: %s: an entry without a name", shown);
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
    bool whiteout = pass != UNPACK_PLAIN && str_starts(base, WHITEOUT);
    if (whiteout && pass == UNPACK_WHITEOUTS)
        return archive_whiteout(t, name, base, err);
    if (whiteout || pass == UNPACK_WHITEOUTS)
        return 0;
    return archive_entry_add(t, a, e, shown, err);
}

static int archive_walk(struct unpack_tree *t, struct archive *a, const char *shown,
                        enum unpack_pass pass, struct cordon_err *err)
{
    struct archive_entry *e;
    unsigned seen = 0;
    int r;
    while ((r = archive_read_next_header(a, &e)) == ARCHIVE_OK || r == ARCHIVE_WARN) {
        if (++seen > UNPACK_ENTRIES)
            return err_set(err, CORDON_ERR_CONFIG, UNPACK_STAGE, 0, "refused: more than %u entries",
                           UNPACK_ENTRIES);
        if (archive_one(t, a, e, shown, pass, err) < 0)
            return -1;
    }
    return r == ARCHIVE_EOF ? 0 : archive_fail(a, shown, err);
}

int unpack_archive(struct unpack_tree *t, int fd, const char *shown, enum unpack_pass pass,
                   char ret_hash[SHA256_HEX], struct cordon_err *err)
{
    struct reader *r = calloc(1, sizeof(*r));
    struct archive *a = archive_read_new();
    int result = -1;
    if (!r || !a) {
        err_nomem(err, UNPACK_STAGE);
    } else {
        *r = (struct reader){.fd = fd, .tree = t};
        sha256_init(&r->hash);
        archive_read_support_format_tar(a);
        archive_read_support_filter_gzip(a);
        archive_read_support_filter_bzip2(a);
        archive_read_support_filter_xz(a);
        archive_read_support_filter_zstd(a);
        if (archive_read_open(a, r, NULL, reader_read, NULL) != ARCHIVE_OK)
            archive_fail(a, shown, err);
        else
            result = archive_walk(t, a, shown, pass, err);
    }
    /* the digest is that of the whole file: what follows the archive's end belongs to it */
    const void *drop;
    while (result == 0 && reader_read(a, r, &drop) > 0)
        ;
    if (result == 0)
        sha256_hex(&r->hash, ret_hash);
    archive_read_free(a);
    free(r);
    return result;
}
