/* Policies as a whole: golden cases, files that must be refused, failing allocations.
 *
 * A golden case is NAME.args (one command line per row, words split at blanks, with the verbs
 * `explain`, `said`, `json`, `path`, `host`, `test`, `ls`), beside it NAME.toml (the project's
 * file), NAME.user.toml (the user's) and NAME.env (one variable per row) where wanted, and NAME.out
 * with what is expected. GOLDEN_WRITE=1 writes NAME.out anew; read the difference before you commit
 * it.
 *
 * Link with -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=reallocarray,--wrap=strdup,
 * --wrap=strndup. Run in the project's root, or with GOLDEN_DIR=.../tests/unit/golden/policy. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "policy/show.h"
#include "policy/why.h"

enum { TEXT_MAX = 1 << 20, WORDS_MAX = 32, VARS_MAX = 32 };

/* ---- allocations that fail ------------------------------------------------------------------- */

static long allocations_left = -1; /* negative: none fails */

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_reallocarray(void *old, size_t n, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t len);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_reallocarray(void *old, size_t n, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t len);

static bool allocation_fails(void)
{
    if (allocations_left == 0)
        return true;
    if (allocations_left > 0)
        allocations_left--;
    return false;
}

void *__wrap_malloc(size_t size)
{
    return allocation_fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return allocation_fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return allocation_fails() ? NULL : __real_realloc(old, size);
}

void *__wrap_reallocarray(void *old, size_t n, size_t size)
{
    return allocation_fails() ? NULL : __real_reallocarray(old, n, size);
}

char *__wrap_strdup(const char *text)
{
    return allocation_fails() ? NULL : __real_strdup(text);
}

char *__wrap_strndup(const char *text, size_t len)
{
    return allocation_fails() ? NULL : __real_strndup(text, len);
}

/* ---- a folder of our own --------------------------------------------------------------------- */

struct world {
    char dir[PATH_MAX]; /* project's folder; the user's file is in xdg/cordon below it */
    char *vars[VARS_MAX];
    size_t n_vars;
};

static void world_var(struct world *w, const char *name, const char *value)
{
    assert_true(w->n_vars + 1 < VARS_MAX);
    assert_true(asprintf(&w->vars[w->n_vars++], "%s%s", name, value) > 0);
    w->vars[w->n_vars] = NULL;
}

static void world_path(const struct world *w, const char *name, char path[static PATH_MAX])
{
    assert_true(snprintf(path, PATH_MAX, "%s/%s", w->dir, name) < PATH_MAX);
}

static void world_make(struct world *w)
{
    char path[PATH_MAX], real[PATH_MAX];
    *w = (struct world){0};
    strcpy(path, "/tmp/cordon-policy-XXXXXX");
    assert_non_null(mkdtemp(path));
    assert_non_null(realpath(path, real));
    strcpy(w->dir, real);
    world_path(w, "xdg", path);
    assert_int_equal(mkdir(path, 0755), 0);
    world_var(w, "XDG_CONFIG_HOME=", path);
    world_path(w, "xdg/cordon", path);
    assert_int_equal(mkdir(path, 0755), 0);
}

static void world_file(const struct world *w, const char *name, const char *text)
{
    char path[PATH_MAX];
    world_path(w, name, path);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fchmod(fileno(f), 0644), 0);
    assert_int_equal(fclose(f), 0);
}

static void world_remove(struct world *w)
{
    static const char *const files[] = {"cordon.toml", "other.toml", "xdg/cordon/config.toml"};
    static const char *const folders[] = {"sub/deep", "sub", "xdg/cordon", "xdg"};
    char path[PATH_MAX];
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        world_path(w, files[i], path);
        if (unlink(path) < 0 && errno == EISDIR)
            rmdir(path);
    }
    for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
        world_path(w, folders[i], path);
        rmdir(path);
    }
    assert_int_equal(rmdir(w->dir), 0);
    for (size_t i = 0; i < w->n_vars; i++)
        free(w->vars[i]);
}

/* ---- golden cases ---------------------------------------------------------------------------- */

enum { OWN_PATH, OWN_HOST, OWN_WRITE };
static const struct options_own own[] = {
    {.name = "path", .arg = OPTIONS_REQUIRED, .id = OWN_PATH},
    {.name = "host", .arg = OPTIONS_REQUIRED, .id = OWN_HOST},
    {.name = "write", .id = OWN_WRITE},
};

/* Lines of explain that the default level did not say. */
static void print_said(const struct policy *p, struct buf *out)
{
    _cleanup_buf_ struct buf all = BUF_INIT(TEXT_MAX);
    policy_explain_text(p, &all);
    char *rest = all.data;
    for (char *line = strsep(&rest, "\n"); line && *line; line = strsep(&rest, "\n")) {
        size_t len = strlen(line);
        bool is_default = len > 18 && (str_eq(line + len - 17, "   level standard") ||
                                       str_eq(line + len - 10, "   default"));
        if (!is_default)
            buf_printf(out, "%s\n", line);
    }
}

static int print_case(const char *verb, const struct options *o, const struct policy_input *in,
                      const struct policy *p, struct buf *out, struct cordon_err *err)
{
    struct why why = {0};
    int r = 0;
    if (str_eq(verb, "explain"))
        policy_explain_text(p, out);
    else if (str_eq(verb, "said") || str_eq(verb, "test"))
        print_said(p, out);
    else if (str_eq(verb, "ls"))
        r = policy_profiles_ls(in, out, err);
    else if (str_eq(verb, "json")) {
        struct jsonw j = {.out = out};
        jsonw_open(&j, NULL, '{');
        policy_explain_json(p, &j);
        jsonw_close(&j, '}');
        buf_char(out, '\n');
    } else {
        r = options_has(o, OWN_PATH)
                ? why_path(p, options_get(o, OWN_PATH), options_has(o, OWN_WRITE), &why, err)
                : why_host(p, options_get(o, OWN_HOST), &why, err);
        if (r == 0)
            buf_printf(out, "%s by %s (%s)\n", why.allowed ? "allowed" : "refused", why.rule,
                       why.origin);
    }
    for (size_t i = 0; str_eq(verb, "test") && p->test_command && p->test_command[i]; i++)
        buf_printf(out, "command[%zu] = %s\n", i, p->test_command[i]);
    for (size_t i = 0; str_eq(verb, "said") && i < p->n_languages; i++)
        buf_printf(out, "language %s: %s\n", p->languages[i].name, p->languages[i].run[0]);
    return r;
}

static void run_line(const struct world *w, char *line, struct buf *out)
{
    char *words[WORDS_MAX + 1];
    int n = 0;
    struct cordon_err err = {0};
    struct options o = {0};
    struct policy *p = NULL;

    buf_printf(out, "$ %s\n", line);
    for (char *rest = line, *word = strsep(&rest, " "); word; word = strsep(&rest, " ")) {
        assert_true(n < WORDS_MAX);
        words[n++] = word;
    }
    words[n] = NULL;
    int r = options_parse(n, words, own, ARRAY_SIZE(own), true, &o, &err);
    if (r == 0) {
        struct policy_input in = options_input(&o, w->vars);
        in.cwd = w->dir;
        in.test = str_eq(words[0], "test");
        r = policy_resolve(&in, &p, &err);
        if (r == 0)
            r = print_case(words[0], &o, &in, p, out, &err);
    }
    if (r < 0)
        buf_printf(out, "%d %s%s%s\n", err.code, err.message, err.hint[0] ? "\nhint: " : "",
                   err.hint);
    policy_free(p);
    options_done(&o);
}

/* The whole of a file, or NULL when there is none. */
static char *slurp(const char *dir, const char *name, const char *suffix)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s%s", dir, name, suffix);
    FILE *f = fopen(path, "re");
    if (!f)
        return NULL;
    struct buf text = BUF_INIT(TEXT_MAX);
    char chunk[4096];
    for (size_t n; (n = fread(chunk, 1, sizeof(chunk), f)) > 0;)
        buf_add(&text, chunk, n);
    fclose(f);
    return buf_take(&text);
}

/* Output must not depend on where the test ran. */
static char *without_dir(const char *text, const char *dir)
{
    struct buf out = BUF_INIT(TEXT_MAX);
    for (const char *at; (at = strstr(text, dir)); text = at + strlen(dir)) {
        buf_add(&out, text, (size_t)(at - text));
        buf_str(&out, "$DIR");
    }
    buf_str(&out, text);
    return buf_take(&out);
}

static void run_case(const char *golden, const char *name)
{
    struct world w;
    world_make(&w);
    _cleanup_free_ char *toml = slurp(golden, name, ".toml");
    _cleanup_free_ char *user = slurp(golden, name, ".user.toml");
    _cleanup_free_ char *env = slurp(golden, name, ".env");
    _cleanup_free_ char *args = slurp(golden, name, ".args");
    _cleanup_free_ char *want = slurp(golden, name, ".out");
    if (toml)
        world_file(&w, "cordon.toml", toml);
    if (user)
        world_file(&w, "xdg/cordon/config.toml", user);
    char *rest = env;
    for (char *line = strsep(&rest, "\n"); line && *line; line = strsep(&rest, "\n"))
        world_var(&w, "", line);

    _cleanup_buf_ struct buf out = BUF_INIT(TEXT_MAX);
    rest = args;
    for (char *line = strsep(&rest, "\n"); line && *line; line = strsep(&rest, "\n"))
        run_line(&w, line, &out);
    _cleanup_free_ char *got = without_dir(out.data, w.dir);
    world_remove(&w);

    if (getenv("GOLDEN_WRITE")) {
        char path[PATH_MAX];
        snprintf(path, sizeof(path), "%s/%s.out", golden, name);
        FILE *f = fopen(path, "we");
        assert_non_null(f);
        fputs(got, f);
        assert_int_equal(fclose(f), 0);
    } else if (!want || !str_eq(got, want)) {
        fail_msg("%s: got\n%s\nwant\n%s", name, got, want ? want : "(no .out file)");
    }
}

static void test_golden(void **state)
{
    (void)state;
    const char *golden = getenv("GOLDEN_DIR") ? getenv("GOLDEN_DIR") : "tests/unit/golden/policy";
    struct dirent **entries;
    int n = scandir(golden, &entries, NULL, alphasort);
    int cases = 0;
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        char *end = strstr(entries[i]->d_name, ".args");
        if (end && !end[5]) {
            *end = '\0';
            run_case(golden, entries[i]->d_name);
            cases++;
        }
        free(entries[i]);
    }
    free(entries);
    print_message("%d golden cases\n", cases);
    assert_true(cases >= 10);
}

/* ---- files that must not count --------------------------------------------------------------- */

static void resolve_in(const struct world *w, const char *cwd, const char *file,
                       struct cordon_err *err, struct policy **ret)
{
    struct policy_input in = {.environ = w->vars, .cwd = cwd, .config_file = file};
    *ret = NULL;
    if (policy_resolve(&in, ret, err) < 0)
        assert_null(*ret);
}

static void assert_refused(const struct world *w, const char *file, const char *message)
{
    struct cordon_err err = {0};
    struct policy *p;
    resolve_in(w, w->dir, file, &err, &p);
    if (p)
        fail_msg("accepted instead of: %s", message);
    assert_int_equal(err.code, CORDON_ERR_CONFIG);
    assert_string_equal(err.message, message);
}

static void assert_counts(const struct world *w, const char *cwd, const char *origin)
{
    struct cordon_err err = {0};
    struct policy *p;
    char text[512];
    resolve_in(w, cwd, NULL, &err, &p);
    if (!p)
        fail_msg("%s", err.message);
    policy_origin_text(&policy_value(p, FIELD_TIME_LIMIT)->origin, text, sizeof(text));
    assert_string_equal(text, origin);
    policy_free(p);
}

static void test_discovery(void **state)
{
    (void)state;
    struct world w;
    char path[PATH_MAX], other[PATH_MAX];
    world_make(&w);
    world_path(&w, "sub", path);
    assert_int_equal(mkdir(path, 0755), 0);
    world_path(&w, "sub/deep", path);
    assert_int_equal(mkdir(path, 0755), 0);
    assert_counts(&w, w.dir, "level standard");
    world_file(&w, "cordon.toml", "[sandbox]\ntime_limit = \"9s\"\n");
    assert_counts(&w, w.dir, "cordon.toml:2");
    assert_counts(&w, path, "../../cordon.toml:2");

    /* a link of one's own leads on */
    world_path(&w, "cordon.toml", path);
    world_path(&w, "other.toml", other);
    assert_int_equal(rename(path, other), 0);
    assert_int_equal(symlink("other.toml", path), 0);
    assert_counts(&w, w.dir, "cordon.toml:2");
    world_remove(&w);
}

static void test_refused_modes(void **state)
{
    (void)state;
    static const mode_t modes[] = {0664, 0646, 0666, 0620};
    struct world w;
    char path[PATH_MAX];
    world_make(&w);
    world_file(&w, "cordon.toml", "[sandbox]\n");
    world_path(&w, "cordon.toml", path);
    for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
        assert_int_equal(chmod(path, modes[i]), 0);
        assert_refused(&w, NULL, "cordon.toml: refused: others can write it");
        struct cordon_err err = {0};
        struct policy *p;
        resolve_in(&w, w.dir, "cordon.toml", &err, &p); /* the caller's word counts */
        assert_non_null(p);
        policy_free(p);
    }
    world_remove(&w);
}

static void test_refused_owners(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("skipped: giving a file to another owner needs root\n");
        skip();
    }
    struct world w;
    char path[PATH_MAX], message[PATH_MAX + 64];
    world_make(&w);
    world_file(&w, "cordon.toml", "[sandbox]\n");
    world_path(&w, "cordon.toml", path);
    assert_int_equal(chown(path, 1234, 0), 0);
    assert_refused(&w, NULL, "cordon.toml: refused: it belongs to neither you nor root");
    assert_int_equal(unlink(path), 0);

    world_file(&w, "other.toml", "[sandbox]\n");
    assert_int_equal(symlink("other.toml", path), 0);
    assert_int_equal(lchown(path, 1234, 0), 0);
    assert_refused(&w, NULL, "cordon.toml: refused: this link belongs to neither you nor root");
    assert_int_equal(unlink(path), 0);

    world_file(&w, "xdg/cordon/config.toml", "[sandbox]\n");
    world_path(&w, "xdg/cordon/config.toml", path);
    assert_int_equal(chown(path, 1234, 0), 0);
    snprintf(message, sizeof(message), "%s: refused: it belongs to neither you nor root", path);
    assert_refused(&w, NULL, message);
    world_remove(&w);
}

static void test_refused_kinds(void **state)
{
    (void)state;
    struct world w;
    char path[PATH_MAX];
    world_make(&w);
    world_path(&w, "cordon.toml", path);
    assert_refused(&w, "cordon.toml", "cordon.toml: No such file or directory");

    assert_int_equal(mkdir(path, 0755), 0);
    assert_refused(&w, NULL, "cordon.toml: is a directory, not a file");
    assert_int_equal(rmdir(path), 0);

    assert_int_equal(mkfifo(path, 0644), 0);
    assert_refused(&w, NULL, "cordon.toml: is a FIFO, not a file");
    assert_refused(&w, "cordon.toml", "cordon.toml: is a FIFO, not a file");
    assert_int_equal(unlink(path), 0);

    assert_int_equal(symlink("cordon.toml", path), 0);
    assert_refused(&w, NULL, "cordon.toml: Too many levels of symbolic links");
    assert_int_equal(unlink(path), 0);

    world_file(&w, "cordon.toml", "");
    assert_int_equal(truncate(path, 1l << 30), 0);
    assert_refused(&w, NULL, "cordon.toml: is larger than 1 MiB");
    assert_int_equal(truncate(path, 0), 0);
    world_file(&w, "cordon.toml", "x = \"\xff\"\n");
    assert_refused(&w, NULL, "cordon.toml:1:6: byte 0xff is not valid UTF-8");

    assert_int_equal(chmod(path, 0), 0);
    if (geteuid() != 0)
        assert_refused(&w, NULL, "cordon.toml: Permission denied");
    assert_refused(&w, "/dev/zero", "/dev/zero: is not a regular file");
    world_remove(&w);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    static const char toml[] =
        "[sandbox]\ntime_limit = \"5s\"\nenv = {A = \"b\"}\nallow_network = [\"a.b\", \"c.d:22\"]\n"
        "[sandbox.filesystem]\nallow_read = [\"x\", \"/y\"]\nmounts = [\"a:/b:rw\"]\n"
        "files = {a = \"b\"}\n"
        "[sandbox.profiles.ci]\ninherits = \"development\"\noutput = [\"*.o=out\"]\n"
        "[test]\nsandbox = \"ci\"\ncommand = [\"make\", \"check\"]\n"
        "[languages.x]\nsuffixes = [\".x\"]\nrun = \"x {src}\"\nenv = [\"A=b\"]\n";
    struct world w;
    world_make(&w);
    world_file(&w, "cordon.toml", toml);
    world_file(&w, "xdg/cordon/config.toml", toml);
    world_var(&w, "CORDON_ALLOW_READ=", "/a,/b");
    const struct policy_setting settings[] = {
        {.name = "workspace", .value = "."},
        {.name = "filesystem", .value = "f", .data = "x", .data_len = 1},
    };
    struct policy_input in = {.environ = w.vars,
                              .cwd = w.dir,
                              .test = true,
                              .settings = settings,
                              .n_settings = ARRAY_SIZE(settings)};
    bool done = false;
    long n = 0;
    for (; !done; n++) {
        struct cordon_err err = {0};
        struct policy *p = NULL;
        allocations_left = n;
        int r = policy_resolve(&in, &p, &err);
        allocations_left = -1;
        if (r == 0) {
            policy_free(p);
            done = true;
        } else {
            assert_null(p);
            assert_int_equal(err.code, CORDON_ERR_INTERNAL);
            assert_non_null(strstr(err.message, "out of memory"));
        }
    }
    print_message("%ld allocations failed in turn\n", n - 1);
    assert_true(n > 100);
    world_remove(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),        cmocka_unit_test(test_discovery),
        cmocka_unit_test(test_refused_modes), cmocka_unit_test(test_refused_owners),
        cmocka_unit_test(test_refused_kinds), cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
