/* Cases from files and folders. Runs in the command, before anything of the submission does. */
#include "grade/cases.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/sys.h"
#include "base/util.h"

struct cases_row *cases_push(struct cases *cases, struct cordon_err *err)
{
    if (cases->n >= CASES_MAX) {
        err_set(err, CORDON_ERR_USAGE, "cases", 0, "more than %u cases", CASES_MAX);
        return NULL;
    }
    if (cases->n == cases->cap) {
        size_t cap = cases->cap ? 2 * cases->cap : 32;
        struct cases_row *rows = realloc(cases->rows, cap * sizeof(*rows));
        if (!rows) {
            err_nomem(err, "cases");
            return NULL;
        }
        cases->rows = rows;
        cases->cap = cap;
    }
    struct cases_row *row = &cases->rows[cases->n++];
    *row = (struct cases_row){.points = 1};
    return row;
}

int cases_push_group(struct cases *cases, const char *name, double points, struct cordon_err *err)
{
    struct cases_group *groups = realloc(cases->groups, (cases->n_groups + 1) * sizeof(*groups));
    if (!groups)
        return err_nomem(err, "cases");
    cases->groups = groups;
    groups[cases->n_groups++] = (struct cases_group){name, points};
    return 0;
}

void cases_done(struct cases *cases)
{
    free(cases->rows);
    free(cases->groups);
    arena_done(&cases->arena);
    *cases = (struct cases){0};
}

/* ---- reading ---- */

int cases_load(const struct cases_text *text, size_t max, char **ret_data, size_t *ret_len,
               struct cordon_err *err)
{
    _cleanup_buf_ struct buf out = BUF_INIT(max);
    _cleanup_free_ char *chunk = NULL;
    struct stat st;
    if (!text->path) {
        buf_add(&out, text->data ? text->data : "", text->len);
    } else {
        _cleanup_close_ int fd = open(text->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        if (fd < 0 || fstat(fd, &st) < 0)
            return err_set(err, CORDON_ERR_USAGE, "cases", errno, "%.300s", text->path);
        if (!S_ISREG(st.st_mode))
            return err_set(err, CORDON_ERR_USAGE, "cases", 0, "%.300s is not a regular file",
                           text->path);
        chunk = malloc(65536);
        ssize_t n = 0;
        buf_reserve(&out, MIN((size_t)st.st_size, max));
        while (chunk && ((n = read(fd, chunk, 65536)) > 0 || (n < 0 && errno == EINTR)))
            if (n > 0 && buf_add(&out, chunk, (size_t)n) < 0)
                return err_set(err, CORDON_ERR_USAGE, "cases", 0, "%.300s: more than %zu MiB",
                               text->path, max >> 20);
        if (n < 0)
            return err_set(err, CORDON_ERR_USAGE, "cases", errno, "%.300s", text->path);
        if (!chunk)
            return err_nomem(err, "cases");
        buf_add(&out, "", 0);
    }
    size_t len = out.len;
    char *data = buf_take(&out);
    if (!data)
        return err_nomem(err, "cases");
    *ret_data = data;
    *ret_len = len;
    return 0;
}

static int must_be_file(const char *path, struct cordon_err *err)
{
    struct stat st;
    if (stat(path, &st) < 0 || access(path, R_OK) < 0)
        return err_set(err, CORDON_ERR_USAGE, "cases", errno, "%.300s", path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, CORDON_ERR_USAGE, "cases", 0, "%.300s is not a regular file", path);
    return 0;
}

/* Cases may come from somebody else: a link among them shows nothing of the caller's. */
static int must_be_below(const struct cases_text *t, struct cordon_err *err)
{
    if (!t->folder)
        return 0;
    struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    _cleanup_close_ int folder = open(t->folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    const char *name = t->path + strlen(t->folder);
    name += strspn(name, "/");
    _cleanup_close_ int fd = folder < 0 ? -1 : sys_openat2(folder, name, &how);
    if (fd >= 0)
        return 0;
    if (errno != EXDEV && errno != ELOOP)
        return err_set(err, CORDON_ERR_USAGE, "cases", errno, "%.300s", t->path);
    err_set(err, CORDON_ERR_CONFIG, "cases", 0, "%.300s: a link leads out of %.300s", t->path,
            t->folder);
    return err_hint(err, "put the file itself there");
}

int cases_add_files(struct cases *cases, const char *name, const char *in, const char *out,
                    struct cordon_err *err)
{
    if ((in && must_be_file(in, err) < 0) || (out && must_be_file(out, err) < 0))
        return -1;
    struct cases_row *row = cases_push(cases, err);
    if (!row)
        return -1;
    row->name = arena_strdup(&cases->arena, name);
    row->where = in ? arena_strdup(&cases->arena, in) : row->name;
    row->input.path = in ? row->where : NULL;
    row->expected.path = out ? arena_strdup(&cases->arena, out) : NULL;
    row->has_expected = out != NULL;
    if (!row->name || !row->where || (out && !row->expected.path))
        return err_nomem(err, "cases");
    return 0;
}

/* ---- folders ---- */

int cases_order(const char *a, const char *b)
{
    while (*a && *b) {
        size_t n = strspn(a, "0123456789"), m = strspn(b, "0123456789");
        if (n > 0 && m > 0) {
            size_t i = MIN(strspn(a, "0"), n), k = MIN(strspn(b, "0"), m);
            int r = n - i != m - k ? (n - i > m - k ? 1 : -1) : strncmp(a + i, b + k, n - i);
            if (r)
                return r;
            a += n;
            b += m;
        } else if (*a != *b) {
            break;
        } else {
            a++;
            b++;
        }
    }
    return (unsigned char)*a - (unsigned char)*b;
}

static int by_order(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    int r = cases_order(*x, *y);
    return r ? r : strcmp(*x, *y);
}

static bool has_end(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n > m && str_eq(name + n - m, end);
}

struct listing {
    char **names;
    size_t n;
};

static void listing_done(struct listing *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->names[i]);
    free(l->names);
}

static int listing_read(const char *dir, struct listing *ret, struct cordon_err *err)
{
    DIR *d = opendir(dir);
    if (!d)
        return err_set(err, CORDON_ERR_USAGE, "cases", errno, "%.300s", dir);
    struct dirent *e;
    int r = 0;
    while (r == 0 && (e = readdir(d))) {
        if (e->d_name[0] == '.')
            continue;
        char **names =
            ret->n < 4 * CASES_MAX ? realloc(ret->names, (ret->n + 1) * sizeof(*names)) : NULL;
        char *name = strdup(e->d_name);
        if (names)
            ret->names = names;
        if (names && name)
            names[ret->n++] = name;
        else {
            free(name);
            r = err_nomem(err, "cases");
        }
    }
    closedir(d);
    if (ret->n > 0)
        qsort(ret->names, ret->n, sizeof(*ret->names), by_order);
    return r;
}

/* The file beside NAME.in, or NULL; the text lives in the arena. Of two nobody knows which is
 * right. */
static int answer_of(struct cases *cases, const char *dir, const char *stem, const char **ret,
                     struct cordon_err *err)
{
    const char *out = arena_printf(&cases->arena, "%s/%s.out", dir, stem);
    const char *ans = arena_printf(&cases->arena, "%s/%s.ans", dir, stem);
    if (!out || !ans)
        return err_nomem(err, "cases");
    bool has_out = access(out, F_OK) == 0, has_ans = access(ans, F_OK) == 0;
    if (has_out && has_ans) {
        err_set(err, CORDON_ERR_CONFIG, "cases", 0, "two expected outputs: %.300s and %.300s", out,
                ans);
        return err_hint(err, "remove one of them");
    }
    *ret = has_out ? out : has_ans ? ans : NULL;
    return 0;
}

static int folder_case(struct cases *cases, const char *top, const char *dir, const char *group,
                       const char *file, struct cordon_err *err)
{
    char *stem = arena_strdup(&cases->arena, file);
    char *in = arena_printf(&cases->arena, "%s/%s", dir, file);
    if (!stem || !in)
        return err_nomem(err, "cases");
    stem[strlen(stem) - 3] = '\0';
    const char *name = group ? arena_printf(&cases->arena, "%s/%s", group, stem) : stem;
    const char *answer = NULL;
    if (!name)
        return err_nomem(err, "cases");
    if (answer_of(cases, dir, stem, &answer, err) < 0 ||
        cases_add_files(cases, name, in, answer, err) < 0)
        return -1;
    struct cases_row *row = &cases->rows[cases->n - 1];
    row->group = group;
    row->input.folder = row->expected.folder = top;
    return 0;
}

/* An answer without its question is a typing error somebody wants to know of. */
static int folder_orphan(const char *dir, const char *file, struct cordon_err *err)
{
    char in[4096];
    snprintf(in, sizeof(in), "%s/%.*s.in", dir, (int)(strlen(file) - 4), file);
    if (access(in, F_OK) == 0)
        return 0;
    err_set(err, CORDON_ERR_USAGE, "cases", 0, "%.200s/%.200s has no input beside it", dir, file);
    return err_hint(err, "add %.200s, an empty file for a case without input", in);
}

/* dir is top itself, or with a group one of its folders. */
static int cases_from_folder(struct cases *cases, const char *top, const char *dir,
                             const char *group, struct cordon_err *err)
{
    struct listing list = {0};
    struct stat st;
    int r = listing_read(dir, &list, err);
    for (size_t i = 0; r == 0 && i < list.n; i++) {
        const char *name = list.names[i];
        if (has_end(name, ".in"))
            r = folder_case(cases, top, dir, group, name, err);
        else if (has_end(name, ".out") || has_end(name, ".ans"))
            r = folder_orphan(dir, name, err);
    }
    for (size_t i = 0; r == 0 && !group && i < list.n; i++) {
        const char *path = arena_printf(&cases->arena, "%s/%s", dir, list.names[i]);
        const char *own = arena_strdup(&cases->arena, list.names[i]);
        size_t before = cases->n;
        if (!path || !own)
            r = err_nomem(err, "cases");
        else if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
            r = cases_from_folder(cases, top, path, own, err);
        if (r == 0 && cases->n > before)
            r = cases_push_group(cases, own, -1, err);
    }
    listing_done(&list);
    return r;
}

int cases_from_path(struct cases *cases, const char *path, struct cordon_err *err)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return err_set(err, CORDON_ERR_USAGE, "cases", errno, "%.300s", path);
    if (S_ISDIR(st.st_mode)) {
        size_t len = strlen(path);
        while (len > 1 && path[len - 1] == '/')
            len--;
        const char *dir = arena_printf(&cases->arena, "%.*s", (int)MIN(len, 4000u), path);
        if (!dir)
            return err_nomem(err, "cases");
        return cases_from_folder(cases, dir, dir, NULL, err);
    }
    _cleanup_free_ char *text = NULL;
    size_t len;
    if (cases_load(&(struct cases_text){.path = path}, CASES_FILE_MAX, &text, &len, err) < 0)
        return -1;
    const char *slash = strrchr(path, '/');
    const char *folder = !slash ? "."
                         : slash == path
                             ? "/"
                             : arena_printf(&cases->arena, "%.*s", (int)(slash - path), path);
    if (!folder)
        return err_nomem(err, "cases");
    return cases_from_json(cases, path, folder, text, len,
                           has_end(path, ".jsonl") || has_end(path, ".ndjson"), err);
}

/* ---- the list as a whole ---- */

static int by_name(const void *a, const void *b)
{
    const struct cases_row *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static int check_names(const struct cases *cases, struct cordon_err *err)
{
    _cleanup_free_ struct cases_row *sorted = calloc(cases->n, sizeof(*sorted));
    if (!sorted)
        return err_nomem(err, "cases");
    memcpy(sorted, cases->rows, cases->n * sizeof(*sorted));
    qsort(sorted, cases->n, sizeof(*sorted), by_name);
    for (size_t i = 1; i < cases->n; i++)
        if (str_eq(sorted[i - 1].name, sorted[i].name))
            return err_set(err, CORDON_ERR_USAGE, "cases", 0,
                           "the case '%.100s' stands twice: %.200s and %.200s", sorted[i].name,
                           sorted[i - 1].where, sorted[i].where);
    return 0;
}

int cases_check(const struct cases *cases, bool needs_expected, struct cordon_err *err)
{
    if (cases->n == 0) {
        err_set(err, CORDON_ERR_USAGE, "cases", 0, "there is no case");
        return err_hint(err, "a folder has NAME.in and NAME.out; a JSON file a list \"cases\"");
    }
    for (size_t i = 0; i < cases->n; i++) {
        const struct cases_row *row = &cases->rows[i];
        const struct cases_text *texts[] = {&row->input, &row->expected};
        for (size_t k = 0; k < ARRAY_SIZE(texts); k++) {
            const char *path = texts[k]->path;
            if (path && (must_be_file(path, err) < 0 || must_be_below(texts[k], err) < 0))
                return str_eq(row->where, path) ? -1 : err_prefix(err, "%.300s", row->where);
        }
        if (row->has_expected || !needs_expected)
            continue;
        err_set(err, CORDON_ERR_USAGE, "cases", 0, "%.300s: no expected output", row->where);
        return row->input.path
                   ? err_hint(err, "put %.200s.out or .ans beside it, or give a checker", row->name)
                   : err_hint(err, "add \"output\" or \"output_file\", or give a checker");
    }
    return check_names(cases, err);
}
