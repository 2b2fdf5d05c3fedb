/* Shared by judge*.c only. */
#ifndef GRADE_JUDGE_INTERNAL_H
#define GRADE_JUDGE_INTERNAL_H

#include "grade/judge.h"
#include "lang/source.h"
#include "run/run.h"
#include "serve/relay.h"

#define JUDGE_OUTPUT_KEPT ((size_t)65536) /* of each text in a report */
#define JUDGE_ACCEPTED_KEPT ((size_t)2048)
#define JUDGE_ERRORS_KEPT ((size_t)8192)

enum judge_word {
    JUDGE_AC,
    JUDGE_WA,
    JUDGE_PE,
    JUDGE_TLE,
    JUDGE_MLE,
    JUDGE_RE,
    JUDGE_OLE,
    JUDGE_CE,
    JUDGE_SE,
};
extern const char *const judge_words[];

/* Something to run often: a source that was compiled once, an executable, a command. */
struct judge_program {
    struct lang_source source;
    struct lang_job lang;
    struct run_job ready; /* what each run copies */
    struct plan_file file;
    char *argv[6];
    bool started, over;
};

/* What a helper (checker, interactor) finds in its folder, and is called with in this order. */
#define JUDGE_FILE_INPUT "input.txt"
#define JUDGE_FILE_OUTPUT "output.txt"
#define JUDGE_FILE_ANSWER "answer.txt"

enum slot_stage { SLOT_IDLE, SLOT_RUN, SLOT_CHECK };

/* One case on its way. */
struct judge_slot {
    struct judge *judge;
    enum slot_stage stage;
    size_t index;
    struct run_job run, helper;
    struct policy policy, helper_policy;
    struct plan_file helper_files[4 + 3];
    struct arena arena;
    struct relay relays[2]; /* submission to interactor, and back */
    int pipes[2];           /* the reading ends of the two */
    int stdin_fd;
    bool run_live, helper_live; /* to be freed */
    bool run_over, helper_over;
    bool helper_first; /* the interactor ended before the submission */
};

struct judge_state {
    struct judge_program submission, checker, interactor;
    struct policy helper_policy; /* what checker and interactor are made ready with; borrows */
    struct judge_slot *slots;
    unsigned n_slots;
    struct grade_outcome outcome;
    double *fractions; /* of each case's points */
    size_t next, done; /* cases */
    size_t stop_at;    /* the first case that was not accepted, with stop_on_fail */
    struct run_job
        parse;         /* is it a program at all? asked once, by the first that looks like none */
    int parse_refused; /* the status that says no */
    bool cancelled, asked, asking, parse_over;
    bool began;              /* some run did what only a program does */
    const char *refused;     /* it is none: the parser's words */
    struct cordon_err fatal; /* code 0: none */
};

/* ---- judge_program.c ---- */
/* name and helper decide about arguments and messages: NULL is the submission. */
int judge_program_start(struct judge *judge, struct judge_program *program, const char *path,
                        const char *helper, struct cordon_err *err);
void judge_program_done(struct judge_program *program);
/* Fills a run's policy, words, files and host. */
void judge_program_use(const struct judge_program *program, struct run_job *ret_run);

/* ---- judge_parse.c ---- */
/* After each run of the submission: asks the parser if it looks as if there was nothing to run. No
 * case starts while state->asking. */
void judge_parse_after(struct judge *judge, const struct result *result);
/* Sets state->refused when the answer is there and the submission does not parse. */
void judge_parse_step(struct judge *judge);

/* ---- judge_case.c ---- */
void judge_slot_init(struct judge_slot *slot, struct judge *judge);
int judge_slot_start(struct judge_slot *slot, struct cordon_err *err);
/* Looks whether something ended; true: the case is over, its row is filled. */
bool judge_slot_step(struct judge_slot *slot);
void judge_slot_cancel(struct judge_slot *slot);
void judge_slot_clear(struct judge_slot *slot);
/* For the reports: what was expected, in every row. */
void judge_keep_expected(struct judge *judge);

/* ---- judge_verdict.c: pure ---- */
enum judge_word judge_word_of(const struct result *result);
bool judge_is_out_of_memory(const char *language, const struct result *result);
/* What a checker in this language (NULL: an executable, an interactor) said by its end.
 * *ret_fraction as for the points of the case. */
enum judge_word judge_word_of_helper(const struct result *result, const char *language,
                                     double *ret_fraction);
/* "exit status 3", "signal 11 (Segmentation fault)", "Memory limit exceeded (64M)". */
void judge_describe(const struct result *result, char *ret_text, size_t size);
/* Verdict, score and groups of the whole from its rows. */
int judge_sum(struct grade_outcome *outcome, const struct cases *cases, const double *fractions,
              struct cordon_err *err);

#endif
