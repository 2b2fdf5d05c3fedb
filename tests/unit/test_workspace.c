/* Workspaces without a guest: ids, protected names, states, notes on the host's files, apply. */
#include "workspace/workspace.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "workspace/apply.h"
#include "workspace/collect.h"
#include "workspace/copy.h"
#include "workspace/protect.h"
#include "workspace/task.h"

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

/* ---- What the file system says, and what it was asked ---- */

int __real_unlinkat(int dir, const char *name, int flags);
int __real_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __real_linkat(int from_dir, const char *from, int to_dir, const char *to, int flags);
int __wrap_unlinkat(int dir, const char *name, int flags);
int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __wrap_linkat(int from_dir, const char *from, int to_dir, const char *to, int flags);

static struct {
    const char *stays; /* a name that cannot be removed */
    int why;
    bool no_links;
    int asked;            /* removals of that name */
    bool watches_records; /* what happened while the records were locked */
    bool locked_rename, locked_record, locked_slow;
} fs;

static bool records_are_locked(void)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/root/.meta", top);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY);
    return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0;
}

int __wrap_unlinkat(int dir, const char *name, int flags)
{
    if (fs.stays && str_eq(name, fs.stays)) {
        assert_true(++fs.asked < 10);
        errno = fs.why;
        return -1;
    }
    if (fs.watches_records && str_eq(name, ".meta/w"))
        fs.locked_record = records_are_locked();
    if (fs.watches_records && str_eq(name, "slow"))
        fs.locked_slow = records_are_locked();
    return __real_unlinkat(dir, name, flags);
}

int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    if (fs.watches_records && str_eq(from, "w"))
        fs.locked_rename = records_are_locked();
    return __real_renameat(from_dir, from, to_dir, to);
}

int __wrap_linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
    if (!fs.no_links)
        return __real_linkat(from_dir, from, to_dir, to, flags);
    errno = ENOENT;
    return -1;
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
    assert_int_equal(workspace_remove(&ws, false, &err), 0);
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
    /* one that cannot be understood is an error, and costs nobody their files */
    /* beside the mark of the tree, where it does count */
    put("root/.meta/t", "cordon-workspace 1\nmode\n");
    assert_int_equal(workspace_open(root, "t", &ws, &err), -1);
    assert_int_equal(err.code, CORDON_ERR_CONFIG);
    snprintf(path, sizeof(path), "%s/root/t/meta", top);
    assert_int_equal(access(path, F_OK), 0);
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

/* ---- Removals end ---- */

static void removals_end_where_something_stays(void **state)
{
    (void)state;
    static const char *const where[] = {"base/stays", "base/sub/stays"};
    static const int whys[] = {EACCES, EROFS, EPERM, ENOENT};
    char path[256];
    snprintf(path, sizeof(path), "%s/base/sub", top);
    assert_int_equal(mkdir(path, 0755), 0);
    _cleanup_close_ int at = open(top, O_RDONLY | O_DIRECTORY);
    for (size_t i = 0; i < ARRAY_SIZE(where); i++)
        for (size_t k = 0; k < ARRAY_SIZE(whys); k++) {
            mkdir(path, 0755);
            put(where[i], "x");
            fs.stays = "stays";
            fs.why = whys[k];
            fs.asked = 0;
            int r = copy_remove(at, "base"), e = errno;
            fs.stays = NULL;
            assert_int_equal(r, -1);
            assert_int_equal(e, whys[k] == ENOENT ? ENOTEMPTY : whys[k]);
        }
    assert_int_equal(copy_remove(at, "base"), 0);
    assert_int_equal(faccessat(at, "base", F_OK, 0), -1);
}

/* A new one with the same id waits until state and record are gone, not for the whole removal. */
static void removal_holds_the_records(void **state)
{
    (void)state;
    struct cordon_err err = {0};
    struct workspace ws;
    char base[128], root[128];
    snprintf(base, sizeof(base), "%s/base", top);
    snprintf(root, sizeof(root), "%s/root", top);
    assert_int_equal(workspace_new(root, "w", base, &ws, &err), 0);
    put("root/w/slow", "x");
    fs.locked_slow = true;
    fs.watches_records = true;
    assert_int_equal(workspace_remove(&ws, false, &err), 0);
    fs.watches_records = false;
    assert_true(fs.locked_rename);
    assert_true(fs.locked_record);
    assert_false(fs.locked_slow);
    workspace_close(&ws);
}

/* The record was still there when the removal was cut off: a new tree is a tree, a new workspace
 * knows nothing of the old one's notes. */
static void records_without_a_state_do_not_count(void **state)
{
    (void)state;
    struct cordon_err err = {0};
    struct workspace ws;
    char base[128], root[128], path[256];
    snprintf(base, sizeof(base), "%s/base", top);
    snprintf(root, sizeof(root), "%s/root", top);
    snprintf(path, sizeof(path), "%s/root/.meta/w.base", top);
    for (int tree = 0; tree < 2; tree++) {
        assert_int_equal(workspace_new(root, "w", base, &ws, &err), 0);
        workspace_close(&ws);
        put("root/.meta/w.base", "absent a");
        _cleanup_close_ int at = open(root, O_RDONLY | O_DIRECTORY);
        assert_int_equal(copy_remove(at, "w"), 0);
        assert_int_equal(workspace_new(root, "w", tree ? NULL : base, &ws, &err), 0);
        workspace_close(&ws);
        assert_int_equal(access(path, F_OK), -1);
        assert_int_equal(workspace_open(root, "w", &ws, &err), 0);
        assert_int_equal(ws.is_tree, tree);
        assert_int_equal(workspace_remove(&ws, false, &err), 0);
        workspace_close(&ws);
    }
}

static void a_copy_that_was_cut_off_begins_again(void **state)
{
    (void)state;
    struct cordon_err err = {0};
    struct workspace ws;
    struct stat st;
    char base[128], root[128];
    int to;
    snprintf(base, sizeof(base), "%s/base", top);
    snprintf(root, sizeof(root), "%s/root", top);
    put("base/a", "one\n");
    assert_int_equal(workspace_new(root, "w", base, &ws, &err), 0);
    assert_int_equal(workspace_copy_begin(&ws, &to, &err), 0);
    close(to);
    put("root/w/copy/half", "x");
    workspace_close(&ws);
    assert_int_equal(workspace_open(root, "w", &ws, &err), 0);
    assert_int_equal(workspace_fall_back(&ws, &err), 0);
    assert_int_equal(workspace_copy_begin(&ws, &to, &err), 0);
    assert_int_equal(workspace_copy_work(&ws, ws.base_fd, to, &err), 0);
    assert_int_equal(workspace_copy_end(&ws, &err), 0);
    assert_int_equal(fstatat(to, "half", &st, 0), -1);
    assert_int_equal(fstatat(to, "a", &st, 0), 0);
    close(to);
    workspace_close(&ws);
}

/* ---- Collected files ---- */

/* The old file has its name until the new one has it: the name itself is never removed. */
static void collected_files_replace_at_once(void **state)
{
    (void)state;
    char base[128], out[128], text[16];
    snprintf(base, sizeof(base), "%s/base", top);
    snprintf(out, sizeof(out), "%s/out", top);
    _cleanup_close_ int from = open(base, O_RDONLY | O_DIRECTORY);
    for (int i = 0; i < 4; i++) {
        struct cordon_err err = {0};
        struct collect c = {0};
        snprintf(text, sizeof(text), "%d", i);
        put("base/f", text);
        fs.no_links = i >= 2;
        fs.stays = "f";
        fs.asked = 0;
        struct collect_target to = COLLECT_TARGET_NONE;
        int r = collect_target_open(&to, out, &err);
        assert_int_equal(r, 0);
        r = collect_pattern(&c, from, "*", &to, &err);
        collect_target_close(&to);
        fs.stays = NULL;
        fs.no_links = false;
        assert_int_equal(r, 0);
        assert_int_equal(fs.asked, 0);
        assert_int_equal(c.n, 1);
        assert_null(c.rows[0].skipped);
        collect_done(&c);
        char path[256], got[16] = "";
        snprintf(path, sizeof(path), "%s/f", out);
        _cleanup_close_ int fd = open(path, O_RDONLY);
        assert_int_equal(read(fd, got, sizeof(got) - 1), 1);
        assert_string_equal(got, text);
        if (i == 1) /* the third one finds no file to replace */
            assert_int_equal(unlink(path), 0);
    }
    /* nothing else is left there */
    char path[256];
    snprintf(path, sizeof(path), "%s/f", out);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(out), 0);
}

static void *wait_for_the_tree(void *data)
{
    struct cordon_err err;
    return task_hold_begin(top, "t", true, data, &err) == 0 ? data : NULL;
}

/* Whoever waits for a tree that is replaced meanwhile gets the one that has the name. */
static void a_replaced_tree_is_not_held(void **state)
{
    (void)state;
    struct cordon_err err;
    struct task_file file = {"new", "x", 1, false};
    struct task_hold first = TASK_HOLD_INIT, second = TASK_HOLD_INIT;
    char from[128], to[128];
    pthread_t thread;
    void *got;
    snprintf(from, sizeof(from), "%s/t", top);
    snprintf(to, sizeof(to), "%s/away", top);
    assert_int_equal(task_make(top, "t", NULL, 0, &err), 0);
    assert_int_equal(task_hold_begin(top, "t", false, &first, &err), 0);
    /* nobody takes it away who asks for it */
    assert_int_equal(task_remove(top, "t", &err), -1);
    assert_int_equal(err.sys_errno, EWOULDBLOCK);
    assert_int_equal(task_make(top, "t", &file, 1, &err), -1);
    assert_int_equal(err.sys_errno, EWOULDBLOCK);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_the_tree, &second), 0);
    usleep(100000); /* that it waits already is likely, and changes nothing about what it gets */
    assert_int_equal(rename(from, to), 0);
    assert_int_equal(task_make(top, "t", &file, 1, &err), 0);
    task_hold_end(&first);
    pthread_join(thread, &got);
    assert_non_null(got);
    assert_int_equal(faccessat(second.tree_fd, "new", F_OK, 0), 0);
    task_hold_end(&second);
    assert_int_equal(task_remove(top, "t", &err), 0);
    assert_false(task_exists(top, "t"));
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
        cmocka_unit_test_setup_teardown(removals_end_where_something_stays, make_top, remove_top),
        cmocka_unit_test_setup_teardown(removal_holds_the_records, make_top, remove_top),
        cmocka_unit_test_setup_teardown(records_without_a_state_do_not_count, make_top, remove_top),
        cmocka_unit_test_setup_teardown(a_copy_that_was_cut_off_begins_again, make_top, remove_top),
        cmocka_unit_test_setup_teardown(collected_files_replace_at_once, make_top, remove_top),
        cmocka_unit_test_setup_teardown(a_replaced_tree_is_not_held, make_top, remove_top),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
