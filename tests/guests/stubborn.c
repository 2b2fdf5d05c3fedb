/* D5, D7: does not want to end. Ignores and blocks every signal it can, or stops itself.
 *
 * usage: stubborn ignore|stop|stop-tree|stop-storm|ptrace-stop [SECONDS] */
#include "guest.h"

#include <sys/ptrace.h>

static void wait_until(double end)
{
    while (now_s() < end)
        sleep_ms(100);
}

int main(int argc, char **argv)
{
    const char *mode = arg(argc, argv, 1, "ignore");
    double end = now_s() + (double)argn(argc, argv, 2, 30);
    for (int s = 1; s < NSIG; s++)
        signal(s, SIG_IGN);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    say("mode", "%s", mode);
    if (!strcmp(mode, "stop")) {
        kill(getpid(), SIGSTOP);
    } else if (!strcmp(mode, "stop-tree")) {
        for (int i = 0; i < 4; i++) {
            if (fork() == 0) {
                setsid();
                kill(getpid(), SIGSTOP);
                _exit(0);
            }
        }
        kill(getpid(), SIGSTOP);
    } else if (!strcmp(mode, "stop-storm")) { /* stopped and woken all the time, by each other */
        for (int i = 0; i < 4; i++) {
            if (fork() == 0) {
                while (now_s() < end) {
                    kill(-1, SIGSTOP);
                    kill(-1, SIGCONT);
                }
                _exit(0);
            }
        }
    } else if (!strcmp(mode, "ptrace-stop")) {
        pid_t pid = fork();
        if (pid == 0) {
            signal(SIGTRAP, SIG_DFL);
            report("traceme", ptrace(PTRACE_TRACEME, 0, 0, 0));
            raise(SIGTRAP);
            _exit(0);
        }
    }
    wait_until(end);
    say("survived", "yes");
    return 0;
}
