/* The backwards assembler of the filter (see the header). Pure code, runs in the parent process. */
#include "plan/seccomp_asm.h"

/* Two helpers may be written between choosing a label and the jump that uses it. */
#define REACH 250

void seccomp_asm_init(struct seccomp_asm *a, struct sock_filter *insns, unsigned room)
{
    a->insns = insns;
    a->room = room;
    a->count = 0;
    a->full = false;
    a->rets_len = 0;
}

static unsigned emit(struct seccomp_asm *a, uint16_t code, uint8_t jt, uint8_t jf, uint32_t k)
{
    if (a->count == a->room) {
        a->full = true;
        return a->count;
    }
    a->count++;
    a->insns[a->room - a->count] = (struct sock_filter){code, jt, jf, k};
    return a->count;
}

unsigned seccomp_asm_ret(struct seccomp_asm *a, uint32_t action)
{
    unsigned i = 0;
    while (i < a->rets_len && a->rets[i].action != action)
        i++;
    if (i < a->rets_len && a->count - a->rets[i].label <= REACH)
        return a->rets[i].label;

    unsigned label = emit(a, BPF_RET | BPF_K, 0, 0, action);
    if (i < SECCOMP_ASM_RETS) {
        a->rets[i].action = action;
        a->rets[i].label = label;
        if (i == a->rets_len)
            a->rets_len++;
    }
    return label;
}

/* The label itself, or one that is near enough and does the same: a copy of a return, a jump to
 * anything else. */
static unsigned near_label(struct seccomp_asm *a, unsigned label)
{
    if (a->count - label <= REACH)
        return label;
    const struct sock_filter *target = &a->insns[a->room - label];
    if (target->code == (BPF_RET | BPF_K))
        return seccomp_asm_ret(a, target->k);
    return emit(a, BPF_JMP | BPF_JA, 0, 0, a->count - label);
}

unsigned seccomp_asm_if(struct seccomp_asm *a, uint16_t test, uint32_t k, unsigned yes, unsigned no)
{
    if (yes == no)
        return yes;
    yes = near_label(a, yes);
    no = near_label(a, no);
    return emit(a, (uint16_t)(BPF_JMP | test | BPF_K), (uint8_t)(a->count - yes),
                (uint8_t)(a->count - no), k);
}

unsigned seccomp_asm_load(struct seccomp_asm *a, size_t offset, unsigned next)
{
    /* Every label but the latest stands for code that loads for itself, or for a return. */
    if (next != a->count)
        return next;
    return emit(a, BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)offset);
}

unsigned seccomp_asm_and(struct seccomp_asm *a, uint32_t mask, unsigned next)
{
    if (next != a->count || mask == UINT32_MAX)
        return next;
    return emit(a, BPF_ALU | BPF_AND | BPF_K, 0, 0, mask);
}
