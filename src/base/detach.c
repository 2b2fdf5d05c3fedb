/* Processes beside the loop. Runs in the supervisor, which has one thread. */
#include "base/detach.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define DETACH_FDS 4

int detach_keep(const int *fds, size_t n)
{
    int high[DETACH_FDS];
    if (n > DETACH_FDS) {
        errno = EINVAL;
        return -1;
    }
    /* out of the way of the numbers they are to have */
    for (size_t i = 0; i < n; i++)
        if ((high[i] = fcntl(fds[i], F_DUPFD, 16)) < 0)
            return -1;
    for (size_t i = 0; i < n; i++)
        if (dup2(high[i], (int)i) < 0)
            return -1;
    return (int)syscall(SYS_close_range, (unsigned)n, ~0u, 0);
}

int detach_fork(const int *fds, size_t n)
{
    /* An orphan goes to the nearest subreaper, which may be us; it is to be nobody's here. */
    int reaper = 0, status = 0;
    prctl(PR_GET_CHILD_SUBREAPER, &reaper, 0, 0, 0);
    if (reaper)
        prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
    pid_t pid = fork();
    if (pid == 0) {
        pid_t own = fork();
        if (own != 0)
            _exit(own < 0 ? 1 : 0);
        if (detach_keep(fds, n) < 0)
            _exit(1);
        prctl(PR_SET_NAME, "cordon-remove");
        setpriority(PRIO_PROCESS, 0, 19);
        return 1;
    }
    int failed = errno;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (reaper)
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    if (pid < 0) {
        errno = failed;
        return -1;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    errno = EAGAIN;
    return -1;
}
