/* Reports: what all formats share. Pure. */
#include "grade/report.h"

#include <string.h>

#include "base/jsonw.h"
#include "base/util.h"

bool report_by_name(const char *name, enum report_format *ret)
{
    static const char *const names[] = {"table", "json", "junit", "tap", "html"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (str_eq(name, names[i])) {
            *ret = (enum report_format)i;
            return true;
        }
    return false;
}

void report_write(enum report_format format, const struct grade_outcome *o, bool color,
                  struct buf *out)
{
    switch (format) {
    case REPORT_TABLE: report_table(o, color, out); break;
    case REPORT_JSON: report_json(o, out); break;
    case REPORT_JUNIT: report_junit(o, out); break;
    case REPORT_TAP: report_tap(o, out); break;
    case REPORT_HTML: report_html(o, out); break;
    }
}

unsigned report_char(const char *data, size_t len, size_t *ret_len)
{
    const unsigned char *p = (const unsigned char *)data;
    size_t n = p[0] < 0x80 ? 1 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (n > len || !jsonw_is_utf8(data, n)) {
        *ret_len = 1;
        return 0xfffd;
    }
    *ret_len = n;
    unsigned c = n == 1 ? p[0] : p[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++)
        c = c << 6 | (p[i] & 0x3f);
    return c;
}

void report_utf8(unsigned c, struct buf *out)
{
    if (c < 0x80) {
        buf_char(out, (char)c);
    } else if (c < 0x800) {
        buf_char(out, (char)(0xc0 | c >> 6));
        buf_char(out, (char)(0x80 | (c & 0x3f)));
    } else if (c < 0x10000) {
        buf_char(out, (char)(0xe0 | c >> 12));
        buf_char(out, (char)(0x80 | (c >> 6 & 0x3f)));
        buf_char(out, (char)(0x80 | (c & 0x3f)));
    } else {
        buf_char(out, (char)(0xf0 | c >> 18));
        buf_char(out, (char)(0x80 | (c >> 12 & 0x3f)));
        buf_char(out, (char)(0x80 | (c >> 6 & 0x3f)));
        buf_char(out, (char)(0x80 | (c & 0x3f)));
    }
}

bool report_entity(unsigned c, struct buf *out)
{
    switch (c) {
    case '&': buf_str(out, "&amp;"); return true;
    case '<': buf_str(out, "&lt;"); return true;
    case '>': buf_str(out, "&gt;"); return true;
    case '"': buf_str(out, "&quot;"); return true;
    case '\'': buf_str(out, "&#39;"); return true;
    default: return false;
    }
}

/* C0 and C1 controls, and the marks that turn the direction of what follows. */
bool report_is_unprintable(unsigned c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x061c || c == 0x200e || c == 0x200f ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

size_t report_plain(const char *text, size_t len, size_t max, struct buf *out)
{
    size_t n = 0, used;
    for (size_t i = 0; i < len; i += used, n++) {
        unsigned c = report_char(text + i, len - i, &used);
        if (n == max) {
            buf_str(out, "...");
            return n + 3;
        }
        report_utf8(c == '\n' || c == '\t' || c == '\r' ? ' '
                    : report_is_unprintable(c)          ? '?'
                                                        : c,
                    out);
    }
    return n;
}

const char *report_word(const struct grade_test *t)
{
    return t->verdict ? t->verdict : grade_status_name(t->status);
}
