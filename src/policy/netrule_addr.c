/* Addresses of network rules: their text, their prefixes, and which are internal. Pure; runs in
 * whoever reads a policy and in the broker. */
#include <arpa/inet.h>

#include "base/util.h"
#include "policy/netrule.h"

static const uint8_t mapped_prefix[12] = {[10] = 0xff, [11] = 0xff};

bool netrule_prefix_equal(const uint8_t *a, const uint8_t *b, unsigned bits)
{
    if (memcmp(a, b, bits / 8) != 0)
        return false;
    return bits % 8 == 0 || ((a[bits / 8] ^ b[bits / 8]) & (uint8_t)(0xff00 >> (bits % 8))) == 0;
}

bool netrule_parse_addr(const char *text, uint8_t ret_addr[static 16])
{
    uint8_t v4[4], v6[16];
    if (inet_pton(AF_INET, text, v4) == 1) {
        memcpy(ret_addr, mapped_prefix, 12);
        memcpy(ret_addr + 12, v4, 4);
        return true;
    }
    if (inet_pton(AF_INET6, text, v6) == 1) {
        memcpy(ret_addr, v6, 16);
        return true;
    }
    return false;
}

static bool v4_is_internal(const uint8_t addr[static 4])
{
    static const struct {
        uint8_t net[4];
        uint8_t bits;
    } ranges[] = {
        {{0}, 8},                 /* this network: 0.0.0.0 reaches loopback */
        {{10}, 8},                /* private */
        {{100, 64}, 10},          /* CGNAT; also 100.100.100.200, Alibaba's metadata */
        {{127}, 8},               /* loopback */
        {{168, 63, 129, 16}, 32}, /* Azure's host agent: a public number, an internal service */
        {{169, 254}, 16},         /* link-local; metadata of most clouds */
        {{172, 16}, 12},          /* private */
        {{192, 0, 0}, 24},        /* protocol assignments; Oracle's metadata */
        {{192, 168}, 16},         /* private */
        {{198, 18}, 15},          /* benchmarks; the broker's own synthetic addresses */
        {{224}, 4},               /* multicast */
        {{240}, 4},               /* reserved, broadcast */
    };
    for (size_t i = 0; i < ARRAY_SIZE(ranges); i++) {
        if (netrule_prefix_equal(addr, ranges[i].net, ranges[i].bits))
            return true;
    }
    return false;
}

bool netrule_addr_is_internal(const uint8_t addr[static 16])
{
    static const struct {
        uint8_t net[16];
        uint8_t bits;
    } ranges[] = {
        {{0x00, 0x64, 0xff, 0x9b, 0x00, 0x01}, 48}, /* local-use NAT64 */
        {{0x01}, 64},                               /* discard-only */
        {{0xfc}, 7},                                /* ULA; AWS's fd00:ec2::254 */
        {{0xfe, 0x80}, 10},                         /* link-local */
        {{0xfe, 0xc0}, 10},                         /* site-local, deprecated */
        {{0xff}, 8},                                /* multicast */
    };
    /* Forms that carry an IPv4 address: at which byte, and whether it is stored inverted. */
    static const struct {
        uint8_t net[16];
        uint8_t bits, offset, invert;
    } carriers[] = {
        {{[10] = 0xff, [11] = 0xff}, 96, 12, 0}, /* mapped */
        {{[8] = 0xff, [9] = 0xff}, 96, 12, 0},   /* translated (SIIT) */
        {{0}, 96, 12, 0},                        /* compatible; :: and ::1 too */
        {{0x00, 0x64, 0xff, 0x9b}, 96, 12, 0},   /* NAT64 */
        {{0x20, 0x02}, 16, 2, 0},                /* 6to4 */
        {{0x20, 0x01}, 32, 12, 0xff},            /* Teredo, the client */
        {{0x20, 0x01}, 32, 4, 0},                /* Teredo, the server */
    };
    for (size_t i = 0; i < ARRAY_SIZE(ranges); i++) {
        if (netrule_prefix_equal(addr, ranges[i].net, ranges[i].bits))
            return true;
    }
    for (size_t i = 0; i < ARRAY_SIZE(carriers); i++) {
        if (!netrule_prefix_equal(addr, carriers[i].net, carriers[i].bits))
            continue;
        uint8_t v4[4];
        for (size_t k = 0; k < 4; k++)
            v4[k] = addr[carriers[i].offset + k] ^ carriers[i].invert;
        if (v4_is_internal(v4))
            return true;
    }
    return false;
}
