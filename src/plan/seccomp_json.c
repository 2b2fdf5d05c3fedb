/* Typed access to a profile's JSON. Called by the profile reader only, in the parent process. */
#include "plan/seccomp_json.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/err.h"
#include "base/util.h"

static size_t place_text(const struct seccomp_json_place *at, char *out, size_t size)
{
    size_t n = at->up ? place_text(at->up, out, size) : 0;
    int more;
    if (at->key)
        more = snprintf(out + n, size - n, "%s%s", n ? "." : "", at->key);
    else
        more = snprintf(out + n, size - n, "[%zu]", at->index);
    return more < 0 ? n : MIN(n + (size_t)more, size - 1);
}

int seccomp_json_fail(const struct seccomp_json *j, const struct seccomp_json_place *at,
                      const char *fmt, ...)
{
    char text[256], place[256] = "the document";
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (at)
        place_text(at, place, sizeof(place));
    return err_set(j->err, CORDON_ERR_CONFIG, "policy", 0, "%s: %s: %s", j->name, place, text);
}

int seccomp_json_keys(const struct seccomp_json *j, const struct seccomp_json_place *at,
                      json_t *object, const char *keys)
{
    if (!json_is_object(object))
        return seccomp_json_fail(j, at, "must be an object");
    const char *key;
    json_t *value = NULL;
    json_object_foreach (object, key, value) {
        char padded[64];
        int n = snprintf(padded, sizeof(padded), " %s ", key);
        if (n >= (int)sizeof(padded) || strchr(key, ' ') || !strstr(keys, padded))
            return seccomp_json_fail(j, at, "unknown key \"%.64s\"", key);
    }
    return 0;
}

int seccomp_json_get(const struct seccomp_json *j, const struct seccomp_json_place *at,
                     json_t *object, const char *key, json_type type, json_t **ret)
{
    json_t *value = json_object_get(object, key);
    if (json_is_null(value))
        value = NULL;
    if (value && json_typeof(value) != type)
        return seccomp_json_fail(j, SECCOMP_JSON_KEY(at, key), "must be %s",
                                 type == JSON_OBJECT   ? "an object"
                                 : type == JSON_ARRAY  ? "a list"
                                 : type == JSON_STRING ? "a string"
                                                       : "an integer");
    *ret = value;
    return 0;
}

int seccomp_json_string(const struct seccomp_json *j, const struct seccomp_json_place *at,
                        json_t *object, const char *key, const char **ret)
{
    json_t *value = NULL;
    if (seccomp_json_get(j, at, object, key, JSON_STRING, &value) < 0)
        return -1;
    *ret = json_string_value(value);
    return 0;
}

int seccomp_json_strings(const struct seccomp_json *j, const struct seccomp_json_place *at,
                         json_t *object, const char *key, json_t **ret)
{
    json_t *list = NULL;
    if (seccomp_json_get(j, at, object, key, JSON_ARRAY, &list) < 0)
        return -1;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_string(json_array_get(list, i)))
            return seccomp_json_fail(j, SECCOMP_JSON_ITEM(SECCOMP_JSON_KEY(at, key), i),
                                     "must be a string");
    *ret = list;
    return 0;
}

int seccomp_json_unsigned(const struct seccomp_json *j, const struct seccomp_json_place *at,
                          json_t *object, const char *key, uint64_t max, uint64_t *ret,
                          bool *ret_given)
{
    json_t *value = NULL;
    if (seccomp_json_get(j, at, object, key, JSON_INTEGER, &value) < 0)
        return -1;
    json_int_t number = json_integer_value(value); /* 0 for NULL */
    if (number < 0 || (uint64_t)number > max)
        return seccomp_json_fail(j, SECCOMP_JSON_KEY(at, key), "must be from 0 to %llu",
                                 (unsigned long long)max);
    *ret = (uint64_t)number;
    *ret_given = value != NULL;
    return 0;
}

bool seccomp_json_has(json_t *list, const char *wanted)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (str_eq(json_string_value(json_array_get(list, i)), wanted))
            return true;
    return false;
}
