/* Task workspaces: options, names, making and removing. Runs in the calling program. */
#include "lib/task.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/util.h"
#include "workspace/events.h"
#include "workspace/workspace.h"

/* ---- Copies of what the caller gave ---- */

/* Fields beyond what the caller knew of are empty. */
static struct cordon_task_options task_options(const struct cordon_task_options *given)
{
    struct cordon_task_options o = {0};
    if (given)
        memcpy(&o, given, MIN(given->size, sizeof(o)));
    return o;
}

static char *task_absolute(const char *path)
{
    char *text = NULL;
    if (path[0] == '/')
        return strdup(path);
    _cleanup_free_ char *cwd = getcwd(NULL, 0);
    return cwd && asprintf(&text, "%s/%s", cwd, path) >= 0 ? text : NULL;
}

static int task_copy_text(char **ret, const char *value, const char *fallback)
{
    const char *text = value ? value : fallback;
    *ret = text ? strdup(text) : NULL;
    return text && !*ret ? -1 : 0;
}

static int task_copy_settings(struct cordon_task *t, const char *const *list)
{
    size_t n = 0;
    while (list && list[n])
        n++;
    if (n % 2) {
        errno = EINVAL;
        return -1;
    }
    t->settings = calloc(n + 1, sizeof(*t->settings));
    for (size_t i = 0; t->settings && i < n; i++)
        if (!(t->settings[i] = strdup(list[i])))
            return -1;
    return t->settings ? 0 : -1;
}

/* ---- Allowed binaries ---- */

/* Names mean files of this host only where the guest's /usr is this host's. */
static bool task_sees_host(const struct cordon_task *t)
{
    for (char **s = t->settings; s && *s; s += 2)
        if (str_eq(s[0], "rootfs") || str_eq(s[0], "image") || str_eq(s[0], "backend"))
            return false;
    return str_eq(t->backend, "native");
}

static int task_look_up(struct task_binary *b)
{
    static const char *const folders[] = {"/usr/local/bin", "/usr/bin", "/bin"};
    for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
        struct stat st;
        _cleanup_free_ char *path = NULL;
        if (asprintf(&path, "%s/%s", folders[i], b->name) < 0) {
            path = NULL;
            return -1;
        }
        if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 0111)) {
            b->path = TAKE_PTR(path);
            return 0;
        }
    }
    return 0;
}

static int task_copy_binaries(struct cordon_task *t, const char *const *list)
{
    static const char *const usual[] = {"ast-grep", "sg",  "python3", "python", "pytest",
                                        "bash",     "sh",  "git",     "node",   "npm",
                                        "make",     "gcc", "go",      "cargo",  NULL};
    size_t n = 0;
    list = list ? list : usual;
    while (list[n])
        n++;
    t->binaries = calloc(n + 1, sizeof(*t->binaries));
    bool look = task_sees_host(t);
    for (size_t i = 0; t->binaries && i < n; i++) {
        struct task_binary *b = &t->binaries[t->n_binaries];
        if (!(b->name = strdup(list[i])))
            return -1;
        t->n_binaries++;
        if (look && *b->name && !strchr(b->name, '/') && task_look_up(b) < 0)
            return -1;
    }
    return t->binaries ? 0 : -1;
}

const char *task_binary(const struct cordon_task *t, const char *name)
{
    for (size_t i = 0; i < t->n_binaries; i++)
        if (str_eq(t->binaries[i].name, name))
            return t->binaries[i].path ? t->binaries[i].path : name;
    return NULL;
}

/* ---- The task ---- */

static int task_fill_in(struct cordon_task *t, const struct cordon_task_options *o)
{
    if (!(t->root = task_absolute(o->work_root ? o->work_root : WORKSPACE_ROOT)) ||
        !(t->logs = task_absolute(o->logs_dir ? o->logs_dir : EVENTS_DIR)))
        return -1;
    if (asprintf(&t->path, "%s/%s", t->root, t->id) < 0) {
        t->path = NULL;
        return -1;
    }
    if (task_copy_text(&t->time_limit, o->time_limit, "30s") < 0 ||
        task_copy_text(&t->cpu_time, o->cpu_time, "30s") < 0 ||
        task_copy_text(&t->memory_limit, o->memory_limit, "512M") < 0 ||
        task_copy_text(&t->backend, o->backend, "native") < 0)
        return -1;
    return task_copy_settings(t, o->settings) < 0 ? -1 : task_copy_binaries(t, o->allowed_binaries);
}

static int task_new(const struct cordon_task_options *given, const char *id,
                    struct cordon_task **ret, struct cordon_err *err)
{
    struct cordon_task_options o = task_options(given);
    if (!id || !workspace_is_id(id))
        return err_set(err, CORDON_ERR_USAGE, "task", 0,
                       "not an id: letters, digits, '.', '_' and '-', at most %d, the first "
                       "neither '.' nor '-'",
                       WORKSPACE_ID_MAX);
    struct cordon_task *t = calloc(1, sizeof(*t));
    if (!t)
        return err_nomem(err, "task");
    memcpy(t->id, id, strlen(id) + 1);
    errno = ENOMEM;
    if (task_fill_in(t, &o) < 0) {
        err_set(err, errno == EINVAL ? CORDON_ERR_USAGE : CORDON_ERR_INTERNAL, "task", errno,
                "options of task %s", id);
        cordon_task_free(t);
        return -1;
    }
    *ret = t;
    return 0;
}

void cordon_task_free(struct cordon_task *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n_binaries; i++) {
        free(t->binaries[i].name);
        free(t->binaries[i].path);
    }
    free(t->binaries);
    for (char **s = t->settings; s && *s; s++)
        free(*s);
    free(t->settings);
    free(t->time_limit);
    free(t->cpu_time);
    free(t->memory_limit);
    free(t->backend);
    free(t->root);
    free(t->path);
    free(t->logs);
    free(t);
}

static int task_log_prepare(const struct cordon_task *t, const struct task_file *files, size_t n,
                            struct cordon_err *err)
{
    _cleanup_free_ const char **names = calloc(n + 1, sizeof(*names));
    if (!names)
        return err_nomem(err, "task");
    for (size_t i = 0; i < n; i++)
        names[i] = files[i].name;
    struct events_row row = {.event = "prepare", .paths = names, .n_paths = n};
    return events_append(t->logs, t->id, &row, err);
}

int cordon_task_prepare(const struct cordon_task_options *options, const char *task_id,
                        const struct cordon_task_file *files, size_t n_files,
                        struct cordon_task **ret_task, struct cordon_err *err)
{
    struct cordon_task *t = NULL;
    if (task_new(options, task_id, &t, err) < 0)
        return -1;
    _cleanup_free_ struct task_file *own = calloc(n_files + 1, sizeof(*own));
    int r = own ? 0 : err_nomem(err, "task");
    for (size_t i = 0; r == 0 && i < n_files; i++) {
        if (!files[i].data && files[i].len > 0)
            r = err_set(err, CORDON_ERR_USAGE, "task", 0, "a file without contents");
        else
            own[i] = (struct task_file){files[i].name, files[i].data, files[i].len,
                                        files[i].executable != 0};
    }
    if (r == 0)
        r = task_make(t->root, t->id, own, n_files, err);
    if (r == 0 && (r = task_log_prepare(t, own, n_files, err)) < 0) {
        struct cordon_err drop;
        task_remove(t->root, t->id, &drop);
    }
    if (r < 0)
        cordon_task_free(t);
    else
        *ret_task = t;
    return r;
}

int cordon_task_open(const struct cordon_task_options *options, const char *task_id,
                     struct cordon_task **ret_task, struct cordon_err *err)
{
    return task_new(options, task_id, ret_task, err);
}

const char *cordon_task_path(const struct cordon_task *t)
{
    return t->path;
}

int cordon_task_cleanup(const struct cordon_task *t, struct cordon_err *err)
{
    struct events_row row = {.event = "cleanup"};
    if (task_remove(t->root, t->id, err) < 0)
        return -1;
    return events_append(t->logs, t->id, &row, err);
}
