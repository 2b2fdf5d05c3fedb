/*
 * What the parts of the benchmark driver share: the case as it was read, the samples it gave
 * and what was computed from them.
 *
 *   cases.c   case files -> struct bench_case (pure reading, no process is started)
 *   proc.c    start one program, wait, time
 *   sample.c  one measurement in its mode
 *   order.c   which case runs when
 *   stats.c   numbers -> numbers
 *   machine.c what the figures were measured on
 *   report.c  JSON, Markdown, the lines about bars
 *   svg.c     the plot
 *   output.c  the files of bench/results
 *   driver.c  options, order of the runs, exit status
 */
#ifndef BENCH_H
#define BENCH_H

/* The driver builds without any flags of the project: every file includes this one first. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define BENCH_MAX_CASES 256
#define BENCH_MAX_ARGS 128
#define BENCH_MAX_BARS 4
#define BENCH_TEXT_MAX 2048

enum bench_mode {
    MODE_WALL,       /* a sample is the time from spawn to reaped */
    MODE_SELF,       /* the program prints its samples as numbers on stdout */
    MODE_THROUGHPUT, /* a sample is runs per second of N workers in one window */
};

enum case_state {
    CASE_READY,
    CASE_SKIPPED, /* a prerequisite is missing; reason says which */
    CASE_FAILED,  /* it ran and did not exit 0, or timed out, or printed no number */
};

enum bar_verdict {
    BAR_OK,
    BAR_NOISE,    /* the median is past the bar, the confidence interval is not */
    BAR_EXCEEDED, /* the whole confidence interval is past the bar */
    BAR_UNKNOWN,  /* one side was skipped */
    BAR_BROKEN,   /* one side failed */
};

enum outcome_kind { OUT_EXITED, OUT_SIGNALED, OUT_TIMEOUT, OUT_STOPPED, OUT_NOT_STARTED };

struct outcome {
    enum outcome_kind kind;
    int code; /* exit status, signal or errno */
    uint64_t ns;
};

struct summary {
    size_t n;
    double min, median, p90, p99, mean;
    double ci_low, ci_high; /* 95 % of the median */
};

struct ratio {
    double value, ci_low, ci_high; /* median / median of the other case */
};

struct bar {
    char name[64];
    char of[64];   /* case of the same group; empty: the bar is an absolute value */
    bool at_least; /* else at most */
    double limit;
    double goal; /* 0: none */
    /* filled by the driver */
    enum bar_verdict verdict;
    struct ratio measured;
};

struct bench_case {
    char name[64];
    char group[64];
    char group_title[160];
    char title[96];
    char note[256];
    char against[64]; /* the case its ratio is taken of; empty: the group's base */
    char unit[16];    /* "ns" is shown as time, "runs/s" and others as they are */
    char package[64];
    char version[96]; /* first line of what the version command said */
    char mount_ns[128];
    char *argv[BENCH_MAX_ARGS + 1];
    char *version_argv[BENCH_MAX_ARGS + 1];
    char *cleanup_argv[BENCH_MAX_ARGS + 1];
    enum bench_mode mode;
    bool is_base;
    bool is_subject; /* what the plot is about */
    bool higher_is_better;
    bool as_user; /* of a driver that is root: as an ordinary user */
    unsigned workers;
    unsigned max_samples;   /* 0: every round */
    unsigned exact_samples; /* so many in every run, without a warm-up; 0: not said */
    uint64_t timeout_ns;
    uint64_t window_ns;
    struct bar bars[BENCH_MAX_BARS];
    size_t n_bars;

    enum case_state state;
    char reason[BENCH_TEXT_MAX];
    double *samples;
    size_t n_samples, cap_samples;
    struct summary sum;
    bool is_reference; /* some case is compared with it */
    bool has_ratio;
    char ratio_of[64];
    struct ratio ratio;
};

struct case_list {
    struct bench_case *items[BENCH_MAX_CASES];
    size_t n;
};

struct machine {
    char kernel[128];
    char cpu[128];
    char governor[64];
    char date[32];
    char commit[96];
    char load[48];
    unsigned cores;
    bool is_virtual;
    unsigned long mem_mib;
};

struct run_info {
    struct machine machine;
    unsigned rounds, warmup;
    uint64_t seed;
    double steal_percent; /* of the group's own time */
    double elapsed_s;
};

/* cases.c. Returns 0, or -1 with a message `file:line: ...` in err. */
int cases_load(const char *path, struct case_list *list, char *err, size_t err_size);
void cases_free(struct case_list *list);
struct bench_case *cases_find(const struct case_list *list, const char *group, const char *name);
/* A copy of word with ${SEQ} replaced; NULL when there is no memory. */
char *cases_expand_seq(const char *word, unsigned long seq);

/* proc.c. An fd of -1 stands for /dev/null. */
int proc_init(const char *scratch, char *err, size_t err_size);
const char *proc_scratch(void);
void proc_request_stop(void); /* async-signal-safe */
bool proc_is_stopped(void);
uint64_t proc_now_ns(void);
void proc_run(char *const *argv, uint64_t timeout_ns, int out_fd, int err_fd,
              struct outcome *ret_out);
void proc_reap_strays(void);
void proc_kill_strays(void);

/* sample.c */
/* Takes one measurement and appends it to c->samples unless discard. -1: c->state is set. */
int sample_take(struct bench_case *c, bool discard);
/* One untimed run with stderr kept for the reason of a failure. -1: c->state is set. */
int sample_preflight(struct bench_case *c);
void sample_read_version(struct bench_case *c);

/* order.c */
#define ORDER_FULL_ROUNDS 300
/* How many samples the case gives in a run of so many rounds. */
unsigned order_samples(const struct bench_case *c, unsigned rounds);
/* How many rounds the group needs for that. */
unsigned order_rounds(const struct case_list *group, unsigned rounds);
bool order_is_due(unsigned round, unsigned rounds, unsigned samples);
void order_draw(struct case_list *order, uint64_t *rng);

/* stats.c */
uint64_t stats_random(uint64_t *state);
/* p90 and p99 look at the bad end: 90 % of the samples were at least as good. */
void stats_summarize(const double *x, size_t n, bool higher_is_better, uint64_t seed,
                     struct summary *ret_sum);
/* Resamples by pairs when both have the same number of samples: they share their rounds. */
int stats_ratio(const double *x, size_t nx, const double *y, size_t ny, uint64_t seed,
                struct ratio *ret_ratio);

/* machine.c */
void machine_read(struct machine *ret_machine, const char *commit);
void machine_read_ticks(uint64_t *ret_steal, uint64_t *ret_total);

/* report.c. The list holds one group. */
void report_value(char *buf, size_t size, const struct bench_case *c, double value);
int report_json(FILE *f, const struct case_list *group, const struct run_info *info);
int report_markdown(FILE *f, const struct case_list *group, const struct run_info *info);
void report_terminal(const struct case_list *group, const struct run_info *info);
void report_bar_line(FILE *f, const struct bar *bar);
const char *report_bar_word(enum bar_verdict verdict);

/* svg.c */
int svg_write(FILE *f, const struct case_list *group, const struct run_info *info);

/* output.c. -1: a message was printed. */
int output_group(const char *dir, const struct case_list *group, const struct run_info *info);
int output_index(const char *dir);

#endif
