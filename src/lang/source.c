/* The steps of a source run. Runs in the command and the supervisor, on their loop. */
#include "lang/source.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/util.h"
#include "lang/cache.h"
#include "lang/derive.h"
#include "lang/guard.h"
#include "lang/source_internal.h"

/* The compiler's own output goes where diagnostics go, its artefact leaves on the pipe. The words
 * before -- are programs it takes: that one is missing is for the script alone to say, before
 * anything has seen the source, so that no source can say it and none is blamed for it. */
#define COMPILE_MISSING 127
static const char compile_script[] =
    "output=$1; shift\n"
    "while [ \"$1\" != -- ]; do\n"
    "  command -v \"$1\" >/dev/null || { echo \"$1\"; exit 127; }\n"
    "  shift\n"
    "done\n"
    "shift; \"$@\" >&2 || { s=$?; [ $s != 127 ] || s=1; exit $s; }\n"
    "exec cat <\"$output\"";

/* ---- the result of a step
 * ----------------------------------------------------------------------*/

/* The first guest's end is the end of it all: the run takes over what the step holds. */
static void source_adopt(struct lang_job *job)
{
    struct run_job *run = job->run, *step = &job->step;
    run->supervised = step->supervised;
    run->plan = TAKE_PTR(step->plan);
    run->host = step->host;
    run->result = step->result;
    run->result.plan = run->plan;
    if (run->result.outcome)
        run->result.outcome = &run->supervised.outcome;
    run->running = false;
}

static void source_fail(struct lang_job *job, const struct cordon_err *err)
{
    struct run_job *run = job->run;
    run->supervised.err = *err;
    run->result = (struct result){.stage = run->stage};
    result_from_error(&run->result, err);
    run->on_done(run);
}

/* The limits of the step carry names of their own. */
static void source_name_limit(struct result *r)
{
    static const enum field_id names[][2] = {{FIELD_TIME_LIMIT, FIELD_COMPILE_TIME_LIMIT},
                                             {FIELD_MEMORY_LIMIT, FIELD_COMPILE_MEMORY_LIMIT}};
    for (size_t i = 0; r->limit_name && i < ARRAY_SIZE(names); i++)
        if (str_eq(r->limit_name, policy_fields[names[i][0]].key)) {
            r->limit_name = policy_fields[names[i][1]].key;
            break;
        }
}

static int source_run(struct lang_job *job, struct cordon_err *err);

static int source_artifact(struct lang_job *job, const char *data, size_t len,
                           struct cordon_err *err)
{
    _cleanup_close_ int fd = memfd_create("cordon-artifact", MFD_CLOEXEC);
    if (fd < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "compile", errno, "memory for the artefact");
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_set(err, CORDON_ERR_INTERNAL, "compile", errno, "memory for the artefact");
        data += n;
        len -= (size_t)n;
    }
    job->artifact_fd = TAKE_FD(fd);
    return 0;
}

static void source_compile_failed(struct lang_job *job)
{
    struct run_job *run = job->run;
    struct result *r = &run->result;
    bool too_large = job->step.result.out[0].truncated;
    source_adopt(job);
    /* half an artefact is nobody's output */
    buf_done(&run->supervised.out[0].kept);
    r->out[0] = (struct result_stream){0};
    if (r->verdict == VERDICT_OK) {
        r->verdict = VERDICT_NONZERO_EXIT;
        r->exit_code = 1;
        snprintf(r->error, sizeof(r->error), "%s",
                 too_large ? "the compiled program is larger than 64M"
                           : "the compiler made no program");
    }
    source_name_limit(r);
    run->on_done(run);
}

/* The host's fault, or the image's, never the source's. Natively it was looked for before. */
static void source_missing(struct lang_job *job, const char *name)
{
    struct cordon_err err;
    lang_tool_missing(job->lang, name, "which the guest does not have", &err);
    err_hint(&err, "put it into the image");
    source_fail(job, &err);
}

static const char *source_missing_name(const struct lang_job *job)
{
    const struct buf *said = &job->step.supervised.out[0].kept;
    const char *tool;
    for (size_t i = 0; (tool = lang_registry_tool(job->lang, i)); i++)
        if (said->len == strlen(tool) + 1 && memcmp(said->data, tool, strlen(tool)) == 0)
            return tool;
    return "sh"; /* which the script itself takes */
}

static void source_compiled(struct run_job *step)
{
    struct lang_job *job = step->data;
    struct buf *made = &step->supervised.out[0].kept;
    struct cordon_err err = {0};
    if (step->result.verdict == VERDICT_NONZERO_EXIT && step->result.exit_code == COMPILE_MISSING) {
        source_missing(job, source_missing_name(job));
        return;
    }
    if (step->result.verdict != VERDICT_OK || step->result.out[0].truncated || made->len == 0 ||
        made->failed) {
        source_compile_failed(job);
        return;
    }
    if (job->cache_fd >= 0)
        (void)lang_cache_put(job->cache_fd, job->key, made->data, made->len, LANG_CACHE_BYTES);
    int r = source_artifact(job, made->data, made->len, &err);
    buf_done(made);
    job->run->host = step->host;
    if (r < 0 || source_run(job, &err) < 0)
        source_fail(job, &err);
}

/* Nothing of the source has run in this guest: its exit status is the checker's own. */
static void source_checked(struct run_job *step)
{
    struct lang_job *job = step->data;
    struct cordon_err err = {0};
    struct result *r = &job->run->result;
    if (step->result.verdict == VERDICT_OK) {
        job->run->host = step->host;
        if (source_run(job, &err) < 0)
            source_fail(job, &err);
        return;
    }
    if (step->result.exit_code == RESULT_NOT_FOUND && step->result.error[0]) {
        source_missing(job, job->lang->run[0]);
        return;
    }
    source_adopt(job);
    if (r->verdict == VERDICT_NONZERO_EXIT && r->exit_code == LANG_GUARD_REFUSED) {
        const struct result_stream *said = &r->out[1];
        size_t n = 0;
        while (n < said->len && said->data[n] != '\n')
            n++;
        r->verdict = VERDICT_REJECTED;
        snprintf(r->error, sizeof(r->error), "%.*s", (int)MIN(n, (size_t)1000),
                 said->data ? said->data : "");
    }
    job->run->on_done(job->run);
}

/* An image without the interpreter: no source ran, and nobody's command was not found. */
static void source_interpreted(struct run_job *run)
{
    struct lang_job *job = run->source;
    run->on_done = job->then;
    if (run->result.exit_code == RESULT_NOT_FOUND && run->result.error[0])
        source_missing(job, job->lang->run[0]);
    else
        run->on_done(run);
}

/* ---- the guests
 * --------------------------------------------------------------------------------*/

static int source_run(struct lang_job *job, struct cordon_err *err)
{
    struct run_job *run = job->run;
    struct lang_words with = {.source = job->inside,
                              .output = job->output,
                              .memory_bytes = policy_num(job->from, FIELD_MEMORY_LIMIT),
                              .args = job->source->args};
    if (job->compiles) {
        /* the source itself stays out of the run */
        job->files[0] = (struct plan_file){
            .name = arena_printf(&job->arena, "%s%s", job->prefix, strrchr(job->output, '/') + 1),
            .source = arena_printf(&job->arena, "/proc/self/fd/%d", job->artifact_fd)};
        job->n_files = 1;
        if (!job->files[0].name || !job->files[0].source)
            return err_nomem(err, "source");
    }
    run->argv = lang_registry_expand(job->lang->run, &with, &job->arena);
    if (!run->argv)
        return err_nomem(err, "source");
    run->policy = &job->policy;
    run->files = job->files;
    run->n_files = job->n_files;
    run->stage = "run";
    if (!job->prepare_only && !job->compiles) {
        if (run->on_done != source_interpreted) /* an interpreter that was lost was hooked, too */
            job->then = run->on_done;
        run->on_done = source_interpreted;
        run->source = job;
        if (run_start(run, err) == 0)
            return 0;
        run->on_done = job->then;
        return -1;
    }
    if (!job->prepare_only)
        return run_start(run, err);
    run->result = (struct result){.verdict = VERDICT_OK, .stage = "run"};
    run->on_done(run);
    return 0;
}

char *const *lang_argv(struct lang_job *job, uint64_t memory_bytes, struct arena *arena)
{
    struct lang_words with = {.source = job->inside,
                              .output = job->output,
                              .memory_bytes = memory_bytes,
                              .args = job->source->args};
    return lang_registry_expand(job->lang->run, &with, arena);
}

static int source_step(struct lang_job *job, char *const *argv, const char *stage,
                       void (*on_done)(struct run_job *), struct cordon_err *err)
{
    struct run_job *step = &job->step;
    step->loop = job->run->loop;
    step->host = job->run->host;
    step->pool = job->run->pool;
    step->vars = job->run->vars;
    step->policy = &job->step_policy;
    step->argv = argv;
    step->files = job->files;
    step->n_files = job->n_files;
    step->stage = stage;
    step->options =
        (struct supervise_options){.sinks = {-1, -1}, .keep_output = true, .stdin_fd = -1};
    step->on_done = on_done;
    step->data = job;
    job->run->stage = stage;
    if (run_start(step, err) < 0)
        return -1;
    /* room for an artefact on one stream, for diagnostics what the caller wants of any stream */
    step->supervised.out[1].cap =
        MIN(step->supervised.out[1].cap, policy_num(job->from, FIELD_MAX_OUTPUT));
    return 0;
}

static int source_check(struct lang_job *job, struct cordon_err *err)
{
    char **argv = arena_alloc(&job->arena, 6 * sizeof(*argv));
    const char *guard = arena_printf(&job->arena, "%s" LANG_GUARD_FILE, job->prefix);
    if (!argv || !guard)
        return err_nomem(err, "source");
    const char *words[] = {job->lang->run[0], "-I", "-S", guard, job->inside, NULL};
    memcpy(argv, words, sizeof(words));
    lang_derive_check(&job->policy, &job->step_policy);
    return source_step(job, argv, "run", source_checked, err);
}

static int source_compile(struct lang_job *job, struct cordon_err *err)
{
    struct lang_words with = {.source = job->inside,
                              .output = job->output,
                              .memory_bytes = policy_num(job->from, FIELD_COMPILE_MEMORY_LIMIT)};
    char **words = lang_registry_expand(job->lang->compile, &with, &job->arena);
    size_t n = 0, n_tools = 0;
    while (words && words[n])
        n++;
    while (lang_registry_tool(job->lang, n_tools))
        n_tools++;
    const char *front[] = {"sh", "-c", compile_script, "compile", job->output};
    char **argv =
        arena_alloc(&job->arena, (ARRAY_SIZE(front) + n_tools + 1 + n + 1) * sizeof(*argv));
    if (!words || !argv)
        return err_nomem(err, "source");
    char **next = mempcpy(argv, front, sizeof(front));
    for (size_t i = 0; i < n_tools; i++)
        *next++ = (char *)lang_registry_tool(job->lang, i);
    *next++ = "--";
    memcpy(next, words, n * sizeof(*words));
    lang_derive_compile(&job->policy, LANG_ARTIFACT_MAX, &job->step_policy);
    return source_step(job, argv, "compile", source_compiled, err);
}

/* ---- the cache
 * ---------------------------------------------------------------------------------*/

/* Host files the compiler can read besides the runtime are not part of the key: no cache then. */
static bool source_is_cacheable(const struct policy *p)
{
    static const enum field_id grants[] = {FIELD_ALLOW_READ, FIELD_ALLOW_WRITE, FIELD_MOUNTS};
    const struct policy_value *ws = policy_value(p, FIELD_WORKSPACE);
    if (policy_bool(p, FIELD_NO_CACHE) || (ws->set && ws->num != WORKSPACE_NONE) ||
        !source_is_hosts(p))
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(grants); i++)
        if (policy_value(p, grants[i])->n_items > 0)
            return false;
    const struct policy_value *files = policy_value(p, FIELD_FILES);
    for (size_t i = 0; i < files->n_items; i++)
        if (files->items[i].extra)
            return false;
    return true;
}

static void key_string(struct sha256 *s, const char *text)
{
    sha256_field(s, text, strlen(text));
}

static void source_key(struct lang_job *job, const char *text, size_t len)
{
    struct sha256 s;
    sha256_init(&s);
    key_string(&s, "cordon artifact 1 x86_64");
    key_string(&s, job->lang->name);
    key_string(&s, job->inside);
    sha256_field(&s, text, len);
    for (size_t i = 0; job->lang->compile[i]; i++)
        key_string(&s, job->lang->compile[i]);
    for (size_t i = 0; i < job->tools.n; i++) {
        struct stat st = {0};
        (void)stat(job->tools.list[i].real, &st);
        uint64_t id[] = {(uint64_t)st.st_size, (uint64_t)st.st_mtim.tv_sec,
                         (uint64_t)st.st_mtim.tv_nsec, st.st_ino, st.st_dev};
        key_string(&s, job->tools.list[i].real);
        sha256_field(&s, id, sizeof(id));
    }
    const struct policy_value *env = policy_value(&job->policy, FIELD_ENV);
    for (size_t i = 0; i < env->n_items; i++) {
        key_string(&s, env->items[i].text);
        key_string(&s, env->items[i].extra);
    }
    const struct policy_value *files = policy_value(job->from, FIELD_FILES);
    for (size_t i = 0; i < files->n_items; i++) {
        key_string(&s, files->items[i].text);
        sha256_field(&s, files->items[i].data, files->items[i].data_len);
    }
    sha256_hex(&s, job->key);
}

static int source_build(struct lang_job *job, struct cordon_err *err)
{
    const char *text;
    size_t len;
    if (source_load(job, &text, &len, err) < 0)
        return -1;
    if (source_is_cacheable(job->from)) {
        job->cache_fd = lang_cache_open(job->source->vars);
        if (job->cache_fd >= 0) {
            source_key(job, text, len);
            job->artifact_fd = lang_cache_get(job->cache_fd, job->key);
        }
    }
    return job->artifact_fd >= 0 ? source_run(job, err) : source_compile(job, err);
}

int lang_outline(struct lang_job *job, const struct lang_source *source,
                 const struct policy *policy, struct cordon_err *err)
{
    const char *const *guard;
    job->source = source;
    job->from = policy;
    job->artifact_fd = job->cache_fd = -1;
    job->open = true;
    return source_outline(job, &guard, err);
}

static void source_lost(void *data)
{
    struct lang_job *job = data;
    struct cordon_err err = {0};
    if (source_check(job, &err) < 0)
        source_fail(job, &err);
}

/* An interpreter that is there already checks the imports itself, before it runs anything of the
 * source: one guest in the place of two. */
static int source_run_warm(struct lang_job *job)
{
    struct run_job *run = job->run;
    struct cordon_err drop;
    if (!run->pool)
        return -1;
    run->only_interpreter = true;
    run->on_lost = source_lost;
    run->lost_data = job;
    int r = source_run(job, &drop);
    run->only_interpreter = r == 0;
    return r;
}

static int source_start(struct lang_job *job, struct cordon_err *err)
{
    const char *const *guard;
    const char *text;
    size_t len;
    if (source_outline(job, &guard, err) < 0)
        return -1;
    if (job->compiles)
        return source_build(job, err);
    if (!guard)
        return source_run(job, err);
    /* what is checked is what is run */
    if (job->n_files > 1 && source_load(job, &text, &len, err) < 0)
        return -1;
    return source_run_warm(job) == 0 ? 0 : source_check(job, err);
}

int lang_start(struct lang_job *job, const struct lang_source *source, struct run_job *run,
               struct cordon_err *err)
{
    job->source = source;
    job->run = run;
    job->from = run->policy;
    job->artifact_fd = job->cache_fd = -1;
    job->open = true;
    run->stage = "run";
    if (source_start(job, err) == 0)
        return 0;
    run->result = (struct result){.stage = run->stage};
    result_from_error(&run->result, err);
    return -1;
}

void lang_cancel(struct lang_job *job)
{
    if (!job->open)
        return;
    run_cancel(&job->step);
    run_cancel(job->run);
}

void lang_done(struct lang_job *job)
{
    if (!job->open)
        return;
    run_done(&job->step);
    util_close(&job->artifact_fd);
    util_close(&job->cache_fd);
    lang_registry_done(&job->registry);
    free(job->loaded);
    arena_done(&job->arena);
    job->open = false;
}

int lang_venv(const struct policy *policy, char *const *vars, struct arena *arena,
              struct policy *ret, struct cordon_err *err)
{
    struct lang_tools tools;
    const char *venv = policy_text(policy, FIELD_VENV);
    if (lang_tool_venv(policy, vars, arena, &tools, err) < 0)
        return -1;
    return lang_derive_run(policy, NULL, &tools, venv, NULL, arena, ret, err);
}
