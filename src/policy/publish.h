/* `publish`: a port of the guest's on the host's loopback. Pure. */
#ifndef POLICY_PUBLISH_H
#define POLICY_PUBLISH_H

#include <stdbool.h>
#include <stdint.h>

/* HOSTPORT:GUESTPORT, or one number for both. */
bool publish_parse(const char *text, uint16_t *ret_host_port, uint16_t *ret_guest_port);

#endif
