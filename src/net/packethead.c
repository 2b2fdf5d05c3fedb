/* Headers of IPv4 and IPv6, as far as the port. Pure; runs in the broker. */
#include "net/packethead.h"

#include <netinet/in.h>
#include <string.h>

/* Past IPv6's further headers. False: a later piece of a datagram, or no header. */
static bool skip_further(const uint8_t *data, size_t len, size_t *at, uint8_t *protocol)
{
    enum { HOP_BY_HOP = 0, ROUTING = 43, FRAGMENT = 44, DESTINATION = 60 };
    while (*protocol == HOP_BY_HOP || *protocol == ROUTING || *protocol == FRAGMENT ||
           *protocol == DESTINATION) {
        if (*at + 8 > len)
            return false;
        bool is_piece = *protocol == FRAGMENT;
        if (is_piece && ((data[*at + 2] << 8 | data[*at + 3]) & 0xfff8) != 0)
            return false;
        *protocol = data[*at];
        *at += is_piece ? 8 : ((size_t)data[*at + 1] + 1) * 8;
    }
    return true;
}

/* Where the next header begins, and which it is. */
static bool read_ip(const uint8_t *data, size_t len, struct packethead *head, size_t *ret_at,
                    uint8_t *ret_protocol)
{
    if (len >= 20 && data[0] >> 4 == 4) {
        head->dst[10] = head->dst[11] = 0xff;
        memcpy(head->dst + 12, data + 16, 4);
        *ret_at = (size_t)(data[0] & 15) * 4;
        *ret_protocol = data[9];
        return *ret_at >= 20 && ((data[6] & 0x1f) | data[7]) == 0; /* not a later piece */
    }
    if (len < 40 || data[0] >> 4 != 6)
        return false;
    memcpy(head->dst, data + 24, 16);
    head->is_v6 = true;
    *ret_at = 40;
    *ret_protocol = data[6];
    return skip_further(data, len, ret_at, ret_protocol);
}

bool packethead_read(const uint8_t *data, size_t len, struct packethead *ret_head)
{
    struct packethead head = {0};
    size_t at;
    uint8_t protocol;
    if (!read_ip(data, len, &head, &at, &protocol) || at + 4 > len ||
        (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP))
        return false;
    head.is_udp = protocol == IPPROTO_UDP;
    if (!head.is_udp && (at + 14 > len || (data[at + 13] & 0x12) != 0x02))
        return false; /* no SYN, or an answer to one */
    head.port = (uint16_t)(data[at + 2] << 8 | data[at + 3]);
    *ret_head = head;
    return true;
}
