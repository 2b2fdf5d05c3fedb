/* The command: finds the verb. And what every verb says in the same way. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/native/native_internal.h"
#include "backend/oci/oci.h"
#include "base/err.h"
#include "base/libexec.h"
#include "base/sys.h"
#include "base/util.h"
#include "cli/cli.h"
#include "policy/fields.h"

const struct cli_verb *const cli_verbs[] = {
    &cli_verb_run,
    &cli_verb_test,
    &cli_verb_grade,
    &cli_verb_workspace,
    &cli_verb_image,
    &cli_verb_explain,
    &cli_verb_profile,
    &cli_verb_doctor,
    &cli_verb_languages,
    &cli_verb_completions,
    &cli_verb_supervise,
    &cli_verb_broker,
    NULL,
};

int cli_write(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

int cli_print(const struct buf *text)
{
    struct cordon_err err;
    if (text->failed) {
        err_nomem(&err, "print");
        return cli_fail(&err);
    }
    if (cli_write(STDOUT_FILENO, text->data, text->len) == 0)
        return 0;
    if (errno == EPIPE)
        return 128 + SIGPIPE; /* who reads has seen enough */
    err_set(&err, CORDON_ERR_INTERNAL, "print", errno, "standard output");
    return cli_fail(&err);
}

int cli_parse(const struct cli_verb *verb, int argc, char **argv, struct options *ret_options,
              bool *ret_help, struct cordon_err *err)
{
    if (options_parse(argc, argv, verb->own, verb->n_own, verb->with_policy, ret_options, err) <
        0) {
        if (!err->hint[0])
            err_hint(err, "`cordon %s --help` lists the options", verb->name);
        return -1;
    }
    *ret_help = options_has(ret_options, CLI_OPT_HELP);
    return 0;
}

/* Descriptors 0 to 2 must exist, or a pipe of a guest could take their place. What is written to a
 * standard output that is not there fails as it would without one: a result that is lost is told.
 */
static void main_fill_stdio(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", fd == 1 ? O_RDONLY : O_RDWR);
}

static const struct cli_verb *main_find(const char *name)
{
    for (size_t i = 0; cli_verbs[i]; i++)
        if (str_eq(name, cli_verbs[i]->name))
            return cli_verbs[i];
    return NULL;
}

static int main_unknown(const char *name)
{
    struct cordon_err err;
    struct fields_near near = fields_near_start(name);
    for (size_t i = 0; cli_verbs[i]; i++)
        if (cli_verbs[i]->summary)
            fields_near_try(&near, cli_verbs[i]->name);
    err_set(&err, CORDON_ERR_USAGE, "usage", 0, "unknown verb '%.200s'", name);
    if (near.best)
        err_hint(&err, "did you mean `cordon %s`?", near.best);
    else
        err_hint(&err, "`cordon --help` lists the verbs");
    policy_err_clean(&err);
    return cli_fail(&err);
}

static int main_help(const char *name)
{
    const struct cli_verb *verb = name ? main_find(name) : NULL;
    if (!name)
        return cli_help();
    return verb ? cli_help_verb(verb) : main_unknown(name);
}

static int main_version(void)
{
    _cleanup_buf_ struct buf out = BUF_INIT(64);
    buf_printf(&out, "cordon %d.%d.%d\n", CORDON_VERSION_MAJOR, CORDON_VERSION_MINOR,
               CORDON_VERSION_PATCH);
    return cli_print(&out);
}

int main(int argc, char **argv)
{
    if (argc == 1 && str_eq(argv[0], PLAN_OCI_INIT))
        return oci_init_main(); /* pid 1 of a container of ours */
    native_main_argv = argv;
    libexec_is_command = true;
    main_fill_stdio();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ,
           SIG_IGN); /* a file that may not grow (ulimit -f) is an error like a full disk */
    signal(SIGCHLD, SIG_DFL); /* ignored by the caller it would take our children's ends from us */
    if (argc < 2) {
        fputs("Error: no verb was given\nHint: `cordon --help` lists the verbs\n", stderr);
        return CORDON_ERR_USAGE;
    }
    if (str_eq(argv[1], "--help") || str_eq(argv[1], "-h") || str_eq(argv[1], "help"))
        return main_help(argv[2]);
    if (str_eq(argv[1], "--version"))
        return main_version();
    const struct cli_verb *verb = main_find(argv[1]);
    return verb ? verb->run(argc - 1, argv + 1) : main_unknown(argv[1]);
}
