/* The report in the Test Anything Protocol, version 13. Pure. */
#include <string.h>

#include "base/jsonw.h"
#include "base/util.h"
#include "grade/report.h"

/* On one line, and without the sign that begins a directive: a test called "x # SKIP" is none. */
static void tap_name(const char *name, struct buf *out)
{
    _cleanup_buf_ struct buf plain = BUF_INIT(8192);
    report_plain(name, strlen(name), 400, &plain);
    for (size_t i = 0; i < plain.len; i++) {
        if (plain.data[i] == '#' || plain.data[i] == '\\')
            buf_char(out, '\\');
        buf_char(out, plain.data[i]);
    }
}

/* JSON strings are YAML strings, and never more than one line. */
static void tap_value(const char *key, const char *data, size_t len, struct buf *out)
{
    struct jsonw j = {.out = out};
    _cleanup_buf_ struct buf clean = BUF_INIT(4 * len + 16);
    size_t used;
    for (size_t i = 0; i < len; i += used) {
        unsigned c = report_char(data + i, len - i, &used);
        report_utf8(c >= 0x80 && report_is_unprintable(c) ? 0xfffd : c, &clean);
    }
    buf_printf(out, "  %s: ", key);
    jsonw_bytes(&j, NULL, clean.data ? clean.data : "", clean.len);
    buf_char(out, '\n');
}

static void tap_details(const struct grade_test *t, struct buf *out)
{
    buf_str(out, "  ---\n");
    tap_value("status", grade_status_name(t->status), strlen(grade_status_name(t->status)), out);
    if (t->verdict)
        tap_value("verdict", t->verdict, strlen(t->verdict), out);
    if (*t->message)
        tap_value("message", t->message, strlen(t->message), out);
    if (t->expected.len && t->status != GRADE_NOT_RUN)
        tap_value("expected", t->expected.data, MIN(t->expected.len, (size_t)2048), out);
    if (t->out.len)
        tap_value("stdout", t->out.data, MIN(t->out.len, (size_t)2048), out);
    if (t->errout.len)
        tap_value("stderr", t->errout.data, MIN(t->errout.len, (size_t)2048), out);
    uint64_t us = (t->runtime_ns + 500) / 1000;
    buf_printf(out, "  duration_ms: %llu.%03llu\n  ...\n", (unsigned long long)(us / 1000),
               (unsigned long long)(us % 1000));
}

/* A skipped test is not passed: no SKIP directive, which consumers take for a pass. */
void report_tap(const struct grade_outcome *o, struct buf *out)
{
    buf_printf(out, "TAP version 13\n1..%zu\n", o->n_tests);
    for (size_t i = 0; i < o->n_tests; i++) {
        const struct grade_test *t = &o->tests[i];
        bool ok = t->status == GRADE_PASSED;
        buf_printf(out, "%s %zu - ", ok ? "ok" : "not ok", i + 1);
        tap_name(t->name, out);
        buf_char(out, '\n');
        if (!ok)
            tap_details(t, out);
    }
    if (!o->error)
        return;
    buf_str(out, "Bail out! ");
    report_plain(o->error, strlen(o->error), 400, out);
    buf_char(out, '\n');
}
