/* Reads hosts, one per line in hexadecimal, and writes how nethost reads each: `-` for refused,
 * `name NAME` or `addr ADDRESS`. Driven by test_nethost.py. */
#include <stdio.h>
#include <string.h>

#include "policy/nethost.h"

int main(void)
{
    char line[8192], text[4096], shown[NETHOST_ADDR_TEXT_MAX];
    while (fgets(line, sizeof(line), stdin)) {
        size_t n = 0;
        unsigned byte;
        for (const char *p = line; sscanf(p, "%2x", &byte) == 1 && n < sizeof(text); p += 2)
            text[n++] = (char)byte;
        struct nethost host;
        uint16_t port;
        if (!nethost_parse_port(text, n, &host, &port))
            puts("-");
        else if (host.is_addr)
            printf("addr %s\n", nethost_addr_text(host.addr, shown));
        else
            printf("name %s\n", host.name);
    }
    return 0;
}
