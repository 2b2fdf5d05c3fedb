/* A filter that lets whoever has a key through, for a process of ours that lives behind the filter
 * which its children are born with. Runs in that process: nothing is allocated.
 *
 * The key travels in the last two arguments, which none of these calls has. It is compared as a
 * whole, in as many steps whatever was given, so that no guess is nearer than another; the filter
 * itself nobody can read (the kernel asks for rights on the host). A guest that knew it would gain
 * little: the calls need rights that it does not have. */
#include "plan/seccomp.h"

#include <linux/audit.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/util.h"
#include "plan/seccomp_asm.h"

static const unsigned keyed_calls[] = {SYS_clone3, SYS_unshare, SYS_setns, SYS_prctl,
                                       SYS_sched_setaffinity};
/* What makes an object that outlives its process, or may leave a trace in the network namespace;
 * sockets by their family, as nothing but these two does. */
static const unsigned noted_calls[] = {SYS_shmget, SYS_semget, SYS_msgget, SYS_mq_open};
static const unsigned noted_families[] = {AF_INET, AF_INET6};

enum seccomp_note seccomp_note_of(const struct seccomp_data *data)
{
    if (data->arch != AUDIT_ARCH_X86_64)
        return SECCOMP_NOTE_NONE;
    for (size_t i = 0; i < ARRAY_SIZE(noted_calls); i++)
        if (noted_calls[i] == (unsigned)data->nr)
            return SECCOMP_NOTE_OBJECT;
    for (size_t i = 0; i < ARRAY_SIZE(noted_families); i++)
        if (data->nr == SYS_socket && (unsigned)data->args[0] == noted_families[i])
            return SECCOMP_NOTE_SOCKET;
    return SECCOMP_NOTE_NONE;
}

#define KEYED_LOAD(offset) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(offset))
#define KEYED_IF(k, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, k, yes, no)
/* A is 0 when all words so far were right. */
#define KEYED_WORD(offset, word)                                                                   \
    BPF_STMT(BPF_MISC | BPF_TAX, 0), KEYED_LOAD(offset),                                           \
        BPF_STMT(BPF_ALU | BPF_XOR | BPF_K, word), BPF_STMT(BPF_ALU | BPF_OR | BPF_X, 0)

/* Written in order, jumps by the number of instructions to skip: the head has three parts, the
 * comparisons, the two ways to be noted, and the check of the key, and then the program follows. */
int seccomp_keyed(const struct seccomp_prog *prog, const uint64_t key[2], bool notes_sockets,
                  struct sock_filter *insns, size_t room, struct seccomp_prog *ret_prog)
{
    const uint32_t socket_call = notes_sockets ? SYS_socket : UINT32_MAX;
    const struct sock_filter check[] = {
        BPF_STMT(BPF_LD | BPF_IMM, 0),
        KEYED_WORD(SECCOMP_ARG_LOW(4), (uint32_t)key[0]),
        KEYED_WORD(SECCOMP_ARG_HIGH(4), (uint32_t)(key[0] >> 32)),
        KEYED_WORD(SECCOMP_ARG_LOW(5), (uint32_t)key[1]),
        KEYED_WORD(SECCOMP_ARG_HIGH(5), (uint32_t)(key[1] >> 32)),
        KEYED_IF(0, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const size_t n_check = ARRAY_SIZE(check);
    const struct sock_filter notes[] = {
        BPF_STMT(BPF_JMP | BPF_JA, (uint32_t)(4 + n_check)), /* none of them: to the program */
        KEYED_LOAD(SECCOMP_ARG_LOW(0)),                      /* a socket */
        KEYED_IF(noted_families[0], 1, 0),
        KEYED_IF(noted_families[1], 0, (uint8_t)(1 + n_check)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
    };
    const size_t n_calls = ARRAY_SIZE(noted_calls), n_keyed = ARRAY_SIZE(keyed_calls);
    const size_t n_compare = n_calls + 1 + n_keyed, n_notes = ARRAY_SIZE(notes);
    const size_t head = 3 + n_compare + n_notes + n_check;
    if (head + prog->len > room || head + prog->len > BPF_MAXINSNS)
        return -1;
    size_t n = 0, rest = n_compare;
    /* i386's numbers mean other calls: the program itself refuses them */
    insns[n++] = (struct sock_filter)KEYED_LOAD(offsetof(struct seccomp_data, arch));
    insns[n++] = (struct sock_filter)KEYED_IF(AUDIT_ARCH_X86_64, 0, (uint8_t)(head - 2));
    insns[n++] = (struct sock_filter)KEYED_LOAD(offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < n_calls; i++)
        insns[n++] =
            (struct sock_filter)KEYED_IF(noted_calls[i], (uint8_t)(--rest + n_notes - 1), 0);
    insns[n++] = (struct sock_filter)KEYED_IF(socket_call, (uint8_t)(--rest + 1), 0);
    for (size_t i = 0; i < n_keyed; i++)
        insns[n++] = (struct sock_filter)KEYED_IF(keyed_calls[i], (uint8_t)(--rest + n_notes), 0);
    memcpy(insns + n, notes, sizeof(notes));
    memcpy(insns + n + n_notes, check, sizeof(check));
    memcpy(insns + head, prog->insns, prog->len * sizeof(*insns));
    *ret_prog = (struct seccomp_prog){insns, (unsigned short)(head + prog->len)};
    return 0;
}
