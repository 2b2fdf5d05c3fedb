/*
 * Order statistics and bootstrap confidence. Pure: no input but its arguments, so that a
 * result can be computed again from the samples and the seed in the JSON file.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#define BOOTSTRAP_ROUNDS 2000

/* splitmix64: short, passes the usual tests, any seed is a good seed. */
uint64_t stats_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Linear interpolation between order statistics (type 7, what R and numpy do by default). */
static double quantile(const double *sorted, size_t n, double q)
{
    double at = q * (double)(n - 1);
    size_t i = (size_t)at;

    if (i + 1 >= n)
        return sorted[n - 1];
    return sorted[i] + (at - (double)i) * (sorted[i + 1] - sorted[i]);
}

/* A sample prepared for resampling: a resample is then a row of counts, its median a walk. */
struct ranked {
    double *sorted;
    size_t *rank; /* of the i-th sample in the order of measurement */
    uint32_t *count;
    size_t n;
};

static void ranked_done(struct ranked *r)
{
    free(r->sorted);
    free(r->rank);
    free(r->count);
}

struct keyed {
    double value;
    size_t index;
};

static int compare_keyed(const void *a, const void *b)
{
    const struct keyed *x = a, *y = b;

    if (x->value != y->value)
        return x->value < y->value ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static int ranked_init(struct ranked *r, const double *x, size_t n)
{
    struct keyed *keys = calloc(n, sizeof(*keys));

    *r = (struct ranked){.sorted = calloc(n, sizeof(double)),
                         .rank = calloc(n, sizeof(size_t)),
                         .count = calloc(n, sizeof(uint32_t)),
                         .n = n};
    if (!keys || !r->sorted || !r->rank || !r->count) {
        free(keys);
        ranked_done(r);
        return -1;
    }
    for (size_t i = 0; i < n; i++)
        keys[i] = (struct keyed){x[i], i};
    qsort(keys, n, sizeof(*keys), compare_keyed);
    for (size_t i = 0; i < n; i++) {
        r->sorted[i] = keys[i].value;
        r->rank[keys[i].index] = i;
    }
    free(keys);
    return 0;
}

static double ranked_median(const struct ranked *r)
{
    size_t low = (r->n - 1) / 2, high = r->n / 2, seen = 0;
    double a = 0, b = 0;
    bool has_a = false;

    for (size_t i = 0; i < r->n; i++) {
        seen += r->count[i];
        if (!has_a && seen > low) {
            a = r->sorted[i];
            has_a = true;
        }
        if (seen > high) {
            b = r->sorted[i];
            break;
        }
    }
    return (a + b) / 2;
}

static void ranked_resample(struct ranked *r, uint64_t *rng)
{
    memset(r->count, 0, r->n * sizeof(*r->count));
    for (size_t i = 0; i < r->n; i++)
        r->count[stats_random(rng) % r->n]++;
}

static void resample_pairs(struct ranked *a, struct ranked *b, uint64_t *rng)
{
    memset(a->count, 0, a->n * sizeof(*a->count));
    memset(b->count, 0, b->n * sizeof(*b->count));
    for (size_t i = 0; i < a->n; i++) {
        size_t pick = stats_random(rng) % a->n;

        a->count[a->rank[pick]]++;
        b->count[b->rank[pick]]++;
    }
}

void stats_summarize(const double *x, size_t n, bool higher_is_better, uint64_t seed,
                     struct summary *ret_sum)
{
    struct ranked r;
    double medians[BOOTSTRAP_ROUNDS];
    double total = 0;

    *ret_sum = (struct summary){.n = n};
    if (n == 0 || ranked_init(&r, x, n) < 0)
        return;
    for (size_t i = 0; i < n; i++)
        total += x[i];
    ret_sum->min = r.sorted[0];
    ret_sum->median = quantile(r.sorted, n, 0.50);
    ret_sum->p90 = quantile(r.sorted, n, higher_is_better ? 0.10 : 0.90);
    ret_sum->p99 = quantile(r.sorted, n, higher_is_better ? 0.01 : 0.99);
    ret_sum->mean = total / (double)n;
    for (size_t b = 0; b < BOOTSTRAP_ROUNDS; b++) {
        ranked_resample(&r, &seed);
        medians[b] = ranked_median(&r);
    }
    qsort(medians, BOOTSTRAP_ROUNDS, sizeof(double), compare_doubles);
    ret_sum->ci_low = quantile(medians, BOOTSTRAP_ROUNDS, 0.025);
    ret_sum->ci_high = quantile(medians, BOOTSTRAP_ROUNDS, 0.975);
    ranked_done(&r);
}

int stats_ratio(const double *x, size_t nx, const double *y, size_t ny, uint64_t seed,
                struct ratio *ret_ratio)
{
    struct ranked a, b;
    double ratios[BOOTSTRAP_ROUNDS];
    double mx, my;

    if (nx == 0 || ny == 0 || ranked_init(&a, x, nx) < 0)
        return -1;
    if (ranked_init(&b, y, ny) < 0) {
        ranked_done(&a);
        return -1;
    }
    mx = quantile(a.sorted, nx, 0.5);
    my = quantile(b.sorted, ny, 0.5);
    for (size_t i = 0; i < BOOTSTRAP_ROUNDS; i++) {
        double d;

        if (nx == ny) {
            resample_pairs(&a, &b, &seed);
        } else {
            ranked_resample(&a, &seed);
            ranked_resample(&b, &seed);
        }
        d = ranked_median(&b);
        ratios[i] = d > 0 ? ranked_median(&a) / d : 0;
    }
    ranked_done(&a);
    ranked_done(&b);
    if (my <= 0)
        return -1;
    qsort(ratios, BOOTSTRAP_ROUNDS, sizeof(double), compare_doubles);
    *ret_ratio = (struct ratio){.value = mx / my,
                                .ci_low = quantile(ratios, BOOTSTRAP_ROUNDS, 0.025),
                                .ci_high = quantile(ratios, BOOTSTRAP_ROUNDS, 0.975)};
    return 0;
}
