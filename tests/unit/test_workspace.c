/* Workspaces without a guest: ids, protected names, states, notes on the host's files, apply. */
#include "workspace/workspace.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "workspace/apply.h"
#include "workspace/copy.h"
#include "workspace/protect.h"

static char top[64];

static void put(const char *path, const char *text)
{
    char full[256];
    snprintf(full, sizeof(full), "%s/%s", top, path);
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int make_top(void **state)
{
    (void)state;
    char path[256];
    strcpy(top, "/tmp/test-workspace-XXXXXX");
    if (!mkdtemp(top))
        return -1;
    snprintf(path, sizeof(path), "%s/base", top);
    return mkdir(path, 0755);
}

static int remove_top(void **state)
{
    (void)state;
    int fd = open("/tmp", O_RDONLY | O_DIRECTORY);
    int r = copy_remove(fd, strrchr(top, '/') + 1);
    close(fd);
    return r;
}

static void ids(void **state)
{
    (void)state;
    static const char *const good[] = {"a", "task-1", "A.b_c", "0"};
    static const char *const bad[] = {"",    ".",   "..",  ".x",       "-x",
                                      "a/b", "a b", "a\n", "\xc3\xa4", "~"};
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        assert_true(workspace_is_id(good[i]));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_false(workspace_is_id(bad[i]));
}

static void protected_names(void **state)
{
    (void)state;
    static const char *const yes[] = {"cordon.toml",     "a/cordon.toml",           ".git/hooks/x",
                                      "sub/.git/config", ".GitHub/Workflows/a.yml", ".vscode",
                                      ".Bashrc"};
    static const char *const no[] = {
        "a",          "cordon.toml.bak", "xcordon.toml", ".git/objects/aa/bb",
        ".git/index", ".git/configs",    "hooks/x",      ".vscode2/x"};
    for (size_t i = 0; i < ARRAY_SIZE(yes); i++)
        assert_non_null(protect_why(yes[i]));
    for (size_t i = 0; i < ARRAY_SIZE(no); i++)
        assert_null(protect_why(no[i]));
    assert_true(protect_leads_out("l", "/etc"));
    assert_true(protect_leads_out("l", "../x"));
    assert_true(protect_leads_out("a/l", "../../x"));
    assert_true(protect_leads_out("a/l", "b/../../../x"));
    assert_false(protect_leads_out("a/l", "../x"));
    assert_false(protect_leads_out("l", "a/../b"));
    assert_false(protect_leads_out("l", "..."));
}

/* The layer is written here in the guest's place. */
static void apply_and_conflict(void **state)
{
    (void)state;
    struct cordon_err err = {0};
    struct workspace ws;
    struct tree_changes changes;
    struct base_notes *notes;
    struct apply_report report;
    struct apply_options all = {0};
    char base[128], root[128], path[256];
    snprintf(base, sizeof(base), "%s/base", top);
    snprintf(root, sizeof(root), "%s/root", top);
    put("base/a", "one\n");
    put("base/b", "two\n");
    assert_int_equal(workspace_new(root, "w", base, &ws, &err), 0);
    put("root/w/layer/upper/a", "guest\n");
    put("root/w/layer/upper/new", "new\n");
    snprintf(path, sizeof(path), "%s/root/w/layer/upper/new", top);
    chmod(path, 04755);

    assert_int_equal(workspace_compare(&ws, false, &changes, &err), 0);
    assert_int_equal(changes.n, 2);
    assert_int_equal(base_load(&ws, &notes, &err), 0);
    assert_int_equal(base_note(&ws, notes, &changes, &err), 0);
    assert_int_equal(base_save(&ws, notes, &err), 0);
    base_free(notes);

    usleep(20000);
    put("base/a", "host\n");
    assert_int_equal(base_load(&ws, &notes, &err), 0);
    assert_int_equal(apply_changes(&ws, &changes, notes, &all, &report, &err), -1);
    assert_int_equal(err.code, CORDON_ERR_REJECTED);
    assert_int_equal(report.n_conflicts, 1);
    assert_string_equal(report.conflicts[0], "a");
    apply_report_done(&report);

    all.force = true;
    assert_int_equal(apply_changes(&ws, &changes, notes, &all, &report, &err), 0);
    assert_int_equal(report.applied, 2);
    apply_report_done(&report);
    struct stat st;
    snprintf(path, sizeof(path), "%s/base/new", top);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0755);
    assert_false(base_has_moved(&ws, notes, "a"));
    base_free(notes);
    tree_changes_done(&changes);

    assert_int_equal(workspace_compare(&ws, false, &changes, &err), 0);
    assert_int_equal(changes.n, 0);
    tree_changes_done(&changes);
    assert_int_equal(workspace_remove(&ws, &err), 0);
    workspace_close(&ws);
    assert_int_equal(workspace_open(root, "w", &ws, &err), -1);
}

static void one_user_at_a_time(void **state)
{
    (void)state;
    struct cordon_err err = {0};
    struct workspace one, two;
    char base[128], root[128];
    snprintf(base, sizeof(base), "%s/base", top);
    snprintf(root, sizeof(root), "%s/root", top);
    assert_int_equal(workspace_new(root, "w", base, &one, &err), 0);
    assert_int_equal(workspace_new(root, "w", base, &two, &err), -1);
    assert_int_equal(workspace_open(root, "w", &two, &err), -1);
    workspace_close(&one);
    assert_int_equal(workspace_open(root, "w", &two, &err), 0);
    assert_false(two.is_tree);
    assert_int_equal(workspace_gc(root), 0);
    workspace_close(&two);
}

/* A record is what makes a folder a kept workspace: one the guest could write does not count. */
static void forged_records_do_not_count(void **state)
{
    (void)state;
    struct cordon_err err = {0};
    struct workspace ws;
    char root[128], path[256];
    snprintf(root, sizeof(root), "%s/root", top);
    assert_int_equal(workspace_new(root, "t", NULL, &ws, &err), 0);
    workspace_close(&ws);
    put("root/t/meta", "cordon-workspace 1\nmode overlay\nmade 0 0\nbase /etc\n");
    snprintf(path, sizeof(path), "%s/root/t/.meta", top);
    assert_int_equal(mkdir(path, 0700), 0);
    put("root/t/.meta/t", "cordon-workspace 1\nmode overlay\nmade 0 0\nbase /etc\n");
    assert_int_equal(workspace_open(root, "t", &ws, &err), 0);
    assert_true(ws.is_tree);
    assert_non_null(strstr(ws.base, "/root/t"));
    workspace_close(&ws);
}

/* ---- Copies have bounds ---- */

static int copy_with(struct copy_options options, struct cordon_err *err)
{
    char from_path[256], to_path[256];
    snprintf(from_path, sizeof(from_path), "%s/base", top);
    snprintf(to_path, sizeof(to_path), "%s/copy", top);
    _cleanup_close_ int at = open(top, O_RDONLY | O_DIRECTORY);
    assert_int_equal(copy_remove(at, "copy"), 0);
    assert_int_equal(mkdir(to_path, 0755), 0);
    _cleanup_close_ int from = open(from_path, O_RDONLY | O_DIRECTORY);
    _cleanup_close_ int to = open(to_path, O_RDONLY | O_DIRECTORY);
    return copy_tree(from, to, &options, err);
}

static void copies_are_bounded(void **state)
{
    (void)state;
    char path[256];
    static char data[100000];
    struct cordon_err err = {0};
    memset(data, 'x', sizeof(data));
    for (int i = 0; i < 300; i++) {
        snprintf(path, sizeof(path), "%s/base/f%d", top, i);
        int fd = open(path, O_WRONLY | O_CREAT, 0644);
        assert_int_equal(write(fd, data, i == 0 ? sizeof(data) : 1), i == 0 ? sizeof(data) : 1);
        close(fd);
    }
    assert_int_equal(copy_with((struct copy_options){0}, &err), 0);
    assert_int_equal(copy_with((struct copy_options){.max_entries = 300}, &err), 0);
    static const struct {
        struct copy_options options;
        const char *says;
    } rows[] = {
        {{.max_entries = 299}, "too many files"},
        {{.max_bytes = 50000}, "too large"},
        {{.deadline_ns = 1}, "too long"},
        {{.keep_free = UINT64_MAX / 2}, "too little room"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct copy_options options = rows[i].options;
        assert_int_equal(copy_with(options, &err), -1);
        assert_int_equal(err.code, CORDON_ERR_HOST);
        assert_non_null(strstr(err.message, rows[i].says));
        bool cut = false;
        options.ret_cut = &cut;
        assert_int_equal(copy_with(options, &err), 0);
        assert_true(cut);
    }
    /* of a large file the size alone */
    assert_int_equal(copy_with((struct copy_options){.file_bytes = 1000, .max_bytes = 1000}, &err),
                     0);
    struct stat st;
    snprintf(path, sizeof(path), "%s/copy/f0", top);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, sizeof(data));
    assert_int_equal(st.st_blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids),
        cmocka_unit_test(protected_names),
        cmocka_unit_test_setup_teardown(copies_are_bounded, make_top, remove_top),
        cmocka_unit_test_setup_teardown(apply_and_conflict, make_top, remove_top),
        cmocka_unit_test_setup_teardown(one_user_at_a_time, make_top, remove_top),
        cmocka_unit_test_setup_teardown(forged_records_do_not_count, make_top, remove_top),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
