/* K9: the x32 entry points: the 64-bit instruction with bit 30 set in the number. */
#include "guest.h"

#include <sched.h>

#define X32 0x40000000L

static void attempt(const char *name, long nr, long a, long b, long c)
{
    pid_t pid = fork();
    if (pid == 0) {
        TRY(name, syscall(nr, a, b, c, 0, 0, 0));
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    if (WIFSIGNALED(status))
        say(name, "SIGNAL %d", WTERMSIG(status));
}

int main(void)
{
    guest_deadline(10);
    attempt("getpid", X32 | SYS_getpid, 0, 0, 0);
    attempt("socket", X32 | SYS_socket, 40, 1, 0);
    attempt("mount", X32 | SYS_mount, 0, 0, 0);
    attempt("unshare", X32 | SYS_unshare, CLONE_NEWUSER, 0, 0);
    attempt("x32_ioctl", X32 | 514, 0, 0x5412, 0);
    attempt("x32_ptrace", X32 | 521, 0, 0, 0);
    attempt("x32_execveat", X32 | 545, 0, 0, 0);
    attempt("negative", -1, 0, 0, 0);
    attempt("high_bits", 0x100000000L | SYS_mount, 0, 0, 0);
    return 0;
}
