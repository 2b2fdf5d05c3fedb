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

void seccomp_json_defuse(char *text)
{
    for (; *text; text++)
        if (*text < 0x20 || *text > 0x7e)
            *text = '?';
}

int seccomp_json_fail(const struct seccomp_json *j, const struct seccomp_json_place *at,
                      const char *fmt, ...)
{
    char text[256], place[256] = "the document";
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    seccomp_json_defuse(text);
    if (at)
        place_text(at, place, sizeof(place));
    return err_set(j->err, CORDON_ERR_CONFIG, "policy", 0, "%s: %s: %s", j->name, place, text);
}

/* What the reader lets pass but a profile must not contain; said with line and column because that
 * is how everything else that is wrong with the text is said. */
static int fail_text(const struct seccomp_json *j, struct jsonr_pos pos, const char *what)
{
    return err_set(j->err, CORDON_ERR_CONFIG, "policy", 0, "%s:%u:%u: %s", j->name, pos.line,
                   pos.column, what);
}

static int check_string(const struct seccomp_json *j, const struct jsonr_node *value)
{
    return jsonr_cstr(value) ? 0 : fail_text(j, value->pos, "\\u0000 is not allowed");
}

int seccomp_json_keys(const struct seccomp_json *j, const struct seccomp_json_place *at,
                      const struct jsonr_node *object, const char *keys)
{
    if (object->type != JSONR_OBJECT)
        return seccomp_json_fail(j, at, "must be an object");
    for (const struct jsonr_node *value = jsonr_first(object); value; value = value->next) {
        char padded[64];
        if (strlen(value->key) != value->key_len)
            return fail_text(j, value->key_pos, "\\u0000 is not allowed");
        int n = snprintf(padded, sizeof(padded), " %s ", value->key);
        if (n >= (int)sizeof(padded) || strchr(value->key, ' ') || !strstr(keys, padded))
            return seccomp_json_fail(j, at, "unknown key \"%.64s\"", value->key);
    }
    return 0;
}

int seccomp_json_get(const struct seccomp_json *j, const struct seccomp_json_place *at,
                     const struct jsonr_node *object, const char *key, enum jsonr_type type,
                     const struct jsonr_node **ret)
{
    const struct jsonr_node *value = jsonr_get(object, key);
    if (value && value->type == JSONR_NULL)
        value = NULL;
    if (value && value->type != type)
        return seccomp_json_fail(j, SECCOMP_JSON_KEY(at, key), "must be %s", jsonr_type_name(type));
    *ret = value;
    return 0;
}

int seccomp_json_string(const struct seccomp_json *j, const struct seccomp_json_place *at,
                        const struct jsonr_node *object, const char *key, const char **ret)
{
    const struct jsonr_node *value = NULL;
    if (seccomp_json_get(j, at, object, key, JSONR_STRING, &value) < 0 ||
        (value && check_string(j, value) < 0))
        return -1;
    *ret = jsonr_cstr(value);
    return 0;
}

int seccomp_json_strings(const struct seccomp_json *j, const struct seccomp_json_place *at,
                         const struct jsonr_node *object, const char *key,
                         const struct jsonr_node **ret)
{
    const struct jsonr_node *list = NULL;
    if (seccomp_json_get(j, at, object, key, JSONR_ARRAY, &list) < 0)
        return -1;
    size_t i = 0;
    for (const struct jsonr_node *item = jsonr_first(list); item; item = item->next, i++) {
        if (item->type != JSONR_STRING)
            return seccomp_json_fail(j, SECCOMP_JSON_ITEM(SECCOMP_JSON_KEY(at, key), i),
                                     "must be a string");
        if (check_string(j, item) < 0)
            return -1;
    }
    *ret = list;
    return 0;
}

int seccomp_json_unsigned(const struct seccomp_json *j, const struct seccomp_json_place *at,
                          const struct jsonr_node *object, const char *key, uint64_t max,
                          uint64_t *ret, bool *ret_given)
{
    const struct jsonr_node *value = NULL;
    if (seccomp_json_get(j, at, object, key, JSONR_INTEGER, &value) < 0)
        return -1;
    int64_t number = 0;
    if (value && !jsonr_int64(value, &number))
        return fail_text(j, value->pos, "the integer does not fit into 64 bits with sign");
    if (number < 0 || (uint64_t)number > max)
        return seccomp_json_fail(j, SECCOMP_JSON_KEY(at, key), "must be from 0 to %llu",
                                 (unsigned long long)max);
    *ret = (uint64_t)number;
    *ret_given = value != NULL;
    return 0;
}

bool seccomp_json_has(const struct jsonr_node *list, const char *wanted)
{
    for (const struct jsonr_node *item = jsonr_first(list); item; item = item->next)
        if (str_eq(jsonr_cstr(item), wanted))
            return true;
    return false;
}
