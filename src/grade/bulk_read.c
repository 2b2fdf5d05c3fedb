/* Problems and samples. Runs in the command; reads files the caller named. */
#include "grade/bulk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/util.h"
#include "lang/load.h"

#define BULK_PROBLEMS_MAX ((size_t)512 << 20)

static int read_json(const char *name, size_t line, const char *text, size_t len,
                     struct arena *arena, const struct jsonr_node **ret, struct cordon_err *err)
{
    struct jsonr_source source = {.name = name,
                                  .text = text,
                                  .len = len,
                                  .max_bytes = BULK_LINE_MAX,
                                  .line = (uint32_t)line,
                                  .code = CORDON_ERR_CONFIG,
                                  .stage = "grade"};
    return jsonr_parse(&source, arena, ret, err);
}

/* "HumanEval/3", or 3: as text in either case. */
static const char *read_id(const struct jsonr_node *node, struct arena *arena, bool *ret_number)
{
    uint64_t n;
    *ret_number = jsonr_uint64(node, &n);
    if (*ret_number)
        return arena_printf(arena, "%llu", (unsigned long long)n);
    const char *text = jsonr_cstr(node);
    return text ? arena_strdup(arena, text) : NULL;
}

/* Texts of a list, one a line. */
static const char *read_lines(const char *first, const struct jsonr_node *list, struct arena *arena)
{
    struct buf text = BUF_INIT(BULK_LINE_MAX);
    if (first && *first)
        buf_printf(&text, "%s\n", first);
    for (const struct jsonr_node *i = jsonr_first(list); i; i = i->next)
        buf_printf(&text, "%s\n", jsonr_cstr(i));
    char *joined = buf_take(&text);
    const char *kept = joined ? arena_strdup(arena, joined) : NULL;
    free(joined);
    return kept;
}

static bool problem_humaneval(struct bulk_problem *p, const struct jsonr_node *root,
                              struct arena *arena)
{
    const char *prompt = jsonr_cstr(jsonr_get(root, "prompt"));
    const char *test = jsonr_cstr(jsonr_get(root, "test"));
    const char *entry = jsonr_cstr(jsonr_get(root, "entry_point"));
    const char *solution = jsonr_cstr(jsonr_get(root, "canonical_solution"));
    if (!prompt || !test || !entry)
        return false;
    p->prompt = arena_strdup(arena, prompt);
    p->solution = arena_strdup(arena, solution ? solution : "");
    p->entry = arena_strdup(arena, entry);
    p->tests = arena_printf(arena, "%s\n\ncheck(%s)\n", test, entry);
    /* helpers of the prompt that the tests use are the prompt's, not the sample's */
    p->prelude = arena_printf(arena, "%s\n    pass\n", prompt);
    return p->prompt && p->solution && p->entry && p->tests && p->prelude;
}

static bool problem_mbpp(struct bulk_problem *p, const struct jsonr_node *root, struct arena *arena)
{
    const char *setup = jsonr_cstr(jsonr_get(root, "test_setup_code"));
    const struct jsonr_node *list = jsonr_get(root, "test_list");
    const char *code = jsonr_cstr(jsonr_get(root, "code"));
    if (!list || list->type != JSONR_ARRAY || !code)
        return false;
    for (const struct jsonr_node *i = jsonr_first(list); i; i = i->next)
        if (!jsonr_cstr(i))
            return false;
    p->tests = read_lines(setup, list, arena);
    p->solution = arena_strdup(arena, code);
    p->reference = p->solution;
    return p->tests && p->solution;
}

static int compare_ids(const void *a, const void *b)
{
    return strcmp((*(struct bulk_problem *const *)a)->id, (*(struct bulk_problem *const *)b)->id);
}

struct bulk_problem *bulk_find(struct bulk *b, const char *id)
{
    struct bulk_problem key = {.id = id}, *at = &key;
    struct bulk_problem **found =
        b->n_problems ? bsearch(&at, b->by_id, b->n_problems, sizeof(*b->by_id), compare_ids)
                      : NULL;
    return found ? *found : NULL;
}

static int problems_index(struct bulk *b, const char *name, struct cordon_err *err)
{
    b->by_id = arena_alloc(&b->arena, (b->n_problems + 1) * sizeof(*b->by_id));
    if (!b->by_id)
        return err_nomem(err, "grade");
    for (size_t i = 0; i < b->n_problems; i++)
        b->by_id[i] = &b->problems[i];
    qsort(b->by_id, b->n_problems, sizeof(*b->by_id), compare_ids);
    for (size_t i = 1; i < b->n_problems; i++)
        if (str_eq(b->by_id[i - 1]->id, b->by_id[i]->id))
            return err_set(err, CORDON_ERR_CONFIG, "grade", 0,
                           "%.200s: task_id %.100s stands twice", name, b->by_id[i]->id);
    return 0;
}

static int problem_line(struct bulk *b, const char *name, size_t line, const char *text, size_t len,
                        struct cordon_err *err)
{
    struct bulk_problem *p = &b->problems[b->n_problems];
    struct arena scratch = {0};
    const struct jsonr_node *root;
    int r = read_json(name, line, text, len, &scratch, &root, err);
    if (r == 0) {
        p->id = read_id(jsonr_get(root, "task_id"), &b->arena, &p->id_is_number);
        bool fine = p->id && (b->format == BULK_HUMANEVAL ? problem_humaneval(p, root, &b->arena)
                                                          : problem_mbpp(p, root, &b->arena));
        if (!fine)
            r = err_set(err, CORDON_ERR_CONFIG, "grade", 0,
                        "%.200s:%zu: not a problem of this format; it needs %s", name, line,
                        b->format == BULK_HUMANEVAL ? "task_id, prompt, entry_point and test"
                                                    : "task_id, code and test_list");
        else
            b->n_problems++;
    }
    arena_done(&scratch);
    return r;
}

int bulk_read_problems(struct bulk *b, const char *name, struct cordon_err *err)
{
    _cleanup_free_ char *text = NULL;
    size_t len, lines = 1, number = 1;
    if (lang_load_file(name, BULK_PROBLEMS_MAX, &text, &len, err) < 0)
        return -1;
    for (const char *p = text; (p = memchr(p, '\n', len - (size_t)(p - text))); p++)
        lines++;
    b->problems = arena_alloc(&b->arena, (lines + 1) * sizeof(*b->problems));
    if (!b->problems)
        return err_nomem(err, "grade");
    for (size_t at = 0; at < len; number++) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t n = end ? (size_t)(end - text) - at : len - at;
        if (strspn(text + at, " \t\r") < n && problem_line(b, name, number, text + at, n, err) < 0)
            return -1;
        at += n + 1;
    }
    if (b->n_problems == 0)
        return err_set(err, CORDON_ERR_CONFIG, "grade", 0, "%.200s: no problems in it", name);
    return problems_index(b, name, err);
}

/* ---- samples ---- */

void bulk_item_done(struct bulk_item *item)
{
    policy_free(item->policy);
    arena_done(&item->arena);
    *item = (struct bulk_item){0};
}

static void item_from_problem(struct bulk_item *item, struct bulk_problem *p, const char *code)
{
    struct tests_task *t = &item->task;
    item->problem = p;
    item->id = p->id;
    item->id_is_number = p->id_is_number;
    item->sample = p->seen++;
    t->tests = p->tests;
    t->tests_len = strlen(p->tests);
    t->prelude = p->prelude;
    t->reference = p->reference;
    t->source = p->prompt ? arena_printf(&item->arena, "%s%s", p->prompt, code) : code;
    t->source_len = t->source ? strlen(t->source) : 0;
    item->entry[0] = p->entry;
    t->entry = item->entry;
    t->n_entry = p->entry ? 1 : 0;
    if (!t->source)
        item->broken = "out of memory";
}

static void item_from_sample(struct bulk *b, struct bulk_item *item, const struct jsonr_node *root)
{
    const struct jsonr_node *given = jsonr_get(root, "completion");
    const char *code = jsonr_cstr(given);
    item->id = read_id(jsonr_get(root, "task_id"), &item->arena, &item->id_is_number);
    struct bulk_problem *p = item->id ? bulk_find(b, item->id) : NULL;
    if (p)
        item_from_problem(item, p, code ? code : "");
    if (!code)
        item->unfit = BULK_UNFIT;
    if (!item->id || !given)
        item->broken = "not a sample; it needs task_id and completion";
    else if (!p)
        item->broken = "no problem has this task_id";
}

/* The next line with something on it; 0 at the end. */
static int next_line(struct bulk *b, size_t *ret_len, struct cordon_err *err)
{
    for (;;) {
        errno = 0;
        ssize_t n = getline(&b->line, &b->line_cap, b->items_file);
        if (n < 0 && (errno || ferror(b->items_file)))
            return err_set(err, CORDON_ERR_USAGE, "grade", errno, "%.200s", b->items_name);
        if (n < 0)
            return 0;
        b->line_number++;
        if (strspn(b->line, " \t\r\n") < (size_t)n) {
            *ret_len = (size_t)n;
            return 1;
        }
    }
}

static void read_item(struct bulk *b, struct bulk_item *item, const struct jsonr_node *root)
{
    if (b->format == BULK_TASKS)
        bulk_task(b, item, root);
    else
        item_from_sample(b, item, root);
}

/* A line that cannot be read for what the sample is: half a surrogate pair, bytes that are no
 * UTF-8, more than fits. A model must not be able to take a bad sample out of the count. Where
 * something else is wrong as well, or there is no sample, the line is broken. */
static void read_unfit(struct bulk *b, struct bulk_item *item, size_t len, const char *why)
{
    _cleanup_buf_ struct buf text = BUF_INIT(BULK_LINE_MAX);
    const struct jsonr_node *root;
    struct cordon_err ignored;
    item->broken = arena_strdup(&item->arena, why);
    if (!bulk_blank(b->line, len, b->format == BULK_TASKS ? "code" : "completion", &text) ||
        read_json(b->items_name, b->line_number, text.data, text.len, &item->arena, &root,
                  &ignored) < 0)
        return;
    item->unfit = item->broken;
    item->broken = NULL;
    read_item(b, item, root);
}

int bulk_next(struct bulk *b, struct bulk_item *item, struct cordon_err *err)
{
    *item = (struct bulk_item){.index = b->n_read};
    if (!b->items_file) {
        if (b->n_read == b->n_problems)
            return 0;
        struct bulk_problem *p = &b->problems[b->n_read++];
        item_from_problem(item, p, p->solution);
        return 1;
    }
    size_t len = 0;
    int r = next_line(b, &len, err);
    if (r <= 0)
        return r;
    b->n_read++;
    struct cordon_err why;
    const struct jsonr_node *root;
    if (read_json(b->items_name, b->line_number, b->line, len, &item->arena, &root, &why) < 0)
        read_unfit(b, item, len, why.message);
    else
        read_item(b, item, root);
    if (item->broken && !str_starts(item->broken, b->items_name))
        item->broken = arena_printf(&item->arena, "%.200s:%zu: %.300s", b->items_name,
                                    b->line_number, item->broken);
    return 1;
}
