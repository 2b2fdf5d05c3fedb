/* libFuzzer entry for the seccomp profile reader: any bytes give one honest error, or a program
 * that the kernel would take, that kills nobody and that allows nothing the built-in filter
 * refuses.
 *
 * clang -std=gnu17 -D_GNU_SOURCE -g -O1 -fsanitize=fuzzer,address,undefined -Iinclude -Isrc \
 *     fuzz/fuzz_seccomp_profile.c src/plan/seccomp*.c src/base/err.c src/base/buf.c
 * src/base/arena.c src/base/jsonr*.c \ -o build/fuzz_seccomp_profile build/fuzz_seccomp_profile
 * CORPUS_DIR ../shared/data/seccomp */
#include <errno.h>
#include <linux/audit.h>
#include <stdlib.h>
#include <string.h>

#include "plan/seccomp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok)
        abort();
}

/* What the kernel asks of a program: known instructions, jumps inside, a return at the end. */
static void check_program(const struct seccomp_prog *prog)
{
    check(prog->len > 0 && prog->len <= BPF_MAXINSNS);
    for (unsigned i = 0; i < prog->len; i++) {
        const struct sock_filter *f = &prog->insns[i];
        unsigned rest = prog->len - i - 1;
        switch (f->code) {
        case BPF_LD | BPF_W | BPF_ABS:
            check(f->k < sizeof(struct seccomp_data) && f->k % 4 == 0 && rest > 0);
            break;
        case BPF_ALU | BPF_AND | BPF_K: check(rest > 0); break;
        case BPF_JMP | BPF_JA: check(f->k < rest); break;
        case BPF_JMP | BPF_JEQ | BPF_K:
        case BPF_JMP | BPF_JGT | BPF_K:
        case BPF_JMP | BPF_JGE | BPF_K:
        case BPF_JMP | BPF_JSET | BPF_K: check(f->jt < rest && f->jf < rest); break;
        case BPF_RET | BPF_K:
            check(f->k == SECCOMP_RET_ALLOW || f->k == SECCOMP_RET_USER_NOTIF ||
                  (f->k & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_ERRNO);
            break;
        default: check(false);
        }
    }
    check(prog->insns[prog->len - 1].code == (BPF_RET | BPF_K));
}

static void check_tightens(const struct seccomp_prog *prog, const struct seccomp_prog *builtin)
{
    static const uint64_t values[] = {0, 1, 2, 0x5412, 0x10000011, 0xffffffffULL, ~0ULL};
    for (int nr = -1; nr < 480; nr++)
        for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
            struct seccomp_data d = {.nr = nr, .arch = AUDIT_ARCH_X86_64};
            for (int i = 0; i < 6; i++)
                d.args[i] = values[v];
            if (seccomp_eval(prog, &d) == SECCOMP_RET_ALLOW)
                check(seccomp_eval(builtin, &d) == SECCOMP_RET_ALLOW);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct seccomp_options options = {.notify = true, .refuse_suid_bits = true};
    static struct seccomp_prog builtin;
    struct cordon_err err = {0};
    if (!builtin.len)
        check(seccomp_build(&options, &builtin, &err) == 0);

    struct seccomp_prog prog = {0};
    struct buf notes = BUF_INIT(4096);
    if (seccomp_profile_build(&options, "fuzz.json", (const char *)data, size, &prog, &notes,
                              &err) == 0) {
        check_program(&prog);
        check_tightens(&prog, &builtin);
        seccomp_done(&prog);
    } else {
        check(prog.len == 0 && err.code != 0 && err.message[0] != '\0');
    }
    buf_done(&notes);
    return 0;
}
