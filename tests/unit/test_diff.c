/* Line differences and patches: every pair of texts must come back from its own hunks. */
#include "workspace/diff.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/util.h"
#include "workspace/patch.h"
#include "workspace/sha1.h"

static uint64_t random_state = 88172645463325252u;

static unsigned random_below(unsigned n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (unsigned)(random_state >> 33) % n;
}

static void make(const char *a, const char *b, struct diff *d)
{
    struct cordon_err err;
    assert_int_equal(diff_make(a, strlen(a), b, strlen(b), d, &err), 0);
}

/* What is not marked must be the same on both sides, in order. */
static void check_marks(const struct diff *d)
{
    size_t i = 0, j = 0;
    for (;;) {
        while (i < d->a.n && d->a.changed[i])
            i++;
        while (j < d->b.n && d->b.changed[j])
            j++;
        if (i == d->a.n || j == d->b.n)
            break;
        assert_int_equal(d->a.lines[i].len, d->b.lines[j].len);
        assert_memory_equal(d->a.lines[i].data, d->b.lines[j].data, d->a.lines[i].len);
        i++, j++;
    }
    assert_true(i == d->a.n && j == d->b.n);
}

static void hunks_equal(const char *a, const char *b, const char *expected)
{
    struct diff d;
    _cleanup_buf_ struct buf out = BUF_INIT(1 << 20);
    make(a, b, &d);
    check_marks(&d);
    diff_hunks(&d, &out);
    assert_string_equal(out.data ? out.data : "", expected);
    diff_done(&d);
}

static void known_hunks(void **state)
{
    (void)state;
    hunks_equal("", "", "");
    hunks_equal("a\n", "a\n", "");
    hunks_equal("", "a\n", "@@ -0,0 +1 @@\n+a\n");
    hunks_equal("a\n", "", "@@ -1 +0,0 @@\n-a\n");
    hunks_equal("a", "a\n", "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n");
    hunks_equal("a\nb\nc\n", "a\nc\n", "@@ -1,3 +1,2 @@\n a\n-b\n c\n");
    hunks_equal("1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\nx\n6\n7\n8\n9\n",
                "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+x\n 6\n 7\n 8\n");
    /* six lines between changes are one hunk, seven are two */
    hunks_equal("a\n1\n2\n3\n4\n5\n6\nb\n", "A\n1\n2\n3\n4\n5\n6\nB\n",
                "@@ -1,8 +1,8 @@\n-a\n+A\n 1\n 2\n 3\n 4\n 5\n 6\n-b\n+B\n");
    hunks_equal("a\n1\n2\n3\n4\n5\n6\n7\nb\n", "A\n1\n2\n3\n4\n5\n6\n7\nB\n",
                "@@ -1,4 +1,4 @@\n-a\n+A\n 1\n 2\n 3\n@@ -6,4 +6,4 @@\n 5\n 6\n 7\n-b\n+B\n");
    /* an added block stands at its last place */
    hunks_equal("f\n}\n", "f\n}\nf\n}\n", "@@ -1,2 +1,4 @@\n f\n }\n+f\n+}\n");
}

/* The number of changed lines is that of a longest common subsequence as long as effort allows. */
static size_t lcs(const char *a, size_t n, const char *b, size_t m)
{
    static size_t row[2][64];
    memset(row, 0, sizeof(row));
    for (size_t i = 1; i <= n; i++)
        for (size_t j = 1; j <= m; j++)
            row[i & 1][j] = a[2 * i - 2] == b[2 * j - 2]
                                ? row[(i - 1) & 1][j - 1] + 1
                                : MAX(row[(i - 1) & 1][j], row[i & 1][j - 1]);
    return row[n & 1][m];
}

static void small_ones_are_minimal(void **state)
{
    (void)state;
    for (int round = 0; round < 20000; round++) {
        char a[128], b[128];
        size_t n = random_below(20), m = random_below(20);
        unsigned letters = 1 + random_below(5);
        for (size_t i = 0; i < n; i++)
            a[2 * i] = (char)('a' + random_below(letters)), a[2 * i + 1] = '\n';
        for (size_t i = 0; i < m; i++)
            b[2 * i] = (char)('a' + random_below(letters)), b[2 * i + 1] = '\n';
        a[2 * n] = b[2 * m] = '\0';
        struct diff d;
        make(a, b, &d);
        check_marks(&d);
        size_t common = lcs(a, n, b, m);
        assert_int_equal(d.removed, n - common);
        assert_int_equal(d.added, m - common);
        diff_done(&d);
    }
}

/* Two long texts of few different lines in random order: nothing to find, and it must not be sought
 * for long. */
static void effort_is_bounded(void **state)
{
    (void)state;
    size_t n = DIFF_LINES_MAX;
    char *a = malloc(2 * n), *b = malloc(2 * n);
    assert_true(a && b);
    for (size_t i = 0; i < n; i++) {
        a[2 * i] = (char)('a' + random_below(3));
        b[2 * i] = (char)('c' + random_below(3));
        a[2 * i + 1] = b[2 * i + 1] = '\n';
    }
    struct diff d;
    struct cordon_err err;
    struct timespec t0, t1;
    clock_gettime(CLOCK_MONOTONIC, &t0);
    assert_int_equal(diff_make(a, 2 * n, b, 2 * n, &d, &err), 0);
    clock_gettime(CLOCK_MONOTONIC, &t1);
    check_marks(&d);
    assert_true(t1.tv_sec - t0.tv_sec < 20);
    diff_done(&d);
    free(a);
    free(b);
}

static void digests(void **state)
{
    (void)state;
    char hex[SHA1_HEX];
    sha1_blob("", 0, hex);
    assert_string_equal(hex, "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
    sha1_blob("hello\n", 6, hex);
    assert_string_equal(hex, "ce013625030ba8dba906f756967f9e9ca394464a");
    struct sha1 s;
    sha1_begin(&s);
    for (int i = 0; i < 1000000; i += 50)
        sha1_add(&s, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 50);
    sha1_end(&s, hex);
    assert_string_equal(hex, "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
}

static void names(void **state)
{
    (void)state;
    static const char *const bad[] = {".git",
                                      ".GIT/x",
                                      "a/.git/b",
                                      "git~1",
                                      ".git ",
                                      ".git.",
                                      "..",
                                      "a/../b",
                                      "",
                                      "a//b",
                                      ".",
                                      ".git::$INDEX_ALLOCATION",
                                      ".g\xe2\x80\x8cit",
                                      ".gitmodules"};
    static const char *const good[] = {"a",     ".github", ".gitignore", "git",
                                       ".git2", "a.git/b", "...",        ".gi t"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_false(patch_is_nameable(bad[i]));
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        assert_true(patch_is_nameable(good[i]));
    _cleanup_buf_ struct buf out = BUF_INIT(1024);
    patch_quote("a/", "tab\there \"q\" \\ \xff\n", &out);
    assert_string_equal(out.data, "\"a/tab\\there \\\"q\\\" \\\\ \\377\\n\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_hunks),
        cmocka_unit_test(small_ones_are_minimal),
        cmocka_unit_test(effort_is_bounded),
        cmocka_unit_test(digests),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
