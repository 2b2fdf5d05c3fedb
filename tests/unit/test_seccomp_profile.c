/* Seccomp profiles: what they do together with the built-in filter, and what is refused in them.
 * Link with -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc.
 *
 * Docker's default profile is looked for in ../shared/data/seccomp, seen from the project's root
 * (or in $CORDON_TEST_DATA/seccomp); the case that needs it is skipped, and says so, when it is not
 * there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <linux/audit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/util.h"
#include "plan/seccomp.h"

#define OK SECCOMP_RET_ALLOW
#define NOTIFY SECCOMP_RET_USER_NOTIF
#define FAIL(e) (SECCOMP_RET_ERRNO | (e))

static const struct seccomp_options loud = {.notify = true};

/* Allocations that still succeed; negative: all of them. */
static long allocations_left = -1;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);

static bool allocation_fails(void)
{
    if (allocations_left > 0)
        allocations_left--;
    return allocations_left == 0;
}

void *__wrap_malloc(size_t size)
{
    return allocation_fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return allocation_fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
    return allocation_fails() ? NULL : __real_realloc(p, size);
}

static struct seccomp_prog load(const char *json)
{
    struct seccomp_prog prog;
    struct cordon_err err;
    if (seccomp_profile_build(&loud, "p.json", json, strlen(json), &prog, NULL, &err) < 0)
        fail_msg("%s", err.message);
    return prog;
}

static uint32_t answer(const struct seccomp_prog *prog, const char *call, uint64_t a0, uint64_t a1,
                       uint64_t a2)
{
    int nr = seccomp_call_number(call);
    if (nr < 0)
        fail_msg("no call %s", call);
    struct seccomp_data data = {.nr = nr, .arch = AUDIT_ARCH_X86_64, .args = {a0, a1, a2}};
    return seccomp_eval(prog, &data);
}

static uint32_t answer0(const struct seccomp_prog *prog, const char *call)
{
    return answer(prog, call, 0, 0, 0);
}

static char *docker_default(size_t *ret_len)
{
    char path[4096];
    const char *dir = getenv("CORDON_TEST_DATA");
    snprintf(path, sizeof(path), "%s/seccomp/docker-default.json", dir ? dir : "../shared/data");
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    if (!f) {
        printf("SKIP: %s is not there (CORDON_TEST_DATA names the folder of shared data)\n", path);
        skip();
    }
    char *text = malloc(1 << 20);
    assert_non_null(text);
    *ret_len = fread(text, 1, 1 << 20, f);
    return text;
}

static void test_docker_default(void **state)
{
    (void)state;
    static const struct {
        const char *call;
        uint64_t a0;
        uint32_t expected;
    } cases[] = {
        {"read", 0, OK},
        {"write", 1, OK},
        {"openat", 0, OK},
        {"execve", 0, OK},
        {"futex", 0, OK},
        {"clone", 17, OK},
        {"clone", 0x3d0f00, OK},
        {"fork", 0, OK},
        {"mmap", 0, OK},
        {"socket", 2, NOTIFY /* type 0 is refused by the built-in filter */},
        {"socket", 39, NOTIFY},
        {"ptrace", 0, OK},
        {"process_vm_readv", 0, OK},
        {"arch_prctl", 0x1002, OK},
        {"personality", 0, OK},
        {"personality", 0x20008, OK},
        {"memfd_create", 0, OK},
        {"landlock_create_ruleset", 0, OK},
        {"rseq", 0, OK},
        {"statx", 0, OK},
        {"prlimit64", 0, OK},
        {"seccomp", 1, OK},
        /* allowed by the built-in filter, refused by the profile, seen by the listener */
        {"pidfd_getfd", 0, NOTIFY},
        {"kcmp", 0, NOTIFY},
        {"get_mempolicy", 0, NOTIFY},
        {"unshare", 0x400, NOTIFY},
        {"socket", 40, NOTIFY},
        {"personality", 0x40000, NOTIFY},
        /* refused by both: the built-in answer */
        {"mount", 0, NOTIFY},
        {"bpf", 0, NOTIFY},
        {"keyctl", 0, NOTIFY},
        {"clone", 0x10000011, NOTIFY},
        {"clone3", 0, FAIL(ENOSYS)},
        {"io_uring_setup", 0, FAIL(ENOSYS)},
        {"fsopen", 0, FAIL(ENOSYS)},
        /* allowed by the profile, not by the built-in filter */
        {"adjtimex", 0, FAIL(EPERM)},
        {"vmsplice", 0, FAIL(ENOSYS)},
        {"modify_ldt", 0, NOTIFY},
    };
    size_t len;
    _cleanup_free_ char *text = docker_default(&len);
    _cleanup_buf_ struct buf notes = BUF_INIT(1 << 16);
    struct seccomp_prog prog;
    struct cordon_err err;
    if (seccomp_profile_build(&loud, "docker.json", text, len, &prog, &notes, &err) < 0)
        fail_msg("%s", err.message);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint32_t got = answer(&prog, cases[i].call, cases[i].a0, 0, 0);
        if (got != cases[i].expected)
            fail_msg("%s(%#llx): got %#x, expected %#x", cases[i].call,
                     (unsigned long long)cases[i].a0, got, cases[i].expected);
    }
    assert_int_equal(answer(&prog, "socket", 2, 1, 0), OK);
    assert_non_null(strstr(notes.data, "syscalls[0]: no call \"chown32\" on x86-64\n"));
    assert_null(
        strstr(notes.data, "s390_pci_mmio_read")); /* its entry is for another architecture */
    seccomp_done(&prog);
}

static void test_intersection(void **state)
{
    (void)state;
    struct seccomp_prog prog = load(
        "{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"syscalls\":["
        "{\"names\":[\"mount\",\"clone3\",\"ioctl\",\"socket\"],\"action\":\"SCMP_ACT_ALLOW\"},"
        "{\"name\":\"getpid\",\"action\":\"SCMP_ACT_KILL\"},"
        "{\"name\":\"getppid\",\"action\":\"SCMP_ACT_KILL_PROCESS\"},"
        "{\"name\":\"getuid\",\"action\":\"SCMP_ACT_TRAP\"},"
        "{\"name\":\"getgid\",\"action\":\"SCMP_ACT_TRACE\",\"errnoRet\":7},"
        "{\"name\":\"geteuid\",\"action\":\"SCMP_ACT_NOTIFY\"},"
        "{\"name\":\"getegid\",\"action\":\"SCMP_ACT_LOG\"},"
        "{\"name\":\"uname\",\"action\":\"SCMP_ACT_ERRNO\",\"errnoRet\":38},"
        "{\"name\":\"sysinfo\",\"action\":\"SCMP_ACT_ERRNO\",\"errno\":\"ENOSYS\",\"errnoRet\":1},"
        "{\"name\":\"times\",\"action\":\"SCMP_ACT_ERRNO\"}]}");
    assert_int_equal(answer0(&prog, "mount"), NOTIFY);
    assert_int_equal(answer0(&prog, "clone3"), FAIL(ENOSYS));
    assert_int_equal(answer(&prog, "ioctl", 0, 0x5412, 0), NOTIFY);
    assert_int_equal(answer(&prog, "ioctl", 0, 0x5401, 0), OK);
    assert_int_equal(answer(&prog, "socket", 16, 3, 0), FAIL(EAFNOSUPPORT));
    static const char *const killed[] = {"getpid", "getppid", "getuid",
                                         "getgid", "geteuid", "times"};
    for (size_t i = 0; i < ARRAY_SIZE(killed); i++)
        assert_int_equal(answer0(&prog, killed[i]), NOTIFY);
    assert_int_equal(answer0(&prog, "getegid"), OK);
    assert_int_equal(answer0(&prog, "uname"), FAIL(ENOSYS));
    assert_int_equal(answer0(&prog, "sysinfo"), FAIL(ENOSYS));
    assert_int_equal(answer0(&prog, "read"), OK);
    seccomp_done(&prog);
}

static void test_strictest_rule_wins(void **state)
{
    (void)state;
    struct seccomp_prog prog =
        load("{\"defaultAction\":\"SCMP_ACT_ERRNO\",\"defaultErrnoRet\":38,\"architectures\":null,"
             "\"syscalls\":[{\"names\":[\"execve\",\"kill\",\"dup\"],\"action\":\"SCMP_ACT_ALLOW\","
             "\"args\":null},"
             "{\"name\":\"kill\",\"action\":\"SCMP_ACT_ERRNO\",\"errnoRet\":3,"
             "\"args\":[{\"index\":1,\"value\":9,\"op\":\"SCMP_CMP_EQ\"}]},"
             "{\"name\":\"kill\",\"action\":\"SCMP_ACT_ERRNO\",\"errnoRet\":22,"
             "\"args\":[{\"index\":1,\"value\":8,\"op\":\"SCMP_CMP_GT\"}]},"
             "{\"name\":\"dup\",\"action\":\"SCMP_ACT_ERRNO\",\"errnoRet\":24},"
             "{\"name\":\"lseek\",\"action\":\"SCMP_ACT_ALLOW\",\"args\":["
             "{\"index\":2,\"value\":0,\"op\":\"SCMP_CMP_EQ\"},{\"index\":1,\"value\":100,\"op\":"
             "\"SCMP_CMP_LT\"}]},"
             "{\"name\":\"alarm\",\"action\":\"SCMP_ACT_ALLOW\",\"args\":["
             "{\"index\":0,\"value\":1,\"op\":\"SCMP_CMP_EQ\"},{\"index\":0,\"value\":7,\"op\":"
             "\"SCMP_CMP_EQ\"}]}]}");
    assert_int_equal(answer(&prog, "kill", 1, 9, 0), FAIL(3));
    assert_int_equal(answer(&prog, "kill", 1, 10, 0), FAIL(22));
    assert_int_equal(answer(&prog, "kill", 1, 1, 0), OK);
    assert_int_equal(answer0(&prog, "dup"), FAIL(24));
    assert_int_equal(answer(&prog, "lseek", 0, 99, 0), OK);
    assert_int_equal(answer(&prog, "lseek", 0, 100, 0), FAIL(38));
    assert_int_equal(answer(&prog, "lseek", 0, 99, 1), FAIL(38));
    /* two conditions on one argument: either, as in runc */
    assert_int_equal(answer(&prog, "alarm", 1, 0, 0), OK);
    assert_int_equal(answer(&prog, "alarm", 7, 0, 0), OK);
    assert_int_equal(answer(&prog, "alarm", 2, 0, 0), FAIL(38));
    assert_int_equal(answer0(&prog, "read"), FAIL(38));
    seccomp_done(&prog);
}

static bool holds(const char *op, uint64_t arg, uint64_t value, uint64_t two)
{
    return str_eq(op, "EQ")   ? arg == value
           : str_eq(op, "NE") ? arg != value
           : str_eq(op, "LT") ? arg < value
           : str_eq(op, "LE") ? arg <= value
           : str_eq(op, "GE") ? arg >= value
           : str_eq(op, "GT") ? arg > value
                              : (arg & value) == two;
}

static void test_operators(void **state)
{
    (void)state;
    static const char *const ops[] = {"EQ", "NE", "LT", "LE", "GE", "GT", "MASKED_EQ"};
    static const uint64_t values[] = {0,           1,           5,          0xffffffff,
                                      0x100000000, 0x100000005, 0x7e020000, 0x7fffffffffffffff};
    for (size_t o = 0; o < ARRAY_SIZE(ops); o++)
        for (size_t v = 0; v < ARRAY_SIZE(values); v++) {
            uint64_t two = str_eq(ops[o], "MASKED_EQ") ? values[v] & 0x500000004 : 0;
            char json[512];
            snprintf(json, sizeof(json),
                     "{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"syscalls\":[{\"name\":\"dup2\","
                     "\"action\":\"SCMP_ACT_ERRNO\",\"errnoRet\":9,\"args\":[{\"index\":1,"
                     "\"value\":%llu,\"valueTwo\":%llu,\"op\":\"SCMP_CMP_%s\"}]}]}",
                     (unsigned long long)values[v], (unsigned long long)two, ops[o]);
            struct seccomp_prog prog = load(json);
            for (size_t a = 0; a < ARRAY_SIZE(values); a++)
                for (int d = -1; d <= 1; d++) {
                    uint64_t arg = values[a] + (uint64_t)(int64_t)d;
                    bool refused = answer(&prog, "dup2", ~arg, arg, ~arg) == FAIL(9);
                    if (refused != holds(ops[o], arg, values[v], two))
                        fail_msg("%s: argument %#llx, value %#llx", ops[o], (unsigned long long)arg,
                                 (unsigned long long)values[v]);
                }
            seccomp_done(&prog);
        }
}

static void test_includes(void **state)
{
    (void)state;
#define ENTRY(call, what)                                                                          \
    "{\"name\":\"" call "\",\"action\":\"SCMP_ACT_ERRNO\",\"errnoRet\":5," what "}"
    struct seccomp_prog
        prog = load("{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"archMap\":[{\"architecture\":\"SCMP_"
                    "ARCH_"
                    "X86_64\","
                    "\"subArchitectures\":[\"SCMP_ARCH_X86\"]}],\"syscalls\":[" ENTRY(
                        "read", "\"includ"
                                "es\":{"
                                "\"caps\""
                                ":[\"CAP_"
                                "SYS_"
                                "ADMIN\"]"
                                "}") "," ENTRY("write",
                                               "\"excludes\":{\"caps\":[\"CAP_SYS_ADMIN\"]}") "," ENTRY("open",
                                                                                                        "\"includes\":{"
                                                                                                        "\"arches\":["
                                                                                                        "\"arm64\"]}") "," ENTRY("close", "\"includes\":{\"arches\":[\"arm64\",\"amd64\"]}") "," ENTRY("stat", "\"excludes\":{\"arches\":[\"amd64\"]}") "," ENTRY("fstat", "\"includes\":{\"minKernel\":\"4.8\"}") "," ENTRY("lstat",
                                                                                                                                                                                                                                                                                                                             "\"includes\":{\"minKernel\":\"999.0\"}") "," ENTRY("poll",
                                                                                                                                                                                                                                                                                                                                                                                 "\"excludes\":{\"minKernel\":\"999.0\"}") "," ENTRY("pause",
                                                                                                                                                                                                                                                                                                                                                                                                                                     "\"excludes\":{\"minKernel\":\"4.8\"}") "," ENTRY("alarm",
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                       "\"includes\":{},\"excludes\":null,\"comment\":\"x\"") "]}");
    static const char *const refused[] = {"write", "close", "fstat", "poll", "alarm"};
    static const char *const allowed[] = {"read", "open", "stat", "lstat", "pause"};
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
        assert_int_equal(answer0(&prog, refused[i]), FAIL(5));
    for (size_t i = 0; i < ARRAY_SIZE(allowed); i++)
        assert_int_equal(answer0(&prog, allowed[i]), OK);
    seccomp_done(&prog);
}

static void test_error_names(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        unsigned number;
    } cases[] = {
        {"ENOENT", ENOENT}, {"ELOOP", ELOOP},     {"ENOMSG", ENOMSG},
        {"EBFONT", EBFONT}, {"EDQUOT", EDQUOT},   {"EAFNOSUPPORT", EAFNOSUPPORT},
        {"EAGAIN", EAGAIN}, {"EUCLEAN", EUCLEAN}, {"EHWPOISON", EHWPOISON},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char json[256];
        snprintf(json, sizeof(json),
                 "{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"syscalls\":[{\"name\":\"dup\","
                 "\"action\":\"SCMP_ACT_ERRNO\",\"errno\":\"%s\"}]}",
                 cases[i].name);
        struct seccomp_prog prog = load(json);
        assert_int_equal(answer0(&prog, "dup"), FAIL(cases[i].number));
        seccomp_done(&prog);
    }
}

static void test_malformed(void **state)
{
    (void)state;
#define IN(text) "{\"defaultAction\":\"SCMP_ACT_ALLOW\"," text "}"
#define CALL(text) IN("\"syscalls\":[{" text "}]")
#define ARG(text) CALL("\"name\":\"dup\",\"action\":\"SCMP_ACT_ERRNO\",\"args\":[{" text "}]")
    static const struct {
        const char *json, *message;
    } cases[] = {
        {"", "p.json:1:0: "},
        {"{\n \"defaultAction\": ,", "p.json:2:19: "},
        {"[]", "p.json: the document: must be an object"},
        {"{}", "p.json: defaultAction: is missing"},
        {"{\"defaultAction\":1}", "p.json: defaultAction: must be a string"},
        {"{\"defaultAction\":\"ALLOW\"}", "p.json: defaultAction: unknown action \"ALLOW\""},
        {IN("\"syscalls\":[]") "x", "p.json:1:"},
        {IN("\"syscalls\":[],\"syscalls\":[]"), "duplicate"},
        {IN("\"sysCalls\":[]"), "p.json: the document: unknown key \"sysCalls\""},
        {IN("\"syscalls archMap\":[]"), "unknown key \"syscalls archMap\""},
        {IN("\"\":[]"), "unknown key \"\""},
        {IN("\"syscalls\":{}"), "p.json: syscalls: must be a list"},
        {IN("\"syscalls\":[1]"), "p.json: syscalls[0]: must be an object"},
        {IN("\"architectures\":[\"SCMP_ARCH_ARM\"]"),
         "architectures: does not include SCMP_ARCH_X86_64"},
        {IN("\"architectures\":[\"amd64\"]"), "architectures[0]: unknown architecture \"amd64\""},
        {IN("\"architectures\":[7]"), "p.json: architectures[0]: must be a string"},
        {IN("\"archMap\":[{\"architecture\":\"SCMP_ARCH_ARM\"}]"), "archMap: does not include"},
        {IN("\"archMap\":[{\"subArchitectures\":[]}]"), "archMap[0].architecture: unknown"},
        {IN("\"defaultErrnoRet\":1"), "defaultAction: SCMP_ACT_ALLOW takes no error number"},
        {CALL("\"action\":\"SCMP_ACT_ALLOW\""), "syscalls[0]: needs either \"names\" or \"name\""},
        {CALL("\"names\":[],\"action\":\"SCMP_ACT_ALLOW\""), "syscalls[0]: needs either"},
        {CALL("\"names\":[\"dup\"],\"name\":\"dup\",\"action\":\"SCMP_ACT_ALLOW\""),
         "needs either"},
        {CALL("\"names\":[\"dup\",2],\"action\":\"SCMP_ACT_ALLOW\""),
         "syscalls[0].names[1]: must be a str"},
        {CALL("\"name\":\"dup\""), "syscalls[0].action: is missing"},
        {CALL("\"name\":\"dup\",\"action\":\"SCMP_ACT_NO\""), "syscalls[0].action: unknown action"},
        {CALL("\"name\":\"dup\",\"action\":\"SCMP_ACT_ERRNO\",\"errnoRet\":4096"),
         "errnoRet: must be from 0 to 4095"},
        {CALL("\"name\":\"dup\",\"action\":\"SCMP_ACT_ERRNO\",\"errnoRet\":-1"),
         "errnoRet: must be from 0"},
        {CALL("\"name\":\"dup\",\"action\":\"SCMP_ACT_ERRNO\",\"errnoRet\":1.5"),
         "errnoRet: must be an integer"},
        {CALL("\"name\":\"dup\",\"action\":\"SCMP_ACT_ERRNO\",\"errno\":\"EWHAT\""),
         "errno: unknown error \"EWHAT\""},
        {CALL("\"name\":\"dup\",\"action\":\"SCMP_ACT_ERRNO\",\"errno\":\"-\""),
         "errno: unknown error \"-\""},
        {CALL("\"name\":\"dup\",\"action\":\"SCMP_ACT_ALLOW\",\"errnoRet\":1"),
         "takes no error number"},
        {CALL("\"name\":\"dup\",\"action\":\"SCMP_ACT_ALLOW\",\"arg\":[]"),
         "syscalls[0]: unknown key \"arg\""},
        {CALL("\"name\":\"dup\",\"action\":\"SCMP_ACT_ALLOW\",\"includes\":{\"cap\":[]}"),
         "syscalls[0].includes: unknown key \"cap\""},
        {CALL("\"name\":\"dup\",\"action\":\"SCMP_ACT_ALLOW\",\"excludes\":{\"minKernel\":\"4\"}"),
         "syscalls[0].excludes.minKernel: \"4\" is not"},
        {CALL("\"name\":\"dup\",\"action\":\"SCMP_ACT_ALLOW\",\"excludes\":{\"minKernel\":\"4."
              "8rc\"}"),
         "is not a kernel version"},
        {ARG("\"index\":6,\"value\":0,\"op\":\"SCMP_CMP_EQ\""),
         "syscalls[0].args[0].index: must be from 0 to 5"},
        {ARG("\"index\":0,\"value\":-1,\"op\":\"SCMP_CMP_EQ\""),
         "syscalls[0].args[0].value: must be from 0"},
        {ARG("\"index\":0,\"value\":\"1\",\"op\":\"SCMP_CMP_EQ\""),
         "args[0].value: must be an integer"},
        {ARG("\"index\":0,\"value\":1,\"op\":\"SCMP_CMP_EQUAL\""),
         "syscalls[0].args[0].op: unknown operator"},
        {ARG("\"index\":0,\"value\":1"),
         "syscalls[0].args[0]: needs \"index\", \"value\" and \"op\""},
        {ARG("\"index\":0,\"value\":99999999999999999999,\"op\":\"SCMP_CMP_EQ\""), "p.json:1:"},
        {IN("\"defaultErrnoRet\":9223372036854775808"), "p.json:1:53: "},
        {IN("\"comment\\u0000\":1"), "p.json:1:35: "},
        {IN("\"listenerPath\":\"\\u0000\""), "p.json:1:50: "},
        {IN("\"flags\":[\"a\",\"\\u0000\"]"), "p.json:1:48: "},
        {CALL("\"name\":\"dup\",\"action\":\"SCMP_ACT_ALLOW\\u0000\""), "p.json:1:"},
        {IN("\"\\u001b[31m\u202e\":1"), "unknown key \"?[31m???\""},
        {"{\"defaultAction\":\"SCMP_ACT_ERRNO\"}", "execve is refused"},
        {CALL("\"name\":\"execve\",\"action\":\"SCMP_ACT_KILL\""), "execve is refused"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct seccomp_prog prog = {.len = 77};
        struct cordon_err err = {0};
        int r = seccomp_profile_build(&loud, "p.json", cases[i].json, strlen(cases[i].json), &prog,
                                      NULL, &err);
        if (r != -1 || !strstr(err.message, cases[i].message) || err.code != CORDON_ERR_CONFIG)
            fail_msg("%s: returned %d, \"%s\"", cases[i].json, r, err.message);
        assert_int_equal(prog.len, 77);
    }
}

/* A profile with more rules than a program can hold is an error, not a shorter filter. */
static void test_too_large(void **state)
{
    (void)state;
    _cleanup_buf_ struct buf json = BUF_INIT(4 << 20);
    buf_str(&json, "{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"syscalls\":[");
    for (int i = 0; i < 1200; i++)
        buf_printf(&json,
                   "%s{\"name\":\"dup\",\"action\":\"SCMP_ACT_ERRNO\",\"args\":[{\"index\":%d,"
                   "\"value\":%d,\"op\":\"SCMP_CMP_GT\"}]}",
                   i ? "," : "", i % 6, i);
    buf_str(&json, "]}");
    struct seccomp_prog prog;
    struct cordon_err err;
    assert_int_equal(seccomp_profile_build(&loud, "p.json", json.data, json.len, &prog, NULL, &err),
                     -1);
    assert_non_null(strstr(err.message, "p.json: system-call filter: more than 4096 instructions"));
}

/* Jumps beyond 255 instructions are right, too. */
static void test_long_program(void **state)
{
    (void)state;
    _cleanup_buf_ struct buf json = BUF_INIT(4 << 20);
    buf_str(&json, "{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"syscalls\":[");
    for (int i = 0; i < 600; i++)
        buf_printf(&json,
                   "%s{\"name\":\"%s\",\"action\":\"SCMP_ACT_ERRNO\",\"errnoRet\":%d,\"args\":["
                   "{\"index\":0,\"value\":%d,\"op\":\"SCMP_CMP_EQ\"}]}",
                   i ? "," : "", i % 2 ? "dup" : "ioctl", i, i);
    buf_str(&json, "]}");
    assert_false(json.failed);
    struct seccomp_prog prog = load(json.data);
    assert_true(prog.len > 2000);
    for (unsigned i = 0; i < 700; i++) {
        bool odd = i % 2;
        uint32_t refused = i == 1 ? NOTIFY : FAIL(i);
        assert_int_equal(answer(&prog, "dup", i, 0, 0), i < 600 && odd ? refused : OK);
        assert_int_equal(answer(&prog, "ioctl", i, 0, 0), i < 600 && !odd ? refused : OK);
        assert_int_equal(answer(&prog, "ioctl", 999, 0x5412, i), NOTIFY);
    }
    assert_int_equal(answer0(&prog, "mount"), NOTIFY);
    assert_int_equal(answer0(&prog, "read"), OK);
    seccomp_done(&prog);
}

static void test_no_memory(void **state)
{
    (void)state;
    static const char json[] =
        "{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"syscalls\":[{\"name\":\"dup\",\"action\":"
        "\"SCMP_ACT_ERRNO\",\"args\":[{\"index\":0,\"value\":3,\"op\":\"SCMP_CMP_EQ\"}]}]}";
    long n = 0;
    int r;
    do {
        struct seccomp_prog prog = {.len = 77};
        struct cordon_err err = {0};
        allocations_left = ++n;
        r = seccomp_profile_build(&loud, "p.json", json, strlen(json), &prog, NULL, &err);
        allocations_left = -1;
        if (r == 0) {
            seccomp_done(&prog);
        } else {
            assert_true(err.code != 0 && err.message[0]);
            assert_int_equal(prog.len, 77);
        }
    } while (r != 0 && n < 1000);
    assert_in_range(n, 3, 999);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_docker_default),
        cmocka_unit_test(test_intersection),
        cmocka_unit_test(test_strictest_rule_wins),
        cmocka_unit_test(test_operators),
        cmocka_unit_test(test_includes),
        cmocka_unit_test(test_error_names),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_long_program),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests_name("seccomp_profile", tests, NULL, NULL);
}
