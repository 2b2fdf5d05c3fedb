/* Threads that are created and joined, and two that hand a token to and fro through futexes. */
#include "work.h"

#include <pthread.h>
#include <sched.h>

#define CREATED 8000
#define HANDED 52000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static int turn;

static void *do_nothing(void *arg)
{
    return arg;
}

static void *play(void *arg)
{
    int me = arg != NULL;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < HANDED; i++) {
        while (turn != me)
            pthread_cond_wait(&turned, &lock);
        turn = !me;
        pthread_cond_signal(&turned);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* On one core: where the scheduler puts the partner decides between 5 and 50 microseconds per
 * hand-over, and that lottery would hide what is measured. */
static void stay_on_one_core(void)
{
    cpu_set_t set;
    int cpu = sched_getcpu();

    work_check(cpu >= 0, "sched_getcpu");
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    work_check(sched_setaffinity(0, sizeof(set), &set) == 0, "sched_setaffinity");
}

int main(int argc, char **argv)
{
    pthread_t t[2];
    uint64_t start;

    (void)argv;
    if (argc > 1)
        work_filter();
    stay_on_one_core();
    start = work_now_ns();
    for (int i = 0; i < CREATED; i++) {
        work_check(pthread_create(&t[0], NULL, do_nothing, NULL) == 0, "pthread_create");
        pthread_join(t[0], NULL);
    }
    for (int i = 0; i < 2; i++)
        work_check(pthread_create(&t[i], NULL, play, i ? &turn : NULL) == 0, "pthread_create");
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    return work_report(start);
}
