/* Arithmetic and hard-to-guess branches in a small working set: no kernel involved at all. */
#include "work.h"

#define ROUNDS 60000000u

int main(void)
{
    static uint32_t table[4096];
    uint64_t start, x = 88172645463325252u, sum = 0;

    for (size_t i = 0; i < 4096; i++)
        table[i] = (uint32_t)(i * 2654435761u);
    start = work_now_ns();
    for (uint32_t i = 0; i < ROUNDS; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        if (x & 8)
            sum += table[x & 4095];
        else
            table[(x >> 12) & 4095] ^= (uint32_t)sum;
    }
    /* The result is used, so that the loop cannot be left out. */
    work_check(sum != 1, "cpu");
    return work_report(start);
}
