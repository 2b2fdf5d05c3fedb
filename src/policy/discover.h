/* Which configuration files count, and reading them without being led astray. */
#ifndef POLICY_DISCOVER_H
#define POLICY_DISCOVER_H

#include "policy/config.h"

struct discover_where {
    const char *cwd;
    char *const *environ;
};

/* $XDG_CONFIG_HOME/cordon/config.toml, or ~/.config/...; *ret_config is NULL when there is none. */
int discover_user(const struct discover_where *where, struct config **ret_config,
                  struct cordon_err *err);

/* cordon.toml in the working directory or the nearest parent; *ret_config is NULL when there is
 * none. */
int discover_project(const struct discover_where *where, struct config **ret_config,
                     struct cordon_err *err);

/* The file the caller named; it must exist. */
int discover_named(const struct discover_where *where, const char *file, struct config **ret_config,
                   struct cordon_err *err);

#endif
