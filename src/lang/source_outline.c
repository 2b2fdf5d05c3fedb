/* What a source run will be, before any guest exists: language, place, policy. Runs in the command
 * and the supervisor, and in `explain`, which goes no further. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/util.h"
#include "lang/derive.h"
#include "lang/guard.h"
#include "lang/load.h"
#include "lang/name.h"
#include "lang/source_internal.h"

int source_load(struct lang_job *job, const char **ret_text, size_t *ret_len,
                struct cordon_err *err)
{
    const struct lang_source *s = job->source;
    if (s->path) {
        struct plan_file *f = &job->files[0];
        if (!job->loaded) {
            if (lang_load_file(s->path, LANG_SOURCE_MAX, (char **)&job->loaded, &f->data_len, err) <
                0)
                return -1;
            f->data = job->loaded;
            f->source = NULL;
        }
        *ret_text = f->data;
        *ret_len = f->data_len;
        return 0;
    }
    *ret_text = s->text;
    *ret_len = s->len;
    return 0;
}

/* Where it lies in the workspace, NULL: not there. */
static const char *source_in_workspace(const struct lang_job *job, const char *workspace,
                                       char real[static PATH_MAX])
{
    size_t len = strlen(workspace);
    const char *path = job->source->path;
    if (!path || !realpath(path, real) || strncmp(real, workspace, len) != 0 || real[len] != '/')
        return NULL;
    return real + len + 1;
}

/* Some programs read a word with @ before it as a file of options. */
static const char *source_word(struct lang_job *job, const char *prefix, const char *name)
{
    const char *dot = !*prefix && (name[0] == '-' || name[0] == '@') ? "./" : "";
    return arena_printf(&job->arena, "%s%s%s", prefix, dot, name);
}

static int source_put(struct lang_job *job, const char *name, struct cordon_err *err)
{
    const struct lang_source *s = job->source;
    struct plan_file *f = &job->files[job->n_files++];
    job->inside = source_word(job, job->prefix, name);
    *f = (struct plan_file){.name = arena_printf(&job->arena, "%s%s", job->prefix, name),
                            .source = job->loaded ? NULL : s->path,
                            .data = job->loaded ? f->data : s->text,
                            .data_len = job->loaded ? f->data_len : s->len};
    if (!job->inside || !f->name)
        return err_nomem(err, "source");
    const struct policy_value *files = policy_value(job->from, FIELD_FILES);
    for (size_t i = 0; i < files->n_items && !*job->prefix; i++)
        if (str_eq(files->items[i].text, name))
            return err_set(err, CORDON_ERR_USAGE, "source", 0,
                           "%.200s: the source and a file put beside it have the same name", name);
    return 0;
}

static const char *base_name(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path;
}

/* A file that lies in the workspace is run where it is, if the language takes its name; others are
 * copied in beside it. */
static int source_place(struct lang_job *job, struct cordon_err *err)
{
    const struct lang_source *s = job->source;
    const struct policy_value *ws = policy_value(job->from, FIELD_WORKSPACE);
    bool has_ws = ws->set && ws->num != WORKSPACE_NONE;
    char real[PATH_MAX];
    const char *there = has_ws ? source_in_workspace(job, ws->text, real) : NULL;
    const char *name = there ? base_name(there) : base_name(s->name ? s->name : s->path);
    job->prefix = has_ws ? ".." PLAN_HOME "/" : "";
    if (!name)
        name = job->lang->file ? job->lang->file : "main";
    if (!*name || str_eq(name, ".") || str_eq(name, "..") || strlen(name) > NAME_MAX)
        return err_set(err, CORDON_ERR_USAGE, "source", 0, "'%.100s' is not a name for a file",
                       name);
    const char *inside = lang_name_inside(job->lang, name, &job->arena);
    if (!inside)
        return err_nomem(err, "source");
    if (!there || inside != name)
        return source_put(job, inside, err);
    job->inside = source_word(job, "", there);
    return job->inside ? 0 : err_nomem(err, "source");
}

static int source_output(struct lang_job *job, struct cordon_err *err)
{
    const char *slash = strrchr(job->inside, '/');
    char *stem = arena_strdup(&job->arena, slash ? slash + 1 : job->inside);
    if (!stem)
        return err_nomem(err, "source");
    char *dot = strrchr(stem, '.');
    bool cut = dot && dot != stem;
    if (cut)
        *dot = '\0';
    /* node would take a.json for data, and a.mjs for what tsc does not make */
    bool plain = cut && (str_eq(job->lang->run[0], "{output}") || !strchr(stem, '.'));
    job->output = arena_printf(&job->arena, "%s%s%s", *job->prefix ? job->prefix : "./", stem,
                               plain ? "" : ".out");
    return job->output ? 0 : err_nomem(err, "source");
}

static int source_find(struct lang_job *job, struct cordon_err *err)
{
    const struct lang_source *s = job->source;
    char head[256];
    const char *text = s->text;
    size_t len = s->len;
    if (lang_registry_make(job->from, &job->registry, err) < 0)
        return -1;
    if (s->path && lang_load_head(s->path, head, sizeof(head), &len, err) < 0)
        return -1;
    if (s->path)
        text = head;
    if (s->path && len == SIZE_MAX) {
        /* a pipe can be read once only */
        if (lang_load_file(s->path, LANG_SOURCE_MAX, (char **)&job->loaded, &len, err) < 0)
            return -1;
        job->files[0].data = text = job->loaded;
        job->files[0].data_len = len;
    }
    if (s->language)
        return lang_registry_by_name(&job->registry, s->language, &job->lang, err);
    const char *name = s->name ? s->name : s->path;
    if (!name)
        return err_set(err, CORDON_ERR_USAGE, "source", 0, "source text needs --language");
    return lang_registry_by_file(&job->registry, name, text, len, &job->lang, err);
}

bool source_is_hosts(const struct policy *p)
{
    return policy_num(p, FIELD_BACKEND) == BACKEND_NATIVE && !policy_has(p, FIELD_ROOTFS) &&
           !policy_has(p, FIELD_IMAGE);
}

static int source_policy(struct lang_job *job, const char *const *guard, struct cordon_err *err)
{
    const struct policy *p = job->from;
    const char *venv = policy_has(p, FIELD_VENV) && str_eq(job->lang->name, "python")
                           ? policy_text(p, FIELD_VENV)
                           : NULL;
    int r = 0;
    if (venv)
        r = lang_tool_venv(p, job->source->vars, &job->arena, &job->tools, err);
    else if (source_is_hosts(p))
        r = lang_tool_all(job->lang, job->source->vars, &job->arena, &job->tools, err);
    if (r < 0)
        return -1;
    return lang_derive_run(p, job->lang, &job->tools, venv, guard, &job->arena, &job->policy, err);
}

static int source_guard(struct lang_job *job, const char *const **ret, struct cordon_err *err)
{
    *ret = NULL;
    if (!str_eq(job->lang->name, "python") || !lang_guard_wanted(job->from))
        return 0;
    const char *dir = *job->prefix ? PLAN_HOME "/" LANG_GUARD_DIR : LANG_GUARD_DIR;
    struct plan_file *f = &job->files[job->n_files];
    *f = (struct plan_file){.name = arena_printf(&job->arena, "%s" LANG_GUARD_FILE, job->prefix),
                            .data = lang_guard_text,
                            .data_len = strlen(lang_guard_text)};
    if (!f->name)
        return err_nomem(err, "source");
    job->n_files++;
    return lang_guard_vars(job->from, dir, &job->arena, ret, err);
}

/* Everything that can be said before the first guest. */
int source_outline(struct lang_job *job, const char *const **ret_guard, struct cordon_err *err)
{
    if (source_find(job, err) < 0 || lang_derive_binaries(job->from, job->lang, err) < 0 ||
        source_place(job, err) < 0 || source_guard(job, ret_guard, err) < 0 ||
        source_policy(job, *ret_guard, err) < 0)
        return -1;
    job->compiles = job->lang->compile != NULL;
    return job->compiles ? source_output(job, err) : 0;
}
