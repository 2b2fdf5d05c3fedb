/* Patches in colours. Pure. */
#include "cli/paint.h"

#include <string.h>

#include "base/utf8.h"
#include "base/util.h"

static void paint_plain(const char *text, size_t len, struct buf *out)
{
    uint32_t code;
    for (const char *p = text, *end = text + len; p < end;) {
        size_t n = utf8_decode(p, end, &code);
        if (n > 0 && (utf8_is_harmless(code) || code == '\t'))
            buf_add(out, p, n);
        else
            buf_char(out, '?');
        p += n ? n : 1;
    }
}

void paint_diff(const char *text, bool color, struct buf *out)
{
    for (const char *p = text; *p;) {
        size_t len = strcspn(p, "\n");
        const char *code = !color ? NULL
                           : str_starts(p, "+++") || str_starts(p, "---") || str_starts(p, "diff ")
                               ? "1"
                           : *p == '+' ? "32"
                           : *p == '-' ? "31"
                           : *p == '@' ? "36"
                                       : NULL;
        if (code)
            buf_printf(out, "\033[%sm", code);
        paint_plain(p, len, out);
        buf_str(out, code ? "\033[m" : "");
        p += len;
        if (*p) {
            buf_char(out, '\n');
            p++;
        }
    }
}
