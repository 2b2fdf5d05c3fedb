/* What the end of a side means. Runs in the supervisor. */
#include "grade/tests_end.h"

#include <string.h>

#include "base/util.h"

enum tests_end tests_end_of(const struct result *res)
{
    switch (res->verdict) {
    case VERDICT_TIME_LIMIT:
    case VERDICT_CPU_TIME_LIMIT: return TESTS_END_TIME;
    case VERDICT_MEMORY_LIMIT: return TESTS_END_MEMORY;
    case VERDICT_OUTPUT_LIMIT: return TESTS_END_OUTPUT;
    case VERDICT_OK:
    case VERDICT_NONZERO_EXIT:
    case VERDICT_SIGNALED:
    case VERDICT_PROCESS_LIMIT:
    case VERDICT_DISK_LIMIT:
    case VERDICT_REJECTED:
    case VERDICT_CANCELLED:
    case VERDICT_SANDBOX_ERROR: break;
    }
    return TESTS_END_OTHER;
}

void tests_note_end(struct tests_run *r, const struct party *p)
{
    const struct result *res = &p->run.result;
    if (r->reason[0])
        return;
    r->end = tests_end_of(res);
    if (p->breach)
        snprintf(r->reason, sizeof(r->reason), "the submission sent what is no answer: %s",
                 p->breach);
    else if (res->signal && res->verdict == VERDICT_SIGNALED)
        snprintf(r->reason, sizeof(r->reason), "the submission was killed by signal %d",
                 res->signal);
    else if (res->verdict == VERDICT_OK || res->verdict == VERDICT_NONZERO_EXIT)
        snprintf(r->reason, sizeof(r->reason), "the submission exited with status %d%s%.300s",
                 res->exit_code, res->error[0] ? ": " : "", res->error);
    else
        snprintf(r->reason, sizeof(r->reason), "the submission was ended: %.400s",
                 res->error[0] ? res->error : result_verdict_name(res->verdict));
}

void tests_note_oom(struct tests_run *r, const struct party *p)
{
    const char *limit = policy_written(p->run.policy, FIELD_MEMORY_LIMIT);
    if (r->reason[0] || p->run.result.usage.oom_kills == 0)
        return;
    r->end = TESTS_END_MEMORY;
    snprintf(r->reason, sizeof(r->reason),
             "the submission was ended: Memory limit exceeded (%.60s)", limit ? limit : "");
}

bool tests_is_told(const struct grade_outcome *o, const char *reason)
{
    for (size_t i = 0; i < o->n_tests; i++)
        if (o->tests[i].status == GRADE_ERROR && o->tests[i].message &&
            str_eq(o->tests[i].message, reason))
            return true;
    return false;
}

bool tests_passed(const struct grade_outcome *o)
{
    return o->n_tests > 0 && o->passed == o->n_tests && !o->error;
}

static bool is_syntax_error(const char *error)
{
    static const char *const kinds[] = {"SyntaxError", "IndentationError", "TabError"};
    static const char lead[] = "the submission does not load: ";
    for (size_t i = 0; str_starts(error, lead) && i < ARRAY_SIZE(kinds); i++) {
        size_t n = strlen(kinds[i]);
        const char *at = error + strlen(lead);
        if (strncmp(at, kinds[i], n) == 0 && (at[n] == ':' || at[n] == ' ' || at[n] == '\0'))
            return true;
    }
    return false;
}

const char *tests_verdict(const struct tests_run *r)
{
    const struct grade_outcome *o = r->outcome;
    if (tests_passed(o))
        return "AC";
    /* no test was ever named, and before that a submission does not get its text: whatever went
     * wrong was wrong with the tests */
    if (o->n_tests == 0)
        return "SE";
    if (r->end == TESTS_END_TIME)
        return "TLE";
    if (r->end == TESTS_END_MEMORY)
        return "MLE";
    if (r->end == TESTS_END_OUTPUT)
        return "OLE";
    if (o->failed > 0)
        return "WA";
    if (o->error && r->n_results == 0 && is_syntax_error(o->error))
        return "CE";
    return "RE";
}
