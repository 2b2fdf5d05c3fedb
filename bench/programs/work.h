/* Shared by the steady-state programs: the clock, and the one line they print. */
#ifndef WORK_H
#define WORK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <inttypes.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

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

/* Allows everything in one instruction: the least that any filter costs. */
static inline void work_filter(void)
{
    struct sock_filter allow = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
    struct sock_fprog prog = {.len = 1, .filter = &allow};

    work_check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
    work_check(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) == 0, "seccomp");
}

#endif
