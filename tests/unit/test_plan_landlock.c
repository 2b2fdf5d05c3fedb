/* Tier landlock's plan on made-up hosts: what is fenced, what is refused, what the filter answers.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <cmocka.h>

#include "backend/native/native_internal.h"
#include "base/sys.h"
#include "base/util.h"
#include "plan/plan.h"

#define NOTIFY SECCOMP_RET_USER_NOTIF
#define REFUSED(e) (SECCOMP_RET_ERRNO | (uint32_t)(e))

static struct host user_host(int abi)
{
    struct host h = {.uid = 1000, .gid = 1000, .landlock_abi = abi};
    snprintf(h.user_ns_why, sizeof(h.user_ns_why),
             "clone: new namespaces: Operation not permitted");
    return h;
}

static struct host root_host(int abi)
{
    struct host h = user_host(abi);
    h.uid = h.gid = 0;
    return h;
}

/* Settings as name, value pairs; a NULL name ends them. */
static int make(const struct host *host, const char *const *pairs, struct plan **ret_plan,
                struct policy **ret_policy, struct cordon_err *err)
{
    static char *const no_env[] = {NULL};
    static char *const argv[] = {(char *)"/bin/true", NULL};
    struct policy_setting settings[8];
    size_t n = 0;
    for (; pairs && pairs[2 * n]; n++)
        settings[n] = (struct policy_setting){.name = pairs[2 * n], .value = pairs[2 * n + 1]};
    struct policy_input input = {
        .settings = settings, .n_settings = n, .no_discovery = true, .environ = no_env, .cwd = "/"};
    assert_int_equal(policy_resolve(&input, ret_policy, err), 0);
    struct plan_request request = {.policy = *ret_policy, .host = host, .argv = argv};
    return plan_make(&request, ret_plan, err);
}

static struct plan *must_make(const struct host *host, const char *const *pairs,
                              struct policy **policy)
{
    struct plan *p = NULL;
    struct cordon_err err = {0};
    if (make(host, pairs, &p, policy, &err) < 0)
        fail_msg("%s: %s", err.stage, err.message);
    return p;
}

static const struct plan_fence *fence(const struct plan *p, const char *path)
{
    for (size_t i = 0; i < p->n_fences; i++)
        if (str_eq(p->fences[i].path, path))
            return &p->fences[i];
    return NULL;
}

static const char *env(const struct plan *p, const char *name)
{
    size_t len = strlen(name);
    for (char **e = p->env; *e; e++)
        if (strncmp(*e, name, len) == 0 && (*e)[len] == '=')
            return *e + len + 1;
    return NULL;
}

static uint32_t ask(const struct plan *p, int nr, const uint64_t args[6])
{
    struct seccomp_data data = {.nr = nr, .arch = AUDIT_ARCH_X86_64};
    for (int i = 0; args && i < 6; i++)
        data.args[i] = args[i];
    return seccomp_eval(&p->filter, &data);
}

#define ASK(p, nr, ...) ask((p), (nr), (const uint64_t[6]){__VA_ARGS__})

static void test_fences(void **state)
{
    (void)state;
    struct host h = user_host(7);
    struct policy *policy = NULL;
    const char *const pairs[] = {"allow-read", "/var/log", "allow-write", "/var/tmp", NULL};
    struct plan *p = must_make(&h, pairs, &policy);

    assert_int_equal(p->tier, TIER_LANDLOCK);
    assert_true(p->scope_signals);
    static const char *const readable[] = {"/usr", "/etc",     "/bin",
                                           "/lib", "/var/log", "/proc/meminfo"};
    for (size_t i = 0; i < ARRAY_SIZE(readable); i++) {
        assert_non_null(fence(p, readable[i]));
        assert_false(fence(p, readable[i])->write);
    }
    static const char *const never[] = {"/",        "/proc", "/sys",  "/dev",     "/dev/kmsg",
                                        "/dev/shm", "/tmp",  "/home", "/dev/pts", "/dev/ptmx"};
    for (size_t i = 0; i < ARRAY_SIZE(never); i++)
        assert_null(fence(p, never[i]));
    assert_true(fence(p, "/var/tmp")->write);
    assert_true(fence(p, "/dev/null")->write);
    assert_true(fence(p, p->private_dir)->write);
    assert_string_equal(p->cwd, p->private_dir);
    assert_string_equal(env(p, "HOME"), p->private_dir);
    assert_string_equal(env(p, "TMPDIR"), p->private_dir);
    assert_string_equal(env(p, "USER"), "sandbox");
    assert_false(p->own_host_ids);
    assert_non_null(strstr(p->missing, "hidden paths"));
    assert_non_null(strstr(p->missing, "uid of its own"));
    plan_free(p);
    policy_free(policy);
}

/* Root of a default container may not mount or map ids; the guest gets an id of its own all the
 * same. */
static void test_root_gives_itself_up(void **state)
{
    (void)state;
    struct host h = root_host(7);
    struct policy *policy = NULL;
    struct plan *p = must_make(&h, NULL, &policy);
    assert_true(p->own_host_ids);
    assert_true(p->host_uid >= PLAN_ID_BASE);
    assert_non_null(fence(p, "/dev/pts"));
    assert_null(strstr(p->missing, "uid of its own"));
    assert_int_equal(p->process_rlimit, p->limits.processes + 1);
    plan_free(p);
    policy_free(policy);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *pairs[5];
        const char *what;
    } rows[] = {
        {{"virtual-fs", NULL, NULL}, "hidden paths"},
        {{"mount", "/usr:/data", NULL}, "mounts at another path"},
        {{"allow-read", "/etc", "deny", "/etc/passwd", NULL}, "hidden paths"},
        {{"allow-write", "/usr", "allow-read", "/usr/bin", NULL}, "a read-only path inside"},
        {{"temp-dir", "/scratch", NULL}, "a temporary directory"},
        {{"workspace", "/usr:ro", NULL}, "mounts at another path"},
        {{"log-network", NULL, NULL}, "network"},
        {{"require-tier", "full", NULL}, "tier full is required"},
    };
    struct host h = user_host(7);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct plan *p = NULL;
        struct policy *policy = NULL;
        struct cordon_err err = {0};
        assert_int_equal(make(&h, rows[i].pairs, &p, &policy, &err), -1);
        assert_null(p);
        assert_int_equal(err.code, CORDON_ERR_HOST);
        if (!strstr(err.message, rows[i].what))
            fail_msg("%s: %s", rows[i].what, err.message);
        assert_true(err.hint[0] != '\0');
        policy_free(policy);
    }
    struct host none = user_host(0);
    struct plan *p = NULL;
    struct policy *policy = NULL;
    struct cordon_err err = {0};
    assert_int_equal(make(&none, NULL, &p, &policy, &err), -1);
    assert_int_equal(err.code, CORDON_ERR_HOST);
    policy_free(policy);
}

/* A pattern that covers the whole grant takes it away; that needs nothing this tier lacks. */
static void test_denied_grant_is_dropped(void **state)
{
    (void)state;
    struct host h = user_host(7);
    struct policy *policy = NULL;
    const char *const pairs[] = {"allow-read", "/var/log", "deny", "/var/log", NULL};
    struct plan *p = must_make(&h, pairs, &policy);
    assert_null(fence(p, "/var/log"));
    plan_free(p);
    policy_free(policy);
}

static void test_filter(void **state)
{
    (void)state;
    struct host h = user_host(7);
    struct policy *policy = NULL;
    struct plan *p = must_make(&h, NULL, &policy);

    assert_int_equal(ASK(p, SYS_read, 0), SECCOMP_RET_ALLOW);
    assert_int_equal(ASK(p, SYS_connect, 3), REFUSED(EACCES));
    assert_int_equal(ASK(p, SYS_socket, AF_UNIX, SOCK_STREAM), SECCOMP_RET_ALLOW);
    assert_int_equal(ASK(p, SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC), REFUSED(EACCES));
    assert_int_equal(ASK(p, SYS_socket, AF_INET, SOCK_STREAM), REFUSED(EACCES));
    assert_int_equal(ASK(p, SYS_chmod, 1, 0644), NOTIFY);
    assert_int_equal(ASK(p, SYS_utimensat, 0), NOTIFY);
    assert_int_equal(ASK(p, SYS_setxattr, 0), REFUSED(EOPNOTSUPP));
    assert_int_equal(ASK(p, SYS_chown, 0), REFUSED(EPERM));
    assert_int_equal(ASK(p, SYS_prlimit64, 0), SECCOMP_RET_ALLOW);
    assert_int_equal(ASK(p, SYS_prlimit64, 77), REFUSED(EPERM));
    assert_int_equal(ASK(p, SYS_setpriority, 0, 0, 5), SECCOMP_RET_ALLOW);
    assert_int_equal(ASK(p, SYS_setpriority, 0, 77, 5), REFUSED(EPERM));
    assert_int_equal(ASK(p, SYS_setpriority, 2, 0, 5), REFUSED(EPERM));
    assert_int_equal(ASK(p, SYS_ioctl, 3, 0x40086602), REFUSED(EPERM));
    /* bits above the word that the kernel looks at change nothing */
    assert_int_equal(ASK(p, SYS_ioctl, 3, 0x140086602), REFUSED(EPERM));
    assert_int_equal(ASK(p, SYS_ioctl, 3, 0x5401), SECCOMP_RET_ALLOW);
    assert_int_equal(ASK(p, SYS_kill, 77, 9), SECCOMP_RET_ALLOW);
    assert_int_equal(ASK(p, SYS_setsid, 0), SECCOMP_RET_ALLOW);
    assert_int_equal(ASK(p, SYS_truncate, 0), SECCOMP_RET_ALLOW);
    /* what is not a row goes on to the built-in filter */
    assert_int_equal(ASK(p, SYS_mount, 0), NOTIFY);
    assert_int_equal(ASK(p, 4000, 0), REFUSED(ENOSYS));
    struct seccomp_data foreign = {.nr = SYS_connect, .arch = AUDIT_ARCH_I386};
    assert_int_equal(seccomp_eval(&p->filter, &foreign), REFUSED(ENOSYS));
    foreign.nr = SYS_read;
    assert_int_equal(seccomp_eval(&p->filter, &foreign), REFUSED(ENOSYS));

    struct seccomp_data quiet = {.nr = SYS_chmod, .arch = AUDIT_ARCH_X86_64};
    assert_int_equal(seccomp_eval(&p->quiet_filter, &quiet), REFUSED(EPERM));
    plan_free(p);
    policy_free(policy);
}

static void test_filter_before_abi_6(void **state)
{
    (void)state;
    struct host h = user_host(2);
    struct policy *policy = NULL;
    struct plan *p = must_make(&h, NULL, &policy);
    assert_false(p->scope_signals);
    assert_non_null(strstr(p->missing, "process groups"));
    assert_int_equal(ASK(p, SYS_kill, 77, 9), NOTIFY);
    assert_int_equal(ASK(p, SYS_tgkill, 77, 77, 9), NOTIFY);
    assert_int_equal(ASK(p, SYS_pidfd_send_signal, 3, 9), REFUSED(EPERM));
    assert_int_equal(ASK(p, SYS_fcntl, 3, 8, 77), REFUSED(EPERM));
    assert_int_equal(ASK(p, SYS_fcntl, 3, F_GETFL), SECCOMP_RET_ALLOW);
    assert_int_equal(ASK(p, SYS_setsid, 0), NOTIFY);
    assert_int_equal(ASK(p, SYS_setpgid, 0), NOTIFY);
    assert_int_equal(ASK(p, SYS_truncate, 0), REFUSED(EACCES));
    assert_int_equal(ASK(p, SYS_openat, 0, 0, O_RDONLY | O_TRUNC), REFUSED(EACCES));
    assert_int_equal(ASK(p, SYS_openat, 0, 0, O_WRONLY | O_TRUNC), SECCOMP_RET_ALLOW);
    plan_free(p);
    policy_free(policy);
}

/* No rule of a folder reaches the host's sockets, writable or not; the one that was named does. A
 * right the kernel does not know would make it refuse the whole ruleset. */
static void test_rights_over_sockets(void **state)
{
    (void)state;
    const struct plan_fence folder = {.path = "/x", .write = true}, plain = {.path = "/x"};
    const struct plan_fence named = {.path = "/x/s", .connects = true};
    assert_int_equal(native_fence_handled(8, false) & SYS_LANDLOCK_FS_RESOLVE_UNIX, 0);
    assert_int_not_equal(native_fence_handled(9, false) & SYS_LANDLOCK_FS_RESOLVE_UNIX, 0);
    for (int abi = 1; abi <= 9; abi++) {
        uint64_t known = native_fence_handled(abi, false);
        const uint64_t sockets = SYS_LANDLOCK_FS_RESOLVE_UNIX;
        assert_int_equal(native_fence_allowed(&folder, true, known) & ~known, 0);
        assert_int_equal(native_fence_allowed(&named, false, known) & ~known, 0);
        assert_int_equal(native_fence_allowed(&folder, true, known) & sockets, 0);
        assert_int_equal(native_fence_allowed(&plain, true, known) & sockets, 0);
        assert_int_equal(native_fence_allowed(&named, false, known) & sockets, known & sockets);
        assert_int_equal(native_fence_allowed(&folder, true, known), known & ~sockets);
    }
}

/* What the light fence leaves out are plain files and folders, but not to write to files; moving
 * between folders must be handled, or the kernel refuses it to everybody. */
static void test_light_rights(void **state)
{
    (void)state;
    const uint64_t left_out = SYS_LANDLOCK_FS_READ_FILE | SYS_LANDLOCK_FS_MAKE_REG |
                              SYS_LANDLOCK_FS_REMOVE_FILE | SYS_LANDLOCK_FS_TRUNCATE |
                              SYS_LANDLOCK_FS_READ_DIR | SYS_LANDLOCK_FS_MAKE_DIR |
                              SYS_LANDLOCK_FS_REMOVE_DIR;
    for (int abi = 2; abi <= 9; abi++) {
        uint64_t all = native_fence_handled(abi, false), light = native_fence_handled(abi, true);
        assert_int_equal(light, all & ~left_out);
        assert_int_not_equal(light & SYS_LANDLOCK_FS_REFER, 0);
        assert_int_not_equal(light & SYS_LANDLOCK_FS_EXECUTE, 0);
        assert_int_not_equal(light & SYS_LANDLOCK_FS_WRITE_FILE, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rights_over_sockets),
        cmocka_unit_test(test_fences),
        cmocka_unit_test(test_light_rights),
        cmocka_unit_test(test_root_gives_itself_up),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_denied_grant_is_dropped),
        cmocka_unit_test(test_filter),
        cmocka_unit_test(test_filter_before_abi_6),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
