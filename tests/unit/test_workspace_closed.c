/* Trees of tasks with parts that are closed to the caller, and folders that are not Cordon's. Some
 * of it takes two users: root, who plays whoever owns what is closed, and nobody, who is the
 * caller; without root that is skipped. */
#include "workspace/task.h"

#include <errno.h>
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
#include "workspace/copy.h"
#include "workspace/workspace.h"

#define NOBODY 65534

static char top[64];
static struct cordon_err err;

static const char *at(const char *path)
{
    static char full[2][256];
    static int next;
    next = !next;
    snprintf(full[next], sizeof(full[next]), "%s/%s", top, path);
    return full[next];
}

static void put(const char *path, const char *text)
{
    FILE *f = fopen(at(path), "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static bool has(const char *path)
{
    struct stat st;
    return lstat(at(path), &st) == 0;
}

static mode_t mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(lstat(at(path), &st), 0);
    return st.st_mode & 07777;
}

static void as(uid_t uid)
{
    assert_int_equal(seteuid(uid), 0);
}

static int make_top(void **state)
{
    (void)state;
    strcpy(top, "/tmp/test-closed-XXXXXX");
    return mkdtemp(top) ? 0 : -1;
}

static int remove_top(void **state)
{
    (void)state;
    if (getuid() == 0)
        as(0);
    _cleanup_close_ int fd = open("/tmp", O_RDONLY | O_DIRECTORY);
    return copy_remove(fd, strrchr(top, '/') + 1);
}

/* ---- What a comparison says ---- */

/* "KIND PATH" of every change, " -" after those that are not in the diff; then "? PATH" of what
 * could not be read. */
static void say(struct tree_changes *changes, char *text, size_t size)
{
    size_t len = 0;
    text[0] = '\0';
    for (size_t i = 0; i < changes->n; i++)
        len += (size_t)snprintf(text + len, size - len, "%s %s%s\n",
                                tree_kind_name(changes->list[i].kind), changes->list[i].path,
                                changes->list[i].omitted ? " -" : "");
    tree_paths_sort(&changes->unread);
    for (size_t i = 0; i < changes->unread.n; i++)
        len += (size_t)snprintf(text + len, size - len, "? %s\n", changes->unread.list[i]);
}

/* A command of the task t, played by change(). */
static void check(void (*change)(void), const char *want, const char *want_in_diff)
{
    struct task_hold hold = TASK_HOLD_INIT;
    struct tree_changes changes;
    struct buf diff;
    char got[1024];
    if (task_hold_begin(top, "t", false, &hold, &err) < 0)
        fail_msg("%s", err.message);
    assert_false(hold.is_cut);
    change();
    assert_int_equal(task_hold_compare(&hold, &changes, &err), 0);
    assert_false(changes.truncated);
    assert_int_equal(tree_diff(&changes, 1 << 20, &diff, &err), 0);
    say(&changes, got, sizeof(got));
    assert_string_equal(got, want);
    if (want_in_diff)
        assert_non_null(strstr(diff.data, want_in_diff));
    else
        assert_string_equal(diff.data, "");
    buf_done(&diff);
    tree_changes_done(&changes);
    task_hold_end(&hold);
}

static void nothing(void)
{
}

/* ---- What is the caller's own ---- */

static void own_change(void)
{
    put("t/f", "new\n");
    assert_int_equal(chmod(at("t/shut"), 0700), 0);
    put("t/shut/x", "2\n");
    assert_int_equal(chmod(at("t/shut"), 0), 0);
}

static void own_open(void)
{
    assert_int_equal(chmod(at("t/shut"), 0755), 0);
}

static void own_remove(void)
{
    assert_int_equal(unlink(at("t/shut/x")), 0);
    assert_int_equal(chmod(at("t/shut/in"), 0700), 0);
    assert_int_equal(unlink(at("t/shut/in/y")), 0);
    assert_int_equal(rmdir(at("t/shut/in")), 0);
    assert_int_equal(rmdir(at("t/shut")), 0);
}

static void own_top(void)
{
    put("t/f", "newer\n");
    assert_int_equal(chmod(at("t"), 0), 0);
}

/* Opened up for the look, and put back: nothing is left out. */
static void own_folders_are_looked_into(void **state)
{
    (void)state;
    static const mode_t modes[] = {0, 0400, 0100, 0600, 0300};
    const struct task_file files[] = {
        {"f", "old\n", 4, false}, {"shut/x", "1\n", 2, false}, {"shut/in/y", "3\n", 2, false}};
    if (getuid() == 0) {
        assert_int_equal(chown(top, NOBODY, NOBODY), 0);
        as(NOBODY);
    }
    for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
        if (task_make(top, "t", files, 3, &err) < 0)
            fail_msg("%s", err.message);
        assert_int_equal(chmod(at("t/shut/x"), 0), 0);
        assert_int_equal(chmod(at("t/shut/in"), modes[i]), 0);
        assert_int_equal(chmod(at("t/shut"), modes[i]), 0);
        check(nothing, "", NULL);
        assert_int_equal(mode_of("t/shut"), modes[i]);
        own_open();
        assert_int_equal(mode_of("t/shut/in"), modes[i]);
        assert_int_equal(mode_of("t/shut/x"), 0);
        assert_int_equal(chmod(at("t/shut/x"), 0600), 0);
        assert_int_equal(chmod(at("t/shut"), modes[i]), 0);
        check(own_change, "modified f\nmodified shut/x\n", "-1\n+2\n");
        assert_int_equal(mode_of("t/shut"), 0);
        check(own_open, "", NULL);
        check(own_remove, "deleted shut/in/y\ndeleted shut/x\n", "-2\n");
        check(own_top, "modified f\n", "-new\n+newer\n");
        check(nothing, "", NULL);
        assert_int_equal(mode_of("t"), 0);
    }
}

/* ---- What is not ---- */

static void their_nothing(void)
{
    put("t/f", "new\n");
}

static void their_open(void)
{
    as(0);
    assert_int_equal(chmod(at("t/shut"), 0755), 0);
    as(NOBODY);
    their_nothing();
}

static void their_remove(void)
{
    as(0);
    assert_int_equal(unlink(at("t/shut/x")), 0);
    assert_int_equal(rmdir(at("t/shut")), 0);
    as(NOBODY);
    their_nothing();
}

static void their_move(void)
{
    assert_int_equal(rename(at("t/shut"), at("t/moved")), 0);
    their_nothing();
}

static void their_file(void)
{
    their_remove();
    put("t/shut", "is a file now\n");
}

static void their_close(void)
{
    as(0);
    assert_int_equal(chmod(at("t/open"), 0700), 0);
    as(NOBODY);
    their_nothing();
}

static void their_half_close(void) /* listed, but not entered */
{
    as(0);
    assert_int_equal(chmod(at("t/open"), 0744), 0);
    as(NOBODY);
    their_nothing();
}

/* A tree of nobody's with a folder of root's, open or shut, and one that is neither. */
static void make_theirs(mode_t mode)
{
    const struct task_file files[] = {{"f", "old\n", 4, false}};
    as(NOBODY);
    if (task_make(top, "t", files, 1, &err) < 0)
        fail_msg("%s", err.message);
    as(0);
    assert_int_equal(mkdir(at("t/shut"), 0755), 0);
    assert_int_equal(mkdir(at("t/open"), 0755), 0);
    put("t/shut/x", "1\n");
    put("t/open/x", "1\n");
    assert_int_equal(chmod(at("t/shut"), mode), 0);
}

static void folders_of_others_are_left_out(void **state)
{
    (void)state;
    static const struct {
        void (*change)(void);
        const char *want;
    } rows[] = {
        {their_nothing, "modified f\n? shut\n"},
        {their_open, "modified f\n? shut\n"},
        {their_remove, "modified f\n? shut\n"},
        {their_move, "modified f\n? moved\n? shut\n"},
        {their_file, "modified f\nadded shut\n? shut\n"},
        {their_close, "modified f\n? open\n? shut\n"},
        {their_half_close, "modified f\n? open\n? shut\n"},
    };
    static const mode_t modes[] = {0700, 0744, 0};
    if (getuid() != 0)
        skip();
    assert_int_equal(chown(top, NOBODY, NOBODY), 0);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        for (size_t k = 0; k < ARRAY_SIZE(modes); k++) {
            make_theirs(modes[k]);
            as(NOBODY);
            check(rows[i].change, rows[i].want, "-old\n+new\n");
            as(0);
            assert_int_equal(task_remove(top, "t", &err), 0);
        }
    /* root itself reads them all */
    make_theirs(0);
    check(their_nothing, "modified f\n", "-old\n+new\n");
    check(own_open, "", NULL);
}

static void file_open(void)
{
    as(0);
    assert_int_equal(chmod(at("t/theirs"), 0644), 0);
    as(NOBODY);
}

static void file_write(void)
{
    as(0);
    put("t/theirs", "longer than it was\n");
    as(NOBODY);
}

static void file_write_and_open(void)
{
    file_write();
    file_open();
}

static void file_remove(void)
{
    assert_int_equal(unlink(at("t/theirs")), 0);
}

static void file_close(void)
{
    as(0);
    assert_int_equal(chmod(at("t/open/x"), 0600), 0);
    as(NOBODY);
}

static void file_make(void)
{
    as(0);
    put("t/new", "hidden\n");
    assert_int_equal(chmod(at("t/new"), 0600), 0);
    as(NOBODY);
}

/* What cannot be compared is told; a patch of it would not fit. */
static void files_of_others_are_in_no_diff(void **state)
{
    (void)state;
    static const struct {
        void (*change)(void);
        const char *want;
    } rows[] = {
        {nothing, ""},
        {file_open, "mode theirs -\n? theirs\n"},
        {file_write, "modified theirs -\n? theirs\n"},
        {file_write_and_open, "modified theirs -\n? theirs\n"},
        {file_remove, "deleted theirs -\n? theirs\n"},
        {file_close, "modified open/x -\n? open/x\n"},
        {file_make, "added new -\n? new\n"},
    };
    if (getuid() != 0)
        skip();
    assert_int_equal(chown(top, NOBODY, NOBODY), 0);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        make_theirs(0755);
        put("t/theirs", "secret\n");
        assert_int_equal(chmod(at("t/theirs"), 0600), 0);
        as(NOBODY);
        check(rows[i].change, rows[i].want, NULL);
        as(0);
        assert_int_equal(task_remove(top, "t", &err), 0);
    }
}

static void too_deep_is_cut_and_no_failure(void **state)
{
    (void)state;
    struct task_hold hold = TASK_HOLD_INIT;
    char name[256];
    assert_int_equal(task_make(top, "t", NULL, 0, &err), 0);
    memset(name, 'd', 255);
    name[255] = '\0';
    _cleanup_close_ int home = open(".", O_RDONLY | O_DIRECTORY);
    assert_int_equal(chdir(at("t")), 0);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(mkdir(name, 0755), 0);
        assert_int_equal(chdir(name), 0);
    }
    assert_int_equal(fchdir(home), 0);
    assert_int_equal(task_hold_begin(top, "t", false, &hold, &err), 0);
    assert_true(hold.is_cut);
    task_hold_end(&hold);
}

/* ---- Whose folder is it? ---- */

static void refused(int r)
{
    assert_int_equal(r, -1);
    assert_int_equal(err.code, CORDON_ERR_USAGE);
    assert_non_null(strstr(err.message, "was not made by Cordon"));
    assert_non_null(strstr(err.message, at("")));
}

static void folders_that_are_not_ours_stay(void **state)
{
    (void)state;
    struct task_file file = {"a", "1", 1, false};
    assert_int_equal(mkdir(at("src"), 0755), 0);
    put("src/main.c", "mine");
    put("notes", "mine");
    assert_int_equal(symlink("src", at("link")), 0);
    static const char *const names[] = {"src", "notes", "link"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        refused(task_remove(top, names[i], &err));
        assert_non_null(strstr(err.hint, "rm --force"));
        refused(task_make(top, names[i], &file, 1, &err));
        assert_true(has(names[i]));
    }
    assert_true(has("src/main.c"));
    assert_false(has(".meta"));

    /* ours goes, closed or not, and with it everything that was there for it */
    for (int i = 0; i < 2; i++)
        assert_int_equal(task_make(top, "t", &file, 1, &err), 0);
    assert_true(has(".meta/t~task"));
    assert_int_equal(chmod(at("t"), 0), 0);
    assert_int_equal(task_remove(top, "t", &err), 0);
    assert_false(has("t"));
    assert_false(has(".meta"));

    /* an empty one is nobody's loss */
    assert_int_equal(mkdir(at("empty"), 0755), 0);
    assert_int_equal(task_make(top, "empty", &file, 1, &err), 0);
    assert_int_equal(task_remove(top, "empty", &err), 0);
    assert_false(has("empty"));
}

/* The mark is of one folder, not of whatever has its name later. */
static void a_mark_is_of_one_folder(void **state)
{
    (void)state;
    struct task_file file = {"a", "1", 1, false};
    assert_int_equal(task_make(top, "t", &file, 1, &err), 0);
    assert_int_equal(rename(at("t"), at("away")), 0);
    assert_int_equal(mkdir(at("t"), 0755), 0);
    put("t/mine", "1");
    refused(task_remove(top, "t", &err));
    assert_int_equal(unlink(at("t/mine")), 0);
    assert_int_equal(rmdir(at("t")), 0);
    assert_int_equal(rename(at("away"), at("t")), 0);
    assert_int_equal(task_remove(top, "t", &err), 0);

    /* one without its folder goes with the next gc */
    assert_int_equal(task_make(top, "t", &file, 1, &err), 0);
    assert_int_equal(rename(at("t"), at("away")), 0);
    assert_int_equal(workspace_gc(top), 1);
    assert_false(has(".meta"));
    refused(task_remove(top, "away", &err));
}

/* `cordon workspace rm` on trees: those of `new` and of tasks go, others only with force. */
static void removal_by_hand_asks_for_force(void **state)
{
    (void)state;
    struct task_file file = {"a", "1", 1, false};
    struct workspace ws;
    assert_int_equal(workspace_new(top, "made", NULL, &ws, &err), 0);
    workspace_close(&ws);
    put("made/a", "1");
    assert_int_equal(task_make(top, "task", &file, 1, &err), 0);
    assert_int_equal(mkdir(at("src"), 0755), 0);
    put("src/main.c", "mine");
    static const struct {
        const char *id;
        bool force, goes;
    } rows[] = {
        {"made", false, true}, {"task", false, true}, {"src", false, false}, {"src", true, true}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        assert_int_equal(workspace_open(top, rows[i].id, &ws, &err), 0);
        assert_true(ws.is_tree);
        int r = workspace_remove(&ws, rows[i].force, &err);
        workspace_close(&ws);
        assert_int_equal(r, rows[i].goes ? 0 : -1);
        assert_int_equal(has(rows[i].id), !rows[i].goes);
    }
    assert_false(has(".meta"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(own_folders_are_looked_into, make_top, remove_top),
        cmocka_unit_test_setup_teardown(folders_of_others_are_left_out, make_top, remove_top),
        cmocka_unit_test_setup_teardown(files_of_others_are_in_no_diff, make_top, remove_top),
        cmocka_unit_test_setup_teardown(too_deep_is_cut_and_no_failure, make_top, remove_top),
        cmocka_unit_test_setup_teardown(folders_that_are_not_ours_stay, make_top, remove_top),
        cmocka_unit_test_setup_teardown(a_mark_is_of_one_folder, make_top, remove_top),
        cmocka_unit_test_setup_teardown(removal_by_hand_asks_for_force, make_top, remove_top),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
