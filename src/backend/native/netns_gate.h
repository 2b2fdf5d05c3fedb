/* Shared by the files of the guest's gate (netns_gate.c, netns_seen.c, netns_rules.c) only. */
#ifndef NATIVE_NETNS_GATE_H
#define NATIVE_NETNS_GATE_H

#include <stdint.h>

/* All of these act on the namespace the caller is in. -1 with errno. */

/* A packet socket that gets the first packets of what arrives on a link, once that is there. */
int gate_seen_socket(void);
int gate_seen_begin(int fd, unsigned link_index);
void gate_no_icmp_limit(void);
void gate_open_ports(void);
/* What is for no address of ours is refused at once: TCP with a reset. */
int gate_refuse_foreign(void);
/* TCP to whatever address and port goes to the transparent listener on this port. */
int gate_redirect_all(uint16_t port);

#endif
