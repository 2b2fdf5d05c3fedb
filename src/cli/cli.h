/* The verbs of the command: one file each, one const row each. Only this room prints. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>

#include <cordon.h>

#include "base/buf.h"
#include "cli/fail.h"
#include "policy/options.h"

/* Help, completions and the option parser all read the same row. */
struct cli_verb {
    const char *name;
    const char *usage;             /* words after the name */
    const char *summary;           /* one line; NULL hides the verb */
    const struct options_own *own; /* its own options */
    size_t n_own;
    bool with_policy;                  /* takes the options of the field table too */
    const char *const *words;          /* sub-commands, ending with NULL, or NULL */
    const char *details;               /* end of --help, or NULL */
    int (*run)(int argc, char **argv); /* argv[0] is the verb; returns the exit status */
};

extern const struct cli_verb cli_verb_workspace, cli_verb_grade, cli_verb_test;
extern const struct cli_verb cli_verb_run, cli_verb_explain, cli_verb_profile, cli_verb_doctor,
    cli_verb_languages, cli_verb_completions, cli_verb_supervise, cli_verb_broker;
extern const struct cli_verb cli_verb_image;
/* All of them, ending with NULL; main.c. */
extern const struct cli_verb *const cli_verbs[];

/* Writes all of it, whatever the descriptor's mood. -1 with errno. */
int cli_write(int fd, const char *data, size_t len);

/* The text on stdout; returns 0, or the exit status after saying why not. A buffer that failed is a
 * failure of ours too. */
int cli_print(const struct buf *text);

/* Splits a verb's line by its row. *ret_help: --help was asked for and nothing else counts. */
int cli_parse(const struct cli_verb *verb, int argc, char **argv, struct options *ret_options,
              bool *ret_help, struct cordon_err *err);

/* run.c: `run` in a workspace that is there already. argv[0] is skipped. */
struct run_job;
struct cli_run_in {
    const struct cli_verb *verb; /* whose options the line has; NULL: those of run */
    bool is_test;                /* the [test] table counts */
    struct workspace *workspace; /* NULL: the run makes its own over base */
    const char
        *base; /* what the guest works on: --workspace BASE:overlay; NULL: as the line says */
    /* After the run and before its result is printed; not called when nothing ran. */
    void (*on_result)(struct cli_run_in *in, struct run_job *job);
    void *data;
};
int cli_run_in(struct cli_run_in *in, int argc, char **argv);
/* An error before there was a run: said, and given as a result where the line asks for one; the
 * exit status. argv[0] is skipped. */
int cli_run_refused(const struct cli_verb *verb, int argc, char **argv,
                    const struct cordon_err *err);

/* help.c: `cordon --help`, `cordon VERB --help`; the exit status. */
int cli_help(void);
int cli_help_verb(const struct cli_verb *verb);

/* Every verb's row for --help. Ids of other options begin at 0. */
#define CLI_OPT_HELP (-1)
#define CLI_HELP_ROW                                                                               \
    {                                                                                              \
        "help", 'h', OPTIONS_NONE, CLI_OPT_HELP, NULL, "print this help"                           \
    }

#endif
