/* Whose fault is a line that cannot be read? Pure. */
#include <string.h>

#include "base/util.h"
#include "grade/bulk.h"

struct scan {
    const char *at, *end;
};

static void scan_blanks(struct scan *s)
{
    while (s->at < s->end && strchr(" \t\r\n", *s->at) && *s->at)
        s->at++;
}

static bool scan_char(struct scan *s, char c)
{
    scan_blanks(s);
    if (s->at == s->end || *s->at != c)
        return false;
    s->at++;
    return true;
}

/* From quote to quote; what is between them is not looked at. */
static bool scan_string(struct scan *s)
{
    if (!scan_char(s, '"'))
        return false;
    while (s->at < s->end && *s->at != '"')
        s->at += *s->at == '\\' ? 2 : 1;
    if (s->at >= s->end)
        return false;
    s->at++;
    return true;
}

/* A string, or anything up to the comma or bracket that ends it. */
static bool scan_value(struct scan *s)
{
    size_t depth = 0;
    scan_blanks(s);
    while (s->at < s->end) {
        if (*s->at == '"') {
            if (!scan_string(s))
                return false;
            continue;
        }
        if (depth == 0 && strchr(",]}", *s->at) && *s->at)
            return true;
        if (*s->at == '[' || *s->at == '{')
            depth++;
        else if (*s->at == ']' || *s->at == '}')
            depth--;
        s->at++;
    }
    return false;
}

bool bulk_blank(const char *line, size_t len, const char *key, struct buf *out)
{
    struct scan s = {line, line + len};
    size_t n = strlen(key);
    if (!scan_char(&s, '{'))
        return false;
    do {
        scan_blanks(&s);
        const char *name = s.at + 1;
        if (!scan_string(&s))
            return false;
        bool is_key = (size_t)(s.at - 1 - name) == n && memcmp(name, key, n) == 0;
        if (!scan_char(&s, ':'))
            return false;
        const char *value = s.at;
        if (!scan_value(&s))
            return false;
        if (!is_key)
            continue;
        buf_add(out, line, (size_t)(value - line));
        buf_str(out, "\"\"");
        buf_add(out, s.at, (size_t)(line + len - s.at));
        return !out->failed;
    } while (scan_char(&s, ','));
    return false;
}
