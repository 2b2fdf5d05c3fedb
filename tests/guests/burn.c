/* D9 and measurement: burns an exact amount of CPU time spread over processes or threads.
 *
 * usage: burn process|thread|exited MS N    each of N workers burns MS/N milliseconds of user CPU
 *   exited: workers are grandchildren whose parents are gone, so that rusage of ours never sees
 * them */
#include "guest.h"

#include <pthread.h>

static long each_ms;

static double cpu_s(clockid_t clock)
{
    struct timespec ts;
    clock_gettime(clock, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void *burn(void *unused)
{
    (void)unused;
    volatile unsigned long sink = 0;
    double end = cpu_s(CLOCK_THREAD_CPUTIME_ID) + (double)each_ms / 1000.0;
    while (cpu_s(CLOCK_THREAD_CPUTIME_ID) < end)
        for (int i = 0; i < 20000; i++)
            sink += (unsigned long)i;
    return NULL;
}

int main(int argc, char **argv)
{
    const char *mode = arg(argc, argv, 1, "process");
    long total = argn(argc, argv, 2, 500), n = argn(argc, argv, 3, 4);
    guest_deadline(60);
    each_ms = total / n;
    if (!strcmp(mode, "thread")) {
        pthread_t t[64];
        for (long i = 0; i < n && i < 64; i++)
            pthread_create(&t[i], NULL, burn, NULL);
        for (long i = 0; i < n && i < 64; i++)
            pthread_join(t[i], NULL);
    } else {
        int gate[2];
        char c;
        if (pipe(gate) < 0)
            return 1;
        for (long i = 0; i < n; i++) {
            pid_t pid = fork();
            if (pid == 0) {
                if (!strcmp(mode, "exited") && fork() != 0)
                    _exit(0);
                burn(NULL);
                _exit(0);
            }
        }
        close(gate[1]);
        while (wait(NULL) > 0)
            ;
        /* Grandchildren hold the pipe's other end until they are done. */
        while (read(gate[0], &c, 1) > 0)
            ;
    }
    say("burnt_ms", "%ld", each_ms * n);
    return 0;
}
