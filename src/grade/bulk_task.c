/* A task of a line of its own: {id, language, code|files, tests|cases, limits}. Runs in the
 * command. The file may come from anywhere, so it can set limits and inline files, nothing that
 * grants something of the host. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/util.h"
#include "grade/bulk.h"
#include "policy/fields.h"

static const struct field *limit_field(const char *key)
{
    for (size_t i = 0; i < FIELD_COUNT_; i++)
        if (str_eq(policy_fields[i].key, key) && policy_fields[i].risk == RISK_LIMIT)
            return &policy_fields[i];
    return NULL;
}

/* "5s", "100M", or a number: seconds of a duration, bytes of a size. */
static const char *limit_text(const struct field *f, const struct jsonr_node *node,
                              struct arena *arena)
{
    double d;
    if (jsonr_cstr(node))
        return jsonr_cstr(node);
    if (!jsonr_double(node, &d) || d < 0)
        return NULL;
    return f->type == FT_DURATION ? arena_printf(arena, "%.10gs", d)
                                  : arena_printf(arena, "%.0f", d);
}

static int task_policy(struct bulk *b, struct bulk_item *item, const struct jsonr_node *limits,
                       const struct jsonr_node *files, const struct jsonr_node *main_file)
{
    struct policy_input input = b->input;
    size_t n = input.n_settings;
    struct policy_setting *all = arena_alloc(
        &item->arena, (n + jsonr_count(limits) + jsonr_count(files) + 1) * sizeof(*all));
    if (!all)
        return -1;
    if (n > 0)
        memcpy(all, input.settings, n * sizeof(*all));
    for (const struct jsonr_node *i = jsonr_first(limits); i; i = i->next) {
        const struct field *f = limit_field(i->key);
        const char *text = f ? limit_text(f, i, &item->arena) : NULL;
        if (!text) {
            item->broken = arena_printf(&item->arena,
                                        "limits: %.60s is not a limit, or not its value", i->key);
            return -1;
        }
        all[n++] = (struct policy_setting){.name = f->key, .value = text};
    }
    for (const struct jsonr_node *i = jsonr_first(files); i; i = i->next) {
        if (i->type != JSONR_STRING && i != main_file) {
            item->broken = arena_printf(&item->arena, "files: %.60s is not a text", i->key);
            return -1;
        }
        if (i != main_file)
            all[n++] = (struct policy_setting){.name = "filesystem",
                                               .value = i->key,
                                               .data = i->u.string.data,
                                               .data_len = i->u.string.len};
    }
    input.settings = all;
    input.n_settings = n;
    struct cordon_err err;
    if (policy_resolve(&input, &item->policy, &err) == 0)
        return 0;
    item->broken = arena_strdup(&item->arena, err.message);
    return -1;
}

/* The submission among several files. */
static const struct jsonr_node *task_main_file(const struct jsonr_node *files)
{
    static const char *const names[] = {"solution.py", "main.py", "submission.py"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (jsonr_get(files, names[i]))
            return jsonr_get(files, names[i]);
    return jsonr_first(files);
}

/* A text, or a list of them, one a line; NULL: neither. */
static const char *task_tests(const struct jsonr_node *node, struct arena *arena)
{
    if (!node || node->type != JSONR_ARRAY)
        return jsonr_cstr(node);
    struct buf text = BUF_INIT(BULK_LINE_MAX);
    bool fine = true;
    for (const struct jsonr_node *i = jsonr_first(node); i && fine; i = i->next) {
        fine = jsonr_cstr(i) != NULL;
        if (fine)
            buf_printf(&text, "%s\n", jsonr_cstr(i));
    }
    if (fine && jsonr_count(node) == 0)
        return "";
    char *joined = buf_take(&text);
    const char *kept = joined && fine ? arena_strdup(arena, joined) : NULL;
    free(joined);
    return kept;
}

static bool task_bool(const struct jsonr_node *root, const char *key)
{
    const struct jsonr_node *node = jsonr_get(root, key);
    return node && node->type == JSONR_BOOL && node->u.boolean;
}

/* Lines may have more than we read. A key that is nearly one of those a task can do without, and
 * does, was meant to be it; without the others it is no task anyhow. */
static void task_check_keys(struct bulk_item *item, const struct jsonr_node *root)
{
    static const char *const optional[] = {"language",  "compare", "limits",    "entry",
                                           "copy_back", "doctest", "in_process"};
    for (const struct jsonr_node *n = jsonr_first(root); n && n->key && !item->broken;
         n = n->next) {
        struct fields_near near = fields_near_start(n->key);
        for (size_t i = 0; n->key_len >= 4 && i < ARRAY_SIZE(optional); i++)
            if (!jsonr_get(root, optional[i]))
                fields_near_try(&near, optional[i]);
        if (str_eq(n->key, "lang") && !jsonr_get(root, "language"))
            near.best = "language";
        if (near.best)
            item->broken = arena_printf(&item->arena, "unknown key '%.60s' (did you mean '%s'?)",
                                        n->key, near.best);
    }
}

void bulk_task(struct bulk *b, struct bulk_item *item, const struct jsonr_node *root)
{
    uint64_t number;
    const struct jsonr_node *id = jsonr_get(root, "id"), *files = jsonr_get(root, "files");
    const struct jsonr_node *limits = jsonr_get(root, "limits");
    const struct jsonr_node *code = jsonr_get(root, "code"), *main_file = NULL;
    if (!id)
        id = jsonr_get(root, "task_id");
    item->id_is_number = jsonr_uint64(id, &number);
    item->id = item->id_is_number ? arena_printf(&item->arena, "%llu", (unsigned long long)number)
                                  : jsonr_cstr(id);
    if (!code)
        code = main_file = task_main_file(files);
    item->language = jsonr_cstr(jsonr_get(root, "language"));
    item->compare = jsonr_cstr(jsonr_get(root, "compare"));
    item->cases = jsonr_get(root, "cases");
    struct tests_task *t = &item->task;
    t->tests = task_tests(jsonr_get(root, "tests"), &item->arena);
    t->tests_len = t->tests ? strlen(t->tests) : 0;
    t->source = jsonr_cstr(code);
    if (code && !t->source) {
        item->unfit = BULK_UNFIT;
        t->source = "";
    }
    t->source_len = t->source ? strlen(t->source) : 0;
    t->copy_back = task_bool(root, "copy_back");
    t->doctest = task_bool(root, "doctest");
    t->in_process = task_bool(root, "in_process");
    item->entry[0] = jsonr_cstr(jsonr_get(root, "entry"));
    t->entry = item->entry;
    t->n_entry = item->entry[0] ? 1 : 0;
    task_check_keys(item, root);
    if (item->broken) {
        t->policy = item->policy;
        return;
    }
    const struct jsonr_node *tests = jsonr_get(root, "tests");
    if (tests && item->cases)
        item->broken = "both tests and cases: a task has one of them";
    else if (tests && tests->type == JSONR_ARRAY && !t->tests)
        item->broken = "tests: a list of texts, and one of them is none";
    else if (!item->id || !t->source || (!t->tests && !item->cases))
        item->broken = "not a task; it needs id, code or files, and tests or cases";
    else if (t->tests && item->language && !str_eq(item->language, "python"))
        item->broken = "tests are for language python; others have cases";
    else if ((jsonr_count(limits) || jsonr_count(files)) &&
             task_policy(b, item, limits, files, main_file) < 0 && !item->broken)
        item->broken = "out of memory";
    t->policy = item->policy;
}
