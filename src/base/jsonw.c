/* JSON writer. Leaf code on our side; failures stick in the buffer and are checked once. */
#include "base/jsonw.h"

#include <string.h>

#include "base/utf8.h"

static void jsonw_key(struct jsonw *j, const char *key);

/* What people read as it stands may go to a terminal: controls of two bytes and marks that turn the
 * direction of text are written as escapes too, which changes nothing for who parses it. Length of
 * such a character, else 0. All of them are below U+10000 and begin with one of four bytes. */
static size_t jsonw_steers(const char *s, const char *end, uint32_t *ret_code)
{
    unsigned char lead = (unsigned char)*s;
    if (lead != 0xc2 && lead != 0xd8 && lead != 0xe2 && lead != 0xef)
        return 0;
    size_t n = utf8_decode(s, end, ret_code);
    return n > 0 && !utf8_is_harmless(*ret_code) ? n : 0;
}

/* By hand: a guest's output may be millions of these, and everybody waits for the one who formats
 * them. */
static void jsonw_unicode(struct buf *out, uint32_t code)
{
    static const char hex[] = "0123456789abcdef";
    char text[6] = {'\\', 'u'};
    for (size_t i = 0; i < 4; i++)
        text[2 + i] = hex[code >> (12 - 4 * i) & 15];
    buf_add(out, text, sizeof(text));
}

static void jsonw_control(struct buf *out, unsigned char c)
{
    char text[2] = {'\\', c == '\n' ? 'n' : c == '\t' ? 't' : c == '\r' ? 'r' : (char)c};
    if (c >= 0x20 ? c == 0x7f : text[1] == (char)c)
        jsonw_unicode(out, c);
    else
        buf_add(out, text, sizeof(text));
}

static void jsonw_escaped(struct buf *out, const char *data, size_t len)
{
    size_t start = 0;
    buf_char(out, '"');
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)data[i];
        uint32_t code;
        size_t n = jsonw_steers(data + i, data + len, &code);
        if (n > 0) {
            buf_add(out, data + start, i - start);
            jsonw_unicode(out, code);
            i += n - 1;
            start = i + 1;
            continue;
        }
        if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f)
            continue;
        buf_add(out, data + start, i - start);
        start = i + 1;
        jsonw_control(out, c);
    }
    buf_add(out, data + start, len - start);
    buf_char(out, '"');
}

static void jsonw_key(struct jsonw *j, const char *key)
{
    if (j->need_comma)
        buf_char(j->out, ',');
    j->need_comma = true;
    if (key) {
        jsonw_escaped(j->out, key, strlen(key));
        buf_char(j->out, ':');
    }
}

void jsonw_open(struct jsonw *j, const char *key, char bracket)
{
    jsonw_key(j, key);
    buf_char(j->out, bracket);
    j->need_comma = false;
}

void jsonw_close(struct jsonw *j, char bracket)
{
    buf_char(j->out, bracket);
    j->need_comma = true;
}

void jsonw_str(struct jsonw *j, const char *key, const char *value)
{
    if (!value)
        jsonw_null(j, key);
    else
        jsonw_bytes(j, key, value, strlen(value));
}

/* Text that is not UTF-8 (a path, a system call's message) must still give valid JSON: each bad
 * byte becomes U+FFFD. Guest output never takes this way; it goes out as base64 instead. */
void jsonw_bytes(struct jsonw *j, const char *key, const char *data, size_t len)
{
    jsonw_key(j, key);
    if (jsonw_is_utf8(data, len)) {
        jsonw_escaped(j->out, data, len);
        return;
    }
    _cleanup_buf_ struct buf clean = BUF_INIT(len * 3 + 1);
    for (size_t i = 0; i < len;) {
        size_t n = 4;
        while (n > 0 && (n > len - i || !jsonw_is_utf8(data + i, n)))
            n--;
        if (n == 0)
            buf_str(&clean, "\xef\xbf\xbd");
        else
            buf_add(&clean, data + i, n);
        i += n ? n : 1;
    }
    if (clean.failed)
        j->out->failed = true;
    else
        jsonw_escaped(j->out, clean.data ? clean.data : "", clean.len);
}

void jsonw_base64(struct jsonw *j, const char *key, const void *data, size_t len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = data;

    jsonw_key(j, key);
    buf_char(j->out, '"');
    for (size_t i = 0; i < len; i += 3) {
        size_t n = len - i < 3 ? len - i : 3;
        uint32_t v = (uint32_t)p[i] << 16 | (uint32_t)(n > 1 ? p[i + 1] : 0) << 8 |
                     (uint32_t)(n > 2 ? p[i + 2] : 0);
        char quad[4] = {digits[v >> 18], digits[v >> 12 & 63], n > 1 ? digits[v >> 6 & 63] : '=',
                        n > 2 ? digits[v & 63] : '='};
        if (buf_add(j->out, quad, 4) < 0)
            return;
    }
    buf_char(j->out, '"');
}

void jsonw_int(struct jsonw *j, const char *key, int64_t value)
{
    jsonw_key(j, key);
    if (value < 0)
        buf_char(j->out, '-');
    buf_uint(j->out, value < 0 ? -(uint64_t)value : (uint64_t)value, 1);
}

void jsonw_uint(struct jsonw *j, const char *key, uint64_t value)
{
    jsonw_key(j, key);
    buf_uint(j->out, value, 1);
}

void jsonw_ms(struct jsonw *j, const char *key, uint64_t ns)
{
    jsonw_key(j, key);
    uint64_t us = (ns + 500) / 1000;
    buf_uint(j->out, us / 1000, 1);
    buf_char(j->out, '.');
    buf_uint(j->out, us % 1000, 3);
}

void jsonw_double(struct jsonw *j, const char *key, double value)
{
    if (!(value - value == 0)) {
        jsonw_null(j, key);
        return;
    }
    jsonw_key(j, key);
    buf_printf(j->out, "%.15g", value);
}

void jsonw_bool(struct jsonw *j, const char *key, bool value)
{
    jsonw_key(j, key);
    buf_str(j->out, value ? "true" : "false");
}

void jsonw_raw(struct jsonw *j, const char *key, const char *json)
{
    jsonw_key(j, key);
    buf_str(j->out, json);
}

void jsonw_null(struct jsonw *j, const char *key)
{
    jsonw_key(j, key);
    buf_str(j->out, "null");
}

bool jsonw_is_utf8(const char *data, size_t len)
{
    uint32_t code;
    for (size_t i = 0, n; i < len; i += n) {
        n = (unsigned char)data[i] < 0x80 ? 1 : utf8_decode(data + i, data + len, &code);
        if (n == 0)
            return false;
    }
    return true;
}
