/* One changed file as a patch that `git apply` takes. Pure: bytes in, text out.
 *
 * The text is always UTF-8: what is not (names, contents) is quoted or goes out as a binary patch.
 */
#ifndef WORKSPACE_PATCH_H
#define WORKSPACE_PATCH_H

#include <stdbool.h>
#include <stddef.h>

#include <cordon.h>

#include "base/buf.h"

#define PATCH_FILE_MAX ((size_t)16 << 20) /* larger contents are listed, not printed */

enum patch_type { PATCH_ABSENT, PATCH_FILE, PATCH_SYMLINK };

struct patch_side {
    enum patch_type type;
    bool executable;
    const char *data; /* contents, or the link's target */
    size_t len;
};

struct patch_stat {
    bool binary;
    size_t added, removed; /* lines */
};

/* Git refuses patches for these names (".git" in any of its disguises, "..", an empty part). */
bool patch_is_nameable(const char *path);

/* Appends nothing when the sides are the same as git sees them. A change of type is a deletion and
 * a creation. A failed buffer is the caller's to check. */
int patch_write(const char *path, const struct patch_side *old, const struct patch_side *new,
                struct buf *out, struct patch_stat *ret_stat, struct cordon_err *err);

/* "a/odd\tname" quoted as git quotes it, or plain. */
void patch_quote(const char *prefix, const char *path, struct buf *out);

bool patch_is_text(const char *data, size_t len);

#endif
