/* Shared by the steady-state programs: the clock, and the one line they print. */
#ifndef WORK_H
#define WORK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline uint64_t work_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline int work_report(uint64_t start)
{
    printf("%" PRIu64 "\n", work_now_ns() - start);
    return fflush(stdout) == 0 ? 0 : 1;
}

static inline void work_check(int ok, const char *what)
{
    if (!ok) {
        perror(what);
        exit(1);
    }
}

#endif
