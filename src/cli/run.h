/* Options that `run` shares with verbs that end in a run of their own. */
#ifndef CLI_RUN_H
#define CLI_RUN_H

#include "cli/cli.h"

enum { OPT_JSON, OPT_RESULT, OPT_STATUS_FD, OPT_STDIN, OPT_LANGUAGE, OPT_TERMINAL, OPT_RUN_END_ };

#define CLI_RUN_ROWS                                                                               \
    {"json", 0, OPTIONS_NONE, OPT_JSON, NULL, "print the result as JSON on standard output"},      \
        {"result", 0, OPTIONS_REQUIRED, OPT_RESULT, "FILE", "write the result as JSON to FILE"},   \
        {"status-fd",   0,   OPTIONS_REQUIRED,                                                     \
         OPT_STATUS_FD, "N", "write the result as JSON to descriptor N"},                          \
        {"stdin", 0, OPTIONS_REQUIRED, OPT_STDIN, "FILE", "standard input of the guest"},          \
    {                                                                                              \
        NULL, 'i', OPTIONS_NONE, OPT_TERMINAL, NULL, "give the guest a terminal of its own"        \
    }

#define CLI_LANGUAGE_ROW                                                                           \
    {                                                                                              \
        "language", 0, OPTIONS_REQUIRED, OPT_LANGUAGE, "NAME",                                     \
            "language of the source, where its suffix does not say it"                             \
    }

/* What the line leaves out of these rows and the environment says. */
int cli_run_environ(struct options *options, struct cordon_err *err);

#endif
