/* What a first line is. Pure; runs in the broker. */
#include "net/httpfirst.h"

#include <string.h>
#include <strings.h>

#include "base/util.h"

/* What some server or other takes for a blank between the words of a request. */
static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\v' || c == '\f' || (c >= 0x1c && c <= 0x1f) ||
           c == '\x85' || c == '\xa0';
}

static bool is_token_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

struct text {
    const char *at;
    size_t len;
};

/* A line, cut into words. */
struct line {
    struct text all;
    struct text words[3]; /* the second begins where only its beginning is there yet */
    bool is_token;        /* the first word could be a method by the book */
};

/* Servers that take any bytes for a method (the JDK's) part words by spaces only; those that part
 * them by other blanks want a method that they know. */
static struct line cut_line(const char *at, size_t len)
{
    struct line line = {.all = {at, len}, .is_token = true};
    const char *end = at + len;
    for (const char *p = at; p < end && !is_blank(*p); p++)
        line.is_token &= is_token_char(*p);
    line.is_token &= len > 0 && !is_blank(*at);
    for (size_t i = 0; i < ARRAY_SIZE(line.words); i++) {
        const char *p = at;
        while (p < end && *p != ' ' && !(line.is_token && is_blank(*p)))
            p++;
        line.words[i] = (struct text){at, (size_t)(p - at)};
        while (p < end && (*p == ' ' || (line.is_token && is_blank(*p))))
            p++;
        at = p;
    }
    return line;
}

static bool starts(struct text t, const char *word)
{
    size_t n = strlen(word);
    return t.len >= n && strncasecmp(t.at, word, n) == 0;
}

static bool starts_version(struct text t)
{
    /* llhttp, which is Node's, takes all three for the same protocol */
    return starts(t, "HTTP/") || starts(t, "RTSP/") || starts(t, "ICE/");
}

/* All that is left of a line. */
static bool is_version(const struct line *line, struct text t)
{
    struct text rest = {t.at, (size_t)(line->all.at + line->all.len - t.at)};
    while (rest.len > 0 && strchr("0123456789. ", rest.at[rest.len - 1]) && rest.at[rest.len - 1])
        rest.len--;
    return starts_version(rest) && rest.at[rest.len - 1] == '/';
}

/* What a request may ask for: a path, an absolute URI, or the server itself. */
static bool is_target(struct text t)
{
    size_t n = 0;
    if ((t.len > 0 && t.at[0] == '/') || (t.len == 1 && t.at[0] == '*'))
        return true;
    while (n < t.len && ((t.at[n] >= '0' && t.at[n] <= '9') || (t.at[n] >= 'a' && t.at[n] <= 'z') ||
                         (t.at[n] >= 'A' && t.at[n] <= 'Z') || t.at[n] == '+' || t.at[n] == '-' ||
                         t.at[n] == '.'))
        n++;
    return n > 0 && t.len - n >= 3 && memcmp(t.at + n, "://", 3) == 0;
}

static bool has_control(struct text t)
{
    for (size_t i = 0; i < t.len; i++)
        if ((unsigned char)t.at[i] < ' ' || t.at[i] == 0x7f)
            return true;
    return false;
}

/* git's own protocol begins with a word and a path too, but behind a length, and with a NUL that no
 * server takes in a request. */
static bool is_git(const struct line *line)
{
    struct text word = line->words[0], rest = line->all;
    rest.len -= word.len;
    rest.at += word.len;
    for (size_t i = 0; i < 4 && i < word.len; i++)
        if (!((word.at[i] >= '0' && word.at[i] <= '9') || (word.at[i] >= 'a' && word.at[i] <= 'f')))
            return false;
    return word.len > 8 && memcmp(word.at + 4, "git-", 4) == 0 && memchr(rest.at, '\0', rest.len);
}

/* What a proxy puts in front of a connection to say whose it is. The request or hello behind it
 * would be read by the server and by nobody here. */
static bool is_proxy_line(const struct line *line)
{
    struct text word = line->words[0], kind = line->words[1];
    return word.len == 5 && starts(word, "PROXY") &&
           (starts(kind, "TCP4") || starts(kind, "TCP6") || starts(kind, "UNKNOWN"));
}

static const char proxy_mark[] = "\r\n\r\n\0\r\nQUIT\n"; /* the same in binary */

/* A whole line. Other protocols talk in lines too (`GET key`, `EHLO name`); a path or an address in
 * the second place is a request whatever stands in the third, there are servers that do not look.
 */
static bool line_is_http(const struct line *line)
{
    if (!line->is_token) /* a line of JSON or of a log may well speak of HTTP */
        return is_version(line, line->words[2]) || is_version(line, line->words[1]) ||
               (is_target(line->words[1]) && !has_control(line->words[1]));
    for (size_t i = line->words[0].len; i < line->all.len; i++) {
        struct text rest = {line->all.at + i, line->all.len - i};
        if (starts(rest, "HTTP/") || (is_blank(line->all.at[i - 1]) && starts_version(rest)))
            return true;
    }
    return is_target(line->words[1]) || is_proxy_line(line);
}

static size_t skip_blank(const char *data, size_t len)
{
    size_t at = 0;
    while (at < len && (is_blank(data[at]) || data[at] == '\r' || data[at] == '\n'))
        at++;
    return at;
}

static struct line line_until(const char *at, const char *end)
{
    size_t len = (size_t)(end - at);
    return cut_line(at, len > 0 && at[len - 1] == '\r' ? len - 1 : len);
}

enum httpfirst httpfirst_read(const char *data, size_t len, bool is_end, size_t *ret_pass)
{
    size_t skip = skip_blank(data, len);
    const char *at = data + skip, *end = data + len;
    const char *lf = memchr(at, '\n', (size_t)(end - at));
    struct line line = line_until(at, lf ? lf : end);
    if (memcmp(data, proxy_mark, MIN(len, sizeof(proxy_mark) - 1)) == 0) {
        *ret_pass = len;
        return len >= sizeof(proxy_mark) - 1 ? HTTPFIRST_YES
               : is_end                      ? HTTPFIRST_NO
                                             : HTTPFIRST_UNSURE;
    }
    if (is_git(&line))
        return HTTPFIRST_NO;
    if (lf && line_is_http(&line))
        return HTTPFIRST_YES;
    if (lf && lf[-1] != '\r') {
        /* No request for those whose lines end here. For others a line ends with CR LF and no
         * earlier, so that this one goes on. */
        lf = memmem(at, (size_t)(end - at), "\r\n", 2);
        line = line_until(at, lf ? lf : end);
        if (lf && line_is_http(&line))
            return HTTPFIRST_YES;
    }
    if (lf)
        return HTTPFIRST_NO;
    if (is_end)
        return line_is_http(&line) ? HTTPFIRST_YES : HTTPFIRST_NO;
    /* A client may well wait for an answer to a few words without an end, but no other protocol
     * is known that begins with a word and a path; of a request no more than the method passes. */
    bool holds = line.is_token && is_target(line.words[1]);
    if (len >= HTTPFIRST_MAX && line.words[1].at < end)
        return holds ? HTTPFIRST_YES : HTTPFIRST_NO; /* YES: refused as a head that is too long */
    *ret_pass = holds ? (size_t)(line.words[1].at - data) : len;
    return HTTPFIRST_UNSURE;
}

enum httpfirst httpfirst_read_body(const char *data, size_t len, bool is_end)
{
    size_t skip = skip_blank(data, len);
    const char *at = data + skip, *end = data + len;
    const char *lf = memchr(at, '\n', (size_t)(end - at));
    struct line line = line_until(at, lf ? lf : end);
    if (!line.is_token && line.all.len > 0)
        return HTTPFIRST_NO;
    if (!lf && !is_end && len < HTTPFIRST_MAX)
        return HTTPFIRST_UNSURE;
    struct text second = line.words[1];
    bool is_get = starts(line.words[0], "GET"), is_whole = lf || is_end;
    if (!is_whole)
        return is_target(second) ? HTTPFIRST_YES : HTTPFIRST_NO;
    for (size_t i = 0; i < line.all.len; i++)
        if (starts((struct text){line.all.at + i, line.all.len - i}, "HTTP/"))
            return HTTPFIRST_YES;
    return is_get && (starts(second, "/") || starts(second, "http://")) ? HTTPFIRST_YES
                                                                        : HTTPFIRST_NO;
}

enum httpfirst httpfirst_read_answer(const char *data, size_t len)
{
    static const char *const starts_of[] = {"HTTP/1.", "HTTP/0", "\x15\x03", "\x16\x03"};
    enum httpfirst found = HTTPFIRST_NO;
    for (size_t i = 0; i < ARRAY_SIZE(starts_of); i++) {
        size_t n = strlen(starts_of[i]);
        if (memcmp(data, starts_of[i], MIN(n, len)) != 0)
            continue;
        if (len < n)
            found = HTTPFIRST_UNSURE;
        else if (data[0] == 'H')
            return HTTPFIRST_YES;
        else if (len >= 3) /* a version that exists: other protocols have binary answers */
            found = data[2] >= 0 && data[2] <= 4 ? HTTPFIRST_YES : HTTPFIRST_NO;
        else
            found = HTTPFIRST_UNSURE;
    }
    return found;
}
