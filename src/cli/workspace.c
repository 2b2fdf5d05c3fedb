/* `cordon workspace`: folders that guests change while the host's stay as they are. One function
 * per sub-command; the work is in the workspace room. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/native/cgroup.h"
#include "base/err.h"
#include "base/jsonw.h"
#include "base/util.h"
#include "cli/cli.h"
#include "cli/paint.h"
#include "run/run.h"
#include "run/reach_note.h"
#include "workspace/apply.h"
#include "workspace/events.h"
#include "workspace/patch.h"
#include "workspace/protect.h"
#include "workspace/workspace.h"

#define DIFF_MAX ((size_t)1 << 30)

enum { OPT_FROM, OPT_ID, OPT_ROOT, OPT_LOGS, OPT_STAT, OPT_JSON, OPT_COLOR, OPT_FORCE };

static const struct options_own workspace_options[] = {
    {"from", 0, OPTIONS_REQUIRED, OPT_FROM, "DIR",
     "new: the folder to work on; without it an empty tree"},
    {"id", 0, OPTIONS_REQUIRED, OPT_ID, "ID", "new: its name; without it one is made up"},
    {"work-root", 0, OPTIONS_REQUIRED, OPT_ROOT, "DIR", "where workspaces are kept; .sandbox"},
    {"logs-dir", 0, OPTIONS_REQUIRED, OPT_LOGS, "DIR", "where their logs go; logs/sandbox"},
    {"stat", 0, OPTIONS_NONE, OPT_STAT, NULL, "diff: changed lines per file"},
    {"json", 0, OPTIONS_NONE, OPT_JSON, NULL, "diff, ls: as JSON"},
    {"color", 0, OPTIONS_OPTIONAL, OPT_COLOR, "WHEN",
     "diff: always, never, or on a terminal (auto)"},
    {"force", 0, OPTIONS_NONE, OPT_FORCE, NULL,
     "apply: over conflicts and protected paths too; rm: a folder that Cordon did not make"},
    CLI_HELP_ROW,
};

static const char *const workspace_words[] = {"new", "run", "diff", "apply", "discard",
                                              "rm",  "ls",  "gc",   NULL};

struct call {
    struct options options;
    const char *root, *logs;
    char **line; /* the sub-command's own line, options first; owned */
    int argc;    /* words after the sub-command */
    char **argv;
};

static int workspace_open_named(const struct call *c, struct workspace *ws, struct cordon_err *err)
{
    if (c->argc < 1)
        return err_set(err, CORDON_ERR_USAGE, "usage", 0,
                       "which workspace? `cordon workspace ls` lists them");
    return workspace_open(c->root, c->argv[0], ws, err);
}

/* A log that cannot be written does not undo what was done. */
static void workspace_log(const struct call *c, const char *id, const struct events_row *row)
{
    struct cordon_err err;
    if (events_append(c->logs, id, row, &err) < 0)
        cli_warn(&err);
}

static int workspace_do_new(struct call *c, struct cordon_err *err)
{
    struct workspace ws;
    if (workspace_new(c->root, options_get(&c->options, OPT_ID), options_get(&c->options, OPT_FROM),
                      &ws, err) < 0)
        return -1;
    workspace_log(c, ws.id, &(struct events_row){.event = "prepare"});
    printf("%s\n", ws.id);
    workspace_close(&ws);
    return 0;
}

/* ---- run ---- */

struct run_in {
    struct cli_run_in in;
    const struct call *call;
    struct workspace *ws;
};

static void workspace_on_result(struct cli_run_in *in, struct run_job *job)
{
    struct run_in *r = in->data;
    struct result *result = &job->result;
    struct run_files *f = &job->files_changed;
    if (r->ws->is_tree && f->compared) {
        struct cordon_err err;
        struct apply_options all = {.force = true, .folders = true};
        struct apply_report report;
        if (apply_changes(r->ws, &f->changes, NULL, &all, &report, &err) < 0)
            result_from_error(result, &err);
        apply_report_done(&report);
    }
    workspace_log(r->call, r->ws->id,
                  &(struct events_row){.event = "action",
                                       .cmd = job->argv,
                                       .has_result = true,
                                       .exit_code = result->exit_code,
                                       .duration_ns = result->wall_ns,
                                       .error = result->error[0] ? result->error : NULL,
                                       .changes = result->changes,
                                       .diff_len = result->diff ? strlen(result->diff) : 0});
    if (!result->workspace_id)
        result->workspace_id = r->ws->id;
}

/* Options in the place of the id are read all the same: how to answer may be among them. */
static int workspace_refuse_run(const struct call *c, struct cordon_err *err)
{
    bool has_id = c->argc > 0 && c->argv[0][0] != '-';
    policy_err_clean(err);
    if (!has_id)
        err_hint(err, "cordon workspace [--work-root DIR] run ID [options] -- CMD");
    return cli_run_refused(&cli_verb_run, c->argc + !has_id, c->argv - !has_id, err);
}

static int workspace_do_run(struct call *c, int *ret_status, struct cordon_err *err)
{
    struct workspace ws;
    if (workspace_open_named(c, &ws, err) < 0) {
        *ret_status = workspace_refuse_run(c, err);
        return 0;
    }
    struct run_in r = {.call = c, .ws = &ws};
    /* a tree of the task's own is changed only when the run is over, so that each run has its diff
     */
    r.in = (struct cli_run_in){.workspace = ws.is_tree ? NULL : &ws,
                               .base = ws.base,
                               .on_result = workspace_on_result,
                               .data = &r};
    *ret_status = cli_run_in(&r.in, c->argc, c->argv);
    workspace_close(&ws);
    return 0;
}

/* ---- diff ---- */

static void diff_stat(const struct tree_changes *changes, struct buf *out)
{
    size_t added = 0, removed = 0;
    for (size_t i = 0; i < changes->n; i++) {
        const struct tree_change *c = &changes->list[i];
        buf_char(out, ' ');
        patch_quote("", c->path, out);
        buf_printf(out, " | %s", tree_kind_name(c->kind));
        if (c->added || c->removed)
            buf_printf(out, " +%zu -%zu", c->added, c->removed);
        buf_str(out, c->is_protected ? " (protected)" : "");
        buf_str(out, c->omitted ? " (not in the patch)\n" : "\n");
        added += c->added;
        removed += c->removed;
    }
    buf_printf(out, " %zu files changed, %zu lines added, %zu removed\n", changes->n, added,
               removed);
    if (changes->truncated)
        buf_str(out, " the list is not complete\n");
}

/* Whoever reads the patch before an apply is to know that it is not all of it. */
static void diff_tell_rest(const struct tree_changes *changes)
{
    size_t n = 0;
    for (size_t i = 0; i < changes->n; i++)
        n += changes->list[i].omitted;
    if (n > 0)
        fprintf(stderr,
                "Warning: %zu of %zu changes cannot be shown in a patch; --stat lists all\n", n,
                changes->n);
    if (changes->truncated)
        fprintf(stderr, "Warning: the list of changes is not complete\n");
}

static const char *workspace_mode(const struct workspace *ws)
{
    return ws->is_tree ? "tree" : ws->is_copy ? "copy" : "overlay";
}

static void diff_json(const struct workspace *ws, const struct tree_changes *changes,
                      const char *text, struct buf *out)
{
    struct jsonw j = {.out = out};
    jsonw_open(&j, NULL, '{');
    jsonw_str(&j, "workspace_id", ws->id);
    jsonw_str(&j, "base", ws->is_tree ? NULL : ws->base);
    jsonw_str(&j, "mode", workspace_mode(ws));
    result_json_changes(&j, changes);
    jsonw_str(&j, "diff", text);
    jsonw_close(&j, '}');
    buf_char(out, '\n');
}

static bool diff_wants_color(const struct call *c)
{
    const char *when = options_get(&c->options, OPT_COLOR);
    if (when && str_eq(when, "never"))
        return false;
    return (options_has(&c->options, OPT_COLOR) && (!when || str_eq(when, "always"))) ||
           (isatty(STDOUT_FILENO) && !getenv("NO_COLOR"));
}

static int workspace_compared(const struct call *c, bool has_base, struct workspace *ws,
                              struct tree_changes *changes, struct cordon_err *err)
{
    if (workspace_open_named(c, ws, err) < 0)
        return -1;
    if (ws->is_tree && has_base)
        err_set(err, CORDON_ERR_USAGE, "workspace", 0,
                "%s is a task's own tree: there is no folder to apply it to", ws->id);
    else if (workspace_compare(ws, false, changes, err) == 0) {
        protect_mark(changes);
        return 0;
    }
    workspace_close(ws);
    return -1;
}

static int workspace_do_diff(struct call *c, struct cordon_err *err)
{
    struct workspace ws;
    struct tree_changes changes;
    struct buf text;
    if (workspace_compared(c, false, &ws, &changes, err) < 0)
        return -1;
    int r = tree_diff(&changes, DIFF_MAX, &text, err);
    if (r == 0) {
        _cleanup_buf_ struct buf out = BUF_INIT(4 * DIFF_MAX);
        if (options_has(&c->options, OPT_JSON))
            diff_json(&ws, &changes, text.data, &out);
        else if (options_has(&c->options, OPT_STAT))
            diff_stat(&changes, &out);
        else if (diff_wants_color(c) || isatty(STDOUT_FILENO))
            paint_diff(text.data, diff_wants_color(c), &out);
        else
            buf_add(&out, text.data, text.len);
        if (out.len > 0 && cli_print(&out) != 0)
            r = err_set(err, CORDON_ERR_INTERNAL, "print", 0, "the diff could not be printed");
        else if (!options_has(&c->options, OPT_JSON) && !options_has(&c->options, OPT_STAT))
            diff_tell_rest(&changes);
        buf_done(&text);
    }
    tree_changes_done(&changes);
    workspace_close(&ws);
    return r;
}

/* ---- apply and the rest ---- */

static void apply_list(const char *head, const char *const *paths, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        _cleanup_buf_ struct buf line = BUF_INIT(65536);
        const char *why = protect_why(paths[i]);
        patch_quote("", paths[i], &line);
        fprintf(stderr, "%s: %s%s%s\n", head, line.data ? line.data : "",
                str_eq(head, "protected") ? ": " : "",
                !str_eq(head, "protected") ? ""
                : why                      ? why
                                           : "leads out of its folder");
    }
}

static int workspace_do_apply(struct call *c, struct cordon_err *err)
{
    struct workspace ws;
    struct tree_changes changes;
    struct base_notes *notes = NULL;
    struct apply_report report = {0};
    struct apply_options options = {.paths = c->argv + 1,
                                    .n_paths = c->argc > 0 ? (size_t)c->argc - 1 : 0,
                                    .force = options_has(&c->options, OPT_FORCE)};
    if (workspace_compared(c, true, &ws, &changes, err) < 0)
        return -1;
    int r = base_load(&ws, &notes, err);
    if (r == 0)
        r = apply_changes(&ws, &changes, notes, &options, &report, err);
    if (r < 0 && (report.n_conflicts || report.n_refused)) {
        apply_list("conflict", report.conflicts, report.n_conflicts);
        apply_list("protected", report.refused, report.n_refused);
        err_hint(
            err,
            report.n_barred
                ? "a link or a file stands where a folder was: name that as well, or move it away"
                : "name the paths that are meant, or --force");
    }
    struct cordon_err drop;
    if (report.applied > 0)
        (void)(base_save(&ws, notes, r < 0 ? &drop : err) < 0 && r == 0 && (r = -1));
    if (r == 0)
        printf("%zu applied%s\n", report.applied,
               report.skipped ? ", special files were left out" : "");
    apply_report_done(&report);
    base_free(notes);
    tree_changes_done(&changes);
    workspace_close(&ws);
    return r;
}

static int workspace_do_discard(struct call *c, struct cordon_err *err)
{
    struct workspace ws;
    if (workspace_open_named(c, &ws, err) < 0)
        return -1;
    int r = workspace_discard(&ws, err);
    workspace_close(&ws);
    return r;
}

static int workspace_do_rm(struct call *c, struct cordon_err *err)
{
    struct workspace ws;
    char id[WORKSPACE_ID_MAX + 1];
    if (workspace_open_named(c, &ws, err) < 0)
        return -1;
    snprintf(id, sizeof(id), "%s", ws.id);
    int r = workspace_remove(&ws, options_has(&c->options, OPT_FORCE), err);
    workspace_close(&ws);
    if (r == 0)
        workspace_log(c, id, &(struct events_row){.event = "cleanup"});
    return r;
}

static void ls_one(const struct call *c, const char *id, struct jsonw *j, struct buf *out)
{
    struct workspace ws;
    struct cordon_err err;
    bool open = workspace_open(c->root, id, &ws, &err) == 0;
    const char *mode = !open ? "in use" : workspace_mode(&ws);
    if (options_has(&c->options, OPT_JSON)) {
        jsonw_open(j, NULL, '{');
        jsonw_str(j, "workspace_id", id);
        jsonw_str(j, "mode", mode);
        jsonw_str(j, "base", open && !ws.is_tree ? ws.base : NULL);
        jsonw_close(j, '}');
    } else {
        buf_printf(out, "%s\t%s\t", id, mode);
        if (open && !ws.is_tree)
            patch_quote("", ws.base, out);
        buf_char(out, '\n');
    }
    if (open)
        workspace_close(&ws);
}

static int workspace_do_ls(struct call *c, struct cordon_err *err)
{
    char **ids;
    _cleanup_buf_ struct buf out = BUF_INIT(DIFF_MAX);
    struct jsonw j = {.out = &out};
    bool json = options_has(&c->options, OPT_JSON);
    if (workspace_list(c->root, &ids, err) < 0)
        return -1;
    if (json)
        jsonw_open(&j, NULL, '[');
    for (size_t i = 0; ids[i]; i++)
        ls_one(c, ids[i], &j, &out);
    if (json) {
        jsonw_close(&j, ']');
        buf_char(&out, '\n');
    }
    workspace_list_free(ids);
    return out.len > 0 && cli_print(&out) != 0
               ? err_set(err, CORDON_ERR_INTERNAL, "print", 0, "the list could not be printed")
               : 0;
}

static int workspace_do_gc(struct call *c, struct cordon_err *err)
{
    struct host_cgroups groups;
    (void)err;
    unsigned removed = workspace_gc(c->root) + apply_gc(c->root);
    printf("%u removed\n", removed);
    host_cgroups_find(&groups);
    reach_note_gc();
    int n = cgroup_gc_everywhere(&groups);
    if (n > 0)
        printf("%d control group%s of a killed Cordon removed\n", n, n == 1 ? "" : "s");
    return 0;
}

static int workspace_unknown(const char *word, struct cordon_err *err)
{
    err_set(err, CORDON_ERR_USAGE, "usage", 0,
            *word ? "workspace: unknown sub-command: %.200s" : "workspace: which sub-command?%s",
            word);
    policy_err_clean(err);
    return err_hint(err, "cordon workspace %s", cli_verb_workspace.usage);
}

static int workspace_call(struct call *c, const char *word, int *ret_status, struct cordon_err *err)
{
    static const struct {
        const char *word;
        int (*run)(struct call *c, struct cordon_err *err);
        int most; /* words after it */
    } rows[] = {
        {"new", workspace_do_new, 0},
        {"diff", workspace_do_diff, 1},
        {"apply", workspace_do_apply, INT_MAX},
        {"discard", workspace_do_discard, 1},
        {"rm", workspace_do_rm, 1},
        {"ls", workspace_do_ls, 0},
        {"gc", workspace_do_gc, 0},
    };
    if (str_eq(word, "run"))
        return workspace_do_run(c, ret_status, err);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        if (!str_eq(word, rows[i].word))
            continue;
        if (c->argc <= rows[i].most)
            return rows[i].run(c, err);
        err_set(err, CORDON_ERR_USAGE, "usage", 0, "workspace %s: '%.200s' is one word too many",
                word, c->argv[rows[i].most]);
        policy_err_clean(err);
        return err_hint(err, rows[i].most == 0 ? "it takes options only: --from, --id, --json"
                                               : "it takes one id; paths go with apply");
    }
    return workspace_unknown(word, err);
}

static bool workspace_takes_next(const char *word)
{
    for (size_t i = 0; i < ARRAY_SIZE(workspace_options); i++)
        if (workspace_options[i].name && str_eq(word + 2, workspace_options[i].name))
            return workspace_options[i].arg == OPTIONS_REQUIRED;
    return false;
}

/* People write the id before the options: `diff ID --stat`. Options first, then the words. */
static char **workspace_reorder(int argc, char **argv, int *ret_argc)
{
    char **list = calloc((size_t)argc + 2, sizeof(*list));
    int n = 0, end = argc;
    if (!list)
        return NULL;
    list[n++] = argv[0];
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1)
            list[n++] = "--";
        for (int i = 1; i < argc; i++) {
            bool plain = i >= end || argv[i][0] != '-' || !argv[i][1];
            if (!plain && str_eq(argv[i], "--")) {
                end = i;
                continue;
            }
            bool takes_next = !plain && workspace_takes_next(argv[i]);
            if (takes_next && i + 1 == argc) { /* alone, so that nothing is taken for its value */
                list[1] = argv[i];
                *ret_argc = 2;
                return list;
            }
            if (plain == (pass == 1))
                list[n++] = argv[i];
            if (takes_next && ++i && pass == 0)
                list[n++] = argv[i];
        }
    }
    *ret_argc = n;
    return list;
}

/* The options of a run are the run's: for it the line is split no further than the id. */
static int workspace_split(struct call *c, const struct options *outer, bool *ret_help,
                           struct cordon_err *err)
{
    bool is_run = str_eq(outer->argv[0], "run");
    int n = 0;
    if (!is_run && !(c->line = workspace_reorder(outer->argc, outer->argv, &n)))
        return err_nomem(err, "options");
    if (!is_run && cli_parse(&cli_verb_workspace, n, c->line, &c->options, ret_help, err) < 0)
        return -1;
    c->argc = is_run ? outer->argc - 1 : c->options.argc;
    c->argv = is_run ? outer->argv + 1 : c->options.argv;
    const char *root = options_get(&c->options, OPT_ROOT),
               *logs = options_get(&c->options, OPT_LOGS);
    root = root ? root : options_get(outer, OPT_ROOT);
    logs = logs ? logs : options_get(outer, OPT_LOGS);
    c->root = root ? root : WORKSPACE_ROOT;
    c->logs = logs ? logs : EVENTS_DIR;
    return 0;
}

static int workspace_run(int argc, char **argv)
{
    struct cordon_err err = {0};
    struct options outer;
    struct call call = {0};
    bool help = false;
    int status = 0, r;

    if (cli_parse(&cli_verb_workspace, argc, argv, &outer, &help, &err) < 0)
        return cli_fail(&err);
    if (help)
        r = 0;
    else if (outer.argc == 0)
        r = workspace_unknown("", &err);
    else if ((r = workspace_split(&call, &outer, &help, &err)) == 0 && !help)
        r = workspace_call(&call, outer.argv[0], &status, &err);
    options_done(&call.options);
    free(call.line);
    options_done(&outer);
    policy_err_clean(&err);
    if (r < 0)
        return cli_fail(&err);
    return help ? cli_help_verb(&cli_verb_workspace) : status;
}

const struct cli_verb cli_verb_workspace = {
    .name = "workspace",
    .usage = "new | run ID [options] -- CMD | diff ID | apply ID [PATH...] | discard ID | rm ID | "
             "ls | gc",
    .summary = "let guests change a folder while the host's stays as it is",
    .own = workspace_options,
    .n_own = ARRAY_SIZE(workspace_options),
    .words = workspace_words,
    .details =
        "new --from DIR makes a workspace over DIR and prints its id; run takes the options of\n"
        "`cordon run`; diff is against DIR as it is now, apply writes into DIR, discard forgets\n"
        "the changes. Without DIR the tree is the task's own: diff is all it holds. An apply\n"
        "with paths in conflict, or with protected paths that were not named, changes nothing:\n"
        "exit 77. Options of this verb stand before `run`. gc removes what killed runs left.\n",
    .run = workspace_run,
};
