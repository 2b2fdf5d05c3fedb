/* Problems, samples and tasks as lines of JSON: a line that is broken says so and stops nobody. */
#include "grade/bulk.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"

#define HUMANEVAL                                                                                  \
    "{\"task_id\":\"H/0\",\"prompt\":\"def f(x):\\n\",\"entry_point\":\"f\","                      \
    "\"canonical_solution\":\"    return x\\n\",\"test\":\"def check(c):\\n    assert c(1) == "    \
    "1\"}\n"
#define MBPP "{\"task_id\":7,\"code\":\"def f(): pass\",\"test_list\":[\"assert f() is None\"]}\n"

static int read_problems(struct bulk *b, const char *text, size_t len, struct cordon_err *err)
{
    char path[64];
    int fd = memfd_create("problems", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, len), (ssize_t)len);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int r = bulk_read_problems(b, path, err);
    close(fd);
    return r;
}

static void test_problems(void **state)
{
    struct bulk b = {.format = BULK_HUMANEVAL};
    struct cordon_err err = {0};
    (void)state;
    static const char text[] = "\n  \t\r\n" HUMANEVAL "\n";
    assert_int_equal(read_problems(&b, text, sizeof(text) - 1, &err), 0);
    assert_int_equal(b.n_problems, 1);
    assert_string_equal(b.problems[0].entry, "f");
    assert_non_null(strstr(b.problems[0].tests, "check(f)"));
    assert_ptr_equal(bulk_find(&b, "H/0"), &b.problems[0]);
    assert_null(bulk_find(&b, "H/1"));
    struct bulk_item item;
    assert_int_equal(bulk_next(&b, &item, &err), 1);
    assert_null(item.broken);
    assert_string_equal(item.task.source, "def f(x):\n    return x\n");
    bulk_item_done(&item);
    assert_int_equal(bulk_next(&b, &item, &err), 0);
    arena_done(&b.arena);

    b = (struct bulk){.format = BULK_MBPP};
    assert_int_equal(read_problems(&b, MBPP, strlen(MBPP), &err), 0);
    assert_true(b.problems[0].id_is_number);
    assert_string_equal(b.problems[0].tests, "assert f() is None\n");
    arena_done(&b.arena);
}

static void test_problems_refused(void **state)
{
    static const struct {
        enum bulk_format format;
        const char *text, *words;
    } rows[] = {
        {BULK_HUMANEVAL, "", "no problems"},
        {BULK_HUMANEVAL, "\n\n", "no problems"},
        {BULK_HUMANEVAL, "{", ":1"},
        {BULK_HUMANEVAL, HUMANEVAL "[]\n", ":2"},
        {BULK_HUMANEVAL, HUMANEVAL "\n" MBPP, ":3"},
        {BULK_HUMANEVAL, HUMANEVAL HUMANEVAL, "twice"},
        {BULK_HUMANEVAL, "{\"task_id\":\"a\",\"prompt\":3,\"test\":\"\",\"entry_point\":\"f\"}",
         ":1"},
        {BULK_HUMANEVAL, "{\"task_id\":null,\"prompt\":\"\",\"test\":\"\",\"entry_point\":\"f\"}",
         ":1"},
        {BULK_HUMANEVAL, "{\"task_id\":-1,\"prompt\":\"\",\"test\":\"\",\"entry_point\":\"f\"}",
         ":1"},
        {BULK_HUMANEVAL,
         "{\"task_id\":\"a\",\"prompt\":\"\\u0000\",\"test\":\"\",\"entry_point\":\"f\"}", ":1"},
        {BULK_MBPP, "{\"task_id\":1,\"code\":\"\",\"test_list\":\"assert\"}", ":1"},
        {BULK_MBPP, "{\"task_id\":1,\"test_list\":[]}", ":1"},
        {BULK_MBPP, "{\"task_id\":1,\"code\":\"\",\"test_list\":[\"assert f()\",1]}", ":1"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct bulk b = {.format = rows[i].format};
        struct cordon_err err = {0};
        assert_int_equal(read_problems(&b, rows[i].text, strlen(rows[i].text), &err), -1);
        if (!strstr(err.message, rows[i].words))
            fail_msg("row %zu: %s", i, err.message);
        arena_done(&b.arena);
    }
}

/* What each line came to: '.' fine, 'b' broken, 'u' no program; a broken one names its line. */
static void read_items(struct bulk *b, const char *text, size_t len, char *ret)
{
    struct cordon_err err = {0};
    struct bulk_item item;
    int r;
    b->items_file = fmemopen((char *)text, len, "r");
    b->items_name = "items";
    assert_non_null(b->items_file);
    while ((r = bulk_next(b, &item, &err)) == 1) {
        *ret++ = item.broken ? 'b' : item.unfit ? 'u' : '.';
        if (item.broken && !strchr(item.broken, ':'))
            fail_msg("no place: %s", item.broken);
        if (!item.broken) {
            assert_non_null(item.id);
            assert_non_null(item.task.source);
            assert_true(item.task.tests || item.cases);
        }
        bulk_item_done(&item);
    }
    *ret = '\0';
    assert_int_equal(r, 0);
    fclose(b->items_file);
    free(b->line);
    b->line = NULL;
}

/* What becomes of each line, a letter for each, and how many lines there were. */
static void check_samples(const char *text, size_t len, const char *expected, size_t lines)
{
    struct bulk b = {.format = BULK_HUMANEVAL};
    struct cordon_err err = {0};
    char seen[32];
    assert_int_equal(read_problems(&b, HUMANEVAL, strlen(HUMANEVAL), &err), 0);
    read_items(&b, text, len, seen);
    assert_string_equal(seen, expected);
    assert_int_equal(b.line_number, lines);
    arena_done(&b.arena);
}

static void test_samples(void **state)
{
    static const char text[] = "{\"task_id\":\"H/0\",\"completion\":\"    return 1\\n\"}\n"
                               "\n"
                               "{\"task_id\":\"H/1\",\"completion\":\"\"}\n"
                               "{\"task_id\":\"H/0\"}\n"
                               "{\"task_id\":\"H/0\",\"completion\":[]}\n"
                               "{\"completion\":\"\"}\n"
                               "{\n"
                               "[]\n"
                               "null\n"
                               "\xff\xfe\n"
                               "{\"task_id\":\"H/0\",\"completion\":\"\"} trailing\n"
                               "{\"task_id\":\"H/0\",\"completion\":\"last\"}";
    (void)state;
    check_samples(text, sizeof(text) - 1, ".bbubbbbbb.", 12);
}

/* What a model can write does not make its line one of those that do not count. */
static void test_samples_that_are_no_program(void **state)
{
    static const char text[] =
        "{\"task_id\":\"H/0\",\"completion\":\"a\\u0000b\"}\n"
        "{\"task_id\":\"H/0\",\"completion\":\"a\\ud800 \\\"}, {\\\\\"}\n"
        "{ \"x\" : [1, {\"completion\": \"]\"}] , \"completion\" : \"\xff\" , \"task_id\" : "
        "\"H/0\" }\n"
        "{\"task_id\":\"H/0\",\"completion\":null}\n"
        "{\"task_id\":\"H/9\",\"completion\":\"\\ud800\"}\n"
        "{\"task_id\":\"H/0\\ud800\",\"completion\":\"\\ud800\"}\n"
        "{\"task_id\":\"H/0\",\"task_id\":\"H/0\",\"completion\":\"\\ud800\"}\n"
        "{\"task_id\":\"H/0\",\"completion\":\"\\ud800\",}\n"
        "{\"task_id\":\"H/0\",\"completion\":\"\\ud800\n"
        "{\"task_id\":\"H/0\",\"completion\":\"x\",\"y\":\"\\ud800\"}\n"
        "{\"task_id\":\"H/0\",\"x\":{\"completion\":\"\\ud800\"}}\n";
    (void)state;
    check_samples(text, sizeof(text) - 1, "uuuubbbbbbb", 11);
}

static void test_tasks(void **state)
{
    static const char text[] =
        "{\"id\":\"a\",\"code\":\"x=1\",\"tests\":\"assert x\"}\n"
        "{\"task_id\":3,\"code\":\"x=1\",\"tests\":[\"assert x\",\"assert x == 1\"]}\n"
        "{\"id\":\"a\",\"code\":\"x=1\",\"cases\":[]}\n"
        "{\"id\":\"a\",\"files\":{\"b.py\":\"y=1\",\"main.py\":\"x=1\"},\"tests\":\"assert x\"}\n"
        "{\"id\":\"a\",\"code\":\"x\",\"tests\":\"t\",\"limits\":{\"time_limit\":\"1s\"}}\n"
        "{\"id\":\"a\",\"code\":\"x\",\"tests\":\"t\",\"limits\":{\"time_limit\":-1}}\n"
        "{\"id\":\"a\",\"code\":\"x\",\"tests\":\"t\",\"limits\":{\"network\":\"host\"}}\n"
        "{\"id\":\"a\",\"code\":\"x\",\"tests\":\"t\",\"limits\":{\"allow_read\":[\"/\"]}}\n"
        "{\"id\":\"a\",\"code\":\"x\",\"tests\":\"t\",\"language\":\"c\"}\n"
        "{\"id\":\"a\",\"code\":\"x\"}\n"
        "{\"id\":\"a\",\"tests\":\"t\"}\n"
        "{\"code\":\"x\",\"tests\":\"t\"}\n"
        "{\"id\":[],\"code\":{},\"tests\":7}\n"
        "{\"id\":\"a\",\"files\":{\"a.py\":{}},\"tests\":\"t\"}\n"
        "{\"id\":\"a\",\"code\":\"x\",\"tests\":{}}\n"
        "{\"id\":\"a\",\"code\":\"x\",\"tests\":\"t\",\"cases\":[]}\n"
        "{\"id\":\"a\",\"code\":\"x\",\"tests\":[\"t\",1]}\n"
        "{\"id\":\"a\",\"files\":{\"main.py\":\"x\",\"b.txt\":7},\"tests\":\"t\"}\n"
        "{\"id\":\"a\",\"code\":\"\\u0000\",\"tests\":\"t\"}\n"
        "{\"id\":\"a\",\"code\":\"\\ud800\",\"cases\":[]}\n"
        "{\"id\":\"a\",\"code\":\"\\ud800\"}\n";
    struct bulk b = {.format = BULK_TASKS, .input = {.no_discovery = true}};
    char seen[32];
    (void)state;
    read_items(&b, text, sizeof(text) - 1, seen);
    assert_string_equal(seen, ".....bbbbbbbbubbbbuub");
    arena_done(&b.arena);
}

static void test_lines_too_large_and_too_deep(void **state)
{
    struct bulk b = {.format = BULK_TASKS, .input = {.no_discovery = true}};
    size_t deep = 100000, large = BULK_LINE_MAX + 1, at = 0;
    static const char good[] = "{\"id\":\"a\",\"code\":\"x\",\"tests\":\"t\"}\n";
    char *text = malloc(deep + large + sizeof(good) + 4), seen[8];
    (void)state;
    assert_non_null(text);
    memset(text, '[', deep);
    at = deep;
    text[at++] = '\n';
    text[at++] = '"';
    memset(text + at, 'x', large);
    at += large;
    text[at++] = '"';
    text[at++] = '\n';
    memcpy(text + at, good, sizeof(good) - 1);
    read_items(&b, text, at + sizeof(good) - 1, seen);
    assert_string_equal(seen, "bb.");
    free(text);
    arena_done(&b.arena);
}

static void test_pass_at(void **state)
{
    struct bulk_problem problems[] = {{.n = 4, .passed = 1}, {.n = 1, .passed = 1}, {.n = 0}};
    struct bulk b = {.problems = problems, .n_problems = ARRAY_SIZE(problems)};
    (void)state;
    assert_true(bulk_pass_at(&b, 1) == (0.25 + 1) / 2);
    assert_true(bulk_pass_at(&b, 4) == 1);
    assert_true(bulk_pass_at(&b, 5) == -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_problems), cmocka_unit_test(test_problems_refused),
        cmocka_unit_test(test_samples),  cmocka_unit_test(test_samples_that_are_no_program),
        cmocka_unit_test(test_tasks),    cmocka_unit_test(test_lines_too_large_and_too_deep),
        cmocka_unit_test(test_pass_at),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
