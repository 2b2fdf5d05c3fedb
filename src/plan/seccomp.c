/* The built-in filter as a program: a balanced tree over ranges of call numbers with equal answers,
 * the argument checks as its leaves. Called by the planner, in the parent process.
 *
 * The shape is for the kernel, which works out the answer of every number when a filter is
 * installed and caches those that are always allowed: eight comparisons per number instead of three
 * hundred. */
#include "plan/seccomp.h"

#include <errno.h>
#include <linux/audit.h>

#include "base/err.h"
#include "base/util.h"
#include "plan/seccomp_asm.h"
#include "plan/seccomp_check.h"
#include "plan/seccomp_profile.h"
#include "plan/seccomp_table.h"

/* Enough for the built-in filter with all options, and little of the stack that every run touches.
 */
#define BUILTIN_MOST 400

/* What happens to a number: the built-in rule in the low half, the profile's in the high one. Equal
 * values need one leaf. */
struct run {
    uint32_t first;
    uint32_t leaf;
};

struct tree {
    struct seccomp_asm assembler;
    const struct seccomp_options *options;
    const struct seccomp_profile *profile; /* NULL: none */
    struct run runs[SECCOMP_TABLE_SIZE + 1];
};

static uint32_t leaf_of(const struct tree *t, unsigned nr)
{
    uint16_t rule = seccomp_table_rule(nr);
    if (SECCOMP_RULE_KIND(rule) != SECCOMP_TABLE_ALLOW)
        rule = seccomp_check_resolve(t->options, rule);
    enum seccomp_table_kind kind = SECCOMP_RULE_KIND(rule);
    if (!t->profile || kind == SECCOMP_TABLE_REFUSE || kind == SECCOMP_TABLE_ERRNO)
        return rule; /* a profile cannot loosen */
    uint16_t key = seccomp_profile_key(t->profile, nr);
    return (uint32_t)key << 16 | (seccomp_profile_key_is_denial(key) ? 0 : rule);
}

static unsigned emit_rule(struct tree *t, uint16_t rule)
{
    struct seccomp_asm *a = &t->assembler;
    switch (SECCOMP_RULE_KIND(rule)) {
    case SECCOMP_TABLE_ALLOW: return seccomp_asm_ret(a, SECCOMP_RET_ALLOW);
    case SECCOMP_TABLE_REFUSE: return seccomp_asm_ret(a, seccomp_check_refusal(t->options));
    case SECCOMP_TABLE_ERRNO:
        return seccomp_asm_ret(a, SECCOMP_RET_ERRNO | (uint32_t)SECCOMP_RULE_PARAM(rule));
    case SECCOMP_TABLE_CHECK:
        return seccomp_check_emit(a, t->options,
                                  (enum seccomp_table_check)SECCOMP_RULE_PARAM(rule));
    case SECCOMP_TABLE_NONE: break;
    }
    return seccomp_asm_ret(a, SECCOMP_RET_ERRNO | ENOSYS);
}

static unsigned emit_leaf(struct tree *t, uint32_t leaf)
{
    uint16_t key = (uint16_t)(leaf >> 16);
    if (seccomp_profile_key_is_denial(key)) /* the built-in check could not change it */
        return seccomp_profile_emit(&t->assembler, t->options, t->profile, key, 0);
    unsigned allowed = emit_rule(t, (uint16_t)leaf);
    if (key == 0)
        return allowed;
    return seccomp_profile_emit(&t->assembler, t->options, t->profile, key, allowed);
}

static unsigned emit_tree(struct tree *t, size_t lo, size_t hi)
{
    if (hi - lo == 1)
        return emit_leaf(t, t->runs[lo].leaf);
    /* one number that differs from both its neighbours: one comparison instead of two */
    if (hi - lo == 3 && t->runs[lo].leaf == t->runs[lo + 2].leaf &&
        t->runs[lo + 2].first == t->runs[lo + 1].first + 1) {
        unsigned around = emit_leaf(t, t->runs[lo].leaf);
        unsigned single = emit_leaf(t, t->runs[lo + 1].leaf);
        return seccomp_asm_if(&t->assembler, BPF_JEQ, t->runs[lo + 1].first, single, around);
    }
    size_t mid = lo + (hi - lo) / 2;
    unsigned right = emit_tree(t, mid, hi);
    unsigned left = emit_tree(t, lo, mid);
    return seccomp_asm_if(&t->assembler, BPF_JGE, t->runs[mid].first, right, left);
}

static int finish(const struct seccomp_asm *a, struct seccomp_prog *ret_prog,
                  struct cordon_err *err)
{
    if (a->full)
        return 1;
    struct sock_filter *insns = malloc(a->count * sizeof(*insns));
    if (!insns)
        return err_nomem(err, "plan");
    memcpy(insns, a->insns + a->room - a->count, a->count * sizeof(*insns));
    *ret_prog = (struct seccomp_prog){insns, (unsigned short)a->count};
    return 0;
}

/* 1: there is not enough room */
static int build_in(struct sock_filter *insns, unsigned room, const struct seccomp_options *options,
                    const struct seccomp_profile *profile, struct seccomp_prog *ret_prog,
                    struct cordon_err *err)
{
    struct tree t;
    t.options = options;
    t.profile = profile;
    seccomp_asm_init(&t.assembler, insns, room);

    size_t n = 0;
    for (unsigned nr = 0; nr < SECCOMP_TABLE_SIZE; nr++) {
        uint32_t leaf = leaf_of(&t, nr);
        if (n == 0 || t.runs[n - 1].leaf != leaf)
            t.runs[n++] = (struct run){nr, leaf};
    }
    /* Everything above: newer calls, x32's numbers, -1. */
    const uint32_t unknown = SECCOMP_RULE(SECCOMP_TABLE_ERRNO, ENOSYS);
    if (t.runs[n - 1].leaf != unknown)
        t.runs[n++] = (struct run){SECCOMP_TABLE_SIZE, unknown};

    struct seccomp_asm *a = &t.assembler;
    unsigned body = emit_tree(&t, 0, n);
    body = seccomp_asm_load(a, offsetof(struct seccomp_data, nr), body);
    /* First of all: i386's int 0x80 uses other numbers for the same calls. */
    unsigned foreign = seccomp_asm_ret(a, SECCOMP_RET_ERRNO | ENOSYS);
    unsigned start = seccomp_asm_if(a, BPF_JEQ, AUDIT_ARCH_X86_64, body, foreign);
    seccomp_asm_load(a, offsetof(struct seccomp_data, arch), start);
    return finish(a, ret_prog, err);
}

/* A profile's filter may be as long as the kernel takes it: 32 KB of stack. */
static __attribute__((noinline)) int build_long(const struct seccomp_options *options,
                                                const struct seccomp_profile *profile,
                                                struct seccomp_prog *ret_prog,
                                                struct cordon_err *err)
{
    struct sock_filter insns[BPF_MAXINSNS];
    int r = build_in(insns, BPF_MAXINSNS, options, profile, ret_prog, err);
    if (r > 0)
        return err_set(err, CORDON_ERR_CONFIG, "plan", 0,
                       "system-call filter: more than %d instructions", BPF_MAXINSNS);
    return r;
}

int seccomp_build_with(const struct seccomp_options *options, const struct seccomp_profile *profile,
                       struct seccomp_prog *ret_prog, struct cordon_err *err)
{
    struct sock_filter insns[BUILTIN_MOST];
    int r = build_in(insns, BUILTIN_MOST, options, profile, ret_prog, err);
    return r > 0 ? build_long(options, profile, ret_prog, err) : r;
}

int seccomp_build(const struct seccomp_options *options, struct seccomp_prog *ret_prog,
                  struct cordon_err *err)
{
    return seccomp_build_with(options, NULL, ret_prog, err);
}

int seccomp_quiet(const struct seccomp_prog *prog, struct seccomp_prog *ret_prog,
                  struct cordon_err *err)
{
    struct sock_filter *insns = malloc(prog->len * sizeof(*insns));
    if (!insns)
        return err_nomem(err, "plan");
    for (size_t i = 0; i < prog->len; i++) {
        insns[i] = prog->insns[i];
        if (insns[i].code == (BPF_RET | BPF_K) && insns[i].k == SECCOMP_RET_USER_NOTIF)
            insns[i].k = SECCOMP_RET_ERRNO | EPERM;
    }
    *ret_prog = (struct seccomp_prog){insns, prog->len};
    return 0;
}

void seccomp_done(struct seccomp_prog *prog)
{
    free(prog->insns);
    *prog = (struct seccomp_prog){0};
}

enum seccomp_verdict seccomp_call_verdict(const struct seccomp_options *options, int nr)
{
    if (!seccomp_call_name(nr))
        return SECCOMP_UNKNOWN;
    uint16_t rule = seccomp_check_resolve(options, seccomp_table_rule((unsigned)nr));
    switch (SECCOMP_RULE_KIND(rule)) {
    case SECCOMP_TABLE_ALLOW: return SECCOMP_ALLOWED;
    case SECCOMP_TABLE_CHECK: return SECCOMP_CHECKED;
    case SECCOMP_TABLE_REFUSE: return SECCOMP_REFUSED;
    case SECCOMP_TABLE_ERRNO:
        return SECCOMP_RULE_PARAM(rule) == ENOSYS ? SECCOMP_UNKNOWN : SECCOMP_REFUSED;
    case SECCOMP_TABLE_NONE: break;
    }
    return SECCOMP_UNKNOWN;
}
