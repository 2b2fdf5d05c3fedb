/* What one command allocates, from memory the program has anyway (tools/static.mk links it in).
 *
 * musl's allocator maps a fresh group of pages for nearly every size, touches each twice and unmaps
 * it at the end: 20 page faults and 20 system calls of a start, for a few kilobytes. Here the first
 * HEAP_POOL bytes are handed out one after the other and only the last piece can be taken back;
 * what is asked for beyond them is musl's, so that a process that lives for long has a whole
 * allocator. One thread only, like everything in that program. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/sys.h"
#include "base/util.h"

#define HEAP_POOL ((size_t)128 * 1024)
#define HEAP_MOST ((size_t)36 * 1024) /* larger ones would only fill it */
#define HEAP_SOON 53248               /* what a run needs of it */

#define HEAP_WORD_(x) #x
#define HEAP_WORD(x) HEAP_WORD_(x)

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void __real_free(void *p);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void __wrap_free(void *p);

struct heap_piece {
    size_t size; /* of data */
    size_t was;  /* where the pool ended before it */
    _Alignas(max_align_t) char data[];
};

static _Alignas(4096) char heap_pool[HEAP_POOL];
static size_t heap_used, heap_high; /* beyond heap_high nothing was ever written */

/* The first instructions of the program, before the C library's own. Every page that is written to
 * for the first time costs an exception, three microseconds on a virtual machine, and a run has
 * dozens: the tables that are about to be relocated, the variables, and the beginning of the pool.
 * tools/layout.ld puts them side by side, and here they are asked for in one go (or one after the
 * other, before Linux 5.14). The system call leaves the stack and what it holds alone. */
__asm__(".pushsection .text.heap_entry, \"ax\", @progbits\n"
        ".globl heap_entry\n"
        ".type heap_entry, @function\n"
        "heap_entry:\n"
        "    lea __init_array_start(%rip), %rdi\n"
        "    and $-4096, %rdi\n"
        "    lea heap_pool + " HEAP_WORD(
            HEAP_SOON) "(%rip), %rsi\n"
                       "    sub %rdi, %rsi\n"
                       "    mov $" HEAP_WORD(
                           SYS_MADV_POPULATE_WRITE) ", %edx\n"
                                                    "    mov $28, %eax\n" /* madvise */
                                                    "    syscall\n"
                                                    "    xor %edx, %edx\n"
                                                    "    jmp _start\n"
                                                    ".size heap_entry, . - heap_entry\n"
                                                    ".popsection\n");

static struct heap_piece *heap_piece_of(void *p)
{
    uintptr_t at = (uintptr_t)p, pool = (uintptr_t)heap_pool;
    if (at < pool || at >= pool + HEAP_POOL)
        return NULL;
    return (struct heap_piece *)(void *)((char *)p - offsetof(struct heap_piece, data));
}

static size_t heap_round(size_t size)
{
    return (size + _Alignof(max_align_t) - 1) & ~(_Alignof(max_align_t) - 1);
}

static struct heap_piece *heap_last(void *p)
{
    struct heap_piece *piece = heap_piece_of(p);
    return piece && (char *)p + piece->size == heap_pool + heap_used ? piece : NULL;
}

/* NULL: not from the pool */
static char *heap_take(size_t size)
{
    if (size > HEAP_MOST)
        return NULL;
    size_t room = heap_round(size ? size : 1), whole = room + sizeof(struct heap_piece);
    if (HEAP_POOL - heap_used < whole)
        return NULL;
    struct heap_piece *piece = (struct heap_piece *)(void *)(heap_pool + heap_used);
    *piece = (struct heap_piece){.size = room, .was = heap_used};
    heap_used += whole;
    heap_high = MAX(heap_high, heap_used);
    return piece->data;
}

void *__wrap_malloc(size_t size)
{
    void *p = heap_take(size);
    return p ? p : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    size_t bytes, high = heap_high;
    if (__builtin_mul_overflow(n, size, &bytes))
        return __real_calloc(n, size); /* which says why not */
    char *p = heap_take(bytes), *written = heap_pool + high;
    if (!p)
        return __real_calloc(n, size);
    if (p < written)
        memset(p, 0, MIN(bytes, (size_t)(written - p)));
    return p;
}

void __wrap_free(void *p)
{
    struct heap_piece *piece = heap_last(p);
    if (piece)
        heap_used = piece->was;
    else if (!heap_piece_of(p))
        __real_free(p);
}

void *__wrap_realloc(void *p, size_t size)
{
    struct heap_piece *piece = heap_piece_of(p);
    if (!piece)
        return p ? __real_realloc(p, size) : __wrap_malloc(size);
    size_t room = heap_round(size ? size : 1);
    if (size <= piece->size)
        return p;
    if (heap_last(p) && size <= HEAP_MOST && HEAP_POOL - heap_used >= room - piece->size) {
        heap_used += room - piece->size;
        heap_high = MAX(heap_high, heap_used);
        piece->size = room;
        return p;
    }
    void *fresh = __wrap_malloc(size);
    if (fresh)
        memcpy(fresh, p, piece->size);
    return fresh;
}
