/* Help, and shell completions from the same tables: a verb that only packaging calls. */
#include "base/err.h"
#include "base/util.h"
#include "cli/cli.h"
#include "policy/show.h"

#define HELP_MAX (256 * 1024)

int cli_help(void)
{
    _cleanup_buf_ struct buf out = BUF_INIT(HELP_MAX);
    buf_str(&out, "usage: cordon VERB ...\n\n"
                  "Runs code nobody trusts behind a wall, and hands back an honest result.\n\n");
    for (size_t i = 0; cli_verbs[i]; i++) {
        const struct cli_verb *v = cli_verbs[i];
        if (!v->summary)
            continue;
        buf_printf(&out, "  cordon %s %s\n", v->name, v->usage);
        buf_printf(&out, "      %s\n", v->summary);
    }
    buf_str(&out,
            "\n`cordon VERB --help` lists the options of a verb, `cordon --version` the version;\n"
            "cordon(1) explains them, cordon.toml(5) the configuration.\n");
    return cli_print(&out);
}

int cli_help_verb(const struct cli_verb *verb)
{
    _cleanup_buf_ struct buf out = BUF_INIT(HELP_MAX);
    buf_printf(&out, "usage: cordon %s %s\n", verb->name, verb->usage);
    if (verb->summary)
        buf_printf(&out, "\n%c%s.\n", verb->summary[0] & ~0x20, verb->summary + 1);
    buf_str(&out, "\noptions:\n");
    policy_help(verb->own, verb->n_own, verb->with_policy, &out);
    if (verb->with_policy)
        buf_str(&out,
                "\nA value follows as the next word or after `=`, an optional one only after `=`. "
                "Lists\nappend, `false` clears them. CORDON_TIME_LIMIT=5s in the environment is "
                "--time-limit,\nand so on; cordon.toml(5) has the keys of the file.\n");
    if (verb->details)
        buf_printf(&out, "\n%s", verb->details);
    return cli_print(&out);
}

/* One word is expected; --help may stand in its place. False: *ret_status says how it ended. */
static bool help_word(const struct cli_verb *verb, int argc, char **argv, struct options *options,
                      int *ret_status)
{
    struct cordon_err err = {0};
    bool help;
    if (cli_parse(verb, argc, argv, options, &help, &err) < 0) {
        *ret_status = cli_fail(&err);
        return false;
    }
    if (help) {
        *ret_status = cli_help_verb(verb);
    } else if (options->argc != 1) {
        err_set(&err, CORDON_ERR_USAGE, "usage", 0, "usage: cordon %s %s", verb->name, verb->usage);
        *ret_status = cli_fail(&err);
    } else {
        return true;
    }
    options_done(options);
    return false;
}

static int completions_run(int argc, char **argv)
{
    _cleanup_buf_ struct buf out = BUF_INIT(HELP_MAX);
    struct show_verb verbs[24];
    struct cordon_err err = {0};
    struct options options;
    int status;
    size_t n = 0;

    if (!help_word(&cli_verb_completions, argc, argv, &options, &status))
        return status;
    for (size_t i = 0; cli_verbs[i] && n < ARRAY_SIZE(verbs); i++) {
        const struct cli_verb *v = cli_verbs[i];
        if (v->summary)
            verbs[n++] =
                (struct show_verb){v->name, v->summary, v->own, v->n_own, v->with_policy, v->words};
    }
    status = policy_completions(options.argv[0], verbs, n, &out, &err) < 0 ? cli_fail(&err)
                                                                           : cli_print(&out);
    options_done(&options);
    return status;
}

static const struct options_own help_only[] = {CLI_HELP_ROW};

const struct cli_verb cli_verb_completions = {
    .name = "completions",
    .usage = "bash | zsh | fish",
    .own = help_only,
    .n_own = ARRAY_SIZE(help_only),
    .run = completions_run,
};
