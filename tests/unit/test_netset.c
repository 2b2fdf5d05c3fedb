/* Network rules compiled and asked: names, addresses, the address that is dialled. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "policy/netrule.h"
#include "policy/netset.h"

static struct netset make(const struct policy_setting *settings, size_t n)
{
    char *environ[] = {NULL};
    struct policy_input input = {.settings = settings,
                                 .n_settings = n,
                                 .no_discovery = true,
                                 .environ = environ,
                                 .cwd = "/"};
    struct policy *policy;
    struct cordon_err err;
    struct netset set;
    if (policy_resolve(&input, &policy, &err) < 0)
        fail_msg("%s", err.message);
    if (netset_make(policy, &set, &err) < 0)
        fail_msg("%s", err.message);
    policy_free(policy);
    return set;
}

#define MAKE(...)                                                                                  \
    make((const struct policy_setting[]){__VA_ARGS__},                                             \
         sizeof((const struct policy_setting[]){__VA_ARGS__}) / sizeof(struct policy_setting))
#define ALLOW(text)                                                                                \
    {                                                                                              \
        .name = "allow-network", .value = text                                                     \
    }
#define DENY(text)                                                                                 \
    {                                                                                              \
        .name = "deny-network", .value = text                                                      \
    }

static const char *name_rule(const struct netset *set, const char *name, uint16_t port)
{
    struct netset_verdict v = netset_name(set, name, NETRULE_TCP, port);
    static char text[256];
    snprintf(text, sizeof(text), "%c %s", v.allowed ? '+' : '-', v.rule);
    return text;
}

static bool addr_ok(const struct netset *set, const char *addr, uint16_t port)
{
    uint8_t bytes[16];
    assert_true(netrule_parse_addr(addr, bytes));
    return netset_addr(set, bytes, NETRULE_TCP, port).allowed;
}

/* name allowed first, then the address it led to */
static bool dial_ok(const struct netset *set, const char *name, const char *addr, uint16_t port)
{
    uint8_t bytes[16];
    assert_true(netrule_parse_addr(addr, bytes));
    struct netset_verdict first = netset_name(set, name, NETRULE_TCP, port);
    assert_true(first.allowed);
    struct netset_verdict v = netset_dial(set, &first, bytes, NETRULE_TCP, port);
    assert_true(v.allowed || !str_eq(v.rule, first.rule));
    return v.allowed;
}

static void test_names(void **state)
{
    (void)state;
    struct netset set = MAKE(ALLOW("ok.test"), ALLOW("*.wild.example"), ALLOW("api.*.example"),
                             ALLOW("db.example:5432"), ALLOW("https://cdn.example/*"),
                             DENY("bad.wild.example"), DENY("db2.example:22"));
    assert_string_equal(name_rule(&set, "ok.test", 443), "+ allow_network = ok.test");
    assert_string_equal(name_rule(&set, "ok.test", 80), "+ allow_network = ok.test");
    assert_string_equal(name_rule(&set, "ok.test", 22), "- default");
    assert_string_equal(name_rule(&set, "ok.test", 0), "+ allow_network = ok.test");
    assert_string_equal(name_rule(&set, "evilok.test", 443), "- default");
    assert_string_equal(name_rule(&set, "ok.test.evil.com", 443), "- default");
    assert_string_equal(name_rule(&set, "a.wild.example", 443), "+ allow_network = *.wild.example");
    assert_string_equal(name_rule(&set, "b.a.wild.example", 443),
                        "+ allow_network = *.wild.example");
    assert_string_equal(name_rule(&set, "wild.example", 443), "- default");
    assert_string_equal(name_rule(&set, "bad.wild.example", 443),
                        "- network.deny_patterns = bad.wild.example");
    assert_string_equal(name_rule(&set, "bad.wild.example", 0),
                        "- network.deny_patterns = bad.wild.example");
    assert_string_equal(name_rule(&set, "api.x.example", 80), "+ allow_network = api.*.example");
    assert_string_equal(name_rule(&set, "api.x.y.example", 80), "- default");
    assert_string_equal(name_rule(&set, "db.example", 5432), "+ allow_network = db.example:5432");
    assert_string_equal(name_rule(&set, "db.example", 443), "- default");
    assert_string_equal(name_rule(&set, "cdn.example", 443),
                        "+ allow_network = https://cdn.example/*");
    assert_string_equal(name_rule(&set, "cdn.example", 80), "- default");
    assert_false(netset_name(&set, "ok.test", NETRULE_UDP, 443).allowed);
    uint16_t ports[8];
    assert_int_equal(netset_ports(&set, NETRULE_TCP, ports, 8), 3);
    assert_true(ports[0] == 80 && ports[1] == 443 && ports[2] == 5432);
    assert_int_equal(netset_ports(&set, NETRULE_TCP, ports, 2), 2);
    netset_done(&set);
}

static void test_empty_means_nothing(void **state)
{
    (void)state;
    struct netset set = MAKE({.name = "log-network"});
    assert_true(netset_is_empty(&set));
    assert_string_equal(name_rule(&set, "ok.test", 443), "- default");
    assert_string_equal(name_rule(&set, "ok.test", 0), "- default");
    assert_string_equal(name_rule(&set, NETSET_HOST_NAME, 0), "- default");
    assert_false(addr_ok(&set, "203.0.113.5", 443));
    netset_done(&set);
    set = MAKE({.name = "allow-network", .value = "ok.test"},
               {.name = "allow-network", .value = "false"});
    assert_true(netset_is_empty(&set));
    netset_done(&set);
}

static const char *const internal[] = {
    "0.0.0.0",
    "10.1.2.3",
    "100.64.0.1",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "224.0.0.1",
    "255.255.255.255",
    "168.63.129.16",
    "100.100.100.200",
    "192.0.0.192",
    "198.18.0.1",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:0:10.0.0.1",
    "64:ff9b::10.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "2002:7f00:1::",
    "2002:a00:1::1",
    "2001:0:a00:1::",
    "2001:0:cb00:7105::80ff:fffe",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fec0::1",
    "ff02::1",
};
static const char *const outside[] = {"203.0.113.5",     "198.51.100.7",     "192.0.2.1",
                                      "8.8.8.8",         "172.32.0.1",       "100.128.0.1",
                                      "::ffff:8.8.8.8",  "64:ff9b::808:808", "2001:db8::1",
                                      "2606:4700::1111", "2002:808:808::1"};

static void test_dialled_address(void **state)
{
    (void)state;
    struct netset set = MAKE(ALLOW("ok.test"));
    for (size_t i = 0; i < ARRAY_SIZE(internal); i++) {
        if (dial_ok(&set, "ok.test", internal[i], 443))
            fail_msg("%s is dialled", internal[i]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(outside); i++) {
        if (!dial_ok(&set, "ok.test", outside[i], 443))
            fail_msg("%s is refused", outside[i]);
    }
    netset_done(&set);

    set = MAKE(ALLOW("ok.test"), {.name = "block-internal", .value = "false"});
    for (size_t i = 0; i < ARRAY_SIZE(internal); i++)
        assert_true(dial_ok(&set, "ok.test", internal[i], 443));
    netset_done(&set);
}

/* By the masks that packet rules are made of. */
static bool is_masked(const char *text)
{
    static struct netrule_internal list[NETRULE_INTERNAL_MAX];
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    uint8_t addr[16];
    size_t n = netrule_internal_list(list);
    assert_true(netrule_parse_addr(text, addr));
    bool is_v4 = memcmp(addr, mapped, 12) == 0;
    const uint8_t *at = is_v4 ? addr + 12 : addr;
    for (size_t i = 0; i < n; i++) {
        bool same = list[i].is_v4 == is_v4;
        for (size_t k = 0; k < (is_v4 ? 4u : 16u); k++)
            same &= (at[k] & list[i].mask[k]) == list[i].net[k];
        if (same)
            return true;
    }
    return false;
}

static void test_internal_masks(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(internal); i++)
        if (!is_masked(internal[i]))
            fail_msg("%s is not in the list", internal[i]);
    for (size_t i = 0; i < ARRAY_SIZE(outside); i++)
        if (is_masked(outside[i]))
            fail_msg("%s is in the list", outside[i]);
}

static void test_internal_by_rule(void **state)
{
    (void)state;
    struct netset set = MAKE(ALLOW("ok.test"), ALLOW("*.local"), ALLOW("10.0.0.0/8"),
                             ALLOW("192.168.1.7:5432"), ALLOW("printer.test"), DENY("10.6.*"));
    assert_true(dial_ok(&set, "ok.test", "10.1.2.3", 443)); /* the range names it */
    assert_true(dial_ok(&set, "ok.test", "64:ff9b::a01:203", 443));
    assert_false(dial_ok(&set, "ok.test", "10.6.2.3", 443));
    assert_false(dial_ok(&set, "ok.test", "::ffff:10.6.2.3", 443));
    assert_false(dial_ok(&set, "ok.test", "192.168.1.7", 443)); /* named for another port */
    assert_true(dial_ok(&set, "a.local", "192.168.9.9", 80));
    assert_false(dial_ok(&set, "printer.test", "192.168.9.9", 80));
    assert_true(addr_ok(&set, "10.1.2.3", 443));
    assert_false(addr_ok(&set, "10.6.2.3", 443));
    assert_true(addr_ok(&set, "192.168.1.7", 5432));
    assert_false(addr_ok(&set, "192.168.1.7", 443));
    assert_false(addr_ok(&set, "192.168.1.8", 5432));
    netset_done(&set);
}

static void test_everything(void **state)
{
    (void)state;
    struct netset set =
        MAKE({.name = "network", .value = "bridge"}, DENY("evil.com"), DENY("203.0.113.0/24"));
    assert_string_equal(name_rule(&set, "any.example", 12345), "+ network = bridge");
    assert_string_equal(name_rule(&set, "evil.com", 443), "- network.deny_patterns = evil.com");
    assert_string_equal(name_rule(&set, NETSET_HOST_NAME, 443), "- default");
    assert_true(addr_ok(&set, "8.8.8.8", 25));
    assert_false(addr_ok(&set, "203.0.113.9", 25));
    assert_false(dial_ok(&set, "any.example", "203.0.113.9", 443));
    for (size_t i = 0; i < ARRAY_SIZE(internal); i++) {
        assert_false(addr_ok(&set, internal[i], 443));
        assert_false(dial_ok(&set, "any.example", internal[i], 443));
    }
    assert_false(netset_name(&set, "any.example", NETRULE_UDP, 53).allowed);
    netset_done(&set);
}

static void test_host_loopback(void **state)
{
    (void)state;
    struct netset set = MAKE({.name = "allow-host-port", .value = "5432"});
    assert_false(netset_is_empty(&set));
    assert_true(netset_name(&set, NETSET_HOST_NAME, NETRULE_TCP, 5432).host_loopback);
    assert_false(netset_name(&set, NETSET_HOST_NAME, NETRULE_TCP, 5433).allowed);
    assert_true(dial_ok(&set, NETSET_HOST_NAME, "127.0.0.1", 5432));
    assert_true(dial_ok(&set, NETSET_HOST_NAME, "::1", 5432));
    assert_false(dial_ok(&set, NETSET_HOST_NAME, "10.0.0.1", 5432));
    netset_done(&set);
    set = MAKE(ALLOW("localhost:3000"));
    assert_true(netset_name(&set, NETSET_HOST_NAME, NETRULE_TCP, 3000).host_loopback);
    assert_false(netset_name(&set, NETSET_HOST_NAME, NETRULE_TCP, 80).allowed);
    netset_done(&set);
    set = MAKE(ALLOW("localhost"), DENY("localhost"));
    assert_false(netset_name(&set, NETSET_HOST_NAME, NETRULE_TCP, 80).allowed);
    netset_done(&set);
}

/* Rules that name it by its address, or by what the guest calls it. */
static void test_host_loopback_by_address(void **state)
{
    (void)state;
    static const struct {
        const char *rule;
        bool has4, has6;
    } cases[] = {
        {"127.0.0.1:3000", true, false},   {"127.*:3000", true, false},
        {"127.0.0.0/8:3000", true, false}, {"[::1]:3000", false, true},
        {"host.cordon:3000", true, true},  {"localhost:3000", true, true},
        {"127.0.0.5:3000", false, false},  {"64.0.0.0/2:3000", false, false},
        {"10.0.0.1:3000", false, false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct netset set = MAKE(ALLOW(cases[i].rule));
        bool opens = cases[i].has4 || cases[i].has6;
        assert_int_equal(netset_name(&set, NETSET_HOST_NAME, NETRULE_TCP, 0).allowed, opens);
        assert_int_equal(netset_name(&set, NETSET_HOST_NAME, NETRULE_TCP, 3000).allowed, opens);
        assert_false(netset_name(&set, NETSET_HOST_NAME, NETRULE_TCP, 80).allowed);
        if (opens) {
            assert_int_equal(dial_ok(&set, NETSET_HOST_NAME, "127.0.0.1", 3000), cases[i].has4);
            assert_int_equal(dial_ok(&set, NETSET_HOST_NAME, "::1", 3000), cases[i].has6);
            assert_false(dial_ok(&set, NETSET_HOST_NAME, "10.0.0.1", 3000));
        }
        netset_done(&set);
    }
}

static void test_host_loopback_whatever_the_order(void **state)
{
    (void)state;
    struct netset sets[] = {MAKE(ALLOW("127.0.0.1:3000"), ALLOW("localhost:3000")),
                            MAKE(ALLOW("localhost:3000"), ALLOW("127.0.0.1:3000"))};
    for (size_t i = 0; i < 2; i++) {
        assert_true(dial_ok(&sets[i], NETSET_HOST_NAME, "127.0.0.1", 3000));
        assert_true(dial_ok(&sets[i], NETSET_HOST_NAME, "::1", 3000));
        netset_done(&sets[i]);
    }
}

static void test_udp(void **state)
{
    (void)state;
    struct netset set = MAKE(ALLOW("udp://time.test:123"), DENY("udp://time.test:124"));
    uint16_t ports[4];
    assert_true(netset_name(&set, "time.test", NETRULE_UDP, 123).allowed);
    assert_false(netset_name(&set, "time.test", NETRULE_TCP, 123).allowed);
    assert_false(netset_name(&set, "time.test", NETRULE_UDP, 124).allowed);
    assert_true(netset_name(&set, "time.test", NETRULE_TCP, 0).allowed);
    assert_int_equal(netset_ports(&set, NETRULE_UDP, ports, 4), 1);
    assert_int_equal(netset_ports(&set, NETRULE_TCP, ports, 4), 0);
    netset_done(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_empty_means_nothing),
        cmocka_unit_test(test_dialled_address),
        cmocka_unit_test(test_internal_masks),
        cmocka_unit_test(test_internal_by_rule),
        cmocka_unit_test(test_everything),
        cmocka_unit_test(test_host_loopback),
        cmocka_unit_test(test_host_loopback_by_address),
        cmocka_unit_test(test_host_loopback_whatever_the_order),
        cmocka_unit_test(test_udp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
