/* D8: waits past the deadline without using CPU, each time by another call.
 *
 * usage: sleeper nanosleep|pause|select|poll|futex|read|sigwait|spin [SECONDS] */
#include "guest.h"

#include <linux/futex.h>
#include <poll.h>
#include <sys/select.h>

int main(int argc, char **argv)
{
    const char *mode = arg(argc, argv, 1, "nanosleep");
    long seconds = argn(argc, argv, 2, 30);
    struct timespec ts = {seconds, 0};
    guest_deadline((unsigned)seconds + 5);
    say("waiting", "%s", mode);
    if (!strcmp(mode, "pause")) {
        pause();
    } else if (!strcmp(mode, "select")) {
        struct timeval tv = {seconds, 0};
        select(0, NULL, NULL, NULL, &tv);
    } else if (!strcmp(mode, "poll")) {
        poll(NULL, 0, (int)seconds * 1000);
    } else if (!strcmp(mode, "futex")) {
        int word = 0;
        syscall(SYS_futex, &word, FUTEX_WAIT, 0, &ts, NULL, 0);
    } else if (!strcmp(mode, "read")) {
        int p[2];
        char c;
        if (pipe(p) < 0 || read(p[0], &c, 1) < 0)
            return 1;
    } else if (!strcmp(mode, "sigwait")) {
        sigset_t set;
        int sig;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        sigprocmask(SIG_BLOCK, &set, NULL);
        sigwait(&set, &sig);
    } else if (!strcmp(mode, "spin")) {
        for (double end = now_s() + (double)seconds; now_s() < end;)
            ;
    } else {
        nanosleep(&ts, NULL);
    }
    say("survived", "yes");
    return 0;
}
