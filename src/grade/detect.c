/* Detection of a project's test command. Runs in the command, with the caller's rights. */
#include "grade/detect.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/jsonr.h"
#include "base/util.h"

#define DETECT_FILE_MAX ((size_t)1 << 20)
#define DETECT_ENTRIES 20000

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* One look at the folder; each runner's question. */
struct look {
    int dir;
    const char *venv;
    struct arena arena; /* of texts that were read */
};

static bool has_file(const struct look *l, const char *name)
{
    struct stat st;
    return fstatat(l->dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

/* The text of a small file, or NULL. */
static const char *text_of(struct look *l, const char *name, size_t *ret_len)
{
    struct stat st;
    _cleanup_close_ int fd =
        openat(l->dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
        (uint64_t)st.st_size > DETECT_FILE_MAX)
        return NULL;
    char *text = arena_alloc(&l->arena, (size_t)st.st_size + 1);
    size_t len = 0;
    ssize_t n;
    while (text && len < (size_t)st.st_size &&
           (n = read(fd, text + len, (size_t)st.st_size - len)) > 0)
        len += (size_t)n;
    *ret_len = len;
    return text;
}

static bool file_says(struct look *l, const char *name, const char *what)
{
    size_t len;
    const char *text = text_of(l, name, &len);
    return text && memmem(text, len, what, strlen(what)) != NULL;
}

/* Is there a line that begins with this? Makefile targets. */
static bool file_has_line(struct look *l, const char *name, const char *start)
{
    size_t len, n = strlen(start);
    const char *text = text_of(l, name, &len);
    for (const char *end = text ? text + len : NULL; text && text < end;) {
        if ((size_t)(end - text) >= n && memcmp(text, start, n) == 0)
            return true;
        const char *next = memchr(text, '\n', (size_t)(end - text));
        text = next ? next + 1 : end;
    }
    return false;
}

static bool has_match(const struct look *l, const char *folder, const char *pattern)
{
    int fd = openat(l->dir, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    bool found = false;
    struct dirent *e;
    if (!d) {
        util_close(&fd);
        return false;
    }
    for (int n = 0; !found && n < DETECT_ENTRIES && (e = readdir(d)); n++)
        found = fnmatch(pattern, e->d_name, 0) == 0;
    closedir(d);
    return found;
}

static bool is_cargo(struct look *l)
{
    return has_file(l, "Cargo.toml");
}

static bool is_go(struct look *l)
{
    return has_file(l, "go.mod");
}

/* npm writes a test script that only fails into every new project. */
static bool is_npm(struct look *l)
{
    size_t len;
    const struct jsonr_node *root;
    struct cordon_err ignored;
    const char *text = text_of(l, "package.json", &len);
    struct jsonr_source source = {.name = "package.json",
                                  .text = text,
                                  .len = text ? len : 0,
                                  .max_bytes = DETECT_FILE_MAX,
                                  .code = CORDON_ERR_CONFIG,
                                  .stage = "test"};
    if (!text || jsonr_parse(&source, &l->arena, &root, &ignored) < 0)
        return false;
    const char *script = jsonr_cstr(jsonr_get(jsonr_get(root, "scripts"), "test"));
    return script && *script && !strstr(script, "no test specified");
}

static bool has_python_tests(struct look *l)
{
    static const char *const folders[] = {".", "tests", "test"};
    for (size_t i = 0; i < ARRAY_SIZE(folders); i++)
        if (has_match(l, folders[i], "test_*.py") || has_match(l, folders[i], "*_test.py"))
            return true;
    return false;
}

/* Debian's pytest, or the one of the virtual environment. */
static bool has_pytest(const struct look *l)
{
    char path[4096];
    if (!l->venv)
        return access("/usr/lib/python3/dist-packages/pytest", F_OK) == 0 ||
               access("/usr/local/bin/pytest", F_OK) == 0;
    snprintf(path, sizeof(path), "%s/bin/pytest", l->venv);
    return access(path, F_OK) == 0;
}

static bool wants_pytest(struct look *l)
{
    return has_file(l, "pytest.ini") || has_file(l, "conftest.py") ||
           file_says(l, "pyproject.toml", "[tool.pytest") || file_says(l, "tox.ini", "[pytest]") ||
           file_says(l, "setup.cfg", "[tool:pytest]");
}

static bool is_pytest(struct look *l)
{
    return wants_pytest(l) || (has_python_tests(l) && has_pytest(l));
}

static bool is_unittest(struct look *l)
{
    return has_python_tests(l);
}

static bool is_ctest(struct look *l)
{
    return has_file(l, "build/CTestTestfile.cmake");
}

static bool is_meson(struct look *l)
{
    return has_file(l, "meson.build") && has_file(l, "build/build.ninja");
}

static bool has_target(struct look *l, const char *target)
{
    return file_has_line(l, "Makefile", target) || file_has_line(l, "makefile", target) ||
           file_has_line(l, "GNUmakefile", target);
}

static bool is_make_check(struct look *l)
{
    return has_target(l, "check:");
}

static bool is_make_test(struct look *l)
{
    return has_target(l, "test:");
}

static bool is_maven(struct look *l)
{
    return has_file(l, "pom.xml");
}

static bool is_gradle(struct look *l)
{
    return has_file(l, "build.gradle") || has_file(l, "build.gradle.kts");
}

static bool is_prove(struct look *l)
{
    return has_match(l, "t", "*.t");
}

static bool is_rake(struct look *l)
{
    return has_file(l, "Rakefile");
}

static bool is_node(struct look *l)
{
    return has_match(l, "test", "*.test.js") || has_match(l, ".", "*.test.js") ||
           has_match(l, "test", "*.test.mjs");
}

struct runner {
    const char *name;
    bool (*is)(struct look *l);
    const char *const *words;
    const char *const *env;
    const char *junit; /* its option, up to the path; NULL: it has none */
};

/* The first that fits. Build systems that drive others come last. Caches go where they vanish. */
static const struct runner runners[] = {
    {"cargo test", is_cargo, WORDS("cargo", "test", "--offline"),
     WORDS("CARGO_HOME=/tmp/cargo", "CARGO_TARGET_DIR=/tmp/target"), NULL},
    {"go test", is_go, WORDS("go", "test", "-buildvcs=false", "./..."),
     WORDS("GOCACHE=/tmp/go-build", "GOPATH=/tmp/go", "GOPROXY=off", "GOTOOLCHAIN=local",
           "GOTELEMETRY=off"),
     NULL},
    {"npm test", is_npm, WORDS("npm", "test"),
     WORDS("npm_config_cache=/tmp/npm", "npm_config_update_notifier=false"), NULL},
    {"pytest", is_pytest, WORDS("python3", "-m", "pytest", "-p", "no:cacheprovider"),
     WORDS("PYTHONDONTWRITEBYTECODE=1"), "--junitxml="},
    {"unittest", is_unittest, WORDS("python3", "-m", "unittest"),
     WORDS("PYTHONDONTWRITEBYTECODE=1"), NULL},
    {"ctest", is_ctest, WORDS("ctest", "--test-dir", "build", "--output-on-failure"), NULL,
     "--output-junit="},
    {"meson test", is_meson, WORDS("meson", "test", "-C", "build"), NULL, NULL},
    {"make check", is_make_check, WORDS("make", "check"), NULL, NULL},
    {"make test", is_make_test, WORDS("make", "test"), NULL, NULL},
    {"mvn test", is_maven, WORDS("mvn", "--offline", "--batch-mode", "test"), NULL, NULL},
    {"gradle test", is_gradle, WORDS("gradle", "--offline", "--no-daemon", "test"),
     WORDS("GRADLE_USER_HOME=/tmp/gradle"), NULL},
    {"prove", is_prove, WORDS("prove", "-r", "t"), NULL, NULL},
    {"rake test", is_rake, WORDS("rake", "test"), NULL, NULL},
    {"node --test", is_node, WORDS("node", "--test"), NULL, NULL},
};

/* unittest without a pattern looks only for test*.py in a package-like tree. */
static int unittest_words(const struct look *l, char **argv, size_t *n, struct arena *arena)
{
    const char *folder = has_match(l, "tests", "test_*.py")  ? "tests"
                         : has_match(l, "test", "test_*.py") ? "test"
                                                             : ".";
    const char *words[] = {"discover", "-s", folder, "-t", folder};
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if (!(argv[(*n)++] = arena_strdup(arena, words[i])))
            return -1;
    return 0;
}

static int detect_fill(const struct look *l, const struct runner *r, const char *junit,
                       struct arena *arena, struct detect *ret, struct cordon_err *err)
{
    size_t n = 0;
    char **argv = arena_alloc(arena, 16 * sizeof(*argv));
    if (!argv)
        return err_nomem(err, "test");
    for (; r->words[n]; n++)
        if (!(argv[n] = arena_strdup(arena, r->words[n])))
            return err_nomem(err, "test");
    if (r->is == is_unittest && unittest_words(l, argv, &n, arena) < 0)
        return err_nomem(err, "test");
    bool writes = junit && r->junit;
    if (writes) {
        argv[n] = arena_printf(arena, "%s%s", r->junit, junit);
        if (!argv[n++])
            return err_nomem(err, "test");
    }
    *ret = (struct detect){.name = r->name, .argv = argv, .env = r->env, .writes_junit = writes};
    return 0;
}

int detect_tests(const char *folder, const char *venv, const char *junit, struct arena *arena,
                 struct detect *ret, struct cordon_err *err)
{
    _cleanup_close_ int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct look look = {.dir = dir, .venv = venv};
    const struct runner *found = NULL;
    if (dir < 0)
        return err_set(err, CORDON_ERR_USAGE, "test", errno, "%.300s", folder);
    for (size_t i = 0; !found && i < ARRAY_SIZE(runners); i++)
        if (runners[i].is(&look))
            found = &runners[i];
    int r = 0;
    if (!found) {
        r = err_set(err, CORDON_ERR_USAGE, "test", 0, "%.300s: no tests were found", folder);
        err_hint(err, "cordon test -- CMD, or [test] command = \"CMD\" in cordon.toml");
    } else {
        r = detect_fill(&look, found, junit, arena, ret, err);
    }
    arena_done(&look.arena);
    return r;
}
