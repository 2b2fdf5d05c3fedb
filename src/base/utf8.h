/* UTF-8, strictly. Pure and small enough to stand in a header: tools of their own read it too. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Length of the well-formed sequence at s, 0 if there is none. Refuses overlong forms, surrogates
 * and everything above U+10FFFF. s < end. */
static inline size_t utf8_decode(const char *s, const char *end, uint32_t *ret_code)
{
    unsigned char lead = (unsigned char)*s;
    size_t len = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (len == 0 || lead > 0xf4 || (size_t)(end - s) < len)
        return 0;
    uint32_t code = len == 1 ? lead : lead & (0xffu >> (len + 1));
    for (size_t i = 1; i < len; i++) {
        if (((unsigned char)s[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | ((unsigned char)s[i] & 0x3f);
    }
    if ((len == 3 && code < 0x800) || (len == 4 && code < 0x10000) || code > 0x10ffff ||
        (code >= 0xd800 && code <= 0xdfff))
        return 0;
    *ret_code = code;
    return len;
}

/* How many bytes at the end are the beginning of a character that a cut took the rest of. */
static inline size_t utf8_unfinished(const char *s, size_t len)
{
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        uint32_t code;
        char low[4] = {'\x80', '\x80', '\x80', '\x80'};
        char high[4] = {'\xbf', '\xbf', '\xbf', '\xbf'};
        if (((unsigned char)s[len - back] & 0xc0) == 0x80)
            continue;
        memcpy(low, s + len - back, back);
        memcpy(high, s + len - back, back);
        return utf8_decode(low, low + 4, &code) > back || utf8_decode(high, high + 4, &code) > back
                   ? back
                   : 0;
    }
    return 0;
}

/* At most 4 bytes; how many. */
static inline size_t utf8_encode(char *out, uint32_t code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t len = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = len - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)((0xf00 >> len & 0xff) | code);
    return len;
}

/* What may go to a terminal: no C0 or C1 controls, no line separators, nothing that reorders text.
 */
static inline bool utf8_is_harmless(uint32_t code)
{
    return code >= 0x20 && (code < 0x7f || code >= 0xa0) && !(code >= 0x200b && code <= 0x200f) &&
           !(code >= 0x2028 && code <= 0x202e) && !(code >= 0x2060 && code <= 0x206f) &&
           code != 0x061c && code != 0xfeff;
}

/* In place: what is not harmless becomes '?', byte by byte; with keep_lines but for ends of lines
 * and tabs. */
static inline void utf8_clean(char *text, bool keep_lines)
{
    uint32_t code;
    size_t n;
    for (char *p = text, *end = text + strlen(text); p < end; p += n ? n : 1) {
        n = utf8_decode(p, end, &code);
        if (n == 0 || (!utf8_is_harmless(code) && !(keep_lines && (*p == '\n' || *p == '\t'))))
            memset(p, '?', n ? n : 1);
    }
}

#endif
