/* D4: leaves a daemon behind that keeps the standard streams, then exits at once.
 *
 * usage: daemon [SECONDS] [COUNT]   the daemon's life when nobody kills it, and how many of them */
#include "guest.h"

int main(int argc, char **argv)
{
    long seconds = argn(argc, argv, 1, 30), count = argn(argc, argv, 2, 1);
    for (long i = 0; i < count; i++) {
        pid_t pid = fork();
        if (pid < 0) {
            say("fork", "%s", errname(errno));
            return 1;
        }
        if (pid > 0) {
            waitpid(pid, NULL, 0);
            continue;
        }
        setsid();
        if (fork() != 0)
            _exit(0);
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, NULL);
        sleep_ms(seconds * 1000);
        say("daemon", "survived");
        _exit(0);
    }
    say("main", "done");
    return 0;
}
