/* Ends every process of a container but pid 1. Runs in a container's pid 1.
 *
 * One kill is enough for Linux. gVisor's misses what a process forks while the signals go out, and
 * nobody would ever end that: hence once more for as long as somebody is left. */
#include "init/sweep.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>

#define SWEEP_PAUSE_MS 2

unsigned sweep_all(pid_t main_pid, int *ret_wstatus)
{
    unsigned n = 0;
    for (;;) {
        int wstatus;
        pid_t pid;
        kill(-1, SIGKILL);
        while ((pid = waitpid(-1, &wstatus, WNOHANG | __WALL)) > 0) {
            n++;
            if (pid == main_pid)
                *ret_wstatus = wstatus;
        }
        if (pid < 0 && errno == ECHILD)
            return n;
        poll(NULL, 0, SWEEP_PAUSE_MS);
    }
}
