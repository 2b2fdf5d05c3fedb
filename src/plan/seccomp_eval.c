/* Classic BPF in user space, over struct seccomp_data: what the kernel's interpreter would answer.
 * For noted calls (seccomp_keyed.c), tests and fuzzers; a program the kernel would not accept
 * answers SECCOMP_RET_KILL_PROCESS. */
#include "plan/seccomp.h"

struct machine {
    uint32_t a, x;
    uint32_t mem[BPF_MEMWORDS];
};

static int load_word(const struct seccomp_data *data, uint32_t offset, uint32_t *ret_word)
{
    if (offset % 4 != 0 || offset > sizeof(*data) - 4)
        return -1;
    __builtin_memcpy(ret_word, (const char *)data + offset, 4);
    return 0;
}

static int do_load(struct machine *m, const struct sock_filter *f, const struct seccomp_data *data,
                   uint32_t *ret_value)
{
    switch (BPF_MODE(f->code)) {
    case BPF_IMM: *ret_value = f->k; return 0;
    case BPF_LEN: *ret_value = sizeof(*data); return 0;
    case BPF_MEM:
        if (f->k >= BPF_MEMWORDS)
            return -1;
        *ret_value = m->mem[f->k];
        return 0;
    case BPF_ABS:
        if (BPF_CLASS(f->code) != BPF_LD || BPF_SIZE(f->code) != BPF_W)
            return -1;
        return load_word(data, f->k, ret_value);
    default: return -1;
    }
}

static int do_alu(struct machine *m, const struct sock_filter *f)
{
    uint32_t v = BPF_SRC(f->code) == BPF_X ? m->x : f->k;
    switch (BPF_OP(f->code)) {
    case BPF_ADD: m->a += v; return 0;
    case BPF_SUB: m->a -= v; return 0;
    case BPF_MUL: m->a *= v; return 0;
    case BPF_DIV:
        if (v == 0)
            return -1;
        m->a /= v;
        return 0;
    case BPF_AND: m->a &= v; return 0;
    case BPF_OR: m->a |= v; return 0;
    case BPF_XOR: m->a ^= v; return 0;
    case BPF_LSH: m->a <<= v & 31; return 0;
    case BPF_RSH: m->a >>= v & 31; return 0;
    case BPF_NEG: m->a = -m->a; return 0;
    default: return -1;
    }
}

/* How many instructions to skip, or -1. */
static int64_t do_jump(const struct machine *m, const struct sock_filter *f)
{
    uint32_t v = BPF_SRC(f->code) == BPF_X ? m->x : f->k;
    switch (BPF_OP(f->code)) {
    case BPF_JA: return f->k;
    case BPF_JEQ: return m->a == v ? f->jt : f->jf;
    case BPF_JGT: return m->a > v ? f->jt : f->jf;
    case BPF_JGE: return m->a >= v ? f->jt : f->jf;
    case BPF_JSET: return m->a & v ? f->jt : f->jf;
    default: return -1;
    }
}

uint32_t seccomp_eval(const struct seccomp_prog *prog, const struct seccomp_data *data)
{
    struct machine m = {0};
    for (uint64_t pc = 0; pc < prog->len; pc++) {
        const struct sock_filter *f = &prog->insns[pc];
        int r = 0;
        switch (BPF_CLASS(f->code)) {
        case BPF_LD: r = do_load(&m, f, data, &m.a); break;
        case BPF_LDX: r = do_load(&m, f, data, &m.x); break;
        case BPF_ST:
        case BPF_STX:
            if (f->k < BPF_MEMWORDS)
                m.mem[f->k] = BPF_CLASS(f->code) == BPF_ST ? m.a : m.x;
            else
                r = -1;
            break;
        case BPF_ALU: r = do_alu(&m, f); break;
        case BPF_JMP: {
            int64_t skip = do_jump(&m, f);
            if (skip < 0)
                r = -1;
            else
                pc += (uint64_t)skip;
            break;
        }
        case BPF_RET: return BPF_RVAL(f->code) == BPF_A ? m.a : f->k;
        case BPF_MISC:
            if (BPF_MISCOP(f->code) == BPF_TAX)
                m.x = m.a;
            else
                m.a = m.x;
            break;
        default: r = -1; break;
        }
        if (r < 0)
            break;
    }
    return SECCOMP_RET_KILL_PROCESS; /* fell off the end, or an instruction the kernel refuses */
}
