/* Reports of the tests' side: JSON texts of known shape. Runs in the supervisor. A row is written
 * once, and only if it was announced. */
#include "grade/tests_read.h"

#include <string.h>

#include "base/err.h"
#include "base/jsonr.h"
#include "base/util.h"

#define TESTS_OUTPUT_MAX ((size_t)64 << 10)

static const struct jsonr_node *read_json(const char *data, size_t len, struct arena *arena,
                                          struct cordon_err *err)
{
    struct jsonr_source source = {.name = "tests",
                                  .text = data,
                                  .len = len,
                                  .max_bytes = CHANNEL_FRAME_MAX,
                                  .code = CORDON_ERR_INTERNAL,
                                  .stage = "grade"};
    const struct jsonr_node *root;
    return jsonr_parse(&source, arena, &root, err) < 0 ? NULL : root;
}

int tests_read_names(struct grade_outcome *o, const char *data, size_t len, struct cordon_err *err)
{
    struct arena arena = {0};
    int r = err_set(err, CORDON_ERR_INTERNAL, "grade", 0, "the list of tests cannot be read");
    const struct jsonr_node *root = read_json(data, len, &arena, err);
    const struct jsonr_node *list = jsonr_get(root, "tests");
    size_t n = jsonr_count(list), at = 0;
    struct grade_test *tests = arena_alloc(&o->arena, (n + 1) * sizeof(*tests));
    if (n > 0 && tests) {
        for (const struct jsonr_node *i = jsonr_first(list); i; i = i->next) {
            const char *name = jsonr_cstr(i);
            tests[at].name = arena_strdup(&o->arena, name ? name : "?");
            tests[at].status = GRADE_NOT_RUN;
            tests[at].message = "";
            if (!tests[at++].name)
                break;
        }
        if (at == n && tests[n - 1].name) {
            o->tests = tests;
            o->n_tests = n;
            r = 0;
        }
    }
    arena_done(&arena);
    return r;
}

bool tests_read_begin(struct tests_run *r, const char *data, size_t len)
{
    struct arena arena = {0};
    uint64_t number = 0;
    const struct jsonr_node *root = read_json(data, len, &arena, NULL);
    bool fine = root && jsonr_uint64(root, &number) && number < r->outcome->n_tests;
    if (fine)
        r->running = (size_t)number;
    if (fine && r->on_begin)
        r->on_begin(r);
    arena_done(&arena);
    return fine;
}

static bool read_status(const char *name, enum grade_status *ret)
{
    for (int i = GRADE_PASSED; name && i <= GRADE_NOT_RUN; i++)
        if (str_eq(name, grade_status_name((enum grade_status)i))) {
            *ret = (enum grade_status)i;
            return true;
        }
    return false;
}

bool tests_read_result(struct tests_run *r, const char *data, size_t len)
{
    struct grade_outcome *o = r->outcome;
    struct arena arena = {0};
    uint64_t number = 0, ns = 0;
    enum grade_status status = GRADE_NOT_RUN;
    const struct jsonr_node *root = read_json(data, len, &arena, NULL);
    const char *message = jsonr_cstr(jsonr_get(root, "m"));
    const struct jsonr_node *output = jsonr_get(root, "o");
    bool fine = root && message && jsonr_uint64(jsonr_get(root, "i"), &number) &&
                number < o->n_tests && jsonr_uint64(jsonr_get(root, "t"), &ns) &&
                read_status(jsonr_cstr(jsonr_get(root, "s")), &status) &&
                o->tests[number].status == GRADE_NOT_RUN;
    if (fine) {
        struct grade_test *t = &o->tests[number];
        t->message = arena_strdup(&o->arena, message);
        fine =
            t->message && (!output || output->type != JSONR_STRING || output->u.string.len == 0 ||
                           grade_keep(o, output->u.string.data, output->u.string.len,
                                      TESTS_OUTPUT_MAX, &t->out) == 0);
        t->status = status;
        t->runtime_ns = ns;
        r->n_results++;
        if (r->running == number)
            r->running = SIZE_MAX;
    }
    arena_done(&arena);
    return fine;
}

bool tests_read_broken(struct tests_run *r, const char *data, size_t len)
{
    struct arena arena = {0};
    const struct jsonr_node *root = read_json(data, len, &arena, NULL);
    const char *message = jsonr_cstr(root);
    if (message && !r->outcome->error)
        r->outcome->error = arena_strdup(&r->outcome->arena, message);
    arena_done(&arena);
    return message != NULL;
}
