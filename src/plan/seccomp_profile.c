/* A user's profile as code: written in front of the built-in filter's answer for the same call, so
 * that one program holds the intersection of both. One program instead of two because only one
 * filter of a process can have a listener, and a second filter's plain error would win over the
 * first one's notification: refusals would be missing from the result. Own code instead of
 * libseccomp for the same reason, and because the assembler for it exists anyway. Pure, runs in the
 * parent process. */
#include "plan/seccomp_profile.h"

#include <errno.h>

#include "plan/seccomp_check.h"

/* Keys: 0 passes, KEY_DENY + errno refuses, KEY_RULES + number is that call's own code. */
enum { KEY_DENY = 0x2000, KEY_RULES = 0x4000 };

uint16_t seccomp_profile_key(const struct seccomp_profile *p, unsigned nr)
{
    if (p->calls[nr].deny)
        return (uint16_t)(KEY_DENY + p->calls[nr].error);
    if (p->calls[nr].has_rules)
        return (uint16_t)(KEY_RULES + nr);
    if (p->calls[nr].allow || p->default_action == SECCOMP_PROFILE_ALLOW)
        return 0;
    return (uint16_t)(KEY_DENY + p->default_action);
}

bool seccomp_profile_key_is_denial(uint16_t key)
{
    return key >= KEY_DENY && key < KEY_RULES;
}

static unsigned emit_error(struct seccomp_asm *a, const struct seccomp_options *o, int error)
{
    if (error == EPERM) /* the one error the listener answers with */
        return seccomp_asm_ret(a, seccomp_check_refusal(o));
    return seccomp_asm_ret(a, SECCOMP_RET_ERRNO | (uint32_t)error);
}

/* argument > value, or >= with BPF_JGE */
static unsigned emit_greater(struct seccomp_asm *a, const struct seccomp_profile_cmp *c,
                             uint16_t test, unsigned yes, unsigned no)
{
    uint32_t high = (uint32_t)(c->value >> 32), low = (uint32_t)c->value;
    unsigned label =
        seccomp_asm_load(a, SECCOMP_ARG_LOW(c->index), seccomp_asm_if(a, test, low, yes, no));
    label = seccomp_asm_if(a, BPF_JEQ, high, label, no);
    label = seccomp_asm_if(a, BPF_JGT, high, yes, label);
    return seccomp_asm_load(a, SECCOMP_ARG_HIGH(c->index), label);
}

static unsigned emit_masked(struct seccomp_asm *a, unsigned index, uint64_t mask, uint64_t value,
                            unsigned yes, unsigned no)
{
    unsigned label = seccomp_asm_if(a, BPF_JEQ, (uint32_t)value, yes, no);
    label = seccomp_asm_load(a, SECCOMP_ARG_LOW(index), seccomp_asm_and(a, (uint32_t)mask, label));
    label = seccomp_asm_if(a, BPF_JEQ, (uint32_t)(value >> 32), label, no);
    return seccomp_asm_load(a, SECCOMP_ARG_HIGH(index),
                            seccomp_asm_and(a, (uint32_t)(mask >> 32), label));
}

/* All 64 bits, as Docker compares them. */
static unsigned emit_cmp(struct seccomp_asm *a, const struct seccomp_profile_cmp *c, unsigned yes,
                         unsigned no)
{
    switch (c->op) {
    case SECCOMP_CMP_EQ: return emit_masked(a, c->index, UINT64_MAX, c->value, yes, no);
    case SECCOMP_CMP_NE: return emit_masked(a, c->index, UINT64_MAX, c->value, no, yes);
    case SECCOMP_CMP_LT: return emit_greater(a, c, BPF_JGE, no, yes);
    case SECCOMP_CMP_LE: return emit_greater(a, c, BPF_JGT, no, yes);
    case SECCOMP_CMP_GE: return emit_greater(a, c, BPF_JGE, yes, no);
    case SECCOMP_CMP_GT: return emit_greater(a, c, BPF_JGT, yes, no);
    case SECCOMP_CMP_MASKED_EQ: return emit_masked(a, c->index, c->value, c->value_two, yes, no);
    }
    return no;
}

static unsigned emit_rules(struct seccomp_asm *a, const struct seccomp_options *o,
                           const struct seccomp_profile *p, unsigned nr, bool denials,
                           unsigned allowed, unsigned otherwise)
{
    for (size_t i = p->rules_len; i-- > 0;) {
        const struct seccomp_profile_rule *rule = &p->rules[i];
        bool is_denial = rule->action != SECCOMP_PROFILE_ALLOW;
        if (rule->nr != nr || is_denial != denials)
            continue;
        unsigned label = is_denial ? emit_error(a, o, rule->action) : allowed;
        for (unsigned j = rule->cmps_len; j-- > 0;)
            label = emit_cmp(a, &rule->cmps[j], label, otherwise);
        otherwise = label;
    }
    return otherwise;
}

unsigned seccomp_profile_emit(struct seccomp_asm *a, const struct seccomp_options *o,
                              const struct seccomp_profile *p, uint16_t key, unsigned allowed)
{
    if (seccomp_profile_key_is_denial(key))
        return emit_error(a, o, key - KEY_DENY);
    unsigned nr = (unsigned)key - KEY_RULES;
    bool passes = p->calls[nr].allow || p->default_action == SECCOMP_PROFILE_ALLOW;
    unsigned label = passes ? allowed : emit_error(a, o, p->default_action);
    if (!passes)
        label = emit_rules(a, o, p, nr, false, allowed, label);
    return emit_rules(a, o, p, nr, true, allowed, label);
}
