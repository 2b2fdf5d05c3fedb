/* Allocation for a build of the command in which one allocation, or every one from then on, fails.
 * Linked with --wrap into a static executable, so that the C library's own allocations count too.
 *
 * FAILALLOC_AT=N       the Nth allocation fails (none without it)
 * FAILALLOC_ON=1       and so do all after it
 * FAILALLOC_LOG=FILE   at the end: "allocations living failed\n" is appended, living: not given
 * back
 *
 * After the clone nothing may allocate: the memory is a copy (or shared), and a lock in it may be
 * held by nobody. A process other than the first that allocates ends with SIGABRT. */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void __real_free(void *p);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_reallocarray(void *p, size_t n, size_t size);
void __wrap_free(void *p);

static long count, living, failed, fail_at;
static int go_on;
static pid_t owner;

/* Before this the C library starts itself, and may give up as it likes. */
__attribute__((constructor)) static void begin(void)
{
    const char *at = getenv("FAILALLOC_AT");
    owner = (pid_t)syscall(SYS_getpid);
    fail_at = at ? strtol(at, NULL, 10) : 0;
    go_on = getenv("FAILALLOC_ON") != NULL;
}

static int refuse(void)
{
    if (!owner)
        return 0;
    if ((pid_t)syscall(SYS_getpid) != owner)
        abort();
    count++;
    if (fail_at > 0 && (count == fail_at || (go_on && count > fail_at))) {
        failed++;
        errno = ENOMEM;
        return 1;
    }
    return 0;
}

void *__wrap_malloc(size_t size)
{
    void *p = refuse() ? NULL : __real_malloc(size);
    living += p != NULL;
    return p;
}

void *__wrap_calloc(size_t n, size_t size)
{
    void *p = refuse() ? NULL : __real_calloc(n, size);
    living += p != NULL;
    return p;
}

void *__wrap_realloc(void *old, size_t size)
{
    void *p = refuse() ? NULL : __real_realloc(old, size);
    living += p != NULL && !old;
    return p;
}

void *__wrap_reallocarray(void *old, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return __wrap_realloc(old, bytes);
}

void __wrap_free(void *p)
{
    living -= p != NULL;
    __real_free(p);
}

__attribute__((destructor)) static void end(void)
{
    const char *log = getenv("FAILALLOC_LOG");
    char line[96];
    if (!log || (pid_t)syscall(SYS_getpid) != owner)
        return;
    int n = snprintf(line, sizeof(line), "%ld %ld %ld\n", count, living, failed);
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd >= 0 && write(fd, line, (size_t)n) != n)
        abort();
}
