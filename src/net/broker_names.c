/* Names and the addresses that stand for them: one each, never reused in a run. Runs in the broker.
 */
#include "net/broker_internal.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

#define SLOTS (BROKER_NAMES_MAX * 2) /* a power of two */
#define FIRST 2                      /* the first address is nobody's, the second answers DNS */

static const uint8_t mapped_prefix[12] = {[10] = 0xff, [11] = 0xff};
static const uint8_t synth6[8] = NETWIRE_SYNTH6;

/* FNV-1a. A guest that makes names collide slows down its own lookups; the table is small. */
static uint32_t name_hash(const char *name)
{
    uint32_t h = 2166136261u;
    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 16777619u;
    return h;
}

int broker_name_number(struct broker *b, const char *name)
{
    if (!b->name_slots && !(b->name_slots = calloc(SLOTS, sizeof(*b->name_slots))))
        return -1;
    uint32_t slot = name_hash(name) & (SLOTS - 1);
    for (; b->name_slots[slot]; slot = (slot + 1) & (SLOTS - 1))
        if (str_eq(b->names[b->name_slots[slot] - 1].text, name))
            return b->name_slots[slot] - 1;
    if (b->n_names == BROKER_NAMES_MAX)
        return -1;
    if (b->n_names == b->cap_names) {
        size_t more = b->cap_names ? b->cap_names * 2 : 16;
        struct broker_name *grown = realloc(b->names, more * sizeof(*grown));
        if (!grown)
            return -1;
        b->names = grown;
        b->cap_names = more;
    }
    snprintf(b->names[b->n_names].text, sizeof(b->names[0].text), "%s", name);
    b->name_slots[slot] = (uint16_t)++b->n_names;
    return (int)b->n_names - 1;
}

void broker_name_addr(size_t number, bool v6, uint8_t ret_addr[static 16])
{
    uint32_t host = (uint32_t)(number + FIRST);
    if (v6) {
        memset(ret_addr, 0, 16);
        memcpy(ret_addr, synth6, 8);
    } else {
        memcpy(ret_addr, mapped_prefix, 12);
        host += NETWIRE_SYNTH4;
    }
    uint32_t net = htonl(host);
    memcpy(ret_addr + 12, &net, 4);
}

static uint32_t addr_low(const uint8_t addr[static 16])
{
    uint32_t net;
    memcpy(&net, addr + 12, 4);
    return ntohl(net);
}

const char *broker_name_of(const struct broker *b, const uint8_t addr[static 16],
                           bool *ret_synthetic)
{
    uint32_t low = addr_low(addr), number = 0;
    *ret_synthetic = false;
    if (memcmp(addr, mapped_prefix, 12) == 0 &&
        low >> (32 - NETWIRE_SYNTH4_BITS) == NETWIRE_SYNTH4 >> (32 - NETWIRE_SYNTH4_BITS)) {
        number = low - NETWIRE_SYNTH4;
        *ret_synthetic = true;
    } else if (memcmp(addr, synth6, 8) == 0) {
        static const uint8_t zero[4];
        number = memcmp(addr + 8, zero, 4) == 0 ? low : 0;
        *ret_synthetic = true;
    }
    return number >= FIRST && number - FIRST < b->n_names ? b->names[number - FIRST].text : NULL;
}

bool broker_is_dns_addr(const uint8_t addr[static 16])
{
    return memcmp(addr, mapped_prefix, 12) == 0 && addr_low(addr) == NETWIRE_DNS4;
}

void broker_addr_of(const struct sockaddr_storage *sa, uint8_t ret_addr[static 16],
                    uint16_t *ret_port)
{
    if (sa->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)sa;
        memcpy(ret_addr, mapped_prefix, 12);
        memcpy(ret_addr + 12, &in->sin_addr, 4);
        *ret_port = ntohs(in->sin_port);
    } else {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sa;
        memcpy(ret_addr, &in6->sin6_addr, 16);
        *ret_port = ntohs(in6->sin6_port);
    }
}

socklen_t broker_sockaddr(const uint8_t addr[static 16], uint16_t port,
                          struct sockaddr_storage *ret_sa)
{
    memset(ret_sa, 0, sizeof(*ret_sa));
    if (memcmp(addr, mapped_prefix, 12) == 0) {
        struct sockaddr_in *in = (struct sockaddr_in *)ret_sa;
        in->sin_family = AF_INET;
        in->sin_port = htons(port);
        memcpy(&in->sin_addr, addr + 12, 4);
        return sizeof(*in);
    }
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ret_sa;
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(port);
    memcpy(&in6->sin6_addr, addr, 16);
    return sizeof(*in6);
}
