/* Requests of an HTTP/1 connection. Pure; runs in the broker on what the client sends. */
#include "net/httpwatch.h"

#include "base/util.h"
#include "net/httpfirst.h"

#define LINE_MAX_CHUNK 1024 /* a chunk's size with its extensions, or a trailer line */

struct text {
    const char *at;
    size_t len;
};

/* What a head says. */
struct head {
    struct text host;
    unsigned n_hosts, n_lengths, n_codings;
    uint64_t length;
    bool is_v10, has_target_host, has_upgrade, has_h2;
};

static bool is_token_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool text_is(struct text t, const char *word)
{
    return t.len == strlen(word) && strncasecmp(t.at, word, t.len) == 0;
}

static struct text trim(struct text t)
{
    while (t.len > 0 && (t.at[0] == ' ' || t.at[0] == '\t'))
        t.at++, t.len--;
    while (t.len > 0 && (t.at[t.len - 1] == ' ' || t.at[t.len - 1] == '\t'))
        t.len--;
    return t;
}

/* Empty lines before a request are skipped by servers. */
static size_t skip_empty(const char *data, size_t len)
{
    size_t at = 0;
    while (at < len && (data[at] == '\r' || data[at] == '\n'))
        at++;
    return at;
}

/* ---- a head -----------------------------------------------------------------------------------
 */

/* Length of the head with its empty line; 0: not all there. */
static size_t head_length(const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (data[i] != '\n')
            continue;
        if (i + 1 < len && data[i + 1] == '\n')
            return i + 2;
        if (i + 2 < len && data[i + 1] == '\r' && data[i + 2] == '\n')
            return i + 3;
    }
    return 0;
}

/* The next line without its end; false when it holds a carriage return or NUL of its own. */
static bool next_line(const char **at, const char *end, struct text *ret_line)
{
    const char *lf = memchr(*at, '\n', (size_t)(end - *at));
    struct text line = {*at, (size_t)(lf - *at)};
    *at = lf + 1;
    if (line.len > 0 && line.at[line.len - 1] == '\r')
        line.len--;
    *ret_line = line;
    return !memchr(line.at, '\r', line.len) && !memchr(line.at, '\0', line.len);
}

/* METHOD SP TARGET SP HTTP/1.x, nothing looser. */
static bool read_request_line(struct text line, struct head *head)
{
    size_t method = 0;
    while (method < line.len && is_token_char(line.at[method]))
        method++;
    if (method == 0 || line.len < method + 11 || line.at[method] != ' ' ||
        text_is((struct text){line.at, method}, "CONNECT"))
        return false;
    const char *version = line.at + line.len - 9;
    struct text target = {line.at + method + 1, line.len - method - 10};
    if (memcmp(version, " HTTP/1.", 8) != 0 || (version[8] != '0' && version[8] != '1'))
        return false;
    for (size_t i = 0; i < target.len; i++) {
        if ((unsigned char)target.at[i] <= ' ' || target.at[i] == 0x7f)
            return false;
    }
    head->is_v10 = version[8] == '0';
    if (target.at[0] == '/' || text_is(target, "*"))
        return true;

    /* absolute form: scheme://host/ */
    const char *sep = memmem(target.at, target.len, "://", 3);
    if (!sep || !(text_is((struct text){target.at, (size_t)(sep - target.at)}, "http") ||
                  text_is((struct text){target.at, (size_t)(sep - target.at)}, "https")))
        return false;
    head->host.at = sep + 3;
    size_t rest = target.len - (size_t)(sep + 3 - target.at);
    while (head->host.len < rest && !strchr("/?#\\", head->host.at[head->host.len]))
        head->host.len++;
    head->has_target_host = true;
    return true;
}

/* Of a head that is not all there: true also while the line is not. */
static bool first_line_is_good(const char *data, size_t len)
{
    struct head ignored = {0};
    struct text line;
    if (!memchr(data, '\n', len))
        return true;
    return next_line(&data, data + len, &line) && read_request_line(line, &ignored);
}

static bool read_length(struct text value, struct head *head)
{
    uint64_t n = 0;
    if (value.len == 0 || value.len > 18)
        return false;
    for (size_t i = 0; i < value.len; i++) {
        if (value.at[i] < '0' || value.at[i] > '9')
            return false;
        n = n * 10 + (uint64_t)(value.at[i] - '0');
    }
    head->length = n;
    return head->n_lengths++ == 0;
}

static bool host_matches(const struct httpwatch *w, struct text value)
{
    struct nethost host;
    uint16_t port;
    if (!nethost_parse_port(value.at, value.len, &host, &port))
        return false;
    return w->any_host || nethost_equal(&host, &w->host);
}

static bool read_field(const struct httpwatch *w, struct text line, struct head *head,
                       bool *ret_mismatch)
{
    size_t n = 0;
    while (n < line.len && is_token_char(line.at[n]))
        n++;
    if (n == 0 || n == line.len || line.at[n] != ':')
        return false; /* also a folded line, and a blank before the colon */
    struct text name = {line.at, n}, value = trim((struct text){line.at + n + 1, line.len - n - 1});
    if (text_is(name, "Host")) {
        *ret_mismatch |= !host_matches(w, value);
        return head->n_hosts++ == 0;
    }
    if (text_is(name, "Content-Length"))
        return read_length(value, head);
    if (text_is(name, "Transfer-Encoding"))
        return text_is(value, "chunked") && head->n_codings++ == 0;
    if (text_is(name, "Upgrade")) {
        head->has_upgrade = true;
        for (size_t i = 0; i + 2 <= value.len; i++)
            head->has_h2 |= strncasecmp(value.at + i, "h2", 2) == 0 ||
                            (i + 6 <= value.len && strncasecmp(value.at + i, "HTTP/2", 6) == 0);
    }
    return true;
}

static enum httpwatch_verdict read_head(struct httpwatch *w, const char *data, size_t len)
{
    struct head head = {0};
    struct text line;
    bool mismatch = false;
    const char *at = data + skip_empty(data, len), *end = data + len;
    if (!next_line(&at, end, &line) || !read_request_line(line, &head))
        return HTTPWATCH_REFUSED;
    if (head.has_target_host && !host_matches(w, head.host))
        mismatch = true;
    while (at < end) {
        if (!next_line(&at, end, &line))
            return HTTPWATCH_REFUSED;
        if (line.len > 0 && !read_field(w, line, &head, &mismatch))
            return HTTPWATCH_REFUSED;
    }
    if (mismatch || (head.n_hosts == 0 && !head.has_target_host && !w->any_host))
        return HTTPWATCH_MISMATCH;
    if (head.n_codings > 0 && (head.n_lengths > 0 || head.is_v10))
        return HTTPWATCH_REFUSED;
    /* The answer that decides is the first thing the server says, or it cannot be told from the
     * middle of another: a body that reads like consent can be had from many servers. Other
     * connections are reset, which clients take as a reason for a fresh one; a wish for HTTP/2 is
     * never granted, and what would follow it is refused by itself. */
    bool is_first = !w->has_request && head.n_codings == 0 && head.length == 0;
    if (head.has_upgrade && !is_first && !head.has_h2)
        return HTTPWATCH_REFUSED;
    w->has_request = true;
    w->has_h2 = head.has_h2;
    w->left = head.length;
    w->state = head.n_codings > 0             ? HTTPWATCH_CHUNK_SIZE
               : head.length > 0              ? HTTPWATCH_BODY_BEGIN
               : head.has_upgrade && is_first ? HTTPWATCH_UPGRADE
                                              : HTTPWATCH_HEAD;
    return HTTPWATCH_PASS;
}

/* ---- bodies -----------------------------------------------------------------------------------
 */

/* A line that ends with CR LF and holds neither inside. Its length with the end; 0: more is needed;
 * -1: bad. */
static ssize_t strict_line(const char *data, size_t len)
{
    for (size_t i = 0; i < len && i < LINE_MAX_CHUNK; i++) {
        if (data[i] == '\n' || data[i] == '\0')
            return -1;
        if (data[i] != '\r')
            continue;
        if (i + 1 == len)
            return 0;
        return data[i + 1] == '\n' ? (ssize_t)i + 2 : -1;
    }
    return len < LINE_MAX_CHUNK ? 0 : -1;
}

/* Hexadecimal digits, then nothing or extensions behind a semicolon. */
static bool read_chunk_size(const char *line, size_t len, uint64_t *ret_size)
{
    uint64_t size = 0;
    size_t n = 0;
    for (; n < len && n < 15; n++) {
        char c = line[n];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            break;
        size = size << 4 | (uint64_t)digit;
    }
    if (n == 0 || (n < len && line[n] != ';'))
        return false;
    for (; n < len; n++)
        if (line[n] <= ' ' || line[n] >= 0x7f)
            return false; /* three words would be a request, for who takes no chunks */
    *ret_size = size;
    return true;
}

/* One line of a chunked body. Its length, 0 for more, -1 for bad. */
static ssize_t step_line(struct httpwatch *w, const char *data, size_t len)
{
    ssize_t n = strict_line(data, len);
    if (n <= 0)
        return n;
    size_t text = (size_t)n - 2;
    if (w->state == HTTPWATCH_CHUNK_SIZE) {
        if (!read_chunk_size(data, text, &w->left))
            return -1;
        w->state = w->left > 0 ? HTTPWATCH_CHUNK : HTTPWATCH_TRAILER;
    } else if (w->state == HTTPWATCH_CHUNK_END) {
        if (text > 0)
            return -1;
        w->state = HTTPWATCH_CHUNK_SIZE;
    } else if (text == 0) {
        w->state = HTTPWATCH_HEAD;
    }
    return n;
}

void httpwatch_passed(struct httpwatch *w, uint64_t n)
{
    w->left -= n;
    if (w->left > 0)
        return;
    if (w->state == HTTPWATCH_CHUNK)
        w->state = HTTPWATCH_CHUNK_END;
    else if (w->state == HTTPWATCH_BODY || w->state == HTTPWATCH_BODY_BEGIN)
        w->state = HTTPWATCH_HEAD;
}

/* A body that reads like a request. There are servers that answer without reading the body, and
 * take it for the next request: the host in it would be one that nobody has judged. */
static enum httpwatch_verdict begin_body(struct httpwatch *w, const char *data, size_t len)
{
    size_t n = len < w->left ? len : (size_t)w->left;
    enum httpfirst is = httpfirst_read_body(data, n, n == w->left);
    if (is == HTTPFIRST_YES)
        return HTTPWATCH_REFUSED;
    if (is == HTTPFIRST_NO)
        w->state = HTTPWATCH_BODY;
    return HTTPWATCH_PASS;
}

/* One step; *ret_n 0: nothing to do until there is more. */
static enum httpwatch_verdict step_once(struct httpwatch *w, const char *data, size_t len,
                                        size_t *ret_n)
{
    enum httpwatch_verdict verdict = HTTPWATCH_PASS;
    ssize_t line;
    *ret_n = 0;
    switch (w->state) {
    case HTTPWATCH_HEAD: {
        size_t skip = skip_empty(data, len);
        size_t head = head_length(data + skip, len - skip);
        if (skip + head > HTTPWATCH_HEAD_MAX || (head == 0 && len >= HTTPWATCH_HEAD_MAX))
            return HTTPWATCH_REFUSED;
        if (head == 0 && !first_line_is_good(data + skip, len - skip))
            return HTTPWATCH_REFUSED; /* now, and not when nobody sends the rest */
        if (head > 0 && (verdict = read_head(w, data, skip + head)) == HTTPWATCH_PASS)
            *ret_n = skip + head;
        return verdict;
    }
    case HTTPWATCH_BODY_BEGIN:
        verdict = begin_body(w, data, len);
        if (verdict != HTTPWATCH_PASS || w->state == HTTPWATCH_BODY_BEGIN)
            return verdict;
        __attribute__((fallthrough));
    case HTTPWATCH_BODY:
    case HTTPWATCH_CHUNK:
        *ret_n = len < w->left ? len : (size_t)w->left;
        httpwatch_passed(w, *ret_n);
        return verdict;
    case HTTPWATCH_CHUNK_SIZE:
    case HTTPWATCH_CHUNK_END:
    case HTTPWATCH_TRAILER:
        line = step_line(w, data, len);
        *ret_n = line > 0 ? (size_t)line : 0;
        return line < 0 ? HTTPWATCH_REFUSED : verdict;
    case HTTPWATCH_RAW: *ret_n = len; return verdict;
    case HTTPWATCH_UPGRADE: return verdict;
    case HTTPWATCH_H2: break;
    }
    return HTTPWATCH_REFUSED;
}

enum httpwatch_verdict httpwatch_step(struct httpwatch *w, const char *data, size_t len,
                                      size_t *ret_pass)
{
    size_t pass = 0, n = 0;
    do {
        enum httpwatch_verdict verdict = step_once(w, data + pass, len - pass, &n);
        if (verdict != HTTPWATCH_PASS)
            return verdict;
        pass += n;
    } while (n > 0 && pass < len);
    *ret_pass = pass;
    return HTTPWATCH_PASS;
}

bool httpwatch_answer(struct httpwatch *w, const char *data, size_t len)
{
    static const char start[] = "HTTP/1.1 101";
    if (w->state != HTTPWATCH_UPGRADE)
        return true;
    if (memcmp(data, start, MIN(len, sizeof(start) - 1)) != 0)
        w->state = HTTPWATCH_HEAD;
    else if (len < sizeof(start) - 1)
        return false;
    else
        w->state = w->has_h2 ? HTTPWATCH_H2 : HTTPWATCH_RAW;
    return true;
}
