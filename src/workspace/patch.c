/* The git patch format. Runs on our side, on names and contents a guest chose. */
#include "workspace/patch.h"

#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "base/jsonw.h"
#include "base/util.h"
#include "workspace/diff.h"
#include "workspace/sha1.h"

static const char no_blob[] = "0000000000000000000000000000000000000000";

/* ---- Names ---- */

/* Git takes ".GIT", "git~1", ".git ", ".git::$INDEX_ALLOCATION" and ".g\u200cit" for ".git" on some
 * file systems and refuses them everywhere. */
static bool patch_is_dotgit(const char *name, size_t len)
{
    char plain[8];
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)name[i];
        if (c >= 0x80)
            continue;
        if (c == ':' || c == '\\')
            break;
        if (n == sizeof(plain))
            return false;
        plain[n++] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
    }
    while (n > 0 && (plain[n - 1] == ' ' || plain[n - 1] == '.'))
        n--;
    return (n == 4 && memcmp(plain, ".git", 4) == 0) || (n == 5 && memcmp(plain, "git~1", 5) == 0);
}

bool patch_is_nameable(const char *path)
{
    for (const char *p = path;;) {
        size_t len = strcspn(p, "/");
        if (len == 0 || (len == 1 && p[0] == '.') || (len == 2 && p[0] == '.' && p[1] == '.'))
            return false;
        if (patch_is_dotgit(p, len))
            return false;
        /* a link of this name is refused too; whoever replaces the file by one is up to no good */
        if (len >= 11 && strncasecmp(p, ".gitmodules", 11) == 0)
            return false;
        if (!p[len])
            return true;
        p += len + 1;
    }
}

static bool patch_needs_quotes(const char *path)
{
    for (const unsigned char *p = (const unsigned char *)path; *p; p++)
        if (*p < 0x20 || *p >= 0x7f || *p == '"' || *p == '\\')
            return true;
    return false;
}

static void patch_quoted(const char *prefix, const char *path, struct buf *out)
{
    static const char letters[] = "abtnvfr"; /* of the bytes 7 to 13 */
    buf_char(out, '"');
    buf_str(out, prefix);
    for (const unsigned char *p = (const unsigned char *)path; *p; p++) {
        if (*p == '"' || *p == '\\')
            buf_printf(out, "\\%c", *p);
        else if (*p >= 7 && *p <= 13)
            buf_printf(out, "\\%c", letters[*p - 7]);
        else if (*p < 0x20 || *p >= 0x7f)
            buf_printf(out, "\\%03o", *p);
        else
            buf_char(out, (char)*p);
    }
    buf_char(out, '"');
}

void patch_quote(const char *prefix, const char *path, struct buf *out)
{
    if (patch_needs_quotes(path)) {
        patch_quoted(prefix, path, out);
        return;
    }
    buf_str(out, prefix);
    buf_str(out, path);
}

static void patch_file_line(const char *head, const char *prefix, const char *path, struct buf *out)
{
    buf_str(out, head);
    patch_quote(prefix, path, out);
    if (strchr(path, ' ') && !patch_needs_quotes(path))
        buf_char(out, '\t'); /* tells where the name ends, for patch(1) */
    buf_char(out, '\n');
}

/* ---- Binary contents: zlib without compression, in git's base 85 ---- */

#define STORED_MAX 65535

static void patch_base85(const unsigned char *data, size_t len, struct buf *out)
{
    static const char digits[] =
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";
    for (size_t i = 0; i < len; i += 52) {
        size_t n = MIN(len - i, (size_t)52);
        char line[68];
        size_t k = 0;
        line[k++] = (char)(n <= 26 ? 'A' + n - 1 : 'a' + n - 27);
        for (size_t j = 0; j < n; j += 4) {
            uint32_t v = 0;
            for (size_t b = 0; b < 4; b++)
                v = v << 8 | (j + b < n ? data[i + j + b] : 0);
            for (int c = 4; c >= 0; c--) {
                line[k + (size_t)c] = digits[v % 85];
                v /= 85;
            }
            k += 5;
        }
        line[k++] = '\n';
        buf_add(out, line, k);
    }
}

static void patch_zlib(const unsigned char *data, size_t len, struct buf *out)
{
    uint32_t a = 1, b = 0;
    buf_add(out, "\x78\x01", 2);
    size_t i = 0;
    do {
        size_t n = MIN(len - i, (size_t)STORED_MAX);
        unsigned char head[5] = {i + n == len, (unsigned char)n, (unsigned char)(n >> 8),
                                 (unsigned char)~n, (unsigned char)(~n >> 8)};
        buf_add(out, head, sizeof(head));
        buf_add(out, data + i, n);
        i += n;
    } while (i < len);
    for (i = 0; i < len; i++) {
        a = (a + data[i]) % 65521;
        b = (b + a) % 65521;
    }
    unsigned char adler[4] = {(unsigned char)(b >> 8), (unsigned char)b, (unsigned char)(a >> 8),
                              (unsigned char)a};
    buf_add(out, adler, 4);
}

static void patch_literal(const struct patch_side *side, struct buf *out)
{
    _cleanup_buf_ struct buf z = BUF_INIT(PATCH_FILE_MAX + (PATCH_FILE_MAX >> 10));
    patch_zlib((const unsigned char *)side->data, side->len, &z);
    if (z.failed) {
        out->failed = true;
        return;
    }
    buf_printf(out, "literal %zu\n", side->len);
    patch_base85((const unsigned char *)z.data, z.len, out);
    buf_char(out, '\n');
}

/* ---- One patch ---- */

bool patch_is_text(const char *data, size_t len)
{
    return !memchr(data, '\0', len) && jsonw_is_utf8(data, len) &&
           diff_count_lines(data, len) <= DIFF_LINES_MAX;
}

static unsigned patch_mode(const struct patch_side *side)
{
    return side->type == PATCH_SYMLINK ? 0120000 : side->executable ? 0100755 : 0100644;
}

static bool patch_is_same(const struct patch_side *a, const struct patch_side *b)
{
    return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

static void patch_blob(const struct patch_side *side, char hex[SHA1_HEX])
{
    if (side->type == PATCH_ABSENT)
        memcpy(hex, no_blob, SHA1_HEX);
    else
        sha1_blob(side->data, side->len, hex);
}

static void patch_head(const char *path, const struct patch_side *old, const struct patch_side *new,
                       bool same, struct buf *out)
{
    char a[SHA1_HEX], b[SHA1_HEX];
    /* git tells two plain names apart by their being equal, which some blanks in them defeat */
    void (*put)(const char *, const char *, struct buf *) =
        strchr(path, ' ') ? patch_quoted : patch_quote;
    buf_str(out, "diff --git ");
    put("a/", path, out);
    buf_char(out, ' ');
    put("b/", path, out);
    buf_char(out, '\n');
    if (old->type == PATCH_ABSENT)
        buf_printf(out, "new file mode %06o\n", patch_mode(new));
    else if (new->type == PATCH_ABSENT)
        buf_printf(out, "deleted file mode %06o\n", patch_mode(old));
    else if (patch_mode(old) != patch_mode(new))
        buf_printf(out, "old mode %06o\nnew mode %06o\n", patch_mode(old), patch_mode(new));
    if (same && old->type != PATCH_ABSENT && new->type != PATCH_ABSENT)
        return;
    patch_blob(old, a);
    patch_blob(new, b);
    buf_printf(out, "index %s..%s", a, b);
    if (old->type != PATCH_ABSENT && new->type != PATCH_ABSENT &&
        patch_mode(old) == patch_mode(new))
        buf_printf(out, " %06o", patch_mode(new));
    buf_char(out, '\n');
}

/* Sides of one type, or one of them absent. */
static int patch_one(const char *path, const struct patch_side *old, const struct patch_side *new,
                     struct buf *out, struct patch_stat *stat, struct cordon_err *err)
{
    bool same = patch_is_same(old, new);
    patch_head(path, old, new, same, out);
    if (same)
        return 0;
    if (!patch_is_text(old->data, old->len) || !patch_is_text(new->data, new->len)) {
        buf_str(out, "GIT binary patch\n");
        patch_literal(new, out);
        patch_literal(old, out); /* the way back, for git apply -R */
        stat->binary = true;
        return 0;
    }
    struct diff d;
    if (diff_make(old->data, old->len, new->data, new->len, &d, err) < 0)
        return -1;
    if (old->type == PATCH_ABSENT)
        buf_str(out, "--- /dev/null\n");
    else
        patch_file_line("--- ", "a/", path, out);
    if (new->type == PATCH_ABSENT)
        buf_str(out, "+++ /dev/null\n");
    else
        patch_file_line("+++ ", "b/", path, out);
    diff_hunks(&d, out);
    stat->added += d.added;
    stat->removed += d.removed;
    diff_done(&d);
    return 0;
}

int patch_write(const char *path, const struct patch_side *old, const struct patch_side *new,
                struct buf *out, struct patch_stat *ret_stat, struct cordon_err *err)
{
    static const struct patch_side absent = {.type = PATCH_ABSENT, .data = ""};
    struct patch_stat stat = {0};
    if (old->type == PATCH_ABSENT)
        old = &absent;
    if (new->type == PATCH_ABSENT)
        new = &absent;
    bool both = old->type != PATCH_ABSENT && new->type != PATCH_ABSENT;
    int r = 0;
    if (both && old->type != new->type)
        r = patch_one(path, old, &absent, out, &stat, err) < 0
                ? -1
                : patch_one(path, &absent, new, out, &stat, err);
    else if (old->type != new->type || !patch_is_same(old, new) ||
             (both && patch_mode(old) != patch_mode(new)))
        r = patch_one(path, old, new, out, &stat, err);
    if (r == 0)
        *ret_stat = stat;
    return r;
}
