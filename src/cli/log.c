/* The log of a run on stderr. Runs in the command, before the guest exists and after it is gone. */
#include "cli/log.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/utf8.h"
#include "base/util.h"
#include "cli/cli.h"
#include "plan/seccomp.h"

#define LOG_MAX (64 * 1024)
#define LOG_COMMAND_MAX 200 /* bytes of a command that are shown */
#define PREFIX "[SANDBOX] "

/* Names and arguments may hold anything; a line of the log stays one line, and nobody forges
 * another or talks to the terminal. */
static void log_escaped(struct buf *out, const char *text, size_t len)
{
    uint32_t code;
    for (const char *p = text, *end = text + len; p < end;) {
        size_t n = utf8_decode(p, end, &code);
        bool is_plain = n > 0 && utf8_is_harmless(code);
        n = n ? n : 1;
        for (size_t i = 0; i < n; i++)
            buf_printf(out, is_plain ? "%c" : "\\x%02x", (unsigned char)p[i]);
        p += n;
    }
}

static void log_word(struct buf *out, const char *text)
{
    log_escaped(out, text, strlen(text));
}

static void log_limit(struct buf *out, const char *title, const struct policy *policy,
                      enum field_id id)
{
    buf_printf(out, PREFIX "%s: ", title);
    log_word(out, policy_has(policy, id) && policy_num(policy, id) ? policy_written(policy, id)
                                                                   : "none");
    buf_char(out, '\n');
}

/* Appends the items of a list after "what ", separated like those before it. */
static void log_items(struct buf *out, bool *any, const char *what, const struct policy_value *v)
{
    for (size_t i = 0; i < v->n_items; i++) {
        buf_str(out, *any ? ", " : "");
        buf_str(out, what);
        log_word(out, v->items[i].written);
        *any = true;
    }
}

static void log_one(struct buf *out, bool *any, const char *what, const char *word)
{
    buf_str(out, *any ? ", " : "");
    buf_str(out, what);
    log_word(out, word);
    *any = true;
}

static void log_rules(struct buf *out, const struct policy *p)
{
    const struct policy_value *all = policy_value(p, FIELD_ALLOW_NETWORK);
    uint64_t mode = policy_num(p, FIELD_NETWORK);
    bool any = false;
    buf_str(out, PREFIX "Network: ");
    if (mode == NETWORK_HOST)
        log_one(out, &any, "", "host");
    else if (mode == NETWORK_BRIDGE || (all->set && all->num))
        log_one(out, &any, "", "every public address");
    log_items(out, &any, "", all);
    log_items(out, &any, "", policy_value(p, FIELD_ALLOW_DOMAINS));
    log_items(out, &any, "", policy_value(p, FIELD_ALLOW_PATTERNS));
    log_items(out, &any, "host port ", policy_value(p, FIELD_ALLOW_HOST_PORT));
    log_items(out, &any, "publish ", policy_value(p, FIELD_PUBLISH));
    if (any)
        log_items(out, &any, "not ", policy_value(p, FIELD_DENY_NETWORK));
    buf_str(out, any ? "\n" : "denied\n");
}

static void log_files(struct buf *out, const struct policy *p)
{
    const struct policy_value *ws = policy_value(p, FIELD_WORKSPACE);
    bool virtual_fs = policy_bool(p, FIELD_VIRTUAL_FS);
    bool any = false;
    buf_str(out, PREFIX "Filesystem: ");
    if (!virtual_fs) {
        log_items(out, &any, "read ", policy_value(p, FIELD_ALLOW_READ));
        log_items(out, &any, "write ", policy_value(p, FIELD_ALLOW_WRITE));
    }
    log_items(out, &any, "mount ", policy_value(p, FIELD_MOUNTS));
    if (ws->set && ws->num != WORKSPACE_NONE)
        log_one(out, &any, "workspace ", ws->written);
    if (any)
        log_items(out, &any, "not ", policy_value(p, FIELD_DENY_PATTERNS));
    buf_str(out, any ? "\n" : "read-only\n");
}

static void log_command(struct buf *out, char *const *argv)
{
    size_t left = LOG_COMMAND_MAX;
    buf_str(out, PREFIX "Running:");
    for (size_t i = 0; argv[i]; i++) {
        size_t len = strlen(argv[i]);
        buf_char(out, ' ');
        log_escaped(out, argv[i], MIN(len, left));
        if (len >= left) {
            buf_str(out, "...");
            break;
        }
        left -= len;
    }
    buf_char(out, '\n');
}

void log_begin_text(enum log_level level, const struct policy *policy, char *const *argv,
                    struct buf *out)
{
    if (level != LOG_VERBOSE)
        return;
    buf_str(out, PREFIX "Starting with profile: ");
    log_word(out, policy->profile);
    buf_char(out, '\n');
    log_limit(out, "Time limit", policy, FIELD_TIME_LIMIT);
    log_limit(out, "Memory limit", policy, FIELD_MEMORY_LIMIT);
    log_rules(out, policy);
    log_files(out, policy);
    log_command(out, argv);
}

void log_network_text(enum log_level level, const struct policy *policy,
                      const struct netwire_record *record, struct buf *out)
{
    bool all = policy_bool(policy, FIELD_LOG_NETWORK);
    if (!all && (level != LOG_VERBOSE || record->verdict != NETWIRE_REFUSED))
        return;
    buf_str(out, PREFIX);
    /* a refused one is the same line whoever asked for it: scripts look for it */
    netlog_line(record, all && record->verdict != NETWIRE_REFUSED, out);
    buf_char(out, '\n');
}

static void log_size(struct buf *out, uint64_t bytes)
{
    static const char units[] = "MGT";
    double value = (double)bytes / (1024 * 1024);
    size_t unit = 0;
    while (value >= 1024 && units[unit + 1]) {
        value /= 1024;
        unit++;
    }
    buf_printf(out, "%.1f%c", value, units[unit]);
}

static void log_usage(struct buf *out, const struct policy *policy, const struct result *r)
{
    uint64_t cpu_ns = r->usage.cpu_user_ns + r->usage.cpu_sys_ns;
    uint64_t cpu_limit = policy_num(policy, FIELD_CPU_TIME);
    uint64_t memory_limit = policy_num(policy, FIELD_MEMORY_LIMIT);
    if (!cpu_limit)
        cpu_limit = policy_num(policy, FIELD_TIME_LIMIT);

    buf_printf(out, PREFIX "CPU time: %.3fs", (double)cpu_ns / 1e9);
    if (cpu_limit)
        buf_printf(out, " (%.1f%%)", 100.0 * (double)cpu_ns / (double)cpu_limit);
    buf_str(out, "\n" PREFIX "Memory: ");
    log_size(out, r->usage.peak_memory_bytes);
    if (memory_limit)
        buf_printf(out, " (%.0f%%)",
                   100.0 * (double)r->usage.peak_memory_bytes / (double)memory_limit);
    buf_char(out, '\n');
}

static void log_denials(struct buf *out, const struct backend_outcome *o)
{
    for (size_t i = 0; i < o->n_denials; i++) {
        const struct backend_denial *d = &o->denials[i];
        const char *name = d->nr >= 0 ? seccomp_call_name(d->nr) : NULL;
        buf_printf(out, PREFIX "System call blocked: %s", name ? name : "unknown");
        if (d->count > 1)
            buf_printf(out, " (%u times)", d->count);
        buf_char(out, '\n');
    }
    if (o->denials_unobserved)
        buf_str(out,
                PREFIX "System calls blocked: not observed (another filter listens already)\n");
}

/* A guest at a level's own percentage was promised no more; one that was given a number of the
 * caller's should hear that it was used up. */
static void log_throttled(struct buf *out, const struct policy *policy, const struct result *r)
{
    const struct policy_value *v = policy_value(policy, FIELD_CPU_LIMIT);
    if (r->usage.throttled_ns && v->set && v->num && v->origin.source != FROM_BUILTIN)
        buf_printf(out, "Warning: CPU usage throttled to %s%%\n", v->written);
}

void log_end_text(enum log_level level, const struct policy *policy, const struct result *result,
                  const char *hint, struct buf *out)
{
    bool ours = result->verdict == VERDICT_SANDBOX_ERROR || result->verdict == VERDICT_REJECTED;
    bool ran = result->outcome && result->outcome->started_ns;

    if (level == LOG_QUIET && !ours)
        return;
    if (level != LOG_QUIET && ran)
        log_throttled(out, policy, result);
    if (result->error[0]) {
        buf_str(out, "Error: ");
        log_word(out, result->error);
        buf_char(out, '\n');
    }
    if (hint[0]) {
        buf_str(out, "Hint: ");
        log_word(out, hint);
        buf_char(out, '\n');
    }
    if (level != LOG_VERBOSE)
        return;
    if (ran) {
        log_denials(out, result->outcome);
        log_usage(out, policy, result);
    }
    buf_printf(out, PREFIX "Exit: %d\n", result->exit_code);
}

void log_begin(enum log_level level, const struct policy *policy, char *const *argv)
{
    _cleanup_buf_ struct buf text = BUF_INIT(LOG_MAX);
    log_begin_text(level, policy, argv, &text);
    if (text.len > 0)
        (void)cli_write(STDERR_FILENO, text.data, text.len);
}

static void log_cuts(enum log_level level, const struct policy *policy, const struct result *result,
                     struct buf *out)
{
    if (level == LOG_QUIET || result->verdict == VERDICT_OUTPUT_LIMIT)
        return;
    for (int i = 0; i < 2; i++)
        if (result->out[i].truncated)
            buf_printf(out, "Warning: standard %s was cut at %s (--max-output)\n",
                       i == 0 ? "output" : "error", policy->values[FIELD_MAX_OUTPUT].written);
}

void log_end(enum log_level level, const struct policy *policy, const struct result *result,
             const char *hint, bool tells_cuts)
{
    _cleanup_buf_ struct buf text = BUF_INIT(LOG_MAX);
    if (result->out[1].in_line)
        buf_char(&text, '\n');
    size_t begin = text.len;
    if (tells_cuts)
        log_cuts(level, policy, result, &text);
    log_end_text(level, policy, result, hint, &text);
    if (text.len > begin)
        (void)cli_write(STDERR_FILENO, text.data, text.len);
}

const char *log_not_found(const struct result *result, char ret_hint[static LOG_HINT_MAX])
{
    const char *name = result->plan ? result->plan->command : NULL;
    const char *slash = name ? strrchr(name, '/') : NULL;
    if (result->exit_code != RESULT_NOT_FOUND || !result->error[0] || !slash ||
        access(name, X_OK) < 0)
        return "";
    if (name[0] == '/')
        snprintf(ret_hint, LOG_HINT_MAX,
                 "it is on this host, but not in the guest: --file %.200s=%.200s -- ./%.200s",
                 slash + 1, name, slash + 1);
    else
        snprintf(ret_hint, LOG_HINT_MAX,
                 "it is in this folder, but not in the guest's: --file %.200s=%.200s, or "
                 "--workspace .",
                 slash + 1, name);
    return ret_hint;
}
