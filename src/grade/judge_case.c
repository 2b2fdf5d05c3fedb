/* One case: the submission's run, then the comparison; or both with an interactor. Runs in the
 * command, on its loop; callbacks only take notes, judge_slot_step() acts on them. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/util.h"
#include "grade/judge_internal.h"

/* A helper is the grader's own program: its limits are ours, whatever the submission's are. */
#define HELPER_TIME_NS (30ull * 1000000000)
#define HELPER_MEMORY ((uint64_t)512 << 20)
#define HELPER_SCRATCH ((uint64_t)1 << 30)
#define HELPER_OUTPUT ((uint64_t)64 << 20)
#define OUTPUT_SLACK ((uint64_t)1 << 20)

static const struct cases_row *slot_row(const struct judge_slot *s)
{
    return &s->judge->cases->rows[s->index];
}

static struct grade_test *slot_test(const struct judge_slot *s)
{
    return &s->judge->state->outcome.tests[s->index];
}

void judge_slot_init(struct judge_slot *s, struct judge *judge)
{
    *s = (struct judge_slot){.judge = judge,
                             .pipes = {-1, -1},
                             .stdin_fd = -1,
                             .relays = {{.sink.fd = -1}, {.sink.fd = -1}}};
}

/* ---- policies ---- */

static void set_number(struct policy *p, enum field_id id, uint64_t num, const char *written)
{
    p->values[id].set = true;
    p->values[id].num = num;
    p->values[id].written = (char *)written;
}

static void set_limit(struct policy *p, enum field_id id, const struct cases_limit *limit)
{
    if (limit->written)
        set_number(p, id, limit->num, limit->written);
}

static uint64_t expected_size(const struct cases_row *row)
{
    struct stat st;
    if (row->expected.path)
        return stat(row->expected.path, &st) == 0 ? (uint64_t)st.st_size : 0;
    return row->expected.len;
}

/* The submission's, with the limits of the case. */
static int slot_policy(struct judge_slot *s, struct cordon_err *err)
{
    const struct cases_row *row = slot_row(s);
    struct judge_program *program = &s->judge->state->submission;
    struct policy *p = &s->policy;
    *p = *s->run.policy;
    set_limit(p, FIELD_TIME_LIMIT, &row->time);
    set_limit(p, FIELD_CPU_TIME, &row->cpu);
    set_limit(p, FIELD_MEMORY_LIMIT, &row->memory);
    set_number(p, FIELD_KILL_ON_OUTPUT_LIMIT, 1, "true");
    uint64_t room = expected_size(row) + OUTPUT_SLACK;
    if (policy_num(p, FIELD_MAX_OUTPUT) < room && room > ((uint64_t)16 << 20))
        set_number(p, FIELD_MAX_OUTPUT, room, "the expected output's size");
    s->run.policy = p;
    if (!row->memory.written || !program->lang.open)
        return 0;
    s->run.argv = lang_argv(&program->lang, row->memory.num, &s->arena);
    return s->run.argv ? 0 : err_nomem(err, "judge");
}

static void helper_policy(struct judge_slot *s, uint64_t more_ns)
{
    static const enum field_id none[] = {FIELD_CPU_TIME,   FIELD_MAX_FILE_SIZE, FIELD_MAX_FILES,
                                         FIELD_DISK_LIMIT, FIELD_OUTPUT,        FIELD_WORKSPACE};
    struct policy *p = &s->helper_policy;
    *p = *s->helper.policy;
    for (size_t i = 0; i < ARRAY_SIZE(none); i++)
        p->values[none[i]] = (struct policy_value){0};
    set_number(p, FIELD_TIME_LIMIT, HELPER_TIME_NS + more_ns, "30s");
    if (policy_num(p, FIELD_MEMORY_LIMIT) < HELPER_MEMORY)
        set_number(p, FIELD_MEMORY_LIMIT, HELPER_MEMORY, "512M");
    if (policy_num(p, FIELD_SCRATCH_SIZE) < HELPER_SCRATCH)
        set_number(p, FIELD_SCRATCH_SIZE, HELPER_SCRATCH, "1G");
    if (policy_num(p, FIELD_PROCESSES) < 64)
        set_number(p, FIELD_PROCESSES, 64, "64");
    set_number(p, FIELD_MAX_OUTPUT, HELPER_OUTPUT, "64M");
    set_number(p, FIELD_KILL_ON_OUTPUT_LIMIT, 0, "false");
    s->helper.policy = p;
}

/* ---- starting ---- */

static void slot_on_run(struct run_job *run)
{
    struct judge_slot *s = run->data;
    s->run_over = true;
    relay_push(&s->relays[0], true);
}

static void slot_on_helper(struct run_job *run)
{
    struct judge_slot *s = run->data;
    s->helper_over = true;
    s->helper_first = !s->run_over;
    relay_push(&s->relays[1], true);
}

static void slot_on_output(void *data, int stream, const char *bytes, size_t len)
{
    struct run_job *run = data;
    struct judge_slot *s = run->data;
    (void)bytes;
    (void)len;
    if (stream == 1)
        relay_push(&s->relays[run == &s->run ? 0 : 1], false);
}

static struct plan_file file_of(const char *name, const struct cases_text *text)
{
    return (struct plan_file){.name = name,
                              .source = text->path,
                              .data = text->path   ? NULL
                                      : text->data ? text->data
                                                   : "",
                              .data_len = text->path ? 0 : text->len};
}

/* Checker: input, output and answer. Interactor: input and answer; it may write the output. */
static int helper_start(struct judge_slot *s, struct judge_program *program,
                        const struct supervise_options *options, uint64_t more_ns,
                        struct cordon_err *err)
{
    const struct cases_row *row = slot_row(s);
    bool checks = program == &s->judge->state->checker;
    judge_program_use(program, &s->helper);
    size_t n = s->helper.n_files;
    if (n > ARRAY_SIZE(s->helper_files) - 3)
        return err_set(err, CORDON_ERR_INTERNAL, "judge", 0, "too many files");
    if (n > 0)
        memcpy(s->helper_files, s->helper.files, n * sizeof(*s->helper_files));
    s->helper_files[n++] = file_of(JUDGE_FILE_INPUT, &row->input);
    s->helper_files[n++] = file_of(JUDGE_FILE_ANSWER, &row->expected);
    if (checks) {
        const struct result_stream *out = &s->run.result.out[0];
        s->helper_files[n++] = (struct plan_file){
            .name = JUDGE_FILE_OUTPUT, .data = out->len ? out->data : "", .data_len = out->len};
    }
    s->helper.files = s->helper_files;
    s->helper.n_files = n;
    s->helper.options = *options;
    s->helper.on_done = slot_on_helper;
    s->helper.data = s;
    helper_policy(s, more_ns);
    s->helper_live = true;
    return run_start(&s->helper, err);
}

/* The end of one side's output is passed on when that side itself is gone, not before: a crash
 * closes the output first, and the interactor's word about it must not come before the crash is
 * known.
 *
 * The bytes one side wrote, kept for the report anyway, are what the other side reads: nobody waits
 * for anybody, and neither side's pipe is ever in the other's hands. */
static int slot_join(struct judge_slot *s, struct cordon_err *err)
{
    struct run_job *writers[2] = {&s->run, &s->helper};
    for (int i = 0; i < 2; i++) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) < 0)
            return err_set(err, CORDON_ERR_INTERNAL, "judge", errno, "pipe");
        s->pipes[i] = ends[0];
        if (relay_start(&s->relays[i], s->judge->loop, ends[1],
                        &writers[i]->supervised.out[0].kept) < 0)
            return err_set(err, CORDON_ERR_INTERNAL, "judge", errno, "pipe");
    }
    return 0;
}

static int slot_input(struct judge_slot *s, struct supervise_options *options,
                      struct cordon_err *err)
{
    const struct cases_text *in = &slot_row(s)->input;
    options->stdin_fd = -1;
    if (!in->path) {
        options->stdin_data = in->data;
        options->stdin_len = in->len;
        return 0;
    }
    s->stdin_fd = open(in->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (s->stdin_fd < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "judge", errno, "%.300s", in->path);
    options->stdin_fd = s->stdin_fd;
    return 0;
}

int judge_slot_start(struct judge_slot *s, struct cordon_err *err)
{
    struct judge_state *state = s->judge->state;
    struct supervise_options options = {.sinks = {-1, -1}, .keep_output = true, .stdin_fd = -1};
    bool interactive = s->judge->interactor != NULL;
    s->stage = SLOT_RUN;
    judge_program_use(&state->submission, &s->run);
    if (slot_policy(s, err) < 0)
        return -1;
    s->run.on_done = slot_on_run;
    s->run.data = s;
    if (interactive) {
        struct supervise_options other = options;
        if (slot_join(s, err) < 0)
            return -1;
        other.stdin_fd = s->pipes[0];
        options.stdin_fd = s->pipes[1];
        other.on_output = options.on_output = slot_on_output;
        if (helper_start(s, &state->interactor, &other, policy_num(&s->policy, FIELD_TIME_LIMIT),
                         err) < 0)
            return -1;
    } else if (slot_input(s, &options, err) < 0) {
        return -1;
    }
    s->run.options = options;
    s->run_live = true;
    return run_start(&s->run, err);
}

/* ---- the end of a case ---- */

static void slot_word(struct judge_slot *s, enum judge_word word, const char *message)
{
    struct judge_state *state = s->judge->state;
    struct grade_test *t = slot_test(s);
    bool accepted = word == JUDGE_AC;
    t->verdict = judge_words[word];
    t->status = accepted ? GRADE_PASSED : word == JUDGE_SE ? GRADE_ERROR : GRADE_FAILED;
    t->message = *message ? arena_strdup(&state->outcome.arena, message) : "";
    if (!t->message)
        t->message = "";
    if (accepted)
        state->fractions[s->index] = 1;
}

/* How the submission itself ended. */
static enum judge_word slot_run_word(const struct judge_slot *s, char *ret_message, size_t size)
{
    const struct result *r = &s->run.result;
    enum judge_word word = judge_word_of(r);
    judge_describe(r, ret_message, size);
    return word == JUDGE_RE && judge_is_out_of_memory(s->judge->state->outcome.language, r)
               ? JUDGE_MLE
               : word;
}

static void slot_our_failure(struct judge_slot *s, const char *message)
{
    s->judge->state->fractions[s->index] = 0;
    slot_word(s, JUDGE_SE, message);
}

/* What the submission wrote and used, for the reports. */
static void slot_keep(struct judge_slot *s)
{
    struct grade_outcome *o = &s->judge->state->outcome;
    struct grade_test *t = slot_test(s);
    const struct result *r = &s->run.result;
    size_t max = t->status == GRADE_PASSED ? JUDGE_ACCEPTED_KEPT : JUDGE_OUTPUT_KEPT;
    grade_note_wall(o, r);
    t->runtime_ns = r->wall_ns;
    t->cpu_ns = r->usage.cpu_user_ns + r->usage.cpu_sys_ns;
    t->memory_bytes = r->usage.peak_memory_bytes;
    if (r->out[0].len > 0)
        (void)grade_keep(o, r->out[0].data, r->out[0].len, max, &t->out);
    if (r->out[1].len > 0)
        (void)grade_keep(o, r->out[1].data, r->out[1].len, MIN(max, JUDGE_ERRORS_KEPT), &t->errout);
    t->out.truncated = t->out.truncated || r->out[0].truncated;
}

/* Its beginning, and some bytes more where there are more. */
static ssize_t expected_head(const struct cases_text *text, char *ret, size_t size)
{
    size_t n = MIN(text->len, size);
    if (!text->path) {
        if (n > 0)
            memcpy(ret, text->data, n);
        return (ssize_t)n;
    }
    _cleanup_close_ int fd = open(text->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    for (n = 0; fd >= 0 && n < size;) {
        ssize_t got = read(fd, ret + n, size - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    return fd < 0 ? -1 : (ssize_t)n;
}

void judge_keep_expected(struct judge *j)
{
    struct grade_outcome *o = &j->state->outcome;
    _cleanup_free_ char *head = malloc(JUDGE_OUTPUT_KEPT + 4);
    for (size_t i = 0; head && i < o->n_tests; i++) {
        struct grade_test *t = &o->tests[i];
        size_t max = t->status == GRADE_FAILED ? JUDGE_OUTPUT_KEPT : JUDGE_ACCEPTED_KEPT;
        ssize_t n = j->cases->rows[i].has_expected
                        ? expected_head(&j->cases->rows[i].expected, head, max + 4)
                        : 0;
        if (n > 0)
            (void)grade_keep(o, head, (size_t)n, max, &t->expected);
    }
}

/* An interactor that falls over the early end of a submission is right in that: only of a checker
 * an error that nobody caught is its own. */
static enum judge_word slot_helper_word(const struct judge_slot *s, double *ret_fraction)
{
    const struct judge_program *checker = &s->judge->state->checker;
    bool told = !s->judge->interactor && checker->lang.lang;
    return judge_word_of_helper(&s->helper.result, told ? checker->lang.lang->name : NULL,
                                ret_fraction);
}

/* Its own words, one line, after who said them. */
static void helper_message(const struct result *r, const char *who, char *ret, size_t size)
{
    char end[256];
    const struct result_stream *said = &r->out[1];
    size_t n = 0;
    while (n < said->len && n < 200 && said->data[n] != '\n')
        n++;
    judge_describe(r, end, sizeof(end));
    /* a status that means something needs no number beside the words */
    if (n > 0 && !r->error[0] && r->verdict == VERDICT_NONZERO_EXIT && r->exit_code != 3)
        *end = '\0';
    snprintf(ret, size, "%s: %.*s%s%s", who, (int)n, n ? said->data : "", n && *end ? "; " : "",
             end);
}

static void slot_by_helper(struct judge_slot *s, const char *who)
{
    char message[600];
    double fraction;
    enum judge_word word = slot_helper_word(s, &fraction);
    helper_message(&s->helper.result, who, message, sizeof(message));
    s->judge->state->fractions[s->index] = fraction;
    slot_word(s, word, word == JUDGE_AC ? "" : message);
}

static void slot_compare(struct judge_slot *s)
{
    static const enum judge_word words[] = {JUDGE_AC, JUDGE_PE, JUDGE_WA, JUDGE_SE};
    _cleanup_free_ char *expected = NULL;
    size_t len;
    char why[300];
    struct cordon_err err;
    const struct result_stream *out = &s->run.result.out[0];
    if (cases_load(&slot_row(s)->expected, CASES_FILE_MAX, &expected, &len, &err) < 0) {
        slot_our_failure(s, err.message);
        return;
    }
    enum compare_answer answer =
        compare_bytes(&s->judge->compare, expected, len, out->data, out->len, why, sizeof(why));
    slot_word(s, words[answer], answer == COMPARE_FAILED ? "out of memory" : why);
}

/* The submission is over. True: so is the case. */
static bool slot_after_run(struct judge_slot *s)
{
    struct cordon_err err = {0};
    char message[1400];
    enum judge_word word = slot_run_word(s, message, sizeof(message));
    if (word != JUDGE_AC) {
        slot_word(s, word, message);
        return true;
    }
    if (s->judge->compare.kind != COMPARE_CHECKER) {
        slot_compare(s);
        return true;
    }
    struct supervise_options options = {.sinks = {-1, -1}, .keep_output = true, .stdin_fd = -1};
    s->stage = SLOT_CHECK;
    if (helper_start(s, &s->judge->state->checker, &options, 0, &err) == 0)
        return false;
    slot_our_failure(s, err.message);
    return true;
}

/* Who ended first decides whose fault the end of the talk was. */
static bool slot_after_talk(struct judge_slot *s)
{
    char message[1400];
    double ignored;
    if (s->helper_over && !s->run_over) {
        if (slot_helper_word(s, &ignored) != JUDGE_AC)
            run_cancel(&s->run); /* nothing it does can change that any more */
        return false;
    }
    if (!s->run_over || !s->helper_over)
        return false;
    enum judge_word word = slot_run_word(s, message, sizeof(message));
    bool helper_decided = s->helper_first && slot_helper_word(s, &ignored) != JUDGE_AC;
    if (word != JUDGE_AC && !helper_decided)
        slot_word(s, word, message);
    else
        slot_by_helper(s, "interactor");
    return true;
}

bool judge_slot_step(struct judge_slot *s)
{
    bool over = false;
    if (s->stage == SLOT_RUN && s->judge->interactor)
        over = slot_after_talk(s);
    else if (s->stage == SLOT_RUN && s->run_over)
        over = slot_after_run(s);
    else if (s->stage == SLOT_CHECK && s->helper_over) {
        slot_by_helper(s, "checker");
        over = true;
    }
    if (over)
        slot_keep(s);
    return over;
}

void judge_slot_cancel(struct judge_slot *s)
{
    if (s->stage == SLOT_IDLE)
        return;
    if (s->run_live)
        run_cancel(&s->run);
    if (s->helper_live)
        run_cancel(&s->helper);
}

void judge_slot_clear(struct judge_slot *s)
{
    relay_stop(&s->relays[0]);
    relay_stop(&s->relays[1]);
    if (s->run_live)
        run_done(&s->run);
    if (s->helper_live)
        run_done(&s->helper);
    util_close(&s->pipes[0]);
    util_close(&s->pipes[1]);
    util_close(&s->stdin_fd);
    arena_done(&s->arena);
    judge_slot_init(s, s->judge);
}
