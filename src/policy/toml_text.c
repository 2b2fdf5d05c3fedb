/* The text side of the TOML reader: encoding, places, messages, comments and strings.
 *
 * Called by toml_parse.c and toml_scalar.c; runs in the front process before anything is
 * started. */
#include "policy/toml_internal.h"

#include "base/err.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int toml_fail(struct toml_parser *p, struct toml_pos pos, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return err_set(p->err, CORDON_ERR_CONFIG, TOML_STAGE, 0, "%s:%u:%u: %s", p->name, pos.line,
                   pos.column, text);
}

static bool is_continuation(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

const char *toml_quote(char buf[static TOML_QUOTE_SIZE], const char *data, size_t len)
{
    const char *end = data + len;
    size_t n = 0;
    buf[n++] = '"';
    while (data < end) {
        uint32_t code = 0;
        size_t step = utf8_decode(data, end, &code);
        /* room for "\U0010ffff", for "..." and for the closing quote */
        if (step == 0 || n + 10 + 3 + 2 > TOML_QUOTE_SIZE) {
            memcpy(buf + n, "...", 3);
            n += 3;
            break;
        }
        if (utf8_is_harmless(code)) {
            memcpy(buf + n, data, step);
            n += step;
        } else {
            n += (size_t)snprintf(buf + n, TOML_QUOTE_SIZE - n, "\\u%04x", (unsigned)code);
        }
        data += step;
    }
    buf[n++] = '"';
    buf[n] = '\0';
    return buf;
}

const char *toml_describe(const struct toml_parser *p, char buf[static TOML_QUOTE_SIZE])
{
    uint32_t code = 0;
    if (p->cur == p->end)
        snprintf(buf, TOML_QUOTE_SIZE, "end of the file");
    else if (toml_at_newline(p))
        snprintf(buf, TOML_QUOTE_SIZE, "end of the line");
    else if (utf8_decode(p->cur, p->end, &code) == 1 && utf8_is_harmless(code))
        snprintf(buf, TOML_QUOTE_SIZE, "'%c'", (char)code);
    else if (code == '\r')
        snprintf(buf, TOML_QUOTE_SIZE, "carriage return without line feed");
    else
        snprintf(buf, TOML_QUOTE_SIZE, "%s U+%04X",
                 code < 0x20 || code == 0x7f ? "control character" : "character", (unsigned)code);
    return buf;
}

/* Done once over the whole text, so that nothing after it has to doubt a sequence. */
int toml_check_utf8(struct toml_parser *p)
{
    struct toml_pos pos = {1, 1};
    const char *s = p->cur;
    while (s < p->end) {
        uint32_t code;
        size_t len = utf8_decode(s, p->end, &code);
        if (len == 0)
            return toml_fail(p, pos, "byte 0x%02x is not valid UTF-8", (unsigned char)*s);
        s += len;
        pos.column++;
        if (code == '\n')
            pos = (struct toml_pos){pos.line + 1, 1};
    }
    return 0;
}

struct toml_pos toml_here(struct toml_parser *p)
{
    for (; p->mark < p->cur; p->mark++)
        if (!is_continuation(*p->mark))
            p->mark_column++;
    return (struct toml_pos){p->line, p->mark_column};
}

void toml_skip_blank(struct toml_parser *p)
{
    while (p->cur < p->end && (*p->cur == ' ' || *p->cur == '\t'))
        p->cur++;
}

bool toml_at_newline(const struct toml_parser *p)
{
    if (p->cur == p->end)
        return false;
    return *p->cur == '\n' || (*p->cur == '\r' && p->end - p->cur > 1 && p->cur[1] == '\n');
}

/* Steps over the line end at the cursor. */
void toml_newline(struct toml_parser *p)
{
    p->cur += *p->cur == '\r' ? 2 : 1;
    p->line++;
    p->mark = p->cur;
    p->mark_column = 1;
}

/* Control characters other than tab may stand nowhere in a document. */
static bool at_control(const struct toml_parser *p)
{
    unsigned char c = (unsigned char)*p->cur;
    return (c < 0x20 && c != '\t') || c == 0x7f;
}

static int fail_control(struct toml_parser *p, const char *where)
{
    char what[TOML_QUOTE_SIZE];
    return toml_fail(p, toml_here(p), "%s is not allowed in a %s", toml_describe(p, what), where);
}

/* Steps over a comment, if there is one, up to the end of the line. */
int toml_skip_comment(struct toml_parser *p)
{
    if (p->cur == p->end || *p->cur != '#')
        return 0;
    for (; p->cur < p->end && !toml_at_newline(p); p->cur++)
        if (at_control(p))
            return fail_control(p, "comment");
    return 0;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* \uXXXX or \UXXXXXXXX; pos is the place of the backslash, the cursor is behind the letter. */
static int escape_unicode(struct toml_parser *p, struct toml_pos pos, unsigned digits, char **out)
{
    uint32_t code = 0;
    for (unsigned i = 0; i < digits; i++, p->cur++) {
        int value = p->cur < p->end ? hex_value(*p->cur) : -1;
        if (value < 0)
            return toml_fail(p, pos, "\\%c needs %u hexadecimal digits", digits == 4 ? 'u' : 'U',
                             digits);
        code = code << 4 | (uint32_t)value;
    }
    if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
        return toml_fail(p, pos, "U+%04X is not a Unicode character", (unsigned)code);
    *out += utf8_encode(*out, code);
    return 0;
}

/* A backslash at the end of a line swallows all blanks and line ends behind it. Returns false, with
 * the cursor unmoved, if the cursor (behind the backslash) does not stand at such a place. */
static bool skip_line_continuation(struct toml_parser *p)
{
    const char *start = p->cur;
    toml_skip_blank(p);
    if (!toml_at_newline(p)) {
        p->cur = start;
        return false;
    }
    while (toml_at_newline(p)) {
        toml_newline(p);
        toml_skip_blank(p);
    }
    return true;
}

static int string_escape(struct toml_parser *p, bool multiline, char **out)
{
    static const char letters[] = "btnfr\"\\", values[] = "\b\t\n\f\r\"\\";
    struct toml_pos pos = toml_here(p);
    p->cur++;
    if (multiline && skip_line_continuation(p))
        return 0;
    if (p->cur == p->end || toml_at_newline(p))
        return toml_fail(p, pos, "the string is not closed");

    char c = *p->cur;
    if (c == 'u' || c == 'U') {
        p->cur++;
        return escape_unicode(p, pos, c == 'u' ? 4 : 8, out);
    }
    const char *letter = c ? strchr(letters, c) : NULL;
    if (!letter) {
        char what[TOML_QUOTE_SIZE];
        return toml_fail(p, pos, "unknown escape: backslash and %s %s", toml_describe(p, what),
                         "(write \\\\ for a backslash or use a 'literal' string)");
    }
    *(*out)++ = values[letter - letters];
    p->cur++;
    return 0;
}

static size_t quote_run(const struct toml_parser *p, char quote)
{
    size_t n = 0;
    while (n < 5 && p->cur + n < p->end && p->cur[n] == quote)
        n++;
    return n;
}

/* Body of a """ or ''' string, the cursor behind the opening quotes; pos is their place. */
static int string_multiline(struct toml_parser *p, char quote, struct toml_pos pos, char **out)
{
    if (toml_at_newline(p))
        toml_newline(p);
    while (p->cur < p->end) {
        size_t quotes = quote_run(p, quote);
        if (quotes > 0) {
            /* one or two quotes may stand directly before the closing three */
            size_t inside = quotes < 3 ? quotes : quotes - 3;
            memset(*out, quote, inside);
            *out += inside;
            p->cur += quotes;
            if (quotes >= 3)
                return 0;
        } else if (toml_at_newline(p)) {
            /* CR LF becomes LF: the value must not depend on the editor that saved the file */
            toml_newline(p);
            *(*out)++ = '\n';
        } else if (*p->cur == '\\' && quote == '"') {
            if (string_escape(p, true, out) < 0)
                return -1;
        } else if (at_control(p)) {
            return fail_control(p, "string");
        } else {
            *(*out)++ = *p->cur++;
        }
    }
    return toml_fail(p, pos, "the multi-line string that starts here is not closed");
}

/* Body of a "..." or '...' string, the cursor behind the opening quote; pos is its place. */
static int string_single(struct toml_parser *p, char quote, struct toml_pos pos, char **out)
{
    while (p->cur < p->end && !toml_at_newline(p)) {
        if (*p->cur == quote) {
            p->cur++;
            return 0;
        }
        if (*p->cur == '\\' && quote == '"') {
            if (string_escape(p, false, out) < 0)
                return -1;
        } else if (at_control(p)) {
            return fail_control(p, "string");
        } else {
            *(*out)++ = *p->cur++;
        }
    }
    return toml_fail(p, pos, "the string that starts here is not closed on its line");
}

/* The cursor stands on a quote. The result lies in the scratch buffer. */
int toml_string(struct toml_parser *p, bool allow_multiline, struct toml_slice *ret)
{
    char quote = *p->cur, *out = p->scratch;
    struct toml_pos pos = toml_here(p);
    bool multiline = quote_run(p, quote) >= 3;
    if (multiline && !allow_multiline)
        return toml_fail(p, pos, "a multi-line string cannot be a key");

    p->cur += multiline ? 3 : 1;
    int r = multiline ? string_multiline(p, quote, pos, &out) : string_single(p, quote, pos, &out);
    if (r < 0)
        return -1;
    *ret = (struct toml_slice){p->scratch, (size_t)(out - p->scratch), pos};
    return 0;
}
