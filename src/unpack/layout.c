/* An OCI image layout: index → manifest → layers, each verified against the digest that names it,
 * the layers unpacked over each other. Runs in cordon-unpack. */
#include "unpack/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/jsonr.h"
#include "base/util.h"

#define LAYOUT_JSON (4u << 20)
#define LAYOUT_NESTED 4 /* an index may name an index */

struct layout {
    int fd;
    const char *shown;
    struct arena arena;
};

static int layout_bad(const struct layout *l, struct cordon_err *err, const char *what)
{
    return err_set(err, CORDON_ERR_CONFIG, UNPACK_STAGE, 0, "%s: not an image layout: %s", l->shown,
                   what);
}

/* "sha256:HEX" → HEX; nothing else names a file here. */
static const char *layout_hex(const struct jsonr_node *descriptor)
{
    const char *digest = jsonr_cstr(jsonr_get(descriptor, "digest"));
    if (!digest || !str_starts(digest, "sha256:") ||
        strspn(digest + 7, "0123456789abcdef") != SHA256_HEX - 1 || digest[7 + SHA256_HEX - 1])
        return NULL;
    return digest + 7;
}

static int layout_blob(const struct layout *l, const char *hex, struct cordon_err *err)
{
    char path[32 + SHA256_HEX];
    struct stat st;
    snprintf(path, sizeof(path), "blobs/sha256/%s", hex);
    int fd = openat(l->fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return err_set(err, CORDON_ERR_CONFIG, UNPACK_STAGE, errno, "%s/%s", l->shown, path);
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        return fd;
    close(fd);
    return layout_bad(l, err, "a blob is no plain file");
}

static int layout_read(const struct layout *l, int fd, struct buf *text, struct cordon_err *err)
{
    char chunk[16384];
    ssize_t n;
    while ((n = read(fd, chunk, sizeof(chunk))) > 0)
        if (buf_add(text, chunk, (size_t)n) < 0)
            return layout_bad(l, err, "a description larger than 4 MiB");
    return n < 0 ? err_set(err, CORDON_ERR_CONFIG, UNPACK_STAGE, errno, "%s", l->shown) : 0;
}

/* hex NULL: the index, which nothing names. */
static int layout_json(struct layout *l, const char *hex, const struct jsonr_node **ret,
                       struct cordon_err *err)
{
    _cleanup_buf_ struct buf text = BUF_INIT(LAYOUT_JSON);
    _cleanup_close_ int fd = hex ? layout_blob(l, hex, err)
                                 : openat(l->fd, "index.json", O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return hex ? -1 : layout_bad(l, err, "it has no index.json");
    if (layout_read(l, fd, &text, err) < 0)
        return -1;
    if (hex) {
        struct sha256 h;
        char is[SHA256_HEX];
        sha256_init(&h);
        sha256_add(&h, text.data ? text.data : "", text.len);
        sha256_hex(&h, is);
        if (!str_eq(is, hex))
            return layout_bad(l, err, "a blob is not what its digest says");
    }
    const struct jsonr_source source = {.name = hex ? "manifest" : "index.json",
                                        .text = text.data ? text.data : "",
                                        .len = text.len,
                                        .max_bytes = LAYOUT_JSON,
                                        .code = CORDON_ERR_CONFIG,
                                        .stage = UNPACK_STAGE};
    return jsonr_parse(&source, &l->arena, ret, err);
}

static bool layout_fits(const struct jsonr_node *platform)
{
    const char *arch = jsonr_cstr(jsonr_get(platform, "architecture"));
    const char *os = jsonr_cstr(jsonr_get(platform, "os"));
    return (!arch || str_eq(arch, "amd64")) && (!os || str_eq(os, "linux"));
}

/* The first manifest that fits this machine. */
static int layout_manifest(struct layout *l, const char **ret_hex, const struct jsonr_node **ret,
                           struct cordon_err *err)
{
    const struct jsonr_node *index = NULL;
    const char *hex = NULL;
    for (int depth = 0; depth < LAYOUT_NESTED; depth++) {
        const struct jsonr_node *m;
        if (layout_json(l, hex, &index, err) < 0)
            return -1;
        if (jsonr_get(index, "layers")) {
            *ret_hex = hex;
            *ret = index;
            return 0;
        }
        const struct jsonr_node *list = jsonr_get(index, "manifests");
        for (m = jsonr_first(list); m && !layout_fits(jsonr_get(m, "platform")); m = m->next)
            ;
        if (!m && jsonr_count(list) > 0)
            return err_set(err, CORDON_ERR_CONFIG, UNPACK_STAGE, 0,
                           "%s: an image of another architecture: this is linux/amd64", l->shown);
        hex = layout_hex(m);
        if (!hex)
            return layout_bad(l, err, "it names no manifest by a sha256 digest");
    }
    return layout_bad(l, err, "indexes nested too deep");
}

static int layout_check_config(struct layout *l, const struct jsonr_node *manifest,
                               struct cordon_err *err)
{
    const struct jsonr_node *config = jsonr_get(manifest, "config"), *json;
    const char *hex = layout_hex(config);
    if (!hex)
        return layout_bad(l, err, "its manifest has no config");
    if (layout_json(l, hex, &json, err) < 0)
        return -1;
    if (!layout_fits(json))
        return err_set(err, CORDON_ERR_CONFIG, UNPACK_STAGE, 0,
                       "%s: an image of another architecture: this is linux/amd64", l->shown);
    return 0;
}

/* Whiteouts first: an opaque folder hides what lies below this layer, never what is in it, and the
 * order inside the archive is free. The first pass also verifies the digest. */
static int layout_layer(struct layout *l, struct unpack_tree *t, const struct jsonr_node *layer,
                        struct cordon_err *err)
{
    const char *hex = layout_hex(layer);
    char is[SHA256_HEX];
    if (!hex)
        return layout_bad(l, err, "a layer without a sha256 digest");
    _cleanup_close_ int fd = layout_blob(l, hex, err);
    if (fd < 0 || unpack_archive(t, fd, l->shown, UNPACK_WHITEOUTS, is, err) < 0)
        return -1;
    if (!str_eq(is, hex))
        return layout_bad(l, err, "a layer is not what its digest says");
    if (lseek(fd, 0, SEEK_SET) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, UNPACK_STAGE, errno, "%s", l->shown);
    if (unpack_archive(t, fd, l->shown, UNPACK_FILES, is, err) < 0)
        return -1;
    return str_eq(is, hex) ? 0 : layout_bad(l, err, "a layer changed while it was read");
}

int unpack_layout(struct unpack_tree *t, int fd, const char *shown, char ret_hash[SHA256_HEX],
                  struct cordon_err *err)
{
    struct layout l = {.fd = fd, .shown = shown};
    const struct jsonr_node *manifest = NULL;
    const char *hex = NULL;
    t->layered = true;
    int r = layout_manifest(&l, &hex, &manifest, err);
    if (r == 0)
        r = layout_check_config(&l, manifest, err);
    const struct jsonr_node *layers = r == 0 ? jsonr_get(manifest, "layers") : NULL;
    if (r == 0 && jsonr_count(layers) > UNPACK_LAYERS)
        r = layout_bad(&l, err, "too many layers");
    for (const struct jsonr_node *n = jsonr_first(layers); r == 0 && n; n = n->next)
        r = layout_layer(&l, t, n, err);
    if (r == 0)
        snprintf(ret_hash, SHA256_HEX, "%s", hex ? hex : "");
    if (r == 0 && !hex)
        r = layout_bad(&l, err, "its index is a manifest itself");
    arena_done(&l.arena);
    return r;
}
