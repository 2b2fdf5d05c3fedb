/* `cordon profile ls | show NAME`: what there is to choose from. Reads the files a run would read.
 */
#include "base/err.h"
#include "base/util.h"
#include "cli/cli.h"
#include "policy/show.h"

#define PROFILE_MAX (4u << 20)

extern char **environ;

enum { OPT_CONFIG };

static const struct options_own profile_options[] = {
    {"config", 0, OPTIONS_REQUIRED, OPT_CONFIG, "FILE",
     "the project's file instead of the cordon.toml that is found"},
    CLI_HELP_ROW,
};

static const char *const profile_words[] = {"ls", "show", NULL};

static int profile_usage(const char *why, const char *word, struct cordon_err *err)
{
    err_set(err, CORDON_ERR_USAGE, "usage", 0, "profile: %s%.200s", why, word);
    policy_err_clean(err);
    return err_hint(err, "cordon profile ls, or cordon profile show NAME");
}

/* Options may stand before the sub-command and after it. */
static int profile_print(const struct options *outer, struct buf *out, bool *ret_help,
                         struct cordon_err *err)
{
    struct options inner;
    if (outer->argc == 0)
        return profile_usage("ls or show is missing", "", err);
    if (cli_parse(&cli_verb_profile, outer->argc, outer->argv, &inner, ret_help, err) < 0)
        return -1;

    const char *word = outer->argv[0];
    bool show = str_eq(word, "show");
    struct policy_input input = {.environ = environ};
    input.config_file = options_get(&inner, OPT_CONFIG);
    if (!input.config_file)
        input.config_file = options_get(outer, OPT_CONFIG);

    int r = 0;
    if (*ret_help)
        ;
    else if (!show && !str_eq(word, "ls"))
        r = profile_usage("neither ls nor show: ", word, err);
    else if (inner.argc > (show ? 1 : 0))
        r = profile_usage("unexpected argument: ", inner.argv[show ? 1 : 0], err);
    else if (show && inner.argc == 0)
        r = profile_usage("show needs the name of a level or profile", "", err);
    else if (show)
        r = policy_profiles_show(&input, inner.argv[0], out, err);
    else
        r = policy_profiles_ls(&input, out, err);
    options_done(&inner);
    return r;
}

static int profile_run(int argc, char **argv)
{
    _cleanup_buf_ struct buf out = BUF_INIT(PROFILE_MAX);
    struct cordon_err err = {0};
    struct options options;
    bool help;

    if (cli_parse(&cli_verb_profile, argc, argv, &options, &help, &err) < 0)
        return cli_fail(&err);
    int r = help ? 0 : profile_print(&options, &out, &help, &err);
    options_done(&options);
    if (r < 0) {
        if (err.code == CORDON_ERR_CONFIG && !err.hint[0])
            err_hint(&err, "`cordon profile ls` lists the levels and profiles there are");
        return cli_fail(&err);
    }
    return help ? cli_help_verb(&cli_verb_profile) : cli_print(&out);
}

const struct cli_verb cli_verb_profile = {
    .name = "profile",
    .usage = "ls | show NAME",
    .summary = "list the levels and profiles, or show the policy of one",
    .own = profile_options,
    .n_own = ARRAY_SIZE(profile_options),
    .words = profile_words,
    .details =
        "ls prints name, kind and where it is said, with tabs between them. show prints the\n"
        "policy a run with --profile NAME would have, each value with its origin. An unknown\n"
        "name is a configuration error: exit 78.\n",
    .run = profile_run,
};
