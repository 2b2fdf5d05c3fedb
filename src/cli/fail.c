/* What ends a command, told on stderr: by every verb, and by the programs of their own beside the
 * command. */
#include "cli/fail.h"

#include <stdio.h>

#include "base/utf8.h"

static void fail_line(const char *head, const char *text)
{
    char line[sizeof(((struct cordon_err *)0)->message)];
    snprintf(line, sizeof(line), "%s", text);
    utf8_clean(line, true);
    fprintf(stderr, "%s: %s\n", head, line);
}

int cli_fail(const struct cordon_err *err)
{
    fail_line("Error", err->message);
    if (err->hint[0])
        fail_line("Hint", err->hint);
    return err->code;
}

void cli_warn(const struct cordon_err *err)
{
    fail_line("Warning", err->message);
}
