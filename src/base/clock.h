/* The clock that all of ours is measured by. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/raw.h"

/* By a system call and not by the kernel's page for clocks: a run asks a dozen times, and to find
 * that page and touch it first costs each of our processes more than they all do. Where a filter
 * outside refuses the call the page is there. Not behind a filter of the caller's: what that
 * refuses may wait for an answer. */
static inline uint64_t clock_ns_of(clockid_t id)
{
    struct timespec ts = {0};
    if (raw_call(SYS_clock_gettime, id, &ts) < 0)
        clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline uint64_t clock_ns(void)
{
    return clock_ns_of(CLOCK_MONOTONIC);
}

#endif
