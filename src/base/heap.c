/* What one command allocates, from memory the program has anyway (tools/static.mk links it in).
 *
 * musl's allocator maps a fresh group of pages for nearly every size, touches each twice and unmaps
 * it at the end: 20 page faults and 20 system calls of a start, for a few kilobytes. Here the first
 * HEAP_POOL bytes are handed out one after the other and only the last piece can be taken back;
 * what is asked for beyond them is musl's, so that a process that lives for long has a whole
 * allocator. One thread only, like everything in that program. */
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/sys.h"
#include "base/util.h"

#define HEAP_POOL ((size_t)128 * 1024)
#define HEAP_MOST ((size_t)36 * 1024) /* larger ones would only fill it */
#define HEAP_SOON 53248               /* what a run needs of it */
#define HEAP_STACK 28672              /* and of the stack */

#define HEAP_DT_RELRSZ 35 /* musl has no names for them */
#define HEAP_DT_RELR 36

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

/* Tables with addresses in them are written before anything else runs: the program does not know
 * where it lies until then. The C library's own list of those places takes 24 bytes for each of two
 * thousand and is read whole from the file; here the linker packs them (DT_RELR: the address of one
 * place, then a bit for each of the 63 words behind it). Younger versions of musl know that form
 * as well: they find an empty list. Nothing here may use an address that is written in a table. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern ElfW(Dyn) _DYNAMIC[] __attribute__((visibility("hidden")));
void heap_relocate(void);

__attribute__((used, no_stack_protector, section(".text.heap_entry"))) void heap_relocate(void)
{
    uintptr_t base = (uintptr_t)__ehdr_start, *place = (uintptr_t *)base;
    const uintptr_t *list = place;
    size_t words = 0;
    for (ElfW(Dyn) *d = _DYNAMIC; d->d_tag != DT_NULL; d++) {
        if (d->d_tag == HEAP_DT_RELR) {
            list = (const uintptr_t *)(base + d->d_un.d_ptr);
        } else if (d->d_tag == HEAP_DT_RELRSZ) {
            words = d->d_un.d_val / sizeof(uintptr_t);
            d->d_un.d_val = 0;
        }
    }
    for (size_t i = 0; i < words; i++) {
        uintptr_t bits = list[i];
        if (!(bits & 1)) {
            place = (uintptr_t *)(base + bits);
            *place++ += base;
            continue;
        }
        for (bits >>= 1; bits; bits &= bits - 1)
            place[__builtin_ctzl(bits)] += base;
        place += 8 * sizeof(uintptr_t) - 1;
    }
}

/* The first instructions of the program, before the C library's own. Every page that is written to
 * for the first time costs an exception, three microseconds on a virtual machine, and a run has
 * dozens: the tables that are about to be relocated, the variables, and the beginning of the pool;
 * and the stack. tools/layout.ld puts the former side by side, and here they are asked for in one
 * go (or one after the other, before Linux 5.14). What the stack holds is left as it was. */
/* clang-format off */
__asm__(".pushsection .text.heap_entry, \"ax\", @progbits\n"
        ".globl heap_entry\n"
        ".type heap_entry, @function\n"
        "heap_entry:\n"
        "    lea __init_array_start(%rip), %rdi\n"
        "    and $-4096, %rdi\n"
        "    lea heap_pool + " HEAP_WORD(HEAP_SOON) "(%rip), %rsi\n"
        "    sub %rdi, %rsi\n"
        "    mov $" HEAP_WORD(SYS_MADV_POPULATE_WRITE) ", %edx\n"
        "    mov $28, %eax\n" /* madvise */
        "    syscall\n"
        "    mov $" HEAP_WORD(HEAP_STACK) ", %esi\n"
        "    mov %rsp, %rdi\n"
        "    and $-4096, %rdi\n"
        "    sub %rsi, %rdi\n"
        "    mov $28, %eax\n"
        "    syscall\n"
        "    call heap_relocate\n"
        "    xor %edx, %edx\n"
        "    jmp _start\n"
        ".size heap_entry, . - heap_entry\n"
        ".popsection\n");
/* clang-format on */

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
