/* D1-D3: a fork bomb. Counts how many forks worked before the first refusal, then bombs on.
 *
 * usage: fork_bomb plain|setsid|race [SECONDS] [MAX]
 *   plain   every child forks again and stays
 *   setsid  every child leaves the process group first, so that killpg misses it
 *   race    children fork and exit at once, so that the set of pids never stands still
 * Every process ends by itself after SECONDS, and no single process makes more than MAX children.
 */
#include "guest.h"

#include <sys/prctl.h>

static double end;

static void bomb(const char *mode, long max)
{
    for (long i = 0; i < max && now_s() < end; i++) {
        pid_t pid = fork();
        if (pid < 0) {
            sleep_ms(1);
            continue;
        }
        if (pid == 0) {
            if (!strcmp(mode, "setsid"))
                setsid();
            if (!strcmp(mode, "race")) {
                if (fork() != 0)
                    _exit(0);
                continue;
            }
        }
    }
    while (now_s() < end)
        sleep_ms(20);
    _exit(0);
}

int main(int argc, char **argv)
{
    const char *mode = arg(argc, argv, 1, "plain");
    end = now_s() + (double)argn(argc, argv, 2, 5);
    long max = argn(argc, argv, 3, 100000);
    long forked = 0;
    signal(SIGCHLD, SIG_IGN);
    for (; forked < max; forked++) {
        pid_t pid = fork();
        if (pid < 0) {
            say("fork", "%s", errname(errno));
            break;
        }
        if (pid == 0) {
            while (now_s() < end)
                sleep_ms(20);
            _exit(0);
        }
    }
    say("forked", "%ld", forked);
    bomb(mode, max);
}
