/* `cordon languages`: what can be run here, with versions. */
#include <stdlib.h>

#include "base/err.h"
#include "base/jsonw.h"
#include "base/util.h"
#include "cli/cli.h"
#include "lang/probe.h"

#define LANGUAGES_MAX (1u << 20)

extern char **environ;

enum { OPT_JSON, OPT_CONFIG };

static const struct options_own languages_options[] = {
    {"json", 0, OPTIONS_NONE, OPT_JSON, NULL, "print one JSON array"},
    {"config", 0, OPTIONS_REQUIRED, OPT_CONFIG, "FILE",
     "the project's file instead of the cordon.toml that is found"},
    CLI_HELP_ROW,
};

static void languages_list(struct jsonw *j, const char *key, const char *const *list)
{
    jsonw_open(j, key, '[');
    for (size_t i = 0; list && list[i]; i++)
        jsonw_str(j, NULL, list[i]);
    jsonw_close(j, ']');
}

static void languages_json(const struct lang_probe *rows, size_t n, struct buf *out)
{
    struct jsonw j = {.out = out};
    jsonw_open(&j, NULL, '[');
    for (size_t i = 0; i < n; i++) {
        const struct lang_probe *p = &rows[i];
        char origin[512] = "built in";
        if (p->lang->origin)
            policy_origin_text(p->lang->origin, origin, sizeof(origin));
        jsonw_open(&j, NULL, '{');
        jsonw_str(&j, "name", p->lang->name);
        jsonw_bool(&j, "available", p->is_here);
        jsonw_str(&j, "version", p->version[0] ? p->version : NULL);
        jsonw_str(&j, "path", p->path[0] ? p->path : NULL);
        languages_list(&j, "suffixes", p->lang->suffixes);
        languages_list(&j, "aliases", p->lang->aliases);
        jsonw_bool(&j, "compiled", p->lang->compile != NULL);
        jsonw_str(&j, "package", p->lang->package);
        jsonw_str(&j, "origin", origin);
        jsonw_str(&j, "reason", p->is_here ? NULL : p->why);
        jsonw_close(&j, '}');
    }
    jsonw_close(&j, ']');
    buf_char(out, '\n');
}

static void languages_text(const struct lang_probe *rows, size_t n, struct buf *out)
{
    for (size_t i = 0; i < n; i++)
        if (rows[i].is_here)
            buf_printf(out, "%-12s %s\n", rows[i].lang->name,
                       rows[i].version[0] ? rows[i].version : rows[i].path);
    for (size_t i = 0; i < n; i++)
        if (!rows[i].is_here)
            buf_printf(out, "%-12s - %s\n", rows[i].lang->name, rows[i].why);
}

static int languages_print(const struct options *options, struct buf *out, struct cordon_err *err)
{
    struct policy_input input = {.environ = environ,
                                 .config_file = options_get(options, OPT_CONFIG)};
    struct policy *policy = NULL;
    struct lang_registry registry = {0};
    struct host host;
    _cleanup_free_ struct lang_probe *rows = NULL;
    int r = policy_resolve(&input, &policy, err);
    if (r == 0)
        r = lang_registry_make(policy, &registry, err);
    if (r == 0)
        r = host_probe_quick(&host, err);
    if (r == 0 && !(rows = calloc(registry.n, sizeof(*rows))))
        r = err_nomem(err, "languages");
    if (r == 0)
        r = lang_probe_all(policy, &host, &registry, environ, rows, err);
    if (r == 0 && rows && options_has(options, OPT_JSON))
        languages_json(rows, registry.n, out);
    else if (r == 0 && rows)
        languages_text(rows, registry.n, out);
    lang_registry_done(&registry);
    policy_free(policy);
    return r;
}

static int languages_main(int argc, char **argv)
{
    _cleanup_buf_ struct buf out = BUF_INIT(LANGUAGES_MAX);
    struct cordon_err err = {0};
    struct options options;
    bool help;
    int status;
    if (cli_parse(&cli_verb_languages, argc, argv, &options, &help, &err) < 0)
        return cli_fail(&err);
    if (help) {
        status = cli_help_verb(&cli_verb_languages);
    } else if (options.argc > 0) {
        err_set(&err, CORDON_ERR_USAGE, "usage", 0, "languages: unexpected argument: %.200s",
                options.argv[0]);
        policy_err_clean(&err);
        status = cli_fail(&err);
    } else {
        status = languages_print(&options, &out, &err) < 0 ? cli_fail(&err) : cli_print(&out);
    }
    options_done(&options);
    return status;
}

const struct cli_verb cli_verb_languages = {
    .name = "languages",
    .usage = "[--json]",
    .summary = "what can be run here, with versions",
    .own = languages_options,
    .n_own = ARRAY_SIZE(languages_options),
    .run = languages_main,
};
