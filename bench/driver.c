/*
 * The benchmark driver: reads cases, runs those of a group interleaved, writes what came out.
 *
 *   bench-driver [options] FILE.case...
 *
 * One round runs every case of the group once, in an order drawn anew each time, so that drift of
 * the machine (frequency, neighbours, page cache) falls on all cases alike. A case with fewer
 * samples than there are rounds is spread evenly over them. Exit status: 0, 1 when a bar is
 * exceeded (--check) or a case that has one failed, 2 usage or input, 130 interrupted.
 */
#include "bench.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SHORT_ROUNDS 60
#define MAX_GROUPS 16

struct options {
    unsigned rounds, warmup;
    bool check, list, require_all;
    uint64_t seed;
    const char *out_dir, *scratch, *commit;
    const char *groups[MAX_GROUPS];
    size_t n_groups;
};

static void usage(FILE *f)
{
    fputs("usage: bench-driver [options] FILE.case...\n"
          "  --out DIR       write GROUP.json, GROUP.md, GROUP.svg and README.md there\n"
          "  --group NAME    only this group (repeatable)\n"
          "  --rounds N      rounds of a group, default 300\n"
          "  --warmup N      rounds that are thrown away first, default 5\n"
          "  --short         60 rounds\n"
          "  --check         --short, only cases with bars; exit 1 when one is exceeded\n"
          "  --require-all   with --check: a bar that could not be measured fails too\n"
          "  --seed N        order of the runs and of the bootstrap\n"
          "  --commit TEXT   named in the reports\n"
          "  --scratch DIR   working directory of the runs, default: a new one, removed after\n"
          "  --list          print the cases and their state, run nothing\n",
          f);
}

static int parse_number(const char *s, uint64_t max, uint64_t *ret_value)
{
    char *end;

    errno = 0;
    *ret_value = strtoull(s, &end, 10);
    if (s[0] < '0' || s[0] > '9' || *end || errno || *ret_value > max) {
        fprintf(stderr, "bench-driver: '%s' is not a number up to %llu\n", s,
                (unsigned long long)max);
        return -1;
    }
    return 0;
}

enum {
    OPT_OUT = 1,
    OPT_GROUP,
    OPT_ROUNDS,
    OPT_WARMUP,
    OPT_SHORT,
    OPT_CHECK,
    OPT_ALL,
    OPT_SEED,
    OPT_COMMIT,
    OPT_SCRATCH,
    OPT_LIST,
    OPT_HELP
};

static const struct option long_options[] = {
    {"out", required_argument, NULL, OPT_OUT},
    {"group", required_argument, NULL, OPT_GROUP},
    {"rounds", required_argument, NULL, OPT_ROUNDS},
    {"warmup", required_argument, NULL, OPT_WARMUP},
    {"short", no_argument, NULL, OPT_SHORT},
    {"check", no_argument, NULL, OPT_CHECK},
    {"require-all", no_argument, NULL, OPT_ALL},
    {"seed", required_argument, NULL, OPT_SEED},
    {"commit", required_argument, NULL, OPT_COMMIT},
    {"scratch", required_argument, NULL, OPT_SCRATCH},
    {"list", no_argument, NULL, OPT_LIST},
    {"help", no_argument, NULL, OPT_HELP},
    {0},
};

static int parse_options(int argc, char **argv, struct options *o)
{
    uint64_t n = 0;
    int opt;

    while ((opt = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        switch (opt) {
        case OPT_OUT: o->out_dir = optarg; break;
        case OPT_COMMIT: o->commit = optarg; break;
        case OPT_SCRATCH: o->scratch = optarg; break;
        case OPT_SHORT: o->rounds = SHORT_ROUNDS; break;
        case OPT_LIST: o->list = true; break;
        case OPT_ALL: o->require_all = true; break;
        case OPT_CHECK:
            o->check = true;
            o->rounds = SHORT_ROUNDS;
            break;
        case OPT_GROUP:
            if (o->n_groups >= MAX_GROUPS)
                return -1;
            o->groups[o->n_groups++] = optarg;
            break;
        case OPT_ROUNDS:
            if (parse_number(optarg, 100000, &n) < 0 || n == 0)
                return -1;
            o->rounds = (unsigned)n;
            break;
        case OPT_WARMUP:
            if (parse_number(optarg, 1000, &n) < 0)
                return -1;
            o->warmup = (unsigned)n;
            break;
        case OPT_SEED:
            if (parse_number(optarg, UINT64_MAX, &o->seed) < 0)
                return -1;
            break;
        case OPT_HELP: usage(stdout); exit(0);
        default: usage(stderr); return -1;
        }
    }
    if (optind == argc) {
        usage(stderr);
        return -1;
    }
    return 0;
}

static bool is_wanted(const struct options *o, const char *group)
{
    for (size_t i = 0; i < o->n_groups; i++)
        if (strcmp(o->groups[i], group) == 0)
            return true;
    return o->n_groups == 0;
}

/* In a check only what a bar speaks of is run: the case itself and the one it is compared with. */
static bool is_checked(const struct case_list *all, const struct bench_case *c)
{
    if (c->n_bars > 0)
        return true;
    for (size_t i = 0; i < all->n; i++)
        for (size_t k = 0; k < all->items[i]->n_bars; k++)
            if (strcmp(all->items[i]->group, c->group) == 0 &&
                strcmp(all->items[i]->bars[k].of, c->name) == 0)
                return true;
    return false;
}

static void select_group(const struct case_list *all, const char *group, const struct options *o,
                         struct case_list *ret_list)
{
    ret_list->n = 0;
    for (size_t i = 0; i < all->n; i++) {
        struct bench_case *c = all->items[i];

        if (strcmp(c->group, group) == 0 && (!o->check || is_checked(all, c)))
            ret_list->items[ret_list->n++] = c;
    }
}

static void run_rounds(const struct case_list *g, const struct options *o, struct run_info *info)
{
    struct case_list order = *g;
    uint64_t rng = info->seed;
    bool show = isatty(STDERR_FILENO);

    for (unsigned r = 0; r < info->warmup + info->rounds && !proc_is_stopped(); r++) {
        bool discard = r < info->warmup;

        order_draw(&order, &rng);
        if (show)
            fprintf(stderr, "\r%s: round %u of %u ", g->items[0]->group, r + 1,
                    info->warmup + info->rounds);
        for (size_t i = 0; i < order.n && !proc_is_stopped(); i++) {
            struct bench_case *c = order.items[i];
            unsigned samples = order_samples(c, o->rounds);

            if (c->state != CASE_READY)
                continue;
            /* One warm run is enough for a case that is slow by itself. */
            if (discard ? c->exact_samples > 0 || (samples < info->rounds && r > 0)
                        : !order_is_due(r - info->warmup, info->rounds, samples))
                continue;
            sample_take(c, discard);
        }
    }
    if (show)
        fputs("\r\033[K", stderr);
}

static struct bench_case *base_of(const struct case_list *g, const struct bench_case *c)
{
    if (c->against[0])
        return cases_find(g, c->group, c->against);
    for (size_t i = 0; i < g->n; i++)
        if (g->items[i]->is_base)
            return g->items[i];
    return NULL;
}

static enum bar_verdict judge(const struct bar *b)
{
    const struct ratio *m = &b->measured;

    if (b->at_least) {
        if (m->value >= b->limit)
            return BAR_OK;
        return m->ci_high < b->limit ? BAR_EXCEEDED : BAR_NOISE;
    }
    if (m->value <= b->limit)
        return BAR_OK;
    return m->ci_low > b->limit ? BAR_EXCEEDED : BAR_NOISE;
}

static void measure_bar(const struct case_list *g, const struct bench_case *c, struct bar *b,
                        uint64_t seed)
{
    const struct bench_case *other = b->of[0] ? cases_find(g, c->group, b->of) : NULL;

    if (c->state == CASE_SKIPPED || (other && other->state == CASE_SKIPPED)) {
        b->verdict = BAR_UNKNOWN;
    } else if (c->state == CASE_FAILED || (b->of[0] && (!other || other->state != CASE_READY))) {
        b->verdict = BAR_BROKEN;
    } else if (!other) {
        b->measured = (struct ratio){c->sum.median, c->sum.ci_low, c->sum.ci_high};
        b->verdict = judge(b);
    } else if (stats_ratio(c->samples, c->n_samples, other->samples, other->n_samples, seed,
                           &b->measured) < 0) {
        b->verdict = BAR_BROKEN;
    } else {
        b->verdict = judge(b);
    }
}

static void compute(const struct case_list *g, uint64_t seed)
{
    for (size_t i = 0; i < g->n; i++) {
        struct bench_case *c = g->items[i];

        if (c->state == CASE_READY)
            stats_summarize(c->samples, c->n_samples, c->higher_is_better, seed + i, &c->sum);
    }
    for (size_t i = 0; i < g->n; i++) {
        struct bench_case *c = g->items[i];
        struct bench_case *base = base_of(g, c);

        if (base && base != c)
            base->is_reference = true;
        if (base && base != c && c->state == CASE_READY && base->state == CASE_READY &&
            strcmp(base->unit, c->unit) == 0 &&
            stats_ratio(c->samples, c->n_samples, base->samples, base->n_samples, seed + i,
                        &c->ratio) == 0) {
            c->has_ratio = true;
            snprintf(c->ratio_of, sizeof(c->ratio_of), "%s", base->name);
        }
        for (size_t k = 0; k < c->n_bars; k++)
            measure_bar(g, c, &c->bars[k], seed + i);
    }
}

/* True when a bar stands against us: exceeded in a check, or its case failed. */
static bool report_bars(const struct case_list *g, const struct options *o)
{
    bool bad = false;

    for (size_t i = 0; i < g->n; i++) {
        for (size_t k = 0; k < g->items[i]->n_bars; k++) {
            const struct bar *b = &g->items[i]->bars[k];

            report_bar_line(stdout, b);
            if (b->verdict == BAR_BROKEN || (o->check && b->verdict == BAR_EXCEEDED) ||
                (o->check && o->require_all && b->verdict == BAR_UNKNOWN))
                bad = true;
        }
    }
    return bad;
}

static int run_group(const struct case_list *g, const struct options *o)
{
    struct run_info info = {.warmup = o->warmup, .seed = o->seed};
    uint64_t steal0, total0, steal1, total1, start = proc_now_ns();
    int rc;

    machine_read(&info.machine, o->commit);
    if (strtod(info.machine.load, NULL) > 0.3 * info.machine.cores)
        fprintf(stderr, "bench-driver: the machine is busy (load %.4s): expect noise\n",
                info.machine.load);
    info.rounds = order_rounds(g, o->rounds);
    for (size_t i = 0; i < g->n && !proc_is_stopped(); i++) {
        sample_read_version(g->items[i]);
        if (g->items[i]->state == CASE_READY)
            sample_preflight(g->items[i]);
    }
    machine_read_ticks(&steal0, &total0);
    run_rounds(g, o, &info);
    machine_read_ticks(&steal1, &total1);
    if (proc_is_stopped())
        return 130;
    info.elapsed_s = (double)(proc_now_ns() - start) / 1e9;
    if (total1 > total0)
        info.steal_percent = 100.0 * (double)(steal1 - steal0) / (double)(total1 - total0);
    compute(g, info.seed);
    report_terminal(g, &info);
    rc = report_bars(g, o) ? 1 : 0;
    if (o->out_dir && output_group(o->out_dir, g, &info) < 0)
        rc = 2;
    fflush(stdout);
    return rc;
}

static void list_cases(const struct case_list *all)
{
    for (size_t i = 0; i < all->n; i++) {
        const struct bench_case *c = all->items[i];

        printf("%-12s %-18s %s%s%s%s\n", c->group, c->name,
               c->state == CASE_READY ? "ready" : c->reason, c->package[0] ? " (package " : "",
               c->package, c->package[0] ? ")" : "");
    }
}

static void on_signal(int sig)
{
    (void)sig;
    proc_request_stop();
}

static int run_all(const struct case_list *all, const struct options *o)
{
    int worst = 0;

    for (size_t i = 0; i < all->n; i++) {
        struct case_list group;
        bool is_first = true;
        int rc;

        for (size_t k = 0; k < i; k++)
            is_first = is_first && strcmp(all->items[k]->group, all->items[i]->group) != 0;
        if (!is_first || !is_wanted(o, all->items[i]->group))
            continue;
        select_group(all, all->items[i]->group, o, &group);
        if (group.n == 0)
            continue;
        rc = run_group(&group, o);
        worst = rc > worst ? rc : worst;
        if (rc == 130)
            return rc;
    }
    if (o->out_dir && output_index(o->out_dir) < 0)
        worst = 2;
    return worst;
}

static int check_names(const struct case_list *all, const struct options *o)
{
    for (size_t i = 0; i < o->n_groups; i++) {
        bool found = false;

        for (size_t k = 0; k < all->n; k++)
            found = found || strcmp(all->items[k]->group, o->groups[i]) == 0;
        if (!found) {
            fprintf(stderr, "bench-driver: no group '%s'\n", o->groups[i]);
            return -1;
        }
    }
    for (size_t i = 0; i < all->n; i++) {
        const struct bench_case *c = all->items[i];

        for (size_t k = 0; k < c->n_bars; k++) {
            if (c->bars[k].of[0] && !cases_find(all, c->group, c->bars[k].of)) {
                fprintf(stderr, "bench-driver: bar '%s' of '%s': no case '%s' in group '%s'\n",
                        c->bars[k].name, c->name, c->bars[k].of, c->group);
                return -1;
            }
        }
        if (c->against[0] && !cases_find(all, c->group, c->against)) {
            fprintf(stderr, "bench-driver: case '%s': no case '%s' in group '%s'\n", c->name,
                    c->against, c->group);
            return -1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct options o = {.rounds = ORDER_FULL_ROUNDS, .warmup = 5, .seed = (uint64_t)time(NULL)};
    struct sigaction sa = {.sa_handler = on_signal};
    struct case_list all = {.n = 0};
    char own_scratch[] = "/tmp/cordon-bench.XXXXXX", err[512];
    char *out_dir = NULL, *scratch = NULL;
    int rc = 2;

    if (parse_options(argc, argv, &o) < 0)
        return 2;
    for (int i = optind; i < argc; i++) {
        if (cases_load(argv[i], &all, err, sizeof(err)) < 0) {
            fprintf(stderr, "bench-driver: %s\n", err);
            goto out;
        }
    }
    if (check_names(&all, &o) < 0)
        goto out;
    if (o.list) {
        list_cases(&all);
        rc = 0;
        goto out;
    }
    /* The runs have another working directory: relative paths are settled before. */
    if (o.out_dir) {
        if ((mkdir(o.out_dir, 0777) < 0 && errno != EEXIST) ||
            !(out_dir = realpath(o.out_dir, NULL))) {
            fprintf(stderr, "bench-driver: %s: %s\n", o.out_dir, strerror(errno));
            goto out;
        }
        o.out_dir = out_dir;
    }
    scratch = realpath(o.scratch ? o.scratch : mkdtemp(own_scratch), NULL);
    if (!scratch || proc_init(scratch, err, sizeof(err)) < 0) {
        fprintf(stderr, "bench-driver: %s\n", scratch ? err : strerror(errno));
        goto out;
    }
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    rc = run_all(&all, &o);
    if (!o.scratch && chdir("/") == 0 && rmdir(scratch) < 0)
        fprintf(stderr, "bench-driver: %s is not empty and stays\n", scratch);
out:
    cases_free(&all);
    free(out_dir);
    free(scratch);
    return rc;
}
