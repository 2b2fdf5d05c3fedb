/* The report as one page of HTML that needs nothing else: no script, no font, no request. Pure.
 *
 * Its content policy forbids everything but the style in the page itself, so that a text that
 * should ever slip through unescaped still does nothing. */
#include <string.h>

#include "base/util.h"
#include "grade/report.h"
#include "workspace/diff.h"

#define DIFF_LINES_SHOWN 2000u

static const char html_head[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
    "'unsafe-inline'\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>";

static const char html_style[] =
    "</title>\n<style>\n"
    ":root{color-scheme:light dark;--line:#8884;--ok:#2a8a3e;--bad:#c92a2a;--ours:#9c36b5;"
    "--bar:#4c8dd6}\n"
    "body{font:15px/1.45 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}\n"
    "h1{font-size:1.3rem;margin:0 0 .3rem;overflow-wrap:anywhere}\n"
    "table{border-collapse:collapse;width:100%}\n"
    "th,td{text-align:left;padding:.35rem .6rem;border-bottom:1px solid var(--line);"
    "vertical-align:top}\n"
    "td.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}\n"
    "td.name{overflow-wrap:anywhere}\n"
    ".w{font-weight:600}.passed .w{color:var(--ok)}.failed .w{color:var(--bad)}"
    ".error .w{color:var(--ours)}.not_run,.skipped{opacity:.6}\n"
    ".bar{height:.35rem;background:var(--bar);border-radius:2px;margin-top:.2rem;min-width:1px}\n"
    "pre{margin:.4rem 0;padding:.5rem;border:1px solid var(--line);border-radius:4px;"
    "overflow:auto;max-height:30rem;white-space:pre-wrap;overflow-wrap:anywhere}\n"
    ".minus{background:#c92a2a26}.plus{background:#2a8a3e26}.at{opacity:.6}\n"
    "summary{cursor:pointer}.sum{margin:.2rem 0 1rem}\n"
    "</style></head><body>\n";

/* Control characters are shown by their pictures, so that what differs can be seen. */
static void html_text(const char *data, size_t len, struct buf *out)
{
    size_t used;
    for (size_t i = 0; i < len; i += used) {
        unsigned c = report_char(data + i, len - i, &used);
        if (report_entity(c, out))
            continue;
        if (c < 0x20 && c != '\n' && c != '\t')
            report_utf8(0x2400 + c, out);
        else if (c == 0x7f)
            report_utf8(0x2421, out);
        else if ((c >= 0x80 && c < 0xa0) || (c >= 0x202a && c <= 0x202e) ||
                 (c >= 0x2066 && c <= 0x2069) || c == 0xfffe || c == 0xffff)
            report_utf8(0xfffd, out);
        else
            report_utf8(c, out);
    }
}

static void html_str(const char *text, struct buf *out)
{
    html_text(text, strlen(text), out);
}

static void html_bar(uint64_t value, uint64_t max, struct buf *out)
{
    double percent = max ? 100.0 * (double)value / (double)max : 0;
    buf_printf(out, "<div class=\"bar\" style=\"width:%.1f%%\"></div>", MIN(percent, 100.0));
}

static void html_block(const char *title, const struct grade_bytes *b, struct buf *out)
{
    if (b->len == 0)
        return;
    buf_printf(out, "<div>%s%s</div><pre>", title, b->truncated ? " (cut)" : "");
    html_text(b->data, b->len, out);
    buf_str(out, "</pre>");
}

static void html_line(char sign, const struct diff_line *line, struct buf *out)
{
    size_t len = line->len;
    bool whole = len > 0 && line->data[len - 1] == '\n';
    buf_printf(out, "<span class=\"%s\">%c ",
               sign == '-'   ? "minus"
               : sign == '+' ? "plus"
                             : "same",
               sign);
    html_text(line->data, len - whole, out);
    buf_printf(out, "%s\n</span>", whole ? "" : " [no line end]");
}

/* Both sides line by line: what was expected and is missing, what was written instead. */
static void html_diff(const struct grade_test *t, struct buf *out)
{
    struct diff diff;
    struct cordon_err err;
    size_t shown = 0;
    if (diff_make(t->expected.data ? t->expected.data : "", t->expected.len,
                  t->out.data ? t->out.data : "", t->out.len, &diff, &err) < 0)
        return;
    buf_str(out, "<div>- expected, + written</div><pre class=\"diff\">");
    for (size_t i = 0, k = 0; (i < diff.a.n || k < diff.b.n) && shown < DIFF_LINES_SHOWN; shown++) {
        if (i < diff.a.n && diff.a.changed[i])
            html_line('-', &diff.a.lines[i++], out);
        else if (k < diff.b.n && diff.b.changed[k])
            html_line('+', &diff.b.lines[k++], out);
        else {
            html_line(' ', &diff.a.lines[i++], out);
            k++;
        }
    }
    if (shown == DIFF_LINES_SHOWN || t->out.truncated || t->expected.truncated)
        buf_str(out, "<span class=\"at\">[cut]</span>");
    buf_str(out, "</pre>");
    diff_done(&diff);
}

static void html_details(const struct grade_test *t, struct buf *out)
{
    if (t->status == GRADE_PASSED || (!*t->message && !t->out.len && !t->errout.len))
        return;
    buf_str(out, "<details><summary>");
    html_str(*t->message ? t->message : "output", out);
    buf_str(out, "</summary>");
    if (t->expected.len)
        html_diff(t, out);
    else
        html_block("standard output", &t->out, out);
    html_block("standard error", &t->errout, out);
    buf_str(out, "</details>");
}

struct html_max {
    uint64_t time_ns, memory_bytes;
};

static void html_row(const struct grade_outcome *o, const struct grade_test *t,
                     const struct html_max *max, struct buf *out)
{
    bool judged = str_eq(o->kind, "judge");
    buf_printf(out, "<tr class=\"%s\"><td class=\"name\">", grade_status_name(t->status));
    html_str(t->name, out);
    html_details(t, out);
    buf_str(out, "</td><td class=\"w\">");
    html_str(report_word(t), out);
    buf_printf(out, "</td><td class=\"n\">%.1f ms", (double)t->runtime_ns / 1e6);
    html_bar(t->runtime_ns, max->time_ns, out);
    buf_str(out, "</td>");
    if (judged) {
        buf_printf(out, "<td class=\"n\">%.1f MiB", (double)t->memory_bytes / (1 << 20));
        html_bar(t->memory_bytes, max->memory_bytes, out);
        if (o->has_score)
            buf_printf(out, "</td><td class=\"n\">%.6g / %.6g</td>", t->score, t->points);
        else
            buf_str(out, "</td><td class=\"n\">-</td>");
    }
    buf_str(out, "</tr>\n");
}

static void html_sum(const struct grade_outcome *o, struct buf *out)
{
    buf_str(out, "<h1>");
    html_str(o->submission, out);
    buf_str(out, "</h1>\n<p class=\"sum\">");
    if (o->verdict) {
        buf_str(out, "<b id=\"verdict\">");
        html_str(o->verdict, out);
        buf_str(out, "</b> ");
    }
    if (o->verdict && o->has_score)
        buf_printf(out, "score %.6g of %.6g, ", o->score, o->points);
    buf_printf(out, "<span id=\"sum\">%zu passed, %zu failed, %zu errors of %zu</span>", o->passed,
               o->failed, o->errors, o->n_tests);
    if (o->skipped || o->not_run)
        buf_printf(out, " (%zu skipped, %zu not run)", o->skipped, o->not_run);
    buf_printf(out, ", %.1f ms", (double)o->total_ns / 1e6);
    if (o->language) {
        buf_str(out, ", ");
        html_str(o->language, out);
    }
    if (o->mode) {
        buf_str(out, ", mode ");
        html_str(o->mode, out);
    }
    buf_str(out, "</p>\n");
    if (o->error) {
        buf_str(out, "<pre id=\"error\">");
        html_str(o->error, out);
        buf_str(out, "</pre>\n");
    }
}

static void html_groups(const struct grade_outcome *o, struct buf *out)
{
    if (o->n_groups == 0 || !o->has_score)
        return;
    buf_str(out, "<p class=\"sum\">");
    for (size_t i = 0; i < o->n_groups; i++) {
        buf_str(out, i ? ", " : "groups: ");
        html_str(o->groups[i].name, out);
        buf_printf(out, " %.6g / %.6g", o->groups[i].score, o->groups[i].points);
    }
    buf_str(out, "</p>\n");
}

void report_html(const struct grade_outcome *o, struct buf *out)
{
    struct html_max max = {0};
    for (size_t i = 0; i < o->n_tests; i++) {
        max.time_ns = MAX(max.time_ns, o->tests[i].runtime_ns);
        max.memory_bytes = MAX(max.memory_bytes, o->tests[i].memory_bytes);
    }
    buf_str(out, html_head);
    html_str(o->submission, out);
    buf_str(out, html_style);
    html_sum(o, out);
    html_groups(o, out);
    buf_printf(out, "<table><thead><tr><th>%s</th><th>%s</th><th>time</th>%s</tr></thead><tbody>\n",
               str_eq(o->kind, "judge") ? "case" : "test",
               str_eq(o->kind, "judge") ? "verdict" : "status",
               str_eq(o->kind, "judge") ? "<th>memory</th><th>score</th>" : "");
    for (size_t i = 0; i < o->n_tests; i++)
        html_row(o, &o->tests[i], &max, out);
    buf_str(out, "</tbody></table>\n</body></html>\n");
}
