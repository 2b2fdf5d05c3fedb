/* D2, D3: daemons that fork again and again, each in a session of its own, so that no list of them
 * is ever complete. The parent of each ends at once: every process is an orphan.
 *
 * usage: storm [SECONDS] [CHAINS] [main-exits] */
#include "guest.h"

static void chain(double end)
{
    while (now_s() < end) {
        pid_t pid = fork();
        if (pid > 0)
            _exit(0);
        if (pid < 0)
            sleep_ms(1);
        else
            setsid();
    }
    _exit(0);
}

int main(int argc, char **argv)
{
    double end = now_s() + (double)argn(argc, argv, 1, 20);
    long chains = argn(argc, argv, 2, 8);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    for (long i = 0; i < chains; i++)
        if (fork() == 0)
            chain(end);
    say("chains", "%ld", chains);
    if (argc > 3) {
        sleep_ms(50);
        return 0;
    }
    while (now_s() < end) {
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        sleep_ms(10);
    }
    return 0;
}
