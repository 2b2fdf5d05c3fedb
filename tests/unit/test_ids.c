/* Trees that are given to a guest: what is in them, nothing else, whoever changes them meanwhile.
 * And that no guest is prepared for one. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "backend/native/native_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "plan/plan.h"

#define GUEST (PLAN_ID_BASE + 7)

/* A folder with a tree and something beside it, the working directory while a test runs. */
static char top[] = "/tmp/cordon-ids-XXXXXX";

static int set_up(void **state)
{
    (void)state;
    memcpy(top + sizeof(top) - 7, "XXXXXX", 6);
    return mkdtemp(top) && chdir(top) == 0 && mkdir("tree", 0700) == 0 && mkdir("beside", 0700) == 0
               ? 0
               : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof(command), "rm -rf %s", top);
    return chdir("/") == 0 && system(command) == 0 ? 0 : -1;
}

static void make_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static uid_t owner(const char *path)
{
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    assert_int_equal(st.st_uid, st.st_gid);
    return st.st_uid;
}

static int give(void)
{
    char path[64];
    snprintf(path, sizeof(path), "%s/tree", top);
    return native_give_tree(path, GUEST);
}

static void needs_root(void)
{
    if (geteuid() != 0) {
        print_message("skipped: giving files away needs root\n");
        skip();
    }
}

static void all_of_it_and_no_link(void **state)
{
    (void)state;
    needs_root();
    assert_int_equal(mkdir("tree/a", 0), 0);
    assert_int_equal(mkdir("tree/a/b", 0700), 0);
    make_file("tree/a/b/file");
    assert_int_equal(mkfifo("tree/a/pipe", 0600), 0);
    make_file("beside/file");
    assert_int_equal(symlink("../beside", "tree/link"), 0);
    assert_int_equal(symlink("../beside/file", "tree/other"), 0);
    assert_int_equal(give(), 0);
    static const char *const given[] = {"tree",        "tree/a",    "tree/a/b",  "tree/a/b/file",
                                        "tree/a/pipe", "tree/link", "tree/other"};
    for (size_t i = 0; i < ARRAY_SIZE(given); i++)
        assert_int_equal(owner(given[i]), GUEST);
    assert_int_equal(owner("beside"), 0);
    assert_int_equal(owner("beside/file"), 0);
    assert_int_equal(rename("tree", "moved"), 0);
    assert_int_equal(symlink("beside", "tree"), 0);
    assert_int_equal(give(), -1);
    assert_int_equal(owner("beside"), 0);
}

static void files_with_other_names(void **state)
{
    (void)state;
    needs_root();
    make_file("beside/ours");
    assert_int_equal(link("beside/ours", "tree/ours"), 0);
    make_file("tree/guests");
    assert_int_equal(chown("tree/guests", GUEST + 1, GUEST + 1), 0);
    assert_int_equal(link("tree/guests", "tree/again"), 0);
    assert_int_equal(give(), 0);
    assert_int_equal(owner("beside/ours"), 0);
    assert_int_equal(owner("tree/guests"), GUEST);
}

/* In a process of its own, which has mounts of its own. */
static int give_with_mounts(void)
{
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return 2;
    mkdir("tree/folder", 0700);
    make_file("tree/file");
    make_file("beside/file");
    if (mount("beside", "tree/folder", NULL, MS_BIND, NULL) < 0 ||
        mount("beside/file", "tree/file", NULL, MS_BIND, NULL) < 0)
        return 2;
    return give() == 0 && owner("beside") == 0 && owner("beside/file") == 0 &&
                   owner("tree") == GUEST
               ? 0
               : 1;
}

static void no_mount(void **state)
{
    (void)state;
    needs_root();
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(give_with_mounts());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 2) {
        print_message("skipped: mounting needs CAP_SYS_ADMIN\n");
        skip();
    }
    assert_int_equal(status, 0);
}

static void depth_has_a_bound(void **state)
{
    (void)state;
    needs_root();
    int at = open("tree", O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (int depth = 1; depth <= 2000; depth++) {
        if (depth == 256) /* with the tree itself as many as there may be */
            assert_int_equal(give(), 0);
        assert_int_equal(mkdirat(at, "d", 0700), 0);
        int next = openat(at, "d", O_PATH | O_DIRECTORY | O_CLOEXEC);
        assert_true(next >= 0);
        close(at);
        at = next;
    }
    close(at);
    assert_int_equal(give(), -1);
    assert_int_equal(errno, ENAMETOOLONG);
    int lowest = dup(0); /* none was left open */
    assert_true(lowest >= 0 && lowest < 64);
    close(lowest);
}

static atomic_bool over;

/* What a guest does that wants files of others: now a folder, now a link by the same name. */
static void *swap(void *data)
{
    (void)data;
    while (!over)
        renameat2(AT_FDCWD, "tree/a", AT_FDCWD, "tree/link", RENAME_EXCHANGE);
    return NULL;
}

static void a_folder_that_becomes_a_link(void **state)
{
    (void)state;
    needs_root();
    assert_int_equal(mkdir("tree/a", 0700), 0);
    make_file("tree/a/file");
    make_file("beside/file");
    assert_int_equal(symlink("../beside", "tree/link"), 0);
    pthread_t other;
    over = false;
    assert_int_equal(pthread_create(&other, NULL, swap, NULL), 0);
    int failed = 0;
    for (int i = 0; i < 5000; i++)
        failed += give() < 0;
    over = true;
    pthread_join(other, NULL);
    assert_int_equal(failed, 0);
    assert_int_equal(owner("beside"), 0);
    assert_int_equal(owner("beside/file"), 0);
}

static bool is_parkable(const char *workspace, bool copy)
{
    static char *argv[] = {(char *)"/bin/true", NULL};
    static char *vars[] = {NULL};
    const struct host host = {.uid = 1000, .gid = 1000, .user_ns = true, .landlock_abi = 7};
    const struct policy_setting setting = {.name = "workspace", .value = workspace};
    struct policy_input input = {
        .settings = &setting, .n_settings = 1, .no_discovery = true, .environ = vars, .cwd = "/"};
    struct cordon_err err = {0};
    struct policy *policy = NULL;
    struct plan *plan = NULL;
    assert_int_equal(policy_resolve(&input, &policy, &err), 0);
    struct plan_request request = {.policy = policy,
                                   .host = &host,
                                   .argv = argv,
                                   .workspace_layer = copy ? "/var/lib/copy" : NULL,
                                   .workspace_copy = copy};
    if (plan_make(&request, &plan, &err) < 0)
        fail_msg("%s: %s", err.stage, err.message);
    bool found = plan_is_parkable(plan);
    plan_free(plan);
    policy_free(policy);
    return found;
}

static void copies_are_never_prepared(void **state)
{
    (void)state;
    char as_it_is[64], overlay[64];
    snprintf(as_it_is, sizeof(as_it_is), "%s/tree:rw", top);
    snprintf(overlay, sizeof(overlay), "%s/tree:overlay", top);
    assert_true(is_parkable(as_it_is, false));
    assert_false(is_parkable(overlay, true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_of_it_and_no_link, set_up, tear_down),
        cmocka_unit_test_setup_teardown(files_with_other_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_mount, set_up, tear_down),
        cmocka_unit_test_setup_teardown(depth_has_a_bound, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_folder_that_becomes_a_link, set_up, tear_down),
        cmocka_unit_test_setup_teardown(copies_are_never_prepared, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("ids", tests, NULL, NULL);
}
