/* Starts of a program beside one that does nothing but compute, which takes a core.
 *
 *   beside N CMD [ARG...]     N times from spawn to reaped, a line each */
#include "work.h"

#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>

#define SETTLE_US 30000 /* the other one has its core */

extern char **environ;

static pid_t computing(void)
{
    pid_t pid = fork();
    work_check(pid >= 0, "fork");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            __asm__ volatile("");
    }
    usleep(SETTLE_US);
    return pid;
}

static int run_once(char **command)
{
    uint64_t start = work_now_ns();
    pid_t pid;
    int status;
    work_check(posix_spawn(&pid, command[0], NULL, NULL, command, environ) == 0, command[0]);
    work_check(waitpid(pid, &status, 0) == pid && status == 0, command[0]);
    return work_report(start);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fputs("usage: beside N CMD [ARG...]\n", stderr);
        return 2;
    }
    pid_t other = computing();
    int failed = 0;
    for (int i = 0; i < atoi(argv[1]) && !failed; i++)
        failed = run_once(argv + 2);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    return failed;
}
