/* The built-in levels and profiles as rows of text, read by the same code as everybody's settings.
 */
#include "policy/levels.h"

#include "base/util.h"

const struct level_row levels_base[] = {
    {"max_output", "16M"},          {"network", "none"},   {"block_internal", "true"},
    {"allow_ports", "80,443"},      {"backend", "native"}, {"compile_time_limit", "60s"},
    {"compile_memory_limit", "1G"}, {"log", "info"},       {NULL, NULL},
};

static const struct level_row permissive[] = {
    {"time_limit", "60s"},       {"memory_limit", "1G"},       {"cpu_limit", "0"},
    {"processes", "256"},        {"file_descriptors", "1024"}, {"scratch_size", "256M"},
    {"scratch_inodes", "65536"}, {"allow_network", "false"},   {NULL, NULL},
};

static const struct level_row standard[] = {
    {"time_limit", "30s"},       {"memory_limit", "512M"},     {"cpu_limit", "100"},
    {"processes", "128"},        {"file_descriptors", "1024"}, {"scratch_size", "256M"},
    {"scratch_inodes", "65536"}, {"allow_network", "false"},   {NULL, NULL},
};

static const struct level_row strict[] = {
    {"time_limit", "10s"},       {"memory_limit", "256M"},    {"cpu_limit", "50"},
    {"processes", "64"},         {"file_descriptors", "256"}, {"scratch_size", "64M"},
    {"scratch_inodes", "16384"}, {"allow_network", "false"},  {NULL, NULL},
};

static const struct level_row testing[] = {
    {"time_limit", "30s"},
    {"memory_limit", "500M"},
    {"cpu_limit", "0"},
    {"processes", "256"},
    {"file_descriptors", "1024"},
    {"scratch_size", "256M"},
    {"scratch_inodes", "65536"},
    {"allow_network", "false"},
    {"allow_read", "test/fixtures"},
    {"allow_write", "test/output"},
    {NULL, NULL},
};

static const struct level_row development[] = {
    {"time_limit", "60s"},
    {"memory_limit", "2G"},
    {"cpu_limit", "0"},
    {"processes", "1024"},
    {"file_descriptors", "4096"},
    {"scratch_size", "1G"},
    {"scratch_inodes", "262144"},
    {"allow_network", "localhost"},
    {"allow_network", "*.local"},
    {"allow_filesystem", "true"},
    {NULL, NULL},
};

static const struct level levels[] = {
    {.name = "permissive",
     .doc = "generous limits for code that is merely unknown",
     .rows = permissive,
     .imports = "pandas math statistics json numpy datetime"},
    {.name = "standard",
     .scratch_is_capped = true,
     .doc = "the default",
     .rows = standard,
     .imports = "pandas math statistics json"},
    {.name = "strict",
     .doc = "tight limits for code that is expected to misbehave",
     .rows = strict,
     .imports = "math statistics json"},
    {.name = "testing",
     .is_profile = true,
     .scratch_is_capped = true,
     .doc = "test/fixtures readable, test/output writable",
     .rows = testing},
    {.name = "development",
     .is_profile = true,
     .doc = "the workspace writable, the host's localhost and *.local reachable",
     .rows = development},
};

const struct level *levels_find(const char *name)
{
    if (str_eq(name, "default"))
        name = "standard";
    for (size_t i = 0; i < ARRAY_SIZE(levels); i++) {
        if (str_eq(levels[i].name, name))
            return &levels[i];
    }
    return NULL;
}

const struct level *levels_at(size_t index)
{
    return index < ARRAY_SIZE(levels) ? &levels[index] : NULL;
}
