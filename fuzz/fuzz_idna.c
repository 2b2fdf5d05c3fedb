/* libFuzzer entry for hosts as people write them, in any script: what is accepted has one form,
 * which a program may send and which is read as itself everywhere.
 *
 * clang -std=gnu17 -D_GNU_SOURCE -g -O1 -fsanitize=fuzzer,address,undefined -Iinclude -Isrc \
 *     fuzz/fuzz_idna.c src/policy/idna*.c src/policy/net{host,internal,rule,rule_addr}.c \
 *     src/policy/punycode.c -o build/fuzz_idna
 * build/fuzz_idna CORPUS_DIR fuzz/seeds/fuzz_idna */
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "policy/idna.h"
#include "policy/nethost.h"
#include "policy/netrule.h"
#include "policy/punycode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void check_name(const char *name)
{
    size_t len = strlen(name);
    struct nethost sent, again;
    char canonical[NETRULE_NAME_MAX + 1];
    uint16_t port;
    check(len > 0 && len <= NETHOST_NAME_MAX && name[len - 1] != '.');
    check(strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-.") == len);
    check(nethost_parse(name, len, &sent) && !sent.is_addr && str_eq(sent.name, name));
    check(nethost_parse_written(name, len, &again, &port) && nethost_equal(&sent, &again));
    check(netrule_canonical_name(name, len, canonical) && str_eq(canonical, name));
    check(!strstr(name, "xn--") || idna_is_name(name));
}

/* The same text as a rule means the same host, where it is a rule at all. */
static void check_rule(const char *text, const struct nethost *host)
{
    struct netrule rule;
    char why[NETRULE_WHY_MAX];
    if (netrule_parse(text, &rule, why) < 0)
        return;
    if (rule.kind == NETRULE_NAME)
        check(!host->is_addr && str_eq(rule.host, host->name));
    else if (rule.kind == NETRULE_ADDRESS && rule.is_literal)
        check(host->is_addr && memcmp(rule.addr, host->addr, 16) == 0);
}

static void check_punycode(const char *text, size_t len)
{
    uint32_t points[PUNYCODE_MAX];
    char again[PUNYCODE_MAX + 1];
    bool is_label =
        len <= PUNYCODE_MAX && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == len;
    size_t n = is_label ? punycode_decode(text, len, points) : 0;
    if (n > 0 && punycode_encode(points, n, again, sizeof(again))) {
        uint32_t once_more[PUNYCODE_MAX];
        check(punycode_decode(again, strlen(again), once_more) == n);
        check(memcmp(points, once_more, n * sizeof(*points)) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nethost host;
    uint16_t port;
    if (size > 4096)
        return 0;
    _cleanup_free_ char *text = malloc(size + 1);
    check(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    check_punycode(text, size);
    if (!nethost_parse_written(text, size, &host, &port))
        return 0;
    check(strlen(text) == size);
    if (!host.is_addr)
        check_name(host.name);
    check_rule(text, &host);
    return 0;
}
