/* The table of system calls: every x86-64 call with what the built-in filter does with it. Internal
 * to the filter; everyone else uses plan/seccomp.h. */
#ifndef PLAN_SECCOMP_TABLE_H
#define PLAN_SECCOMP_TABLE_H

#include <stdint.h>

/* A rule is a kind in the high byte and its parameter in the low one. 0 is "no such call". */
enum seccomp_table_kind {
    SECCOMP_TABLE_NONE,
    SECCOMP_TABLE_ALLOW,
    SECCOMP_TABLE_REFUSE, /* EPERM, goes to the listener when there is one */
    SECCOMP_TABLE_ERRNO,  /* a plain error, parameter: the errno */
    SECCOMP_TABLE_CHECK,  /* depends on options or arguments, parameter: enum seccomp_table_check */
};

enum seccomp_table_check {
    SECCOMP_CHECK_CLONE,
    SECCOMP_CHECK_UNSHARE,
    SECCOMP_CHECK_SOCKET,
    SECCOMP_CHECK_SOCKETPAIR,
    SECCOMP_CHECK_SETSOCKOPT,
    SECCOMP_CHECK_SEND_FLAGS2, /* MSG_OOB in argument 2 or 3 */
    SECCOMP_CHECK_SEND_FLAGS3,
    SECCOMP_CHECK_IOCTL,
    SECCOMP_CHECK_FCNTL, /* command in argument 1 */
    SECCOMP_CHECK_PRCTL,
    SECCOMP_CHECK_ARCH_PRCTL,
    SECCOMP_CHECK_PERSONALITY,
    SECCOMP_CHECK_PTRACE,
    SECCOMP_CHECK_SECCOMP,
    SECCOMP_CHECK_MKNOD,   /* mode in argument 1 */
    SECCOMP_CHECK_MKNODAT, /* mode in argument 2 */
    SECCOMP_CHECK_MODE1,   /* setuid bits of a mode in argument 1 */
    SECCOMP_CHECK_MODE2,
    SECCOMP_CHECK_OPEN,   /* flags and mode in arguments 1 and 2 */
    SECCOMP_CHECK_OPENAT, /* flags and mode in arguments 2 and 3 */
    SECCOMP_CHECK_OPENAT2,
    SECCOMP_CHECK_MEMFD,  /* flags in argument 1 */
    SECCOMP_CHECK_SHMGET, /* flags in argument 2 */
    SECCOMP_CHECK_FORK,
    SECCOMP_CHECK_SESSION,
    SECCOMP_CHECK_IPC,
    SECCOMP_CHECK_MMAP,   /* length in argument 1, flags in argument 3 */
    SECCOMP_CHECK_MREMAP, /* new length in argument 2 */
    SECCOMP_CHECK_AFFINITY,
    SECCOMP_CHECK_RULESET,
    SECCOMP_CHECK_PRLIMIT, /* pid in argument 0 */
};

#define SECCOMP_RULE(kind, param) ((uint16_t)((kind) << 8 | (param)))
#define SECCOMP_RULE_KIND(rule) ((enum seccomp_table_kind)((rule) >> 8))
#define SECCOMP_RULE_PARAM(rule) ((rule)&0xff)

/* One past the highest number in the table. */
#define SECCOMP_TABLE_SIZE 470

/* The rule of a number below SECCOMP_TABLE_SIZE. */
uint16_t seccomp_table_rule(unsigned nr);

#endif
