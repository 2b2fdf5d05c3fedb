/* Conversion and check of names in other scripts. Pure; runs in whoever reads a policy and in the
 * broker. */
#include "policy/idna.h"

#include "base/utf8.h"
#include "base/util.h"
#include "policy/idna_chars.h"
#include "policy/punycode.h"

#define ZWNJ 0x200c
#define ZWJ 0x200d
#define VIRAMA 9 /* combining class */

struct label {
    uint32_t points[PUNYCODE_MAX];
    size_t n;
};

bool idna_is_other(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] >= 0x80)
            return true;
    return false;
}

/* ---- conversion -------------------------------------------------------------------------------
 */

/* Mapped and composed. */
static bool read_points(const char *text, size_t len, uint32_t *ret, size_t *ret_n)
{
    size_t n = 0;
    for (size_t at = 0, used; at < len; at += used) {
        uint32_t point, mapped[IDNA_EXPANDS_MAX];
        used = utf8_decode(text + at, text + len, &point);
        int count = used > 0 ? idna_map(point, mapped) : -1;
        if (count < 0 || n + (size_t)count > IDNA_WRITTEN_MAX)
            return false;
        memcpy(ret + n, mapped, (size_t)count * sizeof(*mapped));
        n += (size_t)count;
    }
    *ret_n = n;
    return idna_compose(ret, ret_n, IDNA_WRITTEN_MAX);
}

/* One label behind the *len bytes that are in ret already. */
static bool write_label(const uint32_t *points, size_t n, char *ret, size_t max, size_t *len)
{
    static const char prefix[] = "xn--";
    bool is_other = false;
    for (size_t i = 0; i < n; i++)
        is_other |= points[i] >= 0x80;
    if (is_other) {
        /* a label that is both is nobody's: it would be read as encoded twice */
        bool has_prefix = n >= 4;
        for (size_t i = 0; has_prefix && i < 4; i++)
            has_prefix = points[i] == (unsigned char)prefix[i];
        if (has_prefix || n > PUNYCODE_MAX || *len + sizeof(prefix) > max)
            return false;
        memcpy(ret + *len, prefix, 4);
        if (!punycode_encode(points, n, ret + *len + 4, max - *len - 4))
            return false;
        *len += strlen(ret + *len);
        return true;
    }
    if (*len + n >= max)
        return false;
    for (size_t i = 0; i < n; i++)
        ret[(*len)++] = (char)points[i];
    ret[*len] = '\0';
    return true;
}

bool idna_to_ascii(const char *text, size_t len, char *ret, size_t max)
{
    uint32_t points[IDNA_WRITTEN_MAX];
    size_t n, out = 0;
    if (len > IDNA_WRITTEN_MAX || memchr(text, '\0', len) || !read_points(text, len, points, &n))
        return false;
    for (size_t at = 0, end; at <= n; at = end + 1) {
        for (end = at; end < n && points[end] != '.'; end++)
            ;
        if (!write_label(points + at, end - at, ret, max, &out))
            return false;
        if (end == n)
            break;
        if (out + 1 >= max)
            return false;
        ret[out++] = '.';
        ret[out] = '\0';
    }
    return true;
}

/* ---- check ------------------------------------------------------------------------------------
 */

/* What a label says: its code points. False: it begins with xn-- and is not the one spelling of
 * them. */
static bool read_label(const char *text, size_t len, struct label *ret)
{
    char again[PUNYCODE_MAX + 1];
    if (len > PUNYCODE_MAX)
        return false;
    if (len < 4 || memcmp(text, "xn--", 4) != 0) {
        for (ret->n = 0; ret->n < len; ret->n++)
            ret->points[ret->n] = (unsigned char)text[ret->n];
        return true;
    }
    ret->n = punycode_decode(text + 4, len - 4, ret->points);
    return ret->n > 0 && punycode_encode(ret->points, ret->n, again, sizeof(again)) &&
           strlen(again) == len - 4 && memcmp(again, text + 4, len - 4) == 0;
}

/* A zero-width non-joiner between two letters that join, whatever lies over them. */
static bool joins_around(const struct label *l, size_t at)
{
    enum idna_joining before = IDNA_JOIN_U, behind = IDNA_JOIN_U;
    for (size_t i = at; i > 0; i--)
        if ((before = idna_joining_of(l->points[i - 1])) != IDNA_JOIN_T)
            break;
    for (size_t i = at + 1; i < l->n; i++)
        if ((behind = idna_joining_of(l->points[i])) != IDNA_JOIN_T)
            break;
    return (before == IDNA_JOIN_L || before == IDNA_JOIN_D) &&
           (behind == IDNA_JOIN_R || behind == IDNA_JOIN_D);
}

/* Of a decoded label: every code point is one that the mapping leaves as it is, composed, and no
 * joiner where it would not be seen. */
static bool label_is_valid(const struct label *l)
{
    bool is_other = false, is_valid = !idna_is_mark(l->points[0]);
    for (size_t i = 0; is_valid && i < l->n; i++) {
        uint32_t point = l->points[i];
        is_other |= point >= 0x80;
        is_valid = point < 0x80 || idna_is_valid(point);
        if (point == ZWNJ || point == ZWJ)
            is_valid = i > 0 && (idna_combining(l->points[i - 1]) == VIRAMA ||
                                 (point == ZWNJ && joins_around(l, i)));
    }
    if (!is_valid || !is_other ||
        (l->n >= 4 && l->points[0] == 'x' && l->points[1] == 'n' && l->points[2] == '-' &&
         l->points[3] == '-'))
        return false;
    uint32_t room[PUNYCODE_MAX * 4];
    size_t n = l->n;
    memcpy(room, l->points, n * sizeof(*room));
    return idna_compose(room, &n, ARRAY_SIZE(room)) && n == l->n &&
           memcmp(room, l->points, l->n * sizeof(*room)) == 0;
}

static bool is_right_to_left(const struct label *l)
{
    for (size_t i = 0; i < l->n; i++) {
        enum idna_bidi b = idna_bidi_of(l->points[i]);
        if (b == IDNA_R || b == IDNA_AL || b == IDNA_AN)
            return true;
    }
    return false;
}

/* RFC 5893, section 2. */
static bool direction_is_good(const struct label *l)
{
    static const unsigned neutral = 1u << IDNA_ES | 1u << IDNA_CS | 1u << IDNA_ET | 1u << IDNA_ON |
                                    1u << IDNA_BN | 1u << IDNA_NSM;
    static const unsigned right = 1u << IDNA_R | 1u << IDNA_AL,
                          numbers = 1u << IDNA_EN | 1u << IDNA_AN;
    static const unsigned left = 1u << IDNA_L;
    unsigned all = 0, last = 0, first = 1u << idna_bidi_of(l->points[0]);
    for (size_t i = 0; i < l->n; i++) {
        unsigned bit = 1u << idna_bidi_of(l->points[i]);
        all |= bit;
        if (bit != 1u << IDNA_NSM)
            last = bit;
    }
    if (first & right)
        return !(all & ~(right | numbers | neutral)) && (last & (right | numbers)) &&
               (all & numbers) != numbers;
    return (first & left) && !(all & ~(left | 1u << IDNA_EN | neutral)) &&
           (last & (left | 1u << IDNA_EN));
}

bool idna_is_name(const char *name)
{
    struct label label;
    bool has_right_to_left = false;
    for (int pass = 0; pass < 2; pass++) {
        for (const char *at = name;;) {
            size_t len = strcspn(at, ".");
            bool is_star = len == 1 && at[0] == '*', is_ace = str_starts(at, "xn--");
            if (!is_star && (len == 0 || !read_label(at, len, &label)))
                return false;
            if (pass == 0 && is_ace && !label_is_valid(&label))
                return false;
            if (pass == 0)
                has_right_to_left |= is_ace && is_right_to_left(&label);
            else if (!is_star && !direction_is_good(&label))
                return false;
            if (!at[len])
                break;
            at += len + 1;
        }
        if (!has_right_to_left)
            break;
    }
    return true;
}
