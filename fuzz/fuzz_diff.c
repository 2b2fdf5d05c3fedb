/* libFuzzer entry for differences and patches: any two texts give marks that agree, and a patch
 * that is UTF-8. The first byte says where the input is split, the second what the sides are. */
#include <stdlib.h>
#include <string.h>

#include "base/jsonw.h"
#include "workspace/diff.h"
#include "workspace/patch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void check_marks(const struct diff *d)
{
    size_t i = 0, j = 0;
    for (;;) {
        while (i < d->a.n && d->a.changed[i])
            i++;
        while (j < d->b.n && d->b.changed[j])
            j++;
        if (i == d->a.n || j == d->b.n)
            break;
        check(d->a.lines[i].len == d->b.lines[j].len &&
              memcmp(d->a.lines[i].data, d->b.lines[j].data, d->a.lines[i].len) == 0);
        i++, j++;
    }
    check(i == d->a.n && j == d->b.n);
}

static void check_patch(unsigned kinds, const char *a, size_t a_len, const char *b, size_t b_len,
                        const char *name)
{
    struct cordon_err err;
    struct patch_stat stat;
    struct buf out = BUF_INIT((size_t)64 << 20);
    struct patch_side old = {(enum patch_type)(kinds % 3), kinds & 8, a, a_len};
    struct patch_side new = {(enum patch_type)(kinds / 16 % 3), kinds & 128, b, b_len};
    check(patch_write(name, &old, &new, &out, &stat, &err) == 0 && !out.failed);
    check(jsonw_is_utf8(out.data ? out.data : "", out.len));
    buf_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    const char *text = (const char *)data + 2;
    size_t len = size - 2, split = len * data[0] / 255;
    struct cordon_err err;
    struct diff d;
    check(diff_make(text, split, text + split, len - split, &d, &err) == 0);
    check_marks(&d);
    struct buf out = BUF_INIT((size_t)64 << 20);
    diff_hunks(&d, &out);
    check((out.len > 0) == (d.added + d.removed > 0));
    buf_done(&out);
    diff_done(&d);

    char name[64];
    size_t n = 0;
    for (; n < sizeof(name) - 1 && n < len && text[n]; n++)
        name[n] = text[n];
    name[n] = '\0';
    patch_is_nameable(name);
    check_patch(data[1], text, split, text + split, len - split, name);
    return 0;
}
