/* D6: stops and kills whatever it is not: the parent, init, everybody, a list of pids.
 *
 * usage: signals [PID...]   host pids the test wants to see unharmed */
#include "guest.h"

int main(int argc, char **argv)
{
    guest_deadline(20);
    signal(SIGTERM, SIG_IGN);
    say("ppid", "%d", (int)getppid());
    TRY("stop_parent", kill(getppid() ? getppid() : 999999, SIGSTOP));
    TRY("kill_parent", kill(getppid() ? getppid() : 999999, SIGKILL));
    TRY("stop_init", kill(1, SIGSTOP));
    TRY("kill_init", kill(1, SIGKILL));
    TRY("term_init", kill(1, SIGTERM));
    for (int i = 1; i < argc; i++) {
        pid_t pid = (pid_t)strtol(argv[i], NULL, 10);
        char key[64];
        snprintf(key, sizeof(key), "stop_%d", (int)pid);
        TRY(key, kill(pid, SIGSTOP));
        snprintf(key, sizeof(key), "kill_%d", (int)pid);
        TRY(key, kill(pid, SIGKILL));
        int fd = (int)syscall(SYS_pidfd_open, pid, 0);
        snprintf(key, sizeof(key), "pidfd_%d", (int)pid);
        report(key, fd);
        if (fd >= 0)
            TRY("pidfd_kill", syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0));
    }
    /* Last, since it may well end us too: every process we may signal but ourselves. */
    TRY("kill_all", kill(-1, SIGTERM));
    say("alive", "yes");
    return 0;
}
