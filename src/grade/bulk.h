/* Many submissions: problems and samples in, one line per sample out, in the order of the input.
 *
 * Runs in the command. There are `n_desks` desks (the tests' sandboxes, each of which serves one
 * run after the other) and a fresh sandbox per submission. What is ready too early waits, and so
 * does the input when too much waits. A task that is broken is a line of its own and stops nobody.
 */
#ifndef GRADE_BULK_H
#define GRADE_BULK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cordon.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/jsonr.h"
#include "grade/tests.h"
#include "policy/policy.h"

#define BULK_LINE_MAX ((size_t)16 << 20)
#define BULK_JOBS_MAX 256u

#define BULK_UNFIT "the sample is no program: not a text, or one with a NUL in it"

enum bulk_format { BULK_HUMANEVAL, BULK_MBPP, BULK_TASKS };

/* One problem, with how its samples did. */
struct bulk_problem {
    const char *id;
    bool id_is_number;
    const char *prompt, *solution; /* HumanEval: a sample follows the prompt */
    const char *tests, *prelude, *reference;
    const char *entry; /* NULL: any name */
    size_t n, passed;  /* samples that were graded (SE is none), and passed */
    size_t seen;       /* samples read */
};

/* One sample on its way. */
struct bulk_item {
    struct arena arena;
    size_t index;                 /* in the input */
    struct bulk_problem *problem; /* NULL: a task of its own, or broken */
    const char *id;
    bool id_is_number;
    size_t sample;      /* of its problem */
    const char *broken; /* why it cannot be graded; NULL: it can */
    const char *unfit;  /* why no program is in it: CE, a sample like any other; NULL: one is */
    struct tests_task task;
    const char *entry[1];
    /* tasks only */
    const char *language;
    const struct jsonr_node *cases;
    const char *compare;
    struct policy *policy; /* with limits or files of its own; owned */
};

struct bulk_counts {
    size_t passed, failed, errors, total;
};

struct bulk_worker;

/* Zero-initialise and fill in the first part; everything is borrowed. */
struct bulk {
    struct loop *loop;
    const struct host *host;
    const struct policy *policy;
    struct policy_input input; /* what the policy was made from, for tasks with limits */
    char *const *vars;
    unsigned jobs;    /* cases at once */
    unsigned n_desks; /* suites at once; 0: as many as jobs */
    enum bulk_format format;
    const char *items_name; /* of items_file, for messages */
    FILE *items_file;       /* samples or tasks; NULL: the problems' own solutions */
    size_t skip;            /* samples graded earlier: read, not run */
    /* Each of those; the caller counts it with bulk_count_line(). -1: it is another than was
     * graded. */
    int (*on_skip)(void *data, const struct bulk_item *item, struct cordon_err *err);
    /* One line with its newline, in order; -1: it could not be written, and everything ends. */
    int (*on_line)(void *data, const char *line, size_t len);
    void (*on_progress)(void *data, size_t done, const char *id);
    void *data;

    struct arena arena;
    struct bulk_problem *problems; /* in the order of the file */
    size_t n_problems;
    struct bulk_problem **by_id;
    struct bulk_counts counts;

    /* private */
    struct bulk_worker *workers;
    unsigned n_workers;
    struct tests_desk *desks; /* `n_desks` of them */
    struct party_warm warm;   /* what sides of the common policy are copied from */
    bool expects_desks;       /* those of all workers were asked for */
    bool is_cold;             /* it failed once: not used again */
    char *line;
    size_t line_cap, line_number, n_read, n_written, n_running;
    struct buf *window; /* lines that wait for earlier ones */
    size_t n_window;
    bool input_ended, cancelled;
    struct cordon_err err;
};

/* bulk_read.c: problems before anything runs. Errors name file and line. */
int bulk_read_problems(struct bulk *b, const char *name, struct cordon_err *err);
struct bulk_problem *bulk_find(struct bulk *b, const char *id);
/* The next sample: 1, 0 at the end, -1 when reading fails. */
int bulk_next(struct bulk *b, struct bulk_item *ret, struct cordon_err *err);
void bulk_item_done(struct bulk_item *item);
/* bulk_blank.c: the line with an empty text in the place of what this key of it has, whatever that
 * is; false: it has no such key, or no such shape. Pure. */
bool bulk_blank(const char *line, size_t len, const char *key, struct buf *out);
/* bulk_task.c: a line of --jsonl, into an item that says so if it is broken. */
void bulk_task(struct bulk *b, struct bulk_item *item, const struct jsonr_node *root);

/* A sample's result in the sums. */
void bulk_count_line(struct bulk *b, struct bulk_problem *problem, const char *verdict,
                     bool passed);
/* bulk.c. -1: it could not be gone on with; what was written before is right. */
int bulk_run(struct bulk *b, struct cordon_err *err);
void bulk_cancel(struct bulk *b);
void bulk_done(struct bulk *b);

/* bulk_score.c: mean over the problems that have at least k samples of the chance that one of k
 * samples passes, without bias (Chen et al. 2021); -1 when there is none. Pure. */
double bulk_pass_at(const struct bulk *b, uint64_t k);

#endif
