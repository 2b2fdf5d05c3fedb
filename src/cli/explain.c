/* `cordon explain`: the resolved policy with origins, the plan it leads to here, and answers to
 * "may the guest?". Starts no guest and makes nothing; that the strong tier works here is found out
 * the way the doctor does, in throw-away children. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/jsonw.h"
#include "base/util.h"
#include "cli/cli.h"
#include "host/doctor.h"
#include "lang/source.h"
#include "plan/plan_print.h"
#include "policy/show.h"
#include "policy/value.h"
#include "policy/why.h"
#include "run/rootfs.h"

#define EXPLAIN_MAX (16u << 20)

extern char **environ;

enum { OPT_JSON, OPT_SCHEMA, OPT_PATH, OPT_WRITE, OPT_HOST, OPT_LANGUAGE, OPT_UNUSED };

static const struct options_own explain_options[] = {
    {"json", 0, OPTIONS_NONE, OPT_JSON, NULL, "print it as JSON"},
    {"path", 0, OPTIONS_REQUIRED, OPT_PATH, "PATH",
     "may the guest read PATH? Says allowed or refused, and by which rule"},
    {"write", 0, OPTIONS_NONE, OPT_WRITE, NULL, "with --path: may the guest write there?"},
    {"host", 0, OPTIONS_REQUIRED, OPT_HOST, "HOST:PORT",
     "may the guest connect there? Says allowed or refused, and by which rule"},
    {"language", 0, OPTIONS_REQUIRED, OPT_LANGUAGE, "NAME",
     "language of the source, where its suffix does not say it"},
    {"schema", 0, OPTIONS_NONE, OPT_SCHEMA, NULL, "print the JSON Schema of cordon.toml"},
    CLI_HELP_ROW,
    /* so that `run` can be changed into `explain` in any line */
    {"result", 0, OPTIONS_REQUIRED, OPT_UNUSED, NULL, NULL},
    {"status-fd", 0, OPTIONS_REQUIRED, OPT_UNUSED, NULL, NULL},
    {"stdin", 0, OPTIONS_REQUIRED, OPT_UNUSED, NULL, NULL},
    {NULL, 'i', OPTIONS_NONE, OPT_UNUSED, NULL, NULL},
};

struct explain {
    struct options options;
    struct policy *policy;
    struct plan *plan;
    struct lang_source source; /* a file was given instead of a command */
    struct lang_job lang;
    bool json;
    struct buf out;
};

static int explain_usage(struct cordon_err *err, const char *why, const char *hint)
{
    err_set(err, CORDON_ERR_USAGE, "usage", 0, "%s", why);
    return err_hint(err, "%s", hint);
}

static int explain_check(const struct options *o, struct cordon_err *err)
{
    bool path = options_has(o, OPT_PATH), host = options_has(o, OPT_HOST);
    if (path && host)
        return explain_usage(err, "--path and --host are two questions", "ask them one by one");
    if (options_has(o, OPT_WRITE) && !path)
        return explain_usage(err, "--write asks about a path", "add --path PATH");
    return 0;
}

/* A run learns that a tier is refused by trying; nothing is started here, so the doctor is asked.
 */
static int explain_host(const struct policy *policy, struct host *ret_host, struct cordon_err *err)
{
    struct host host;
    struct host_report report;
    if (host_doctor(&report, err) < 0)
        return -1;
    host = report.host;
    if (policy_has(policy, FIELD_CGROUP) &&
        host_cgroups_explicit(policy_text(policy, FIELD_CGROUP), &host.cgroups, err) < 0)
        return policy_err_place(&policy_value(policy, FIELD_CGROUP)->origin, err);
    if (report.tier != HOST_TIER_FULL) {
        host.user_ns = false;
        for (size_t i = 0; i < report.n_items && !host.user_ns_why[0]; i++) {
            const struct host_item *item = &report.items[i];
            if (item->need == HOST_NEED_FULL && item->required && item->state != HOST_WORKS)
                snprintf(host.user_ns_why, sizeof(host.user_ns_why), "%s: %.200s", item->title,
                         item->detail);
        }
    }
    *ret_host = host;
    return 0;
}

/* A file of source text: its language says what is run and what that needs. The text itself is not
 * needed; from standard input it is not read. */
static int explain_source(struct explain *e, struct plan_request *request, struct cordon_err *err)
{
    const char *file = e->options.argv[0];
    e->source = (struct lang_source){.language = options_get(&e->options, OPT_LANGUAGE),
                                     .path = str_eq(file, "-") ? NULL : file,
                                     .text = "",
                                     .args = e->options.argv + 1,
                                     .vars = environ};
    if (e->lang.open)
        return 0;
    if (lang_outline(&e->lang, &e->source, e->policy, err) < 0)
        return -1;
    request->policy = &e->lang.policy;
    request->files = e->lang.files;
    request->n_files = e->lang.n_files;
    request->argv = lang_argv(&e->lang, policy_num(e->policy, FIELD_MEMORY_LIMIT), &e->lang.arena);
    return request->argv ? 0 : err_nomem(err, "explain");
}

static int explain_plan(struct explain *e, struct cordon_err *err)
{
    struct host host;
    const struct policy_value *binaries = policy_value(e->policy, FIELD_ALLOWED_BINARIES);
    /* without a command: one that no list of the policy refuses */
    char *stand_in[] = {binaries->n_items ? binaries->items[0].text : (char *)"/bin/sh", NULL};
    _cleanup_free_ char *rootfs = NULL;
    if (explain_host(e->policy, &host, err) < 0 ||
        rootfs_resolve(e->policy, NULL, &rootfs, err) < 0)
        return -1;
    struct plan_request request = {.policy = e->policy,
                                   .host = &host,
                                   .argv = e->options.argc ? e->options.argv : stand_in,
                                   .rootfs = rootfs};
    if (e->options.argc && !e->options.has_dashes && explain_source(e, &request, err) < 0)
        return -1;
    return plan_make(&request, &e->plan, err);
}

/* In tier landlock the guest stays in the host's tree: of what every guest has anyway only that
 * counts which a rule of the plan names. What the caller granted or denied is answered already. */
static int explain_by_fences(const struct plan *p, const char *path, bool write, struct why *why,
                             struct cordon_err *err)
{
    _cleanup_free_ char *full = value_path(p->cwd, path);
    if (!full)
        return err_nomem(err, "explain");
    *why = (struct why){.allowed = false, .rule = "default", .note = why->note};
    for (size_t i = 0; i < p->n_fences; i++) {
        const struct plan_fence *f = &p->fences[i];
        size_t len = strlen(f->path);
        if (strncmp(full, f->path, len) != 0 || (full[len] && full[len] != '/') ||
            (write && !f->write))
            continue;
        why->allowed = true;
        snprintf(why->rule, sizeof(why->rule), "tier landlock, %s %.400s", f->write ? "rw" : "ro",
                 f->path);
    }
    return 0;
}

/* A relative path is the guest's own, unless it names what lies in this folder: options that grant
 * and deny take it for that. With a workspace the guest begins there. */
static char *explain_hosts_path(const struct explain *e, const char *path)
{
    struct stat st;
    const struct policy_value *w = policy_value(e->policy, FIELD_WORKSPACE);
    if (path[0] == '/' || (w->set && w->num != WORKSPACE_NONE) || lstat(path, &st) < 0)
        return NULL;
    _cleanup_free_ char *cwd = getcwd(NULL, 0);
    return cwd ? value_path(cwd, path) : NULL;
}

static int explain_path(struct explain *e, const char *path, bool write, struct why *ret_why,
                        struct cordon_err *err)
{
    struct cordon_err ignored = {0}; /* a policy this host cannot honour still has its rules */
    _cleanup_free_ char *hosts = explain_hosts_path(e, path);
    if (hosts)
        path = hosts;
    if (why_path(e->policy, path, write, ret_why, err) < 0)
        return -1;
    if (!ret_why->origin[0] && explain_plan(e, &ignored) == 0 && e->plan->tier != TIER_FULL)
        return explain_by_fences(e->plan, path, write, ret_why, err);
    struct stat st;
    if (ret_why->is_scratch && path[0] == '/' && lstat(path, &st) == 0) {
        ret_why->allowed = false;
        ret_why->note = "the host's file of that name is not in the guest's own folder, which is "
                        "empty at first: grant it (--allow-read) if it is meant";
    }
    return 0;
}

/* The first word is the answer; programs may rely on it. */
static int explain_answer(struct explain *e, struct cordon_err *err)
{
    const char *path = options_get(&e->options, OPT_PATH),
               *host = options_get(&e->options, OPT_HOST);
    struct why why;
    int r = path ? explain_path(e, path, options_has(&e->options, OPT_WRITE), &why, err)
                 : why_host(e->policy, host, &why, err);
    if (r < 0)
        return -1;
    const char *word = why.allowed ? "allowed" : "refused";
    if (e->json) {
        struct jsonw j = {.out = &e->out};
        jsonw_open(&j, NULL, '{');
        jsonw_int(&j, "version", 1);
        jsonw_str(&j, path ? "path" : "host", path ? path : host);
        if (path)
            jsonw_bool(&j, "write", options_has(&e->options, OPT_WRITE));
        jsonw_str(&j, "answer", word);
        jsonw_str(&j, "rule", why.rule);
        jsonw_str(&j, "origin", why.origin[0] ? why.origin : NULL);
        if (why.note)
            jsonw_str(&j, "note", why.note);
        jsonw_close(&j, '}');
    } else {
        buf_printf(&e->out, "%s by %s", word, why.rule);
        if (why.origin[0])
            buf_printf(&e->out, "   %s", why.origin);
        if (why.note)
            fprintf(stderr, "Note: %s\n", why.note);
    }
    buf_char(&e->out, '\n');
    return 0;
}

static void explain_text(struct explain *e, bool planned)
{
    buf_str(&e->out, "policy\n");
    policy_explain_text(e->policy, &e->out);
    if (e->policy->user_file)
        buf_printf(&e->out, "(read: %s)\n", e->policy->user_file);
    if (e->policy->config_file)
        buf_printf(&e->out, "(read: %s)\n", e->policy->config_file);
    buf_char(&e->out, '\n');
    if (planned)
        plan_print_text(e->plan, e->policy, &e->out);
}

static void explain_json(struct explain *e, bool planned, const struct cordon_err *err)
{
    struct jsonw j = {.out = &e->out};
    jsonw_open(&j, NULL, '{');
    jsonw_int(&j, "version", 1);
    policy_explain_json(e->policy, &j);
    jsonw_open(&j, "command", '[');
    for (int i = 0; i < e->options.argc; i++)
        jsonw_str(&j, NULL, e->options.argv[i]);
    jsonw_close(&j, ']');
    if (planned) {
        jsonw_open(&j, "plan", '{');
        plan_print_json(e->plan, e->policy, &j);
        jsonw_close(&j, '}');
        jsonw_null(&j, "error");
    } else {
        jsonw_null(&j, "plan");
        jsonw_str(&j, "error", err->message);
    }
    jsonw_close(&j, '}');
    buf_char(&e->out, '\n');
}

/* The policy is worth reading also where it cannot be honoured: then the error follows it. */
static int explain_all(struct explain *e)
{
    struct cordon_err err = {0};
    bool planned = explain_plan(e, &err) == 0;
    if (err.code == CORDON_ERR_USAGE)
        return cli_fail(&err);
    if (e->json)
        explain_json(e, planned, &err);
    else
        explain_text(e, planned);
    int status = cli_print(&e->out);
    return status || planned ? status : cli_fail(&err);
}

static int explain_do(struct explain *e)
{
    struct cordon_err err = {0};
    if (options_has(&e->options, OPT_SCHEMA)) {
        policy_schema(&e->out);
        return cli_print(&e->out);
    }
    struct policy_input input = options_input(&e->options, environ);
    if (explain_check(&e->options, &err) < 0 || policy_resolve(&input, &e->policy, &err) < 0)
        return cli_fail(&err);
    if (!options_has(&e->options, OPT_PATH) && !options_has(&e->options, OPT_HOST))
        return explain_all(e);
    return explain_answer(e, &err) < 0 ? cli_fail(&err) : cli_print(&e->out);
}

static int explain_run(int argc, char **argv)
{
    struct explain e = {.out = BUF_INIT(EXPLAIN_MAX)};
    struct cordon_err err = {0};
    bool help;

    if (cli_parse(&cli_verb_explain, argc, argv, &e.options, &help, &err) < 0)
        return cli_fail(&err);
    e.json = options_has(&e.options, OPT_JSON);
    int status = help ? cli_help_verb(&cli_verb_explain) : explain_do(&e);
    plan_free(e.plan);
    lang_done(&e.lang);
    policy_free(e.policy);
    options_done(&e.options);
    buf_done(&e.out);
    return status;
}

const struct cli_verb cli_verb_explain = {
    .name = "explain",
    .usage = "[options as for run] [FILE [ARG...] | -- CMD [ARG...]]",
    .summary = "print the resolved policy and the plan, run nothing",
    .own = explain_options,
    .n_own = ARRAY_SIZE(explain_options),
    .with_policy = true,
    .details =
        "Each value comes with its origin: time_limit = 5s   cordon.toml:3. The answers to --path\n"
        "and --host begin with the word allowed or refused; the exit status is 0 for both. They\n"
        "follow from the rules alone: links are not followed, names are not resolved, and the\n"
        "permissions of a file are not looked at. Where this host cannot honour the\n"
        "policy, the policy is printed, then the error; exit 69.\n",
    .run = explain_run,
};
