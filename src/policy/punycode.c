/* Code points in letters, digits and hyphens, and back. Pure; runs in whoever reads a policy and
 * in the broker. */
#include "policy/punycode.h"

#include <string.h>

static unsigned adapt(unsigned delta, unsigned points, bool first)
{
    unsigned k = 0;
    delta = first ? delta / 700 : delta / 2;
    delta += delta / points;
    for (; delta > 455; k += 36)
        delta /= 35;
    return k + 36 * delta / (delta + 38);
}

size_t punycode_decode(const char *text, size_t len, uint32_t ret[static PUNYCODE_MAX])
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
        if (out == PUNYCODE_MAX)
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

bool punycode_encode(const uint32_t *points, size_t count, char *ret, size_t max)
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
