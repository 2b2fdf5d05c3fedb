/* `cordon image build | status | clean`: says what is wanted and hands over to `cordon-docker`,
 * which can talk to an engine. */
#include <errno.h>
#include <limits.h>
#include <unistd.h>

#include "base/err.h"
#include "base/libexec.h"
#include "base/util.h"
#include "cli/cli.h"

enum { OPT_FORCE, OPT_ROOTFS, OPT_FROM_HOST, OPT_NAME, OPT_ALL, OPT_JSON };

static const struct options_own image_options[] = {
    {"force", 0, OPTIONS_NONE, OPT_FORCE, NULL,
     "build: also when nothing changed; clean: also containers in use"},
    {"rootfs", 0, OPTIONS_REQUIRED, OPT_ROOTFS, "DIR|TAR",
     "build: from a folder or an archive instead of Debian packages"},
    {"from-host", 0, OPTIONS_NONE, OPT_FROM_HOST, NULL,
     "build: from the files of packages installed here, asking no mirror"},
    {"name", 0, OPTIONS_REQUIRED, OPT_NAME, "NAME", "another name than cordon-sandbox:latest"},
    {"all", 0, OPTIONS_NONE, OPT_ALL, NULL, "clean: the image too"},
    {"json", 0, OPTIONS_NONE, OPT_JSON, NULL, "status: as one JSON object"},
    CLI_HELP_ROW,
};

static const char *const image_words[] = {"build", "status", "clean", NULL};

static int image_usage(const char *why, const char *word, struct cordon_err *err)
{
    err_set(err, CORDON_ERR_USAGE, "usage", 0, "image: %s%.200s", why, word);
    policy_err_clean(err);
    return err_hint(err, "cordon image build, cordon image status, or cordon image clean");
}

/* Options that mean something to one sub-command only are refused at the others. */
static int image_check(const char *word, const struct options *o, struct cordon_err *err)
{
    static const struct {
        int option;
        const char *flag, *words;
    } rows[] = {
        {OPT_FORCE, "--force", "build clean"},   {OPT_ROOTFS, "--rootfs", "build"},
        {OPT_FROM_HOST, "--from-host", "build"}, {OPT_ALL, "--all", "clean"},
        {OPT_JSON, "--json", "status"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (options_has(o, rows[i].option) && !strstr(rows[i].words, word))
            return err_set(err, CORDON_ERR_USAGE, "usage", 0, "image %s: %s means nothing here",
                           word, rows[i].flag);
    if (options_has(o, OPT_ROOTFS) && options_has(o, OPT_FROM_HOST))
        return err_set(err, CORDON_ERR_USAGE, "usage", 0,
                       "--rootfs and --from-host exclude each other");
    if (o->argc > 0)
        return image_usage("unexpected argument: ", o->argv[0], err);
    return 0;
}

static int image_exec(const char *word, const struct options *o, struct cordon_err *err)
{
    char program[PATH_MAX];
    if (libexec_find("cordon-docker", program, sizeof(program)) < 0)
        return err_set(err, CORDON_ERR_HOST, "image", errno, "cordon-docker is not installed");
    const char *words[16] = {program, "image", word};
    size_t n = 3;
    static const struct {
        int option;
        const char *flag;
        bool value;
    } rows[] = {{OPT_FORCE, "--force", false},  {OPT_FROM_HOST, "--from-host", false},
                {OPT_ALL, "--all", false},      {OPT_JSON, "--json", false},
                {OPT_ROOTFS, "--rootfs", true}, {OPT_NAME, "--name", true}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        if (!options_has(o, rows[i].option))
            continue;
        words[n++] = rows[i].flag;
        if (rows[i].value)
            words[n++] = options_get(o, rows[i].option);
    }
    char *argv[ARRAY_SIZE(words)] = {NULL};
    for (size_t i = 0; i < n; i++)
        if (!(argv[i] = strdup(words[i])))
            return err_nomem(err, "image");
    execv(program, argv);
    for (size_t i = 0; i < n; i++)
        free(argv[i]);
    return err_set(err, CORDON_ERR_HOST, "image", errno, "%s", program);
}

static int image_run(int argc, char **argv)
{
    struct cordon_err err = {0};
    struct options outer, inner = {0};
    bool help;
    if (cli_parse(&cli_verb_image, argc, argv, &outer, &help, &err) < 0)
        return cli_fail(&err);
    int r = -1;
    if (help)
        r = 0;
    else if (outer.argc == 0)
        image_usage("build, status or clean is missing", "", &err);
    else if (!str_eq(outer.argv[0], "build") && !str_eq(outer.argv[0], "status") &&
             !str_eq(outer.argv[0], "clean"))
        image_usage("neither build, status nor clean: ", outer.argv[0], &err);
    else if (cli_parse(&cli_verb_image, outer.argc, outer.argv, &inner, &help, &err) == 0) {
        if (help)
            r = 0;
        else if (image_check(outer.argv[0], &inner, &err) == 0)
            r = image_exec(outer.argv[0], &inner, &err);
        options_done(&inner);
    }
    options_done(&outer);
    if (r < 0)
        return cli_fail(&err);
    return cli_help_verb(&cli_verb_image);
}

const struct cli_verb cli_verb_image = {
    .name = "image",
    .usage = "build [--force] | status | clean",
    .summary = "make, show or remove the image of the container backends",
    .own = image_options,
    .n_own = ARRAY_SIZE(image_options),
    .words = image_words,
    .details =
        "build makes cordon-sandbox:latest: from Debian's mirror (mmdebstrap), or where none\n"
        "answers from the files of packages installed here; an unchanged recipe is not built\n"
        "again. No registry is asked. Without an engine the image still serves the native and\n"
        "oci backends. status shows the engine, its runtimes, the image and running guests.\n"
        "clean removes containers Cordon left behind and images it replaced, nothing else.\n",
    .run = image_run,
};
