/* Units. Pure; locale-free on purpose (strtod would read a decimal comma). */
#include "policy/units.h"

#include <stddef.h>

#include "base/util.h"

struct number {
    uint64_t whole;
    uint64_t fraction;
    uint64_t scale; /* 10 ^ digits of the fraction */
    const char *end;
};

enum { FRACTION_DIGITS = 9 };

/* False: no number, or too long for one. */
static bool number_read(const char *text, struct number *ret)
{
    struct number n = {.scale = 1};
    const char *p = text;

    if (*p < '0' || *p > '9')
        return false;
    for (; *p >= '0' && *p <= '9'; p++) {
        if (__builtin_mul_overflow(n.whole, 10, &n.whole) ||
            __builtin_add_overflow(n.whole, (uint64_t)(*p - '0'), &n.whole))
            return false;
    }
    if (*p == '.') {
        const char *start = ++p;
        for (; *p >= '0' && *p <= '9'; p++) {
            n.fraction = n.fraction * 10 + (uint64_t)(*p - '0');
            n.scale *= 10;
            if (p - start >= FRACTION_DIGITS)
                return false;
        }
        if (p == start)
            return false;
    }
    n.end = p;
    *ret = n;
    return true;
}

/* False: more than max, or not a whole number of the smallest unit. */
static bool number_scale(const struct number *n, uint64_t unit, uint64_t max, uint64_t *ret)
{
    __extension__ typedef unsigned __int128 wide;
    wide fraction = (wide)n->fraction * unit;
    wide value = (wide)n->whole * unit + fraction / n->scale;
    if (fraction % n->scale != 0 || value > max)
        return false;
    *ret = (uint64_t)value;
    return true;
}

const char *units_duration(const char *text, uint64_t *ret_ns)
{
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = {{"ms", 1000000ull},
                 {"s", 1000000000ull},
                 {"m", 60 * 1000000000ull},
                 {"h", 3600 * 1000000000ull}};
    static const char form[] = "is not a duration; write 100ms, 5s, 1.5s, 2m or 1h";

    struct number n;
    if (!number_read(text, &n))
        return form;
    if (!*n.end)
        return "has no unit; write 100ms, 5s, 1.5s, 2m or 1h";
    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        if (!str_eq(n.end, units[i].name))
            continue;
        if (!number_scale(&n, units[i].ns, UNITS_DURATION_MAX_NS, ret_ns))
            return "is out of range; at most a hundred years, at least a nanosecond";
        return NULL;
    }
    return form;
}

const char *units_size(const char *text, uint64_t *ret_bytes)
{
    static const char form[] = "is not a size; write 10M, 1G or a number of bytes";
    static const char letters[] = "KMGT";

    struct number n;
    if (!number_read(text, &n))
        return form;

    uint64_t unit = 1;
    const char *p = n.end;
    if (*p && *p != 'b' && *p != 'B') {
        size_t power = 0;
        while (letters[power] && letters[power] != *p && (letters[power] | 0x20) != *p)
            power++;
        if (!letters[power])
            return form;
        unit = 1ull << (10 * (power + 1));
        p++;
        if (*p == 'i' && (p[1] == 'B' || p[1] == 'b'))
            p++;
    }
    if (*p == 'b' || *p == 'B')
        p++;
    if (*p)
        return form;
    if (!number_scale(&n, unit, UNITS_SIZE_MAX, ret_bytes))
        return "is out of range; a whole number of bytes, less than 8388608T";
    return NULL;
}

static const char *plain_number(const char *text, uint64_t min, uint64_t max, const char *form,
                                uint64_t *ret)
{
    struct number n;
    if (!number_read(text, &n) || *n.end || n.scale != 1 || n.whole < min || n.whole > max)
        return form;
    *ret = n.whole;
    return NULL;
}

const char *units_percent(const char *text, uint64_t *ret_percent)
{
    return plain_number(text, 0, UNITS_PERCENT_MAX,
                        "is not a percentage; write a whole number such as 50 (100 is one core)",
                        ret_percent);
}

const char *units_count(const char *text, uint64_t *ret_count)
{
    return plain_number(text, 0, UNITS_COUNT_MAX,
                        "is not a count; write a whole number up to 2147483647", ret_count);
}

const char *units_port(const char *text, uint64_t *ret_port)
{
    return plain_number(text, 1, 65535, "is not a port; write a number from 1 to 65535", ret_port);
}

const char *units_bool(const char *text, bool *ret_value)
{
    if (str_eq(text, "true") || str_eq(text, "1"))
        *ret_value = true;
    else if (str_eq(text, "false") || str_eq(text, "0"))
        *ret_value = false;
    else
        return "is not a truth value; write true or false";
    return NULL;
}
