/* What the zygote frees is empty (linked with --wrap): its copies are guests, and no setting of the
 * caller's may be left in memory they get. */
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

void __real_free(void *p);
void __wrap_free(void *p);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_reallocarray(void *p, size_t n, size_t size);

void __wrap_free(void *p)
{
    if (p)
        explicit_bzero(p, malloc_usable_size(p));
    __real_free(p);
}

void *__wrap_realloc(void *p, size_t size)
{
    size_t room = p ? malloc_usable_size(p) : 0;
    void *grown = malloc(size ? size : 1);
    if (!grown)
        return NULL;
    if (p)
        memcpy(grown, p, MIN(room, size));
    __wrap_free(p);
    return grown;
}

void *__wrap_reallocarray(void *p, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return __wrap_realloc(p, bytes);
}
