/* Upstream HTTP proxy. Pure; runs in the broker on bytes of the proxy. */
#include "net/proxyconnect.h"

#include <stdint.h>

#include "base/err.h"
#include "base/util.h"

static bool base64(const unsigned char *in, size_t len, char *ret, size_t max)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t out = 0;
    if ((len + 2) / 3 * 4 + 1 > max)
        return false;
    for (size_t i = 0; i < len; i += 3) {
        uint32_t v = (uint32_t)in[i] << 16 | (i + 1 < len ? (uint32_t)in[i + 1] << 8 : 0) |
                     (i + 2 < len ? in[i + 2] : 0);
        ret[out++] = digits[v >> 18];
        ret[out++] = digits[v >> 12 & 63];
        ret[out++] = i + 1 < len ? digits[v >> 6 & 63] : '=';
        ret[out++] = i + 2 < len ? digits[v & 63] : '=';
    }
    ret[out] = '\0';
    return true;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* user:password with %XX undone, as base64. */
static bool read_auth(const char *text, size_t len, char *ret)
{
    unsigned char plain[PROXYCONNECT_AUTH_MAX];
    size_t n = 0;
    if (len >= sizeof(plain))
        return false;
    for (size_t i = 0; i < len; i++) {
        int high = text[i] == '%' && i + 2 < len ? hex_digit(text[i + 1]) : -1;
        int low = high >= 0 ? hex_digit(text[i + 2]) : -1;
        if (text[i] == '%' && low < 0)
            return false;
        plain[n++] = (unsigned char)(low >= 0 ? high << 4 | low : text[i]);
        i += low >= 0 ? 2 : 0;
    }
    return base64(plain, n, ret, PROXYCONNECT_AUTH_MAX);
}

int proxyconnect_parse_url(const char *url, struct proxyconnect *ret_proxy, struct cordon_err *err)
{
    struct proxyconnect proxy = {0};
    const char *text = url;
    if (strncasecmp(text, "http://", 7) == 0)
        text += 7;
    else if (strstr(text, "://"))
        return err_set(err, CORDON_ERR_CONFIG, "network", 0,
                       "http_proxy: only http:// proxies are spoken to");
    size_t len = strlen(text);
    if (len > 0 && text[len - 1] == '/')
        len--;
    for (size_t i = len; i > 0; i--) {
        if (text[i - 1] != '@')
            continue;
        if (!read_auth(text, i - 1, proxy.auth))
            return err_set(err, CORDON_ERR_CONFIG, "network", 0,
                           "http_proxy: the user and password are too long or badly encoded");
        text += i, len -= i;
        break;
    }
    /* The message does not repeat the value: it may hold a password. */
    if (!nethost_parse_written(text, len, &proxy.host, &proxy.port))
        return err_set(err, CORDON_ERR_CONFIG, "network", 0,
                       "http_proxy: not a proxy's URL; write http://HOST:PORT");
    if (proxy.port == 0)
        proxy.port = 80;
    *ret_proxy = proxy;
    return 0;
}

size_t proxyconnect_request(const struct proxyconnect *proxy, const struct nethost *host,
                            uint16_t port, char *ret, size_t max)
{
    char text[NETHOST_ADDR_TEXT_MAX], where[NETHOST_NAME_MAX + 16];
    const char *name = host->is_addr ? nethost_addr_text(host->addr, text) : host->name;
    bool v6 = host->is_addr && strchr(name, ':');
    snprintf(where, sizeof(where), "%s%s%s:%u", v6 ? "[" : "", name, v6 ? "]" : "", port);
    int n = snprintf(ret, max, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s%s%s\r\n", where, where,
                     proxy->auth[0] ? "Proxy-Authorization: Basic " : "", proxy->auth,
                     proxy->auth[0] ? "\r\n" : "");
    return n > 0 && (size_t)n < max ? (size_t)n : 0;
}

/* Length of the head, its empty line included; 0: not there yet. Lines may end with LF alone. */
static size_t head_length(const char *data, size_t len)
{
    for (size_t i = 0; i + 1 < len; i++) {
        if (data[i] != '\n')
            continue;
        if (data[i + 1] == '\n')
            return i + 2;
        if (data[i + 1] == '\r' && i + 2 < len && data[i + 2] == '\n')
            return i + 3;
    }
    return 0;
}

enum proxyconnect_state proxyconnect_read(const char *data, size_t len, size_t *ret_len,
                                          int *ret_status)
{
    static const char start[] = "HTTP/1.x ";
    for (size_t i = 0; i < len && i < sizeof(start) - 1; i++) {
        bool version = start[i] == 'x' && (data[i] == '0' || data[i] == '1');
        if (data[i] != start[i] && !version)
            return PROXYCONNECT_BAD;
    }
    for (size_t i = 9; i < len && i < 12; i++) {
        if (data[i] < '0' || data[i] > '9')
            return PROXYCONNECT_BAD;
    }
    if (len > 12 && data[12] != ' ' && data[12] != '\r' && data[12] != '\n')
        return PROXYCONNECT_BAD;
    size_t head = head_length(data, MIN(len, PROXYCONNECT_HEAD_MAX));
    if (head == 0)
        return len >= PROXYCONNECT_HEAD_MAX ? PROXYCONNECT_BAD : PROXYCONNECT_MORE;
    if (head < 13)
        return PROXYCONNECT_BAD;
    *ret_status = (data[9] - '0') * 100 + (data[10] - '0') * 10 + (data[11] - '0');
    *ret_len = head;
    return data[9] == '2' ? PROXYCONNECT_OPEN : PROXYCONNECT_REFUSED;
}
