/* System calls that give -errno and touch nothing else.
 *
 * For processes that share memory with another one of ours (clone with CLONE_VM): errno, like all
 * of the C library's thread data, then belongs to the other one. */
#ifndef BASE_RAW_H
#define BASE_RAW_H

#if !defined(__x86_64__)
#error "Cordon's native backend is written for x86-64"
#endif

static inline long raw_call6(long nr, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long ret;
    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return ret;
}

/* raw_call(number, up to five arguments): numbers and pointers alike; the rest is zero. */
#define raw_call(...) RAW_PICK_(__VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define RAW_PICK_(nr, a, b, c, d, e, ...)                                                          \
    raw_call6((long)(nr), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)

#endif
