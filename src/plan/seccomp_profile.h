/* A user's Docker/OCI seccomp profile, read and ready to be built into the filter. Internal to the
 * filter. */
#ifndef PLAN_SECCOMP_PROFILE_H
#define PLAN_SECCOMP_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "plan/seccomp.h"
#include "plan/seccomp_asm.h"
#include "plan/seccomp_table.h"

struct seccomp_profile_cmp {
    enum {
        SECCOMP_CMP_EQ,
        SECCOMP_CMP_NE,
        SECCOMP_CMP_LT,
        SECCOMP_CMP_LE,
        SECCOMP_CMP_GE,
        SECCOMP_CMP_GT,
        SECCOMP_CMP_MASKED_EQ, /* (argument & value) == value_two */
    } op;
    unsigned index;
    uint64_t value;
    uint64_t value_two;
};

#define SECCOMP_PROFILE_ALLOW (-1)

/* One rule with conditions, all of which must hold, for one call. */
struct seccomp_profile_rule {
    unsigned nr;
    int action; /* an errno, or SECCOMP_PROFILE_ALLOW */
    unsigned cmps_len;
    struct seccomp_profile_cmp cmps[6];
};

/* The rules of a call that have no conditions, and whether there are others. */
struct seccomp_profile_call {
    bool allow;
    bool deny;
    bool has_rules;
    uint16_t error; /* of deny */
};

/* Of all rules that match a call the strictest counts, whatever their order; among errors the
 * first. If none matches, default_action. */
struct seccomp_profile {
    int default_action;
    struct seccomp_profile_call calls[SECCOMP_TABLE_SIZE];
    struct seccomp_profile_rule *rules; /* in the file's order */
    size_t rules_len;
};

/* 0: never refuses this call. Equal keys need equal code. */
uint16_t seccomp_profile_key(const struct seccomp_profile *profile, unsigned nr);
/* A key that refuses whatever the arguments are. */
bool seccomp_profile_key_is_denial(uint16_t key);
/* Writes the code of a key; what it lets pass goes on at `allowed`. */
unsigned seccomp_profile_emit(struct seccomp_asm *a, const struct seccomp_options *options,
                              const struct seccomp_profile *profile, uint16_t key,
                              unsigned allowed);

/* In seccomp.c: the built-in filter tightened by a profile (NULL: none). */
int seccomp_build_with(const struct seccomp_options *options, const struct seccomp_profile *profile,
                       struct seccomp_prog *ret_prog, struct cordon_err *err);

#endif
