/* List items: paths, patterns, mounts, files, variables, network rules, ports. Pure. */
#include "policy/item.h"

#include "base/err.h"
#include "base/util.h"
#include "policy/netrule.h"
#include "policy/units.h"

static enum item_outcome refused(const struct value_ctx *ctx, const char *text, const char *why)
{
    value_refuse(ctx, text, why);
    return ITEM_REFUSED;
}

static enum item_outcome no_memory(const struct value_ctx *ctx)
{
    err_nomem(ctx->err, "policy");
    return ITEM_REFUSED;
}

static enum item_outcome item_string(const struct value_ctx *ctx, const char *text,
                                     struct policy_item *item)
{
    item->text = strdup(text);
    return item->text ? ITEM_ADDED : no_memory(ctx);
}

static enum item_outcome item_path(const struct value_ctx *ctx, const char *text,
                                   struct policy_item *item)
{
    if (text[0] == '~' && (!text[1] || text[1] == '/'))
        return refused(ctx, text,
                       "starts with '~', which is not expanded here; write the whole path");
    item->text = value_path(ctx->base, text);
    return item->text ? ITEM_ADDED : no_memory(ctx);
}

/* `**` reaches arbitrarily deep: only as the last part is that one hidden tree and not a search. */
static enum item_outcome item_pattern(const struct value_ctx *ctx, const char *text,
                                      struct policy_item *item)
{
    const char *stars = strstr(text, "**");
    if (stars && (stars[2] != '\0' || (stars != text && stars[-1] != '/')))
        return refused(ctx, text, "has '**' elsewhere than as its last part");
    return item_path(ctx, text, item);
}

static enum item_outcome item_mount(const struct value_ctx *ctx, const char *text,
                                    struct policy_item *item)
{
    static const char form[] = "is not a mount; write SRC:DST, SRC:DST:ro or SRC:DST:rw with an "
                               "absolute DST";
    _cleanup_free_ char *copy = strdup(text);
    if (!copy)
        return no_memory(ctx);

    size_t len = strlen(copy);
    if (len > 3 && (str_eq(copy + len - 3, ":ro") || str_eq(copy + len - 3, ":rw"))) {
        item->num = copy[len - 1] == 'w';
        copy[len - 3] = '\0';
    }
    /* The source may hold colons; the destination starts at the last ":/". */
    char *split = NULL;
    for (char *p = strstr(copy, ":/"); p; p = strstr(p + 1, ":/"))
        split = p;
    if (!split || split == copy || strchr(split + 1, ':'))
        return refused(ctx, text, form);
    *split = '\0';

    item->extra = value_path("/", split + 1);
    if (!item->extra)
        return no_memory(ctx);
    if (str_eq(item->extra, "/"))
        return refused(ctx, text, "would cover the guest's whole root; mount below it");
    return item_path(ctx, copy, item);
}

bool item_is_safe_name(const char *name)
{
    if (!*name || *name == '/')
        return false;
    for (const char *part = name; part;) {
        const char *end = strchr(part, '/');
        size_t len = end ? (size_t)(end - part) : strlen(part);
        if (len == 0 || (len == 1 && part[0] == '.') ||
            (len == 2 && part[0] == '.' && part[1] == '.'))
            return false;
        part = end ? end + 1 : NULL;
    }
    return true;
}

static enum item_outcome item_file(const struct value_ctx *ctx, const char *text,
                                   struct policy_item *item)
{
    const char *equals = strchr(text, '=');
    if (!equals || !equals[1])
        return refused(ctx, text, "is not a file; write NAME=HOSTFILE");

    _cleanup_free_ char *name = strndup(text, (size_t)(equals - text));
    if (!name)
        return no_memory(ctx);
    if (!item_is_safe_name(name))
        return refused(ctx, text,
                       "names a file outside the working directory; write a relative "
                       "NAME without '..'");
    enum item_outcome outcome = item_path(ctx, equals + 1, item);
    if (outcome != ITEM_ADDED)
        return outcome;
    item->extra = item->text;
    item->text = TAKE_PTR(name);
    return ITEM_ADDED;
}

static bool is_env_name(const char *name, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        char c = name[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!letter && !(i > 0 && c >= '0' && c <= '9'))
            return false;
    }
    return len > 0;
}

static enum item_outcome item_env(const struct value_ctx *ctx, const char *text,
                                  struct policy_item *item)
{
    size_t len = strcspn(text, "=");
    if (!is_env_name(text, len))
        return refused(ctx, text, "is not a variable; write K=V, or K to take the host's value");
    const char *value = text[len] ? text + len + 1 : value_env(ctx->environ, text, len);
    if (!value)
        return ITEM_SKIPPED;
    item->text = strndup(text, len);
    item->extra = strdup(value);
    return item->text && item->extra ? ITEM_ADDED : no_memory(ctx);
}

static enum item_outcome item_net(const struct value_ctx *ctx, enum field_id id, const char *text,
                                  struct policy_item *item)
{
    struct netrule rule;
    char why[NETRULE_WHY_MAX];
    if (netrule_parse(text, &rule, why) < 0)
        return refused(ctx, text, why);
    if (policy_fields[id].type == FT_NET_NAMES && !netrule_is_exact(&rule))
        return refused(ctx, text,
                       "is a pattern, and allow_domains takes exact names; patterns "
                       "belong in allow_patterns");
    return item_string(ctx, text, item);
}

static enum item_outcome item_port(const struct value_ctx *ctx, const char *text,
                                   struct policy_item *item)
{
    const char *why = units_port(text, &item->num);
    return why ? refused(ctx, text, why) : item_string(ctx, text, item);
}

/* HOSTPORT:GUESTPORT, both on loopback. */
static enum item_outcome item_publish(const struct value_ctx *ctx, const char *text,
                                      struct policy_item *item)
{
    char host[8];
    uint64_t port;
    const char *colon = strchr(text, ':');
    size_t len = colon ? (size_t)(colon - text) : 0;
    if (len == 0 || len >= sizeof(host))
        return refused(ctx, text, "is not a pair of ports; write HOSTPORT:GUESTPORT");
    memcpy(host, text, len);
    host[len] = '\0';
    if (units_port(host, &port) || units_port(colon + 1, &port))
        return refused(ctx, text, "is not a pair of ports; write HOSTPORT:GUESTPORT");
    return item_string(ctx, text, item);
}

/* GLOB=DIR or GLOB=fd:N; the folder is made absolute, the glob stays as it is. */
static enum item_outcome item_output(const struct value_ctx *ctx, const char *text,
                                     struct policy_item *item)
{
    const char *equals = strrchr(text, '=');
    if (!equals || equals == text || !equals[1] || text[0] == '/')
        return refused(ctx, text, "is not an output; write GLOB=DIR with a relative GLOB");
    if (str_starts(equals + 1, "fd:")) {
        const char *digits = equals + 1 + strlen("fd:");
        size_t len = strspn(digits, "0123456789");
        if (len == 0 || len > 6 || digits[len])
            return refused(ctx, text, "is not an output; write GLOB=fd:N with an open descriptor");
        return item_string(ctx, text, item);
    }
    _cleanup_free_ char *dir = value_path(ctx->base, equals + 1);
    if (!dir)
        return no_memory(ctx);
    if (asprintf(&item->text, "%.*s=%s", (int)(equals - text), text, dir) < 0) {
        item->text = NULL;
        return no_memory(ctx);
    }
    return ITEM_ADDED;
}

static enum item_outcome item_word(const struct value_ctx *ctx, enum field_id id, const char *text,
                                   struct policy_item *item)
{
    if (id == FIELD_PUBLISH)
        return item_publish(ctx, text, item);
    if (id == FIELD_OUTPUT)
        return item_output(ctx, text, item);
    return item_string(ctx, text, item);
}

enum item_outcome item_parse(const struct value_ctx *ctx, enum field_id id, const char *text,
                             struct policy_item *item)
{
    switch ((int)policy_fields[id].type) {
    case FT_STRINGS: return item_word(ctx, id, text, item);
    case FT_PATHS: return item_path(ctx, text, item);
    case FT_PATTERNS: return item_pattern(ctx, text, item);
    case FT_MOUNTS: return item_mount(ctx, text, item);
    case FT_FILES: return item_file(ctx, text, item);
    case FT_ENV: return item_env(ctx, text, item);
    case FT_NETWORK:
    case FT_NET_NAMES:
    case FT_NET_PATTERNS: return item_net(ctx, id, text, item);
    case FT_PORTS: return item_port(ctx, text, item);
    default: return refused(ctx, text, "is not a list item");
    }
}
