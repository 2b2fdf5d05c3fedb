/* The command's own first memory (src/base/heap.c), over this C library's instead of musl's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/heap.c"

static size_t from_libc;

__attribute__((noinline)) void *__real_malloc(size_t size)
{
    from_libc++;
    return malloc(size);
}

__attribute__((noinline)) void *__real_calloc(size_t n, size_t size)
{
    from_libc++;
    return calloc(n, size);
}

__attribute__((noinline)) void *__real_realloc(void *p, size_t size)
{
    return realloc(p, size);
}

__attribute__((noinline)) void __real_free(void *p)
{
    free(p);
}

static void start_anew(void)
{
    memset(heap_pool, 0, sizeof(heap_pool));
    heap_used = heap_high = from_libc = 0;
}

static void test_last_piece_comes_back(void **state)
{
    (void)state;
    start_anew();
    char *a = __wrap_malloc(100), *b = __wrap_malloc(0);
    assert_true(a && b && a != b);
    assert_int_equal((uintptr_t)a % _Alignof(max_align_t), 0);
    assert_int_equal((uintptr_t)b % _Alignof(max_align_t), 0);
    __wrap_free(b);
    assert_ptr_equal(__wrap_malloc(8), b);
    __wrap_free(NULL);
    __wrap_free(a); /* not the last: stays */
    assert_ptr_not_equal(__wrap_malloc(100), a);
    assert_int_equal(from_libc, 0);
}

static void test_large_ones_and_the_rest_are_libc_s(void **state)
{
    (void)state;
    start_anew();
    void *large = __wrap_malloc(HEAP_MOST + 1);
    assert_int_equal(from_libc, 1);
    assert_null(heap_piece_of(large));
    __wrap_free(large);
    assert_null(__wrap_calloc(SIZE_MAX / 2, 3));
    size_t n = 0;
    for (size_t before = from_libc; from_libc == before && n < HEAP_POOL; n++)
        __wrap_free(__wrap_realloc(__wrap_malloc(1000), 1000)); /* the last one again and again */
    assert_int_equal(n, HEAP_POOL);
    void *kept[HEAP_POOL / 1000 + 2];
    n = 0;
    for (size_t before = from_libc; from_libc == before; n++) {
        assert_true(n < sizeof(kept) / sizeof(kept[0]));
        kept[n] = __wrap_malloc(1000);
        memset(kept[n], 7, 1000);
    }
    assert_true(n > 100);
    while (n > 0)
        __wrap_free(kept[--n]);
    assert_int_equal(heap_used, 0);
}

/* What was handed out keeps its bytes whatever happens to the others, and calloc's are zero. */
static void test_random_use(void **state)
{
    (void)state;
    start_anew();
    enum { SLOTS = 64 };
    unsigned char *p[SLOTS] = {NULL};
    size_t size[SLOTS] = {0};
    srandom(1);
    for (int step = 0; step < 200000; step++) {
        size_t i = (size_t)random() % SLOTS, want = (size_t)random() % (random() % 8 ? 200 : 5000);
        for (size_t k = 0; k < size[i]; k++)
            assert_int_equal(p[i][k], i);
        if (!p[i] && random() % 2) {
            p[i] = __wrap_calloc(1, want);
            for (size_t k = 0; k < want; k++)
                assert_int_equal(p[i][k], 0);
        } else if (random() % 3) {
            p[i] = __wrap_realloc(p[i], want);
            for (size_t k = 0; k < MIN(want, size[i]); k++)
                assert_int_equal(p[i][k], i);
        } else {
            __wrap_free(p[i]);
            p[i] = NULL;
            want = 0;
        }
        size[i] = want;
        if (p[i])
            memset(p[i], (int)i, want);
        if (step % 5000 == 4999) { /* from an empty pool again, in the order that empties it */
            for (size_t k = SLOTS; k-- > 0;) {
                __wrap_free(p[k]);
                p[k] = NULL;
                size[k] = 0;
            }
            heap_used = 0; /* nothing is in use; heap_high stays: the bytes are dirty */
        }
    }
    for (size_t k = 0; k < SLOTS; k++)
        __wrap_free(p[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_last_piece_comes_back),
        cmocka_unit_test(test_large_ones_and_the_rest_are_libc_s),
        cmocka_unit_test(test_random_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
