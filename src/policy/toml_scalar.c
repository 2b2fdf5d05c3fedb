/* TOML numbers, booleans, dates and times.
 *
 * Called by toml_parse.c for every value that is no string, array or inline table; runs in the
 * front process before anything is started. */
#include "policy/toml_internal.h"

#include "base/err.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One word of the text that should be a value. */
struct toml_word {
    const char *start, *end;
    struct toml_pos pos;
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int word_fail(struct toml_parser *p, const struct toml_word *w, const char *why)
{
    char what[TOML_QUOTE_SIZE];
    toml_quote(what, w->start, (size_t)(w->end - w->start));
    return toml_fail(p, w->pos, "%s: %s", what, why);
}

static bool word_is(const struct toml_word *w, const char *text)
{
    size_t len = strlen(text);
    return (size_t)(w->end - w->start) == len && memcmp(w->start, text, len) == 0;
}

/* Does the word begin so? 'd' in the pattern stands for a digit. */
static bool word_looks_like(const struct toml_word *w, const char *pattern)
{
    const char *s = w->start;
    for (; *pattern; pattern++, s++)
        if (s == w->end || (*pattern == 'd' ? !is_digit(*s) : *s != *pattern))
            return false;
    return true;
}

/* Reads exactly n digits; returns -1 if they are not there. */
static int read_digits(const char **s, const char *end, int n)
{
    int value = 0;
    for (int i = 0; i < n; i++, (*s)++) {
        if (*s == end || !is_digit(**s))
            return -1;
        value = value * 10 + (**s - '0');
    }
    return value;
}

static bool read_char(const char **s, const char *end, const char *set)
{
    if (*s == end || !**s || !strchr(set, **s))
        return false;
    (*s)++;
    return true;
}

static int days_of_month(int year, int month)
{
    static const uint8_t days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return month == 2 && leap ? 29 : days[month - 1];
}

static int read_date(struct toml_parser *p, const struct toml_word *w, const char **s,
                     struct toml_datetime *dt)
{
    int year = read_digits(s, w->end, 4);
    int month = year >= 0 && read_char(s, w->end, "-") ? read_digits(s, w->end, 2) : -1;
    int day = month >= 0 && read_char(s, w->end, "-") ? read_digits(s, w->end, 2) : -1;
    if (day < 0)
        return word_fail(p, w, "a date is written YYYY-MM-DD");
    if (month < 1 || month > 12)
        return word_fail(p, w, "there is no such month");
    if (day < 1 || day > days_of_month(year, month))
        return word_fail(p, w, "there is no such day in that month");
    dt->year = (int16_t)year;
    dt->month = (uint8_t)month;
    dt->day = (uint8_t)day;
    return 0;
}

static int read_time(struct toml_parser *p, const struct toml_word *w, const char **s,
                     struct toml_datetime *dt)
{
    int hour = read_digits(s, w->end, 2);
    int minute = hour >= 0 && read_char(s, w->end, ":") ? read_digits(s, w->end, 2) : -1;
    int second = minute >= 0 && read_char(s, w->end, ":") ? read_digits(s, w->end, 2) : -1;
    if (second < 0)
        return word_fail(p, w, "a time is written HH:MM:SS, with the seconds");
    if (hour > 23 || minute > 59 || second > 60)
        return word_fail(p, w, "there is no such time of day");
    dt->hour = (uint8_t)hour;
    dt->minute = (uint8_t)minute;
    dt->second = (uint8_t)second;
    if (!read_char(s, w->end, "."))
        return 0;

    if (*s == w->end || !is_digit(**s))
        return word_fail(p, w, "digits are missing after the decimal point");
    uint32_t scale = 100000000;
    for (; *s < w->end && is_digit(**s); (*s)++, scale /= 10)
        dt->nanosecond += (uint32_t)(**s - '0') * scale;
    return 0;
}

static int read_offset(struct toml_parser *p, const struct toml_word *w, const char **s,
                       struct toml_datetime *dt)
{
    if (read_char(s, w->end, "Zz"))
        return 0;
    bool west = **s == '-';
    int hour = read_char(s, w->end, "+-") ? read_digits(s, w->end, 2) : -1;
    int minute = hour >= 0 && read_char(s, w->end, ":") ? read_digits(s, w->end, 2) : -1;
    if (minute < 0)
        return word_fail(p, w, "an offset is written Z, +HH:MM or -HH:MM");
    if (hour > 23 || minute > 59)
        return word_fail(p, w, "there is no such offset");
    int offset = hour * 60 + minute;
    dt->offset_minutes = (int16_t)(west ? -offset : offset);
    return 0;
}

static int scalar_datetime(struct toml_parser *p, const struct toml_word *w, struct toml_node *node)
{
    struct toml_datetime *dt = &node->u.datetime;
    const char *s = w->start;
    if (word_looks_like(w, "dd:")) {
        node->type = TOML_LOCAL_TIME;
        if (read_time(p, w, &s, dt) < 0)
            return -1;
    } else {
        node->type = TOML_LOCAL_DATE;
        if (read_date(p, w, &s, dt) < 0)
            return -1;
        if (read_char(&s, w->end, "Tt ")) {
            node->type = TOML_LOCAL_DATETIME;
            if (read_time(p, w, &s, dt) < 0)
                return -1;
            if (s < w->end) {
                node->type = TOML_OFFSET_DATETIME;
                if (read_offset(p, w, &s, dt) < 0)
                    return -1;
            }
        }
    }
    if (s < w->end)
        return word_fail(p, w, "unexpected text after the date or time");
    return 0;
}

/* Copies digits of the base to *out without their underscores, each of which must stand between
 * two digits. Returns false if there is no digit or a misplaced underscore. */
static bool copy_digits(const char **s, const char *end, int base, char **out)
{
    const char *digits = "0123456789abcdefABCDEF";
    size_t n = base == 16 ? 22 : (size_t)base;
    bool after_digit = false;
    for (; *s < end; (*s)++) {
        if (**s == '_') {
            if (!after_digit)
                return false;
            after_digit = false;
        } else if (memchr(digits, **s, n)) {
            *(*out)++ = **s;
            after_digit = true;
        } else {
            break;
        }
    }
    return after_digit;
}

static int scalar_integer(struct toml_parser *p, const struct toml_word *w, const char *digits,
                          unsigned base, bool negative, struct toml_node *node)
{
    uint64_t limit = negative ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX;
    uint64_t value = 0;
    for (; *digits; digits++) {
        unsigned digit =
            (unsigned)(is_digit(*digits) ? *digits - '0' : (*digits | 0x20) - 'a' + 10);
        if (value > (limit - digit) / base)
            return word_fail(p, w, "the integer does not fit into 64 bits with sign");
        value = value * base + digit;
    }
    node->type = TOML_INTEGER;
    node->u.integer = negative ? (int64_t)(0 - value) : (int64_t)value;
    return 0;
}

static int scalar_float(struct toml_parser *p, const char *text, struct toml_node *node)
{
    /* Plain strtod() reads the decimal point of whatever locale the host program has set. */
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c_locale)
        return err_nomem(p->err, TOML_STAGE);
    node->type = TOML_FLOAT;
    node->u.real = strtod_l(text, NULL, c_locale);
    freelocale(c_locale);
    return 0;
}

/* 0x..., 0o..., 0b...; the word begins with a zero and a letter. */
static int scalar_prefixed(struct toml_parser *p, const struct toml_word *w, struct toml_node *node)
{
    int base = w->start[1] == 'x' ? 16 : w->start[1] == 'o' ? 8 : 2;
    const char *s = w->start + 2;
    char *out = p->scratch;
    if (!copy_digits(&s, w->end, base, &out) || s < w->end)
        return word_fail(p, w,
                         base == 16  ? "not a valid hexadecimal integer"
                         : base == 8 ? "not a valid octal integer"
                                     : "not a valid binary integer");
    *out = '\0';
    return scalar_integer(p, w, p->scratch, (unsigned)base, false, node);
}

static int scalar_number(struct toml_parser *p, const struct toml_word *w, struct toml_node *node)
{
    const char *s = w->start;
    char *out = p->scratch;
    bool negative = *s == '-';
    if (read_char(&s, w->end, "+-"))
        *out++ = w->start[0];
    if (w->end - s > 1 && s[0] == '0' && strchr("xob", s[1])) {
        if (s > w->start)
            return word_fail(p, w, "only decimal integers may have a sign");
        return scalar_prefixed(p, w, node);
    }

    const char *digits = out;
    if (!copy_digits(&s, w->end, 10, &out))
        return word_fail(p, w, "not a valid number");
    if (digits[0] == '0' && out - digits > 1)
        return word_fail(p, w, "a number must not begin with a zero");
    if (s == w->end) {
        *out = '\0';
        return scalar_integer(p, w, digits, 10, negative, node);
    }

    if (read_char(&s, w->end, ".")) {
        *out++ = '.';
        if (!copy_digits(&s, w->end, 10, &out))
            return word_fail(p, w, "a float needs digits on both sides of its decimal point");
    }
    if (read_char(&s, w->end, "eE")) {
        *out++ = 'e';
        if (s < w->end && (*s == '+' || *s == '-'))
            *out++ = *s++;
        if (!copy_digits(&s, w->end, 10, &out))
            return word_fail(p, w, "digits are missing in the exponent");
    }
    if (s < w->end)
        return word_fail(p, w, "not a valid number");
    *out = '\0';
    return scalar_float(p, p->scratch, node);
}

static bool scalar_special(const struct toml_word *w, struct toml_node *node)
{
    if (word_is(w, "true") || word_is(w, "false")) {
        node->type = TOML_BOOL;
        node->u.boolean = w->start[0] == 't';
        return true;
    }
    bool sign = w->start[0] == '+' || w->start[0] == '-';
    struct toml_word bare = {w->start + (sign ? 1 : 0), w->end, w->pos};
    if (!word_is(&bare, "inf") && !word_is(&bare, "nan"))
        return false;
    double value = word_is(&bare, "inf") ? (double)INFINITY : (double)NAN;
    node->type = TOML_FLOAT;
    node->u.real = w->start[0] == '-' ? -value : value;
    return true;
}

static bool is_word_char(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '+' || c == '-' || c == '.' || c == ':';
}

static void skip_word(struct toml_parser *p)
{
    while (p->cur < p->end && is_word_char(*p->cur))
        p->cur++;
}

int toml_scalar(struct toml_parser *p, struct toml_node *node)
{
    struct toml_word w = {p->cur, p->cur, toml_here(p)};
    skip_word(p);
    w.end = p->cur;
    if (w.start == w.end) {
        char what[TOML_QUOTE_SIZE];
        return toml_fail(p, w.pos, "expected a value, not %s", toml_describe(p, what));
    }

    if (word_looks_like(&w, "dddd-") || word_looks_like(&w, "dd:")) {
        /* a single blank may stand between date and time */
        if (w.end - w.start == 10 && p->end - p->cur > 1 && *p->cur == ' ' && is_digit(p->cur[1])) {
            p->cur++;
            skip_word(p);
            w.end = p->cur;
        }
        return scalar_datetime(p, &w, node);
    }
    if (scalar_special(&w, node))
        return 0;
    if (is_digit(w.start[0]) || strchr("+-.", w.start[0]))
        return scalar_number(p, &w, node);
    return word_fail(p, &w, "not a value; a string needs quotes");
}
