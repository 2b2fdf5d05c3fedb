/* The command: finds the verb. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend/native/native_internal.h"
#include "base/util.h"
#include "cli/cli.h"

static const struct cli_verb verbs[] = {
    {"run", "[options] -- CMD [ARG...]", "run a command behind the wall", cli_run},
    {"explain", "[options as for run]", "print the resolved policy and plan, run nothing", cli_explain},
    {"profile", "ls | show NAME", "list or show the built-in and configured profiles", cli_profile},
    {"doctor", "[--json]", "what this host can enforce, what blocks the rest, the smallest fix",
     cli_doctor},
    {"supervise", NULL, NULL, cli_supervise},
};

int cli_fail(const struct cordon_err *err)
{
    fprintf(stderr, "cordon: %s\n", err->message);
    if (err->hint[0])
        fprintf(stderr, "hint: %s\n", err->hint);
    return err->code;
}

static int main_usage(FILE *out)
{
    fprintf(out, "usage: cordon VERB ...\n\n");
    for (size_t i = 0; i < ARRAY_SIZE(verbs) && verbs[i].summary; i++)
        fprintf(out, "  cordon %-8s %-28s %s\n", verbs[i].name, verbs[i].usage, verbs[i].summary);
    fprintf(out, "\n`cordon VERB --help` lists the options of a verb; cordon(1) explains them.\n");
    return out == stderr ? CORDON_ERR_USAGE : 0;
}

/* Descriptors 0 to 2 must exist, or a pipe of a guest could take their place. */
static void main_fill_stdio(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", O_RDWR);
}

int main(int argc, char **argv)
{
    native_main_argv = argv;
    main_fill_stdio();
    signal(SIGPIPE, SIG_IGN);
    if (argc < 2)
        return main_usage(stderr);
    if (str_eq(argv[1], "--help") || str_eq(argv[1], "-h") || str_eq(argv[1], "help"))
        return main_usage(stdout);
    if (str_eq(argv[1], "--version")) {
        printf("cordon %d.%d.%d\n", CORDON_VERSION_MAJOR, CORDON_VERSION_MINOR, CORDON_VERSION_PATCH);
        return 0;
    }
    for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
        if (str_eq(argv[1], verbs[i].name))
            return verbs[i].run(argc - 1, argv + 1);
    fprintf(stderr, "cordon: unknown verb: %s (cordon --help lists them)\n", argv[1]);
    return CORDON_ERR_USAGE;
}
