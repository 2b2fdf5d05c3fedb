/* `cordon doctor [--json]`: what this host can enforce, what blocks the rest, the smallest fix. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend/native/cgroup.h"
#include "base/err.h"
#include "base/jsonw.h"
#include "base/util.h"
#include "cli/cli.h"
#include "host/doctor.h"

#define OUT_MAX (256 * 1024)
#define WRAP 100 /* columns */

enum { OPT_JSON };

static const struct options_own doctor_options[] = {
    {"json", 0, OPTIONS_NONE, OPT_JSON, NULL, "print the findings as JSON"},
    CLI_HELP_ROW,
};

static void json_list(struct jsonw *j, const char *key, const char *const *words, size_t n)
{
    jsonw_open(j, key, '[');
    for (size_t i = 0; i < n; i++)
        jsonw_str(j, NULL, words[i]);
    jsonw_close(j, ']');
}

static void json_items(struct jsonw *j, const struct host_report *r)
{
    jsonw_open(j, "items", '[');
    for (size_t i = 0; i < r->n_items; i++) {
        const struct host_item *item = &r->items[i];
        jsonw_open(j, NULL, '{');
        jsonw_str(j, "name", item->name);
        jsonw_str(j, "state", host_state_name(item->state));
        jsonw_str(j, "needed_for", host_need_name(item->need));
        jsonw_bool(j, "required", item->required);
        jsonw_str(j, "detail", item->detail[0] ? item->detail : NULL);
        jsonw_str(j, "fix", item->fix[0] ? item->fix : NULL);
        jsonw_close(j, '}');
    }
    jsonw_close(j, ']');
}

static void print_json(struct buf *out, const struct host_report *r, int removed)
{
    struct jsonw j = {.out = out};

    jsonw_open(&j, NULL, '{');
    jsonw_int(&j, "version", 1);
    jsonw_str(&j, "summary", r->summary);
    jsonw_str(&j, "tier", r->tier == HOST_TIER_NONE ? NULL : host_tier_name(r->tier));
    jsonw_bool(&j, "default_run", r->default_run);
    jsonw_bool(&j, "limits_exact", r->limits_exact);
    jsonw_str(&j, "fix", r->fix[0] ? r->fix : NULL);
    jsonw_int(&j, "removed_groups", removed);
    json_list(&j, "lost", r->lost, r->n_lost);
    json_items(&j, r);
    jsonw_ms(&j, "took_ms", r->took_ns);
    jsonw_close(&j, '}');
    buf_char(out, '\n');
}

/* Text in columns from `indent` on; breaks at blanks, never inside a word. */
static void print_wrapped(struct buf *out, size_t indent, const char *text)
{
    size_t column = indent;

    while (*text) {
        size_t word = strcspn(text, " ");
        if (column > indent && column + 1 + word > WRAP) {
            buf_printf(out, "\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            buf_char(out, ' ');
            column++;
        }
        buf_add(out, text, word);
        column += word;
        text += word;
        text += strspn(text, " ");
    }
    buf_char(out, '\n');
}

static const char *colour(const struct host_item *item, bool tty)
{
    if (!tty)
        return "";
    return item->state == HOST_WORKS ? "\033[32m" : item->required ? "\033[31m" : "\033[33m";
}

static void print_item(struct buf *out, const struct host_item *item, bool tty)
{
    const char *state = host_state_name(item->state), *end = tty ? "\033[0m" : "";

    buf_printf(out, "  %-23s %s%s%s", item->title, colour(item, tty), state, end);
    if (item->detail[0]) {
        buf_printf(out, "%*s", (int)(11 - strlen(state)), "");
        print_wrapped(out, 37, item->detail);
    } else {
        buf_char(out, '\n');
    }
    if (item->fix[0]) {
        buf_printf(out, "%*sfix: ", 37, "");
        print_wrapped(out, 42, item->fix);
    }
}

static void print_text(struct buf *out, const struct host_report *r, int removed, bool tty)
{
    buf_printf(out, "%s%s%s\n", tty ? "\033[1m" : "", r->summary, tty ? "\033[0m" : "");
    if (r->fix[0]) {
        buf_str(out, "fix: ");
        print_wrapped(out, 5, r->fix);
    }
    if (removed > 0)
        buf_printf(out, "removed: %d control group%s left by a Cordon that was killed\n", removed,
                   removed == 1 ? "" : "s");
    for (size_t i = 0; i < r->n_lost; i++)
        buf_printf(out, "%s%s\n", i == 0 ? "lost: " : "      ", r->lost[i]);

    for (int need = 0; need < HOST_NEED_COUNT; need++) {
        buf_printf(out, "\n%s\n", host_need_name((enum host_need)need));
        for (size_t i = 0; i < r->n_items; i++) {
            if (r->items[i].need == (enum host_need)need)
                print_item(out, &r->items[i], tty);
        }
    }
}

static int print_error(const struct cordon_err *err, bool as_json)
{
    _cleanup_buf_ struct buf out = BUF_INIT(OUT_MAX);
    struct jsonw j = {.out = &out};

    cli_fail(err);
    if (as_json) {
        jsonw_open(&j, NULL, '{');
        jsonw_int(&j, "version", 1);
        jsonw_str(&j, "summary", err->message);
        jsonw_null(&j, "tier");
        jsonw_bool(&j, "default_run", false);
        jsonw_bool(&j, "limits_exact", false);
        jsonw_str(&j, "fix", err->hint[0] ? err->hint : NULL);
        jsonw_int(&j, "removed_groups", 0);
        json_list(&j, "lost", NULL, 0);
        json_list(&j, "items", NULL, 0);
        jsonw_close(&j, '}');
        buf_char(&out, '\n');
        int status = cli_print(&out);
        if (status)
            return status;
    }
    return err->code;
}

static int doctor_run(int argc, char **argv)
{
    _cleanup_buf_ struct buf out = BUF_INIT(OUT_MAX);
    struct host_report report;
    struct cordon_err err = {0};
    struct options options;
    bool help;

    if (cli_parse(&cli_verb_doctor, argc, argv, &options, &help, &err) < 0)
        return cli_fail(&err);
    bool as_json = options_has(&options, OPT_JSON);
    bool extra = options.argc > 0;
    if (extra) {
        err_set(&err, CORDON_ERR_USAGE, "usage", 0, "doctor: unexpected argument '%.200s'",
                options.argv[0]);
        policy_err_clean(&err);
    }
    options_done(&options);
    if (help)
        return cli_help_verb(&cli_verb_doctor);
    if (extra)
        return cli_fail(&err);

    if (host_doctor(&report, &err) < 0)
        return print_error(&err, as_json);
    int removed = cgroup_gc_everywhere(&report.host.cgroups);
    if (as_json)
        print_json(&out, &report, removed);
    else
        print_text(&out, &report, removed, isatty(STDOUT_FILENO));
    int status = cli_print(&out);
    if (status)
        return status;
    return report.default_run ? CORDON_OK : CORDON_ERR_HOST;
}

const struct cli_verb cli_verb_doctor = {
    .name = "doctor",
    .usage = "[--json]",
    .summary = "what this host can enforce, what blocks the rest, the smallest fix",
    .own = doctor_options,
    .n_own = ARRAY_SIZE(doctor_options),
    .details =
        "Exits 0 when a default run is possible here, else 69. Control groups that a Cordon left\n"
        "behind when it was killed are removed, and their number is said.\n",
    .run = doctor_run,
};
