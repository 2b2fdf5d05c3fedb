/* Reports on an outcome: JSON, JUnit XML, TAP, a table, a page of HTML. Pure: rows in, text out.
 *
 * Names, messages and outputs come from people and programs nobody trusts. Each format has one
 * function that writes such a text, and every one goes through it. */
#ifndef GRADE_REPORT_H
#define GRADE_REPORT_H

#include <stdbool.h>

#include "base/buf.h"
#include "grade/grade.h"

enum report_format { REPORT_TABLE, REPORT_JSON, REPORT_JUNIT, REPORT_TAP, REPORT_HTML };

/* REPORT_ + the word; false: there is no such format. */
bool report_by_name(const char *name, enum report_format *ret);

/* color: the reader is a terminal (the table only). The buffer says whether it all fitted. */
void report_write(enum report_format format, const struct grade_outcome *outcome, bool color,
                  struct buf *out);

/* Private to report*.c. */

/* Next character of bytes that may be anything: its code point, or U+FFFD for a byte that is no
 * part of UTF-8. *ret_len bytes were used. */
unsigned report_char(const char *data, size_t len, size_t *ret_len);
void report_utf8(unsigned c, struct buf *out);
/* The characters markup is made of, as references; false: it is none, nothing was written. */
bool report_entity(unsigned c, struct buf *out);
bool report_is_unprintable(unsigned c);
/* On one line, nothing a terminal obeys; at most max characters, "..." where cut. Returns the
 * characters written. */
size_t report_plain(const char *text, size_t len, size_t max, struct buf *out);
/* What a row is called in words: "AC" or "passed". */
const char *report_word(const struct grade_test *t);

void report_json(const struct grade_outcome *o, struct buf *out);
void report_junit(const struct grade_outcome *o, struct buf *out);
void report_tap(const struct grade_outcome *o, struct buf *out);
void report_table(const struct grade_outcome *o, bool color, struct buf *out);
void report_html(const struct grade_outcome *o, struct buf *out);

#endif
