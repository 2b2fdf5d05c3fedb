/* The field table in memory and its look-ups. Pure; used by every reader and writer of knobs. */
#include "policy/fields.h"

#include <ctype.h>
#include <stdint.h>

#include "base/util.h"

const struct field policy_fields[FIELD_COUNT_] = {
#define SANDBOX TABLE_SANDBOX
#define FILESYSTEM TABLE_FILESYSTEM
#define NETWORK TABLE_NETWORK
#define X(id, key, table, flag, type, merge, risk, arg, doc)                                       \
    [FIELD_##id] = {key, table, flag, type, merge, risk, arg, doc},
#include "policy/fields.def"
#undef X
#undef SANDBOX
#undef FILESYSTEM
#undef NETWORK
};

static const char *const network_words[] = {"none", "bridge", "host", NULL};
static const char *const backend_words[] = {"native", "docker", "gvisor", "oci", NULL};
static const char *const runtime_words[] = {"runc", "crun", "runsc", NULL};
static const char *const tier_words[] = {"full", "landlock", NULL};
static const char *const log_words[] = {"info", "verbose", "quiet", NULL};

enum field_id fields_by_flag(const char *flag)
{
    unsigned id = 0;
    while (id < FIELD_COUNT_ && (!*policy_fields[id].flag || !str_eq(policy_fields[id].flag, flag)))
        id++;
    return (enum field_id)id;
}

enum field_id fields_by_key(enum field_table table, const char *key)
{
    unsigned id = 0;
    while (id < FIELD_COUNT_ &&
           (policy_fields[id].table != table || !str_eq(policy_fields[id].key, key)))
        id++;
    return (enum field_id)id;
}

enum field_id fields_by_any_key(const char *key)
{
    static const char network[] = "network.", filesystem[] = "filesystem.";
    if (str_starts(key, network))
        return fields_by_key(TABLE_NETWORK, key + strlen(network));
    if (str_starts(key, filesystem))
        return fields_by_key(TABLE_FILESYSTEM, key + strlen(filesystem));

    /* The table has the files' deny_patterns first. */
    unsigned id = 0;
    while (id < FIELD_COUNT_ && !str_eq(policy_fields[id].key, key))
        id++;
    return (enum field_id)id;
}

const char *fields_table_name(enum field_table table)
{
    static const char *const names[] = {
        [TABLE_SANDBOX] = "sandbox",
        [TABLE_FILESYSTEM] = "sandbox.filesystem",
        [TABLE_NETWORK] = "sandbox.network",
    };
    return names[table];
}

bool fields_is_list(enum field_type type)
{
    return type >= FT_STRINGS;
}

bool fields_value_is_optional(enum field_type type)
{
    return type == FT_BOOL || type == FT_TEMP_DIR;
}

const char *const *fields_words(enum field_type type)
{
    if (type == FT_ENUM_NETWORK)
        return network_words;
    if (type == FT_ENUM_BACKEND)
        return backend_words;
    if (type == FT_ENUM_RUNTIME)
        return runtime_words;
    if (type == FT_ENUM_TIER)
        return tier_words;
    if (type == FT_ENUM_LOG)
        return log_words;
    return NULL;
}

uint64_t fields_min(enum field_id id)
{
    /* A tmpfs of size 0 or with 0 inodes is one without a limit; the others would run nothing. */
    static const enum field_id positive[] = {
        FIELD_TIME_LIMIT,     FIELD_CPU_TIME,           FIELD_MEMORY_LIMIT,
        FIELD_PROCESSES,      FIELD_FILE_DESCRIPTORS,   FIELD_SCRATCH_SIZE,
        FIELD_SCRATCH_INODES, FIELD_COMPILE_TIME_LIMIT, FIELD_COMPILE_MEMORY_LIMIT,
        FIELD_DISK_LIMIT,     FIELD_MAX_FILES,          FIELD_MAX_TRAFFIC,
    };
    for (size_t i = 0; i < ARRAY_SIZE(positive); i++) {
        if (positive[i] == id)
            return 1;
    }
    return 0;
}

bool fields_env_name(enum field_id id, char *ret_name, size_t size)
{
    return fields_env_of_flag(policy_fields[id].flag, ret_name, size);
}

bool fields_env_of_flag(const char *flag, char *ret_name, size_t size)
{
    if (!*flag)
        return false;
    int n = snprintf(ret_name, size, "CORDON_%s", flag);
    if (n < 0 || (size_t)n >= size)
        return false;
    for (char *p = ret_name; *p; p++)
        *p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
    return true;
}

unsigned fields_distance(const char *a, const char *b, unsigned max)
{
    enum { LONGEST = 48 };
    size_t la = strlen(a), lb = strlen(b);
    if (la > LONGEST || lb > LONGEST)
        return max + 1;

    unsigned rows[3][LONGEST + 1];
    for (size_t j = 0; j <= lb; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= la; i++) {
        unsigned *row = rows[i % 3], *up = rows[(i + 2) % 3], *up2 = rows[(i + 1) % 3];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= lb; j++) {
            unsigned change = up[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = MIN(change, MIN(up[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = MIN(row[j], up2[j - 2] + 1);
        }
    }
    return MIN(rows[la % 3][lb], max + 1);
}

struct fields_near fields_near_start(const char *word)
{
    return (struct fields_near){.word = word};
}

/* `--memory` for `--memory-limit`. */
static bool fields_is_beginning(const char *word, const char *candidate)
{
    size_t n = strlen(word);
    return n > 0 && strncmp(word, candidate, n) == 0 &&
           (candidate[n] == '-' || candidate[n] == '_');
}

void fields_near_try(struct fields_near *near, const char *candidate)
{
    /* Three edits in a word of nine are a near miss, in a word of three they are another word. */
    enum { MOST = 3, BEGINNING = MOST + 1 };
    unsigned limit = MAX((unsigned)MIN(strlen(near->word) / 3, (size_t)MOST), 1u);
    if (near->best)
        limit = MIN(limit, near->distance - 1);
    else if (fields_is_beginning(near->word, candidate))
        *near = (struct fields_near){near->word, candidate, BEGINNING};
    unsigned distance = fields_distance(near->word, candidate, limit);
    if (distance > limit || distance == 0)
        return; /* the word itself is no guess */
    near->best = candidate;
    near->distance = distance;
}
