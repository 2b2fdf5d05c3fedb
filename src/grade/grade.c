/* Helpers of the common rows. Pure. */
#include "grade/grade.h"

#include <string.h>

#include "base/buf.h"
#include "base/jsonw.h"
#include "base/util.h"
#include "run/result.h"

const char *grade_status_name(enum grade_status status)
{
    static const char *const names[] = {"passed", "failed", "error", "skipped", "not_run"};
    return names[status];
}

void grade_count(struct grade_outcome *o)
{
    size_t n[5] = {0};
    for (size_t i = 0; i < o->n_tests; i++)
        n[o->tests[i].status]++;
    o->passed = n[GRADE_PASSED];
    o->failed = n[GRADE_FAILED];
    o->errors = n[GRADE_ERROR];
    o->skipped = n[GRADE_SKIPPED];
    o->not_run = n[GRADE_NOT_RUN];
}

int grade_keep(struct grade_outcome *o, const char *data, size_t len, size_t max,
               struct grade_bytes *ret)
{
    size_t keep = MIN(len, max);
    /* back to the first byte of the character that would be cut; four bytes are the longest */
    for (size_t back = 0; keep < len && back < 4 && keep > 0; back++, keep--)
        if (((unsigned char)data[keep] & 0xc0) != 0x80)
            break;
    char *copy = arena_alloc(&o->arena, keep + 1);
    if (!copy)
        return -1;
    if (keep > 0)
        memcpy(copy, data, keep);
    *ret = (struct grade_bytes){copy, keep, keep < len};
    return 0;
}

void grade_note_wall(struct grade_outcome *o, const struct result *r)
{
    _cleanup_buf_ struct buf text = BUF_INIT(65536);
    struct jsonw j = {.out = &text};
    static const char key[] = "\"enforcement\":";
    if (o->enforcement || !r->outcome || !r->plan)
        return;
    result_json_enforcement(&j, r);
    if (!text.failed)
        o->enforcement = arena_strdup(&o->arena, text.data + strlen(key));
}

void grade_outcome_done(struct grade_outcome *o)
{
    arena_done(&o->arena);
    *o = (struct grade_outcome){0};
}
