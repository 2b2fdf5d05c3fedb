/* A submission without a compiler that does not parse: CE as well, and not RE. Runs in the command,
 * on its loop.
 *
 * Asked is only when a run ended as one does that never began, so submissions that work pay
 * nothing. The answer comes from a guest in which nothing of the submission runs. */
#include "grade/judge_internal.h"

static void parse_over(struct run_job *run)
{
    ((struct judge_state *)run->data)->parse_over = true;
}

/* Python and Node end with 1, before the first line of the program. */
static bool never_began(const struct result *r)
{
    return r->verdict == VERDICT_NONZERO_EXIT && r->exit_code == 1 && !r->error[0] &&
           r->out[0].len == 0;
}

void judge_parse_after(struct judge *j, const struct result *r)
{
    struct judge_state *s = j->state;
    struct cordon_err ignored;
    s->began |=
        r->verdict != VERDICT_CANCELLED && r->verdict != VERDICT_SANDBOX_ERROR && !never_began(r);
    if (s->began || s->asked || s->cancelled || !s->submission.lang.open || !never_began(r))
        return;
    s->asked = true;
    judge_program_use(&s->submission, &s->parse);
    s->parse_refused = lang_parse_use(&s->submission.lang, &s->parse);
    s->parse.on_done = parse_over;
    s->parse.data = s;
    s->asking = s->parse_refused >= 0 && run_start(&s->parse, &ignored) == 0;
}

void judge_parse_step(struct judge *j)
{
    struct judge_state *s = j->state;
    const struct result *r = &s->parse.result;
    struct grade_bytes said = {0};
    if (!s->asking || !s->parse_over)
        return;
    s->asking = false;
    if (s->began || r->verdict != VERDICT_NONZERO_EXIT || r->exit_code != s->parse_refused ||
        r->error[0])
        return;
    if (r->out[1].len > 0)
        (void)grade_keep(&s->outcome, r->out[1].data, r->out[1].len, JUDGE_OUTPUT_KEPT, &said);
    s->refused = said.len ? said.data : "it does not parse";
}
