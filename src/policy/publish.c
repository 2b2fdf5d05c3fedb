/* Reader of published ports. Pure; runs in the planner and in the broker. */
#include "policy/publish.h"

#include "base/util.h"

static bool publish_port(const char *text, size_t len, uint16_t *ret_port)
{
    unsigned n = 0;
    if (len == 0 || len > 5 || text[0] == '0')
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        n = n * 10 + (unsigned)(text[i] - '0');
    }
    *ret_port = (uint16_t)n;
    return n <= 65535;
}

bool publish_parse(const char *text, uint16_t *ret_host_port, uint16_t *ret_guest_port)
{
    uint16_t host, guest;
    const char *colon = strchr(text, ':');
    if (!publish_port(text, colon ? (size_t)(colon - text) : strlen(text), &host))
        return false;
    guest = host;
    if (colon && !publish_port(colon + 1, strlen(colon + 1), &guest))
        return false;
    *ret_host_port = host;
    *ret_guest_port = guest;
    return true;
}
