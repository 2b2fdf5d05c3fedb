/* `cordon run`: the command is itself the supervisor of its one guest. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/loop.h"
#include "base/util.h"
#include "cli/answer.h"
#include "cli/cli.h"
#include "cli/log.h"
#include "cli/log_queue.h"
#include "cli/run.h"
#include "cli/terminal.h"
#include "host/host.h"
#include "lang/guard.h"
#include "lang/load.h"
#include "lang/source.h"
#include "policy/fields.h"
#include "policy/options.h"
#include "run/run.h"

extern char **environ;

static const struct options_own run_options[] = {
    CLI_LANGUAGE_ROW,
    CLI_RUN_ROWS,
    CLI_HELP_ROW,
};

int cli_run_environ(struct options *options, struct cordon_err *err)
{
    static const struct options_own rows[] = {CLI_LANGUAGE_ROW, CLI_RUN_ROWS};
    return options_environ(options, rows, ARRAY_SIZE(rows), environ, err);
}

struct run_cli {
    struct options options;
    struct policy *policy;
    struct loop loop;
    struct run_job job;
    bool is_source;
    struct lang_source source;
    struct lang_job *lang; /* large, and of source text only */
    char *text;            /* of the source, from standard input */
    struct arena arena;
    struct policy venv_policy; /* borrows from policy and arena */
    struct loop_watch signals;
    int signal_fd;
    bool is_interactive;
    struct terminal terminal;
    struct cli_run_in *in; /* NULL: a run by itself */
    bool done;
    struct answer answer;
    int stdin_fd;
    enum log_level log;
    struct log_queue lines;
};

static void cli_done(struct run_cli *c)
{
    terminal_leave(&c->terminal);
    log_queue_end(&c->lines);
    run_done(&c->job);
    if (c->lang)
        lang_done(c->lang);
    free(c->lang);
    free(c->text);
    arena_done(&c->arena);
    policy_free(c->policy);
    options_done(&c->options);
    util_close(&c->signal_fd);
    answer_close(&c->answer);
    if (c->stdin_fd > 2)
        util_close(&c->stdin_fd);
    loop_done(&c->loop);
    run_settle(); /* last: until here the kernel took the guest's namespaces apart beside us */
}

static void cli_on_done(struct run_job *job)
{
    ((struct run_cli *)job->data)->done = true;
}

static void cli_on_network(void *data, const struct netwire_record *record)
{
    struct run_cli *c = ((struct run_job *)data)->data;
    _cleanup_buf_ struct buf line = BUF_INIT(4096);
    log_network_text(c->log, c->policy, record, &line);
    if (line.len > 0)
        log_queue_add(&c->lines, &c->loop, line.data, line.len);
}

/* The kernel tells the guest's foreground processes. */
static void cli_resize(struct run_cli *c)
{
    struct winsize size = {0};
    terminal_size(&size.ws_row, &size.ws_col);
    if (c->job.running && size.ws_row && size.ws_col)
        (void)ioctl(c->job.supervised.guest.stdio[1], TIOCSWINSZ, &size);
}

static void cli_on_signal(struct loop_watch *w, uint32_t events)
{
    (void)events;
    struct run_cli *c = w->data;
    struct signalfd_siginfo info;
    if (read(c->signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
        return;
    if (info.ssi_signo == SIGWINCH) {
        cli_resize(c);
        return;
    }
    if (c->is_source)
        lang_cancel(c->lang);
    else
        run_cancel(&c->job);
}

/* Everything the caller named is opened before the guest exists: a typo costs nothing. */
static int cli_open(struct run_cli *c, struct cordon_err *err)
{
    const char *in = options_get(&c->options, OPT_STDIN);
    struct stat st;
    if (answer_open(&c->answer, &c->options, err) < 0)
        return -1;
    c->stdin_fd = 0;
    if (in && (c->stdin_fd = open(in, O_RDONLY | O_CLOEXEC | O_NOCTTY)) < 0)
        return answer_refuse(&c->options, OPT_STDIN, "stdin", in, errno, "", err);
    if (in && fstat(c->stdin_fd, &st) == 0 && S_ISDIR(st.st_mode))
        return answer_refuse(&c->options, OPT_STDIN, "stdin", in, EISDIR, "", err);
    return 0;
}

/* From here on they wait until the guest has been started, and are seen to then. */
static void cli_hold_signals(const struct run_cli *c, sigset_t *ret_set)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGQUIT);
    if (c->is_interactive)
        sigaddset(&set, SIGWINCH);
    sigprocmask(SIG_BLOCK, &set, NULL);
    *ret_set = set;
}

static int cli_watch_signals(struct run_cli *c, const sigset_t *set, struct cordon_err *err)
{
    c->signal_fd = signalfd(-1, set, SFD_CLOEXEC | SFD_NONBLOCK);
    c->signals = (struct loop_watch){.fd = c->signal_fd, .fn = cli_on_signal, .data = c};
    if (c->signal_fd < 0 || loop_set(&c->loop, &c->signals, EPOLLIN) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "start", errno, "signals");
    return 0;
}

/* The line, the configuration or a named file is wrong: whoever reads results gets one of that,
 * too, where the line could be read that far. */
static int cli_refused(struct run_cli *c, const struct cordon_err *err)
{
    answer_open_what_can(&c->answer, &c->options);
    cli_fail(err);
    result_from_error(&c->job.result, err);
    return answer_write(&c->answer, &c->job.result);
}

static int cli_report(struct run_cli *c, const char *hint)
{
    const struct result *r = &c->job.result;
    int status = answer_write(&c->answer, r);
    log_queue_end(&c->lines); /* may wait for a reader, which the result must not */
    /* a reader that went away has had what it wanted */
    for (int i = 0; i < 2; i++)
        if (r->out[i].lost_errno && r->out[i].lost_errno != EPIPE) {
            fprintf(stderr, "Error: standard %s could not be written: %s\n",
                    i == 0 ? "output" : "error", strerror(r->out[i].lost_errno));
            status = CORDON_ERR_INTERNAL;
        }
    char found[LOG_HINT_MAX];
    log_end(c->log, c->policy, r, hint[0] ? hint : log_not_found(r, found), !c->answer.json);
    return status;
}

/* What a compiler says is shown when it fails; a program that runs speaks for itself. */
static void cli_show_diagnostics(struct run_cli *c)
{
    const struct result *r = &c->job.result;
    if (c->answer.json || !r->stage || !str_eq(r->stage, "compile"))
        return;
    const struct result_stream *s = &r->out[1];
    _cleanup_free_ char *text = s->len ? malloc(s->len) : NULL;
    if (!text)
        return;
    memcpy(text, s->data, s->len);
    (void)cli_write(STDERR_FILENO, text,
                    isatty(STDERR_FILENO) ? stream_plain(text, s->len) : s->len);
}

/* Asked for, and nobody looks: a command, or another language. */
static void cli_tell_unguarded(const struct run_cli *c)
{
    const char *option = lang_guard_option(c->policy);
    bool is_python = c->is_source && c->lang->lang && str_eq(c->lang->lang->name, "python");
    if (option && !is_python && c->log != LOG_QUIET)
        fprintf(stderr, "Warning: --%s is for Python source text: nobody looks at imports here\n",
                option);
}

/* No result, no line of the log and no limit is about CPU time; without a group for shares the
 * percentage is held by looking at it. */
static bool cli_is_unread(const struct run_cli *c)
{
    return !answer_is_wanted(&c->answer) && !c->in && c->log != LOG_VERBOSE &&
           policy_num(c->policy, FIELD_CPU_TIME) == 0 &&
           (c->job.host.cgroups.cpu[0] || policy_num(c->policy, FIELD_CPU_LIMIT) == 0) &&
           policy_num(c->policy, FIELD_BACKEND) == BACKEND_NATIVE;
}

static int cli_run_job(struct run_cli *c, struct cordon_err *err)
{
    bool kept = answer_is_wanted(&c->answer);
    sigset_t signals;
    loop_init_late(&c->loop);
    cli_hold_signals(c, &signals);
    c->job.loop = &c->loop;
    c->job.policy = c->policy;
    c->job.argv = c->options.argv;
    c->job.vars = environ;
    c->job.has_descriptors = true;
    c->job.workspace = c->in ? c->in->workspace : NULL;
    c->job.on_done = cli_on_done;
    c->job.data = c;
    c->job.options = (struct supervise_options){
        .sinks = {c->answer.json ? -1 : 1, c->answer.json ? -1 : 2},
        .keep_output = kept,
        .keep_escapes = c->is_interactive,
        .is_last = !c->in,
        .is_brief = !c->in && !c->is_source && !c->is_interactive,
        .stdin_fd = c->stdin_fd,
        .on_network = cli_on_network,
    };
    c->job.terminal = c->is_interactive;
    if (c->is_interactive)
        terminal_size(&c->job.rows, &c->job.columns);
    log_begin(c->log, c->policy, c->options.argv);
    if (host_probe_quick(&c->job.host, err) < 0)
        return -1;
    c->job.host.cgroups.unread = cli_is_unread(c);
    if (!policy_has(c->policy, FIELD_CGROUP) &&
        policy_num(c->policy, FIELD_BACKEND) == BACKEND_NATIVE)
        host_scope_join(&c->job.host.cgroups);
    if (!c->is_source && policy_has(c->policy, FIELD_VENV)) {
        if (lang_venv(c->policy, environ, &c->arena, &c->venv_policy, err) < 0)
            return -1;
        c->job.policy = &c->venv_policy;
    }
    if ((c->is_source ? lang_start(c->lang, &c->source, &c->job, err) : run_start(&c->job, err)) <
        0)
        return -1;
    cli_tell_unguarded(c);
    if (!c->done && cli_watch_signals(c, &signals, err) < 0)
        return -1;
    while (!c->done) {
        /* not before the guest's own start: until then Ctrl-C is for us */
        if (c->is_interactive && c->job.running && !c->terminal.raw &&
            terminal_enter(&c->terminal, err) < 0)
            return -1;
        if (loop_once(&c->loop, -1) < 0)
            return err_set(err, CORDON_ERR_INTERNAL, "supervise", errno, "event loop");
    }
    return 0;
}

static int cli_source(struct run_cli *c, struct cordon_err *err)
{
    const char *file = c->options.argv[0];
    c->lang = calloc(1, sizeof(*c->lang));
    if (!c->lang)
        return err_nomem(err, "source");
    c->source = (struct lang_source){.language = options_get(&c->options, OPT_LANGUAGE),
                                     .path = file,
                                     .args = c->options.argv + 1,
                                     .vars = environ};
    if (!str_eq(file, "-"))
        return 0;
    c->source.path = NULL;
    if (!c->source.language) {
        err_set(err, CORDON_ERR_USAGE, "options", 0,
                "source text from standard input needs --language");
        return err_hint(err, "cordon run --language python -");
    }
    if (lang_load_file("-", LANG_SOURCE_MAX, &c->text, &c->source.len, err) < 0)
        return -1;
    c->source.text = c->text;
    if (c->stdin_fd == 0)
        c->stdin_fd = -1; /* the text was all there is */
    return 0;
}

/* In a workspace the tree is given; what the line says about one does not count. A terminal's kind
 * goes with it; what the line says about that does count. */
static int cli_resolve(struct run_cli *c, struct cordon_err *err)
{
    struct policy_input input = options_input(&c->options, environ);
    bool has_kind = c->is_interactive && getenv("TERM");
    input.test = c->in && c->in->is_test;
    if (!(c->in && c->in->base) && !has_kind)
        return policy_resolve(&input, &c->policy, err);
    _cleanup_free_ struct policy_setting *settings =
        calloc(input.n_settings + 2, sizeof(*settings));
    _cleanup_buf_ struct buf value = BUF_INIT(8192);
    buf_printf(&value, "%s:overlay", c->in && c->in->base ? c->in->base : "");
    if (!settings || value.failed)
        return err_nomem(err, "policy");
    size_t n = 0;
    if (has_kind)
        settings[n++] = (struct policy_setting){.name = "env", .value = "TERM"};
    for (size_t i = 0; i < input.n_settings; i++)
        settings[n++] = input.settings[i];
    if (c->in && c->in->base)
        settings[n++] = (struct policy_setting){.name = "workspace", .value = value.data};
    input.settings = settings;
    input.n_settings = n;
    return policy_resolve(&input, &c->policy, err);
}

/* A folder that is used as it is needs no keeping. */
static int cli_check_keep(const struct run_cli *c, struct cordon_err *err)
{
    const struct policy_value *keep = policy_value(c->policy, FIELD_KEEP),
                              *w = policy_value(c->policy, FIELD_WORKSPACE);
    if (!keep->num || keep->origin.source != FROM_COMMAND || c->in ||
        (w->set && w->num == WORKSPACE_OVERLAY))
        return 0;
    err_set(err, CORDON_ERR_USAGE, "options", 0, "--keep: there is no workspace to be kept");
    return err_hint(err, "--workspace DIR, which is DIR:overlay");
}

static int cli_check_terminal(struct run_cli *c, struct cordon_err *err)
{
    bool by_variable =
        options_is_variable(&c->options, options_has(&c->options, OPT_JSON) ? OPT_JSON : OPT_STDIN);
    const char *other =
        options_has(&c->options, OPT_JSON)                ? by_variable ? "CORDON_JSON" : "--json"
        : options_has(&c->options, OPT_STDIN)             ? by_variable ? "CORDON_STDIN" : "--stdin"
        : c->is_source && str_eq(c->options.argv[0], "-") ? "source text from standard input"
                                                          : NULL;
    return other
               ? err_set(err, CORDON_ERR_USAGE, "options", 0, "-i and %s exclude each other", other)
               : 0;
}

static int cli_prepare(struct run_cli *c, struct cordon_err *err)
{
    if (c->options.argc == 0) {
        err_set(err, CORDON_ERR_USAGE, "options", 0, "nothing to run");
        return err_hint(err, "cordon run %s", cli_verb_run.usage);
    }
    c->is_source = !c->options.has_dashes;
    if (!c->is_source && options_has(&c->options, OPT_LANGUAGE))
        return err_set(err, CORDON_ERR_USAGE, "options", 0,
                       "--language is for source text; after -- stands a command");
    if (cli_run_environ(&c->options, err) < 0)
        return -1;
    c->is_interactive = options_has(&c->options, OPT_TERMINAL);
    if (c->is_interactive && (terminal_check(err) < 0 || cli_check_terminal(c, err) < 0))
        return -1;
    if (cli_resolve(c, err) < 0 || cli_check_keep(c, err) < 0)
        return -1;
    c->log = (enum log_level)policy_num(c->policy, FIELD_LOG);
    if (cli_open(c, err) < 0)
        return -1;
    return c->is_source ? cli_source(c, err) : 0;
}

static struct run_cli *cli_new(struct cli_run_in *in)
{
    struct run_cli *c = calloc(1, sizeof(*c)); /* mostly untouched: too large to be cleared */
    if (!c)
        return NULL;
    c->in = in;
    c->terminal = TERMINAL_INIT;
    c->signal_fd = c->stdin_fd = -1;
    c->answer = ANSWER_NONE;
    c->lines = (struct log_queue)LOG_QUEUE_INIT;
    c->loop.epoll_fd = -1;
    return c;
}

/* One that is there already and another one cannot both be it. */
static int cli_check_workspace(const struct run_cli *c, const struct cli_run_in *in,
                               struct cordon_err *err)
{
    for (size_t i = 0; in && in->base && i < c->options.n_settings; i++)
        if (str_eq(c->options.settings[i].name, "workspace"))
            return err_set(err, CORDON_ERR_USAGE, "options", 0,
                           "--workspace does not go with workspace run, which has one");
    return 0;
}

int cli_run_in(struct cli_run_in *in, int argc, char **argv)
{
    struct cordon_err err = {0};
    bool help = false;
    int status;

    /* secrets of the caller may be in our arguments and environment: no neighbour of the same user
     * may read them from our memory, and no guest that got out of its namespace either */
    prctl(PR_SET_DUMPABLE, 0);
    const struct cli_verb *verb = in && in->verb ? in->verb : &cli_verb_run;
    struct run_cli *c = cli_new(in);
    if (!c) {
        err_nomem(&err, "run");
        return cli_fail(&err);
    }
    if (cli_parse(verb, argc, argv, &c->options, &help, &err) < 0) {
        answer_guess(&c->answer, argv);
        status = cli_refused(c, &err);
    } else if (help) {
        status = cli_help_verb(verb);
    } else if (cli_check_workspace(c, in, &err) < 0 || cli_prepare(c, &err) < 0) {
        status = cli_refused(c, &err);
    } else if (cli_run_job(c, &err) < 0) {
        terminal_leave(&c->terminal); /* before anything is said */
        result_from_error(&c->job.result, &err);
        cli_report(c, err.hint);
        status = err.code;
    } else {
        terminal_leave(&c->terminal);
        bool failed = c->job.result.verdict == VERDICT_SANDBOX_ERROR;
        if (in && !failed)
            in->on_result(in, &c->job);
        cli_show_diagnostics(c);
        status = cli_report(c, failed ? c->job.supervised.err.hint : "");
    }
    cli_done(c);
    free(c);
    return status;
}

int cli_run_refused(const struct cli_verb *verb, int argc, char **argv,
                    const struct cordon_err *err)
{
    struct cordon_err ignored;
    bool help;
    struct run_cli *c = cli_new(NULL);
    if (!c)
        return cli_fail(err);
    if (cli_parse(verb, argc, argv, &c->options, &help, &ignored) < 0)
        answer_guess(&c->answer, argv);
    else
        (void)cli_run_environ(&c->options, &ignored);
    int status = cli_refused(c, err);
    cli_done(c);
    free(c);
    return status;
}

static int run_main(int argc, char **argv)
{
    return cli_run_in(NULL, argc, argv);
}

const struct cli_verb cli_verb_run = {
    .name = "run",
    .usage = "[options] FILE [ARG...] | -- CMD [ARG...]",
    .summary = "run a source file, source text from standard input (-) or a command",
    .own = run_options,
    .n_own = ARRAY_SIZE(run_options),
    .with_policy = true,
    .details =
        "exit status: the guest's own; 128+N killed by signal N; 124 time limit; 125 memory\n"
        "limit; 122 another limit; 126 cannot be executed; 127 not found. Cordon's own: 64\n"
        "usage, 78 configuration, 69 this host cannot build the wall asked for, 70 internal\n"
        "error, 77 rejected before the start, 130 cancelled.\n",
    .run = run_main,
};
