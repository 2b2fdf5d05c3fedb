/* A JSON writer into a bounded buffer: commas and nesting are its business, strings are escaped,
 * bytes that are not UTF-8 must be given as base64. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct json {
    struct buf *out;
    bool need_comma;
};

void json_open(struct json *j, const char *key, char bracket);
void json_close(struct json *j, char bracket);
/* key is NULL inside arrays and for a lone value */
void json_str(struct json *j, const char *key, const char *value); /* NULL value writes null */
void json_bytes(struct json *j, const char *key, const char *data, size_t len);
void json_base64(struct json *j, const char *key, const void *data, size_t len);
void json_int(struct json *j, const char *key, int64_t value);
void json_uint(struct json *j, const char *key, uint64_t value);
void json_ms(struct json *j, const char *key, uint64_t ns); /* milliseconds with three decimals */
void json_bool(struct json *j, const char *key, bool value);
void json_null(struct json *j, const char *key);

/* Strict UTF-8 (no surrogates, no overlong forms). */
bool json_is_utf8(const char *data, size_t len);

#endif
