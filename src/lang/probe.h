/* What can be run here: every language with its version, asked inside the sandbox. */
#ifndef LANG_PROBE_H
#define LANG_PROBE_H

#include <stdbool.h>

#include <cordon.h>

#include "host/host.h"
#include "lang/registry.h"

struct lang_probe {
    const struct lang *lang; /* borrowed from the registry */
    bool is_here;
    char version[160]; /* first line of what it says of itself; empty: it says nothing */
    char path[256];    /* its first program on the host */
    char why[512];     /* not here: what is missing, or how asking went wrong */
};

/* One row per language of the registry, in its order; ret has room for registry->n. vars is the
 * caller's environment. Fails only when nothing could be asked at all. */
int lang_probe_all(const struct policy *policy, const struct host *host,
                   const struct lang_registry *registry, char *const *vars, struct lang_probe *ret,
                   struct cordon_err *err);

#endif
