/* Hosts as the URL standard reads them. Pure; runs in whoever reads a policy and in the broker. */
#include "policy/nethost.h"

#include <arpa/inet.h>

#include "base/util.h"
#include "policy/idna.h"
#include "policy/netrule.h"

static const uint8_t mapped_prefix[12] = {[10] = 0xff, [11] = 0xff};

/* ---- IPv4 spellings ---------------------------------------------------------------------------
 */

/* One part in its own base. False for a bad digit; values beyond 32 bits stay beyond. */
static bool v4_part(const char *text, size_t len, uint64_t *ret_value)
{
    unsigned base = 10;
    uint64_t value = 0;
    if (len == 0)
        return false;
    if (len >= 2 && text[0] == '0' && (text[1] | 0x20) == 'x') {
        base = 16;
        text += 2, len -= 2;
    } else if (len >= 2 && text[0] == '0') {
        base = 8;
        text++, len--;
    }
    for (size_t i = 0; i < len; i++) {
        char c = text[i] >= 'A' && text[i] <= 'F' ? (char)(text[i] | 0x20) : text[i];
        unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10)
                                                : 99;
        if (digit >= base)
            return false;
        value = value > UINT32_MAX ? value : value * base + digit;
    }
    *ret_value = value;
    return true;
}

/* The last label, not counting one final dot, is a number in any base. */
static bool ends_in_number(const char *text, size_t len)
{
    if (len > 0 && text[len - 1] == '.')
        len--;
    size_t start = len;
    while (start > 0 && text[start - 1] != '.')
        start--;
    const char *label = text + start;
    size_t n = len - start;
    uint64_t ignored;
    bool digits = n > 0;
    for (size_t i = 0; i < n; i++)
        digits &= label[i] >= '0' && label[i] <= '9';
    return digits ||
           (n >= 2 && label[0] == '0' && (label[1] | 0x20) == 'x' && v4_part(label, n, &ignored));
}

static bool v4_parse(const char *text, size_t len, uint8_t ret_addr[static 16])
{
    uint64_t parts[4];
    size_t n = 0;
    if (len > 0 && text[len - 1] == '.')
        len--;
    for (size_t at = 0; at <= len; n++) {
        const char *dot = memchr(text + at, '.', len - at);
        size_t part = dot ? (size_t)(dot - text) - at : len - at;
        if (n == 4 || !v4_part(text + at, part, &parts[n]))
            return false;
        at += part + 1;
    }
    uint64_t value = parts[n - 1];
    if (value >= (uint64_t)1 << (8 * (5 - n)))
        return false;
    for (size_t i = 0; i + 1 < n; i++) {
        if (parts[i] > 255)
            return false;
        value |= parts[i] << (8 * (3 - i));
    }
    memcpy(ret_addr, mapped_prefix, 12);
    for (size_t i = 0; i < 4; i++)
        ret_addr[12 + i] = (uint8_t)(value >> (8 * (3 - i)));
    return true;
}

/* ---- hosts ------------------------------------------------------------------------------------
 */

static bool v6_parse(const char *text, size_t len, uint8_t ret_addr[static 16])
{
    char copy[INET6_ADDRSTRLEN + 1];
    if (len == 0 || len >= sizeof(copy) || memchr(text, '\0', len))
        return false;
    memcpy(copy, text, len);
    copy[len] = '\0';
    return inet_pton(AF_INET6, copy, ret_addr) == 1;
}

bool nethost_parse(const char *text, size_t len, struct nethost *ret_host)
{
    struct nethost host = {0};
    if (len >= 2 && text[0] == '[' && text[len - 1] == ']') {
        host.is_addr = true;
        if (!v6_parse(text + 1, len - 2, host.addr))
            return false;
    } else if (ends_in_number(text, len)) {
        host.is_addr = true;
        if (!v4_parse(text, len, host.addr))
            return false;
    } else if (!netrule_canonical_name(text, len, host.name)) {
        return false;
    }
    *ret_host = host;
    return true;
}

bool nethost_parse_port(const char *text, size_t len, struct nethost *ret_host, uint16_t *ret_port)
{
    size_t colon = len;
    unsigned port = 0;
    for (size_t i = len; i > 0 && text[i - 1] != ']'; i--) {
        if (text[i - 1] == ':')
            colon = i - 1;
    }
    for (size_t i = colon + 1; i < len; i++) {
        if (text[i] < '0' || text[i] > '9' ||
            (port = port * 10 + (unsigned)(text[i] - '0')) > 65535)
            return false;
    }
    if ((colon < len && port == 0) || !nethost_parse(text, colon, ret_host))
        return false;
    *ret_port = (uint16_t)port;
    return true;
}

bool nethost_parse_written(const char *text, size_t len, struct nethost *ret_host,
                           uint16_t *ret_port)
{
    char ascii[NETHOST_NAME_MAX + 8]; /* with a final dot and a port */
    if (!idna_is_other(text, len))
        return nethost_parse_port(text, len, ret_host, ret_port);
    /* The port first: a colon must not come out of the conversion, nor a bracket. */
    const char *colon = memchr(text, ':', len);
    size_t host = colon ? (size_t)(colon - text) : len;
    if (text[0] == '[' || !idna_to_ascii(text, host, ascii, NETHOST_NAME_MAX + 2))
        return false;
    size_t n = strlen(ascii), rest = len - host;
    if (rest >= sizeof(ascii) - n)
        return false;
    memcpy(ascii + n, text + host, rest);
    return nethost_parse_port(ascii, n + rest, ret_host, ret_port);
}

bool nethost_equal(const struct nethost *a, const struct nethost *b)
{
    if (a->is_addr != b->is_addr)
        return false;
    return a->is_addr ? memcmp(a->addr, b->addr, 16) == 0 : str_eq(a->name, b->name);
}

const char *nethost_addr_text(const uint8_t addr[static 16], char buf[static NETHOST_ADDR_TEXT_MAX])
{
    if (memcmp(addr, mapped_prefix, 12) == 0)
        inet_ntop(AF_INET, addr + 12, buf, NETHOST_ADDR_TEXT_MAX);
    else
        inet_ntop(AF_INET6, addr, buf, NETHOST_ADDR_TEXT_MAX);
    return buf;
}
