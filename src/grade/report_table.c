/* The report for people at a terminal. Pure. */
#include <string.h>

#include "base/util.h"
#include "grade/report.h"

#define NAME_MAX_SHOWN 48
#define MESSAGE_MAX 160

static const char *color_of(const struct grade_test *t)
{
    return t->status == GRADE_PASSED   ? "\033[32m"
           : t->status == GRADE_FAILED ? "\033[31m"
           : t->status == GRADE_ERROR  ? "\033[1;31m"
                                       : "\033[2m";
}

static size_t shown_width(const char *text)
{
    _cleanup_buf_ struct buf drop = BUF_INIT(4096);
    return report_plain(text, strlen(text), NAME_MAX_SHOWN, &drop);
}

static void pad(size_t n, struct buf *out)
{
    while (n-- > 0)
        buf_char(out, ' ');
}

static void table_number(double value, struct buf *out)
{
    buf_printf(out, "%.6g", value);
}

static void table_row(const struct grade_test *t, size_t width, bool judged, bool color,
                      struct buf *out)
{
    const char *word = report_word(t);
    if (t->status == GRADE_NOT_RUN && !t->verdict)
        word = judged ? "-" : "not_run";
    size_t n = report_plain(t->name, strlen(t->name), NAME_MAX_SHOWN, out);
    pad(width > n ? width - n : 0, out);
    buf_printf(out, "  %s%-7s%s", color ? color_of(t) : "", word, color ? "\033[0m" : "");
    if (t->status != GRADE_NOT_RUN) {
        buf_printf(out, " %9.1f ms", (double)t->runtime_ns / 1e6);
        if (judged)
            buf_printf(out, " %8.1f MiB", (double)t->memory_bytes / (1 << 20));
    }
    if (*t->message) {
        buf_str(out, "  ");
        report_plain(t->message, strlen(t->message), MESSAGE_MAX, out);
    }
    buf_char(out, '\n');
}

static void table_groups(const struct grade_outcome *o, struct buf *out)
{
    for (size_t i = 0; i < o->n_groups && o->has_score; i++) {
        buf_str(out, "group ");
        report_plain(o->groups[i].name, strlen(o->groups[i].name), NAME_MAX_SHOWN, out);
        buf_str(out, ": ");
        table_number(o->groups[i].score, out);
        buf_str(out, " of ");
        table_number(o->groups[i].points, out);
        buf_char(out, '\n');
    }
}

/* A compiler's words keep their lines. */
static void table_error(const char *text, struct buf *out)
{
    while (*text) {
        size_t n = strcspn(text, "\n");
        report_plain(text, n, 400, out);
        buf_char(out, '\n');
        text += n + (text[n] == '\n');
    }
}

void report_table(const struct grade_outcome *o, bool color, struct buf *out)
{
    size_t width = 4;
    bool judged = str_eq(o->kind, "judge");
    for (size_t i = 0; i < o->n_tests; i++)
        width = MAX(width, shown_width(o->tests[i].name));
    if (o->error)
        table_error(o->error, out);
    for (size_t i = 0; i < o->n_tests; i++)
        table_row(&o->tests[i], width, judged, color, out);
    table_groups(o, out);
    if (judged) {
        buf_printf(out, "verdict %s", o->verdict);
        if (o->has_score) {
            buf_str(out, ", score ");
            table_number(o->score, out);
            buf_str(out, " of ");
            table_number(o->points, out);
        } else {
            buf_str(out, ", no score: a failure of the judge is never one");
        }
        buf_char(out, '\n');
    }
    buf_printf(out, "%zu passed, %zu failed, %zu errors", o->passed, o->failed, o->errors);
    if (o->skipped)
        buf_printf(out, ", %zu skipped", o->skipped);
    if (o->not_run)
        buf_printf(out, ", %zu not run", o->not_run);
    buf_printf(out, " of %zu\n", o->n_tests);
}
