/* fork, exit and wait, one after the other. */
#include "work.h"

#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 4000

int main(void)
{
    uint64_t start = work_now_ns();

    for (int i = 0; i < ROUNDS; i++) {
        int status;
        pid_t pid = fork();

        if (pid == 0)
            _exit(0);
        work_check(pid > 0, "fork");
        work_check(waitpid(pid, &status, 0) == pid && status == 0, "wait");
    }
    return work_report(start);
}
