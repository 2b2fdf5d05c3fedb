/* Which addresses are internal: loopback, private, link-local and the like, and every form in which
 * IPv6 carries one. One table, asked address by address by the broker, and handed out as masks to
 * whoever filters packets. Pure. */
#include "policy/netrule.h"

#include <string.h>

#include "base/util.h"

struct prefix {
    uint8_t net[16];
    uint8_t bits;
};

static const struct prefix v4_ranges[] = {
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

static const struct prefix v6_ranges[] = {
    {{0x00, 0x64, 0xff, 0x9b, 0x00, 0x01}, 48}, /* local-use NAT64 */
    {{0x01}, 64},                               /* discard-only */
    {{0xfc}, 7},                                /* ULA; AWS's fd00:ec2::254 */
    {{0xfe, 0x80}, 10},                         /* link-local */
    {{0xfe, 0xc0}, 10},                         /* site-local, deprecated */
    {{0xff}, 8},                                /* multicast */
};

/* Forms that carry an IPv4 address: at which byte, and whether it is stored inverted. */
static const struct {
    struct prefix at;
    uint8_t offset, invert;
} carriers[] = {
    {{{[10] = 0xff, [11] = 0xff}, 96}, 12, 0}, /* mapped */
    {{{[8] = 0xff, [9] = 0xff}, 96}, 12, 0},   /* translated (SIIT) */
    {{{0}, 96}, 12, 0},                        /* compatible; :: and ::1 too */
    {{{0x00, 0x64, 0xff, 0x9b}, 96}, 12, 0},   /* NAT64 */
    {{{0x20, 0x02}, 16}, 2, 0},                /* 6to4 */
    {{{0x20, 0x01}, 32}, 12, 0xff},            /* Teredo, the client */
    {{{0x20, 0x01}, 32}, 4, 0},                /* Teredo, the server */
};

_Static_assert(ARRAY_SIZE(v4_ranges) + ARRAY_SIZE(v6_ranges) +
                       ARRAY_SIZE(carriers) * ARRAY_SIZE(v4_ranges) <=
                   NETRULE_INTERNAL_MAX,
               "every range has a place in the list");

/* Adds a prefix at a byte of the address. */
static void internal_put(struct netrule_internal *to, unsigned at, const struct prefix *p,
                         uint8_t invert)
{
    for (unsigned bit = 0; bit < p->bits; bit++)
        to->mask[at + bit / 8] |= (uint8_t)(0x80 >> bit % 8);
    for (unsigned i = at; i < at + (p->bits + 7u) / 8; i++)
        to->net[i] = (p->net[i - at] ^ invert) & to->mask[i];
}

size_t netrule_internal_list(struct netrule_internal ret_list[static NETRULE_INTERNAL_MAX])
{
    size_t n = 0;
    memset(ret_list, 0, NETRULE_INTERNAL_MAX * sizeof(*ret_list));
    for (size_t i = 0; i < ARRAY_SIZE(v4_ranges); i++) {
        ret_list[n].is_v4 = true;
        internal_put(&ret_list[n++], 0, &v4_ranges[i], 0);
    }
    for (size_t i = 0; i < ARRAY_SIZE(v6_ranges); i++)
        internal_put(&ret_list[n++], 0, &v6_ranges[i], 0);
    for (size_t i = 0; i < ARRAY_SIZE(carriers); i++) {
        for (size_t k = 0; k < ARRAY_SIZE(v4_ranges); k++) {
            internal_put(&ret_list[n], 0, &carriers[i].at, 0);
            internal_put(&ret_list[n++], carriers[i].offset, &v4_ranges[k], carriers[i].invert);
        }
    }
    return n;
}

static bool prefix_matches(const uint8_t *addr, const struct prefix *p)
{
    unsigned whole = p->bits / 8u, rest = p->bits % 8u;
    if (memcmp(addr, p->net, whole) != 0)
        return false;
    return rest == 0 || (addr[whole] ^ p->net[whole]) >> (8 - rest) == 0;
}

static bool v4_is_internal(const uint8_t addr[static 4])
{
    for (size_t i = 0; i < ARRAY_SIZE(v4_ranges); i++)
        if (prefix_matches(addr, &v4_ranges[i]))
            return true;
    return false;
}

bool netrule_addr_is_internal(const uint8_t addr[static 16])
{
    for (size_t i = 0; i < ARRAY_SIZE(v6_ranges); i++)
        if (prefix_matches(addr, &v6_ranges[i]))
            return true;
    for (size_t i = 0; i < ARRAY_SIZE(carriers); i++) {
        if (!prefix_matches(addr, &carriers[i].at))
            continue;
        uint8_t v4[4];
        for (size_t k = 0; k < 4; k++)
            v4[k] = addr[carriers[i].offset + k] ^ carriers[i].invert;
        if (v4_is_internal(v4))
            return true;
    }
    return false;
}
