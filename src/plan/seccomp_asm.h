/* A small assembler for classic BPF that writes programs backwards.
 *
 * All jumps of classic BPF go forward and conditional ones reach 255 instructions. Writing from the
 * last instruction to the first means that every target is known when the jump to it is written: no
 * second pass, no patching, and equal endings are shared. A label is the number of instructions
 * from its target to the end of the program, the target included. */
#ifndef PLAN_SECCOMP_ASM_H
#define PLAN_SECCOMP_ASM_H

#include <linux/filter.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SECCOMP_ASM_RETS 24

struct seccomp_asm {
    struct sock_filter *insns; /* the last `count` of `room` are in use */
    unsigned room;             /* BPF_MAXINSNS at most */
    unsigned count;
    bool full; /* sticky: the program did not fit */
    struct {
        uint32_t action;
        unsigned label;
    } rets[SECCOMP_ASM_RETS]; /* the nearest return of each action */
    unsigned rets_len;
};

void seccomp_asm_init(struct seccomp_asm *a, struct sock_filter *insns, unsigned room);

unsigned seccomp_asm_ret(struct seccomp_asm *a, uint32_t action);
/* test is BPF_JEQ, BPF_JGT, BPF_JGE or BPF_JSET: compares the accumulator with k. */
unsigned seccomp_asm_if(struct seccomp_asm *a, uint16_t test, uint32_t k, unsigned yes,
                        unsigned no);
/* Loads the word at `offset` of struct seccomp_data, then goes on with `next`, which must be what
 * was written last if it uses the accumulator. */
unsigned seccomp_asm_load(struct seccomp_asm *a, size_t offset, unsigned next);
unsigned seccomp_asm_and(struct seccomp_asm *a, uint32_t mask, unsigned next);

/* Low and high word of an argument; little endian, x86-64 only. */
#define SECCOMP_ARG_LOW(i) (offsetof(struct seccomp_data, args) + 8 * (size_t)(i))
#define SECCOMP_ARG_HIGH(i) (SECCOMP_ARG_LOW(i) + 4)

#endif
