/* The judge's pure parts: comparing, reading cases, verdicts and scores, finding a project's tests.
 */
#include "grade/compare.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "grade/detect.h"
#include "grade/judge_internal.h"
#include "grade/report.h"

/* ---- comparing ---- */

static void test_compare(void **state)
{
    static const struct {
        const char *how, *expected, *actual;
        enum compare_answer answer;
    } rows[] = {
        {"exact", "a\n", "a\n", COMPARE_SAME},
        {"exact", "a\n", "a", COMPARE_LAYOUT},
        {"exact", "a\n", "b\n", COMPARE_OTHER},
        {"exact", "", "", COMPARE_SAME},
        {"trimmed", "a b\nc\n", "a b  \r\nc", COMPARE_SAME},
        {"trimmed", "a\n\n\n", "a", COMPARE_SAME},
        {"trimmed", "a\n\nb", "a\nb", COMPARE_LAYOUT},
        {"trimmed", " a", "a", COMPARE_LAYOUT},
        {"trimmed", "a", "", COMPARE_OTHER},
        {"trimmed", "", "\n \n", COMPARE_SAME},
        {"trimmed", "A", "a", COMPARE_OTHER},
        {"token", "a b\n", "\n a\n\nb ", COMPARE_SAME},
        {"token", "a b", "ab", COMPARE_OTHER},
        {"token", "a", "a a", COMPARE_OTHER},
        {"float", "1.0", "1.0000001", COMPARE_SAME},
        {"float", "1.0", "1.00001", COMPARE_OTHER},
        {"float", "1e9", "1000000001", COMPARE_SAME}, /* relatively */
        {"float", "0", "-0.0000005", COMPARE_SAME},
        {"float", "x 1", "x 1.0", COMPARE_SAME},
        {"float", "x", "y", COMPARE_OTHER},
        {"float", "1", "nan", COMPARE_OTHER},
        {"float", "nan", "nan", COMPARE_SAME}, /* the same word */
        {"float", "1", "inf", COMPARE_OTHER},
        {"float", "16", "0x10", COMPARE_OTHER},
        {"float", "1", "1e", COMPARE_OTHER},
        {"float", "1", "1e99999", COMPARE_OTHER},
        {"float", "1", ".", COMPARE_OTHER},
        {"float", "1", "1,0", COMPARE_OTHER},
        {"float:0", "1", "1.0", COMPARE_SAME},
        {"float:0", "1", "1.0000000001", COMPARE_OTHER},
        {"float:0.5", "10", "10.4", COMPARE_SAME},
        {"float:0", "1000000000000000000", "1000000000000000001", COMPARE_OTHER},
        {"float:1e-20", "-1000000000000000001", "-1000000000000000000", COMPARE_OTHER},
        {"float:1e-15", "1000000000000000000", "1000000000000000001", COMPARE_SAME},
        {"float:1", "1000000000000000000", "999999999999999999", COMPARE_SAME},
        {"float:0", "1000000000000000000", "+001000000000000000000", COMPARE_SAME},
        {"float:0", "0", "-0", COMPARE_SAME},
        {"float:1", "1", "-1", COMPARE_OTHER},
        {"float:2", "1", "-1", COMPARE_SAME},
        {"unordered", "a\nb\na\n", "a\na \nb", COMPARE_SAME},
        {"unordered", "a\nb\n", "a\nb\nb\n", COMPARE_OTHER},
        {"unordered", "a\n\nb\n", "a\nb\n", COMPARE_OTHER},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct compare c;
        struct cordon_err err;
        char why[200];
        assert_int_equal(compare_parse(rows[i].how, &c, &err), 0);
        enum compare_answer answer =
            compare_bytes(&c, rows[i].expected, strlen(rows[i].expected), rows[i].actual,
                          strlen(rows[i].actual), why, sizeof(why));
        if (answer != rows[i].answer)
            fail_msg("%s: '%s' and '%s' gave %d", rows[i].how, rows[i].expected, rows[i].actual,
                     answer);
        assert_int_equal(answer == COMPARE_SAME, why[0] == '\0');
    }
}

static void test_compare_says_where(void **state)
{
    struct compare c = {.kind = COMPARE_TRIMMED};
    char why[200];
    (void)state;
    compare_bytes(&c, "a\nb\n", 4, "a\nc\x1b[2J\n", 8, why, sizeof(why));
    assert_string_equal(why, "line 2: expected 'b', got 'c?[2J'");
    compare_bytes(&c, "a\nb\n", 4, "a\n", 2, why, sizeof(why));
    assert_string_equal(why, "line 2: expected 'b', got the end of the output");
    compare_bytes(&c, "a", 1, "a\nb", 3, why, sizeof(why));
    assert_string_equal(why, "line 2: expected the end of the output, got 'b'");
    c.kind = COMPARE_EXACT;
    compare_bytes(&c, "abc", 3, "abd", 3, why, sizeof(why));
    assert_string_equal(why, "byte 3: expected 'c', got 'd'");
    /* NULs are bytes like any other */
    assert_int_equal(compare_bytes(&c, "a\0b", 3, "a\0c", 3, NULL, 0), COMPARE_OTHER);
}

static void test_compare_parse(void **state)
{
    struct compare c;
    struct cordon_err err;
    (void)state;
    assert_int_equal(compare_parse("float:1e-9", &c, &err), 0);
    assert_true(c.kind == COMPARE_FLOAT && c.tolerance == 1e-9);
    assert_int_equal(compare_parse("/bin/sh", &c, &err), 0);
    assert_int_equal(c.kind, COMPARE_CHECKER);
    static const char *const bad[] = {"float:",    "float:x", "float:-1", "float:nan",
                                      "float:inf", "tokens",  "",         "/nonexistent/checker"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_int_equal(compare_parse(bad[i], &c, &err), -1);
        assert_int_equal(err.code, CORDON_ERR_USAGE);
        assert_true(err.hint[0]);
    }
}

/* ---- cases ---- */

static int read_json(const char *text, bool lines, struct cases *ret, struct cordon_err *err)
{
    *ret = (struct cases){0};
    return cases_from_json(ret, "c.json", "/data", text, strlen(text), lines, err);
}

static void test_cases_document(void **state)
{
    struct cases c;
    struct cordon_err err;
    (void)state;
    assert_int_equal(
        read_json("{\"groups\": [{\"name\": \"g\", \"points\": 10}], \"memory_limit\": \"64M\",\n"
                  " \"cases\": [{\"input\": \"1\\u0000\", \"output_file\": \"a/b.out\", \"group\": "
                  "\"g\", \"time_limit\": 0.25},\n"
                  "  {\"name\": \"two\", \"input_file\": \"two..in\", \"points\": 2.5, "
                  "\"memory_limit\": 1048576}],\n"
                  " \"compare\": \"token\", \"interactor\": \"talk.py\"}",
                  false, &c, &err),
        0);
    assert_int_equal(c.n, 2);
    assert_string_equal(c.rows[0].name, "1");
    assert_string_equal(c.rows[0].where, "c.json:2");
    assert_int_equal(c.rows[0].input.len, 2);
    assert_string_equal(c.rows[0].expected.path, "/data/a/b.out");
    assert_true(c.rows[0].time.num == 250000000u && str_eq(c.rows[0].time.written, "250ms"));
    assert_true(c.rows[0].memory.num == (64u << 20));
    assert_string_equal(c.rows[1].input.path, "/data/two..in");
    assert_true(c.rows[1].points == 2.5 && !c.rows[1].has_expected && !c.rows[1].group);
    assert_true(c.rows[1].memory.num == (1u << 20) && !c.rows[1].time.written);
    assert_string_equal(c.compare, "token");
    assert_string_equal(c.interactor, "/data/talk.py");
    assert_int_equal(cases_check(&c, false, &err), -1);
    assert_non_null(strstr(err.message, "c.json:2: /data/a/b.out: No such file"));
    c.rows[0].expected = (struct cases_text){.path = "/etc/passwd", .folder = "/etc"};
    c.rows[1].input = (struct cases_text){.path = "/etc/passwd", .folder = "/"};
    assert_int_equal(cases_check(&c, false, &err), 0);
    assert_int_equal(cases_check(&c, true, &err), -1);
    assert_non_null(strstr(err.message, "c.json:3: no expected output"));
    cases_done(&c);
}

static void test_cases_refused(void **state)
{
    static const struct {
        const char *text;
        bool lines;
        const char *said;
    } rows[] = {
        {"", false, "c.json:1"},
        {"[{\"input_file\": \"/etc/passwd\"}]", false, "\"input_file\": /etc/passwd is not below"},
        {"[{\"output_file\": \"a/..\"}]", false, "\"output_file\": a/.. is not below"},
        {"3", false, "neither a list"},
        {"{}", false, "no list \"cases\""},
        {"{\"cases\": {}}", false, "cases are a list"},
        {"[[]]", false, "a case is an object"},
        {"[{\"input\": 1}]", false, "is an integer, not a string"},
        {"[{\"inpt\": \"\"}]", false, "unknown key \"inpt\""},
        {"[{\"input\": \"\", \"input_file\": \"x\"}]", false, "the same thing"},
        {"[{\"points\": -1}]", false, "points"},
        {"[{\"points\": \"1\"}]", false, "points"},
        {"[{\"time_limit\": \"0s\"}]", false, "duration"},
        {"[{\"time_limit\": true}]", false, "a time"},
        {"[{\"memory_limit\": \"0\"}]", false, "size"},
        {"[{\"name\": \"a\\u0000b\"}]", false, "name"},
        {"{\"cases\": [{\"group\": \"x\"}], \"groups\": [{\"name\": \"y\"}]}", false,
         "not in the list of groups"},
        {"{\"cases\": [], \"groups\": [{\"name\": \"y\"}, {\"name\": \"y\"}]}", false, "twice"},
        {"{\"cases\": [], \"groups\": [{}]}", false, "has a name"},
        {"{\"cases\": [{\"group\": \"x\"}], \"groups\": [{\"name\": \"x\"}, {\"name\": "
         "\"y\"}]}",
         false, "the group 'y' has no case"},
        {"{\"cases\": [], \"limit\": 1}", false, "unknown key \"limit\""},
        {"{\"input\": \"\"}\n\n{\"input\": \"}", true, "c.json:3:"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct cases c;
        struct cordon_err err = {0};
        assert_int_equal(read_json(rows[i].text, rows[i].lines, &c, &err), -1);
        assert_int_equal(err.code, CORDON_ERR_CONFIG);
        if (!strstr(err.message, rows[i].said))
            fail_msg("%s: said '%s', not '%s'", rows[i].text, err.message, rows[i].said);
        cases_done(&c);
    }
}

static void test_cases_order(void **state)
{
    (void)state;
    assert_true(cases_order("2", "10") < 0);
    assert_true(cases_order("a2b", "a10b") < 0);
    assert_true(cases_order("a10", "a9") > 0);
    assert_true(cases_order("007", "7") == 0);
    assert_true(cases_order("99999999999999999999998", "99999999999999999999999") < 0);
    assert_true(cases_order("a", "b") < 0 && cases_order("", "a") < 0);
}

/* ---- verdicts and scores ---- */

static void test_helper_words(void **state)
{
    static const struct {
        enum verdict verdict;
        int exit_code;
        const char *said;
        enum judge_word word;
        double fraction;
    } rows[] = {
        {VERDICT_OK, 0, "", JUDGE_AC, 1},
        {VERDICT_NONZERO_EXIT, 1, "", JUDGE_WA, 0},
        {VERDICT_NONZERO_EXIT, 2, "", JUDGE_PE, 0},
        {VERDICT_NONZERO_EXIT, 3, "", JUDGE_SE, 0},
        {VERDICT_NONZERO_EXIT, 7, "points 0.25 some", JUDGE_WA, 0.25},
        {VERDICT_NONZERO_EXIT, 7, "1 all", JUDGE_AC, 1},
        {VERDICT_NONZERO_EXIT, 7, "a warning\npoints 0.5", JUDGE_WA, 0.5},
        {VERDICT_NONZERO_EXIT, 7, "no points 0.5", JUDGE_SE, 0},
        {VERDICT_NONZERO_EXIT, 7, "0.25 points 1\n", JUDGE_WA, 0.25},
        {VERDICT_NONZERO_EXIT, 7, "got: x\npoints 1\npoints 0.25", JUDGE_SE, 0},
        {VERDICT_NONZERO_EXIT, 7, "points 0.25 got: x\npoints 1", JUDGE_SE, 0},
        {VERDICT_NONZERO_EXIT, 7, "0.25 got: x\npoints 1", JUDGE_SE, 0},
        {VERDICT_NONZERO_EXIT, 7, "points none\npoints 1", JUDGE_SE, 0},
        {VERDICT_NONZERO_EXIT, 7, "points 1.5", JUDGE_SE, 0},
        {VERDICT_NONZERO_EXIT, 7, "points nan", JUDGE_SE, 0},
        {VERDICT_NONZERO_EXIT, 7, "", JUDGE_SE, 0},
        {VERDICT_NONZERO_EXIT, 99, "", JUDGE_SE, 0},
        {VERDICT_SIGNALED, 139, "", JUDGE_SE, 0},
        {VERDICT_TIME_LIMIT, 124, "", JUDGE_SE, 0},
        {VERDICT_SANDBOX_ERROR, 70, "", JUDGE_SE, 0},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct result r = {.verdict = rows[i].verdict, .exit_code = rows[i].exit_code};
        double fraction;
        r.out[1].data = rows[i].said;
        r.out[1].len = strlen(rows[i].said);
        assert_int_equal(judge_word_of_helper(&r, "python", &fraction), rows[i].word);
        assert_true(fraction == rows[i].fraction);
    }
}

static void test_helper_crashes(void **state)
{
    static const struct {
        const char *language, *said;
        int exit_code;
        enum judge_word word;
    } rows[] = {
        {"python", "Traceback (most recent call last):\n  File \"c.py\"", 1, JUDGE_SE},
        {"python", "warning\n  File \"c.py\", line 1\nSyntaxError: no", 1, JUDGE_SE},
        {"python", "a Traceback (most recent call last):", 1, JUDGE_WA},
        {"python", "panic: ", 2, JUDGE_PE},
        {"javascript", "Error: x\n    at y\n\nNode.js v20.1.0\n", 1, JUDGE_SE},
        {"javascript", "wrong", 1, JUDGE_WA},
        {"go", "panic: x\n\ngoroutine 1 [running]:\n", 2, JUDGE_SE},
        {"go", "goroutine", 2, JUDGE_PE},
        {"java", "Exception in thread \"main\" java.lang.Error\n", 1, JUDGE_SE},
        {"java", "Exception", 1, JUDGE_WA},
        {NULL, "Traceback (most recent call last):\n", 1, JUDGE_WA},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct result r = {.verdict = VERDICT_NONZERO_EXIT, .exit_code = rows[i].exit_code};
        double fraction;
        r.out[1].data = rows[i].said;
        r.out[1].len = strlen(rows[i].said);
        if (judge_word_of_helper(&r, rows[i].language, &fraction) != rows[i].word)
            fail_msg("row %zu: %s", i, rows[i].said);
    }
}

static void sum_up(const char *const *verdicts, const double *fractions, const char *const *groups,
                   size_t n, struct grade_outcome *o)
{
    static struct cases_row rows[8];
    static struct grade_test tests[8];
    static struct cases_group list[] = {{"g", -1}, {"h", 50}};
    struct cases cases = {.rows = rows, .n = n, .groups = list, .n_groups = groups ? 2 : 0};
    struct cordon_err err;
    *o = (struct grade_outcome){.tests = tests, .n_tests = n};
    for (size_t i = 0; i < n; i++) {
        rows[i] = (struct cases_row){.points = 2, .group = groups ? groups[i] : NULL};
        tests[i] = (struct grade_test){.points = 2,
                                       .group = rows[i].group,
                                       .verdict = verdicts[i],
                                       .status = !verdicts[i]                ? GRADE_NOT_RUN
                                                 : str_eq(verdicts[i], "AC") ? GRADE_PASSED
                                                                             : GRADE_FAILED};
    }
    assert_int_equal(judge_sum(o, &cases, fractions, &err), 0);
}

static void test_scores(void **state)
{
    struct grade_outcome o;
    (void)state;
    sum_up((const char *const[]){"AC", "WA", "AC"}, (const double[]){1, 0.5, 1}, NULL, 3, &o);
    assert_true(o.has_score && o.score == 5 && o.points == 6 && str_eq(o.verdict, "WA"));
    grade_outcome_done(&o);
    sum_up((const char *const[]){"AC", NULL, NULL}, (const double[]){1, 0, 0}, NULL, 3, &o);
    assert_true(str_eq(o.verdict, "AC") && o.passed == 1 && o.not_run == 2 && o.score == 2);
    grade_outcome_done(&o);
    /* a subtask counts as a whole, by its worst case */
    sum_up((const char *const[]){"AC", "WA", "AC", "TLE"}, (const double[]){1, 0.5, 1, 0},
           (const char *const[]){"g", "g", "h", NULL}, 4, &o);
    assert_true(o.groups[0].score == 2 && o.groups[0].points == 4 && o.groups[1].score == 50);
    assert_true(o.score == 52 && o.points == 4 + 50 + 2);
    grade_outcome_done(&o);
    sum_up((const char *const[]){"AC", "WA", "SE"}, (const double[]){1, 0, 0}, NULL, 3, &o);
    assert_true(!o.has_score && o.score == 0 && str_eq(o.verdict, "SE"));
    grade_outcome_done(&o);
}

static void test_keep_never_splits_a_character(void **state)
{
    struct grade_outcome o = {0};
    struct grade_bytes b;
    (void)state;
    assert_int_equal(grade_keep(&o, "a\xe2\x82\xac z", 6, 3, &b), 0);
    assert_true(b.len == 1 && b.truncated && str_eq(b.data, "a"));
    assert_int_equal(grade_keep(&o, "abc", 3, 3, &b), 0);
    assert_true(b.len == 3 && !b.truncated);
    grade_outcome_done(&o);
}

/* ---- a project's tests ---- */

static char folder[] = "/tmp/cordon-detect-XXXXXX";

static void put(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    char *slash = strrchr(path + strlen(folder) + 1, '/');
    if (slash) {
        *slash = '\0';
        mkdir(path, 0755);
        *slash = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void drop(const char *name)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    unlink(path);
    char *slash = strrchr(path + strlen(folder) + 1, '/');
    if (slash) {
        *slash = '\0';
        rmdir(path);
    }
}

static void test_detect(void **state)
{
    static const struct {
        const char *file, *text, *name;
    } rows[] = {
        {"Cargo.toml", "", "cargo test"},
        {"go.mod", "", "go test"},
        {"package.json", "{\"scripts\": {\"test\": \"jest\"}}", "npm test"},
        {"pytest.ini", "", "pytest"},
        {"pyproject.toml", "[tool.pytest.ini_options]\n", "pytest"},
        {"build/CTestTestfile.cmake", "", "ctest"},
        {"Makefile", "all:\ncheck: all\n", "make check"},
        {"GNUmakefile", "test:\n", "make test"},
        {"pom.xml", "", "mvn test"},
        {"build.gradle", "", "gradle test"},
        {"t/a.t", "", "prove"},
        {"Rakefile", "", "rake test"},
        {"test/a.test.js", "", "node --test"},
        {"package.json", "{\"scripts\": {\"test\": \"echo no test specified\"}}", NULL},
        {"package.json", "not json", NULL},
        {"Makefile", "checker:\ntests:\n\ttest:\n", NULL},
        {"README", "test:\n", NULL},
    };
    (void)state;
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct arena arena = {0};
        struct detect found = {0};
        struct cordon_err err;
        put(rows[i].file, rows[i].text);
        int r = detect_tests(folder, NULL, "/x.xml", &arena, &found, &err);
        if (rows[i].name) {
            if (r < 0 || !str_eq(found.name, rows[i].name))
                fail_msg("%s gave %s", rows[i].file, r < 0 ? err.message : found.name);
            size_t n = 0;
            while (found.argv[n + 1])
                n++;
            assert_int_equal(found.writes_junit, strstr(found.argv[n], "/x.xml") != NULL);
        } else {
            assert_int_equal(r, -1);
            assert_int_equal(err.code, CORDON_ERR_USAGE);
        }
        drop(rows[i].file);
        arena_done(&arena);
    }
    /* a virtual environment without pytest */
    struct arena arena = {0};
    struct detect found;
    struct cordon_err err;
    put("tests/test_a.py", "");
    assert_int_equal(detect_tests(folder, "/nonexistent", NULL, &arena, &found, &err), 0);
    assert_string_equal(found.name, "unittest");
    assert_string_equal(found.argv[3], "discover");
    drop("tests/test_a.py");
    arena_done(&arena);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compare),       cmocka_unit_test(test_compare_says_where),
        cmocka_unit_test(test_compare_parse), cmocka_unit_test(test_cases_document),
        cmocka_unit_test(test_cases_refused), cmocka_unit_test(test_cases_order),
        cmocka_unit_test(test_helper_words),  cmocka_unit_test(test_helper_crashes),
        cmocka_unit_test(test_scores),        cmocka_unit_test(test_keep_never_splits_a_character),
        cmocka_unit_test(test_detect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
