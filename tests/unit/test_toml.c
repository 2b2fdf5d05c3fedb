/* The TOML reader: values, places, messages, bounds and failing allocations. The grammar at large
 * is proven by test_toml_suite.py. Link with -Wl,--wrap=malloc,--wrap=calloc. */
#include "policy/toml.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* Allocations that still succeed; negative: all of them. */
static long allocations_left = -1;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);

static bool allocation_fails(void)
{
    if (allocations_left == 0)
        return true;
    if (allocations_left > 0)
        allocations_left--;
    return false;
}

void *__wrap_malloc(size_t size)
{
    return allocation_fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return allocation_fails() ? NULL : __real_calloc(n, size);
}

static struct toml_doc *parse_n(const char *text, size_t len)
{
    struct cordon_err err = {0};
    struct toml_doc *doc = NULL;
    if (toml_parse("cordon.toml", text, len, &doc, &err) < 0)
        fail_msg("%s", err.message);
    return doc;
}

static struct toml_doc *parse(const char *text)
{
    return parse_n(text, strlen(text));
}

static void assert_refused_n(const char *text, size_t len, const char *message)
{
    struct cordon_err err = {0};
    struct toml_doc *untouched = (struct toml_doc *)&err, *doc = untouched;
    assert_int_equal(toml_parse("cordon.toml", text, len, &doc, &err), -1);
    assert_ptr_equal(doc, untouched);
    assert_int_equal(err.code, CORDON_ERR_CONFIG);
    assert_string_equal(err.stage, "policy");
    assert_int_equal(err.sys_errno, 0);
    if (message)
        assert_string_equal(err.message, message);
}

static void assert_refused(const char *text, const char *message)
{
    assert_refused_n(text, strlen(text), message);
}

static void assert_pos(struct toml_pos pos, unsigned line, unsigned column)
{
    assert_int_equal(pos.line, line);
    assert_int_equal(pos.column, column);
}

static void test_empty(void **state)
{
    (void)state;
    struct toml_doc *doc = parse_n(NULL, 0);
    assert_int_equal(toml_root(doc)->type, TOML_TABLE);
    assert_null(toml_first(toml_root(doc)));
    toml_doc_free(doc);
    doc = parse("\xef\xbb\xbf \t# only a comment");
    assert_int_equal(toml_root(doc)->u.children.count, 0);
    toml_doc_free(doc);
    toml_doc_free(NULL);
    assert_int_equal(toml_parse("x", "=", 1, &doc, NULL), -1);
}

static void test_access(void **state)
{
    (void)state;
    struct toml_doc *doc = parse("s = \"a\\u0000b\"\nt = 'x'\n[tab]\n\"k\\u0000\" = [1, 'two']\n");
    const struct toml_node *root = toml_root(doc);
    assert_null(root->key);
    assert_int_equal(root->u.children.count, 3);

    const struct toml_node *s = toml_get(root, "s");
    assert_int_equal(s->u.string.len, 3);
    assert_memory_equal(s->u.string.data, "a\0b", 4);
    assert_null(toml_cstr(s));
    assert_null(toml_first(s));
    assert_string_equal(toml_cstr(toml_get(root, "t")), "x");

    const struct toml_node *tab = toml_get(root, "tab");
    assert_null(toml_cstr(tab));
    assert_null(toml_get(tab, "k"));
    assert_null(toml_get(NULL, "k"));
    assert_null(toml_get(s, "k"));
    const struct toml_node *array = toml_get_n(tab, "k\0", 2);
    assert_int_equal(array->type, TOML_ARRAY);
    assert_int_equal(array->u.children.count, 2);
    assert_int_equal(toml_first(array)->u.integer, 1);
    assert_string_equal(toml_cstr(toml_first(array)->next), "two");
    assert_null(toml_first(array)->next->next);
    assert_string_equal(toml_type_name(array->type), "an array");
    toml_doc_free(doc);
}

static void test_order_and_places(void **state)
{
    (void)state;
    struct toml_doc *doc = parse("\xef\xbb\xbfz = 1\r\n"
                                 "  a.b = \"\"\"x\n\n\"\"\" # c\n"
                                 "\"äöü\" = [ '€', {k = true} ]\n"
                                 "[q.r]\n"
                                 "[q]\n"
                                 " [[l]]\n");
    const struct toml_node *n = toml_first(toml_root(doc));
    assert_string_equal(n->key, "z");
    assert_pos(n->key_pos, 1, 1);
    assert_pos(n->pos, 1, 5);

    n = n->next;
    assert_string_equal(n->key, "a");
    assert_pos(n->key_pos, 2, 3);
    assert_pos(toml_get(n, "b")->key_pos, 2, 5);
    assert_pos(toml_get(n, "b")->pos, 2, 9);

    n = n->next;
    assert_string_equal(n->key, "äöü");
    assert_pos(n->key_pos, 5, 1);
    assert_pos(n->pos, 5, 9);
    assert_pos(toml_first(n)->pos, 5, 11);
    assert_pos(toml_first(n)->key_pos, 0, 0);
    assert_pos(toml_first(n)->next->pos, 5, 16);
    assert_pos(toml_get(toml_first(n)->next, "k")->pos, 5, 21);

    n = n->next; /* implied by [q.r], defined by [q] */
    assert_string_equal(n->key, "q");
    assert_pos(n->key_pos, 7, 2);
    assert_pos(n->pos, 7, 1);
    assert_pos(toml_get(n, "r")->key_pos, 6, 4);

    n = n->next;
    assert_string_equal(n->key, "l");
    assert_pos(n->key_pos, 8, 4);
    assert_pos(toml_first(n)->pos, 8, 2);
    assert_null(n->next);
    toml_doc_free(doc);
}

static void test_integers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {
        {"i=9223372036854775807", INT64_MAX},
        {"i=-9223372036854775808", INT64_MIN},
        {"i=-0", 0},
        {"i=+1_000", 1000},
        {"i=0x7fffFFFFffff_FFFF", INT64_MAX},
        {"i=0o777777777777777777777", INT64_MAX},
        {"i=0b0_1", 1},
        {"i=0x0000000000000000000001", 1},
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct toml_doc *doc = parse(good[i].text);
        const struct toml_node *n = toml_get(toml_root(doc), "i");
        assert_int_equal(n->type, TOML_INTEGER);
        assert_true(n->u.integer == good[i].value);
        toml_doc_free(doc);
    }
    assert_refused("i = 9223372036854775808", "cordon.toml:1:5: \"9223372036854775808\": "
                                              "the integer does not fit into 64 bits with sign");
    assert_refused("i=-9223372036854775809", NULL);
    assert_refused("i=0x8000000000000000", NULL);
    assert_refused("i=0b1000000000000000000000000000000000000000000000000000000000000000", NULL);
    assert_refused("i=99999999999999999999999999999999999999999999999999", NULL);
    assert_refused("i=007", "cordon.toml:1:3: \"007\": a number must not begin with a zero");
    assert_refused("i=1__0", "cordon.toml:1:3: \"1__0\": not a valid number");
    assert_refused("i=512m", "cordon.toml:1:3: \"512m\": not a valid number");
    assert_refused("i=-0xf", "cordon.toml:1:3: \"-0xf\": only decimal integers may have a sign");
}

static double float_of(const char *text)
{
    struct toml_doc *doc = parse(text);
    const struct toml_node *n = toml_get(toml_root(doc), "f");
    assert_int_equal(n->type, TOML_FLOAT);
    double value = n->u.real;
    toml_doc_free(doc);
    return value;
}

static void test_floats(void **state)
{
    (void)state;
    assert_true(float_of("f=0.1") == 0.1);
    assert_true(float_of("f=9007199254740993.0") == 9007199254740992.0);
    assert_true(float_of("f=1_7.976931348623157e+3_07") == DBL_MAX);
    assert_true(float_of("f=4.9e-324") == 4.9406564584124654e-324);
    assert_true(float_of("f=2.2250738585072011e-308") == 2.2250738585072011e-308);
    assert_true(float_of("f=1e06") == 1e6);
    assert_true(signbit(float_of("f=-0.0")));
    assert_true(float_of("f=-inf") == -HUGE_VAL);
    assert_true(isnan(float_of("f=+nan")));
    assert_true(isinf(float_of("f=1e999999999999")));
    assert_refused("f=1.e5", NULL);
    assert_refused("f=.5", NULL);
    assert_refused("f=infinity", NULL);
    assert_refused("f=1,5", "cordon.toml:1:4: expected the end of the line after the value, "
                            "not ','");
}

/* A host program may have set a locale in which 1.5 is written 1,5. */
static void test_float_in_foreign_locale(void **state)
{
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE"};
    bool found = false;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !found; i++)
        found = setlocale(LC_NUMERIC, names[i]) != NULL;
    if (!found) {
        print_message("missing prerequisite: a locale with a decimal comma (de_DE.UTF-8)\n");
        skip();
    }
    double value = float_of("f=1.5");
    setlocale(LC_NUMERIC, "C");
    assert_true(value == 1.5);
}

static void test_dates(void **state)
{
    (void)state;
    struct toml_doc *doc = parse("d=2024-02-29 23:59:60.1234567899-23:59\nt=00:00:00.5");
    const struct toml_node *n = toml_get(toml_root(doc), "d");
    const struct toml_datetime *dt = &n->u.datetime;
    assert_int_equal(n->type, TOML_OFFSET_DATETIME);
    assert_int_equal(dt->year, 2024);
    assert_int_equal(dt->month, 2);
    assert_int_equal(dt->day, 29);
    assert_int_equal(dt->hour, 23);
    assert_int_equal(dt->minute, 59);
    assert_int_equal(dt->second, 60);
    assert_int_equal(dt->nanosecond, 123456789);
    assert_int_equal(dt->offset_minutes, -(23 * 60 + 59));
    n = toml_get(toml_root(doc), "t");
    assert_int_equal(n->type, TOML_LOCAL_TIME);
    assert_int_equal(n->u.datetime.nanosecond, 500000000);
    toml_doc_free(doc);

    doc = parse("d=0000-01-01 # no time follows");
    assert_int_equal(toml_get(toml_root(doc), "d")->type, TOML_LOCAL_DATE);
    toml_doc_free(doc);
    assert_refused("d=1900-02-29",
                   "cordon.toml:1:3: \"1900-02-29\": there is no such day in that month");
    assert_refused("d=2023-13-01", "cordon.toml:1:3: \"2023-13-01\": there is no such month");
    assert_refused("d=2023-01-01T24:00:00", NULL);
    assert_refused("d=2023-01-01T00:00", "cordon.toml:1:3: \"2023-01-01T00:00\": "
                                         "a time is written HH:MM:SS, with the seconds");
    assert_refused("d=2023-01-01T00:00:00+24:00", NULL);
    assert_refused("d=2023-01-01T00:00:00Z0", NULL);
    assert_refused("d=2023-01-01  00:00:00", NULL);
}

static void test_strings(void **state)
{
    (void)state;
    static const struct {
        const char *text, *value;
    } good[] = {
        {"s=\"\\b\\t\\n\\f\\r\\\"\\\\\\u00e9\\U0001F600\"", "\b\t\n\f\r\"\\é😀"},
        {"s='C:\\x'", "C:\\x"},
        {"s=\"\"\"\r\na\r\nb\"\"\"", "a\nb"},
        {"s=\"\"\"a \\  \r\n \t\n\n  b\"\"\"", "a b"},
        {"s=\"\"\"\"\"a\"\"\"\"\"", "\"\"a\"\""},
        {"s='''''a''\\'''''", "''a''\\''"},
        {"s=''''''", ""},
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct toml_doc *doc = parse(good[i].text);
        assert_string_equal(toml_cstr(toml_get(toml_root(doc), "s")), good[i].value);
        toml_doc_free(doc);
    }
    assert_refused("s='''a''''''", NULL);
    assert_refused("s=\"\\ud800\"", "cordon.toml:1:4: U+D800 is not a Unicode character");
    assert_refused("s=\"\\U00110000\"", NULL);
    assert_refused("s=\"\\u12\"", "cordon.toml:1:4: \\u needs 4 hexadecimal digits");
    assert_refused("s=\"é\\e\"", "cordon.toml:1:5: unknown escape: backslash and 'e' (write \\\\ "
                                 "for a backslash or use a 'literal' string)");
    assert_refused("s=\"\"\"a \\ b\"\"\"", NULL);
    assert_refused("s='''a\rb'''", "cordon.toml:1:7: carriage return without line feed is not "
                                   "allowed in a string");
    assert_refused("s=\"a\n\"", "cordon.toml:1:3: the string that starts here is not closed on its "
                                "line");
    assert_refused("\ns=\"\"\"a\n\n", "cordon.toml:2:3: the multi-line string that starts here is "
                                      "not closed");
}

static void test_encoding(void **state)
{
    (void)state;
    assert_refused("a=1\n# é\xff", "cordon.toml:2:4: byte 0xff is not valid UTF-8");
    assert_refused("#\xc0\x80", NULL);
    assert_refused("#\xe0\x9f\xbf", NULL);
    assert_refused("#\xed\xa0\x80", NULL);
    assert_refused("#\xf0\x8f\xbf\xbf", NULL);
    assert_refused("#\xf4\x90\x80\x80", NULL);
    assert_refused("#\xe2\x82", NULL);
    assert_refused_n("a=\0", 3, "cordon.toml:1:3: expected a value, not control character U+0000");
    struct toml_doc *doc = parse("#\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf\xc2\x80\xe0\xa0\x80");
    toml_doc_free(doc);
}

static void test_definitions(void **state)
{
    (void)state;
    assert_refused("[a]\nname=1\n\n\"n\\u0061me\"=2",
                   "cordon.toml:4:1: \"name\" is already defined as an integer on line 2");
    assert_refused("[a]\n[b]\n[ a ]",
                   "cordon.toml:3:3: \"a\" is already defined as a table on line 1");
    assert_refused("[a.b]\n[a]\n[a]", "cordon.toml:3:2: \"a\" is already defined as a table on "
                                      "line 2");
    assert_refused("a={}\n[a.b]", "cordon.toml:2:2: \"a\" is an inline table, complete on line 1: "
                                  "nothing can be added to it");
    assert_refused("a=[{}]\n[[a]]", "cordon.toml:2:3: \"a\" is already defined as an array on "
                                    "line 1");
    assert_refused("a=1\na.b=2", "cordon.toml:2:1: \"a\" is not a table: it is defined as an "
                                 "integer on line 1");
    assert_refused("[a.b]\n[a]\nb.c=1", "cordon.toml:3:1: \"b\" is already defined on line 1: "
                                        "a dotted key cannot add to it");
    assert_refused("a={b=1,\nc=2}", "cordon.toml:1:3: the inline table that starts here is not "
                                    "closed on its line (use a [table] for several lines)");
    assert_refused("a={b=1,}", "cordon.toml:1:8: an inline table must not end with a comma");
    assert_refused("a=[1,\n2", "cordon.toml:1:3: the array that starts here is not closed");
    assert_refused("a=[1 2]", "cordon.toml:1:6: expected ',' or ']' in the array, not '2'");
    assert_refused("a=none", "cordon.toml:1:3: \"none\": not a value; a string needs quotes");
    assert_refused("a", "cordon.toml:1:2: expected '=' after the key, not end of the file");
    assert_refused("é=1", "cordon.toml:1:1: expected a key, not character U+00E9 (quote keys "
                          "outside A-Za-z0-9_-)");
    assert_refused("[a", "cordon.toml:1:3: expected '.' or ']' in the table header, not end of the "
                         "file");

    /* a table that headers only imply may be defined once, by dotted keys as well */
    struct toml_doc *doc = parse("[a.b.c]\n[a]\nb.x=1\nb.y.z=2\n[[a.l]]\n[a.l.m]\n[[a.l]]\n");
    const struct toml_node *a = toml_get(toml_root(doc), "a");
    assert_int_equal(toml_get(toml_get(a, "b"), "x")->u.integer, 1);
    assert_int_equal(toml_get(a, "l")->u.children.count, 2);
    assert_non_null(toml_get(toml_first(toml_get(a, "l")), "m"));
    toml_doc_free(doc);
    assert_refused("[a.b.c]\n[a]\nb.x=1\n[a.b]", NULL);
}

/* Names come from whoever wrote the file and go to a terminal. */
static void test_message_is_harmless(void **state)
{
    (void)state;
    assert_refused("\"\\u001b[2J\\u009b\\u202e\"=1\n'\x1b'=2",
                   "cordon.toml:2:2: control character U+001B is not allowed in a string");
    assert_refused("\"\\u001b[2J\\u009b\\u202eé\"=1\n\"\\u001b[2J\\u009b\\u202eé\"=1",
                   "cordon.toml:2:1: \"\\u001b[2J\\u009b\\u202eé\" is already defined as an "
                   "integer on line 1");
    char text[1000] = "a=";
    memset(text + 2, 'x', sizeof(text) - 3);
    struct cordon_err err = {0};
    struct toml_doc *doc;
    assert_int_equal(toml_parse("c", text, strlen(text), &doc, &err), -1);
    assert_true(strlen(err.message) < 200);
    assert_non_null(strstr(err.message, "xxx...\": not a value"));
}

static char *repeat(const char *unit, size_t times, const char *before, const char *after)
{
    size_t len = strlen(unit);
    char *text = malloc(strlen(before) + len * times + strlen(after) + 1);
    assert_non_null(text);
    char *out = stpcpy(text, before);
    for (size_t i = 0; i < times; i++)
        out = stpcpy(out, unit);
    strcpy(out, after);
    return text;
}

static void assert_repeat(const char *unit, size_t times, const char *before, const char *after,
                          bool good)
{
    char *text = repeat(unit, times, before, after);
    if (good)
        toml_doc_free(parse(text));
    else
        assert_refused(text, NULL);
    free(text);
}

static void test_depth(void **state)
{
    (void)state;
    assert_repeat("[", TOML_DEPTH_MAX, "a=", "", false);
    char closing[TOML_DEPTH_MAX + 1];
    memset(closing, ']', TOML_DEPTH_MAX);
    closing[TOML_DEPTH_MAX] = '\0';
    assert_repeat("[", TOML_DEPTH_MAX, "a=", closing, true);
    assert_repeat("[", TOML_DEPTH_MAX + 1, "a=", closing, false);
    assert_repeat("a.", TOML_DEPTH_MAX - 1, "", "a=1", true);
    assert_repeat("a.", TOML_DEPTH_MAX, "", "a=1", false);
    assert_repeat("a.", TOML_DEPTH_MAX - 1, "[", "a]", true);
    assert_repeat("a.", TOML_DEPTH_MAX, "[", "a]", false);
    assert_repeat("{a=", TOML_DEPTH_MAX, "a=", "1", false);
    assert_repeat("[", TOML_SIZE_MAX - 2, "a=", "", false);
    assert_repeat("{a=", TOML_SIZE_MAX / 3 - 1, "a=", "", false);
    assert_repeat("a.", TOML_SIZE_MAX / 2 - 1, "", "", false);
    assert_refused("a=[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1",
                   "cordon.toml:1:67: nested more than 64 levels deep");
}

static void test_size(void **state)
{
    (void)state;
    assert_repeat("#", TOML_SIZE_MAX, "", "", true);
    char *text = repeat("#", TOML_SIZE_MAX + 1, "", "");
    assert_refused(text, "cordon.toml:1:1: larger than 1048576 bytes, the most a configuration may "
                         "have");
    free(text);
}

/* As many lines with a running number in them as 1 MiB holds, counting up or down. */
static char *numbered(const char *before, const char *after, bool up)
{
    char *text = malloc(TOML_SIZE_MAX + 1);
    assert_non_null(text);
    size_t len = 0;
    for (int i = 0; TOML_SIZE_MAX - len > 100; i++)
        len += (size_t)sprintf(text + len, "%s%07d%s", before, up ? i : 9999999 - i, after);
    return text;
}

/* Anything quadratic takes minutes on these; the bound leaves room for sanitizers. */
static void assert_linear(char *text, bool good)
{
    clock_t start = clock();
    struct toml_doc *doc = NULL;
    int r = toml_parse("big", text, strlen(text), &doc, NULL);
    assert_int_equal(r, good ? 0 : -1);
    if (good)
        toml_doc_free(doc);
    assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 10);
    free(text);
}

static void test_no_blow_up(void **state)
{
    (void)state;
    assert_linear(numbered("", "=1\n", true), true);
    assert_linear(numbered("", "=1\n", false), true);
    assert_linear(numbered("[", "]\n", true), true);
    assert_linear(numbered("[a.b.c.d.e.f.g.h.i.j.k.l.m.", "]\n", true), true);
    assert_linear(repeat("[[a]]\n", TOML_SIZE_MAX / 6, "", ""), true);
    assert_linear(numbered("a.b.c.d.e.f.g.h.", "=1\n", true), true);
    assert_linear(repeat("1,", TOML_SIZE_MAX / 2 - 4, "a=[", "]"), true);
    assert_linear(repeat("{},", TOML_SIZE_MAX / 3 - 4, "a=[", "]"), true);
    assert_linear(repeat("é", TOML_SIZE_MAX / 2 - 8, "a='''", "'''"), true);
    assert_linear(repeat("''", TOML_SIZE_MAX / 2 - 8, "a=\"\"\"", "\"\"\""), true);
    assert_linear(repeat("\\\n", TOML_SIZE_MAX / 2 - 8, "a=\"\"\"", "\"\"\""), true);
    assert_linear(repeat("1", TOML_SIZE_MAX - 8, "a=0.", ""), true);
    assert_linear(repeat("1", TOML_SIZE_MAX - 8, "a=1e", ""), true);
    assert_linear(repeat("1", TOML_SIZE_MAX - 8, "a=", ""), false);
    assert_linear(repeat("\n", TOML_SIZE_MAX - 8, "a=[", "]"), true);
    assert_linear(repeat("k", TOML_SIZE_MAX / 2 - 8, "", "=1\n"), true);
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    char *text = numbered("[t", "]\na.b = [1.5, 'two', {\"k\" = 1979-05-27}]\n", true);
    strstr(text, "[t0000500]")[0] = '\0';
    for (long n = 0;; n++) {
        struct cordon_err err = {0};
        struct toml_doc *doc = NULL;
        allocations_left = n;
        int r = toml_parse("cordon.toml", text, strlen(text), &doc, &err);
        allocations_left = -1;
        if (r == 0) {
            assert_true(n > 10);
            toml_doc_free(doc);
            break;
        }
        assert_null(doc);
        assert_int_equal(err.code, CORDON_ERR_INTERNAL);
        assert_non_null(strstr(err.message, "out of memory"));
        assert_true(n < 10000);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_access),
        cmocka_unit_test(test_order_and_places),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_floats),
        cmocka_unit_test(test_float_in_foreign_locale),
        cmocka_unit_test(test_dates),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_encoding),
        cmocka_unit_test(test_definitions),
        cmocka_unit_test(test_message_is_harmless),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_size),
        cmocka_unit_test(test_no_blow_up),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("toml", tests, NULL, NULL);
}
