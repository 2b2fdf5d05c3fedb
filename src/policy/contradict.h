/* Settings about the network that cannot both be meant. */
#ifndef POLICY_CONTRADICT_H
#define POLICY_CONTRADICT_H

#include "policy/policy.h"

/* 0, or -1 and an error that names both and their places. */
int contradict_check(const struct policy *policy, struct cordon_err *err);

#endif
