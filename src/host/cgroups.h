/* The steps of the search for cgroups, apart so that tests can give them folders of their own. */
#ifndef HOST_CGROUPS_H
#define HOST_CGROUPS_H

#include "host/host.h"

/* From our own group (a folder at or below mount) upwards: the nearest group in which we may make
 * children that get memory, pids and cpu; else the nearest that gives memory and pids; else any
 * that gives one of them. Fills .v2, .v2_* and leaves .kind alone. */
void host_cgroups_walk_v2(const char *mount, const char *own, struct host_cgroups *ret_cgroups);

/* scope.c. The socket of the user's own message bus, if there is one that belongs to us. */
bool host_scope_bus(char *ret_path, size_t size);
/* Asks for a scope and waits until cgroup_file says that we are in it. */
bool host_scope_ask(const char *bus_path, const char *cgroup_file, unsigned timeout_ms);

#endif
