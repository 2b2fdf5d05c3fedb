/* Addresses of network rules: their text and their prefixes. Pure; runs in
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
