/* Whom the first packet of a connection or a datagram is for. Pure; runs in the broker, on packets
 * as the guest's kernel made them. */
#ifndef NET_PACKETHEAD_H
#define NET_PACKETHEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PACKETHEAD_MAX 256 /* bytes that are looked at; headers beyond that are nobody's */

struct packethead {
    uint8_t dst[16]; /* IPv4 in mapped form */
    uint16_t port;
    bool is_udp, is_v6;
};

/* data begins with the IP header. False: anything else, later packets of a connection and later
 * pieces of a datagram too. */
bool packethead_read(const uint8_t *data, size_t len, struct packethead *ret_head);

#endif
