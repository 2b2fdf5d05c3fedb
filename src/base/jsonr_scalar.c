/* JSON text: encoding, places, messages, strings and numbers.
 *
 * Called by jsonr.c; runs where that runs. */
#include "base/jsonr_internal.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/utf8.h"

#define DIGITS_MAX 800 /* 767 decide how a double is rounded, of the rest only: is it zero? */
#define WHAT_SIZE 48

/* A byte in all eight places of a word. */
#define BYTES(b) (0x0101010101010101u * (uint64_t)(b))

int jsonr_fail(struct jsonr_reader *r, struct jsonr_pos pos, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return err_set(r->err, r->source->code, r->source->stage, 0, "%s:%u:%u: %s", r->source->name,
                   pos.line, pos.column, text);
}

struct jsonr_pos jsonr_here(struct jsonr_reader *r)
{
    if (r->ascii) {
        r->here.column += (uint32_t)(r->cur - r->mark);
        r->mark = r->cur;
    }
    for (; r->mark < r->cur; r->mark++)
        r->here.column += ((unsigned char)*r->mark & 0xc0) != 0x80;
    return r->here;
}

/* For messages: the end of the text has no character of its own. */
static struct jsonr_pos here_or_last(struct jsonr_reader *r)
{
    struct jsonr_pos pos = jsonr_here(r);
    pos.column -= r->cur == r->end;
    return pos;
}

/* What stands at the cursor. Goes to a terminal: only printable ASCII is shown as it is. */
static const char *describe(const struct jsonr_reader *r, char buf[static WHAT_SIZE])
{
    uint32_t code = 0;
    if (r->cur == r->end)
        return "the end of the text";
    utf8_decode(r->cur, r->end, &code);
    if (code >= 0x20 && code < 0x7f)
        snprintf(buf, WHAT_SIZE, "'%c'", (char)code);
    else
        snprintf(buf, WHAT_SIZE, "%s U+%04X", code < 0x20 ? "control character" : "character",
                 (unsigned)code);
    return buf;
}

int jsonr_fail_expected(struct jsonr_reader *r, const char *expected)
{
    char what[WHAT_SIZE];
    return jsonr_fail(r, here_or_last(r), "%s expected, found %s", expected, describe(r, what));
}

static int fail_bad_byte(struct jsonr_reader *r, const char *bad)
{
    for (const char *s = r->cur; s < bad; s++)
        if (*s == '\n')
            jsonr_newline(r, s + 1);
    r->cur = bad;
    return jsonr_fail(r, jsonr_here(r), "byte 0x%02x is not valid UTF-8", (unsigned char)*bad);
}

int jsonr_check_utf8(struct jsonr_reader *r)
{
    r->ascii = true;
    for (const char *s = r->cur; s < r->end;) {
        uint64_t word = 0;
        while (r->end - s >= 8 && (memcpy(&word, s, 8), !(word & BYTES(0x80))))
            s += 8;
        if (s == r->end)
            break;
        uint32_t code;
        size_t len = utf8_decode(s, r->end, &code);
        if (len != 1)
            r->ascii = false;
        if (len == 0)
            return fail_bad_byte(r, s);
        s += len;
    }
    return 0;
}

/* First byte in s that is a quote, a backslash or a control character; else end. Long strings are
 * most of what is read, so eight bytes at a time; a false alarm costs a few single steps. */
static const char *skip_plain(const char *s, const char *end)
{
    for (uint64_t w; end - s >= 8; s += 8) {
        memcpy(&w, s, 8);
        uint64_t quote = w ^ BYTES('"'), slash = w ^ BYTES('\\');
        uint64_t hit = ((w - BYTES(0x20)) & ~w) | ((quote - BYTES(1)) & ~quote) |
                       ((slash - BYTES(1)) & ~slash);
        if (hit & BYTES(0x80))
            break;
    }
    while (s < end && (unsigned char)*s >= 0x20 && *s != '"' && *s != '\\')
        s++;
    return s;
}

/* Four hexadecimal digits at s, or -1. */
static int32_t hex4(const char *s, const char *end)
{
    int32_t code = 0;
    if (end - s < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = s[i], low = (char)(c | 0x20);
        if (c >= '0' && c <= '9')
            code = code << 4 | (c - '0');
        else if (low >= 'a' && low <= 'f')
            code = code << 4 | (low - 'a' + 10);
        else
            return -1;
    }
    return code;
}

static bool is_high(int32_t code)
{
    return code >= 0xd800 && code <= 0xdbff;
}

static bool is_low(int32_t code)
{
    return code >= 0xdc00 && code <= 0xdfff;
}

/* The cursor stands on the backslash of \uXXXX. */
static int read_unicode(struct jsonr_reader *r, char **out)
{
    const char *s = r->cur;
    int32_t code = hex4(s + 2, r->end), low = -1;
    if (code < 0)
        return jsonr_fail(r, jsonr_here(r), "\\u needs four hexadecimal digits");
    s += 6;
    if (is_high(code) && r->end - s >= 2 && s[0] == '\\' && s[1] == 'u') {
        low = hex4(s + 2, r->end);
        s += 6;
    }
    if (is_low(code) || (is_high(code) && !is_low(low)))
        return jsonr_fail(r, jsonr_here(r), "\\u%04x is half of a surrogate pair", (unsigned)code);
    if (is_high(code))
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    *out += utf8_encode(*out, (uint32_t)code);
    r->cur = s;
    return 0;
}

static int read_escape(struct jsonr_reader *r, char **out)
{
    static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char c = r->cur[1]; /* jsonr_string() has seen the closing quote behind it */
    if (c == 'u')
        return read_unicode(r, out);
    const char *letter = c ? strchr(letters, c) : NULL;
    if (!letter) {
        char what[WHAT_SIZE];
        struct jsonr_pos pos = jsonr_here(r);
        r->cur++;
        return jsonr_fail(r, pos, "unknown escape: backslash and %s", describe(r, what));
    }
    *(*out)++ = values[letter - letters];
    r->cur += 2;
    return 0;
}

/* An escape is never shorter than what it stands for, so the length in the text is enough. */
int jsonr_string(struct jsonr_reader *r, const char **ret_data, size_t *ret_len)
{
    const char *start = r->cur + 1, *stop = start;
    while ((stop = skip_plain(stop, r->end)) < r->end && *stop == '\\' && r->end - stop >= 2)
        stop += 2;
    if (stop == r->end || *stop == '\\')
        return jsonr_fail(r, jsonr_here(r), "the string that starts here is not closed");
    if (*stop != '"') {
        char what[WHAT_SIZE];
        r->cur = stop;
        return jsonr_fail(r, jsonr_here(r), "%s in a string must be written as an escape",
                          describe(r, what));
    }
    char *data = arena_alloc(r->arena, (size_t)(stop - start) + 1), *out = data;
    if (!data)
        return err_nomem(r->err, r->source->stage);
    for (r->cur = start; r->cur < stop;) {
        const char *plain = skip_plain(r->cur, stop);
        memcpy(out, r->cur, (size_t)(plain - r->cur));
        out += plain - r->cur;
        r->cur = plain;
        if (r->cur < stop && read_escape(r, &out) < 0)
            return -1;
    }
    *out = '\0';
    r->cur = stop + 1;
    *ret_data = data;
    *ret_len = (size_t)(out - data);
    return 0;
}

static bool is_digit(const char *s, const char *end)
{
    return s < end && *s >= '0' && *s <= '9';
}

/* The exponent behind an 'e'; cut at a bound that no count of digits can bring back into range. */
static int64_t exponent_value(const char *s, const char *stop)
{
    const int64_t bound = (int64_t)4 * JSONR_SIZE_MAX;
    bool negative = *s == '-';
    int64_t value = 0;
    for (s += *s == '-' || *s == '+'; s < stop && value < bound; s++)
        value = value * 10 + (*s - '0');
    return negative ? -value : value;
}

/* The nearest double, infinite if there is none. The text is rewritten as digits and an exponent:
 * without a decimal point strtod() gives the same whatever the locale of the process. */
static double real_value(const char *s, const char *stop)
{
    static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                  1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                  1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    char digits[DIGITS_MAX + 1 + 24];
    int64_t n = 0, exponent = 0, mantissa = 0;
    bool negative = *s == '-', fraction = false, rest = false;
    for (s += negative; s < stop && (*s | 0x20) != 'e'; s++) {
        if (*s == '.') {
            fraction = true;
            continue;
        }
        exponent -= fraction;
        if (n == DIGITS_MAX) {
            exponent++;
            rest = rest || *s != '0';
        } else if (n > 0 || *s != '0') {
            digits[n++] = *s;
            mantissa = n <= 15 ? mantissa * 10 + (*s - '0') : 0;
        }
    }
    if (s < stop)
        exponent += exponent_value(s + 1, stop);
    if (rest) {
        digits[n++] = '1';
        exponent--;
    }
    double value;
    if (n == 0 || exponent + n < -400) {
        value = 0;
    } else if (exponent + n > 400) {
        value = (double)INFINITY;
    } else if (n <= 15 && exponent >= -22 && exponent <= 22) {
        /* both sides are exact, so the one operation rounds once: the common case, and fast */
        value = (double)mantissa;
        value = exponent < 0 ? value / tens[-exponent] : value * tens[exponent];
    } else {
        snprintf(digits + n, sizeof(digits) - (size_t)n, "e%d", (int)exponent);
        value = strtod(digits, NULL);
    }
    return negative ? -value : value;
}

/* Is it written as an integer that fits? Then the node has its value. */
static bool integer_value(const char *s, const char *stop, struct jsonr_node *node)
{
    bool negative = *s == '-';
    uint64_t limit = negative ? (uint64_t)1 << 63 : UINT64_MAX, value = 0;
    for (s += negative; s < stop; s++) {
        unsigned digit = (unsigned)(*s - '0');
        if (value > (limit - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    node->negative = negative && value > 0;
    node->u.magnitude = value;
    return true;
}

int jsonr_number(struct jsonr_reader *r, struct jsonr_node *node)
{
    const char *start = r->cur;
    jsonr_take(r, '-');
    if (!is_digit(r->cur, r->end))
        return jsonr_fail_expected(r, "a digit");
    if (jsonr_take(r, '0') && is_digit(r->cur, r->end))
        return jsonr_fail(r, node->pos, "a number must not begin with a zero");
    while (is_digit(r->cur, r->end))
        r->cur++;

    node->type = JSONR_INTEGER;
    if (jsonr_take(r, '.')) {
        node->type = JSONR_REAL;
        if (!is_digit(r->cur, r->end))
            return jsonr_fail_expected(r, "a digit after the decimal point");
        while (is_digit(r->cur, r->end))
            r->cur++;
    }
    if (jsonr_take(r, 'e') || jsonr_take(r, 'E')) {
        node->type = JSONR_REAL;
        if (!jsonr_take(r, '-'))
            jsonr_take(r, '+');
        if (!is_digit(r->cur, r->end))
            return jsonr_fail_expected(r, "a digit of the exponent");
        while (is_digit(r->cur, r->end))
            r->cur++;
    }

    if (node->type == JSONR_INTEGER && integer_value(start, r->cur, node))
        return 0;
    node->out_of_range = node->type == JSONR_INTEGER;
    node->negative = node->out_of_range && *start == '-';
    node->u.real = real_value(start, r->cur);
    return isfinite(node->u.real) ? 0 : jsonr_fail(r, node->pos, "the number is too large");
}
