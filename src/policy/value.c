/* One setting at a time: text to a checked value. Pure; shared by flags, variables, files, levels.
 */
#include "policy/value.h"

#include <arpa/inet.h>

#include "base/err.h"
#include "base/utf8.h"
#include "base/util.h"
#include "policy/fields.h"
#include "policy/item.h"
#include "policy/units.h"

enum { VALUE_MAX = 64 * 1024 };

int value_refuse(const struct value_ctx *ctx, const char *text, const char *why)
{
    return err_set(ctx->err, ctx->code, "policy", 0, "%s: '%.200s' %s", ctx->where, text, why);
}

static int no_memory(const struct value_ctx *ctx)
{
    return err_nomem(ctx->err, "policy");
}

char *value_path(const char *base, const char *path)
{
    size_t base_len = path[0] == '/' ? 0 : strlen(base);
    char *out = malloc(base_len + strlen(path) + 3);
    if (!out)
        return NULL;

    size_t len = 0;
    const char *sources[] = {path[0] == '/' ? "" : base, path};
    for (size_t s = 0; s < 2; s++) {
        for (const char *p = sources[s]; *p;) {
            size_t n = strcspn(p, "/");
            if (n == 2 && p[0] == '.' && p[1] == '.') {
                while (len > 0 && out[--len] != '/')
                    ;
            } else if (n > 0 && !(n == 1 && p[0] == '.')) {
                out[len++] = '/';
                memcpy(out + len, p, n);
                len += n;
            }
            p += n + (p[n] == '/');
        }
    }
    if (len == 0)
        out[len++] = '/';
    out[len] = '\0';
    return out;
}

const char *value_env(char *const *vars, const char *name, size_t len)
{
    for (; vars && *vars; vars++) {
        if (**vars == *name && strncmp(*vars, name, len) == 0 && (*vars)[len] == '=')
            return *vars + len + 1;
    }
    return NULL;
}

/* ---- scalars ----------------------------------------------------------------------------------
 */

static int scalar_number(const struct value_ctx *ctx, struct assign *a, const char *text)
{
    const char *why = NULL;
    bool truth = false;
    enum field_type type = policy_fields[a->id].type;

    if (type == FT_DURATION)
        why = units_duration(text, &a->value.num);
    else if (type == FT_SIZE)
        why = units_size(text, &a->value.num);
    else if (type == FT_PERCENT)
        why = units_percent(text, &a->value.num);
    else if (type == FT_COUNT)
        why = units_count(text, &a->value.num);
    else {
        why = units_bool(text, &truth);
        a->value.num = truth;
    }
    if (!why && a->value.num < fields_min(a->id))
        why = "is too small; it must be more than zero";
    return why ? value_refuse(ctx, text, why) : 0;
}

static int scalar_enum(const struct value_ctx *ctx, struct assign *a, const char *text)
{
    const char *const *words = fields_words(policy_fields[a->id].type);
    struct fields_near near = fields_near_start(text);
    for (size_t i = 0; words[i]; i++) {
        if (str_eq(words[i], text)) {
            a->value.num = i;
            return 0;
        }
        fields_near_try(&near, words[i]);
    }

    char why[256];
    snprintf(why, sizeof(why), "is not one of %s%s%s%s", policy_fields[a->id].arg,
             near.best ? " (did you mean '" : "", near.best ? near.best : "",
             near.best ? "'?)" : "");
    return value_refuse(ctx, text, why);
}

static int scalar_path(const struct value_ctx *ctx, struct assign *a, const char *text)
{
    if (text[0] == '~' && (!text[1] || text[1] == '/'))
        return value_refuse(ctx, text,
                            "starts with '~', which is not expanded here; write the whole path");
    a->value.text = value_path(ctx->base, text);
    return a->value.text ? 0 : no_memory(ctx);
}

static int scalar_temp_dir(const struct value_ctx *ctx, struct assign *a, const char *text)
{
    bool truth = text[0] == '/';
    if (!truth && units_bool(text, &truth))
        return value_refuse(ctx, text, "is not a path inside the guest; write it absolute");
    a->value.num = truth;
    a->value.text = text[0] == '/' ? value_path("/", text) : strdup("");
    return a->value.text ? 0 : no_memory(ctx);
}

static int scalar_workspace(const struct value_ctx *ctx, struct assign *a, const char *text)
{
    static const char *const modes[] = {"none", "ro", "rw", "overlay"};
    if (str_eq(text, "none") || str_eq(text, "false")) {
        a->value.num = WORKSPACE_NONE;
        a->value.text = strdup("");
        return a->value.text ? 0 : no_memory(ctx);
    }

    _cleanup_free_ char *dir = strdup(text);
    if (!dir)
        return no_memory(ctx);
    a->value.num = WORKSPACE_OVERLAY;
    char *colon = strrchr(dir, ':');
    if (colon && !strchr(colon, '/')) {
        size_t i = 0;
        while (i < ARRAY_SIZE(modes) && !str_eq(colon + 1, modes[i]))
            i++;
        if (i == ARRAY_SIZE(modes) || colon == dir)
            return value_refuse(ctx, text,
                                "is not a workspace; write DIR, DIR:none, DIR:ro, DIR:rw "
                                "or DIR:overlay");
        a->value.num = i;
        *colon = '\0';
    }
    return scalar_path(ctx, a, dir);
}

/* A proxy as it may be shown: the password is nobody's business who reads a log or a report. NULL:
 * no memory. */
static char *without_password(const char *url)
{
    const char *start = strstr(url, "://"), *at = strrchr(url, '@'), *colon;
    char *shown = NULL;
    start = start ? start + 3 : url;
    colon = at ? memchr(start, ':', at > start ? (size_t)(at - start) : 0) : NULL;
    if (!colon)
        return strdup(url);
    return asprintf(&shown, "%.*s:***%s", (int)(colon - url), url, at) < 0 ? NULL : shown;
}

static int refuse_proxy(const struct value_ctx *ctx, const char *text)
{
    _cleanup_free_ char *shown = without_password(text);
    if (!shown)
        return no_memory(ctx);
    return value_refuse(ctx, shown, "is not a proxy; write http://HOST:PORT");
}

static int scalar_string(const struct value_ctx *ctx, struct assign *a, const char *text)
{
    uint8_t addr[16];
    if (a->id == FIELD_DNS && inet_pton(AF_INET, text, addr) != 1 &&
        inet_pton(AF_INET6, text, addr) != 1)
        return value_refuse(ctx, text, "is not an IP address");
    if (a->id == FIELD_HTTP_PROXY && !str_starts(text, "http://"))
        return refuse_proxy(ctx, text);
    a->value.text = strdup(text);
    return a->value.text ? 0 : no_memory(ctx);
}

/* Control characters would let a value forge lines of `explain` and of the log. */
static int check_text(const struct value_ctx *ctx, const char *text)
{
    size_t len = strlen(text), n;
    uint32_t code;
    for (const char *p = text, *end = text + len; p < end; p += n ? n : 1) {
        n = utf8_decode(p, end, &code);
        if (n > 0 && (code < 0x20 || (code >= 0x7f && code < 0xa0)) && code != '\t')
            return err_set(ctx->err, ctx->code, "policy", 0, "%s: control character in the value",
                           ctx->where);
    }
    if (len == 0)
        return err_set(ctx->err, ctx->code, "policy", 0, "%s: the value is empty", ctx->where);
    if (len > VALUE_MAX)
        return err_set(ctx->err, ctx->code, "policy", 0, "%s: the value is too long", ctx->where);
    return 0;
}

int value_set_scalar(const struct value_ctx *ctx, struct assign *assign, const char *text)
{
    enum field_type type = policy_fields[assign->id].type;
    if (check_text(ctx, text) < 0)
        return -1;
    if (fields_words(type))
        return scalar_enum(ctx, assign, text);
    if (type == FT_STRING)
        return scalar_string(ctx, assign, text);
    if (type == FT_PATH)
        return scalar_path(ctx, assign, text);
    if (type == FT_TEMP_DIR)
        return scalar_temp_dir(ctx, assign, text);
    if (type == FT_WORKSPACE)
        return scalar_workspace(ctx, assign, text);
    return scalar_number(ctx, assign, text);
}

/* ---- lists ------------------------------------------------------------------------------------
 */

void value_start(struct assign *assign, enum field_id id)
{
    *assign = (struct assign){.id = id};
}

static int push_item(const struct value_ctx *ctx, struct assign *assign, const char *written,
                     struct policy_item *item)
{
    item->written = strdup(written);
    item->optional = ctx->optional;
    if (!item->written || policy_origin_copy(&ctx->origin, &item->origin) < 0 ||
        policy_value_push(&assign->value, item) < 0) {
        policy_item_done(item);
        return no_memory(ctx);
    }
    return 0;
}

int value_add_item(const struct value_ctx *ctx, struct assign *assign, const char *text)
{
    /* A variable's value may hold anything but is checked all the same for names of files and
     * hosts. */
    if (policy_fields[assign->id].type != FT_ENV && check_text(ctx, text) < 0)
        return -1;
    struct policy_item item = {0};
    enum item_outcome outcome = item_parse(ctx, assign->id, text, &item);
    if (outcome == ITEM_ADDED)
        return push_item(ctx, assign, text, &item);
    policy_item_done(&item);
    return outcome == ITEM_SKIPPED ? 0 : -1;
}

int value_finish(const struct value_ctx *ctx, struct assign *assign, const char *written)
{
    struct policy_value *v = &assign->value;
    if (written) {
        v->written = assign->id == FIELD_HTTP_PROXY ? without_password(written) : strdup(written);
        if (!v->written)
            return no_memory(ctx);
    }
    if (policy_origin_copy(&ctx->origin, &v->origin) < 0)
        return no_memory(ctx);
    v->set = true;
    return 0;
}

void assign_done(struct assign *assign)
{
    policy_value_done(&assign->value);
}

/* `false` empties a list; `true` is a value of allow_network only. */
static int list_text(const struct value_ctx *ctx, struct assign *a, const char *text)
{
    if (str_eq(text, "false")) {
        a->clear = true;
        return 0;
    }
    if (policy_fields[a->id].type == FT_NETWORK && str_eq(text, "true")) {
        a->value.num = 1;
        return 0;
    }
    return value_add_item(ctx, a, text);
}

static int split_commas(const struct value_ctx *ctx, struct assign *a, const char *text)
{
    _cleanup_free_ char *copy = strdup(text);
    if (!copy)
        return no_memory(ctx);
    char *rest = copy;
    for (char *part = strsep(&rest, ","); part; part = strsep(&rest, ",")) {
        if (!*part)
            return value_refuse(ctx, text, "has an empty part between its commas");
        if (list_text(ctx, a, part) < 0)
            return -1;
    }
    return 0;
}

static int from_text(const struct value_ctx *ctx, enum field_id id, const char *text, bool commas,
                     struct assign *ret_assign)
{
    enum field_type type = policy_fields[id].type;
    if (!text) {
        if (!fields_value_is_optional(type))
            return err_set(ctx->err, ctx->code, "policy", 0, "%s: needs a value (%s)", ctx->where,
                           policy_fields[id].arg);
        text = "true";
    }

    __attribute__((cleanup(assign_done))) struct assign a;
    value_start(&a, id);
    int r;
    if (!fields_is_list(type))
        r = value_set_scalar(ctx, &a, text);
    else if (commas || type == FT_PORTS)
        r = check_text(ctx, text) < 0 ? -1 : split_commas(ctx, &a, text);
    else
        r = list_text(ctx, &a, text);
    if (r < 0 || value_finish(ctx, &a, text) < 0)
        return -1;
    *ret_assign = a;
    a = (struct assign){0};
    return 0;
}

int value_from_text(const struct value_ctx *ctx, enum field_id id, const char *text,
                    struct assign *ret_assign)
{
    return from_text(ctx, id, text, false, ret_assign);
}

int value_from_commas(const struct value_ctx *ctx, enum field_id id, const char *text,
                      struct assign *ret_assign)
{
    return from_text(ctx, id, text, true, ret_assign);
}

int value_from_data(const struct value_ctx *ctx, const char *text, const void *data, size_t len,
                    struct assign *ret_assign)
{
    if (check_text(ctx, text) < 0)
        return -1;
    if (!item_is_safe_name(text))
        return value_refuse(ctx, text,
                            "names a file outside the working directory; write a relative "
                            "name without '..'");

    __attribute__((cleanup(assign_done))) struct assign a;
    value_start(&a, FIELD_FILES);
    struct policy_item item = {.text = strdup(text), .data = malloc(len + 1), .data_len = len};
    if (!item.text || !item.data) {
        policy_item_done(&item);
        return no_memory(ctx);
    }
    if (len > 0)
        memcpy(item.data, data, len);
    item.data[len] = '\0';
    if (push_item(ctx, &a, text, &item) < 0 || value_finish(ctx, &a, text) < 0)
        return -1;
    *ret_assign = a;
    a = (struct assign){0};
    return 0;
}
