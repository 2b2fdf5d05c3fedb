/* The overlay workspace of a run: made before the plan, compared when the guest is gone, let go
 * with the job. Runs in the supervisor. */
#include "run/files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/util.h"
#include "run/reach_note.h"
#include "workspace/base.h"
#include "workspace/owners.h"
#include "workspace/protect.h"
#include "workspace/scan.h"
#include "workspace/tar.h"

#define FILES_DIFF_MAX ((size_t)64 << 20)
#define FILES_FEW 1000 /* entries of a layer that is removed at once */

/* An engine mounts folders of the host and no overlays: its guests work on a copy. */
static bool files_in_container(const struct run_job *job)
{
    return policy_num(job->policy, FIELD_BACKEND) == BACKEND_DOCKER;
}

static bool files_wanted(const struct run_job *job)
{
    const struct policy_value *v = policy_value(job->policy, FIELD_WORKSPACE);
    return v->set && v->num == WORKSPACE_OVERLAY && (job->host.user_ns || files_in_container(job));
}

/* Folders of the host the guest may write to. */
static int files_watch(struct run_job *job, struct cordon_err *err)
{
    struct run_files *f = &job->files_changed;
    const struct policy_value *v = policy_value(job->policy, FIELD_WORKSPACE);
    if (f->watch)
        return 0;
    if (v->set && v->num == WORKSPACE_RW && protect_watch_add(&f->watch, v->text, true, err) < 0)
        return -1;
    v = policy_value(job->policy, FIELD_ALLOW_WRITE);
    for (size_t i = 0; i < v->n_items; i++)
        /* "/tmp" in a grant is the guest's own */
        if (!str_eq(v->items[i].text, "/tmp") &&
            protect_watch_add(&f->watch, v->items[i].text, false, err) < 0)
            return -1;
    v = policy_value(job->policy, FIELD_MOUNTS);
    for (size_t i = 0; i < v->n_items; i++)
        if (v->items[i].num && protect_watch_add(&f->watch, v->items[i].text, false, err) < 0)
            return -1;
    return 0;
}

/* The descriptor of an output GLOB=fd:N, or -1. */
static int files_output_fd(const char *text)
{
    const char *to = strrchr(text, '=') + 1;
    return str_starts(to, "fd:") ? (int)strtol(to + strlen("fd:"), NULL, 10) : -1;
}

/* Numbers mean something only where they are the caller's own. */
static int files_check_descriptor(const struct run_job *job, int fd, const char *text,
                                  struct cordon_err *err)
{
    if (!job->has_descriptors)
        return err_set(err, CORDON_ERR_CONFIG, "output", 0,
                       "output %s: descriptors are for the command line", text);
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
        return err_set(err, CORDON_ERR_USAGE, "output", 0,
                       "output %s: not a descriptor open for writing", text);
    return 0;
}

static void files_close_outputs(struct run_files *f)
{
    for (size_t i = 0; i < f->n_targets; i++)
        collect_target_close(&f->targets[i]);
    free(TAKE_PTR(f->targets));
    f->n_targets = 0;
}

/* Before the guest exists: it may be able to write to where a folder is, and would put a link in
 * its place that leads anywhere we may write. */
static int files_open_outputs(struct run_job *job, struct cordon_err *err)
{
    struct run_files *f = &job->files_changed;
    const struct policy_value *v = policy_value(job->policy, FIELD_OUTPUT);
    if (v->n_items == 0 || f->targets)
        return 0;
    f->targets = malloc(v->n_items * sizeof(*f->targets));
    if (!f->targets)
        return err_nomem(err, "output");
    for (size_t i = 0; i < v->n_items; i++, f->n_targets++) {
        const char *text = v->items[i].text;
        struct collect_target *t = &f->targets[i];
        int fd = files_output_fd(text);
        *t = COLLECT_TARGET_NONE;
        if (fd >= 0 ? files_check_descriptor(job, fd, text, err) < 0
                    : collect_target_open(t, strrchr(text, '=') + 1, err) < 0) {
            files_close_outputs(f); /* who tries again looks at all of them again */
            return policy_err_place(&v->items[i].origin, err);
        }
    }
    return 0;
}

/* A layer or a copy can cost a walk over the whole tree; a host without user namespaces could not
 * use either, and is asked first. */
static void files_ask_host(struct run_job *job)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(unshare(CLONE_NEWUSER) < 0 ? errno : 0);
    int status = 0;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (pid < 0 || !WIFEXITED(status) || WEXITSTATUS(status) == 0)
        return;
    job->host.user_ns = false;
    snprintf(job->host.user_ns_why, sizeof(job->host.user_ns_why), "unshare: %s",
             strerror(WEXITSTATUS(status)));
}

/* The backend opens them by its plan, which no longer knows who named them. */
static int files_look_at_sources(const struct run_job *job, struct cordon_err *err)
{
    const struct policy_value *v = policy_value(job->policy, FIELD_FILES);
    for (size_t i = 0; i < v->n_items; i++) {
        const struct policy_item *item = &v->items[i];
        struct stat st;
        if (!item->extra)
            continue;
        if (faccessat(AT_FDCWD, item->extra, R_OK, AT_EACCESS) < 0 || stat(item->extra, &st) < 0)
            err_set(err, CORDON_ERR_CONFIG, "files", errno, "file %s: %s", item->text, item->extra);
        else if (!S_ISREG(st.st_mode))
            err_set(err, CORDON_ERR_CONFIG, "files", 0, "file %s: %s is not a regular file",
                    item->text, item->extra);
        else
            continue;
        return policy_err_place(&item->origin, err);
    }
    return 0;
}

int files_begin(struct run_job *job, struct cordon_err *err)
{
    struct run_files *f = &job->files_changed;
    if (files_look_at_sources(job, err) < 0 || files_open_outputs(job, err) < 0 ||
        files_watch(job, err) < 0 || (!f->note && reach_note_begin(job->policy, &f->note, err) < 0))
        return -1;
    if (f->workspace && (f->workspace->wants_copy || f->workspace->wants_look))
        return files_copy_begin(job, err);
    if (!files_wanted(job) || f->workspace)
        return 0;
    if (!files_in_container(job)) {
        files_ask_host(job);
        if (!job->host.user_ns)
            return 0; /* the plan refuses, and says what is missing */
    }
    const char *base = policy_text(job->policy, FIELD_WORKSPACE);
    if (job->workspace) {
        f->workspace = job->workspace;
    } else {
        _cleanup_buf_ struct buf root = BUF_INIT(8192);
        buf_printf(&root, "%s%s" WORKSPACE_ROOT, job->cwd ? job->cwd : "", job->cwd ? "/" : "");
        if (root.failed)
            return err_nomem(err, "workspace");
        int r = policy_bool(job->policy, FIELD_KEEP)
                    ? workspace_new(root.data, NULL, base, &job->own_workspace, err)
                    : workspace_temp(base, &job->own_workspace, err);
        if (r < 0)
            return policy_err_place(&policy_value(job->policy, FIELD_WORKSPACE)->origin, err);
        f->workspace = &job->own_workspace;
    }
    int r = workspace_prepare(f->workspace, err);
    if (r == 0 && files_in_container(job) && !f->workspace->is_copy)
        r = workspace_fall_back(f->workspace, err);
    if (r == 0 && (f->workspace->wants_copy || f->workspace->wants_look))
        r = files_copy_begin(job, err);
    if (r < 0)
        files_done(job);
    return r;
}

/* What a guest with direct access did to protected paths is told, as it cannot be undone. */
static int files_watch_end(struct run_job *job, struct cordon_err *err)
{
    struct run_files *f = &job->files_changed;
    if (!f->watch)
        return 0;
    if (!f->compared)
        f->changes = TREE_CHANGES_INIT;
    f->compared = true;
    if (protect_watch_compare(f->watch, &f->changes, err) < 0)
        return -1;
    job->result.changes = &f->changes;
    return 0;
}

bool files_fall_back(struct run_job *job, struct cordon_err *err)
{
    struct run_files *f = &job->files_changed;
    return f->workspace && !f->workspace->is_copy && str_eq(err->stage, "overlay") &&
           workspace_fall_back(f->workspace, err) == 0;
}

/* A later apply must know whether the host's files are still those the guest saw. */
static int files_note_base(struct run_files *f, struct cordon_err *err)
{
    struct base_notes *notes;
    if (!f->workspace->is_kept)
        return 0;
    if (base_load(f->workspace, &notes, err) < 0)
        return -1;
    int r = base_note(f->workspace, notes, &f->changes, err);
    if (r == 0)
        r = base_save(f->workspace, notes, err);
    base_free(notes);
    return r;
}

/* One archive for a descriptor, however many patterns go there. */
static int files_end_archives(const struct policy_value *v, struct cordon_err *err)
{
    for (size_t i = 0; i < v->n_items; i++) {
        int fd = files_output_fd(v->items[i].text);
        bool again = false;
        for (size_t k = i + 1; k < v->n_items; k++)
            again |= files_output_fd(v->items[k].text) == fd;
        if (fd >= 0 && !again && tar_end(fd) < 0)
            return err_set(err, CORDON_ERR_INTERNAL, "output", errno, "fd:%d", fd);
    }
    return 0;
}

/* GLOB=DIR, split where the policy joined them. */
static int files_collect(struct run_job *job, struct cordon_err *err)
{
    struct run_files *f = &job->files_changed;
    const struct policy_value *v = policy_value(job->policy, FIELD_OUTPUT);
    _cleanup_close_ int from = TAKE_FD(job->supervised.outcome.cwd_fd);
    for (size_t i = 0; from >= 0 && i < v->n_items; i++) {
        const char *text = v->items[i].text, *equals = strrchr(text, '=');
        _cleanup_free_ char *pattern = strndup(text, (size_t)(equals - text));
        if (!pattern)
            return err_nomem(err, "output");
        int fd = files_output_fd(v->items[i].text);
        if (fd >= 0 ? collect_tar(&f->outputs, from, pattern, fd, err) < 0
                    : collect_pattern(&f->outputs, from, pattern, &f->targets[i], err) < 0)
            return -1;
    }
    if (from >= 0 && files_end_archives(v, err) < 0)
        return -1;
    if (v->n_items > 0)
        job->result.outputs = &f->outputs;
    return 0;
}

/* How the layer was made, and what it could not do. */
static const char *files_mode(struct run_files *f, const struct result *r)
{
    const struct workspace *ws = f->workspace;
    struct scan_missed missed;
    if (ws->is_copy)
        return "copy";
    _cleanup_close_ int upper = ws->owners_unknown ? workspace_open_layer(ws) : -1;
    if (upper < 0)
        return "overlay";
    scan_missed(upper, ws->base_fd, &missed);
    /* a guest that ended well did without; to others it may be what they failed at */
    if (missed.n == 0 && geteuid() == 0 && r->verdict != VERDICT_OK)
        scan_closed(ws->base_fd, &missed);
    /* the next run looks at everything again */
    if (missed.n > 0 || (missed.is_partly && r->verdict != VERDICT_OK))
        owners_forget(ws->base_fd);
    if (missed.n > 0)
        snprintf(f->mode, sizeof(f->mode),
                 "overlay; %s%zu files of other owners could not be changed: %s",
                 missed.is_partly ? "at least " : "", missed.n, missed.first);
    else
        snprintf(f->mode, sizeof(f->mode), "overlay%s",
                 missed.is_partly ? "; not every owner was looked at" : "");
    return f->mode;
}

void files_end(struct run_job *job)
{
    struct run_files *f = &job->files_changed;
    protect_watch_look(f->watch);
    reach_note_end(TAKE_PTR(f->note));
    struct result *r = &job->result;
    struct cordon_err err = {0};
    if (files_collect(job, &err) < 0 || (!f->workspace && files_watch_end(job, &err) < 0)) {
        result_from_error(r, &err);
        job->supervised.err = err;
        return;
    }
    if (!f->workspace || r->verdict == VERDICT_SANDBOX_ERROR || r->verdict == VERDICT_REJECTED)
        return;
    r->workspace_mode = files_mode(f, r);
    if (f->workspace->is_kept)
        r->workspace_id = f->workspace->id;
    if (workspace_compare(f->workspace, true, &f->changes, &err) == 0) {
        f->compared = true;
        protect_mark(&f->changes);
        if (files_note_base(f, &err) == 0 &&
            tree_diff(&f->changes, FILES_DIFF_MAX, &f->diff, &err) == 0) {
            r->changes = &f->changes;
            r->diff = f->diff.data;
            if (files_watch_end(job, &err) == 0)
                return;
        }
    }
    result_from_error(r, &err);
    job->supervised.err = err;
}

/* Is it more than a moment's work to remove what the guest left? */
static bool files_is_much(const struct run_files *f)
{
    return f->workspace->is_copy || !f->compared || f->changes.truncated ||
           f->changes.looked > FILES_FEW;
}

void files_done(struct run_job *job)
{
    struct run_files *f = &job->files_changed;
    files_copy_stop(job);
    bool beside = f->workspace && job->is_handle && files_is_much(f);
    if (f->compared)
        tree_changes_done(&f->changes);
    buf_done(&f->diff);
    collect_done(&f->outputs);
    files_close_outputs(f);
    protect_watch_free(f->watch);
    reach_note_end(f->note);
    if (job->supervised.finished && job->plan)
        util_close(&job->supervised.outcome.cwd_fd);
    /* a workspace that was to be kept but never ran is nothing anybody could name */
    struct cordon_err drop;
    if (f->workspace == &job->own_workspace) {
        if (f->workspace->is_kept && !job->result.workspace_id)
            workspace_remove(f->workspace, false, &drop);
        if (beside)
            workspace_close_beside(f->workspace);
        else
            workspace_close(f->workspace);
    }
    *f = (struct run_files){0};
}
