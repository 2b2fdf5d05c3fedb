/* Hosts as the URL standard reads them. Pure; runs in whoever reads a policy and in the broker. */
#include "policy/nethost.h"

#include <arpa/inet.h>

#include "base/util.h"
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

/* ---- labels in another script -----------------------------------------------------------------
 */

#define LABEL_MAX 63

static unsigned adapt(unsigned delta, unsigned points, bool first)
{
    unsigned k = 0;
    delta = first ? delta / 700 : delta / 2;
    delta += delta / points;
    for (; delta > 455; k += 36)
        delta /= 35;
    return k + 36 * delta / (delta + 38);
}

/* RFC 3492; text is what follows xn--. Returns the number of code points, 0 for none or an error.
 */
static size_t puny_decode(const char *text, size_t len, uint32_t ret[static LABEL_MAX])
{
    uint32_t n = 128, i = 0, bias = 72;
    size_t out = 0, at = 0;
    for (size_t k = len; k > 0; k--) {
        if (text[k - 1] == '-') {
            for (; out < k - 1; out++)
                ret[out] = (unsigned char)text[out];
            at = k;
            break;
        }
    }
    while (at < len) {
        uint32_t old = i, weight = 1;
        for (uint32_t k = 36;; k += 36) {
            if (at == len)
                return 0;
            char c = text[at++];
            uint32_t digit = c >= 'a' && c <= 'z'   ? (uint32_t)(c - 'a')
                             : c >= '0' && c <= '9' ? (uint32_t)(c - '0' + 26)
                                                    : 99;
            if (digit > 35 || digit > (0x7fffffff - i) / weight)
                return 0;
            i += digit * weight;
            uint32_t t = k <= bias ? 1 : k >= bias + 26 ? 26 : k - bias;
            if (digit < t)
                break;
            if (weight > 0x7fffffff / (36 - t))
                return 0;
            weight *= 36 - t;
        }
        if (out == LABEL_MAX)
            return 0;
        bias = adapt(i - old, (unsigned)out + 1, old == 0);
        n += i / (uint32_t)(out + 1);
        i %= (uint32_t)(out + 1);
        if (n > 0x10ffff)
            return 0;
        memmove(ret + i + 1, ret + i, (out - i) * sizeof(*ret));
        ret[i++] = n;
        out++;
    }
    return out;
}

/* The other way; false when it does not fit. Used to see that a label has its one right spelling.
 */
static bool puny_encode(const uint32_t *points, size_t count, char *ret, size_t max)
{
    uint32_t n = 128, delta = 0, bias = 72;
    size_t out = 0, done;
    for (size_t k = 0; k < count; k++) {
        if (points[k] < 128 && out < max)
            ret[out++] = (char)points[k];
    }
    size_t basic = done = out;
    if (basic > 0 && out < max)
        ret[out++] = '-';
    for (; done < count; delta++, n++) {
        uint32_t next = UINT32_MAX;
        for (size_t k = 0; k < count; k++) {
            if (points[k] >= n && points[k] < next)
                next = points[k];
        }
        delta += (next - n) * (uint32_t)(done + 1);
        n = next;
        for (size_t k = 0; k < count; k++) {
            delta += points[k] < n;
            if (points[k] != n)
                continue;
            uint32_t q = delta;
            for (uint32_t b = 36;; b += 36) {
                uint32_t t = b <= bias ? 1 : b >= bias + 26 ? 26 : b - bias;
                uint32_t digit = q < t ? q : t + (q - t) % (36 - t);
                if (out == max)
                    return false;
                ret[out++] = (char)(digit < 26 ? 'a' + digit : '0' + digit - 26);
                if (q < t)
                    break;
                q = (q - t) / (36 - t);
            }
            bias = adapt(delta, (unsigned)done + 1, done == basic);
            delta = 0;
            done++;
        }
    }
    if (out == max)
        return false;
    ret[out] = '\0';
    return true;
}

/* Never part of a label in any script: what the mapping step of IDNA would have removed or replaced
 * by something else. Not the whole table of UTS 46: names are compared by their xn-- bytes, so this
 * only keeps out spellings that no resolver would have made. */
static bool is_label_point(uint32_t c)
{
    static const struct {
        uint32_t first, last;
    } never[] = {{0x80, 0xb6},       {0xb8, 0xde},       {0xf7, 0xf7},       {0x2c0, 0x2cf},
                 {0x34f, 0x34f},     {0x378, 0x37a},     {0x37e, 0x38f},     {0x391, 0x3ab},
                 {0x400, 0x42f},     {0x531, 0x556},     {0x61c, 0x61c},     {0x10a0, 0x10c5},
                 {0x115f, 0x1160},   {0x180b, 0x180f},   {0x1e9e, 0x1e9e},   {0x2000, 0x20cf},
                 {0x2100, 0x214d},   {0x2150, 0x218f},   {0x2460, 0x24ff},   {0x2e00, 0x303b},
                 {0x303d, 0x3040},   {0x3131, 0x318e},   {0x3200, 0x33ff},   {0xd800, 0xf8ff},
                 {0xf900, 0xfaff},   {0xfb00, 0xfb1c},   {0xfb50, 0xfdff},   {0xfe00, 0xfe1f},
                 {0xfe30, 0xffff},   {0x1d100, 0x1d7ff}, {0x1f100, 0x1f2ff}, {0x2f800, 0x2fa1f},
                 {0xe0000, 0x10ffff}};
    for (size_t i = 0; i < ARRAY_SIZE(never); i++) {
        if (c >= never[i].first && c <= never[i].last)
            return c >= 0x3005 && c <= 0x3007; /* ideographic iteration mark, closing mark, zero */
    }
    return (c & 0xfffe) != 0xfffe;
}

bool nethost_is_ace_label(const char *label, size_t len)
{
    uint32_t points[LABEL_MAX];
    char again[LABEL_MAX + 1];
    bool has_other = false;
    if (len <= 4 || len > LABEL_MAX || memcmp(label, "xn--", 4) != 0)
        return false;
    size_t n = puny_decode(label + 4, len - 4, points);
    for (size_t i = 0; i < n; i++) {
        has_other |= points[i] >= 128;
        if (points[i] >= 128 && !is_label_point(points[i]))
            return false;
    }
    if (!has_other ||
        (n > 4 && points[0] == 'x' && points[1] == 'n' && points[2] == '-' && points[3] == '-'))
        return false;
    return puny_encode(points, n, again, sizeof(again)) && strlen(again) == len - 4 &&
           memcmp(again, label + 4, len - 4) == 0;
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
