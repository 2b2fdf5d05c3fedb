/* D28: a storm of refused calls. Their cost must fall on the guest, not on whoever serves the
 * refusals.
 *
 * usage: refused_storm N [PROCESSES] */
#include "guest.h"

static void storm(long n)
{
    long other = 0;
    for (long i = 0; i < n; i++) {
        long r = syscall(i & 1 ? SYS_add_key : SYS_mount, 0, 0, 0, 0, 0);
        if (r != -1 || (errno != EPERM && errno != ENOSYS))
            other++;
    }
    say("not_refused", "%ld", other);
}

int main(int argc, char **argv)
{
    long n = argn(argc, argv, 1, 10000), procs = argn(argc, argv, 2, 1);
    guest_deadline(60);
    for (long i = 1; i < procs; i++) {
        if (fork() == 0) {
            storm(n);
            _exit(0);
        }
    }
    storm(n);
    while (wait(NULL) > 0)
        ;
    say("storm", "done");
    return 0;
}
