/* The table of languages and its look-ups. Pure; used by the command and the supervisor. */
#include "lang/registry.h"

#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/util.h"
#include "policy/fields.h"

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* javac wants a public class in a file of its name, and the class to start must be known: both are
 * found in the guest, by its own tools, and written into the archive. */
static const char java_compile[] =
    "set -e; name=${1%.java}; name=${name##*/}\n"
    "class=$(sed -n "
    "'s/^[[:space:]]*public[[:space:]]\\{1,\\}\\(\\(final\\|abstract\\|sealed\\|strictfp\\)"
    "[[:space:]]\\{1,\\}\\)*\\(class\\|record\\|enum\\|interface\\)[[:space:]]\\{1,\\}"
    "\\([A-Za-z_$][A-Za-z0-9_$]*\\).*/\\4/p' \"$1\" | head -n 1)\n"
    "package=$(sed -n "
    "'s/^[[:space:]]*package[[:space:]]\\{1,\\}\\([A-Za-z0-9_.]*\\)[[:space:]]*;.*/\\1/p' "
    "\"$1\" | head -n 1)\n"
    "work=$(mktemp -d); cp \"$1\" \"$work/${class:-$name}.java\"\n"
    "javac -encoding UTF-8 -J-XX:+UseSerialGC -J-XX:TieredStopAtLevel=1 -d \"$work/out\" "
    "\"$work/${class:-$name}.java\" || exit\n"
    "main=${class:-$name}; main=${package:+$package.}$main\n"
    "[ -f \"$work/out/$(echo \"$main\" | tr . /).class\" ] || {\n"
    "  main=$(cd \"$work/out\" && grep -rlaF '([Ljava/lang/String;)V' . | head -n 1)\n"
    "  main=${main#./}; main=$(echo \"${main%.class}\" | tr / .); }\n"
    /* jar makes a temporary file by the name it is given, which must have three letters for that */
    "jar -J-XX:+UseSerialGC -J-XX:TieredStopAtLevel=1 --create --file \"$work/program.jar\" "
    "--main-class \"$main\" -C \"$work/out\" . && exec cp \"$work/program.jar\" \"$2\"";

/* rustc names a crate after the file, which only some names are good for. */
static const char rust_compile[] =
    "source=$1 output=$2; name=${1##*/}; name=${name%.*}\n"
    "case $name in ''|-*|*[!A-Za-z0-9_-]*) set -- --crate-name main;; *) set --;; esac\n"
    "exec rustc --edition 2021 -O -C strip=symbols \"$@\" -o \"$output\" \"$source\"";

/* tsc names its output itself: .mjs for .mts. Node's own modules and names are known to it only
 * where their types are installed; elsewhere they are `any`. */
static const char typescript_compile[] =
    "types=/usr/share/nodejs/@types; work=$(mktemp -d) || exit; source=$1 output=$2\n"
    "if [ -d \"$types/node\" ]; then\n"
    "  set -- --typeRoots \"$types\" --types node\n"
    "else\n"
    "  echo 'declare var process: any, require: any, module: any, exports: any, Buffer: any;\n"
    "declare var global: any, __dirname: string, __filename: string;\n"
    "declare module \"*\";' >\"$work/node.d.ts\"\n"
    "  set -- \"$work/node.d.ts\"\n"
    "fi\n"
    "tsc --pretty false --target es2021 --module commonjs --moduleResolution node "
    "--esModuleInterop --skipLibCheck --outDir \"$work/out\" \"$@\" \"$source\" || exit\n"
    "name=${source##*/}; suffix=${name##*.}\n"
    "exec cp \"$work/out/${name%.*}.${suffix%ts}js\" \"$output\"";

static const struct lang builtin[] = {
    {
        .name = "python",
        .suffixes = WORDS("py", "pyw"),
        .aliases = WORDS("python3", "py"),
        .run = WORDS("python3", "{source}"),
        .version = WORDS("python3", "--version"),
        .package = "python3",
        .file = "main.py",
    },
    {
        .name = "javascript",
        .suffixes = WORDS("js", "mjs", "cjs"),
        .aliases = WORDS("js", "node", "nodejs"),
        .run = WORDS("node", "{source}"),
        .version = WORDS("node", "--version"),
        .package = "nodejs",
        .file = "main.js",
        .wants_suffix = true,
    },
    {
        .name = "typescript",
        .suffixes = WORDS("ts", "mts", "cts"),
        .aliases = WORDS("ts", "tsc"),
        .compile = WORDS("sh", "-c", typescript_compile, "typescript", "{source}", "{output}"),
        .run = WORDS("node", "{output}"),
        .version = WORDS("tsc", "--version"),
        .tools = WORDS("tsc", "node"),
        .package = "node-typescript",
        .file = "main.ts",
        .wants_suffix = true,
    },
    {
        .name = "bash",
        .suffixes = WORDS("bash"),
        .run = WORDS("bash", "{source}"),
        .version = WORDS("bash", "--version"),
        .package = "bash",
        .file = "main.bash",
    },
    {
        .name = "sh",
        .suffixes = WORDS("sh"),
        .aliases = WORDS("dash", "shell"),
        .run = WORDS("sh", "{source}"),
        .package = "dash",
        .file = "main.sh",
    },
    {
        .name = "c",
        .suffixes = WORDS("c"),
        .aliases = WORDS("gcc"),
        .compile =
            WORDS("gcc", "-std=gnu17", "-O2", "-o", "{output}", "-x", "c", "{source}", "-lm"),
        .run = WORDS("{output}"),
        .version = WORDS("gcc", "--version"),
        .package = "gcc libc6-dev",
        .file = "main.c",
    },
    {
        .name = "c++",
        .suffixes = WORDS("cpp", "cc", "cxx", "c++", "C"),
        .aliases = WORDS("cpp", "cxx", "cc", "g++"),
        .compile = WORDS("g++", "-std=gnu++20", "-O2", "-o", "{output}", "-x", "c++", "{source}"),
        .run = WORDS("{output}"),
        .version = WORDS("g++", "--version"),
        .package = "g++",
        .file = "main.cpp",
    },
    {
        .name = "go",
        .suffixes = WORDS("go"),
        .aliases = WORDS("golang"),
        .compile =
            WORDS("go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", "{output}", "{source}"),
        .run = WORDS("{output}"),
        .version = WORDS("go", "version"),
        .env = WORDS("CGO_ENABLED=0", "GOTOOLCHAIN=local", "GOTELEMETRY=off", "GOPROXY=off",
                     "GOFLAGS=-mod=mod"),
        .package = "golang-go",
        .file = "main.go",
        .wants_suffix = true,
    },
    {
        .name = "rust",
        .suffixes = WORDS("rs"),
        .aliases = WORDS("rs", "rustc"),
        .compile = WORDS("sh", "-c", rust_compile, "rust", "{source}", "{output}"),
        .run = WORDS("{output}"),
        .version = WORDS("rustc", "--version"),
        .tools = WORDS("rustc"),
        .package = "rustc",
        .file = "main.rs",
    },
    {
        .name = "java",
        .suffixes = WORDS("java"),
        .aliases = WORDS("jdk"),
        .compile = WORDS("sh", "-c", java_compile, "java", "{source}", "{output}"),
        /* the machine sees the host's memory, not the limit: without a word from us it would ask
         * for more than it may have and be killed */
        .run = WORDS("java", "-XX:+UseSerialGC", "-XX:MaxRAM={memory}", "-XX:MaxRAMPercentage=60",
                     "-jar", "{output}"),
        .version = WORDS("javac", "--version"),
        .tools = WORDS("javac", "java", "jar"),
        .package = "default-jdk-headless",
        .file = "Main.java",
    },
    {
        .name = "ruby",
        .suffixes = WORDS("rb"),
        .aliases = WORDS("rb"),
        .run = WORDS("ruby", "{source}"),
        .version = WORDS("ruby", "--version"),
        .package = "ruby",
        .file = "main.rb",
    },
    {
        .name = "perl",
        .suffixes = WORDS("pl"),
        .aliases = WORDS("pl", "perl5"),
        .run = WORDS("perl", "{source}"),
        .version = WORDS("perl", "-e", "print \"perl $^V\\n\""),
        .package = "perl",
        .file = "main.pl",
    },
    {
        .name = "lua",
        .suffixes = WORDS("lua"),
        .aliases = WORDS("lua5.4", "lua5.3"),
        .run = WORDS("lua", "{source}"),
        .version = WORDS("lua", "-v"),
        .package = "lua5.4",
        .file = "main.lua",
    },
    {
        .name = "php",
        .suffixes = WORDS("php"),
        .aliases = WORDS("php8"),
        .run = WORDS("php", "{source}"),
        .version = WORDS("php", "--version"),
        .package = "php-cli",
        .file = "main.php",
    },
    {
        .name = "r",
        .suffixes = WORDS("R", "r"),
        .aliases = WORDS("rscript"),
        .run = WORDS("Rscript", "{source}"),
        .version = WORDS("Rscript", "--version"),
        .package = "r-base-core",
        .file = "main.R",
    },
};

static const struct lang *builtin_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(builtin); i++)
        if (str_eq(builtin[i].name, name))
            return &builtin[i];
    return NULL;
}

bool lang_registry_holds(const char *const *words, const char *what)
{
    for (size_t i = 0; words && words[i]; i++)
        if (strstr(words[i], what))
            return true;
    return false;
}

static int registry_entry(const struct policy_language *from, struct lang *ret,
                          struct cordon_err *err)
{
    const struct lang *base = builtin_find(from->name);
    struct lang row = base ? *base : (struct lang){.name = from->name};
    row.origin = &from->origin;
    row.run = (const char *const *)from->run;
    row.compile = (const char *const *)from->compile;
    row.tools = NULL;
    row.wants_suffix = row.compile || row.wants_suffix;
    if (from->suffixes)
        row.suffixes = (const char *const *)from->suffixes;
    if (from->aliases)
        row.aliases = (const char *const *)from->aliases;
    if (from->version)
        row.version = (const char *const *)from->version;
    if (from->env)
        row.env = (const char *const *)from->env;
    if (row.compile && (!row.compile[0] || !lang_registry_holds(row.compile, "{output}"))) {
        err_set(err, CORDON_ERR_CONFIG, "source", 0,
                "%s:%u:%u: language '%s': compile names no {output}", from->origin.name,
                from->origin.line, from->origin.column, from->name);
        return err_hint(err, "compile = [\"gcc\", \"-o\", \"{output}\", \"{source}\"]");
    }
    *ret = row;
    return 0;
}

static bool registry_is_replaced(const struct policy *policy, const char *name)
{
    for (size_t i = 0; i < policy->n_languages; i++)
        if (str_eq(policy->languages[i].name, name))
            return true;
    return false;
}

int lang_registry_make(const struct policy *policy, struct lang_registry *ret,
                       struct cordon_err *err)
{
    struct lang_registry r = {calloc(policy->n_languages + ARRAY_SIZE(builtin), sizeof(*r.rows)),
                              0};
    if (!r.rows)
        return err_nomem(err, "source");
    for (size_t i = 0; i < policy->n_languages; i++) {
        if (registry_entry(&policy->languages[i], &r.rows[r.n], err) < 0) {
            lang_registry_done(&r);
            return -1;
        }
        r.n++;
    }
    for (size_t i = 0; i < ARRAY_SIZE(builtin); i++)
        if (!registry_is_replaced(policy, builtin[i].name))
            r.rows[r.n++] = builtin[i];
    *ret = r;
    return 0;
}

void lang_registry_done(struct lang_registry *registry)
{
    free(registry->rows);
    *registry = (struct lang_registry){0};
}

static bool registry_has(const char *const *list, const char *word, bool exact)
{
    for (size_t i = 0; list && list[i]; i++) {
        const char *item = list[i][0] == '.' ? list[i] + 1 : list[i];
        if (exact ? str_eq(item, word) : strcasecmp(item, word) == 0)
            return true;
    }
    return false;
}

static const struct lang *registry_named(const struct lang_registry *r, const char *name)
{
    for (size_t i = 0; i < r->n; i++)
        if (strcasecmp(r->rows[i].name, name) == 0)
            return &r->rows[i];
    for (size_t i = 0; i < r->n; i++)
        if (registry_has(r->rows[i].aliases, name, false))
            return &r->rows[i];
    return NULL;
}

int lang_registry_by_name(const struct lang_registry *r, const char *name, const struct lang **ret,
                          struct cordon_err *err)
{
    const struct lang *found = registry_named(r, name);
    if (found) {
        *ret = found;
        return 0;
    }
    struct fields_near near = fields_near_start(name);
    for (size_t i = 0; i < r->n; i++) {
        fields_near_try(&near, r->rows[i].name);
        for (size_t k = 0; r->rows[i].aliases && r->rows[i].aliases[k]; k++)
            fields_near_try(&near, r->rows[i].aliases[k]);
    }
    if (near.best)
        err_set(err, CORDON_ERR_USAGE, "source", 0,
                "unknown language '%.100s' (did you mean '%s'?)", name, near.best);
    else
        err_set(err, CORDON_ERR_USAGE, "source", 0, "unknown language '%.100s'", name);
    err_hint(err, "`cordon languages` lists them");
    policy_err_clean(err);
    return -1;
}

static const struct lang *registry_suffixed(const struct lang_registry *r, const char *suffix)
{
    for (int exact = 1; exact >= 0; exact--)
        for (size_t i = 0; i < r->n; i++)
            if (registry_has(r->rows[i].suffixes, suffix, exact != 0))
                return &r->rows[i];
    return NULL;
}

/* "#!/usr/bin/env python3 -u", "#!/bin/bash": the program's name, at most the given length. */
static bool registry_interpreter(const char *text, size_t len, char *ret_name, size_t size)
{
    if (len < 3 || text[0] != '#' || text[1] != '!')
        return false;
    char line[256];
    size_t n = MIN(len - 2, sizeof(line) - 1);
    memcpy(line, text + 2, n);
    line[n] = '\0';
    line[strcspn(line, "\r\n")] = '\0';
    char *save = NULL, *word = strtok_r(line, " \t", &save);
    for (; word; word = strtok_r(NULL, " \t", &save)) {
        const char *slash = strrchr(word, '/');
        const char *base = slash ? slash + 1 : word;
        if (str_eq(base, "env") || word[0] == '-')
            continue;
        snprintf(ret_name, size, "%s", base);
        return *base != '\0';
    }
    return false;
}

static int registry_unknown_file(const struct lang_registry *r, const char *suffix,
                                 const char *file, struct cordon_err *err)
{
    struct fields_near near = fields_near_start(suffix ? suffix : "");
    for (size_t i = 0; suffix && i < r->n; i++)
        for (size_t k = 0; r->rows[i].suffixes && r->rows[i].suffixes[k]; k++)
            fields_near_try(&near, r->rows[i].suffixes[k]);
    if (suffix && near.best)
        err_set(err, CORDON_ERR_USAGE, "source", 0,
                "%.200s: no language has the suffix '.%.20s' (did you mean '.%s'?)", file, suffix,
                near.best);
    else if (suffix)
        err_set(err, CORDON_ERR_USAGE, "source", 0, "%.200s: no language has the suffix '.%.20s'",
                file, suffix);
    else
        err_set(err, CORDON_ERR_USAGE, "source", 0,
                "%.200s: the name does not say which language it is", file);
    err_hint(err, "say --language NAME; a command is given after --");
    policy_err_clean(err);
    return -1;
}

int lang_registry_by_file(const struct lang_registry *r, const char *file, const char *text,
                          size_t len, const struct lang **ret, struct cordon_err *err)
{
    const char *slash = strrchr(file, '/');
    const char *base = slash ? slash + 1 : file;
    const char *dot = strrchr(base, '.');
    const char *suffix = dot && dot != base && dot[1] ? dot + 1 : NULL;
    const struct lang *found = suffix ? registry_suffixed(r, suffix) : NULL;
    char name[64];
    bool says = registry_interpreter(text, len, name, sizeof(name));
    /* many a bash script is called .sh, and says so in its first line */
    if (says && (!found || (str_eq(found->name, "sh") && str_eq(name, "bash")))) {
        const struct lang *said = registry_named(r, name);
        found = said ? said : found;
    }
    if (!found)
        return registry_unknown_file(r, suffix, file, err);
    *ret = found;
    return 0;
}

/* One word with its braces filled in; *ret_skip: it asks for what there is not. */
static char *expand_word(const char *word, const struct lang_words *with, struct arena *arena,
                         bool *ret_skip)
{
    static const char *const names[] = {"{source}", "{output}", "{memory}"};
    char memory[24];
    snprintf(memory, sizeof(memory), "%llu", (unsigned long long)with->memory_bytes);
    const char *values[] = {with->source, with->output, with->memory_bytes ? memory : NULL};
    *ret_skip = false;
    _cleanup_buf_ struct buf out = BUF_INIT(1 << 20);
    while (*word && !out.failed) {
        size_t i = 0;
        while (i < ARRAY_SIZE(names) && !str_starts(word, names[i]))
            i++;
        if (i == ARRAY_SIZE(names)) {
            buf_char(&out, *word++);
            continue;
        }
        *ret_skip = *ret_skip || !values[i];
        buf_str(&out, values[i] ? values[i] : "");
        word += strlen(names[i]);
    }
    return out.failed ? NULL : arena_strdup(arena, out.data ? out.data : "");
}

static size_t count(char *const *list)
{
    size_t n = 0;
    while (list && list[n])
        n++;
    return n;
}

char **lang_registry_expand(const char *const *words, const struct lang_words *with,
                            struct arena *arena)
{
    size_t n_args = count(with->args), n = 0;
    char **out = arena_alloc(arena, (count((char *const *)words) + n_args + 3) * sizeof(*out));
    bool args_done = n_args == 0;
    if (!out)
        return NULL;
    for (size_t i = 0; words[i]; i++) {
        bool skip = false;
        if (str_eq(words[i], "{args}")) {
            for (size_t k = 0; k < n_args && !args_done; k++)
                out[n++] = with->args[k];
            args_done = true;
            continue;
        }
        char *word = expand_word(words[i], with, arena, &skip);
        if (!word)
            return NULL;
        if (!skip)
            out[n++] = word;
    }
    if (!lang_registry_holds(words, "{source}") && !lang_registry_holds(words, "{output}"))
        out[n++] = (char *)(with->output ? with->output : with->source);
    for (size_t k = 0; k < n_args && !args_done; k++)
        out[n++] = with->args[k];
    return out;
}

const char *lang_registry_tool(const struct lang *lang, size_t i)
{
    if (lang->tools) {
        size_t n = 0;
        while (lang->tools[n] && n < i)
            n++;
        return lang->tools[n];
    }
    const char *const *rows[] = {lang->compile, lang->run};
    for (size_t k = 0; k < ARRAY_SIZE(rows); k++) {
        if (!rows[k] || !rows[k][0] || strchr(rows[k][0], '{'))
            continue;
        if (i-- == 0)
            return rows[k][0];
    }
    return NULL;
}
