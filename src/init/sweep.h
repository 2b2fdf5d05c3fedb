/* The end of everything in a container. Used by its pid 1 only. */
#ifndef INIT_SWEEP_H
#define INIT_SWEEP_H

#include <sys/types.h>

/* Kills and reaps until no other process is left, and says how many it reaped. The status of
 * main_pid, if it is among them, goes to *ret_wstatus. */
unsigned sweep_all(pid_t main_pid, int *ret_wstatus);

#endif
