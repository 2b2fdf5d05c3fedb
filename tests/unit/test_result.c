/* The judgement of an end and its JSON, on ends made up here: which cause counts, which exit status
 * and sentence go with it, what guest output looks like in JSON. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/util.h"
#include "policy/policy.h"
#include "run/result.h"

#define EXIT(code) ((code) << 8)
#define SIGNALED(sig) (sig)
#define S UINT64_C(1000000000)

static struct policy *made_policy(void)
{
    static const struct policy_setting settings[] = {
        {.name = "time-limit", .value = "1.5s"},    {.name = "cpu-time", .value = "2s"},
        {.name = "memory-limit", .value = "10M"},   {.name = "processes", .value = "7"},
        {.name = "max-output", .value = "1K"},      {.name = "disk-limit", .value = "3M"},
        {.name = "max-file-size", .value = "100k"}, {.name = "max-files", .value = "12"},
    };
    static char *const environment[] = {NULL};
    struct policy_input input = {.settings = settings,
                                 .n_settings = ARRAY_SIZE(settings),
                                 .no_discovery = true,
                                 .environ = environment,
                                 .cwd = "/"};
    struct policy *policy = NULL;
    struct cordon_err err;
    if (policy_resolve(&input, &policy, &err) < 0)
        fail_msg("%s", err.message);
    return policy;
}

static struct plan made_plan(void)
{
    return (struct plan){.tier = TIER_FULL,
                         .command = "prog",
                         .landlock_abi = 7,
                         .limits = {.wall_ns = 3 * S / 2, .disk_bytes = 3u << 20}};
}

struct row {
    const char *name;
    enum supervise_cause cause;
    struct backend_outcome end;
    enum verdict verdict;
    int exit_code;
    int signal;
    const char *limit; /* config key, or NULL */
    const char *error; /* whole, or NULL for none */
};

/* A guest that ran for one second, under its limit. */
#define RAN .started_ns = 5 * S, .ended_ns = 6 * S
#define RAN_LONG .started_ns = 5 * S, .ended_ns = 7 * S

static const struct row rows[] = {
    {"ok", CAUSE_NONE, {BACKEND_EXITED, EXIT(0), 0, RAN}, VERDICT_OK, 0, 0, NULL, NULL},
    {"own status",
     CAUSE_NONE,
     {BACKEND_EXITED, EXIT(3), 0, RAN},
     VERDICT_NONZERO_EXIT,
     3,
     0,
     NULL,
     NULL},
    {"a status like one of ours is still the guest's",
     CAUSE_NONE,
     {BACKEND_EXITED, EXIT(124), 0, RAN},
     VERDICT_NONZERO_EXIT,
     124,
     0,
     NULL,
     NULL},
    {"signal",
     CAUSE_NONE,
     {BACKEND_EXITED, SIGNALED(SIGSEGV), 0, RAN},
     VERDICT_SIGNALED,
     139,
     SIGSEGV,
     NULL,
     NULL},
    {"signal with core",
     CAUSE_NONE,
     {BACKEND_EXITED, SIGNALED(SIGABRT) | 0x80, 0, RAN},
     VERDICT_SIGNALED,
     134,
     SIGABRT,
     NULL,
     NULL},

    {"not found",
     CAUSE_NONE,
     {BACKEND_EXEC_FAILED, 0, ENOENT, RAN},
     VERDICT_NONZERO_EXIT,
     127,
     0,
     NULL,
     "prog: command not found"},
    {"below a file",
     CAUSE_NONE,
     {BACKEND_EXEC_FAILED, 0, ENOTDIR, RAN},
     VERDICT_NONZERO_EXIT,
     127,
     0,
     NULL,
     "prog: command not found"},
    {"not executable",
     CAUSE_NONE,
     {BACKEND_EXEC_FAILED, 0, EACCES, RAN},
     VERDICT_NONZERO_EXIT,
     126,
     0,
     NULL,
     "prog: cannot be executed: Permission denied"},
    {"no program",
     CAUSE_NONE,
     {BACKEND_EXEC_FAILED, 0, ENOEXEC, RAN},
     VERDICT_NONZERO_EXIT,
     126,
     0,
     NULL,
     "prog: cannot be executed: Exec format error"},
    {"too large to load",
     CAUSE_NONE,
     {BACKEND_EXEC_FAILED, 0, ENOMEM, RAN},
     VERDICT_MEMORY_LIMIT,
     125,
     0,
     "memory_limit",
     "Memory limit exceeded (10M)"},

    {"wall clock",
     CAUSE_TIME,
     {BACKEND_KILLED, 0, 0, RAN_LONG},
     VERDICT_TIME_LIMIT,
     124,
     0,
     "time_limit",
     "Execution exceeded time limit (1.5s)"},
    {"ended by itself before our kill arrived",
     CAUSE_TIME,
     {BACKEND_EXITED, EXIT(4), 0, RAN},
     VERDICT_NONZERO_EXIT,
     4,
     0,
     NULL,
     NULL},
    {"ended by itself, but too late",
     CAUSE_TIME,
     {BACKEND_EXITED, EXIT(0), 0, RAN_LONG},
     VERDICT_TIME_LIMIT,
     124,
     0,
     "time_limit",
     "Execution exceeded time limit (1.5s)"},
    {"CPU time",
     CAUSE_CPU_TIME,
     {BACKEND_KILLED, 0, 0, RAN},
     VERDICT_CPU_TIME_LIMIT,
     124,
     0,
     "cpu_time",
     "Execution exceeded CPU time limit (2s)"},
    {"sampled memory",
     CAUSE_MEMORY,
     {BACKEND_KILLED, 0, 0, RAN},
     VERDICT_MEMORY_LIMIT,
     125,
     0,
     "memory_limit",
     "Memory limit exceeded (10M)"},
    {"output",
     CAUSE_OUTPUT,
     {BACKEND_KILLED, 0, 0, RAN},
     VERDICT_OUTPUT_LIMIT,
     122,
     0,
     "max_output",
     "Output limit exceeded (1K)"},
    {"disk",
     CAUSE_DISK,
     {BACKEND_KILLED, 0, 0, RAN},
     VERDICT_DISK_LIMIT,
     122,
     0,
     "disk_limit",
     "Disk limit exceeded (3M)"},
    {"files",
     CAUSE_FILES,
     {BACKEND_KILLED, 0, 0, RAN},
     VERDICT_DISK_LIMIT,
     122,
     0,
     "max_files",
     "File count limit exceeded (12)"},
    {"cancelled",
     CAUSE_CANCELLED,
     {BACKEND_KILLED, 0, 0, RAN},
     VERDICT_CANCELLED,
     130,
     0,
     NULL,
     "cancelled"},
    {"the first cause wins over what the kernel did later",
     CAUSE_OUTPUT,
     {BACKEND_KILLED, 0, 0, RAN, .usage.oom_kills = 1},
     VERDICT_OUTPUT_LIMIT,
     122,
     0,
     "max_output",
     "Output limit exceeded (1K)"},

    {"the kernel's memory limit, main process",
     CAUSE_NONE,
     {BACKEND_EXITED, SIGNALED(SIGKILL), 0, RAN, .usage.oom_kills = 1},
     VERDICT_MEMORY_LIMIT,
     125,
     0, /* as where we end it ourselves */
     "memory_limit",
     "Memory limit exceeded (10M)"},
    {"the kernel's memory limit, the whole group",
     CAUSE_NONE,
     {BACKEND_KILLED, 0, 0, RAN, .usage.oom_kills = 2},
     VERDICT_MEMORY_LIMIT,
     125,
     0,
     "memory_limit",
     "Memory limit exceeded (10M)"},
    {"killed by somebody outside",
     CAUSE_NONE,
     {BACKEND_KILLED, 0, 0, RAN},
     VERDICT_SANDBOX_ERROR,
     70,
     0,
     NULL,
     "the guest's first process ended unexpectedly"},

    {"file size",
     CAUSE_NONE,
     {BACKEND_EXITED, SIGNALED(SIGXFSZ), 0, RAN},
     VERDICT_DISK_LIMIT,
     122,
     0,
     "max_file_size",
     "File size limit exceeded (100k)"},
    {"no space left and it failed",
     CAUSE_NONE,
     {BACKEND_EXITED, EXIT(1), 0, RAN, .scratch_full = true},
     VERDICT_DISK_LIMIT,
     122,
     0,
     "disk_limit",
     "Disk limit exceeded (3M)"},
    {"no inode left and it failed",
     CAUSE_NONE,
     {BACKEND_EXITED, EXIT(1), 0, RAN, .scratch_full = true, .scratch_by_files = true},
     VERDICT_DISK_LIMIT,
     122,
     0,
     "max_files",
     "File count limit exceeded (12)"},
    {"forks refused and it failed",
     CAUSE_NONE,
     {BACKEND_EXITED, EXIT(1), 0, RAN, .usage.processes_refused = 3},
     VERDICT_PROCESS_LIMIT,
     122,
     0,
     "processes",
     "Process limit exceeded (7)"},
    {"forks refused and it went well",
     CAUSE_NONE,
     {BACKEND_EXITED, EXIT(0), 0, RAN, .usage.processes_refused = 3},
     VERDICT_OK,
     0,
     0,
     NULL,
     NULL},
    {"never ready",
     CAUSE_STUCK,
     {.end = BACKEND_KILLED},
     VERDICT_SANDBOX_ERROR,
     70,
     0,
     NULL,
     "the guest's root was not ready in time"},
};

static void judgement(void **state)
{
    (void)state;
    struct policy *policy = made_policy();
    struct plan plan = made_plan();
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct row *row = &rows[i];
        struct supervised s = {.plan = &plan, .cause = row->cause, .outcome = row->end};
        struct result r;
        result_judge(&r, &s, policy);
        if (r.verdict != row->verdict || r.exit_code != row->exit_code || r.signal != row->signal)
            fail_msg("%s: %s, exit %d, signal %d", row->name, result_verdict_name(r.verdict),
                     r.exit_code, r.signal);
        if (!!r.limit_name != !!row->limit || (row->limit && !str_eq(r.limit_name, row->limit)))
            fail_msg("%s: limit %s", row->name, r.limit_name ? r.limit_name : "none");
        if (!str_eq(r.error, row->error ? row->error : ""))
            fail_msg("%s: error '%s'", row->name, r.error);
        assert_int_equal(result_timed_out(&r), r.exit_code == 124 && row->limit != NULL);
        _cleanup_buf_ struct buf text = BUF_INIT(4096);
        result_message(&r, &text);
        if (row->error)
            assert_true(str_starts(text.data, "Error: ") && str_eq(text.data + 7, row->error));
        else
            assert_int_equal(text.len, 0);
    }
    policy_free(policy);
}

/* The same ends with and without groups: refusals the kernel does not count are told by other
 * signs, and an ordinary failure has none of them. */
static void signs_of_a_limit(void **state)
{
    (void)state;
    enum { MIB = 1 << 20 };
    static const struct {
        const char *name;
        bool by_group;
        unsigned processes;
        struct backend_outcome end;
        enum verdict verdict;
    } cases[] = {
        {"refused memory",
         true,
         7,
         {BACKEND_EXITED, EXIT(1), 0, RAN, .memory_refused = 1},
         VERDICT_MEMORY_LIMIT},
        {"refused memory, then abort",
         false,
         7,
         {BACKEND_EXITED, SIGNALED(SIGABRT), 0, RAN, .memory_refused = 1},
         VERDICT_MEMORY_LIMIT},
        {"coped", true, 7, {BACKEND_EXITED, EXIT(0), 0, RAN, .memory_refused = 1}, VERDICT_OK},
        {"not loaded",
         true,
         7,
         {BACKEND_EXITED, SIGNALED(SIGSEGV), 0, RAN, .static_bytes = 2000 * MIB},
         VERDICT_MEMORY_LIMIT},
        {"a large program crashed",
         true,
         7,
         {BACKEND_EXITED, SIGNALED(SIGSEGV), 0, RAN, .static_bytes = 900 * MIB},
         VERDICT_SIGNALED},
        {"over and gone",
         false,
         7,
         {BACKEND_EXITED, EXIT(0), 0, RAN, .usage.peak_memory_bytes = 40 * MIB},
         VERDICT_MEMORY_LIMIT},
        {"shared pages prove nothing",
         false,
         7,
         {BACKEND_EXITED, EXIT(1), 0, RAN, .usage.peak_memory_bytes = 20 * MIB},
         VERDICT_NONZERO_EXIT},
        {"a group would have held it",
         true,
         7,
         {BACKEND_EXITED, EXIT(0), 0, RAN, .usage.peak_memory_bytes = 40 * MIB},
         VERDICT_OK},
        {"at the limit of processes",
         false,
         7,
         {BACKEND_EXITED, EXIT(1), 0, RAN, .usage.processes_peak = 7},
         VERDICT_PROCESS_LIMIT},
        {"below it",
         false,
         7,
         {BACKEND_EXITED, EXIT(1), 0, RAN, .usage.processes_peak = 6},
         VERDICT_NONZERO_EXIT},
        {"a group counts refusals itself",
         true,
         7,
         {BACKEND_EXITED, EXIT(1), 0, RAN, .usage.processes_peak = 7},
         VERDICT_NONZERO_EXIT},
        {"alone is always at the limit of one",
         false,
         1,
         {BACKEND_EXITED, EXIT(1), 0, RAN, .usage.processes_peak = 1},
         VERDICT_NONZERO_EXIT},
    };
    struct policy *policy = made_policy();
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct plan plan = made_plan();
        plan.limits.memory_bytes = 10 * MIB;
        plan.limits.processes = cases[i].processes;
        plan.by_group = (struct plan_held){cases[i].by_group, cases[i].by_group, true};
        plan.filter_options.map_limit = 1000 * MIB;
        struct supervised s = {.plan = &plan, .outcome = cases[i].end};
        struct result r;
        result_judge(&r, &s, policy);
        if (r.verdict != cases[i].verdict)
            fail_msg("%s: %s", cases[i].name, result_verdict_name(r.verdict));
    }
    policy_free(policy);
}

/* The kernel forgets what a killed tree used; what was seen just before counts. */
static void sampled_cpu_counts(void **state)
{
    (void)state;
    struct policy *policy = made_policy();
    struct plan plan = made_plan();
    struct supervised s = {
        .plan = &plan,
        .cause = CAUSE_CPU_TIME,
        .peak = {.cpu_user_ns = 3 * S, .cpu_sys_ns = S},
        .outcome = {BACKEND_KILLED, 0, 0, RAN, .usage = {.cpu_user_ns = 0, .cpu_sys_ns = 2 * S}}};
    struct result r;
    result_judge(&r, &s, policy);
    assert_int_equal(r.verdict, VERDICT_CPU_TIME_LIMIT);
    assert_int_equal(r.usage.cpu_user_ns, 3 * S);
    assert_int_equal(r.usage.cpu_sys_ns, S);
    policy_free(policy);
}

static void failed_setup_is_ours(void **state)
{
    (void)state;
    struct policy *policy = made_policy();
    struct plan plan = made_plan();
    struct supervised s = {.plan = &plan, .outcome = {.end = BACKEND_SETUP_FAILED}};
    struct result r;
    err_set(&s.err, CORDON_ERR_HOST, "mount", EPERM, "bind /data");
    result_judge(&r, &s, policy);
    assert_int_equal(r.verdict, VERDICT_SANDBOX_ERROR);
    assert_int_equal(r.exit_code, 69);
    assert_string_equal(r.error, "mount: bind /data: Operation not permitted");
    assert_int_equal(r.wall_ns, 0);
    assert_int_equal(r.usage.processes_peak, 0);
    /* cancelled while the wall was being built: that is why it failed */
    s.cause = CAUSE_CANCELLED;
    result_judge(&r, &s, policy);
    assert_int_equal(r.verdict, VERDICT_CANCELLED);
    assert_int_equal(r.exit_code, 130);
    policy_free(policy);
}

static void errors_become_results(void **state)
{
    (void)state;
    static const struct {
        int code;
        enum verdict verdict;
    } codes[] = {
        {CORDON_ERR_USAGE, VERDICT_SANDBOX_ERROR},    {CORDON_ERR_HOST, VERDICT_SANDBOX_ERROR},
        {CORDON_ERR_INTERNAL, VERDICT_SANDBOX_ERROR}, {CORDON_ERR_CONFIG, VERDICT_SANDBOX_ERROR},
        {CORDON_ERR_REJECTED, VERDICT_REJECTED},      {CORDON_ERR_CANCELLED, VERDICT_CANCELLED}};
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
        struct cordon_err err;
        struct result r = {0};
        err_set(&err, codes[i].code, "stage", 0, "why");
        result_from_error(&r, &err);
        assert_int_equal(r.verdict, codes[i].verdict);
        assert_int_equal(r.exit_code, codes[i].code);
        assert_string_equal(r.error, "stage: why");
    }
}

static void measured_values(void **state)
{
    (void)state;
    struct policy *policy = made_policy();
    struct plan plan = made_plan();
    struct supervised s = {.plan = &plan,
                           .outcome = {BACKEND_EXITED, EXIT(0), 0, RAN,
                                       .usage = {.peak_memory_bytes = 100, .processes_peak = 2}},
                           .peak = {.memory_bytes = 300, .tasks = 5},
                           .duty.throttled_ns = 7};
    struct result r;
    result_judge(&r, &s, policy);
    assert_int_equal(r.wall_ns, S);
    /* the larger of what was counted and what was seen */
    assert_int_equal(r.usage.peak_memory_bytes, 300);
    assert_int_equal(r.usage.processes_peak, 5);
    assert_int_equal(r.usage.throttled_ns, 7);
    s.outcome.ended_ns = s.outcome.started_ns - 1;
    result_judge(&r, &s, policy);
    assert_int_equal(r.wall_ns, 0);
    policy_free(policy);
}

/* ---- JSON ---- */

static char *json_of(const struct result *r)
{
    struct buf out = BUF_INIT(1 << 20);
    result_json(r, &out);
    char *text = buf_take(&out);
    assert_non_null(text);
    return text;
}

static void has(const char *json, const char *part)
{
    if (!strstr(json, part))
        fail_msg("no %s in %s", part, json);
}

static void whole_object(void **state)
{
    (void)state;
    struct plan plan = made_plan();
    struct backend_outcome outcome = {.cgroup = "v2 memory,pids,cpu"};
    struct result r = {
        .verdict = VERDICT_TIME_LIMIT,
        .exit_code = 124,
        .limit_name = "time_limit",
        .limit_value = "1s",
        .error = "Execution exceeded time limit (1s)",
        .out = {{"hi\n", 3, false, 3}, {NULL, 0, true, 99}},
        .wall_ns = 1000400000,
        .usage = {.cpu_user_ns = 1500, .peak_memory_bytes = 4096, .processes_peak = 2},
        .plan = &plan,
        .outcome = &outcome};
    _cleanup_free_ char *json = json_of(&r);
    static const char start[] =
        "{\"version\":1,\"verdict\":\"time_limit\",\"exit_code\":124,\"signal\":null,"
        "\"timed_out\":true,\"stdout\":\"hi\\n\",";
    assert_memory_equal(json, start, sizeof(start) - 1);
    has(json, "\"stdout_encoding\":\"utf-8\"");
    has(json, "\"stderr\":\"\"");
    has(json, "\"stdout_truncated\":false,\"stderr_truncated\":true,\"stdout_bytes\":3,"
              "\"stderr_bytes\":99");
    has(json, "\"wall_ms\":1000.400,\"cpu_user_ms\":0.002,\"cpu_sys_ms\":0.000,"
              "\"peak_memory_bytes\":4096,\"processes_peak\":2,\"oom_kills\":0,"
              "\"throttled_ms\":0.000");
    has(json, "\"limit\":{\"name\":\"time_limit\",\"value\":\"1s\"}");
    has(json, "\"error\":\"Execution exceeded time limit (1s)\",\"denials\":[],\"enforcement\":{"
              "\"backend\":\"native\",\"tier\":\"full\",\"layers\":{\"user_ns\":\"on\"");
    has(json, "\"landlock\":\"on (abi 7)\",\"landlock_rights\":\"all\",\"cgroup\":\"v2 "
              "memory,pids,cpu\"");
    has(json, "\"changed_files\":[],\"diff\":null}");
    assert_null(strchr(json, '\n'));
}

static void signal_number(void **state)
{
    (void)state;
    struct result r = {.verdict = VERDICT_SIGNALED, .exit_code = 137, .signal = 9};
    _cleanup_free_ char *json = json_of(&r);
    has(json, "\"verdict\":\"signaled\",\"exit_code\":137,\"signal\":9,\"timed_out\":false");
    has(json, "\"limit\":null,\"error\":null");
}

/* Before a plan there was no wall, and the result does not claim one. */
static void no_wall_is_claimed(void **state)
{
    (void)state;
    struct result r = {0};
    struct cordon_err err;
    err_set(&err, CORDON_ERR_HOST, "plan", 0, "quote \" and \x01");
    result_from_error(&r, &err);
    _cleanup_free_ char *json = json_of(&r);
    has(json, "\"verdict\":\"sandbox_error\",\"exit_code\":69");
    has(json, "\"error\":\"plan: quote \\\" and \\u0001\"");
    has(json, "\"tier\":null");
    assert_null(strstr(json, "\"on\""));
}

static void layers_off_are_said(void **state)
{
    (void)state;
    struct plan plan = made_plan();
    struct result r = {.plan = &plan};
    plan.host_network = true;
    plan.landlock_abi = 0;
    {
        _cleanup_free_ char *json = json_of(&r);
        has(json, "\"net_ns\":\"off\"");
        has(json, "\"pid_ns\":\"on\"");
        has(json, "\"time_ns\":\"off\"");
        has(json, "\"landlock\":\"off\",\"cgroup\":\"none\"");
    }
    plan = (struct plan){.tier = TIER_LANDLOCK, .landlock_abi = 4, .missing = "own root"};
    _cleanup_free_ char *json = json_of(&r);
    has(json, "\"tier\":\"landlock\",\"layers\":{\"user_ns\":\"off\",\"mount_ns\":\"off\"");
    has(json, "\"landlock\":\"on (abi 4)\"");
    has(json, "\"missing\":\"own root\"");
}

static void denied_calls(void **state)
{
    (void)state;
    struct backend_outcome outcome = {.denials = {{165, 2}, {-1, 5}}, .n_denials = 2};
    struct result r = {.outcome = &outcome};
    _cleanup_free_ char *json = json_of(&r);
    has(json, "\"denials\":[{\"kind\":\"syscall\",\"target\":\"mount\",\"rule\":\"default\","
              "\"count\":2},{\"kind\":\"syscall\",\"target\":\"unknown\",\"rule\":\"default\","
              "\"count\":5}]");
}

static void streams(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t len;
        bool truncated;
        const char *json;
    } table[] = {
        {"text", 4, false, "\"stdout\":\"text\",\"stdout_encoding\":\"utf-8\""},
        {"a\0b", 3, false, "\"stdout\":\"a\\u0000b\",\"stdout_encoding\":\"utf-8\""},
        {"\x1b[31m", 5, false, "\"stdout\":\"\\u001b[31m\",\"stdout_encoding\":\"utf-8\""},
        {"\"\\", 2, false, "\"stdout\":\"\\\"\\\\\",\"stdout_encoding\":\"utf-8\""},
        {"\xff\xfe\xfd", 3, false, "\"stdout\":\"//79\",\"stdout_encoding\":\"base64\""},
        /* half a character at its own end is binary, half a character at our cut is not */
        {"ok\xe2\x82", 4, false, "\"stdout\":\"b2vigg==\",\"stdout_encoding\":\"base64\""},
        {"ok\xe2\x82", 4, true, "\"stdout\":\"ok\",\"stdout_encoding\":\"utf-8\""},
        {"ok\xf0\x9f\x98", 5, true, "\"stdout\":\"ok\",\"stdout_encoding\":\"utf-8\""},
        {"\xc3", 1, true, "\"stdout\":\"\",\"stdout_encoding\":\"utf-8\""},
        {"", 0, true, "\"stdout\":\"\",\"stdout_encoding\":\"utf-8\""},
        {"\xff\xff\xff\xff\xff", 5, true, "\"stdout\":\"//////8=\",\"stdout_encoding\":\"base64\""},
        {"\xff then text", 11, true, "\"stdout\":\"/yB0aGVuIHRleHQ=\""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
        struct result r = {
            .out[0] = {table[i].bytes, table[i].len, table[i].truncated, table[i].len}};
        _cleanup_free_ char *json = json_of(&r);
        has(json, table[i].json);
    }
}

static void every_verdict_has_a_name(void **state)
{
    (void)state;
    for (int v = VERDICT_OK; v <= VERDICT_SANDBOX_ERROR; v++) {
        assert_non_null(result_verdict_name((enum verdict)v));
        for (int w = VERDICT_OK; w < v; w++)
            assert_string_not_equal(result_verdict_name((enum verdict)v),
                                    result_verdict_name((enum verdict)w));
    }
}

static void full_buffer_is_noticed(void **state)
{
    (void)state;
    _cleanup_buf_ struct buf out = BUF_INIT(100);
    struct result r = {0};
    result_json(&r, &out);
    assert_true(out.failed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(judgement),
        cmocka_unit_test(signs_of_a_limit),
        cmocka_unit_test(sampled_cpu_counts),
        cmocka_unit_test(failed_setup_is_ours),
        cmocka_unit_test(errors_become_results),
        cmocka_unit_test(measured_values),
        cmocka_unit_test(whole_object),
        cmocka_unit_test(signal_number),
        cmocka_unit_test(no_wall_is_claimed),
        cmocka_unit_test(layers_off_are_said),
        cmocka_unit_test(denied_calls),
        cmocka_unit_test(streams),
        cmocka_unit_test(every_verdict_has_a_name),
        cmocka_unit_test(full_buffer_is_noticed),
    };
    return cmocka_run_group_tests_name("result", tests, NULL, NULL);
}
