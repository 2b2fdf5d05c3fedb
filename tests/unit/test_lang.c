/* Languages without a guest: the table and its look-ups, words in braces, tools and what is shown
 * of them, module rules, hashes, the artefact cache. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "lang/cache.h"
#include "lang/derive.h"
#include "lang/guard.h"
#include "lang/name.h"
#include "lang/registry.h"
#include "base/sha256.h"
#include "lang/tool.h"

static char top[64]; /* a folder of our own for every test */

static int make_top(void **state)
{
    (void)state;
    snprintf(top, sizeof(top), "/tmp/test-lang-XXXXXX");
    return mkdtemp(top) ? 0 : -1;
}

static int remove_top(void **state)
{
    (void)state;
    char line[128];
    snprintf(line, sizeof(line), "rm -rf '%s'", top);
    return system(line);
}

static void write_file(const char *name, mode_t mode, const char *text)
{
    char path[256], folder[256];
    snprintf(path, sizeof(path), "%s/%s", top, name);
    for (char *slash = strchr(path + strlen(top) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
        assert_true(mkdir(folder, 0755) == 0 || errno == EEXIST);
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    fchmod(fd, mode);
    close(fd);
}

static struct policy *made_policy(const struct policy_setting *settings, size_t n, const char *toml)
{
    static char *const environment[] = {NULL};
    char path[256];
    struct policy_input input = {.settings = settings,
                                 .n_settings = n,
                                 .no_discovery = !toml,
                                 .environ = environment,
                                 .cwd = "/"};
    if (toml) {
        write_file("cordon.toml", 0644, toml);
        snprintf(path, sizeof(path), "%s/cordon.toml", top);
        input.config_file = path;
    }
    struct policy *policy = NULL;
    struct cordon_err err;
    if (policy_resolve(&input, &policy, &err) < 0)
        fail_msg("%s", err.message);
    return policy;
}

static void hash_is(const char *text, size_t times, const char *wanted)
{
    struct sha256 s;
    char hex[SHA256_HEX];
    sha256_init(&s);
    for (size_t i = 0; i < times; i++)
        sha256_add(&s, text, strlen(text));
    sha256_hex(&s, hex);
    assert_string_equal(hex, wanted);
}

static void hashes_are_sha256(void **state)
{
    (void)state;
    hash_is("", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    hash_is("abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    hash_is("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    hash_is("a", 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void fields_do_not_run_together(void **state)
{
    (void)state;
    char hex[2][SHA256_HEX];
    for (int i = 0; i < 2; i++) {
        struct sha256 s;
        sha256_init(&s);
        sha256_field(&s, "ab", i ? 1 : 2);
        sha256_field(&s, i ? "bc" : "c", i ? 2 : 1);
        sha256_hex(&s, hex[i]);
    }
    assert_string_not_equal(hex[0], hex[1]);
}

static const char *by_file(const struct lang_registry *r, const char *file, const char *text)
{
    const struct lang *lang;
    struct cordon_err err = {0};
    if (lang_registry_by_file(r, file, text, strlen(text), &lang, &err) < 0) {
        assert_int_equal(err.code, CORDON_ERR_USAGE);
        return NULL;
    }
    return lang->name;
}

static void languages_are_found(void **state)
{
    (void)state;
    struct policy *policy = made_policy(NULL, 0, NULL);
    struct lang_registry r;
    struct cordon_err err = {0};
    const struct lang *lang;
    assert_int_equal(lang_registry_make(policy, &r, &err), 0);
    assert_int_equal(r.n, 15);
    static const char *const files[][2] = {
        {"a.py", "python"},     {"a.js", "javascript"}, {"a.mjs", "javascript"},
        {"a.ts", "typescript"}, {"a.bash", "bash"},     {"a.sh", "sh"},
        {"a.c", "c"},           {"a.C", "c++"},         {"a.cc", "c++"},
        {"dir.d/a.cpp", "c++"}, {"a.go", "go"},         {"a.rs", "rust"},
        {"A.java", "java"},     {"a.rb", "ruby"},       {"a.pl", "perl"},
        {"a.lua", "lua"},       {"a.php", "php"},       {"a.R", "r"},
        {"a.r", "r"},           {"A.PY", "python"}};
    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        assert_string_equal(by_file(&r, files[i][0], ""), files[i][1]);
    static const char *const names[][2] = {{"Python3", "python"}, {"node", "javascript"},
                                           {"cpp", "c++"},        {"C++", "c++"},
                                           {"golang", "go"},      {"R", "r"}};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        assert_int_equal(lang_registry_by_name(&r, names[i][0], &lang, &err), 0);
        assert_string_equal(lang->name, names[i][1]);
    }
    assert_int_equal(lang_registry_by_name(&r, "pyhton", &lang, &err), -1);
    assert_int_equal(err.code, CORDON_ERR_USAGE);
    assert_non_null(strstr(err.message, "did you mean 'python'"));
    assert_null(by_file(&r, "a.pyy", ""));
    assert_null(by_file(&r, "Makefile", ""));
    assert_null(by_file(&r, ".py", ""));
    lang_registry_done(&r);
    policy_free(policy);
}

static void files_get_names_their_programs_take(void **state)
{
    (void)state;
    struct policy *policy =
        made_policy(NULL, 0,
                    "[languages.zig]\nsuffixes = [\".zig\", \"z\"]\nrun = \"{output}\"\n"
                    "compile = [\"zig\", \"{source}\", \"{output}\"]\n"
                    "[languages.c]\ncompile = [\"tcc\", \"-o\", \"{output}\", \"{source}\"]\n"
                    "run = \"{output}\"\n");
    struct lang_registry r;
    struct cordon_err err = {0};
    struct arena arena = {0};
    assert_int_equal(lang_registry_make(policy, &r, &err), 0);
    static const char *const names[][3] = {
        {"python", "prog", "prog"},
        {"rust", "a b.rs", "a b.rs"},
        {"c++", "prog.txt", "prog.txt"}, /* told by a word of the compiler's */
        {"c", "prog", "prog.c"},         /* not of this one */
        {"c", "a.cpp", "a.cpp.c"},
        {"c", "A.C", "A.C.c"},
        {"zig", "prog", "prog.zig"},
        {"zig", "a.z", "a.z"},
        {"typescript", "a.js", "a.js.ts"},
        {"typescript", "a.mts", "a.mts"},
        {"javascript", "a.json", "a.json.js"},
        {"javascript", ".js", ".js.js"},
        {"go", "63", "63.go"},
        {"go", "A.GO", "A.GO.go"},
        {"go", "two sum.go", "two sum.go"},
        {"go", "_x.go", "main_x.go"},
        {"go", ".x.go", "main.x.go"},
        {"go", "@x", "main@x.go"},
        {"go", "a_test.go", "a_test_main.go"},
        {"go", "_test.go", "main_test_main.go"},
        {"go", "\303\274.go", "\303\274.go"}};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        const struct lang *lang;
        assert_int_equal(lang_registry_by_name(&r, names[i][0], &lang, &err), 0);
        assert_string_equal(lang_name_inside(lang, names[i][1], &arena), names[i][2]);
    }
    const struct lang *go;
    char longest[256] = {0};
    memset(longest, 'x', 255);
    assert_int_equal(lang_registry_by_name(&r, "go", &go, &err), 0);
    assert_string_equal(lang_name_inside(go, longest, &arena), "main.go");
    arena_done(&arena);
    lang_registry_done(&r);
    policy_free(policy);
}

static void the_first_line_counts(void **state)
{
    (void)state;
    struct policy *policy = made_policy(NULL, 0, NULL);
    struct lang_registry r;
    struct cordon_err err = {0};
    assert_int_equal(lang_registry_make(policy, &r, &err), 0);
    assert_string_equal(by_file(&r, "tool", "#!/usr/bin/env python3\n"), "python");
    assert_string_equal(by_file(&r, "tool", "#!/usr/bin/env -S node --x\n"), "javascript");
    assert_string_equal(by_file(&r, "tool", "#!/bin/sh -e\n"), "sh");
    assert_string_equal(by_file(&r, "tool.sh", "#!/bin/bash\n"), "bash");
    assert_string_equal(by_file(&r, "tool.py", "#!/bin/bash\n"), "python");
    assert_null(by_file(&r, "tool", "#!/usr/bin/nothing\n"));
    assert_null(by_file(&r, "tool", "#!"));
    assert_null(by_file(&r, "tool", "#!/usr/bin/env"));
    lang_registry_done(&r);
    policy_free(policy);
}

static void entries_of_the_file_win(void **state)
{
    (void)state;
    struct policy *policy =
        made_policy(NULL, 0,
                    "[languages.python]\nrun = \"pypy3 {source}\"\n"
                    "[languages.awk]\nsuffixes = [\".awk\", \"rb\"]\naliases = [\"gawk\"]\n"
                    "run = [\"awk\", \"-f\", \"{source}\", \"--\", \"{args}\", \"end\"]\n"
                    "env = {A = \"1\"}\n");
    struct lang_registry r;
    struct cordon_err err = {0};
    const struct lang *lang;
    assert_int_equal(lang_registry_make(policy, &r, &err), 0);
    assert_int_equal(r.n, 16);
    assert_int_equal(lang_registry_by_name(&r, "py", &lang, &err), 0);
    assert_string_equal(lang->run[0], "pypy3");
    assert_string_equal(lang_registry_tool(lang, 0), "pypy3");
    assert_string_equal(by_file(&r, "a.py", ""), "python");
    assert_string_equal(by_file(&r, "a.rb", ""), "awk");
    assert_int_equal(lang_registry_by_name(&r, "gawk", &lang, &err), 0);

    struct arena arena = {0};
    char *args[] = {"x", "y", NULL};
    struct lang_words with = {.source = "a.awk", .args = args};
    char **argv = lang_registry_expand(lang->run, &with, &arena);
    static const char *const wanted[] = {"awk", "-f", "a.awk", "--", "x", "y", "end"};
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
        assert_string_equal(argv[i], wanted[i]);
    assert_null(argv[ARRAY_SIZE(wanted)]);
    arena_done(&arena);
    lang_registry_done(&r);
    policy_free(policy);
}

static void compile_must_name_its_output(void **state)
{
    (void)state;
    struct policy *policy =
        made_policy(NULL, 0, "[languages.x]\ncompile = \"cc {source}\"\nrun = \"{output}\"\n");
    struct lang_registry r = {0};
    struct cordon_err err = {0};
    assert_int_equal(lang_registry_make(policy, &r, &err), -1);
    assert_int_equal(err.code, CORDON_ERR_CONFIG);
    assert_non_null(strstr(err.message, "cordon.toml:1"));
    assert_null(r.rows);
    policy_free(policy);
}

static void expect_words(const char *const *words, const struct lang_words *with,
                         const char *const *wanted)
{
    struct arena arena = {0};
    char **argv = lang_registry_expand(words, with, &arena);
    size_t i = 0;
    for (; wanted[i]; i++)
        assert_string_equal(argv[i], wanted[i]);
    assert_null(argv[i]);
    arena_done(&arena);
}

static void braces_are_filled_in(void **state)
{
    (void)state;
    char *args[] = {"{source}", "--", NULL};
    struct lang_words with = {.source = "s.c", .output = "./s", .args = args};
    const char *const plain[] = {"run", "-m{memory}", NULL};
    const char *const plain_out[] = {"run", "./s", "{source}", "--", NULL};
    expect_words(plain, &with, plain_out); /* no limit: the word goes; arguments are not read */
    with.memory_bytes = 42;
    with.args = NULL;
    const char *const all[] = {"{output}", "a{source}b{output}", "-m{memory}", "{other}", NULL};
    const char *const all_out[] = {"./s", "as.cb./s", "-m42", "{other}", NULL};
    expect_words(all, &with, all_out);
}

static void rules_of_modules(void **state)
{
    (void)state;
    static const struct policy_setting settings[] = {
        {.name = "allow-import", .value = "math"},
        {.name = "allow-import", .value = "xml.etree"},
        {.name = "block-import", .value = "os"},
        {.name = "env", .value = "PYTHONPATH=/mine"},
    };
    struct policy *policy = made_policy(settings, ARRAY_SIZE(settings), NULL);
    struct arena arena = {0};
    struct cordon_err err = {0};
    const char *const *vars;
    assert_true(lang_guard_wanted(policy));
    assert_int_equal(lang_guard_vars(policy, "/dir", &arena, &vars, &err), 0);
    assert_string_equal(vars[0], "CORDON_IMPORTS=only;math,xml.etree;os");
    assert_string_equal(vars[1], "PYTHONPATH=/dir:/mine");
    assert_null(vars[2]);
    policy_free(policy);

    static const char *const wrong[] = {"a b", "a;b", ".a", "a.", "a..b", "1a", "a-b", "*"};
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        struct policy_setting one = {.name = "block-import", .value = wrong[i]};
        policy = made_policy(&one, 1, NULL);
        assert_int_equal(lang_guard_vars(policy, "/dir", &arena, &vars, &err), -1);
        assert_int_equal(err.code, CORDON_ERR_USAGE);
        policy_free(policy);
    }
    policy = made_policy(NULL, 0, NULL);
    assert_false(lang_guard_wanted(policy));
    policy_free(policy);
    arena_done(&arena);
}

static int find_tool(const char *name, char *const *vars, struct arena *arena,
                     struct lang_tools *tools, struct cordon_err *err)
{
    const char *run[] = {name, NULL};
    struct lang lang = {.name = "x", .run = run, .package = "the-package"};
    return lang_tool_all(&lang, vars, arena, tools, err);
}

static void tools_outside_are_shown_alone(void **state)
{
    (void)state;
    char path[128], home[128], wanted[128];
    snprintf(path, sizeof(path), "PATH=%s/home/bin:%s/node/bin:relative", top, top);
    snprintf(home, sizeof(home), "HOME=%s/home", top);
    char *vars[] = {path, home, NULL};
    struct arena arena = {0};
    struct lang_tools tools;
    struct cordon_err err = {0};
    write_file("node/bin/mynode", 0755, "x");
    write_file("home/bin/mytool", 0755, "x");
    write_file("home/bin/notrunnable", 0644, "x");
    write_file("home/.nvm/versions/node/v1/bin/deep", 0755, "x");
    write_file("home/.nvm/versions/node/v2/bin/deep", 0755, "x");
    write_file("home/bin/shims/shim", 0755, "x");

    assert_int_equal(find_tool("sh", vars, &arena, &tools, &err), 0);
    assert_null(tools.list[0].mount);
    assert_null(tools.list[0].dir);
    assert_int_equal(find_tool("mynode", vars, &arena, &tools, &err), 0);
    snprintf(wanted, sizeof(wanted), "%s/node", top);
    assert_string_equal(tools.list[0].mount, wanted);
    snprintf(wanted, sizeof(wanted), "%s/node/bin", top);
    assert_string_equal(tools.list[0].dir, wanted);
    /* the home itself is never shown for a program in ~/bin */
    assert_int_equal(find_tool("mytool", vars, &arena, &tools, &err), 0);
    snprintf(wanted, sizeof(wanted), "%s/home/bin/mytool", top);
    assert_string_equal(tools.list[0].mount, wanted);
    assert_int_equal(find_tool("deep", vars, &arena, &tools, &err), 0);
    snprintf(wanted, sizeof(wanted), "%s/home/.nvm/versions/node/v2", top);
    assert_string_equal(tools.list[0].mount, wanted);
    assert_int_equal(find_tool("notrunnable", vars, &arena, &tools, &err), -1);
    assert_int_equal(err.code, CORDON_ERR_HOST);
    assert_non_null(strstr(err.message, "the-package"));
    assert_int_equal(find_tool("mynode", NULL, &arena, &tools, &err), -1);
    arena_done(&arena);
}

static void derived_policies(void **state)
{
    (void)state;
    static const struct policy_setting settings[] = {
        {.name = "time-limit", .value = "1s"},   {.name = "processes", .value = "1"},
        {.name = "memory-limit", .value = "9M"}, {.name = "compile-time-limit", .value = "7s"},
        {.name = "cpu-time", .value = "1s"},     {.name = "env", .value = "A=mine"},
        {.name = "disk-limit", .value = "1M"},   {.name = "allow-binary", .value = "gcc"}};
    struct policy *policy = made_policy(settings, ARRAY_SIZE(settings), NULL);
    const char *env[] = {"A=table", "B=2", NULL}, *compile[] = {"gcc", "{output}", NULL};
    const char *run[] = {"{output}", NULL}, *other[] = {"other", NULL};
    struct lang lang = {.name = "x", .env = env, .compile = compile, .run = run};
    struct lang_tool tool = {"/opt/x/bin/gcc", "/opt/x/bin", "/opt/x"};
    struct lang_tools tools = {&tool, 1};
    struct arena arena = {0};
    struct policy mine, step;
    struct cordon_err err = {0};
    assert_int_equal(lang_derive_run(policy, &lang, &tools, NULL, NULL, &arena, &mine, &err), 0);
    const struct policy_value *vars = policy_value(&mine, FIELD_ENV);
    assert_int_equal(vars->n_items, 4);
    assert_string_equal(vars->items[0].extra, "table");
    assert_string_equal(vars->items[2].extra, "mine"); /* later, so it counts */
    assert_string_equal(vars->items[3].text, "PATH");
    assert_string_equal(vars->items[3].extra, LANG_GUEST_PATH ":/opt/x/bin");
    assert_string_equal(policy_value(&mine, FIELD_ALLOW_READ)->items[0].text, "/opt/x");
    assert_int_equal(policy_num(&mine, FIELD_PROCESSES), 1);

    lang_derive_compile(&mine, 1000, &step);
    assert_int_equal(policy_num(&step, FIELD_TIME_LIMIT), 7000000000u);
    assert_int_equal(policy_num(&step, FIELD_MEMORY_LIMIT), 1u << 30);
    assert_false(policy_has(&step, FIELD_CPU_TIME));
    assert_false(policy_has(&step, FIELD_DISK_LIMIT));
    assert_true(policy_num(&step, FIELD_PROCESSES) >= 64);
    assert_int_equal(policy_num(&step, FIELD_MAX_OUTPUT), 1000);
    assert_true(step.looks_only && !mine.looks_only);

    assert_int_equal(lang_derive_binaries(policy, &lang, &err), 0);
    lang.compile = other;
    assert_int_equal(lang_derive_binaries(policy, &lang, &err), -1);
    assert_int_equal(err.code, CORDON_ERR_REJECTED);
    arena_done(&arena);
    policy_free(policy);
}

static int open_cache(void)
{
    char var[128];
    snprintf(var, sizeof(var), "XDG_CACHE_HOME=%s/cache", top);
    char *vars[] = {var, NULL};
    return lang_cache_open(vars);
}

static void cache_keeps_what_was_put(void **state)
{
    (void)state;
    struct stat st;
    char text[8] = "";
    int dir = open_cache();
    assert_true(dir >= 0);
    assert_int_equal(lang_cache_get(dir, "key"), -1);
    assert_int_equal(lang_cache_put(dir, "key", "data", 4, 1 << 20), 0);
    int fd = lang_cache_get(dir, "key");
    assert_true(fd >= 0);
    assert_int_equal(read(fd, text, sizeof(text)), 4);
    assert_memory_equal(text, "data", 4);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    close(fd);
    assert_int_equal(lang_cache_put(dir, "empty", "", 0, 1 << 20), -1);
    assert_int_equal(lang_cache_put(dir, "large", "12345", 5, 4), -1);
    close(dir);
}

/* What somebody planted in the folder is not taken for an artefact. */
static void cache_trusts_plain_files_only(void **state)
{
    (void)state;
    int dir = open_cache();
    assert_int_equal(lang_cache_put(dir, "key", "data", 4, 1 << 20), 0);
    assert_int_equal(symlinkat("key", dir, "link"), 0);
    assert_int_equal(mkfifoat(dir, "fifo", 0700), 0);
    assert_int_equal(mkdirat(dir, "folder", 0700), 0);
    static const char *const names[] = {"link", "fifo", "folder"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        assert_int_equal(lang_cache_get(dir, names[i]), -1);
    assert_int_equal(fchmodat(dir, "key", 04755, 0), 0);
    assert_int_equal(lang_cache_get(dir, "key"), -1);
    assert_int_equal(fchmodat(dir, "key", 0700, 0), 0);
    assert_int_equal(linkat(dir, "key", dir, "twin", 0), 0);
    assert_int_equal(lang_cache_get(dir, "key"), -1);
    close(dir);
}

static void cache_refuses_folders_of_others(void **state)
{
    (void)state;
    char path[128];
    int dir = open_cache();
    assert_true(dir >= 0);
    assert_int_equal(fchmod(dir, 0755), 0);
    close(dir);
    assert_int_equal(open_cache(), -1);
    snprintf(path, sizeof(path), "%s/cache/cordon/artifacts", top);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(symlink("/tmp", path), 0);
    assert_int_equal(open_cache(), -1);
    char *none[] = {NULL};
    assert_int_equal(lang_cache_open(none), -1);
}

static void cache_drops_the_oldest(void **state)
{
    (void)state;
    char key[32], data[100] = {1};
    int dir = open_cache();
    for (int i = 0; i < 10; i++) {
        snprintf(key, sizeof(key), "key%d", i);
        assert_int_equal(lang_cache_put(dir, key, data, sizeof(data), 1 << 20), 0);
        struct timespec times[2] = {{.tv_sec = 1000 + i}, {.tv_sec = 1000 + i}};
        assert_int_equal(utimensat(dir, key, times, 0), 0);
    }
    close(lang_cache_get(dir, "key0")); /* used: the youngest now */
    assert_int_equal(lang_cache_put(dir, "last", data, sizeof(data), 1000), 0);
    static const struct {
        const char *name;
        bool stays;
    } rows[] = {{"key0", true}, {"key1", false}, {"key4", false}, {"key5", true}, {"last", true}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        int fd = lang_cache_get(dir, rows[i].name);
        assert_int_equal(fd >= 0, rows[i].stays);
        if (fd >= 0)
            close(fd);
    }
    close(dir);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, make_top, remove_top)
    const struct CMUnitTest tests[] = {
        T(hashes_are_sha256),
        T(fields_do_not_run_together),
        T(languages_are_found),
        T(files_get_names_their_programs_take),
        T(the_first_line_counts),
        T(entries_of_the_file_win),
        T(compile_must_name_its_output),
        T(braces_are_filled_in),
        T(rules_of_modules),
        T(tools_outside_are_shown_alone),
        T(derived_policies),
        T(cache_keeps_what_was_put),
        T(cache_trusts_plain_files_only),
        T(cache_refuses_folders_of_others),
        T(cache_drops_the_oldest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
