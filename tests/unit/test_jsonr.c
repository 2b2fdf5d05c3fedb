/* The JSON reader: what it takes and refuses, values, places, bounds, failing allocations, and
 * random documents compared with Python's reader. Link with -Wl,--wrap=malloc,--wrap=calloc.
 *
 * The comparison needs python3 and is skipped, and says so, when it is not there. */
#include "base/jsonr.h"

#include <inttypes.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/util.h"

#define TEXT_MAX ((size_t)64 << 20)

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

static int parse_n(const char *text, size_t len, struct arena *arena,
                   const struct jsonr_node **ret_root, struct cordon_err *err)
{
    /* in memory of exactly its size, so that a sanitizer sees a step too far */
    char *copy = malloc(len ? len : 1);
    assert_non_null(copy);
    memcpy(copy, text, len);
    struct jsonr_source source = {.name = "f",
                                  .text = copy,
                                  .len = len,
                                  .max_bytes = TEXT_MAX,
                                  .code = CORDON_ERR_CONFIG,
                                  .stage = "policy"};
    int r = jsonr_parse(&source, arena, ret_root, err);
    free(copy);
    return r;
}

static const struct jsonr_node *parse(const char *text, struct arena *arena)
{
    struct cordon_err err = {0};
    const struct jsonr_node *root = NULL;
    if (parse_n(text, strlen(text), arena, &root, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    return root;
}

/* "f:1:2: message", or only its beginning. */
static void assert_refused_n(const char *text, size_t len, const char *message)
{
    struct cordon_err err = {0};
    struct arena arena = {0};
    const struct jsonr_node *root = NULL;
    int r = parse_n(text, len, &arena, &root, &err);
    if (r != -1 || root || err.code != CORDON_ERR_CONFIG || !str_starts(err.message, message))
        fail_msg("%s: returned %d, code %d, \"%s\" instead of \"%s\"", text, r, err.code,
                 err.message, message);
    assert_string_equal(err.stage, "policy");
    arena_done(&arena);
}

static void assert_refused(const char *text, const char *message)
{
    assert_refused_n(text, strlen(text), message);
}

/* Written so that equal values have equal texts: strings as hexadecimal bytes, reals as the bits of
 * the double. */
static void dump(const struct jsonr_node *node, struct buf *out)
{
    uint64_t bits;
    switch ((enum jsonr_type)node->type) {
    case JSONR_NULL: buf_str(out, "null"); break;
    case JSONR_BOOL: buf_str(out, node->u.boolean ? "true" : "false"); break;
    case JSONR_INTEGER:
        if (node->out_of_range)
            buf_printf(out, "big%c", node->negative ? '-' : '+');
        else
            buf_printf(out, "%s%" PRIu64, node->negative ? "-" : "", node->u.magnitude);
        if (!node->out_of_range)
            break;
        __attribute__((fallthrough));
    case JSONR_REAL:
        memcpy(&bits, &node->u.real, 8);
        buf_printf(out, "r%016" PRIx64, bits);
        break;
    case JSONR_STRING:
        buf_char(out, 's');
        for (size_t i = 0; i < node->u.string.len; i++)
            buf_printf(out, "%02x", (unsigned char)node->u.string.data[i]);
        break;
    case JSONR_ARRAY:
    case JSONR_OBJECT:
        buf_char(out, node->type == JSONR_ARRAY ? '[' : '{');
        for (const struct jsonr_node *child = jsonr_first(node); child; child = child->next) {
            for (size_t i = 0; i < child->key_len; i++)
                buf_printf(out, "%02x", (unsigned char)child->key[i]);
            if (child->key)
                buf_char(out, ':');
            dump(child, out);
            buf_char(out, ',');
        }
        buf_char(out, node->type == JSONR_ARRAY ? ']' : '}');
        break;
    }
}

static void test_valid(void **state)
{
    (void)state;
    static const struct {
        const char *text, *dump;
    } cases[] = {
        {"null", "null"},
        {" true ", "true"},
        {"\t\r\n false\n", "false"},
        {"[]", "[]"},
        {"[ ]", "[]"},
        {"{}", "{}"},
        {"{ \n}", "{}"},
        {"[null,1,\"1\",{}]", "[null,1,s31,{},]"},
        {"[1 , 2]", "[1,2,]"},
        {"[[[]]]", "[[[],],]"},
        {"{\"\":0}", "{:0,}"},
        {"{\"a\":1,\"b\":2}", "{61:1,62:2,}"},
        {"{\"a\":{\"a\":{}}}", "{61:{61:{},},}"},
        {"{\"a\\u0000b\":1,\"a\":2,\"a\\u0000\":3}", "{610062:1,61:2,6100:3,}"},
        {"\"\"", "s"},
        {"\" \"", "s20"},
        {"\"\x7f\"", "s7f"},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "s225c2f080c0a0d09"},
        {"\"\\\\n\"", "s5c6e"},
        {"\"\\u0000\"", "s00"},
        {"\"a\\u0000b\"", "s610062"},
        {"\"\\u0041\\u00e9\\u20AC\\uffff\"", "s41c3a9e282acefbfbf"},
        {"\"\\ud834\\udd1e\"", "sf09d849e"},
        {"\"\\uD800\\uDC00\\uDBFF\\uDFFF\"", "sf0908080f48fbfbf"},
        {"\"\\ud7ff\\ue000\"", "sed9fbfee8080"},
        {"\"\xc3\xa9\xe2\x82\xac\xf0\x9d\x84\x9e\"", "sc3a9e282acf09d849e"},
        {"\"\xe2\x80\xa8\xe2\x80\xa9\"", "se280a8e280a9"},
        {"\"\xf4\x8f\xbf\xbf\xef\xbf\xbf\"", "sf48fbfbfefbfbf"},
        {"\"/*x*/ // #\"", "s2f2a782a2f202f2f2023"},
        {"\"0123456789abcdef\\n0123456\"", "s303132333435363738396162636465660a30313233343536"},
        {"0", "0"},
        {"-0", "0"},
        {"-1", "-1"},
        {"10", "10"},
        {"9223372036854775807", "9223372036854775807"},
        {"9223372036854775808", "9223372036854775808"},
        {"-9223372036854775808", "-9223372036854775808"},
        {"18446744073709551615", "18446744073709551615"},
        {"18446744073709551616", "big+r43f0000000000000"},
        {"-9223372036854775809", "big-rc3e0000000000000"},
        {"0.0", "r0000000000000000"},
        {"-0.0", "r8000000000000000"},
        {"0e5", "r0000000000000000"},
        {"-0e-99999999999999999999", "r8000000000000000"},
        {"1e0", "r3ff0000000000000"},
        {"1E0", "r3ff0000000000000"},
        {"1e+0", "r3ff0000000000000"},
        {"1e-00", "r3ff0000000000000"},
        {"0.1", "r3fb999999999999a"},
        {"1.5", "r3ff8000000000000"},
        {"-2.5e-3", "rbf647ae147ae147b"},
        {"1e22", "r4480f0cf064dd592"},
        {"1e23", "r44b52d02c7e14af6"},
        {"9007199254740993.0", "r4340000000000000"},
        {"9007199254740993.00000000000000000000000000000000001", "r4340000000000001"},
        {"1.7976931348623157e308", "r7fefffffffffffff"},
        {"1.7976931348623158e308", "r7fefffffffffffff"},
        {"2.2250738585072014e-308", "r0010000000000000"},
        {"2.2250738585072011e-308", "r000fffffffffffff"},
        {"4.9e-324", "r0000000000000001"},
        {"2.4703282292062327e-324", "r0000000000000000"},
        {"2.4703282292062328e-324", "r0000000000000001"},
        {"1e-400", "r0000000000000000"},
        {"1e-99999999999999999999999", "r0000000000000000"},
        {"0.00000000000000000000000000000000000000001e41", "r3ff0000000000000"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct arena arena = {0};
        _cleanup_buf_ struct buf out = BUF_INIT(4096);
        dump(parse(cases[i].text, &arena), &out);
        if (!str_eq(out.data, cases[i].dump))
            fail_msg("%s: %s instead of %s", cases[i].text, out.data, cases[i].dump);
        arena_done(&arena);
    }
}

static void test_invalid(void **state)
{
    (void)state;
#define VALUE "a value expected, found "
#define END "the end of the text"
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "f:1:0: " VALUE END},
        {" ", "f:1:1: " VALUE END},
        {"\n", "f:2:0: " VALUE END},
        {"\n\n ", "f:3:1: " VALUE END},
        {"[", "f:1:1: " VALUE END},
        {"[1", "f:1:2: ',' or ']' expected, found " END},
        {"[1,", "f:1:3: " VALUE END},
        {"[1,]", "f:1:4: " VALUE "']'"},
        {"[,1]", "f:1:2: " VALUE "','"},
        {"[,]", "f:1:2: " VALUE "','"},
        {"[1,,2]", "f:1:4: " VALUE "','"},
        {"[1 2]", "f:1:4: ',' or ']' expected, found '2'"},
        {"[1}", "f:1:3: ',' or ']' expected, found '}'"},
        {"[\"a\":1]", "f:1:5: ',' or ']' expected, found ':'"},
        {"]", "f:1:1: " VALUE "']'"},
        {"[]]", "f:1:3: " END " expected, found ']'"},
        {"[] []", "f:1:4: " END " expected, found '['"},
        {"1 2", "f:1:3: " END " expected, found '2'"},
        {"{", "f:1:1: a key in double quotes expected, found " END},
        {"{]", "f:1:2: a key in double quotes expected, found ']'"},
        {"{a:1}", "f:1:2: a key in double quotes expected, found 'a'"},
        {"{'a':1}", "f:1:2: a key in double quotes expected, found '''"},
        {"{1:1}", "f:1:2: a key in double quotes expected, found '1'"},
        {"{null:1}", "f:1:2: a key in double quotes expected, found 'n'"},
        {"{\"a\"}", "f:1:5: ':' expected, found '}'"},
        {"{\"a\",1}", "f:1:5: ':' expected, found ','"},
        {"{\"a\" 1}", "f:1:6: ':' expected, found '1'"},
        {"{\"a\"", "f:1:4: ':' expected, found " END},
        {"{\"a\":", "f:1:5: " VALUE END},
        {"{\"a\":}", "f:1:6: " VALUE "'}'"},
        {"{\"a\":1", "f:1:6: ',' or '}' expected, found " END},
        {"{\"a\":1]", "f:1:7: ',' or '}' expected, found ']'"},
        {"{\"a\":1,}", "f:1:8: a key in double quotes expected, found '}'"},
        {"{\"a\":1,,\"b\":2}", "f:1:8: a key in double quotes expected, found ','"},
        {"{,}", "f:1:2: a key in double quotes expected, found ','"},
        {"{\"a\":1 \"b\":2}", "f:1:8: ',' or '}' expected, found '\"'"},
        {"{\"a\":1;\"b\":2}", "f:1:7: ',' or '}' expected, found ';'"},
        {"{\"a\"::1}", "f:1:6: " VALUE "':'"},
        {"{\"a\":1}}", "f:1:8: " END " expected, found '}'"},
        {"tru", "f:1:1: " VALUE "'t'"},
        {"True", "f:1:1: " VALUE "'T'"},
        {"truE", "f:1:1: " VALUE "'t'"},
        {"truee", "f:1:5: " END " expected, found 'e'"},
        {"nul", "f:1:1: " VALUE "'n'"},
        {"NULL", "f:1:1: " VALUE "'N'"},
        {"fals", "f:1:1: " VALUE "'f'"},
        {"NaN", "f:1:1: " VALUE "'N'"},
        {"nan", "f:1:1: " VALUE "'n'"},
        {"Infinity", "f:1:1: " VALUE "'I'"},
        {"undefined", "f:1:1: " VALUE "'u'"},
        {"*", "f:1:1: " VALUE "'*'"},
        {"// x\n1", "f:1:1: " VALUE "'/'"},
        {"1 // x", "f:1:3: " END " expected, found '/'"},
        {"[1/* x */]", "f:1:3: ',' or ']' expected, found '/'"},
        {"# x\n1", "f:1:1: " VALUE "'#'"},
        {"'a'", "f:1:1: " VALUE "'''"},
        {"\f1", "f:1:1: " VALUE "control character U+000C"},
        {"\v1", "f:1:1: " VALUE "control character U+000B"},
        {"1\f", "f:1:2: " END " expected, found control character U+000C"},
        {"\x7f", "f:1:1: " VALUE "character U+007F"},
        {"\xc2\xa0"
         "1",
         "f:1:1: " VALUE "character U+00A0"},
        {"\xe2\x81\xa0", "f:1:1: " VALUE "character U+2060"},
        {"\xef\xbb\xbf{}", "f:1:1: " VALUE "character U+FEFF"},
        {"[\xc3\xa9]", "f:1:2: " VALUE "character U+00E9"},
        /* numbers */
        {"-", "f:1:1: a digit expected, found " END},
        {"--1", "f:1:2: a digit expected, found '-'"},
        {"-a", "f:1:2: a digit expected, found 'a'"},
        {"- 1", "f:1:2: a digit expected, found ' '"},
        {"-Infinity", "f:1:2: a digit expected, found 'I'"},
        {"+1", "f:1:1: " VALUE "'+'"},
        {".5", "f:1:1: " VALUE "'.'"},
        {"-.5", "f:1:2: a digit expected, found '.'"},
        {"01", "f:1:1: a number must not begin with a zero"},
        {"[-012]", "f:1:2: a number must not begin with a zero"},
        {"00", "f:1:1: a number must not begin with a zero"},
        {"0x1F", "f:1:2: " END " expected, found 'x'"},
        {"1_000", "f:1:2: " END " expected, found '_'"},
        {"1,5", "f:1:2: " END " expected, found ','"},
        {"1.", "f:1:2: a digit after the decimal point expected, found " END},
        {"[1.]", "f:1:4: a digit after the decimal point expected, found ']'"},
        {"1.e1", "f:1:3: a digit after the decimal point expected, found 'e'"},
        {"1.2.3", "f:1:4: " END " expected, found '.'"},
        {"1.5f", "f:1:4: " END " expected, found 'f'"},
        {"1e", "f:1:2: a digit of the exponent expected, found " END},
        {"1e+", "f:1:3: a digit of the exponent expected, found " END},
        {"1eE2", "f:1:3: a digit of the exponent expected, found 'E'"},
        {"1e+-2", "f:1:4: a digit of the exponent expected, found '-'"},
        {"1e1.5", "f:1:4: " END " expected, found '.'"},
        {"0e", "f:1:2: a digit of the exponent expected"},
        {"\xef\xbc\x91", "f:1:1: " VALUE "character U+FF11"},
        {"[1e309]", "f:1:2: the number is too large"},
        {"-1e309", "f:1:1: the number is too large"},
        {"1.7976931348623159e308", "f:1:1: the number is too large"},
        {"1e99999999999999999999999", "f:1:1: the number is too large"},
        /* strings */
        {"\"", "f:1:1: the string that starts here is not closed"},
        {"[\"a]", "f:1:2: the string that starts here is not closed"},
        {"\"a\\\"", "f:1:1: the string that starts here is not closed"},
        {"\"\\", "f:1:1: the string that starts here is not closed"},
        {"\"0123456789\\", "f:1:1: the string that starts here is not closed"},
        {"{\"a", "f:1:2: the string that starts here is not closed"},
        {"\"a\nb\"", "f:1:3: control character U+000A in a string must be written as an escape"},
        {"\"\t\"", "f:1:2: control character U+0009 in a string"},
        {"\"01234567\x1f\"", "f:1:10: control character U+001F in a string"},
        {"\"\\x41\"", "f:1:2: unknown escape: backslash and 'x'"},
        {"\"\\'\"", "f:1:2: unknown escape: backslash and '''"},
        {"\"\\a\"", "f:1:2: unknown escape: backslash and 'a'"},
        {"\"\\0\"", "f:1:2: unknown escape: backslash and '0'"},
        {"\"\\U0041\"", "f:1:2: unknown escape: backslash and 'U'"},
        {"\"\\ \"", "f:1:2: unknown escape: backslash and ' '"},
        {"\"\\\n\"", "f:1:2: unknown escape: backslash and control character U+000A"},
        {"\"\\\xc3\xa9\"", "f:1:2: unknown escape: backslash and character U+00E9"},
        {"\"\\u\"", "f:1:2: \\u needs four hexadecimal digits"},
        {"\"\\u123\"", "f:1:2: \\u needs four hexadecimal digits"},
        {"\"\\u12", "f:1:1: the string that starts here is not closed"},
        {"\"\\u00g0\"", "f:1:2: \\u needs four hexadecimal digits"},
        {"\"\\u+041\"", "f:1:2: \\u needs four hexadecimal digits"},
        {"\"\\u 041\"", "f:1:2: \\u needs four hexadecimal digits"},
        {"\"\\u0x41\"", "f:1:2: \\u needs four hexadecimal digits"},
        {"\"ab\\ud800\"", "f:1:4: \\ud800 is half of a surrogate pair"},
        {"\"\\udc00\"", "f:1:2: \\udc00 is half of a surrogate pair"},
        {"\"\\udc00\\ud800\"", "f:1:2: \\udc00 is half of a surrogate pair"},
        {"\"\\ud800\\ud800\\udc00\"", "f:1:2: \\ud800 is half of a surrogate pair"},
        {"\"\\ud800x\"", "f:1:2: \\ud800 is half of a surrogate pair"},
        {"\"\\ud800\\n\"", "f:1:2: \\ud800 is half of a surrogate pair"},
        {"\"\\ud800\\u0041\"", "f:1:2: \\ud800 is half of a surrogate pair"},
        {"\"\\ud800\\u12\"", "f:1:2: \\ud800 is half of a surrogate pair"},
        {"{\"\\ud800\":1}", "f:1:3: \\ud800 is half of a surrogate pair"},
        {"{\"\\ud834\\udd1e\":\xc3\xa9}", "f:1:17: " VALUE "character U+00E9"},
        /* encoding */
        {"\"\x80\"", "f:1:2: byte 0x80 is not valid UTF-8"},
        {"\"\xff\"", "f:1:2: byte 0xff is not valid UTF-8"},
        {"\"\xc0\xaf\"", "f:1:2: byte 0xc0 is not valid UTF-8"},
        {"\"\xc1\xbf\"", "f:1:2: byte 0xc1 is not valid UTF-8"},
        {"\"\xe0\x80\xaf\"", "f:1:2: byte 0xe0 is not valid UTF-8"},
        {"\"\xf0\x80\x80\x80\"", "f:1:2: byte 0xf0 is not valid UTF-8"},
        {"\"\xed\xa0\x80\"", "f:1:2: byte 0xed is not valid UTF-8"},
        {"\"\xf4\x90\x80\x80\"", "f:1:2: byte 0xf4 is not valid UTF-8"},
        {"\"\xf5\x80\x80\x80\"", "f:1:2: byte 0xf5 is not valid UTF-8"},
        {"\"\xe2\x82\"", "f:1:2: byte 0xe2 is not valid UTF-8"},
        {"\"\xe2\x82", "f:1:2: byte 0xe2 is not valid UTF-8"},
        {"\"\xc3(\"", "f:1:2: byte 0xc3 is not valid UTF-8"},
        {"[1,\n\"\xc3\xa9\", \xff]", "f:2:6: byte 0xff is not valid UTF-8"},
        {"\xfe\xff", "f:1:1: byte 0xfe is not valid UTF-8"},
        /* keys */
        {"{\"a\":1,\"a\":2}", "f:1:8: duplicate key \"a\", first at 1:2"},
        {"{\"a\":1,\n\"b\":3, \"\\u0061\":2}", "f:2:8: duplicate key \"a\", first at 1:2"},
        {"{\"\":1,\"\":1}", "f:1:7: duplicate key \"\", first at 1:2"},
        {"[{\"\xc3\xa9\":1,\"\xc3\xa9\":2}]", "f:1:9: duplicate key, first at 1:3"},
        {"{\"\\u001b[m\":1,\"\\u001b[m\":2}", "f:1:15: duplicate key, first at 1:2"},
        {"{\"a\":{\"b\":1,\"b\":1},\"a\":1}", "f:1:13: duplicate key \"b\""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_refused(cases[i].text, cases[i].message);
    assert_refused_n("\0", 1, "f:1:1: " VALUE "control character U+0000");
    assert_refused_n("1\0", 2, "f:1:2: " END " expected, found control character U+0000");
    assert_refused_n("\"a\0\"", 4, "f:1:3: control character U+0000 in a string");
    assert_refused_n("\"a\\\0\"", 5,
                     "f:1:3: unknown escape: backslash and control character U+0000");
    assert_refused_n("{\0\"a\":1}", 8, "f:1:2: a key in double quotes");
    assert_refused_n("[\0"
                     "1\0]\0",
                     6, "f:1:2: " VALUE);
}

/* No beginning of a document is a document, and none is read past its end. */
static void test_truncated(void **state)
{
    (void)state;
    static const char text[] =
        "{\"a\":[1,-2.5e-3,true,false,null,\"x\\u00e9\\ud834\\udd1e\\n\xc3\xa9"
        "\xf0\x9d\x84\x9e\",{\"b\":{}}],\"c\" : \"0123456789abcdef\"}";
    struct arena arena = {0};
    parse(text, &arena);
    arena_done(&arena);
    for (size_t len = 0; len < strlen(text); len++)
        assert_refused_n(text, len, "f:1:");
}

static void assert_pos(struct jsonr_pos pos, unsigned line, unsigned column)
{
    if (pos.line != line || pos.column != column)
        fail_msg("%u:%u instead of %u:%u", pos.line, pos.column, line, column);
}

static void test_places(void **state)
{
    (void)state;
    struct arena arena = {0};
    const struct jsonr_node *root = parse("\n  {\"\xc3\xa9\": \"\xf0\x9d\x84\x9e\", \"b\":[1,\r\n"
                                          "\t{\"c\":-1}],\n\n\"d\"\n:\nnull}",
                                          &arena);
    assert_pos(root->pos, 2, 3);
    assert_pos(root->key_pos, 0, 0);
    const struct jsonr_node *a = jsonr_first(root), *b = a->next, *d = b->next;
    assert_pos(a->key_pos, 2, 4);
    assert_pos(a->pos, 2, 9);
    assert_pos(b->key_pos, 2, 14);
    assert_pos(b->pos, 2, 18);
    const struct jsonr_node *object = jsonr_first(b)->next;
    assert_pos(jsonr_first(b)->pos, 2, 19);
    assert_pos(object->pos, 3, 2);
    assert_pos(jsonr_first(object)->key_pos, 3, 3);
    assert_pos(jsonr_first(object)->pos, 3, 7);
    assert_pos(d->key_pos, 5, 1);
    assert_pos(d->pos, 7, 1);
    assert_null(d->next);
    arena_done(&arena);

    /* one line of many */
    struct cordon_err err = {0};
    struct jsonr_source source = {.name = "t.jsonl",
                                  .text = "{\"a\" 1}",
                                  .len = 7,
                                  .max_bytes = 7,
                                  .line = 17,
                                  .code = CORDON_ERR_USAGE,
                                  .stage = "request"};
    assert_int_equal(jsonr_parse(&source, &arena, &root, &err), -1);
    assert_string_equal(err.message, "t.jsonl:17:6: ':' expected, found '1'");
    assert_string_equal(err.stage, "request");
    assert_int_equal(err.code, CORDON_ERR_USAGE);
    assert_int_equal(jsonr_parse(&source, &arena, &root, NULL), -1);
    arena_done(&arena);
}

static void test_access(void **state)
{
    (void)state;
    struct arena arena = {0};
    const struct jsonr_node *root =
        parse("{\"i\":-5,\"u\":18446744073709551615,\"m\":-9223372036854775808,\"r\":2.5,"
              "\"s\":\"x\",\"z\":\"x\\u0000\",\"l\":[1,2],\"n\":null,\"big\":99999999999999999999}",
              &arena);
    int64_t i = 77;
    uint64_t u = 77;
    double d = 77;
    assert_true(jsonr_int64(jsonr_get(root, "i"), &i) && i == -5);
    assert_true(jsonr_int64(jsonr_get(root, "m"), &i) && i == INT64_MIN);
    assert_true(jsonr_uint64(jsonr_get(root, "u"), &u) && u == UINT64_MAX);
    assert_true(jsonr_double(jsonr_get(root, "i"), &d) && d == -5.0);
    assert_true(jsonr_double(jsonr_get(root, "r"), &d) && d == 2.5);
    assert_true(jsonr_double(jsonr_get(root, "big"), &d) && d == 1e20);
    i = 77, u = 77, d = 77;
    static const char *const not_int[] = {"u", "r", "s", "big", "n", "none"};
    for (size_t k = 0; k < ARRAY_SIZE(not_int); k++)
        assert_false(jsonr_int64(jsonr_get(root, not_int[k]), &i));
    static const char *const not_uint[] = {"i", "m", "r", "s", "big", "n", "none"};
    for (size_t k = 0; k < ARRAY_SIZE(not_uint); k++)
        assert_false(jsonr_uint64(jsonr_get(root, not_uint[k]), &u));
    assert_false(jsonr_double(jsonr_get(root, "s"), &d));
    assert_true(i == 77 && u == 77 && d == 77);

    assert_string_equal(jsonr_cstr(jsonr_get(root, "s")), "x");
    assert_null(jsonr_cstr(jsonr_get(root, "z")));
    assert_null(jsonr_cstr(jsonr_get(root, "i")));
    assert_null(jsonr_cstr(NULL));
    assert_int_equal(jsonr_count(root), 9);
    assert_int_equal(jsonr_count(jsonr_get(root, "l")), 2);
    assert_int_equal(jsonr_count(jsonr_get(root, "s")), 0);
    assert_int_equal(jsonr_count(NULL), 0);
    assert_null(jsonr_first(jsonr_get(root, "s")));
    assert_null(jsonr_get(jsonr_get(root, "l"), "s"));
    assert_null(jsonr_get(NULL, "s"));
    assert_null(jsonr_get_n(root, "s\0", 2));
    assert_string_equal(jsonr_type_name(JSONR_OBJECT), "an object");
    arena_done(&arena);
}

static void test_depth(void **state)
{
    (void)state;
    static const char *const shapes[][2] = {{"[", "]"}, {"{\"a\":", "}"}, {"[{\"a\":", "}]"}};
    static const unsigned levels[] = {1, 1, 2};
    for (size_t s = 0; s < ARRAY_SIZE(shapes); s++)
        for (unsigned too_deep = 0; too_deep < 2; too_deep++) {
            _cleanup_buf_ struct buf text = BUF_INIT(4096);
            unsigned n = JSONR_DEPTH_MAX / levels[s] + too_deep;
            for (unsigned i = 0; i < n; i++)
                buf_str(&text, shapes[s][0]);
            buf_char(&text, '1');
            for (unsigned i = 0; i < n; i++)
                buf_str(&text, shapes[s][1]);
            struct arena arena = {0};
            if (too_deep) {
                assert_refused(text.data, "f:1:");
            } else {
                parse(text.data, &arena);
                arena_done(&arena);
            }
        }
    char deep[100000];
    memset(deep, '[', sizeof(deep));
    assert_refused_n(deep, sizeof(deep), "f:1:65: nested deeper than 64 levels");
}

static void test_size(void **state)
{
    (void)state;
    struct cordon_err err = {0};
    struct arena arena = {0};
    const struct jsonr_node *root = NULL;
    struct jsonr_source source = {.name = "f",
                                  .text = "[1]",
                                  .len = 3,
                                  .max_bytes = 2,
                                  .code = CORDON_ERR_CONFIG,
                                  .stage = "policy"};
    assert_int_equal(jsonr_parse(&source, &arena, &root, &err), -1);
    assert_string_equal(err.message, "f: larger than 2 bytes");
    source.max_bytes = SIZE_MAX;
    source.len = JSONR_SIZE_MAX + 1; /* refused before it is looked at */
    assert_int_equal(jsonr_parse(&source, &arena, &root, &err), -1);
    assert_null(root);
    source.text = NULL;
    source.len = 0;
    assert_int_equal(jsonr_parse(&source, &arena, &root, &err), -1);
    arena_done(&arena);
}

/* 767 digits can matter to a double; all behind them only if one is not zero. */
static void test_long_numbers(void **state)
{
    (void)state;
    for (int odd = 0; odd < 2; odd++) {
        _cleanup_buf_ struct buf text = BUF_INIT(1 << 20);
        buf_str(&text, "1.00000000000000011102230246251565404236316680908203125"); /* 1 + 2^-53 */
        for (int i = 0; i < 5000; i++)
            buf_char(&text, '0');
        buf_str(&text, odd ? "1" : "0");
        struct arena arena = {0};
        double d;
        assert_true(jsonr_double(parse(text.data, &arena), &d));
        assert_true(d == (odd ? 1.0000000000000002 : 1.0));
        arena_done(&arena);
    }
    _cleanup_buf_ struct buf zeros = BUF_INIT(1 << 22);
    buf_str(&zeros, "0.");
    for (int i = 0; i < 1000000; i++)
        buf_char(&zeros, '0');
    buf_str(&zeros, "15e1000001");
    struct arena arena = {0};
    double d;
    assert_true(jsonr_double(parse(zeros.data, &arena), &d) && d == 1.5);
    arena_done(&arena);

    _cleanup_buf_ struct buf digits = BUF_INIT(1 << 10);
    for (int i = 0; i < 309; i++)
        buf_char(&digits, '1');
    assert_true(jsonr_double(parse(digits.data, &arena), &d) && isfinite(d));
    arena_done(&arena);
    buf_char(&digits, '1');
    assert_refused(digits.data, "f:1:1: the number is too large");
}

static void test_locale(void **state)
{
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "ru_RU.UTF-8"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (setlocale(LC_ALL, names[i]))
            break;
    struct arena arena = {0};
    double d;
    assert_true(jsonr_double(parse("1.2345678901234567890123", &arena), &d));
    setlocale(LC_ALL, "C");
    assert_true(d == 1.2345678901234567890123);
    arena_done(&arena);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Objects of every size around the bound of the index, all keys found; then a large one, whose
 * keys come in an order and with a length that hurts a careless reader. */
static void test_objects(void **state)
{
    (void)state;
    static const unsigned sizes[] = {1, 2, 15, 16, 17, 18, 31, 100, 1000, 200000};
    double start = seconds();
    for (size_t s = 0; s < ARRAY_SIZE(sizes); s++) {
        _cleanup_buf_ struct buf text = BUF_INIT(TEXT_MAX);
        unsigned n = sizes[s];
        for (unsigned i = 0; i < n; i++)
            buf_printf(&text, "%s\"key-with-one-prefix-%u\":%u", i ? "," : "{",
                       i % 2 ? i : n * 2 - i, i);
        buf_char(&text, '}');
        struct arena arena = {0};
        const struct jsonr_node *root = parse(text.data, &arena);
        assert_int_equal(jsonr_count(root), n);
        for (unsigned i = 0; i < n; i++) {
            char key[64];
            uint64_t value;
            snprintf(key, sizeof(key), "key-with-one-prefix-%u", i % 2 ? i : n * 2 - i);
            assert_true(jsonr_uint64(jsonr_get(root, key), &value) && value == i);
        }
        assert_null(jsonr_get(root, "key-with-one-prefix-"));
        assert_null(jsonr_get(root, "z"));
        assert_null(jsonr_get(root, ""));
        arena_done(&arena);
        /* the same with the last key once more, and the first behind it */
        text.data[--text.len] = '\0';
        char message[64];
        snprintf(message, sizeof(message), "f:1:%zu: duplicate key \"key-with", text.len + 2);
        buf_printf(&text, ",\"key-with-one-prefix-%u\":0,\"key-with-one-prefix-%u\":0}",
                   (n - 1) % 2 ? n - 1 : n + 1, n * 2);
        assert_refused_n(text.data, text.len, message);
    }
    if (seconds() - start > 20)
        fail_msg("%.1f s for objects", seconds() - start);
}

static void test_no_memory(void **state)
{
    (void)state;
    _cleanup_buf_ struct buf text = BUF_INIT(1 << 20);
    buf_str(&text, "{\"list\":[");
    for (int i = 0; i < 500; i++)
        buf_printf(&text, "%s\"%d\"", i ? "," : "", i);
    buf_str(&text, "],\"long\":\"");
    for (int i = 0; i < 40000; i++)
        buf_char(&text, 'x');
    buf_str(&text, "\"");
    for (int i = 0; i < 3000; i++)
        buf_printf(&text, ",\"%d\":{}", i);
    buf_str(&text, "}");
    struct jsonr_source source = {.name = "f",
                                  .text = text.data,
                                  .len = text.len,
                                  .max_bytes = TEXT_MAX,
                                  .code = CORDON_ERR_CONFIG,
                                  .stage = "policy"};
    long n = 0;
    int r;
    do {
        struct arena arena = {0};
        struct cordon_err err = {0};
        const struct jsonr_node *root = NULL;
        allocations_left = n++;
        r = jsonr_parse(&source, &arena, &root, &err);
        allocations_left = -1;
        assert_true((r == 0) == (root != NULL));
        if (r < 0)
            assert_int_equal(err.code, CORDON_ERR_INTERNAL);
        arena_done(&arena);
    } while (r != 0 && n < 1000);
    assert_in_range(n, 10, 999);
}

/* tests/unit/jsonr_oracle.py writes documents and, one line each, what dump() must say of them. */
static void test_python(void **state)
{
    (void)state;
    if (system("python3 -c '' 2>/dev/null") != 0) {
        printf("SKIP: python3 is not there\n");
        skip();
    }
    FILE *oracle = popen("python3 -B tests/unit/jsonr_oracle.py 4000", "re");
    assert_non_null(oracle);
    char *text = NULL, *expected = NULL;
    size_t text_size = 0, expected_size = 0, documents = 0;
    ssize_t len;
    while ((len = getline(&text, &text_size, oracle)) > 0) {
        ssize_t expected_len = getline(&expected, &expected_size, oracle);
        assert_true(expected_len > 0);
        expected[expected_len - 1] = '\0';
        for (char *c = text; (c = memchr(c, '\x1e', (size_t)(text + len - c))); c++)
            *c = '\n'; /* a line end of the document */
        struct arena arena = {0};
        struct cordon_err err = {0};
        const struct jsonr_node *root = NULL;
        _cleanup_buf_ struct buf out = BUF_INIT(TEXT_MAX);
        if (parse_n(text, (size_t)len, &arena, &root, &err) == 0)
            dump(root, &out);
        else
            buf_str(&out, "refused");
        if (!str_eq(out.data, expected))
            fail_msg("%s%s\ninstead of\n%s\n%s", text, out.data, expected, err.message);
        arena_done(&arena);
        documents++;
    }
    free(text);
    free(expected);
    assert_int_equal(pclose(oracle), 0);
    assert_true(documents >= 4000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_valid),     cmocka_unit_test(test_invalid),
        cmocka_unit_test(test_truncated), cmocka_unit_test(test_places),
        cmocka_unit_test(test_access),    cmocka_unit_test(test_depth),
        cmocka_unit_test(test_size),      cmocka_unit_test(test_long_numbers),
        cmocka_unit_test(test_locale),    cmocka_unit_test(test_objects),
        cmocka_unit_test(test_no_memory), cmocka_unit_test(test_python),
    };
    return cmocka_run_group_tests_name("jsonr", tests, NULL, NULL);
}
