/* Writes what is made from the tables of the code: option lists in man pages, shell completions, the
 * JSON Schema of cordon.toml. Runs at build time only.
 *
 *   docgen man TEMPLATE.scd      the page with @options@ and @keys sandbox|filesystem|network@ filled in
 *   docgen completion SHELL      bash, zsh or fish
 *   docgen schema */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "policy/show.h"

#define OUT_MAX (4u << 20)

/* The verbs and their own options as cli/ has them; tools/check-docs compares with --help. */
static const struct options_own run_options[] = {
    {"json", 0, OPTIONS_NONE, 0, NULL, "print the result as JSON on standard output"},
    {"result", 0, OPTIONS_REQUIRED, 0, "FILE", "write the result as JSON to FILE"},
    {"status-fd", 0, OPTIONS_REQUIRED, 0, "N", "write the result as JSON to descriptor N"},
    {"stdin", 0, OPTIONS_REQUIRED, 0, "FILE", "standard input of the guest"},
    {"help", 'h', OPTIONS_NONE, 0, NULL, "print this help"},
};
static const struct options_own explain_options[] = {
    {"path", 0, OPTIONS_REQUIRED, 0, "PATH", "may the guest read this path, and by which rule?"},
    {"write", 0, OPTIONS_NONE, 0, NULL, "with --path: may it write there?"},
    {"host", 0, OPTIONS_REQUIRED, 0, "HOST:PORT", "may the guest connect, and by which rule?"},
    {"json", 0, OPTIONS_NONE, 0, NULL, "as JSON"},
};
static const struct options_own doctor_options[] = {
    {"json", 0, OPTIONS_NONE, 0, NULL, "the report as JSON"},
};
static const char *const profile_words[] = {"ls", "show", NULL};
static const struct show_verb verbs[] = {
    {"run", "run a command behind the wall", run_options, ARRAY_SIZE(run_options), true, NULL},
    {"explain", "print the resolved policy and plan, run nothing", explain_options,
     ARRAY_SIZE(explain_options), true, NULL},
    {"profile", "list or show profiles", NULL, 0, false, profile_words},
    {"doctor", "what this host can enforce", doctor_options, ARRAY_SIZE(doctor_options), false,
     NULL},
};

static void fill_in(const char *line, struct buf *out)
{
    if (str_starts(line, "@options@"))
        policy_man_options(out);
    else if (str_starts(line, "@keys sandbox@"))
        policy_man_keys(TABLE_SANDBOX, out);
    else if (str_starts(line, "@keys filesystem@"))
        policy_man_keys(TABLE_FILESYSTEM, out);
    else if (str_starts(line, "@keys network@"))
        policy_man_keys(TABLE_NETWORK, out);
    else
        buf_str(out, line);
}

static int man_page(const char *path, struct buf *out)
{
    _cleanup_fclose_ FILE *page = fopen(path, "re");
    char line[4096];
    if (!page) {
        fprintf(stderr, "docgen: %s: %s\n", path, strerror(errno));
        return -1;
    }
    while (fgets(line, sizeof(line), page))
        fill_in(line, out);
    return ferror(page) ? -1 : 0;
}

int main(int argc, char **argv)
{
    _cleanup_buf_ struct buf out = BUF_INIT(OUT_MAX);
    struct cordon_err err = {0};
    int status = -1;

    if (argc == 3 && str_eq(argv[1], "man"))
        status = man_page(argv[2], &out);
    else if (argc == 3 && str_eq(argv[1], "completion"))
        status = policy_completions(argv[2], verbs, ARRAY_SIZE(verbs), &out, &err);
    else if (argc == 2 && str_eq(argv[1], "schema"))
        policy_schema(&out), status = 0;
    else
        fprintf(stderr, "usage: docgen man TEMPLATE | completion SHELL | schema\n");
    if (err.message[0])
        fprintf(stderr, "docgen: %s\n", err.message);
    if (status < 0 || out.failed || fwrite(out.data, 1, out.len, stdout) != out.len)
        return 1;
    return fflush(stdout) == 0 ? 0 : 1;
}
