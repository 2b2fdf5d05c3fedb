/*
 * Which case runs when. Pure: the draw depends on the seed alone.
 */
#include "bench.h"

#include <string.h>

#define FEWEST_SAMPLES 12

/* A slow case keeps its share of a short run, but never so few that a median means nothing. */
unsigned order_samples(const struct bench_case *c, unsigned rounds)
{
    unsigned n;

    if (c->exact_samples > 0)
        return c->exact_samples < rounds ? c->exact_samples : rounds;
    if (c->max_samples == 0)
        return rounds;
    n = rounds >= ORDER_FULL_ROUNDS ? c->max_samples : c->max_samples * rounds / ORDER_FULL_ROUNDS;
    if (n < FEWEST_SAMPLES)
        n = FEWEST_SAMPLES;
    return n < rounds ? n : rounds;
}

unsigned order_rounds(const struct case_list *g, unsigned rounds)
{
    unsigned most = 0;

    for (size_t i = 0; i < g->n; i++) {
        unsigned n = order_samples(g->items[i], rounds);

        most = n > most ? n : most;
    }
    return most ? most : 1;
}

bool order_is_due(unsigned round, unsigned rounds, unsigned samples)
{
    return (uint64_t)(round + 1) * samples / rounds > (uint64_t)round * samples / rounds;
}

static void shuffle(struct bench_case **items, size_t n, uint64_t *rng)
{
    for (size_t i = n; i > 1; i--) {
        size_t k = stats_random(rng) % i;
        struct bench_case *t = items[i - 1];

        items[i - 1] = items[k];
        items[k] = t;
    }
}

static void move_item(struct case_list *list, size_t from, size_t to)
{
    struct bench_case *c = list->items[from];

    if (from < to)
        memmove(&list->items[from], &list->items[from + 1], (to - from) * sizeof(c));
    else
        memmove(&list->items[to + 1], &list->items[to], (from - to) * sizeof(c));
    list->items[to] = c;
}

static size_t index_of(const struct case_list *list, const char *name)
{
    size_t i = 0;

    while (i < list->n && strcmp(list->items[i]->name, name) != 0)
        i++;
    return i;
}

/* Two cases that are compared run next to each other, in either order: a busy moment of the
 * machine then falls on both, and the resampling by pairs sees it. */
static void join_pairs(struct case_list *order, uint64_t *rng)
{
    const struct case_list drawn = *order;

    for (size_t i = 0; i < drawn.n; i++) {
        const struct bench_case *c = drawn.items[i];
        const char *other = c->against[0] ? c->against : c->n_bars ? c->bars[0].of : "";
        size_t from = index_of(order, c->name), to = index_of(order, other);
        bool after = stats_random(rng) & 1;

        if (to == order->n || from == to)
            continue;
        if (from < to)
            to--;
        move_item(order, from, to + after);
    }
}

void order_draw(struct case_list *order, uint64_t *rng)
{
    shuffle(order->items, order->n, rng);
    join_pairs(order, rng);
}
