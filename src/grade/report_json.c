/* The report as one JSON object. Pure. */
#include <string.h>

#include "base/jsonw.h"
#include "base/util.h"
#include "grade/report.h"

static void json_bytes(struct jsonw *j, const char *key, const struct grade_bytes *b)
{
    char name[64];
    bool text = jsonw_is_utf8(b->data ? b->data : "", b->len);
    if (text)
        jsonw_bytes(j, key, b->data ? b->data : "", b->len);
    else
        jsonw_base64(j, key, b->data, b->len);
    snprintf(name, sizeof(name), "%s_encoding", key);
    jsonw_str(j, name, text ? "utf-8" : "base64");
    snprintf(name, sizeof(name), "%s_truncated", key);
    jsonw_bool(j, name, b->truncated);
}

static void json_row(struct jsonw *j, const struct grade_outcome *o, const struct grade_test *t)
{
    jsonw_open(j, NULL, '{');
    jsonw_str(j, "name", t->name);
    jsonw_str(j, "status", grade_status_name(t->status));
    jsonw_str(j, "message", t->message);
    jsonw_ms(j, "runtime_ms", t->runtime_ns);
    if (str_eq(o->kind, "judge")) {
        jsonw_str(j, "verdict", t->verdict);
        jsonw_str(j, "group", t->group);
        jsonw_ms(j, "cpu_ms", t->cpu_ns);
        jsonw_uint(j, "memory_bytes", t->memory_bytes);
        jsonw_double(j, "score", t->score);
        jsonw_double(j, "points", t->points);
        json_bytes(j, "expected", &t->expected);
    }
    json_bytes(j, "stdout", &t->out);
    json_bytes(j, "stderr", &t->errout);
    jsonw_close(j, '}');
}

static void json_judge(struct jsonw *j, const struct grade_outcome *o)
{
    jsonw_str(j, "verdict", o->verdict);
    if (o->has_score)
        jsonw_double(j, "score", o->score);
    else
        jsonw_null(j, "score");
    jsonw_double(j, "points", o->points);
    jsonw_open(j, "groups", '[');
    for (size_t i = 0; i < o->n_groups; i++) {
        jsonw_open(j, NULL, '{');
        jsonw_str(j, "name", o->groups[i].name);
        if (o->has_score)
            jsonw_double(j, "score", o->groups[i].score);
        else
            jsonw_null(j, "score");
        jsonw_double(j, "points", o->groups[i].points);
        jsonw_close(j, '}');
    }
    jsonw_close(j, ']');
}

void report_json(const struct grade_outcome *o, struct buf *out)
{
    struct jsonw j = {.out = out};
    jsonw_open(&j, NULL, '{');
    jsonw_int(&j, "version", 1);
    jsonw_str(&j, "kind", o->kind);
    jsonw_str(&j, "submission", o->submission);
    jsonw_str(&j, "language", o->language);
    if (o->mode)
        jsonw_str(&j, "mode", o->mode);
    if (str_eq(o->kind, "judge"))
        json_judge(&j, o);
    else if (o->verdict)
        jsonw_str(&j, "verdict", o->verdict);
    jsonw_uint(&j, "passed", o->passed);
    jsonw_uint(&j, "failed", o->failed);
    jsonw_uint(&j, "errors", o->errors);
    jsonw_uint(&j, "skipped", o->skipped);
    jsonw_uint(&j, "not_run", o->not_run);
    jsonw_ms(&j, "total_runtime_ms", o->total_ns);
    jsonw_str(&j, "error", o->error);
    if (o->enforcement)
        jsonw_raw(&j, "enforcement", o->enforcement);
    else
        jsonw_null(&j, "enforcement");
    jsonw_open(&j, "details", '[');
    for (size_t i = 0; i < o->n_tests; i++)
        json_row(&j, o, &o->tests[i]);
    jsonw_close(&j, ']');
    jsonw_close(&j, '}');
    buf_char(out, '\n');
}
