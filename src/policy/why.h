/* May the guest use this path, or reach that host, and by which rule? For `explain --path` and
 * `--host`. Pure: by the rules alone; links are not followed and names are not resolved. */
#ifndef POLICY_WHY_H
#define POLICY_WHY_H

#include "policy/policy.h"

struct why {
    bool allowed;
    char rule[512];   /* "allow_read = /data", "private /tmp", "runtime", "default" */
    char origin[512]; /* "cordon.toml:7", or empty for what holds in any case */
    const char *note; /* what the answer alone would make people believe wrongly, or NULL */
    bool is_scratch;  /* in the guest's own: what the host has by that path is not there */
};

/* path as the guest sees it; a relative one starts in its working directory. */
int why_path(const struct policy *policy, const char *path, bool write, struct why *ret_why,
             struct cordon_err *err);

/* HOST, HOST:PORT, an address, [V6]:PORT; without a port any port will do. A text
 * that is none of those is CORDON_ERR_USAGE. */
int why_host(const struct policy *policy, const char *host, struct why *ret_why,
             struct cordon_err *err);

#endif
