/* A JSON writer into a bounded buffer: commas and nesting are its business, strings are escaped,
 * bytes that are not UTF-8 must be given as base64. */
#ifndef BASE_JSONW_H
#define BASE_JSONW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct jsonw {
    struct buf *out;
    bool need_comma;
};

void jsonw_open(struct jsonw *j, const char *key, char bracket);
void jsonw_close(struct jsonw *j, char bracket);
/* key is NULL inside arrays and for a lone value */
void jsonw_str(struct jsonw *j, const char *key, const char *value); /* NULL value writes null */
void jsonw_bytes(struct jsonw *j, const char *key, const char *data, size_t len);
void jsonw_base64(struct jsonw *j, const char *key, const void *data, size_t len);
void jsonw_int(struct jsonw *j, const char *key, int64_t value);
void jsonw_uint(struct jsonw *j, const char *key, uint64_t value);
void jsonw_ms(struct jsonw *j, const char *key, uint64_t ns); /* milliseconds with three decimals */
void jsonw_double(struct jsonw *j, const char *key, double value); /* not finite: null */
void jsonw_bool(struct jsonw *j, const char *key, bool value);
void jsonw_raw(struct jsonw *j, const char *key, const char *json); /* one value, written before */
void jsonw_null(struct jsonw *j, const char *key);

/* Strict UTF-8 (no surrogates, no overlong forms). */
bool jsonw_is_utf8(const char *data, size_t len);

#endif
