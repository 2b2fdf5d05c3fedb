/* Comparison of outputs. Pure; runs in the judging process, on bytes a submission chose. */
#include "grade/compare.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/util.h"
#include "policy/fields.h"

#define NUMBER_MAX 400 /* a longer word is compared as text: no number needs more digits */
#define SHOWN_MAX 40   /* bytes of each side in a message */

struct piece {
    const char *data;
    size_t len;
};

static const char *const kind_names[] = {"trimmed", "exact",     "token",
                                         "float",   "unordered", "checker"};

static int parse_tolerance(const char *text, struct compare *ret, struct cordon_err *err)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= 0) || !isfinite(value)) {
        err_set(err, CORDON_ERR_USAGE, "options", 0, "--compare float:%.60s: not a tolerance",
                text);
        return err_hint(err, "write a number of zero or more: float:1e-9");
    }
    *ret = (struct compare){.kind = COMPARE_FLOAT, .tolerance = value};
    return 0;
}

int compare_parse(const char *text, struct compare *ret, struct cordon_err *err)
{
    struct fields_near near = fields_near_start(text);
    for (int i = 0; i < COMPARE_CHECKER; i++) {
        if (str_eq(text, kind_names[i])) {
            *ret = (struct compare){.kind = (enum compare_kind)i, .tolerance = COMPARE_TOLERANCE};
            return 0;
        }
        fields_near_try(&near, kind_names[i]);
    }
    if (str_starts(text, "float:"))
        return parse_tolerance(text + 6, ret, err);
    if (*text && access(text, F_OK) == 0) {
        *ret = (struct compare){.kind = COMPARE_CHECKER, .checker = text};
        return 0;
    }
    err_set(err, CORDON_ERR_USAGE, "options", 0,
            "--compare %.200s: neither a way to compare nor a file", text);
    if (near.best)
        return err_hint(err, "did you mean '%s'?", near.best);
    return err_hint(err, "exact, trimmed, token, float[:TOLERANCE], unordered, or the path of a "
                         "checker");
}

/* ---- pieces of a text ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

static bool is_space(char c)
{
    return c == '\n' || is_blank(c);
}

/* The next line without its blanks at the end; false at the end of the text. */
static bool next_line(struct piece *rest, struct piece *ret)
{
    if (rest->len == 0)
        return false;
    const char *end = memchr(rest->data, '\n', rest->len);
    size_t len = end ? (size_t)(end - rest->data) : rest->len;
    *ret = (struct piece){rest->data, len};
    len += end != NULL;
    rest->data += len;
    rest->len -= len;
    while (ret->len > 0 && is_blank(ret->data[ret->len - 1]))
        ret->len--;
    return true;
}

static bool next_word(struct piece *rest, struct piece *ret, size_t *line)
{
    while (rest->len > 0 && is_space(*rest->data)) {
        *line += *rest->data == '\n';
        rest->data++;
        rest->len--;
    }
    if (rest->len == 0)
        return false;
    size_t n = 0;
    while (n < rest->len && !is_space(rest->data[n]))
        n++;
    *ret = (struct piece){rest->data, n};
    rest->data += n;
    rest->len -= n;
    return true;
}

static bool piece_eq(const struct piece *a, const struct piece *b)
{
    return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

static struct piece without_end(const char *data, size_t len)
{
    while (len > 0 && is_space(data[len - 1]))
        len--;
    return (struct piece){data, len};
}

/* ---- what is said about a difference ---- */

static void show(const struct piece *p, char *ret, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < p->len && i < SHOWN_MAX && n + 1 < size; i++) {
        unsigned char c = (unsigned char)p->data[i];
        ret[n++] = c >= 0x20 && c < 0x7f ? (char)c : '?';
    }
    ret[n] = '\0';
}

/* "'text'", or what its absence means. */
static void show_side(const struct piece *p, char *ret, size_t size)
{
    char text[SHOWN_MAX + 1];
    if (!p) {
        snprintf(ret, size, "the end of the output");
        return;
    }
    show(p, text, sizeof(text));
    snprintf(ret, size, "'%s%s'", text, p->len > SHOWN_MAX ? "..." : "");
}

static void tell(char *why, size_t size, const char *unit, size_t at, const struct piece *expected,
                 const struct piece *actual)
{
    char left[SHOWN_MAX + 8], right[SHOWN_MAX + 8];
    if (!why)
        return;
    show_side(expected, left, sizeof(left));
    show_side(actual, right, sizeof(right));
    snprintf(why, size, "%s %zu: expected %s, got %s", unit, at, left, right);
}

/* ---- the ways to compare ---- */

/* Decimal numbers only: strtod alone takes hexadecimal ones, "inf" and "nan" as well. */
static bool is_number(const struct piece *p, double *ret)
{
    char text[NUMBER_MAX + 1];
    size_t i = 0, digits = 0;
    if (p->len == 0 || p->len > NUMBER_MAX)
        return false;
    memcpy(text, p->data, p->len);
    text[p->len] = '\0';
    i += text[i] == '-' || text[i] == '+';
    for (; text[i] >= '0' && text[i] <= '9'; i++)
        digits++;
    if (text[i] == '.')
        for (i++; text[i] >= '0' && text[i] <= '9'; i++)
            digits++;
    if (digits == 0)
        return false;
    if (text[i] == 'e' || text[i] == 'E') {
        i++;
        i += text[i] == '-' || text[i] == '+';
        digits = 0;
        for (; text[i] >= '0' && text[i] <= '9'; i++)
            digits++;
    }
    if (digits == 0 || i != p->len)
        return false;
    *ret = strtod(text, NULL);
    return isfinite(*ret);
}

/* A whole number without its sign and the zeros before it; false: it has a point or an exponent. */
static bool is_whole(const struct piece *p, struct piece *ret, bool *ret_negative)
{
    size_t i = *p->data == '-' || *p->data == '+';
    *ret_negative = *p->data == '-';
    while (i < p->len && p->data[i] == '0')
        i++;
    *ret = (struct piece){p->data + i, p->len - i};
    for (; i < p->len; i++)
        if (p->data[i] < '0' || p->data[i] > '9')
            return false;
    return true;
}

/* How far two numbers are apart. Whole ones digit by digit: as floating point, those of more than
 * fifteen digits may be equal when they are not. */
static double distance(const struct piece *e, double want, const struct piece *a, double got)
{
    char text[NUMBER_MAX + 1];
    struct piece x, y;
    bool minus_x, minus_y;
    int borrow = 0;
    if (!is_whole(e, &x, &minus_x) || !is_whole(a, &y, &minus_y) || minus_x != minus_y)
        return fabs(want - got);
    if (x.len < y.len || (x.len == y.len && memcmp(x.data, y.data, x.len) < 0)) {
        struct piece other = x;
        x = y;
        y = other;
    }
    for (size_t i = 0; i < x.len; i++) {
        int digit = x.data[x.len - 1 - i] - '0' - borrow;
        digit -= i < y.len ? y.data[y.len - 1 - i] - '0' : 0;
        borrow = digit < 0;
        text[x.len - 1 - i] = (char)('0' + digit + 10 * borrow);
    }
    text[x.len] = '\0';
    return strtod(text, NULL);
}

static bool words_equal(const struct compare *c, const struct piece *e, const struct piece *a)
{
    double want, got;
    if (piece_eq(e, a))
        return true;
    if (c->kind != COMPARE_FLOAT || !is_number(e, &want) || !is_number(a, &got))
        return false;
    double off = distance(e, want, a, got);
    return off <= c->tolerance || off <= c->tolerance * fabs(want);
}

static bool compare_words(const struct compare *c, struct piece e, struct piece a, char *why,
                          size_t size)
{
    struct piece left, right;
    size_t line = 1, ignored = 1;
    for (;;) {
        bool has_left = next_word(&e, &left, &ignored), has_right = next_word(&a, &right, &line);
        if (!has_left && !has_right)
            return true;
        if (has_left && has_right && words_equal(c, &left, &right))
            continue;
        tell(why, size, "line", line, has_left ? &left : NULL, has_right ? &right : NULL);
        return false;
    }
}

static bool compare_lines(struct piece e, struct piece a, char *why, size_t size)
{
    struct piece left, right;
    e = without_end(e.data, e.len);
    a = without_end(a.data, a.len);
    for (size_t line = 1;; line++) {
        bool has_left = next_line(&e, &left), has_right = next_line(&a, &right);
        if (!has_left && !has_right)
            return true;
        if (has_left && has_right && piece_eq(&left, &right))
            continue;
        tell(why, size, "line", line, has_left ? &left : NULL, has_right ? &right : NULL);
        return false;
    }
}

static bool compare_exact(const struct piece *e, const struct piece *a, char *why, size_t size)
{
    if (piece_eq(e, a))
        return true;
    size_t at = 0;
    while (at < e->len && at < a->len && e->data[at] == a->data[at])
        at++;
    struct piece left = {e->data + at, e->len - at}, right = {a->data + at, a->len - at};
    tell(why, size, "byte", at + 1, left.len ? &left : NULL, right.len ? &right : NULL);
    return false;
}

static int by_bytes(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    size_t len = MIN(x->len, y->len);
    int r = len ? memcmp(x->data, y->data, len) : 0;
    return r ? r : (x->len > y->len) - (x->len < y->len);
}

static struct piece *sorted_lines(struct piece text, size_t *ret_n)
{
    size_t cap = 1, n = 0;
    text = without_end(text.data, text.len);
    for (size_t i = 0; i < text.len; i++)
        cap += text.data[i] == '\n';
    struct piece *list = calloc(cap, sizeof(*list));
    while (list && n < cap && next_line(&text, &list[n]))
        n++;
    if (list)
        qsort(list, n, sizeof(*list), by_bytes);
    *ret_n = n;
    return list;
}

static enum compare_answer compare_sets(const struct piece *e, const struct piece *a, char *why,
                                        size_t size)
{
    size_t n = 0, m = 0, i = 0;
    _cleanup_free_ struct piece *left = sorted_lines(*e, &n);
    _cleanup_free_ struct piece *right = sorted_lines(*a, &m);
    if (!left || !right)
        return COMPARE_FAILED;
    while (i < n && i < m && piece_eq(&left[i], &right[i]))
        i++;
    if (i == n && i == m)
        return COMPARE_SAME;
    tell(why, size, "sorted line", i + 1, i < n ? &left[i] : NULL, i < m ? &right[i] : NULL);
    return COMPARE_OTHER;
}

enum compare_answer compare_bytes(const struct compare *c, const char *expected,
                                  size_t expected_len, const char *actual, size_t actual_len,
                                  char *why, size_t why_size)
{
    struct piece e = {expected_len ? expected : "", expected_len};
    struct piece a = {actual_len ? actual : "", actual_len};
    bool same = false;
    if (why && why_size)
        *why = '\0';
    switch (c->kind) {
    case COMPARE_UNORDERED: return compare_sets(&e, &a, why, why_size);
    case COMPARE_TOKEN:
    case COMPARE_FLOAT: return compare_words(c, e, a, why, why_size) ? COMPARE_SAME : COMPARE_OTHER;
    case COMPARE_EXACT: same = compare_exact(&e, &a, why, why_size); break;
    case COMPARE_TRIMMED:
    case COMPARE_CHECKER: same = compare_lines(e, a, why, why_size); break;
    }
    if (same)
        return COMPARE_SAME;
    return compare_words(&(struct compare){.kind = COMPARE_TOKEN}, e, a, NULL, 0) ? COMPARE_LAYOUT
                                                                                  : COMPARE_OTHER;
}
