/* The verbs of the command: one file each, one row each in main.c's table. Only this room prints. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <cordon.h>

struct cli_verb {
    const char *name;
    const char *usage;   /* words after the name */
    const char *summary; /* one line; NULL hides the verb */
    int (*run)(int argc, char **argv); /* argv[0] is the verb; returns the exit status */
};

/* Prints "cordon: message" (and the hint) on stderr and returns the error's exit status. */
int cli_fail(const struct cordon_err *err);

int cli_run(int argc, char **argv);
int cli_explain(int argc, char **argv);
int cli_profile(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_supervise(int argc, char **argv);
int cli_help_run(void);

#endif
