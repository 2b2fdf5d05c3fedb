/* `cordon grade`: what its ways to grade share. One file each: grade_judge.c,
 * grade_tests.c, grade_bulk.c, and grade.c with the
 * options, the dispatch, signals, reports and the exit status. */
#ifndef CLI_GRADE_H
#define CLI_GRADE_H

#include <stdbool.h>

#include <cordon.h>

#include "base/loop.h"
#include "cli/place.h"
#include "grade/grade.h"
#include "grade/report.h"
#include "host/host.h"
#include "policy/options.h"

enum grade_option {
    GRADE_OPT_CASES,
    GRADE_OPT_STDIN,
    GRADE_OPT_EXPECT,
    GRADE_OPT_COMPARE,
    GRADE_OPT_INTERACTOR,
    GRADE_OPT_STOP,
    GRADE_OPT_JOBS,
    GRADE_OPT_LANGUAGE,
    GRADE_OPT_REPORT,
    GRADE_OPT_JSON,
    GRADE_OPT_JUNIT,
    GRADE_OPT_TESTS,
    GRADE_OPT_ENTRY,
    GRADE_OPT_DOCTEST,
    GRADE_OPT_COPY_BACK,
    GRADE_OPT_IN_PROCESS,
    GRADE_OPT_PROBLEMS,
    GRADE_OPT_FORMAT,
    GRADE_OPT_SAMPLES,
    GRADE_OPT_JSONL,
    GRADE_OPT_OUT,
    GRADE_OPT_RESUME,
    GRADE_OPT_PASS_AT,
};

#define GRADE_REPORTS_MAX 16

struct grade_target {
    enum report_format format;
    const char *path; /* NULL: standard output */
    struct place place;
};

struct grade_cli {
    struct options options;
    struct policy *policy;
    struct host host;
    struct loop loop;
    struct loop_watch signals;
    int signal_fd;
    unsigned jobs; /* -j, 0: not given */
    struct grade_target targets[GRADE_REPORTS_MAX];
    size_t n_targets;
    void (*on_cancel)(struct grade_cli *c); /* a signal came; NULL: nothing can be cancelled yet */
    void *data;
    bool shows_progress;
};

/* One way to grade: fills the outcome, or fails. Starts its guests on c->loop. */
typedef int grade_way(struct grade_cli *c, struct grade_outcome *ret_outcome,
                      struct cordon_err *err);
grade_way grade_cli_judge;
grade_way grade_cli_tests;
grade_way grade_cli_bulk; /* writes its own results: no reports follow */

/* A line that the next one replaces, on a terminal only; NULL clears it. */
void grade_cli_progress(struct grade_cli *c, size_t done, size_t total, const char *name);

#endif
