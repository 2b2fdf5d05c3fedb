/* The network part of a policy as bytes: the broker is a fresh process and decides by the same
 * policy as the supervisor. Both ends are the same build. */
#ifndef NET_POLICYWIRE_H
#define NET_POLICYWIRE_H

#include "base/arena.h"
#include "base/buf.h"
#include "policy/policy.h"

#define POLICYWIRE_MAX (16u << 20)

/* Appends; the buffer's own failure flag says whether it fitted. */
void policywire_write(const struct policy *policy, struct buf *out);

/* A policy with the network's fields only; its memory is the arena's (never policy_free it). */
int policywire_read(const char *data, size_t len, struct arena *arena, struct policy *ret_policy,
                    struct cordon_err *err);

#endif
