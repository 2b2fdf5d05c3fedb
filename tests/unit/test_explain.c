/* The plan as text and JSON, and the AppArmor name in it: made-up hosts, nothing is started. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/native/native_internal.h"
#include "base/jsonr.h"
#include "base/util.h"
#include "plan/plan_print.h"

static struct host host_full(void)
{
    return (struct host){.uid = 1000,
                         .gid = 1000,
                         .user_ns = true,
                         .landlock_abi = 7,
                         .time_ns = true,
                         .merged_bin = true,
                         .merged_sbin = true,
                         .merged_lib = true,
                         .merged_lib64 = true,
                         .has_lib64 = true};
}

struct made {
    struct policy *policy;
    struct plan *plan;
    struct cordon_err err;
    struct buf text;
};

/* settings end with a NULL name; -1 with the error when there is no plan */
static int make(struct made *m, const struct host *host, const struct policy_setting *settings)
{
    static char *argv[] = {(char *)"/bin/true", NULL};
    static char *vars[] = {(char *)"TOKEN=hunter2", (char *)"EMPTY=", NULL};
    struct policy_input input = {
        .settings = settings, .no_discovery = true, .environ = vars, .cwd = "/"};
    *m = (struct made){.text = BUF_INIT(1u << 20)};
    while (settings && settings[input.n_settings].name)
        input.n_settings++;
    if (policy_resolve(&input, &m->policy, &m->err) < 0)
        return -1;
    struct plan_request request = {.policy = m->policy, .host = host, .argv = argv};
    return plan_make(&request, &m->plan, &m->err);
}

static const char *text_of(struct made *m)
{
    plan_print_text(m->plan, m->policy, &m->text);
    assert_false(m->text.failed);
    return m->text.data;
}

static void done(struct made *m)
{
    plan_free(m->plan);
    policy_free(m->policy);
    buf_done(&m->text);
}

static void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("no '%s' in:\n%s", part, text);
}

static void test_text(void **state)
{
    (void)state;
    struct host host = host_full();
    struct made m;
    const struct policy_setting settings[] = {
        {.name = "allow-read", .value = "/usr/share"},
        {.name = "mount", .value = "/usr/lib:/data:rw"},
        {.name = "env", .value = "TOKEN"},
        {.name = "env", .value = "PLAIN=a\nb"},
        {0},
    };
    assert_int_equal(make(&m, &host, settings), 0);
    const char *text = text_of(&m);
    static const char *const parts[] = {
        "  tier = full\n",
        "  namespaces = user mount pid ipc uts cgroup net time\n",
        "  bind    /usr ro\n",
        "  link    /bin -> usr/bin\n",
        "  bind    /usr/share ro, granted\n",
        "  bind    /data rw, the host's /usr/lib, granted\n",
        "  file    /etc/passwd (",
        "network\n  none: ",
        "depend on their arguments:\n",
        " ioctl ",
        "refused with EPERM and counted:\n",
        " mount ",
        "  rw /data\n",
        "  nofile = 1024\n",
        "  no group: memory_limit by sampling, processes by rlimit, cpu_limit by pausing\n",
        "  TOKEN   (taken from the caller's environment)\n",
        "  PLAIN=a\\x0ab\n",
    };
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
        assert_has(text, parts[i]);
    assert_null(strstr(text, "hunter2"));
    done(&m);
}

static void test_host_network_is_said(void **state)
{
    (void)state;
    struct host host = host_full();
    struct made m;
    const struct policy_setting settings[] = {
        {.name = "network", .value = "host"}, {.name = "unsafe-host-network"}, {0}};
    assert_int_equal(make(&m, &host, settings), 0);
    const char *text = text_of(&m);
    assert_has(text, "network\n  host: ");
    assert_has(text, "  namespaces = user mount pid ipc uts cgroup time\n");
    done(&m);
}

static void test_groups(void **state)
{
    (void)state;
    struct host host = host_full();
    struct made m;
    struct plan_print_group rows[PLAN_PRINT_GROUPS_MAX];
    const struct policy_setting settings[] = {{.name = "memory-limit", .value = "64M"},
                                              {.name = "processes", .value = "7"},
                                              {.name = "cpu-limit", .value = "150"},
                                              {0}};
    host.cgroups = (struct host_cgroups){.kind = HOST_CGROUP_V2,
                                         .v2 = "/sys/fs/cgroup/mine",
                                         .v2_memory = true,
                                         .v2_pids = true,
                                         .v2_cpu = true};
    assert_int_equal(make(&m, &host, settings), 0);
    assert_int_equal(plan_print_groups(m.plan, rows), 4);
    assert_string_equal(rows[0].file, "memory.max");
    assert_string_equal(rows[0].value, "67108864");
    assert_string_equal(rows[2].value, "8"); /* pid 1 of ours lives there too */
    assert_string_equal(rows[3].value, "150000 100000");
    assert_null(plan_print_fallback(m.plan));
    assert_has(text_of(&m), "  memory.max = 67108864   memory_limit = 64M, --memory-limit   in "
                            "/sys/fs/cgroup/mine\n");
    done(&m);

    host.cgroups =
        (struct host_cgroups){.kind = HOST_CGROUP_V1, .memory = "/m", .pids = "/p", .cpu = ""};
    assert_int_equal(make(&m, &host, settings), 0);
    assert_int_equal(plan_print_groups(m.plan, rows), 3);
    assert_string_equal(rows[0].file, "memory.limit_in_bytes");
    assert_string_equal(rows[2].file, "pids.max");
    assert_string_equal(rows[2].value, "7");
    assert_string_equal(plan_print_fallback(m.plan), "cpu_limit by pausing");
    done(&m);
}

static void test_json(void **state)
{
    (void)state;
    struct host host = host_full();
    struct made m;
    struct arena arena = {0};
    const struct jsonr_node *root;
    const struct policy_setting settings[] = {{.name = "env", .value = "TOKEN"}, {0}};
    assert_int_equal(make(&m, &host, settings), 0);
    struct jsonw j = {.out = &m.text};
    jsonw_open(&j, NULL, '{');
    plan_print_json(m.plan, m.policy, &j);
    jsonw_close(&j, '}');
    assert_false(m.text.failed);
    struct jsonr_source source = {.name = "plan",
                                  .text = m.text.data,
                                  .len = m.text.len,
                                  .max_bytes = 1u << 20,
                                  .stage = "test"};
    assert_int_equal(jsonr_parse(&source, &arena, &root, &m.err), 0);
    assert_string_equal(jsonr_cstr(jsonr_get(root, "tier")), "full");
    assert_true(jsonr_count(jsonr_get(root, "mounts")) == m.plan->n_ops);
    assert_true(jsonr_count(jsonr_get(jsonr_get(root, "seccomp"), "refused")) > 20);
    assert_true(jsonr_count(jsonr_get(root, "rlimits")) == m.plan->n_rlimits);
    assert_null(strstr(m.text.data, "hunter2"));
    arena_done(&arena);
    done(&m);
}

/* Every call is in one class, and the classes say what the program does with plain arguments. */
static void test_calls(void **state)
{
    (void)state;
    struct host host = host_full();
    struct made m;
    enum plan_print_call call;
    assert_int_equal(make(&m, &host, NULL), 0);
    assert_true(plan_print_call(m.plan, seccomp_call_number("read"), &call));
    assert_int_equal(call, PLAN_CALL_ALLOWED);
    assert_true(plan_print_call(m.plan, seccomp_call_number("mount"), &call));
    assert_int_equal(call, PLAN_CALL_REFUSED);
    assert_true(plan_print_call(m.plan, seccomp_call_number("prctl"), &call));
    assert_int_equal(call, PLAN_CALL_CHECKED);
    assert_false(plan_print_call(m.plan, seccomp_call_number("io_uring_setup"), &call));
    for (int nr = PLAN_PRINT_CALLS; nr < PLAN_PRINT_CALLS + 512; nr++)
        assert_null(seccomp_call_name(nr));
    done(&m);
}

static void test_apparmor(void **state)
{
    (void)state;
    struct host host = host_full();
    struct made m;
    char longest[1200];
    memset(longest, 'a', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    const struct {
        const char *name;
        bool has_apparmor;
        int code; /* 0: planned */
    } rows[] = {
        {"guest", true, 0},
        {"my profile//child", true, 0},
        {"guest", false, CORDON_ERR_HOST},
        {"unconfined", true, CORDON_ERR_USAGE},
        {":other:unconfined", true, CORDON_ERR_USAGE},
        {"a\nexec b", true, CORDON_ERR_USAGE},
        {" guest", true, CORDON_ERR_USAGE},
        {longest, true, CORDON_ERR_USAGE},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct policy_setting settings[] = {{.name = "apparmor", .value = rows[i].name}, {0}};
        host.apparmor = rows[i].has_apparmor;
        int r = make(&m, &host, settings);
        assert_int_equal(r < 0 ? m.err.code : 0, rows[i].code);
        if (r == 0) {
            assert_string_equal(m.plan->apparmor, rows[i].name);
            assert_has(text_of(&m), "  apparmor = ");
        } else {
            assert_has(m.err.message, "apparmor");
        }
        done(&m);
    }
    host.apparmor = true;
    assert_int_equal(make(&m, &host, NULL), 0);
    assert_null(m.plan->apparmor);
    done(&m);
}

/* What cannot be asked for is an error, never silence. The name does not exist, with or without
 * AppArmor. */
static void test_apparmor_request_fails_closed(void **state)
{
    (void)state;
    assert_true(native_fence_apparmor("no-such-profile-of-cordon-tests") < 0);
    assert_true(native_fence_apparmor("") < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_host_network_is_said),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_apparmor),
        cmocka_unit_test(test_apparmor_request_fails_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
