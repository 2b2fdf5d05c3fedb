/* JSON Schema of cordon.toml from the field table. Pure. */
#include "policy/show.h"

#include "base/util.h"
#include "policy/fields.h"

static void type_only(struct jsonw *j, const char *type)
{
    jsonw_open(j, NULL, '{');
    jsonw_str(j, "type", type);
    jsonw_close(j, '}');
}

static void const_false(struct jsonw *j)
{
    jsonw_open(j, NULL, '{');
    jsonw_bool(j, "const", false);
    jsonw_close(j, '}');
}

static void string_pattern(struct jsonw *j, const char *key, const char *pattern)
{
    jsonw_open(j, key, '{');
    jsonw_str(j, "type", "string");
    if (pattern)
        jsonw_str(j, "pattern", pattern);
    jsonw_close(j, '}');
}

static void array_of(struct jsonw *j, const char *type)
{
    jsonw_open(j, NULL, '{');
    jsonw_str(j, "type", "array");
    jsonw_open(j, "items", '{');
    jsonw_str(j, "type", type);
    jsonw_close(j, '}');
    jsonw_close(j, '}');
}

static void schema_list(struct jsonw *j, enum field_type type)
{
    jsonw_open(j, "anyOf", '[');
    if (type == FT_NETWORK)
        type_only(j, "boolean");
    else
        const_false(j);
    array_of(j, type == FT_PORTS ? "integer" : "string");
    if (type == FT_ENV || type == FT_FILES) {
        jsonw_open(j, NULL, '{');
        jsonw_str(j, "type", "object");
        string_pattern(j, "additionalProperties", NULL);
        jsonw_close(j, '}');
    }
    jsonw_close(j, ']');
}

static void schema_scalar(struct jsonw *j, enum field_id id)
{
    static const char duration[] = "^[0-9]+(\\.[0-9]+)?(ms|s|m|h)$";
    static const char size[] = "^[0-9]+(\\.[0-9]+)?([KkMmGgTt]([Ii]?[Bb])?|[Bb])?$";
    enum field_type type = policy_fields[id].type;
    const char *const *words = fields_words(type);

    if (words) {
        jsonw_open(j, "enum", '[');
        for (; *words; words++)
            jsonw_str(j, NULL, *words);
        jsonw_close(j, ']');
    } else if (type == FT_DURATION) {
        jsonw_str(j, "type", "string");
        jsonw_str(j, "pattern", duration);
    } else if (type == FT_SIZE) {
        jsonw_open(j, "anyOf", '[');
        string_pattern(j, NULL, size);
        jsonw_open(j, NULL, '{');
        jsonw_str(j, "type", "integer");
        jsonw_uint(j, "minimum", fields_min(id));
        jsonw_close(j, '}');
        jsonw_close(j, ']');
    } else if (type == FT_PERCENT || type == FT_COUNT) {
        jsonw_str(j, "type", "integer");
        jsonw_uint(j, "minimum", fields_min(id));
    } else if (type == FT_BOOL) {
        jsonw_str(j, "type", "boolean");
    } else if (type == FT_TEMP_DIR || type == FT_WORKSPACE) {
        jsonw_open(j, "anyOf", '[');
        type_only(j, "string");
        if (type == FT_TEMP_DIR)
            type_only(j, "boolean");
        else
            const_false(j);
        jsonw_close(j, ']');
    } else {
        jsonw_str(j, "type", "string");
    }
}

static void schema_field(struct jsonw *j, const char *key, enum field_id id)
{
    jsonw_open(j, key, '{');
    jsonw_str(j, "description", policy_fields[id].doc);
    if (fields_is_list(policy_fields[id].type))
        schema_list(j, policy_fields[id].type);
    else
        schema_scalar(j, id);
    jsonw_close(j, '}');
}

static void schema_subtable(struct jsonw *j, enum field_table table)
{
    jsonw_str(j, "type", "object");
    jsonw_bool(j, "additionalProperties", false);
    jsonw_open(j, "properties", '{');
    for (unsigned id = 0; id < FIELD_COUNT_; id++) {
        if (policy_fields[id].table == table)
            schema_field(j, policy_fields[id].key, (enum field_id)id);
    }
    if (table == TABLE_FILESYSTEM)
        schema_field(j, "files", FIELD_FILES);
    jsonw_close(j, '}');
}

/* `network` and `filesystem` are a key and a table at once. */
static void schema_key_or_table(struct jsonw *j, const char *key, enum field_id id,
                                enum field_table table)
{
    jsonw_open(j, key, '{');
    jsonw_open(j, "anyOf", '[');
    schema_field(j, NULL, id);
    jsonw_open(j, NULL, '{');
    schema_subtable(j, table);
    jsonw_close(j, '}');
    jsonw_close(j, ']');
    jsonw_close(j, '}');
}

/* Keys of all tables may stand in [sandbox] and in a profile. */
static void schema_scope(struct jsonw *j, bool is_profile)
{
    jsonw_str(j, "type", "object");
    jsonw_bool(j, "additionalProperties", false);
    jsonw_open(j, "properties", '{');
    for (unsigned id = 0; id < FIELD_COUNT_; id++) {
        if (id == FIELD_DENY_NETWORK || id == FIELD_NETWORK || id == FIELD_FILES)
            continue;
        schema_field(j, policy_fields[id].key, (enum field_id)id);
    }
    schema_key_or_table(j, "network", FIELD_NETWORK, TABLE_NETWORK);
    schema_key_or_table(j, "filesystem", FIELD_FILES, TABLE_FILESYSTEM);
    if (is_profile) {
        string_pattern(j, "inherits", NULL);
    } else {
        jsonw_open(j, "profiles", '{');
        jsonw_str(j, "type", "object");
        jsonw_open(j, "additionalProperties", '{');
        jsonw_str(j, "$ref", "#/$defs/profile");
        jsonw_close(j, '}');
        jsonw_close(j, '}');
    }
    jsonw_close(j, '}');
}

static void schema_strings(struct jsonw *j, const char *key, bool or_string)
{
    jsonw_open(j, key, '{');
    jsonw_open(j, "anyOf", '[');
    array_of(j, "string");
    if (or_string)
        type_only(j, "string");
    jsonw_close(j, ']');
    jsonw_close(j, '}');
}

static void schema_test(struct jsonw *j)
{
    jsonw_open(j, "test", '{');
    jsonw_str(j, "type", "object");
    jsonw_bool(j, "additionalProperties", false);
    jsonw_open(j, "properties", '{');
    jsonw_open(j, "sandbox", '{');
    jsonw_open(j, "anyOf", '[');
    jsonw_open(j, NULL, '{');
    jsonw_bool(j, "const", true);
    jsonw_close(j, '}');
    type_only(j, "string");
    jsonw_close(j, ']');
    jsonw_close(j, '}');
    schema_field(j, "sandbox_time_limit", FIELD_TIME_LIMIT);
    schema_field(j, "sandbox_memory_limit", FIELD_MEMORY_LIMIT);
    schema_strings(j, "command", true);
    jsonw_close(j, '}');
    jsonw_close(j, '}');
}

static void schema_languages(struct jsonw *j)
{
    jsonw_open(j, "languages", '{');
    jsonw_str(j, "type", "object");
    jsonw_open(j, "additionalProperties", '{');
    jsonw_str(j, "type", "object");
    jsonw_bool(j, "additionalProperties", false);
    jsonw_open(j, "required", '[');
    jsonw_str(j, NULL, "run");
    jsonw_close(j, ']');
    jsonw_open(j, "properties", '{');
    schema_strings(j, "suffixes", false);
    schema_strings(j, "aliases", false);
    schema_strings(j, "compile", true);
    schema_strings(j, "run", true);
    schema_strings(j, "version", true);
    schema_field(j, "env", FIELD_ENV);
    jsonw_close(j, '}');
    jsonw_close(j, '}');
    jsonw_close(j, '}');
}

void policy_schema(struct buf *out)
{
    struct jsonw writer = {.out = out};
    struct jsonw *j = &writer;
    jsonw_open(j, NULL, '{');
    jsonw_str(j, "$schema", "https://json-schema.org/draft/2020-12/schema");
    jsonw_str(j, "title", "cordon.toml");
    jsonw_str(j, "type", "object");
    jsonw_bool(j, "additionalProperties", false);
    jsonw_open(j, "properties", '{');
    jsonw_open(j, "sandbox", '{');
    schema_scope(j, false);
    jsonw_close(j, '}');
    schema_test(j);
    schema_languages(j);
    jsonw_close(j, '}');
    jsonw_open(j, "$defs", '{');
    jsonw_open(j, "profile", '{');
    schema_scope(j, true);
    jsonw_close(j, '}');
    jsonw_close(j, '}');
    jsonw_close(j, '}');
    buf_char(out, '\n');
}
