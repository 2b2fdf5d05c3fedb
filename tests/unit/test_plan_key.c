/* Which requests share prepared guests: the network's part of a plan's key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/util.h"
#include "host/host.h"
#include "plan/plan.h"
#include "policy/policy.h"

struct made {
    struct policy *policy;
    struct plan *plan;
};

static struct made make(const struct policy_setting *settings, size_t n)
{
    static char *argv[] = {(char *)"/bin/true", NULL};
    static char *vars[] = {NULL};
    static const struct host host = {.uid = 1000, .gid = 1000, .user_ns = true, .landlock_abi = 7};
    struct policy_input input = {
        .settings = settings, .n_settings = n, .no_discovery = true, .environ = vars, .cwd = "/"};
    struct cordon_err err = {0};
    struct made m = {0};
    if (policy_resolve(&input, &m.policy, &err) < 0)
        fail_msg("%s: %s", err.stage, err.message);
    struct plan_request request = {.policy = m.policy, .host = &host, .argv = argv};
    if (plan_make(&request, &m.plan, &err) < 0)
        fail_msg("%s: %s", err.stage, err.message);
    return m;
}

static void drop(struct made *m)
{
    plan_free(m->plan);
    policy_free(m->policy);
}

/* Both are prepared, and for both of them the same guests. */
static bool share(const struct policy_setting *a, size_t n_a, const struct policy_setting *b,
                  size_t n_b)
{
    _cleanup_buf_ struct buf key_a = BUF_INIT(1 << 20), key_b = BUF_INIT(1 << 20);
    struct made one = make(a, n_a), other = make(b, n_b);
    assert_true(plan_is_parkable(one.plan));
    assert_true(plan_is_parkable(other.plan));
    plan_key(one.plan, &key_a);
    plan_key(other.plan, &key_b);
    assert_false(key_a.failed || key_b.failed);
    bool same = key_a.len == key_b.len && memcmp(key_a.data, key_b.data, key_a.len) == 0;
    drop(&one);
    drop(&other);
    return same;
}

#define SHARE(a, b) share(a, ARRAY_SIZE(a), b, ARRAY_SIZE(b))

static const struct policy_setting plain[] = {{.name = "allow_network", .value = "one.test"}};

/* Whom the broker lets the guest reach comes late. */
static void rules_come_late(void **state)
{
    (void)state;
    const struct policy_setting name[] = {{.name = "allow_network", .value = "two.test"}};
    const struct policy_setting pattern[] = {{.name = "allow_network", .value = "*.three.test"}};
    const struct policy_setting more[] = {{.name = "allow_network", .value = "one.test"},
                                          {.name = "allow_network", .value = "two.test"},
                                          {.name = "deny-network", .value = "x.one.test"},
                                          {.name = "dns", .value = "192.0.2.53"},
                                          {.name = "max_connections", .value = "3"},
                                          {.name = "max_traffic", .value = "1M"}};
    assert_true(SHARE(plain, plain));
    assert_true(SHARE(plain, name));
    assert_true(SHARE(plain, pattern));
    assert_true(SHARE(plain, more));
}

/* What is built into the guest's namespaces does not. */
static void gates_differ(void **state)
{
    (void)state;
    const struct policy_setting none[] = {{.name = "time_limit", .value = "5s"}};
    const struct policy_setting port[] = {{.name = "allow_network", .value = "one.test:8443"}};
    const struct policy_setting udp[] = {{.name = "allow_network", .value = "udp://one.test:123"}};
    const struct policy_setting range[] = {{.name = "allow_network", .value = "one.test"},
                                           {.name = "allow_network", .value = "192.0.2.0/24"}};
    const struct policy_setting narrower[] = {{.name = "allow_network", .value = "one.test"},
                                              {.name = "allow_network", .value = "192.0.2.0/25"}};
    const struct policy_setting beside[] = {{.name = "allow_network", .value = "one.test"},
                                            {.name = "allow_network", .value = "192.0.3.0/24"}};
    const struct policy_setting six[] = {{.name = "allow_network", .value = "one.test"},
                                         {.name = "allow_network", .value = "2001:db8::/64"}};
    const struct policy_setting bridge[] = {{.name = "network", .value = "bridge"}};
    const struct policy_setting publish[] = {{.name = "allow_network", .value = "one.test"},
                                             {.name = "publish", .value = "8080:80"}};
    const struct policy_setting *const all[] = {plain,  port, udp,    range,  narrower,
                                                beside, six,  bridge, publish};
    const size_t n[] = {1, 1, 1, 2, 2, 2, 2, 1, 2};
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        assert_false(share(none, ARRAY_SIZE(none), all[i], n[i]));
        for (size_t k = 0; k < ARRAY_SIZE(all); k++)
            if (share(all[i], n[i], all[k], n[k]) != (i == k))
                fail_msg("gates %zu and %zu", i, k);
    }
}

/* Published ports are the host's, and listened on when the run begins. */
static void host_ports_come_late(void **state)
{
    (void)state;
    const struct policy_setting one[] = {{.name = "publish", .value = "8080:80"}};
    const struct policy_setting other[] = {{.name = "publish", .value = "8081:81"}};
    assert_true(SHARE(one, other));
}

static void the_hosts_network_is_never_prepared(void **state)
{
    (void)state;
    const struct policy_setting host[] = {{.name = "network", .value = "host"},
                                          {.name = "unsafe_host_network", .value = "true"}};
    struct made m = make(host, ARRAY_SIZE(host));
    assert_false(plan_is_parkable(m.plan));
    drop(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_come_late),
        cmocka_unit_test(gates_differ),
        cmocka_unit_test(host_ports_come_late),
        cmocka_unit_test(the_hosts_network_is_never_prepared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
