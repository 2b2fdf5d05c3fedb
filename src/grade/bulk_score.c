/* pass@k. Pure. */
#include "grade/bulk.h"

/* 1 - C(n-c, k) / C(n, k), as a product that neither overflows nor cancels. */
static double score_one(size_t n, size_t c, uint64_t k)
{
    if (n - c < k)
        return 1.0;
    double miss = 1.0;
    for (size_t i = n - c + 1; i <= n; i++)
        miss *= 1.0 - (double)k / (double)i;
    return 1.0 - miss;
}

double bulk_pass_at(const struct bulk *b, uint64_t k)
{
    double sum = 0;
    size_t n = 0;
    for (size_t i = 0; i < b->n_problems; i++)
        if (b->problems[i].n >= k && k > 0) {
            sum += score_one(b->problems[i].n, b->problems[i].passed, k);
            n++;
        }
    return n ? sum / (double)n : -1;
}
