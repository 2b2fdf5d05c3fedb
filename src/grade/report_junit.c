/* The report as JUnit XML, the form CI services read. Pure. */
#include <string.h>

#include "base/util.h"
#include "grade/report.h"

/* XML 1.0 has no way to write most control characters: they become U+FFFD. Those it has, and marks
 * that turn text, are written by number: the report may go to a terminal. */
static void xml_text(const char *data, size_t len, bool attribute, struct buf *out)
{
    size_t used;
    for (size_t i = 0; i < len; i += used) {
        unsigned c = report_char(data + i, len - i, &used);
        if (report_entity(c, out))
            continue;
        if (c == '\r' || (attribute && (c == '\n' || c == '\t')) ||
            (c >= 0x7f && report_is_unprintable(c)))
            buf_printf(out, "&#%u;", c);
        else if ((c < 0x20 && c != '\n' && c != '\t') || c == 0xfffe || c == 0xffff)
            report_utf8(0xfffd, out);
        else
            report_utf8(c, out);
    }
}

static void xml_attribute(const char *name, const char *value, struct buf *out)
{
    buf_printf(out, " %s=\"", name);
    xml_text(value, strlen(value), true, out);
    buf_char(out, '"');
}

static void xml_seconds(uint64_t ns, struct buf *out)
{
    uint64_t us = (ns + 500) / 1000;
    buf_printf(out, " time=\"%llu.%06llu\"", (unsigned long long)(us / 1000000),
               (unsigned long long)(us % 1000000));
}

static void xml_stream(const char *name, const struct grade_bytes *b, struct buf *out)
{
    if (b->len == 0)
        return;
    buf_printf(out, "      <%s>", name);
    xml_text(b->data, b->len, false, out);
    buf_printf(out, "%s</%s>\n", b->truncated ? "\n[cut]" : "", name);
}

/* A test that did not run, or was skipped, is no pass: CI services count an error as that, and a
 * skip as nothing. */
static void xml_row(const struct grade_outcome *o, const struct grade_test *t, struct buf *out)
{
    buf_str(out, "    <testcase");
    xml_attribute("classname", t->group ? t->group : o->kind, out);
    xml_attribute("name", t->name, out);
    xml_seconds(t->runtime_ns, out);
    buf_str(out, ">\n");
    const char *tag = t->status == GRADE_FAILED ? "failure" : "error";
    if (t->status != GRADE_PASSED) {
        buf_printf(out, "      <%s", tag);
        xml_attribute("type", report_word(t), out);
        xml_attribute("message",
                      *t->message                  ? t->message
                      : t->status == GRADE_NOT_RUN ? "not run"
                                                   : report_word(t),
                      out);
        buf_str(out, "/>\n");
    }
    xml_stream("system-out", &t->out, out);
    xml_stream("system-err", &t->errout, out);
    buf_str(out, "    </testcase>\n");
}

/* What kept a suite from passing though each of its tests may have passed: a row of its own, for
 * readers that look at rows only. A judge's cases have not run then, and say so. */
static bool xml_has_suite_row(const struct grade_outcome *o)
{
    return o->error && str_eq(o->kind, "tests");
}

static void xml_suite_row(const struct grade_outcome *o, struct buf *out)
{
    struct grade_test row = {.name = "the suite", .status = GRADE_ERROR, .message = o->error};
    xml_row(o, &row, out);
}

static void xml_counts(const struct grade_outcome *o, struct buf *out)
{
    buf_printf(out, " tests=\"%zu\" failures=\"%zu\" errors=\"%zu\" skipped=\"0\"",
               o->n_tests + xml_has_suite_row(o), o->failed, o->errors + o->not_run + o->skipped);
    xml_seconds(o->total_ns, out);
}

void report_junit(const struct grade_outcome *o, struct buf *out)
{
    buf_str(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"cordon\"");
    xml_counts(o, out);
    buf_str(out, ">\n  <testsuite");
    xml_attribute("name", o->submission, out);
    xml_counts(o, out);
    buf_str(out, ">\n");
    for (size_t i = 0; i < o->n_tests; i++)
        xml_row(o, &o->tests[i], out);
    if (xml_has_suite_row(o)) {
        xml_suite_row(o, out);
    } else if (o->error) {
        buf_str(out, "    <system-err>");
        xml_text(o->error, strlen(o->error), false, out);
        buf_str(out, "</system-err>\n");
    }
    buf_str(out, "  </testsuite>\n</testsuites>\n");
}
