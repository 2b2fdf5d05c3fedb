/* K9: the 32-bit entry point from a 64-bit program. The numbers mean other calls there: 20 is
 * getpid, 102 socketcall, 21 mount, 26 ptrace, 359 socket. A filter that reads only the number lets
 * them by. */
#include "guest.h"

static long int80(long nr, long a, long b, long c)
{
    long ret;
    __asm__ volatile("int $0x80"
                     : "=a"(ret)
                     : "a"(nr), "b"(a), "c"(b), "d"(c)
                     : "memory", "r8", "r9", "r10", "r11");
    ret = (int)ret;
    if (ret < 0 && ret > -4096) {
        errno = (int)-ret;
        return -1;
    }
    return ret;
}

static void attempt(const char *name, long nr, long a, long b, long c)
{
    pid_t pid = fork();
    if (pid == 0) {
        TRY(name, int80(nr, a, b, c));
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
    attempt("getpid", 20, 0, 0, 0);
    attempt("socket", 359, 40, 1, 0);
    attempt("socket_unix", 359, 1, 1, 0);
    attempt("socketcall", 102, 1, 0, 0);
    attempt("mount", 21, 0, 0, 0);
    attempt("unshare", 310, 0x10000000, 0, 0);
    attempt("ptrace", 26, 0, 0, 0);
    attempt("keyctl", 288, 0, -3, 0);
    attempt("time", 13, 0, 0, 0);
    return 0;
}
