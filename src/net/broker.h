/* The broker: the only process through which a guest's traffic leaves. See docs/network.md.
 *
 * One per guest that has a network, started by the supervisor (netclient.c), in the host's network,
 * outside the guest's limits, without privileges, behind a system-call filter of its own. */
#ifndef NET_BROKER_H
#define NET_BROKER_H

/* Runs until the supervisor ends it or is gone; the process's exit status. */
int broker_main(void);

#endif
