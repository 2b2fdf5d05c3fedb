/* The ten macros this code base allows itself. */
#ifndef BASE_UTIL_H
#define BASE_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* Takes ownership out of a variable that has a cleanup attribute. */
#define TAKE_FD(fd)                                                                                \
    ({                                                                                             \
        int taken_ = (fd);                                                                         \
        (fd) = -1;                                                                                 \
        taken_;                                                                                    \
    })
#define TAKE_PTR(p)                                                                                \
    ({                                                                                             \
        __typeof__(p) taken_ = (p);                                                                \
        (p) = NULL;                                                                                \
        taken_;                                                                                    \
    })

/* A working directory that is gone or out of reach has no files to find and nothing a relative path
 * could mean: it gets a name that does not exist, and a run that needs neither works. */
#define UTIL_CWD_GONE "/(working directory is gone)"

static inline void util_close(int *fd)
{
    if (*fd >= 0)
        close(*fd); /* never retried on EINTR: on Linux the descriptor is gone either way */
    *fd = -1;
}

static inline void util_free(void *p)
{
    free(*(void **)p);
}

static inline void util_fclose(FILE **f)
{
    if (*f)
        fclose(*f);
}

#define _cleanup_close_ __attribute__((cleanup(util_close)))
#define _cleanup_free_ __attribute__((cleanup(util_free)))
#define _cleanup_fclose_ __attribute__((cleanup(util_fclose)))

static inline bool str_eq(const char *a, const char *b)
{
    return *a == *b && strcmp(a, b) == 0; /* most are told apart by their first letter */
}

/* One after the other, on paths where printf's work would show. False, and empty, when they do not
 * fit. */
static inline bool str_join(char *ret, size_t size, const char *a, const char *b, const char *c)
{
    size_t n[] = {strlen(a), strlen(b), strlen(c)};
    *ret = '\0';
    if (n[0] + n[1] + n[2] >= size)
        return false;
    memcpy(ret, a, n[0]);
    memcpy(ret + n[0], b, n[1]);
    memcpy(ret + n[0] + n[1], c, n[2] + 1);
    return true;
}

static inline bool str_starts(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

#endif
