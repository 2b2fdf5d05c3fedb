/* What the guest may use, as checked values with their origins.
 *
 * Pure data: made by merging layers (default level, user's file, project's file, profile,
 * environment, command line), read by the plan. A policy holds one value per row of fields.def. */
#ifndef POLICY_POLICY_H
#define POLICY_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cordon.h>

enum field_id {
#define X(id, key, table, flag, type, merge, risk, arg, doc) FIELD_##id,
#include "policy/fields.def"
#undef X
    FIELD_COUNT_
};

enum field_table { TABLE_SANDBOX, TABLE_FILESYSTEM, TABLE_NETWORK };
enum field_merge { MERGE_REPLACE, MERGE_APPEND };
enum field_risk { RISK_NONE, RISK_LIMIT, RISK_GRANT, RISK_DENY };
enum field_type {
    FT_DURATION, /* num: nanoseconds */
    FT_SIZE,     /* num: bytes */
    FT_PERCENT,  /* num */
    FT_COUNT,    /* num */
    FT_BOOL,     /* num: 0 or 1; a bare flag means true */
    FT_STRING,   /* text */
    FT_PATH, /* text: absolute, normalised; relative ones against the file's folder or the cwd */
    FT_TEMP_DIR,     /* num 0/1 and text: absolute path inside the guest, or "" for a fresh one */
    FT_WORKSPACE,    /* text: absolute host path; num: enum workspace_mode */
    FT_ENUM_NETWORK, /* num: index into the field's words */
    FT_ENUM_BACKEND,
    FT_ENUM_RUNTIME,
    FT_ENUM_TIER,
    FT_ENUM_LOG,
    /* lists: items */
    FT_STRINGS,
    FT_PATHS,    /* item.text absolute */
    FT_PATTERNS, /* item.text absolute path or glob */
    FT_MOUNTS,   /* item.text source (absolute), item.extra destination, item.num 1 = writable */
    FT_FILES, /* item.text relative name in the guest, item.extra host file (absolute) or NULL with
                 item.data */
    FT_ENV,   /* item.text name, item.extra value (already taken from the host for a bare name) */
    FT_NETWORK, /* num 1 = `true` (everything public); items as FT_NET_PATTERNS */
    FT_NET_NAMES,
    FT_NET_PATTERNS, /* item.text as written; parsed again by the network code */
    FT_PORTS,        /* item.num */
};

enum workspace_mode { WORKSPACE_NONE, WORKSPACE_RO, WORKSPACE_RW, WORKSPACE_OVERLAY };
enum network_mode { NETWORK_NONE, NETWORK_BRIDGE, NETWORK_HOST };
enum backend_kind { BACKEND_NATIVE, BACKEND_DOCKER, BACKEND_GVISOR, BACKEND_OCI };
enum tier { TIER_FULL, TIER_LANDLOCK };
enum log_level { LOG_INFO, LOG_VERBOSE, LOG_QUIET }; /* words in the order of the enum */

/* Who said a value. A project's file cannot allow what FROM_USER denied; FROM_ENV and FROM_COMMAND
 * come after it and need no such rule. */
enum origin_source { FROM_BUILTIN, FROM_USER, FROM_PROJECT, FROM_ENV, FROM_COMMAND };

/* Where a value was said: "level standard", "profile testing", "cordon.toml:3",
 * "CORDON_TIME_LIMIT",
 * "--time-limit". line and column are 0 unless it was a file. */
struct origin {
    char *name; /* owned; file name or one of the words above */
    unsigned line, column;
    enum origin_source source;
    unsigned layer; /* order of application, weakest first; values of one table share it */
};

struct policy_item {
    char *text;    /* owned */
    char *extra;   /* owned, may be NULL */
    char *written; /* as the user wrote it; owned, never NULL */
    char *data;    /* owned bytes for an inline file, may be NULL */
    size_t data_len;
    uint64_t num;
    struct origin origin;
    bool optional; /* from a built-in profile: a missing path is skipped */
};

struct policy_value {
    bool set;
    uint64_t num;
    char *text;    /* checked value, see enum field_type; owned */
    char *written; /* as the user wrote it: messages and explain repeat it; owned */
    struct policy_item *items;
    size_t n_items;
    struct origin origin; /* of the value, or of the last item */
};

/* An entry of [languages.NAME]; lists end with NULL, absent ones are NULL. All owned. */
struct policy_language {
    char *name;
    char **suffixes;
    char **aliases;
    char **compile; /* argument vectors: an array, or a string split at blanks */
    char **run;
    char **version;
    char **env; /* "K=V" */
    struct origin origin;
};

struct policy {
    char *profile; /* "default" when none was chosen; owned */
    struct policy_value values[FIELD_COUNT_];
    char *config_file;   /* absolute path of the project's file that was read, or NULL; owned */
    char *user_file;     /* the same for the user's own file */
    char **test_command; /* [test] command, ends with NULL; NULL when absent; owned */
    struct policy_language *languages;
    size_t n_languages;
    bool looks_only; /* of a step before the run: granted folders and files are read-only to it */
};

struct field {
    const char *key;
    enum field_table table;
    const char *flag;
    enum field_type type;
    enum field_merge merge;
    enum field_risk risk;
    const char *arg;
    const char *doc;
};

extern const struct field policy_fields[FIELD_COUNT_];

void policy_free(struct policy *policy);

/* "cordon.toml:3", "--time-limit", "level standard" */
void policy_origin_text(const struct origin *origin, char *ret_text, size_t size);
/* The same for errors: with the column. */
void policy_origin_place(const struct origin *origin, char *ret_text, size_t size);
/* Puts that place before a configuration error that is found after the reading; returns -1. */
int policy_err_place(const struct origin *origin, struct cordon_err *err);

static inline bool policy_has(const struct policy *p, enum field_id id)
{
    return p->values[id].set;
}

static inline uint64_t policy_num(const struct policy *p, enum field_id id)
{
    return p->values[id].num;
}

static inline bool policy_bool(const struct policy *p, enum field_id id)
{
    return p->values[id].set && p->values[id].num != 0;
}

static inline const char *policy_text(const struct policy *p, enum field_id id)
{
    return p->values[id].text;
}

/* As the user wrote it, for messages. Never NULL for a set value. */
static inline const char *policy_written(const struct policy *p, enum field_id id)
{
    return p->values[id].written;
}

static inline const struct policy_value *policy_value(const struct policy *p, enum field_id id)
{
    return &p->values[id];
}

/* Messages repeat what people wrote: control characters become '?', so that nobody forges a line.
 */
void policy_err_clean(struct cordon_err *err);

/* ---- How a policy is made ------------------------------------------------------------------- */

/* One setting as it came from a flag or a C caller: flag name (or config key) and its text. */
struct policy_setting {
    const char *
        name; /* "time-limit" or "time_limit"; "network.deny_patterns" where a key has two tables */
    const char *value; /* NULL for a bare flag */
    const void *data; /* `filesystem` only: the file's bytes, value is then its name in the guest */
    size_t data_len;
};

struct policy_input {
    const struct policy_setting *settings; /* command line, in order */
    size_t n_settings;
    const char *profile;     /* --profile / --sandbox=NAME, NULL when not given */
    const char *config_file; /* --config, NULL: discover */
    bool no_discovery;       /* library callers that want no file at all */
    char *const *environ;    /* the caller's environment: CORDON_*, XDG_CONFIG_HOME, HOME and bare
                                --env names */
    const char *cwd;         /* for relative paths and discovery; NULL = getcwd() */
    bool test; /* `cordon test`: the [test] table counts, between profile and environment */
};

/* Reads, merges and checks everything; nothing else is touched. */
int policy_resolve(const struct policy_input *input, struct policy **ret_policy,
                   struct cordon_err *err);

#endif
