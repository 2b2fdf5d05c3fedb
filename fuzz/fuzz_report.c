/* libFuzzer entry for the reports: whatever a submission's texts are, no format is broken by them:
 * the markup is ours alone, lines of TAP and of the table are ours alone, JSON is read back. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/jsonr.h"
#include "base/jsonw.h"
#include "base/util.h"
#include "grade/report.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok)
        abort();
}

static size_t count(const struct buf *b, const char *what)
{
    size_t n = 0, len = strlen(what);
    for (size_t i = 0; i + len <= b->len; i++)
        n += memcmp(b->data + i, what, len) == 0;
    return n;
}

static void check_plain(const struct buf *b)
{
    check(jsonw_is_utf8(b->data, b->len));
    for (size_t i = 0; i < b->len; i++)
        check((unsigned char)b->data[i] >= 0x20 || b->data[i] == '\n' || b->data[i] == '\t');
}

static void check_json(const struct buf *b)
{
    struct arena arena = {0};
    struct cordon_err err;
    const struct jsonr_node *root;
    struct jsonr_source source = {.name = "r",
                                  .text = b->data,
                                  .len = b->len,
                                  .max_bytes = SIZE_MAX,
                                  .code = CORDON_ERR_CONFIG,
                                  .stage = "r"};
    check(jsonr_parse(&source, &arena, &root, &err) == 0);
    check(jsonr_count(jsonr_get(root, "details")) == 2);
    arena_done(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t cut = size ? size * data[0] / 256 : 0;
    _cleanup_free_ char *text = malloc(size + 1);
    check(text != NULL);
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    struct grade_bytes whole = {text, size, false}, part = {text, cut, true};
    struct grade_test rows[2] = {
        {.name = text,
         .status = GRADE_FAILED,
         .message = text + cut,
         .verdict = "WA",
         .group = text,
         .out = whole,
         .errout = part,
         .expected = part,
         .points = 1},
        {.name = text + cut, .status = GRADE_NOT_RUN, .message = "", .out = part}};
    struct grade_outcome o = {.kind = "judge",
                              .submission = text,
                              .language = text,
                              .verdict = "WA",
                              .error = text,
                              .tests = rows,
                              .n_tests = 2,
                              .has_score = true};
    grade_count(&o);
    for (int f = REPORT_TABLE; f <= REPORT_HTML; f++) {
        _cleanup_buf_ struct buf out = BUF_INIT((size_t)1 << 30);
        report_write((enum report_format)f, &o, false, &out);
        check(!out.failed);
        check_plain(&out);
        if (f == REPORT_JSON)
            check_json(&out);
        if (f == REPORT_JUNIT)
            check(count(&out, "<testcase") == 2 && count(&out, "<failure") == 1 &&
                  count(&out, "<error") == 1 && count(&out, "<!") == 0);
        if (f == REPORT_TAP)
            check(count(&out, "\nok ") == 0 && count(&out, "\nnot ok ") == 2 &&
                  count(&out, "\n1..") == 1);
        if (f == REPORT_HTML)
            check(count(&out, "<tr class") == 2 && count(&out, "<script") == 0 &&
                  count(&out, "<img") == 0 && count(&out, "<!") == 1);
    }
    return 0;
}
