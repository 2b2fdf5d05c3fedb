/* Cases from JSON and JSONL. Pure: file names are kept as names. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/util.h"
#include "grade/cases.h"
#include "policy/fields.h"
#include "policy/units.h"

struct reader {
    struct cases *cases;
    const char *name, *folder;
    struct cordon_err *err;
};

static int refuse(struct reader *r, const struct jsonr_pos *pos, const char *what, const char *hint)
{
    err_set(r->err, CORDON_ERR_CONFIG, "cases", 0, "%.200s:%u:%u: %s", r->name, pos->line,
            pos->column, what);
    return err_hint(r->err, "%s", hint);
}

static int refuse_type(struct reader *r, const struct jsonr_node *n, const char *wanted)
{
    return err_set(r->err, CORDON_ERR_CONFIG, "cases", 0, "%.200s:%u:%u: \"%.60s\" is %s, not %s",
                   r->name, n->pos.line, n->pos.column, n->key ? n->key : "case",
                   jsonr_type_name((enum jsonr_type)n->type), wanted);
}

static int refuse_key(struct reader *r, const struct jsonr_node *n, const char *const *keys)
{
    struct fields_near near = fields_near_start(n->key);
    for (size_t i = 0; keys[i]; i++)
        fields_near_try(&near, keys[i]);
    err_set(r->err, CORDON_ERR_CONFIG, "cases", 0, "%.200s:%u:%u: unknown key \"%.60s\"", r->name,
            n->key_pos.line, n->key_pos.column, n->key);
    policy_err_clean(r->err);
    return near.best ? err_hint(r->err, "did you mean \"%s\"?", near.best) : -1;
}

static int read_text(struct reader *r, const struct jsonr_node *n, const char **ret)
{
    const char *text = jsonr_cstr(n);
    if (!text)
        return refuse_type(r, n, "a string");
    *ret = arena_strdup(&r->cases->arena, text);
    return *ret ? 0 : err_nomem(r->err, "cases");
}

static int read_bytes(struct reader *r, const struct jsonr_node *n, struct cases_text *ret)
{
    if (n->type != JSONR_STRING)
        return refuse_type(r, n, "a string");
    char *copy = arena_alloc(&r->cases->arena, n->u.string.len + 1);
    if (!copy)
        return err_nomem(r->err, "cases");
    memcpy(copy, n->u.string.data, n->u.string.len);
    *ret = (struct cases_text){.data = copy, .len = n->u.string.len};
    return 0;
}

static int read_path(struct reader *r, const struct jsonr_node *n, const char **ret)
{
    const char *text = jsonr_cstr(n);
    if (!text || !*text)
        return refuse_type(r, n, "the name of a file");
    if (!r->folder)
        return refuse(r, &n->pos, "a task cannot read files of the host", "write the text itself");
    *ret = *text == '/' ? arena_strdup(&r->cases->arena, text)
                        : arena_printf(&r->cases->arena, "%s/%s", r->folder, text);
    return *ret ? 0 : err_nomem(r->err, "cases");
}

static bool is_below(const char *path)
{
    bool up = *path == '/';
    for (const char *part = path; !up && *part; part += part[0] == '/') {
        size_t n = strcspn(part, "/");
        up = n == 2 && part[0] == '.' && part[1] == '.';
        part += n;
    }
    return !up;
}

/* The folder of the document holds all of its texts: it may come from somebody else. */
static int read_text_path(struct reader *r, const struct jsonr_node *n, struct cases_text *ret)
{
    const char *text = jsonr_cstr(n);
    if (!text || !r->folder || is_below(text)) {
        ret->folder = r->folder;
        return read_path(r, n, &ret->path);
    }
    err_set(r->err, CORDON_ERR_CONFIG, "cases", 0,
            "%.200s:%u:%u: \"%s\": %.200s is not below the folder of this file", r->name,
            n->pos.line, n->pos.column, n->key, text);
    policy_err_clean(r->err);
    return err_hint(r->err, "put the file there and write its name without a leading / and ..");
}

static int read_points(struct reader *r, const struct jsonr_node *n, double *ret)
{
    double value;
    if (!jsonr_double(n, &value) || !(value >= 0) || value > 1e9)
        return refuse_type(r, n, "a number from 0 to 1000000000");
    *ret = value;
    return 0;
}

/* "2s", or a number of seconds. */
static int read_time(struct reader *r, const struct jsonr_node *n, struct cases_limit *ret)
{
    double seconds;
    const char *text = jsonr_cstr(n);
    if (!text && jsonr_double(n, &seconds) && seconds > 0 && seconds < 1e6)
        text = arena_printf(&r->cases->arena, "%llums", (unsigned long long)ceil(seconds * 1000));
    if (!text)
        return refuse_type(r, n, "a time: \"2s\", \"500ms\", or seconds");
    const char *why = units_duration(text, &ret->num);
    if (why || ret->num == 0)
        return refuse(r, &n->pos, "not a duration above zero", "write \"2s\" or \"500ms\"");
    ret->written = arena_strdup(&r->cases->arena, text);
    return ret->written ? 0 : err_nomem(r->err, "cases");
}

static int read_size(struct reader *r, const struct jsonr_node *n, struct cases_limit *ret)
{
    uint64_t bytes;
    const char *text = jsonr_cstr(n);
    if (!text && jsonr_uint64(n, &bytes))
        text = arena_printf(&r->cases->arena, "%llu", (unsigned long long)bytes);
    if (!text)
        return refuse_type(r, n, "a size: \"64M\", or bytes");
    const char *why = units_size(text, &ret->num);
    if (why || ret->num < fields_min(FIELD_MEMORY_LIMIT))
        return refuse(r, &n->pos, "not a size a program can run in", "write \"64M\" or bytes");
    ret->written = arena_strdup(&r->cases->arena, text);
    return ret->written ? 0 : err_nomem(r->err, "cases");
}

static const char *const case_keys[] = {"name",        "input",        "input_file", "output",
                                        "output_file", "group",        "points",     "time_limit",
                                        "cpu_time",    "memory_limit", NULL};

static int read_member(struct reader *r, const struct jsonr_node *n, struct cases_row *row)
{
    size_t key = 0;
    while (case_keys[key] && !str_eq(case_keys[key], n->key))
        key++;
    switch (key) {
    case 0: return read_text(r, n, &row->name);
    case 1: return read_bytes(r, n, &row->input);
    case 2: return read_text_path(r, n, &row->input);
    case 3: row->has_expected = true; return read_bytes(r, n, &row->expected);
    case 4: row->has_expected = true; return read_text_path(r, n, &row->expected);
    case 5: return read_text(r, n, &row->group);
    case 6: return read_points(r, n, &row->points);
    case 7: return read_time(r, n, &row->time);
    case 8: return read_time(r, n, &row->cpu);
    case 9: return read_size(r, n, &row->memory);
    default: return refuse_key(r, n, case_keys);
    }
}

static int read_case(struct reader *r, const struct jsonr_node *n)
{
    if (n->type != JSONR_OBJECT)
        return refuse(r, &n->pos, "a case is an object",
                      "{\"input\": \"1 2\\n\", \"output\": \"3\\n\"}");
    if ((jsonr_get(n, "input") && jsonr_get(n, "input_file")) ||
        (jsonr_get(n, "output") && jsonr_get(n, "output_file")))
        return refuse(r, &n->pos, "a text and a file for the same thing", "leave one of them out");
    struct cases_row *row = cases_push(r->cases, r->err);
    if (!row)
        return -1;
    row->where = arena_printf(&r->cases->arena, "%s:%u", r->name, n->pos.line);
    for (const struct jsonr_node *m = jsonr_first(n); m; m = m->next)
        if (read_member(r, m, row) < 0)
            return -1;
    if (!row->name)
        row->name = arena_printf(&r->cases->arena, "%zu", r->cases->n);
    return row->name && row->where ? 0 : err_nomem(r->err, "cases");
}

static int read_cases(struct reader *r, const struct jsonr_node *list)
{
    if (list->type != JSONR_ARRAY)
        return refuse(r, &list->pos, "cases are a list", "[{\"input\": ..., \"output\": ...}]");
    for (const struct jsonr_node *n = jsonr_first(list); n; n = n->next)
        if (read_case(r, n) < 0)
            return -1;
    return 0;
}

static int read_group(struct reader *r, const struct jsonr_node *n)
{
    static const char *const keys[] = {"name", "points", NULL};
    const char *name = NULL;
    double points = -1;
    for (const struct jsonr_node *m = jsonr_first(n); n->type == JSONR_OBJECT && m; m = m->next) {
        int done = str_eq(m->key, "name")     ? read_text(r, m, &name)
                   : str_eq(m->key, "points") ? read_points(r, m, &points)
                                              : refuse_key(r, m, keys);
        if (done < 0)
            return -1;
    }
    if (!name)
        return refuse(r, &n->pos, "a group has a name", "{\"name\": \"small\", \"points\": 30}");
    for (size_t i = 0; i < r->cases->n_groups; i++)
        if (str_eq(r->cases->groups[i].name, name))
            return refuse(r, &n->pos, "this group stands twice", "give each its own name");
    return cases_push_group(r->cases, name, points, r->err);
}

/* Groups that no list named follow in the order of their first case. */
static int add_groups(struct reader *r, size_t from, bool listed)
{
    struct cases *c = r->cases;
    for (size_t i = from; i < c->n; i++) {
        bool known = !c->rows[i].group;
        for (size_t k = 0; !known && k < c->n_groups; k++)
            known = str_eq(c->groups[k].name, c->rows[i].group);
        if (!known && listed)
            return err_set(r->err, CORDON_ERR_CONFIG, "cases", 0,
                           "%.200s: the group '%.60s' is not in the list of groups",
                           c->rows[i].where, c->rows[i].group);
        if (!known && cases_push_group(c, c->rows[i].group, -1, r->err) < 0)
            return -1;
    }
    return 0;
}

/* Nothing could fail in it: whoever answers nothing would have its points. */
static int check_groups(struct reader *r, size_t from, const struct jsonr_node *groups)
{
    const struct cases *c = r->cases;
    for (const struct jsonr_node *n = jsonr_first(groups); n; n = n->next) {
        const char *name = jsonr_cstr(jsonr_get(n, "name"));
        bool used = false;
        for (size_t i = from; i < c->n && !used; i++)
            used = c->rows[i].group && str_eq(c->rows[i].group, name);
        if (used)
            continue;
        err_set(r->err, CORDON_ERR_CONFIG, "cases", 0,
                "%.200s:%u:%u: the group '%.60s' has no case", r->name, n->pos.line, n->pos.column,
                name);
        return err_hint(r->err, "give a case this \"group\", or leave the group out");
    }
    return 0;
}

/* Limits of the document hold for cases that say nothing. */
static void spread(struct cases *c, size_t from, const struct cases_row *defaults)
{
    for (size_t i = from; i < c->n; i++) {
        struct cases_row *row = &c->rows[i];
        if (!row->time.written)
            row->time = defaults->time;
        if (!row->cpu.written)
            row->cpu = defaults->cpu;
        if (!row->memory.written)
            row->memory = defaults->memory;
    }
}

static int read_compare(struct reader *r, const struct jsonr_node *n)
{
    return read_text(r, n, &r->cases->compare);
}

static int read_document(struct reader *r, const struct jsonr_node *root)
{
    static const char *const keys[] = {"cases",    "groups",       "compare",
                                       "checker",  "interactor",   "time_limit",
                                       "cpu_time", "memory_limit", NULL};
    struct cases_row defaults = {0};
    size_t from = r->cases->n;
    const struct jsonr_node *groups = jsonr_get(root, "groups"), *list = jsonr_get(root, "cases");
    if (!list)
        return refuse(r, &root->pos, "no list \"cases\"", "{\"cases\": [{\"input\": ...}]}");
    if (groups && groups->type != JSONR_ARRAY)
        return refuse_type(r, groups, "a list");
    for (const struct jsonr_node *n = jsonr_first(groups); n; n = n->next)
        if (read_group(r, n) < 0)
            return -1;
    for (const struct jsonr_node *n = jsonr_first(root); n; n = n->next) {
        int done = n == list                        ? read_cases(r, n)
                   : n == groups                    ? 0
                   : str_eq(n->key, "compare")      ? read_compare(r, n)
                   : str_eq(n->key, "checker")      ? read_path(r, n, &r->cases->compare)
                   : str_eq(n->key, "interactor")   ? read_path(r, n, &r->cases->interactor)
                   : str_eq(n->key, "time_limit")   ? read_time(r, n, &defaults.time)
                   : str_eq(n->key, "cpu_time")     ? read_time(r, n, &defaults.cpu)
                   : str_eq(n->key, "memory_limit") ? read_size(r, n, &defaults.memory)
                                                    : refuse_key(r, n, keys);
        if (done < 0)
            return -1;
    }
    spread(r->cases, from, &defaults);
    if (add_groups(r, from, groups != NULL) < 0)
        return -1;
    return check_groups(r, from, groups);
}

int cases_from_node(struct cases *cases, const char *name, const char *folder,
                    const struct jsonr_node *list, struct cordon_err *err)
{
    struct reader r = {cases, name, folder, err};
    size_t from = cases->n;
    if (read_cases(&r, list) < 0)
        return -1;
    return add_groups(&r, from, false);
}

static int read_lines(struct reader *r, const char *text, size_t len)
{
    size_t from = r->cases->n;
    uint32_t line = 0;
    while (len > 0) {
        const char *end = memchr(text, '\n', len);
        size_t n = end ? (size_t)(end - text) : len;
        line++;
        struct jsonr_source source = {.name = r->name,
                                      .text = text,
                                      .len = n,
                                      .max_bytes = CASES_JSON_MAX,
                                      .line = line,
                                      .code = CORDON_ERR_CONFIG,
                                      .stage = "cases"};
        bool empty = true;
        for (size_t i = 0; i < n && empty; i++)
            empty = strchr(" \t\r", text[i]) && text[i];
        struct arena arena = {0};
        const struct jsonr_node *root;
        int done = empty ? 0 : jsonr_parse(&source, &arena, &root, r->err);
        if (!empty && done == 0)
            done = read_case(r, root);
        arena_done(&arena);
        if (done < 0)
            return -1;
        text += n + (end != NULL);
        len -= n + (end != NULL);
    }
    return add_groups(r, from, false);
}

int cases_from_json(struct cases *cases, const char *name, const char *folder, const char *text,
                    size_t len, bool lines, struct cordon_err *err)
{
    struct reader r = {cases, name, folder, err};
    if (lines)
        return read_lines(&r, text, len);
    struct jsonr_source source = {.name = name,
                                  .text = text,
                                  .len = len,
                                  .max_bytes = CASES_JSON_MAX,
                                  .code = CORDON_ERR_CONFIG,
                                  .stage = "cases"};
    struct arena arena = {0};
    const struct jsonr_node *root;
    int done = jsonr_parse(&source, &arena, &root, err);
    if (done == 0)
        done = root->type == JSONR_ARRAY    ? cases_from_node(cases, name, folder, root, err)
               : root->type == JSONR_OBJECT ? read_document(&r, root)
                                            : refuse(&r, &root->pos,
                                                     "neither a list of cases nor "
                                                     "an object",
                                                     "{\"cases\": [...]}");
    arena_done(&arena);
    return done;
}
