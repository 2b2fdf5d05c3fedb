/* How often to look, and the duty cycle that stands in for a cpu controller. Pure arithmetic. */
#include "supervise/sample.h"

#include "base/util.h"

#define MS UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)
#define SHORTEST (1 * MS)
#define LONGEST (25 * MS)
#define LONGEST_COSTLY (50 * MS) /* limits held by sampling are acted on within 100 ms */
#define COST_SHARE 10

#define DUTY_PERIOD (50 * MS)
#define DUTY_SHORTEST (2 * MS)

uint64_t sample_interval_ns(uint64_t used, uint64_t limit, uint64_t growth_per_s,
                            uint64_t fastest_per_s, uint64_t cost_ns)
{
    uint64_t interval = LONGEST;
    uint64_t rate = MAX(growth_per_s, fastest_per_s);
    if (limit && used >= limit)
        interval = SHORTEST;
    else if (limit && rate) {
        double away = (double)(limit - used) / (double)rate * (double)SECOND / 2;
        if (away < (double)LONGEST)
            interval = MAX((uint64_t)away, SHORTEST);
    }
    if (cost_ns > LONGEST_COSTLY / COST_SHARE)
        return LONGEST_COSTLY;
    return MAX(interval, cost_ns * COST_SHARE);
}

unsigned sample_duty_cores(unsigned percent)
{
    return percent ? (percent + 99) / 100 : 0;
}

/* Credit beyond one period's share is not kept: a guest that slept may not catch up later. */
static int64_t duty_most(const struct sample_duty *duty)
{
    return (int64_t)(DUTY_PERIOD / 100 * duty->percent);
}

void sample_duty_start(struct sample_duty *duty, unsigned percent, uint64_t now_ns)
{
    *duty = (struct sample_duty){.percent = MAX(percent, 1u), .last_ns = now_ns};
    duty->credit_ns = duty_most(duty);
}

uint64_t sample_duty_step(struct sample_duty *duty, uint64_t now_ns, uint64_t cpu_ns,
                          bool *ret_stop)
{
    uint64_t elapsed = now_ns > duty->last_ns ? now_ns - duty->last_ns : 0;
    uint64_t used = cpu_ns > duty->last_cpu_ns ? cpu_ns - duty->last_cpu_ns : 0;
    uint64_t share = MIN(elapsed, 3600 * SECOND) / 100 * duty->percent;
    duty->runs_on = duty->stopped && used > 0;
    if (duty->stopped) {
        duty->throttled_ns += elapsed;
        duty->stolen_ns += used;
    }
    duty->stolen_ns -= MIN(duty->stolen_ns, share);
    duty->last_ns = now_ns;
    duty->last_cpu_ns = MAX(duty->last_cpu_ns, cpu_ns);

    /* A supervisor that was away for long (a suspended machine) must not overflow the sum. */
    elapsed = MIN(elapsed, 3600 * SECOND);
    used = MIN(used, 3600 * SECOND * 1024);
    int64_t credit = duty->credit_ns + (int64_t)(elapsed / 100 * duty->percent) - (int64_t)used;
    duty->credit_ns = MIN(credit, duty_most(duty));
    duty->stopped = duty->credit_ns <= 0;
    *ret_stop = duty->stopped;

    uint64_t wait;
    if (duty->stopped) /* until half a period's share is earned */
        wait = (uint64_t)(duty_most(duty) / 2 - duty->credit_ns) / duty->percent * 100;
    else /* as long as the cores it has could take to use it up */
        wait = (uint64_t)duty->credit_ns / sample_duty_cores(duty->percent);
    if (duty->runs_on)
        wait = MIN(wait, DUTY_PERIOD / 5);
    return now_ns + MIN(MAX(wait, DUTY_SHORTEST), DUTY_PERIOD * 20);
}
