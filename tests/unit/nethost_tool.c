/* Reads hosts, one per line in hexadecimal, and writes how nethost reads each: `-` for refused,
 * `name NAME` or `addr ADDRESS`. As a person writes them, or with `wire` as a program sends them;
 * with `rule` as a network rule. Driven by test_nethost.py. */
#include <stdio.h>
#include <string.h>

#include "policy/nethost.h"
#include "policy/netrule.h"

/* One address, one name or pattern; ranges are not asked for. */
static bool read_rule(const char *text, struct nethost *ret_host)
{
    struct netrule rule;
    char why[NETRULE_WHY_MAX];
    if (netrule_parse(text, &rule, why) < 0)
        return false;
    *ret_host = (struct nethost){.is_addr = rule.kind == NETRULE_ADDRESS};
    memcpy(ret_host->name, rule.host, sizeof(rule.host));
    memcpy(ret_host->addr, rule.addr, sizeof(rule.addr));
    return true;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    char line[8192], text[4096], shown[NETHOST_ADDR_TEXT_MAX];
    while (fgets(line, sizeof(line), stdin)) {
        size_t n = 0;
        unsigned byte;
        for (const char *p = line; sscanf(p, "%2x", &byte) == 1 && n + 1 < sizeof(text); p += 2)
            text[n++] = (char)byte;
        text[n] = '\0';
        struct nethost host;
        uint16_t port;
        bool good = strcmp(mode, "wire") == 0   ? nethost_parse_port(text, n, &host, &port)
                    : strcmp(mode, "rule") == 0 ? strlen(text) == n && read_rule(text, &host)
                                                : nethost_parse_written(text, n, &host, &port);
        if (!good)
            puts("-");
        else if (host.is_addr)
            printf("addr %s\n", nethost_addr_text(host.addr, shown));
        else
            printf("name %s\n", host.name);
    }
    return 0;
}
