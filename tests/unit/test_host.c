/* The host's readers, the search for cgroups and the doctor's judgement, on hosts made up here. */
#include "host/host.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "host/cgroups.h"
#include "host/explain.h"
#include "host/text.h"

static const char hybrid[] = "12:pids:/user.slice\n"
                             "4:cpu,cpuacct:/a:b\n"
                             "3:memory:/docker/0123\n"
                             "1:name=systemd:/x\n"
                             "0::/init.scope\n";

static void cgroup_path(void **state)
{
    (void)state;
    char path[64] = "untouched";

    assert_true(host_text_cgroup_path(hybrid, "memory", path, sizeof(path)));
    assert_string_equal(path, "/docker/0123");
    assert_true(host_text_cgroup_path(hybrid, "cpuacct", path, sizeof(path)));
    assert_string_equal(path, "/a:b");
    assert_true(host_text_cgroup_path(hybrid, NULL, path, sizeof(path)));
    assert_string_equal(path, "/init.scope");
    assert_false(host_text_cgroup_path(hybrid, "io", path, sizeof(path)));
    assert_false(host_text_cgroup_path(hybrid, "systemd", path, sizeof(path)));
    assert_false(host_text_cgroup_path(hybrid, "mem", path, sizeof(path)));
    assert_false(host_text_cgroup_path(hybrid, "memory", path, 12)); /* one byte short: never cut */
    assert_true(host_text_cgroup_path(hybrid, "memory", path, 13));
    assert_true(host_text_cgroup_same(hybrid, "cpu", "cpuacct"));
    assert_false(host_text_cgroup_same(hybrid, "cpu", "memory"));
}

static void cgroup_path_odd(void **state)
{
    (void)state;
    static const char *const odd[] = {
        "", "\n", "0", "0:", "0::", "0::x", ":::", "1:memory", "1:memory:"};
    char path[64];

    for (size_t i = 0; i < ARRAY_SIZE(odd); i++) {
        assert_false(host_text_cgroup_path(odd[i], NULL, path, sizeof(path)));
        assert_false(host_text_cgroup_path(odd[i], "memory", path, sizeof(path)));
    }
    assert_true(
        host_text_cgroup_path("0::/", NULL, path, sizeof(path))); /* no newline at the end */
    assert_string_equal(path, "/");
}

static const char mounts[] =
    "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
    "23 22 0:21 / /proc rw - proc proc rw\n"
    "31 22 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n"
    "32 31 0:27 / /sys/fs/cgroup/unified rw shared:4 master:1 - cgroup2 cgroup2 rw,nsdelegate\n"
    "33 31 0:28 /docker/0123 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
    "34 31 0:29 / /mnt/with\\040blank rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:30 / /mnt/broken\n"
    "36 31 0:30 / /mnt/cgroup rw - cgroup\n";

static void cgroup_mount(void **state)
{
    (void)state;
    char mount[64], root[64];

    assert_true(host_text_cgroup_mount(mounts, "memory", mount, root, sizeof(root)));
    assert_string_equal(mount, "/sys/fs/cgroup/memory");
    assert_string_equal(root, "/docker/0123");
    assert_true(host_text_cgroup_mount(mounts, "cpuacct", mount, root, sizeof(root)));
    assert_string_equal(mount, "/mnt/with blank");
    assert_true(host_text_cgroup_mount(mounts, NULL, mount, root, sizeof(root)));
    assert_string_equal(mount, "/sys/fs/cgroup/unified");
    assert_false(host_text_cgroup_mount(mounts, "pids", mount, root, sizeof(root)));
    assert_false(host_text_cgroup_mount("", NULL, mount, root, sizeof(root)));
}

static void cgroup_join(void **state)
{
    (void)state;
    char dir[32];

    assert_true(host_text_cgroup_join("/cg", "/", "/", dir, sizeof(dir)));
    assert_string_equal(dir, "/cg");
    assert_true(host_text_cgroup_join("/cg", "/", "/a/b", dir, sizeof(dir)));
    assert_string_equal(dir, "/cg/a/b");
    assert_true(host_text_cgroup_join("/cg", "/docker/0123", "/docker/0123", dir, sizeof(dir)));
    assert_string_equal(dir, "/cg");
    assert_true(host_text_cgroup_join("/cg", "/docker/0123", "/docker/0123/x", dir, sizeof(dir)));
    assert_string_equal(dir, "/cg/x");
    assert_false(host_text_cgroup_join("/cg", "/docker/0123", "/docker/01234", dir, sizeof(dir)));
    assert_false(host_text_cgroup_join("/cg", "/docker/0123", "/", dir, sizeof(dir)));
    assert_false(host_text_cgroup_join("/cg", "/", "/../other", dir, sizeof(dir)));
    assert_true(host_text_cgroup_join("/cg", "/", "/..a", dir, sizeof(dir)));
    assert_false(
        host_text_cgroup_join("/cg", "/", "/0123456789012345678901234567", dir, sizeof(dir)));
}

static void small_texts(void **state)
{
    (void)state;
    int major = 7, minor = 7;
    char first[64] = "";

    assert_true(host_text_has_word("cpuset cpu io memory\n", "cpu"));
    assert_true(host_text_has_word("cpuset cpu io memory\n", "memory"));
    assert_false(host_text_has_word("cpuset io\n", "cpu"));
    assert_false(host_text_has_word("", "cpu"));

    assert_int_equal(host_text_id_count("         0          0 4294967295\n"), 4294967295u);
    assert_int_equal(host_text_id_count("0 1000 1\n1 100000 65536\n"), 65537);
    assert_int_equal(host_text_id_count(""), 0);
    assert_int_equal(host_text_id_count("0 0\nx y z\n"), 0);

    assert_false(host_text_kernel("", &major, &minor));
    assert_false(host_text_kernel("6", &major, &minor));
    assert_false(host_text_kernel("6.x", &major, &minor));
    assert_false(host_text_kernel("-6.1", &major, &minor));
    assert_int_equal(major, 7);
    assert_true(host_text_kernel("6.1.0-18-amd64", &major, &minor));
    assert_int_equal(major, 6);
    assert_int_equal(minor, 1);
    assert_true(host_text_kernel("5.13", &major, &minor));

    assert_int_equal(
        host_text_status("Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n", "Seccomp", 10), 2);
    assert_int_equal(host_text_status("Name:\tSeccomp:\n", "Seccomp", 10), -1);

    assert_int_equal(
        host_text_start_time("7 (a) b) 1 2) S 1 7 7 0 -1 4 1 0 0 0 0 0 0 0 20 0 1 0 991 5"), 991);
    assert_int_equal(host_text_start_time("7 (a"), 0);
    assert_int_equal(host_text_start_time("7 (a) S 1"), 0);

    assert_int_equal(host_text_proc_masks(mounts, first, sizeof(first)), 0);
    assert_int_equal(host_text_proc_masks("1 2 0:1 /null /proc/kcore rw - tmpfs t rw\n"
                                          "1 2 0:1 / /proc/sys/fs/binfmt_misc rw - autofs a rw\n"
                                          "1 2 0:1 / /proc/acpi ro - tmpfs t ro\n",
                                          first, sizeof(first)),
                     2);
    assert_string_equal(first, "/proc/kcore");
    assert_true(host_text_has_root_mount(mounts));
    assert_false(host_text_has_root_mount("23 22 0:21 / /proc rw - proc proc rw\n"));
}

/* ---- a v2 tree of plain files ---- */

static char tree[] = "/tmp/cordon-test-host-XXXXXX";

static void put(const char *dir, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s/%s", tree, dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void group(const char *dir, const char *type, const char *control)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", tree, dir);
    assert_true(mkdir(path, 0755) == 0 || errno == EEXIST);
    put(dir, "cgroup.procs", "");
    put(dir, "cgroup.subtree_control", control);
    if (type)
        put(dir, "cgroup.type", type);
}

static struct host_cgroups walk(const char *own)
{
    struct host_cgroups found = {0};
    char dir[512];
    snprintf(dir, sizeof(dir), "%s%s", tree, own);
    host_cgroups_walk_v2(tree, dir, &found);
    return found;
}

static int make_tree(void **state)
{
    (void)state;
    return mkdtemp(tree) ? 0 : -1;
}

static int remove_tree(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf -- '%s'", tree);
    return system(command);
}

#define ASSERT_AT(found, path)                                                                     \
    do {                                                                                           \
        char want_[512];                                                                           \
        snprintf(want_, sizeof(want_), "%s%s", tree, path);                                        \
        assert_string_equal((found).v2, want_);                                                    \
    } while (0)

static void walk_v2(void **state)
{
    (void)state;
    group("", NULL, "cpuset cpu io memory pids\n");
    group("user", "domain\n", "memory pids\n");
    group("user/app", "domain\n", "cpu memory pids\n");
    group("user/app/scope", "domain\n", "");

    struct host_cgroups found = walk("/user/app/scope");
    ASSERT_AT(found, "/user/app");
    assert_true(found.v2_memory && found.v2_pids && found.v2_cpu);
    assert_false(found.v2_own);

    /* Nearest is without cpu: a farther one with all three wins. */
    group("user/app", "domain\n", "memory pids\n");
    found = walk("/user/app/scope");
    ASSERT_AT(found, "");
    assert_true(found.v2_cpu);

    /* Nobody has all three: the nearest with memory and pids. */
    group("", NULL, "memory pids\n");
    found = walk("/user/app/scope");
    ASSERT_AT(found, "/user/app");
    assert_false(found.v2_cpu);

    /* A group with processes of its own hands down threads only: of no use. */
    group("", NULL, "");
    group("user", "domain threaded\n", "cpu pids\n");
    group("user/app", "domain\n", "");
    found = walk("/user/app/scope");
    ASSERT_AT(found, "/user/app/scope"); /* for cgroup.kill alone */
    assert_false(found.v2_memory || found.v2_pids || found.v2_cpu);

    /* The hierarchy's root may hold processes and hand down controllers. */
    group("", NULL, "cpu memory pids\n");
    found = walk("");
    ASSERT_AT(found, "");
    assert_true(found.v2_memory);
}

static void walk_v2_not_ours(void **state)
{
    (void)state;
    bool is_root = geteuid() == 0;

    group("", NULL, "cpu memory pids\n");
    group("user", "domain\n", "");
    assert_int_equal(chmod(tree, 0555), 0);
    if (is_root)
        assert_int_equal(seteuid(65534), 0); /* file modes do not stop root */
    struct host_cgroups found = walk("/user");
    struct host_cgroups top = walk("");
    if (is_root)
        assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(tree, 0755), 0);
    assert_false(found.v2_memory || top.v2_memory);
    assert_string_equal(top.v2, "");
}

static void explicit_errors(void **state)
{
    (void)state;
    struct host_cgroups found = {.kind = HOST_CGROUP_V1};
    struct cordon_err err;

    assert_int_equal(host_cgroups_explicit("/no/such/group", &found, &err), -1);
    assert_int_equal(err.code, CORDON_ERR_CONFIG);
    assert_int_equal(host_cgroups_explicit(tree, &found, &err), -1);
    assert_int_equal(err.code, CORDON_ERR_CONFIG);
    assert_non_null(strstr(err.message, "not a cgroup v2"));
    assert_int_equal(found.kind, HOST_CGROUP_V1); /* untouched */
}

/* ---- causes ---- */

static const struct host_facts plain = {.apparmor_restrict = -1,
                                        .userns_clone = -1,
                                        .max_user_ns = 15000,
                                        .seccomp = 0,
                                        .ptrace_scope = -1};
static const struct host user = {.uid = 1000, .gid = 1000, .user_ns = true};

static struct host_item explain(host_explain_fn *fn, const struct host_facts *facts, int error,
                                const char *step)
{
    struct host_item item = {.name = "x"};
    struct host_outcome out = {.done = 1, .error = error};
    snprintf(out.step, sizeof(out.step), "%s", step);
    fn(&user, facts, &out, &item);
    return item;
}

#define ASSERT_HAS(text, part) assert_non_null(strstr(text, part))

static void causes_of_user_ns(void **state)
{
    (void)state;
    struct host_facts f = plain;
    struct host_item item;

    item = explain(host_explain_user_ns, &f, 0, "");
    assert_int_equal(item.state, HOST_WORKS);

    f.apparmor_restrict = 1;
    item = explain(host_explain_user_ns, &f, EPERM, "write uid_map");
    assert_int_equal(item.state, HOST_BLOCKED);
    ASSERT_HAS(item.detail, "AppArmor");
    ASSERT_HAS(item.fix, "sysctl kernel.apparmor_restrict_unprivileged_userns=0");
    ASSERT_HAS(item.fix, "profile cordon /usr/bin/cordon");

    f = plain;
    f.userns_clone = 0;
    ASSERT_HAS(explain(host_explain_user_ns, &f, EPERM, "unshare").fix,
               "sysctl kernel.unprivileged_userns_clone=1");

    f = plain;
    f.max_user_ns = 0;
    ASSERT_HAS(explain(host_explain_user_ns, &f, ENOSPC, "unshare").fix,
               "user.max_user_namespaces=");
    ASSERT_HAS(explain(host_explain_user_ns, &plain, ENOSPC, "unshare").detail, "nested");

    f = plain;
    f.seccomp = 2;
    strcpy(f.container, "docker");
    item = explain(host_explain_user_ns, &f, EPERM, "unshare");
    ASSERT_HAS(item.detail, "seccomp filter (docker)");
    ASSERT_HAS(item.fix, "--security-opt");

    f = plain;
    f.chrooted = true;
    ASSERT_HAS(explain(host_explain_user_ns, &f, EPERM, "unshare").detail, "chroot");

    item = explain(host_explain_user_ns, &plain, EINVAL, "unshare");
    assert_int_equal(item.state, HOST_MISSING);
    ASSERT_HAS(item.detail, "built without");
}

static void causes_of_the_rest(void **state)
{
    (void)state;
    struct host_facts f = plain;
    struct host_item item;

    f.proc_masks = 6;
    strcpy(f.proc_mask, "/proc/kcore");
    item = explain(host_explain_proc, &f, EPERM, "mount proc");
    ASSERT_HAS(item.detail, "masked (/proc/kcore and 5 more)");
    ASSERT_HAS(item.fix, "systempaths=unconfined");

    ASSERT_HAS(explain(host_explain_notify, &plain, EBUSY, "seccomp").detail, "EBUSY");
    item = explain(host_explain_landlock, &plain, EOPNOTSUPP, "landlock_create_ruleset");
    assert_int_equal(item.state, HOST_BLOCKED);
    ASSERT_HAS(item.fix, "lsm=");
    assert_int_equal(explain(host_explain_landlock, &plain, ENOSYS, "x").state, HOST_MISSING);

    f = plain;
    f.seccomp = 2;
    assert_int_equal(explain(host_explain_general, &f, ENOSYS, "clone3").state, HOST_BLOCKED);
    assert_int_equal(explain(host_explain_general, &plain, ENOSYS, "clone3").state, HOST_MISSING);
    strcpy(f.label, "docker-default");
    ASSERT_HAS(explain(host_explain_general, &f, EACCES, "mount").detail, "docker-default");

    f = plain;
    f.systemd = true;
    ASSERT_HAS(explain(host_explain_cgroup, &f, 0, "").fix, "systemd-run --user --scope");
    f.cgroup_v1 = true;
    ASSERT_HAS(explain(host_explain_cgroup, &f, 0, "").fix, "run as root");
    f.own_controllers = true;
    ASSERT_HAS(explain(host_explain_cgroup, &f, 0, "").fix, ">$G/cgroup.subtree_control");
    strcpy(f.core_pattern, "|/usr/lib/handler %P");
    ASSERT_HAS(explain(host_explain_core, &f, 0, "").detail, "piped to /usr/lib/handler");
}

static struct host_item item_of(const char *name, enum host_need need, enum host_state state)
{
    struct host_item item = {.name = name,
                             .title = name,
                             .need = need,
                             .required = true,
                             .state = state,
                             .lost = name,
                             .full_only = need == HOST_NEED_FULL || need == HOST_NEED_NETWORK};
    if (state != HOST_WORKS) {
        snprintf(item.detail, sizeof(item.detail), "by %s", name);
        snprintf(item.fix, sizeof(item.fix), "fix %s", name);
    }
    return item;
}

static struct host_report judged(enum host_state full, enum host_state any,
                                 enum host_state landlock, enum host_state limits)
{
    struct host_report r = {.n_items = 5, .host.cgroups.kind = HOST_CGROUP_V2};
    r.items[0] = item_of("walls", HOST_NEED_FULL, full);
    r.items[1] = item_of("filter", HOST_NEED_ANY, any);
    r.items[2] = item_of("fence", HOST_NEED_LANDLOCK, landlock);
    r.items[3] = item_of("groups", HOST_NEED_LIMITS, limits);
    r.items[4] = item_of("veth", HOST_NEED_NETWORK, full);
    host_doctor_judge(&r);
    return r;
}

static void verdicts(void **state)
{
    (void)state;
    struct host_report r;

    r = judged(HOST_WORKS, HOST_WORKS, HOST_WORKS, HOST_WORKS);
    assert_int_equal(r.tier, HOST_TIER_FULL);
    assert_string_equal(r.summary, "full tier available; limits exact (cgroup v2)");
    assert_int_equal(r.n_lost, 0);
    assert_string_equal(r.fix, "");

    r = judged(HOST_WORKS, HOST_WORKS, HOST_MISSING, HOST_BLOCKED);
    assert_int_equal(r.tier, HOST_TIER_FULL);
    assert_string_equal(r.summary,
                        "full tier available; limits by rlimits and sampling (by groups)");
    assert_int_equal(r.n_lost, 2);

    r = judged(HOST_BLOCKED, HOST_WORKS, HOST_WORKS, HOST_WORKS);
    assert_int_equal(r.tier, HOST_TIER_LANDLOCK);
    assert_true(r.default_run);
    ASSERT_HAS(r.summary, "landlock tier only: walls blocked: by walls");
    assert_string_equal(r.fix, "fix walls");

    r = judged(HOST_TIMED_OUT, HOST_WORKS, HOST_MISSING, HOST_WORKS);
    assert_int_equal(r.tier, HOST_TIER_NONE);
    assert_false(r.default_run);
    ASSERT_HAS(r.summary, "no run is possible here: walls timed out");

    r = judged(HOST_WORKS, HOST_BLOCKED, HOST_WORKS, HOST_WORKS);
    assert_int_equal(r.tier, HOST_TIER_NONE);
    assert_string_equal(r.fix, "fix filter");
}

static void this_host(void **state)
{
    (void)state;
    struct host host = {0};
    struct cordon_err err;

    assert_int_equal(host_probe_quick(&host, &err), 0);
    assert_int_equal(host.uid, geteuid());
    assert_true(host.user_ns);
    assert_true(geteuid() == 0 || !host.is_root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cgroup_path),       cmocka_unit_test(cgroup_path_odd),
        cmocka_unit_test(cgroup_mount),      cmocka_unit_test(cgroup_join),
        cmocka_unit_test(small_texts),       cmocka_unit_test(walk_v2),
        cmocka_unit_test(walk_v2_not_ours),  cmocka_unit_test(explicit_errors),
        cmocka_unit_test(causes_of_user_ns), cmocka_unit_test(causes_of_the_rest),
        cmocka_unit_test(verdicts),          cmocka_unit_test(this_host),
    };
    return cmocka_run_group_tests_name("host", tests, make_tree, remove_tree);
}
