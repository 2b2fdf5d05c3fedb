/* The leaf helpers: bounded buffers, the JSON writer, errors, the arena; with failing allocations.
 * Link with -Wl,--wrap=calloc,--wrap=realloc. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdalign.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/jsonw.h"
#include "base/util.h"

static bool allocations_fail;

void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);

void *__wrap_calloc(size_t n, size_t size)
{
    return allocations_fail ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
    return allocations_fail ? NULL : __real_realloc(p, size);
}

/* ---- buffers ---- */

static void buf_holds_its_maximum(void **state)
{
    (void)state;
    _cleanup_buf_ struct buf b = BUF_INIT(5);
    assert_int_equal(buf_add(&b, "abc", 3), 0);
    assert_int_equal(buf_add(&b, "de", 2), 0);
    assert_string_equal(b.data, "abcde");
    assert_false(b.failed);
    /* one byte past it fails, changes nothing, and is remembered */
    assert_int_equal(buf_char(&b, 'f'), -1);
    assert_int_equal(b.len, 5);
    assert_string_equal(b.data, "abcde");
    assert_true(b.failed);
    assert_int_equal(buf_add(&b, "", 0), 0);
    assert_true(b.failed);
    assert_null(buf_take(&b));
    assert_false(b.failed);
}

static void buf_refuses_lengths_that_wrap(void **state)
{
    (void)state;
    _cleanup_buf_ struct buf b = BUF_INIT(SIZE_MAX / 4);
    assert_int_equal(buf_str(&b, "x"), 0);
    assert_int_equal(buf_reserve(&b, SIZE_MAX), -1);
    assert_int_equal(buf_reserve(&b, SIZE_MAX / 4), -1);
    assert_int_equal(b.len, 1);
    assert_true(b.failed);
}

static void buf_grows(void **state)
{
    (void)state;
    _cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
    for (int i = 0; i < 10000; i++)
        assert_int_equal(buf_printf(&b, "%04d ", i), 0);
    assert_int_equal(b.len, 50000);
    assert_memory_equal(b.data + 5 * 1234, "1234 ", 5);
    assert_int_equal(b.data[b.len], '\0');
}

static void buf_copies_every_length(void **state)
{
    (void)state;
    char text[64], all[4096] = "";
    size_t len = 0;
    _cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (char)('0' + i);
    for (size_t n = 0; n <= sizeof(text); n++) {
        memcpy(all + len, text + (sizeof(text) - n) / 2, n);
        len += n;
        assert_int_equal(buf_add(&b, text + (sizeof(text) - n) / 2, n), 0);
        assert_int_equal(b.len, len);
        assert_memory_equal(b.data, all, len);
        assert_int_equal(b.data[len], '\0');
    }
}

static void buf_writes_numbers(void **state)
{
    (void)state;
    static const struct {
        uint64_t value;
        unsigned digits;
        const char *text;
    } cases[] = {{0, 1, "0"},
                 {0, 0, "0"},
                 {7, 3, "007"},
                 {999, 3, "999"},
                 {1000, 3, "1000"},
                 {UINT64_MAX, 1, "18446744073709551615"},
                 {1, 99, "00000000000000000001"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_buf_ struct buf b = BUF_INIT(64);
        assert_int_equal(buf_uint(&b, cases[i].value, cases[i].digits), 0);
        assert_string_equal(b.data, cases[i].text);
    }
    _cleanup_buf_ struct buf out = BUF_INIT(256);
    struct jsonw j = {.out = &out};
    jsonw_open(&j, NULL, '[');
    jsonw_int(&j, NULL, INT64_MIN);
    jsonw_int(&j, NULL, -1);
    jsonw_int(&j, NULL, INT64_MAX);
    jsonw_ms(&j, NULL, 0);
    jsonw_ms(&j, NULL, 1000499);
    jsonw_ms(&j, NULL, 59999500);
    jsonw_close(&j, ']');
    assert_string_equal(out.data,
                        "[-9223372036854775808,-1,9223372036854775807,0.000,1.000,60.000]");
}

static void buf_printf_is_bounded(void **state)
{
    (void)state;
    _cleanup_buf_ struct buf b = BUF_INIT(4);
    assert_int_equal(buf_printf(&b, "%s", "abcd"), 0);
    assert_int_equal(buf_printf(&b, "%d", 1), -1);
    assert_string_equal(b.data, "abcd");
    assert_true(b.failed);
}

static void buf_take_gives_a_string(void **state)
{
    (void)state;
    struct buf b = BUF_INIT(16);
    char *empty = buf_take(&b);
    assert_string_equal(empty, "");
    free(empty);
    buf_str(&b, "text");
    char *text = buf_take(&b);
    assert_string_equal(text, "text");
    free(text);
    assert_null(b.data);
    assert_int_equal(b.max, 16);
    buf_done(&b);
    buf_done(&b);
}

static void buf_without_memory(void **state)
{
    (void)state;
    struct buf b = BUF_INIT(1024);
    allocations_fail = true;
    int added = buf_str(&b, "x"), printed = buf_printf(&b, "%d", 5);
    char *taken = buf_take(&b);
    allocations_fail = false;
    assert_int_equal(added, -1);
    assert_int_equal(printed, -1);
    assert_null(taken);

    buf_str(&b, "kept");
    allocations_fail = true;
    char more[512] = {0};
    added = buf_add(&b, more, sizeof(more));
    allocations_fail = false;
    assert_int_equal(added, -1);
    assert_string_equal(b.data, "kept");
    buf_done(&b);
}

/* ---- JSON ---- */

static void json_nests_and_separates(void **state)
{
    (void)state;
    _cleanup_buf_ struct buf b = BUF_INIT(4096);
    struct jsonw j = {.out = &b};
    jsonw_open(&j, NULL, '{');
    jsonw_int(&j, "i", -5);
    jsonw_open(&j, "list", '[');
    jsonw_close(&j, ']');
    jsonw_open(&j, "of", '[');
    jsonw_open(&j, NULL, '{');
    jsonw_close(&j, '}');
    jsonw_str(&j, NULL, "s");
    jsonw_str(&j, NULL, NULL);
    jsonw_close(&j, ']');
    jsonw_bool(&j, "t", true);
    jsonw_bool(&j, "f", false);
    jsonw_null(&j, "n");
    jsonw_uint(&j, "u", UINT64_MAX);
    jsonw_int(&j, "m", INT64_MIN);
    jsonw_close(&j, '}');
    assert_string_equal(b.data,
                        "{\"i\":-5,\"list\":[],\"of\":[{},\"s\",null],\"t\":true,\"f\":false,"
                        "\"n\":null,\"u\":18446744073709551615,\"m\":-9223372036854775808}");
}

static void json_escapes(void **state)
{
    (void)state;
    static const struct {
        const char *data;
        size_t len;
        const char *json;
    } rows[] = {
        {"", 0, "\"\""},
        {"plain /text", 11, "\"plain /text\""},
        {"a\"b\\c", 5, "\"a\\\"b\\\\c\""},
        {"\n\t\r", 3, "\"\\n\\t\\r\""},
        {"\0\x01\x1b\x1f\x7f", 5, "\"\\u0000\\u0001\\u001b\\u001f\\u007f\""},
        {"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", 9, "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\""},
        /* what is no UTF-8 becomes one replacement per bad byte, the rest stays */
        {"a\xff"
         "b",
         3,
         "\"a\xef\xbf\xbd"
         "b\""},
        {"\xe2\x82", 2, "\"\xef\xbf\xbd\xef\xbf\xbd\""},
        {"\xc0\x80", 2, "\"\xef\xbf\xbd\xef\xbf\xbd\""},
        {"\xff\"", 2, "\"\xef\xbf\xbd\\\"\""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_buf_ struct buf b = BUF_INIT(4096);
        struct jsonw j = {.out = &b};
        jsonw_bytes(&j, NULL, rows[i].data, rows[i].len);
        assert_string_equal(b.data, rows[i].json);
    }
}

static void json_escapes_keys(void **state)
{
    (void)state;
    _cleanup_buf_ struct buf b = BUF_INIT(64);
    struct jsonw j = {.out = &b};
    jsonw_open(&j, NULL, '{');
    jsonw_int(&j, "a\"\n", 1);
    jsonw_close(&j, '}');
    assert_string_equal(b.data, "{\"a\\\"\\n\":1}");
}

static void json_base64(void **state)
{
    (void)state;
    static const struct {
        const char *data;
        const char *json;
    } rows[] = {/* RFC 4648, section 10 */
                {"", "\"\""},
                {"f", "\"Zg==\""},
                {"fo", "\"Zm8=\""},
                {"foo", "\"Zm9v\""},
                {"foob", "\"Zm9vYg==\""},
                {"fooba", "\"Zm9vYmE=\""},
                {"foobar", "\"Zm9vYmFy\""},
                {"\xff\xfe\xfd", "\"//79\""},
                {"\xfb\xef", "\"++8=\""}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_buf_ struct buf b = BUF_INIT(64);
        struct jsonw j = {.out = &b};
        jsonw_base64(&j, NULL, rows[i].data, strlen(rows[i].data));
        assert_string_equal(b.data, rows[i].json);
    }
}

static void json_milliseconds(void **state)
{
    (void)state;
    static const struct {
        uint64_t ns;
        const char *json;
    } rows[] = {{0, "0.000"},         {499, "0.000"},
                {500, "0.001"},       {1000, "0.001"},
                {999499, "0.999"},    {999500, "1.000"},
                {12345678, "12.346"}, {3600000000000u, "3600000.000"}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_buf_ struct buf b = BUF_INIT(64);
        struct jsonw j = {.out = &b};
        jsonw_ms(&j, NULL, rows[i].ns);
        assert_string_equal(b.data, rows[i].json);
    }
}

static void json_full_buffer_is_noticed(void **state)
{
    (void)state;
    _cleanup_buf_ struct buf b = BUF_INIT(8);
    struct jsonw j = {.out = &b};
    jsonw_base64(&j, "key", "0123456789", 10);
    assert_true(b.failed);
    assert_true(b.len <= 8);
}

static void utf8_is_strict(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        bool valid;
    } rows[] = {
        {"", true},
        {"ascii", true},
        {"\xc2\x80", true},
        {"\xdf\xbf", true},
        {"\xe0\xa0\x80", true},
        {"\xed\x9f\xbf", true},
        {"\xee\x80\x80", true},
        {"\xf0\x90\x80\x80", true},
        {"\xf4\x8f\xbf\xbf", true},
        {"\x80", false},             /* a tail without a head */
        {"\xc1\xbf", false},         /* overlong */
        {"\xe0\x9f\xbf", false},     /* overlong */
        {"\xf0\x8f\xbf\xbf", false}, /* overlong */
        {"\xed\xa0\x80", false},     /* surrogate */
        {"\xed\xbf\xbf", false},     /* surrogate */
        {"\xf4\x90\x80\x80", false}, /* past U+10FFFF */
        {"\xf5\x80\x80\x80", false},
        {"\xc3", false}, /* cut */
        {"\xe2\x82", false},
        {"\xf0\x9f\x98", false},
        {"\xc3(", false},
        {"\xe2\x82(", false},
        {"\xff", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (jsonw_is_utf8(rows[i].bytes, strlen(rows[i].bytes)) != rows[i].valid)
            fail_msg("row %zu", i);
    assert_true(jsonw_is_utf8("a\0b", 3));
}

/* ---- errors ---- */

static void err_says_it_once(void **state)
{
    (void)state;
    struct cordon_err e = {.hint = "old"};
    assert_int_equal(err_set(&e, CORDON_ERR_HOST, "mount", EPERM, "bind %s", "/data"), -1);
    assert_int_equal(e.code, CORDON_ERR_HOST);
    assert_int_equal(e.sys_errno, EPERM);
    assert_string_equal(e.stage, "mount");
    assert_string_equal(e.message, "bind /data: Operation not permitted");
    assert_string_equal(e.hint, "");
    assert_int_equal(err_prefix(&e, "guest %d", 7), -1);
    assert_string_equal(e.message, "guest 7: bind /data: Operation not permitted");
    assert_int_equal(err_hint(&e, "try %s", "this"), -1);
    assert_string_equal(e.hint, "try this");
    assert_int_equal(err_set(&e, CORDON_ERR_USAGE, "options", 0, "plain"), -1);
    assert_string_equal(e.message, "plain");
}

static void err_takes_no_struct(void **state)
{
    (void)state;
    assert_int_equal(err_set(NULL, 70, "x", EIO, "y"), -1);
    assert_int_equal(err_prefix(NULL, "y"), -1);
    assert_int_equal(err_hint(NULL, "y"), -1);
    assert_int_equal(err_nomem(NULL, "y"), -1);
}

static void err_cuts_long_texts(void **state)
{
    (void)state;
    struct cordon_err e;
    char longer[4096];
    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    err_set(&e, 70, longer, EIO, "%s", longer);
    assert_int_equal(strlen(e.message), sizeof(e.message) - 1);
    assert_int_equal(strlen(e.stage), sizeof(e.stage) - 1);
    err_prefix(&e, "front");
    assert_int_equal(strlen(e.message), sizeof(e.message) - 1);
    assert_memory_equal(e.message, "front: xxx", 10);
    err_prefix(&e, "%s", longer);
    assert_int_equal(strlen(e.message), sizeof(e.message) - 1);
    err_hint(&e, "%s", longer);
    assert_int_equal(strlen(e.hint), sizeof(e.hint) - 1);
}

static void err_out_of_memory(void **state)
{
    (void)state;
    struct cordon_err e;
    assert_int_equal(err_nomem(&e, "plan"), -1);
    assert_int_equal(e.code, CORDON_ERR_INTERNAL);
    assert_int_equal(e.sys_errno, ENOMEM);
    assert_string_equal(e.stage, "plan");
}

/* ---- arena ---- */

static void arena_aligns_and_zeroes(void **state)
{
    (void)state;
    struct arena a = {0};
    for (size_t size = 1; size < 300; size++) {
        unsigned char *p = arena_alloc(&a, size);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % alignof(max_align_t), 0);
        for (size_t i = 0; i < size; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xff, size);
    }
    unsigned char *large = arena_alloc(&a, 1 << 20);
    assert_non_null(large);
    memset(large, 0xff, 1 << 20);
    assert_non_null(arena_alloc(&a, 0));
    arena_done(&a);
    assert_null(a.chunks);
    arena_done(&a);
}

static void arena_strings(void **state)
{
    (void)state;
    struct arena a = {0};
    char *s = arena_strdup(&a, "copy");
    char *f = arena_printf(&a, "%s-%d", s, 42);
    assert_string_equal(s, "copy");
    assert_string_equal(f, "copy-42");
    char *big = arena_printf(&a, "%0*d", 40000, 1);
    assert_int_equal(strlen(big), 40000);
    arena_done(&a);
}

static void arena_without_memory(void **state)
{
    (void)state;
    struct arena a = {0}, full[8] = {{0}};
    /* the first chunks are the process's own memory: used up here, and given back clean */
    for (size_t i = 0; i < ARRAY_SIZE(full); i++)
        memset(arena_alloc(&full[i], 100), 'x', 100);
    allocations_fail = true;
    void *p = arena_alloc(&a, 10);
    char *s = arena_strdup(&a, "x"), *f = arena_printf(&a, "%d", 1);
    allocations_fail = false;
    assert_null(p);
    assert_null(s);
    assert_null(f);
    assert_non_null(arena_alloc(&a, 10));
    /* a failure later on leaves what is there usable */
    allocations_fail = true;
    p = arena_alloc(&a, 1 << 20);
    s = arena_strdup(&a, "fits");
    allocations_fail = false;
    assert_null(p);
    assert_string_equal(s, "fits");
    arena_done(&a);
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < ARRAY_SIZE(full); i++) {
            arena_done(&full[i]);
            const char *fresh = arena_alloc(&full[i], 100);
            for (int k = 0; k < 100; k++)
                assert_int_equal(fresh[k], 0);
        }
    for (size_t i = 0; i < ARRAY_SIZE(full); i++)
        arena_done(&full[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buf_holds_its_maximum),
        cmocka_unit_test(buf_refuses_lengths_that_wrap),
        cmocka_unit_test(buf_grows),
        cmocka_unit_test(buf_copies_every_length),
        cmocka_unit_test(buf_writes_numbers),
        cmocka_unit_test(buf_printf_is_bounded),
        cmocka_unit_test(buf_take_gives_a_string),
        cmocka_unit_test(buf_without_memory),
        cmocka_unit_test(json_nests_and_separates),
        cmocka_unit_test(json_escapes),
        cmocka_unit_test(json_escapes_keys),
        cmocka_unit_test(json_base64),
        cmocka_unit_test(json_milliseconds),
        cmocka_unit_test(json_full_buffer_is_noticed),
        cmocka_unit_test(utf8_is_strict),
        cmocka_unit_test(err_says_it_once),
        cmocka_unit_test(err_takes_no_struct),
        cmocka_unit_test(err_cuts_long_texts),
        cmocka_unit_test(err_out_of_memory),
        cmocka_unit_test(arena_aligns_and_zeroes),
        cmocka_unit_test(arena_strings),
        cmocka_unit_test(arena_without_memory),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
