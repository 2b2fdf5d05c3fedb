/* A filter that lets whoever has a key through, for a process of ours that lives behind the filter
 * which its children are born with. Runs in that process: nothing is allocated.
 *
 * The key travels in the last two arguments, which none of these calls has. It is compared as a
 * whole, in as many steps whatever was given, so that no guess is nearer than another; the filter
 * itself nobody can read (the kernel asks for rights on the host). A guest that knew it would gain
 * little: the calls need rights that it does not have. */
#include "plan/seccomp.h"

#include <linux/audit.h>
#include <sys/syscall.h>

#include "base/util.h"
#include "plan/seccomp_asm.h"

static const unsigned keyed_calls[] = {SYS_clone3, SYS_unshare, SYS_setns, SYS_prctl,
                                       SYS_sched_setaffinity};
/* What makes an object that outlives its process. */
static const unsigned noted_calls[] = {SYS_shmget, SYS_semget, SYS_msgget, SYS_mq_open};

bool seccomp_is_noted(unsigned nr)
{
    for (size_t i = 0; i < ARRAY_SIZE(noted_calls); i++)
        if (noted_calls[i] == nr)
            return true;
    return false;
}

#define KEYED_LOAD(offset) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(offset))
#define KEYED_IF(k, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, k, yes, no)
/* A is 0 when all words so far were right. */
#define KEYED_WORD(offset, word)                                                                   \
    BPF_STMT(BPF_MISC | BPF_TAX, 0), KEYED_LOAD(offset),                                           \
        BPF_STMT(BPF_ALU | BPF_XOR | BPF_K, word), BPF_STMT(BPF_ALU | BPF_OR | BPF_X, 0)

static size_t keyed_put(struct sock_filter *out, size_t n, struct sock_filter insn)
{
    out[n] = insn;
    return n + 1;
}

int seccomp_keyed(const struct seccomp_prog *prog, const struct seccomp_options *options,
                  const uint64_t key[2], struct sock_filter *insns, size_t room,
                  struct seccomp_prog *ret_prog)
{
    const struct sock_filter check[] = {
        BPF_STMT(BPF_LD | BPF_IMM, 0),
        KEYED_WORD(SECCOMP_ARG_LOW(4), (uint32_t)key[0]),
        KEYED_WORD(SECCOMP_ARG_HIGH(4), (uint32_t)(key[0] >> 32)),
        KEYED_WORD(SECCOMP_ARG_LOW(5), (uint32_t)key[1]),
        KEYED_WORD(SECCOMP_ARG_HIGH(5), (uint32_t)(key[1] >> 32)),
        KEYED_IF(0, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_filter *out = insns;
    unsigned noted[ARRAY_SIZE(noted_calls)];
    size_t n_noted = 0, n = 0;
    /* only what every guest may do, whatever the arguments: it is let through when it was noted */
    for (size_t i = 0; i < ARRAY_SIZE(noted_calls); i++)
        if (seccomp_call_verdict(options, (int)noted_calls[i]) == SECCOMP_ALLOWED)
            noted[n_noted++] = noted_calls[i];
    const size_t n_keyed = ARRAY_SIZE(keyed_calls), n_check = ARRAY_SIZE(check);
    const size_t head = 3 + n_noted + n_keyed + 2 + n_check;
    if (head + prog->len > room || head + prog->len > BPF_MAXINSNS)
        return -1;
    /* i386's numbers mean other calls: the program itself refuses them */
    n = keyed_put(out, n, (struct sock_filter)KEYED_LOAD(offsetof(struct seccomp_data, arch)));
    n = keyed_put(out, n, (struct sock_filter)KEYED_IF(AUDIT_ARCH_X86_64, 0, (uint8_t)(head - 2)));
    n = keyed_put(out, n, (struct sock_filter)KEYED_LOAD(offsetof(struct seccomp_data, nr)));
    for (size_t i = 0; i < n_noted; i++) /* to the note, behind all comparisons and one jump */
        n = keyed_put(out, n,
                      (struct sock_filter)KEYED_IF(noted[i], (uint8_t)(n_noted - i - 1 + n_keyed + 1), 0));
    for (size_t i = 0; i < n_keyed; i++) /* to the check, behind the note */
        n = keyed_put(out, n,
                      (struct sock_filter)KEYED_IF(keyed_calls[i], (uint8_t)(n_keyed - i - 1 + 2), 0));
    n = keyed_put(out, n, (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA, (uint32_t)(1 + n_check)));
    n = keyed_put(out, n, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF));
    for (size_t i = 0; i < n_check; i++)
        n = keyed_put(out, n, check[i]);
    for (size_t i = 0; i < prog->len; i++)
        n = keyed_put(out, n, prog->insns[i]);
    *ret_prog = (struct seccomp_prog){insns, (unsigned short)n};
    return 0;
}
