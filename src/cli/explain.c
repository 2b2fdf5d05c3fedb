/* `cordon explain` and `cordon profile`: what would happen, and why. Runs nothing. */
#include "cli/cli.h"

#include <stdio.h>

int cli_explain(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return 70;
}

int cli_profile(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return 70;
}

int cli_help_run(void)
{
    puts("usage: cordon run");
    return 0;
}
