/* D17: a guest that is paused by signals wakes itself: a timer of its own sends SIGCONT every
 * millisecond while it burns CPU time, or other processes of it do so all the time.
 *
 * usage: sigcont CPU_MS [timer|others] */
#include "guest.h"

static void wake(int sig)
{
    (void)sig;
}

static void wake_by_timer(void)
{
    struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGCONT};
    struct itimerspec every = {.it_interval = {.tv_nsec = 1000000},
                               .it_value = {.tv_nsec = 1000000}};
    timer_t timer;
    TRY("timer", timer_create(CLOCK_MONOTONIC, &ev, &timer));
    timer_settime(timer, 0, &every, NULL);
}

/* Each wakes all: whoever is stopped later than the others is woken by them. */
static void wake_by_others(int n)
{
    pid_t group = getpgrp();
    for (int i = 0; i < n; i++) {
        if (fork() == 0) {
            while (getppid() != 1)
                kill(-group, SIGCONT);
            _exit(0);
        }
    }
}

int main(int argc, char **argv)
{
    long cpu_ms = argn(argc, argv, 1, 1000);
    struct sigaction sa = {.sa_handler = wake, .sa_flags = SA_RESTART};
    struct timespec used;
    guest_deadline(60);
    sigaction(SIGCONT, &sa, NULL);
    if (!strcmp(arg(argc, argv, 2, "timer"), "others"))
        wake_by_others(3);
    else
        wake_by_timer();
    do
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    while (used.tv_sec * 1000 + used.tv_nsec / 1000000 < cpu_ms);
    say("burnt", "%ld", cpu_ms);
    return 0;
}
