/* Looks for compilers and interpreters. Runs in the command and the supervisor, before a guest. */
#include "lang/tool.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/util.h"
#include "policy/value.h"

#define TOOLS_MAX 8

static bool tool_is_program(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 0111) != 0;
}

/* Part of what every guest sees. */
static bool tool_is_runtime(const char *real)
{
    static const char *const tops[] = {"/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/"};
    for (size_t i = 0; i < ARRAY_SIZE(tops); i++)
        if (str_starts(real, tops[i]))
            return true;
    return false;
}

static const char *tool_var(char *const *vars, const char *name)
{
    const char *value = value_env(vars, name, strlen(name));
    return value && *value ? value : NULL;
}

/* Folders that hold more than one program's files: nobody who names an interpreter means them. */
static bool tool_is_wide(const char *dir, const char *home)
{
    static const char *const wide[] = {"",         "/",    "/home", "/root",  "/opt",
                                       "/srv",     "/var", "/mnt",  "/media", "/tmp",
                                       "/var/tmp", "/run", "/etc",  "/snap"};
    for (size_t i = 0; i < ARRAY_SIZE(wide); i++)
        if (str_eq(dir, wide[i]))
            return true;
    if (!home)
        return false;
    size_t len = strlen(dir);
    bool above = strncmp(home, dir, len) == 0 && (home[len] == '\0' || home[len] == '/');
    size_t home_len = strlen(home);
    return above || (strncmp(dir, home, home_len) == 0 &&
                     (str_eq(dir + home_len, "/.local") || str_eq(dir + home_len, "/.config")));
}

/* The installation the program belongs to: the folder around its bin, or the program alone. */
static const char *tool_prefix(const char *real, char *const *vars, struct arena *arena)
{
    char *prefix = arena_strdup(arena, real);
    char *slash = prefix ? strrchr(prefix, '/') : NULL;
    if (!slash)
        return NULL;
    *slash = '\0';
    slash = strrchr(prefix, '/');
    if (!slash || (!str_eq(slash, "/bin") && !str_eq(slash, "/sbin")))
        return arena_strdup(arena, real);
    *slash = '\0';
    return tool_is_wide(prefix, tool_var(vars, "HOME")) ? arena_strdup(arena, real) : prefix;
}

/* Launchers of version managers choose a program by files and variables the guest does not have. */
static bool tool_is_launcher(const char *real)
{
    const char *slash = strrchr(real, '/');
    return strstr(real, "/shims/") || (slash && str_eq(slash, "/rustup"));
}

/* 1: it is there, 0: it is not, -1: out of memory. */
static int tool_try(const char *dir, size_t dir_len, const char *name, bool in_guest_path,
                    char *const *vars, struct arena *arena, struct lang_tool *ret)
{
    char path[PATH_MAX], real[PATH_MAX];
    if (dir_len == 0 || dir[0] != '/' ||
        snprintf(path, sizeof(path), "%.*s/%s", (int)dir_len, dir, name) >= (int)sizeof(path))
        return 0;
    if (!tool_is_program(path) || !realpath(path, real) || tool_is_launcher(real))
        return 0;
    struct lang_tool t = {.real = arena_strdup(arena, real)};
    if (!t.real)
        return -1;
    if (!tool_is_runtime(real)) {
        t.mount = tool_prefix(real, vars, arena);
        if (!t.mount)
            return -1;
    }
    if (!in_guest_path) {
        char *folder = arena_strdup(arena, real);
        if (!folder)
            return -1;
        *strrchr(folder, '/') = '\0';
        snprintf(path, sizeof(path), "%s/%s", folder, name);
        if (!tool_is_program(path))
            return 0; /* only a link elsewhere has this name */
        t.dir = folder;
    }
    *ret = t;
    return 1;
}

static int tool_in_path(const char *path, const char *name, bool in_guest_path, char *const *vars,
                        struct arena *arena, struct lang_tool *ret)
{
    int r = 0;
    while (path && *path && r == 0) {
        size_t n = strcspn(path, ":");
        r = tool_try(path, n, name, in_guest_path, vars, arena, ret);
        path += n + (path[n] == ':');
    }
    return r;
}

/* Where version managers and hand-made installations keep whole toolchains. Of several versions the
 * last by name. */
static int tool_in_places(const char *name, char *const *vars, struct arena *arena,
                          struct lang_tool *ret)
{
    static const char *const places[] = {
        "~/.pyenv/versions/*/bin",
        "~/.nvm/versions/node/*/bin",
        "~/.rbenv/versions/*/bin",
        "~/.rustup/toolchains/*/bin",
        "~/.sdkman/candidates/java/current/bin",
        "/usr/local/go/bin",
        "/usr/lib/go-*/bin",
        "/usr/lib/jvm/*/bin",
        "/opt/*/bin",
    };
    const char *home = tool_var(vars, "HOME");
    int r = 0;
    for (size_t i = 0; i < ARRAY_SIZE(places) && r == 0; i++) {
        char pattern[PATH_MAX];
        bool below_home = places[i][0] == '~';
        if (below_home && !home)
            continue;
        snprintf(pattern, sizeof(pattern), "%s%s", below_home ? home : "",
                 places[i] + (below_home ? 1 : 0));
        glob_t found = {0};
        if (glob(pattern, 0, NULL, &found) == 0)
            for (size_t k = found.gl_pathc; k-- > 0 && r == 0;)
                r = tool_try(found.gl_pathv[k], strlen(found.gl_pathv[k]), name, false, vars, arena,
                             ret);
        globfree(&found);
    }
    return r;
}

int lang_tool_missing(const struct lang *lang, const char *name, const char *how,
                      struct cordon_err *err)
{
    if (lang->package)
        return err_set(err, CORDON_ERR_HOST, "source", 0,
                       "language %s needs %s, %s (Debian package %s)", lang->name, name, how,
                       lang->package);
    return err_set(err, CORDON_ERR_HOST, "source", 0, "language %s needs %s, %s", lang->name, name,
                   how);
}

static int tool_not_installed(const struct lang *lang, const char *name, struct cordon_err *err)
{
    lang_tool_missing(lang, name, "which is not installed", err);
    if (lang->package)
        return err_hint(err, "apt-get install %s", lang->package);
    if (lang->origin)
        err_hint(err, "the language is described at %s:%u", lang->origin->name, lang->origin->line);
    return -1;
}

int lang_tool_all(const struct lang *lang, char *const *vars, struct arena *arena,
                  struct lang_tools *ret, struct cordon_err *err)
{
    struct lang_tools found = {arena_alloc(arena, TOOLS_MAX * sizeof(*found.list)), 0};
    if (!found.list)
        return err_nomem(err, "source");
    const char *name;
    for (size_t i = 0; i < TOOLS_MAX && (name = lang_registry_tool(lang, i)); i++) {
        struct lang_tool *t = &found.list[found.n];
        int r;
        if (strchr(name, '/')) {
            char real[PATH_MAX];
            r = name[0] == '/' && tool_is_program(name) && realpath(name, real);
            if (r == 1 && !(t->real = arena_strdup(arena, real)))
                r = -1;
        } else {
            r = tool_in_path(LANG_GUEST_PATH, name, true, vars, arena, t);
            if (r == 0)
                r = tool_in_path(tool_var(vars, "PATH"), name, false, vars, arena, t);
            if (r == 0)
                r = tool_in_places(name, vars, arena, t);
        }
        if (r < 0)
            return err_nomem(err, "source");
        if (r == 0)
            return tool_not_installed(lang, name, err);
        found.n++;
    }
    *ret = found;
    return 0;
}

int lang_tool_venv(const struct policy *policy, char *const *vars, struct arena *arena,
                   struct lang_tools *ret, struct cordon_err *err)
{
    const char *dir = policy_text(policy, FIELD_VENV);
    static const char *const names[] = {"python3", "python"};
    char path[PATH_MAX], real[PATH_MAX];
    size_t i = 0;
    for (; i < ARRAY_SIZE(names); i++) {
        snprintf(path, sizeof(path), "%s/bin/%s", dir, names[i]);
        if (tool_is_program(path) && realpath(path, real))
            break;
    }
    if (i == ARRAY_SIZE(names)) {
        err_set(err, CORDON_ERR_CONFIG, "source", 0,
                "venv %s: no virtual environment (it has no bin/python3)", dir);
        err_hint(err, "python3 -m venv %s", dir);
        return policy_err_place(&policy_value(policy, FIELD_VENV)->origin, err);
    }
    struct lang_tool *list = arena_alloc(arena, 2 * sizeof(*list));
    const char *bin = arena_printf(arena, "%s/bin", dir);
    if (!list || !bin)
        return err_nomem(err, "source");
    list[0] = (struct lang_tool){arena_strdup(arena, real), bin, arena_strdup(arena, dir)};
    if (!list[0].real || !list[0].mount)
        return err_nomem(err, "source");
    size_t n = 1;
    size_t len = strlen(dir);
    bool inside = strncmp(real, dir, len) == 0 && real[len] == '/';
    if (!tool_is_runtime(real) && !inside) {
        list[1] = (struct lang_tool){list[0].real, NULL, tool_prefix(real, vars, arena)};
        if (!list[1].mount)
            return err_nomem(err, "source");
        n = 2;
    }
    *ret = (struct lang_tools){list, n};
    return 0;
}
