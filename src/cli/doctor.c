/* `cordon doctor [--json]`: what this host can enforce, what blocks the rest, the smallest fix. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/jsonw.h"
#include "base/util.h"
#include "host/doctor.h"

int cli_doctor(int argc, char **argv); /* entry of the table of verbs */

#define OUT_MAX (256 * 1024)
#define WRAP 100 /* columns */

static const char usage[] =
    "Usage: cordon doctor [--json]\n"
    "\n"
    "Shows what this host can enforce, what blocks the rest, and the smallest fix.\n"
    "Exits 0 when a default run is possible here, else 69.\n";

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

static void print_json(struct buf *out, const struct host_report *r)
{
    struct jsonw j = {.out = out};

    jsonw_open(&j, NULL, '{');
    jsonw_int(&j, "version", 1);
    jsonw_str(&j, "summary", r->summary);
    jsonw_str(&j, "tier", r->tier == HOST_TIER_NONE ? NULL : host_tier_name(r->tier));
    jsonw_bool(&j, "default_run", r->default_run);
    jsonw_bool(&j, "limits_exact", r->limits_exact);
    jsonw_str(&j, "fix", r->fix[0] ? r->fix : NULL);
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

static void print_text(struct buf *out, const struct host_report *r, bool tty)
{
    buf_printf(out, "%s%s%s\n", tty ? "\033[1m" : "", r->summary, tty ? "\033[0m" : "");
    if (r->fix[0]) {
        buf_str(out, "fix: ");
        print_wrapped(out, 5, r->fix);
    }
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

static int write_out(const struct buf *out)
{
    size_t done = 0;
    while (done < out->len) {
        ssize_t n = write(STDOUT_FILENO, out->data + done, out->len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        done += (size_t)n;
    }
    return 0;
}

static int print_error(const struct cordon_err *err, bool as_json)
{
    _cleanup_buf_ struct buf out = BUF_INIT(OUT_MAX);
    struct jsonw j = {.out = &out};

    fprintf(stderr, "Error: %s\n", err->message);
    if (err->hint[0])
        fprintf(stderr, "Hint: %s\n", err->hint);
    if (as_json) {
        jsonw_open(&j, NULL, '{');
        jsonw_int(&j, "version", 1);
        jsonw_str(&j, "summary", err->message);
        jsonw_null(&j, "tier");
        jsonw_bool(&j, "default_run", false);
        jsonw_bool(&j, "limits_exact", false);
        jsonw_str(&j, "fix", err->hint[0] ? err->hint : NULL);
        json_list(&j, "lost", NULL, 0);
        json_list(&j, "items", NULL, 0);
        jsonw_close(&j, '}');
        buf_char(&out, '\n');
        if (!out.failed && write_out(&out) < 0)
            return CORDON_ERR_INTERNAL;
    }
    return err->code;
}

int cli_doctor(int argc, char **argv)
{
    _cleanup_buf_ struct buf out = BUF_INIT(OUT_MAX);
    struct host_report report;
    struct cordon_err err;
    bool as_json = false;

    for (int i = 1; i < argc; i++) {
        if (str_eq(argv[i], "--json")) {
            as_json = true;
        } else if (str_eq(argv[i], "--help") || str_eq(argv[i], "-h")) {
            fputs(usage, stdout);
            return fflush(stdout) == 0 ? CORDON_OK : CORDON_ERR_INTERNAL;
        } else {
            fprintf(stderr, "Error: doctor: unexpected argument '%s'\n%s", argv[i], usage);
            return CORDON_ERR_USAGE;
        }
    }

    if (host_doctor(&report, &err) < 0)
        return print_error(&err, as_json);
    if (as_json)
        print_json(&out, &report);
    else
        print_text(&out, &report, isatty(STDOUT_FILENO));
    if (out.failed || write_out(&out) < 0) {
        fprintf(stderr, "Error: doctor: writing the report: %s\n",
                strerror(errno ? errno : ENOMEM));
        return CORDON_ERR_INTERNAL;
    }
    return report.default_run ? CORDON_OK : CORDON_ERR_HOST;
}
