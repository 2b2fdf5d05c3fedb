/* D17: a guest that is paused by signals wakes itself: a timer of its own sends SIGCONT every
 * millisecond while it burns CPU time.
 *
 * usage: sigcont CPU_MS */
#include "guest.h"

static void wake(int sig)
{
    (void)sig;
}

int main(int argc, char **argv)
{
    long cpu_ms = argn(argc, argv, 1, 1000);
    struct sigaction sa = {.sa_handler = wake, .sa_flags = SA_RESTART};
    struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGCONT};
    struct itimerspec every = {.it_interval = {.tv_nsec = 1000000},
                               .it_value = {.tv_nsec = 1000000}};
    struct timespec used;
    timer_t timer;
    guest_deadline(60);
    sigaction(SIGCONT, &sa, NULL);
    TRY("timer", timer_create(CLOCK_MONOTONIC, &ev, &timer));
    timer_settime(timer, 0, &every, NULL);
    do
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    while (used.tv_sec * 1000 + used.tv_nsec / 1000000 < cpu_ms);
    say("burnt", "%ld", cpu_ms);
    return 0;
}
