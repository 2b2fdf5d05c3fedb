/* explain: a policy as text and as JSON. Pure. */
#include "policy/show.h"

#include "base/util.h"
#include "policy/fields.h"

const char *policy_shown_key(enum field_id id)
{
    return id == FIELD_DENY_NETWORK ? "network.deny_patterns" : policy_fields[id].key;
}

/* A variable's value may hold anything; a line of explain stays one line. */
static void print_escaped(struct buf *out, const char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            buf_printf(out, "\\x%02x", (unsigned char)*text);
        else
            buf_char(out, *text);
    }
}

static void print_line(struct buf *out, enum field_id id, const char *value,
                       const struct origin *origin)
{
    char where[512];
    policy_origin_text(origin, where, sizeof(where));
    buf_printf(out, "%s = ", policy_shown_key(id));
    print_escaped(out, value);
    buf_str(out, "   ");
    print_escaped(out, where);
    buf_char(out, '\n');
}

void policy_explain_text(const struct policy *policy, struct buf *out)
{
    buf_printf(out, "profile = %s\n", policy->profile);
    for (unsigned f = 0; f < FIELD_COUNT_; f++) {
        enum field_id id = (enum field_id)f;
        const struct policy_value *v = policy_value(policy, id);
        if (!v->set)
            continue;
        bool is_list = fields_is_list(policy_fields[id].type);
        if (!is_list || v->n_items == 0)
            print_line(out, id, v->written, &v->origin);
        else if (v->num)
            print_line(out, id, "true", &v->origin);
        for (size_t i = 0; is_list && i < v->n_items; i++)
            print_line(out, id, v->items[i].written, &v->items[i].origin);
    }
}

static void json_origin(struct jsonw *j, const struct origin *origin)
{
    jsonw_open(j, "origin", '{');
    jsonw_str(j, "name", origin->name);
    if (origin->line) {
        jsonw_uint(j, "line", origin->line);
        jsonw_uint(j, "column", origin->column);
    }
    jsonw_close(j, '}');
}

static void json_item(struct jsonw *j, enum field_type type, const struct policy_item *item)
{
    jsonw_open(j, NULL, '{');
    jsonw_str(j, "value", item->written);
    if (type == FT_PATHS || type == FT_PATTERNS || type == FT_MOUNTS)
        jsonw_str(j, "path", item->text);
    if (type == FT_MOUNTS) {
        jsonw_str(j, "target", item->extra);
        jsonw_bool(j, "writable", item->num != 0);
    }
    json_origin(j, &item->origin);
    jsonw_close(j, '}');
}

/* The unit is in the key, as everywhere. */
static void json_scalar(struct jsonw *j, enum field_type type, const struct policy_value *v)
{
    jsonw_str(j, "value", v->written);
    if (type == FT_DURATION)
        jsonw_uint(j, "ns", v->num);
    else if (type == FT_SIZE)
        jsonw_uint(j, "bytes", v->num);
    else if (type == FT_PERCENT || type == FT_COUNT)
        jsonw_uint(j, "number", v->num);
    else if (type == FT_BOOL)
        jsonw_bool(j, "enabled", v->num != 0);
    else if ((type == FT_PATH || type == FT_WORKSPACE || type == FT_TEMP_DIR) && v->text[0])
        jsonw_str(j, "path", v->text);
}

void policy_explain_json(const struct policy *policy, struct jsonw *out)
{
    jsonw_str(out, "profile", policy->profile);
    jsonw_str(out, "config_file", policy->config_file);
    jsonw_str(out, "user_file", policy->user_file);
    jsonw_open(out, "settings", '{');
    for (unsigned f = 0; f < FIELD_COUNT_; f++) {
        enum field_id id = (enum field_id)f;
        const struct policy_value *v = policy_value(policy, id);
        enum field_type type = policy_fields[id].type;
        if (!v->set)
            continue;
        jsonw_open(out, policy_shown_key(id), '{');
        if (fields_is_list(type)) {
            if (type == FT_NETWORK)
                jsonw_bool(out, "all", v->num != 0);
            jsonw_open(out, "items", '[');
            for (size_t i = 0; i < v->n_items; i++)
                json_item(out, type, &v->items[i]);
            jsonw_close(out, ']');
        } else {
            json_scalar(out, type, v);
        }
        json_origin(out, &v->origin);
        jsonw_close(out, '}');
    }
    jsonw_close(out, '}');
}
