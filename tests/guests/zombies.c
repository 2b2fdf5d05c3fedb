/* D10: children that are never waited for, and a vfork child that never calls exec.
 *
 * usage: zombies zombies N | zombies vfork [SECONDS] | zombies orphans N */
#include "guest.h"

int main(int argc, char **argv)
{
    const char *mode = arg(argc, argv, 1, "zombies");
    long n = argn(argc, argv, 2, 30), made = 0;
    guest_deadline(60);
    if (!strcmp(mode, "vfork")) {
        double end = now_s() + (double)n;
        pid_t pid = vfork();
        if (pid == 0) {
            while (now_s() < end)
                sleep_ms(50);
            _exit(0);
        }
        say("vfork", "returned");
        return 0;
    }
    for (long i = 0; i < n; i++) {
        pid_t pid = fork();
        if (pid < 0) {
            say("fork", "%s", errname(errno));
            break;
        }
        if (pid == 0) {
            if (!strcmp(mode, "orphans") && fork() == 0)
                sleep_ms(1);
            _exit(0);
        }
        made++;
        if (!strcmp(mode, "orphans"))
            waitpid(pid, NULL, 0);
    }
    say("made", "%ld", made);
    return 0;
}
