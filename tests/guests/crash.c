/* D22, D27: dies in each of the ways a program dies, after trying to get its core dumped.
 *
 * usage: crash segv|abort|ill|fpe|bus|xfsz|xcpu|trap|term|kill|exit N */
#include "guest.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static void use_cpu(void)
{
    struct rlimit r = {1, 2};
    setrlimit(RLIMIT_CPU, &r);
    for (volatile unsigned long i = 0;; i++)
        ;
}

int main(int argc, char **argv)
{
    const char *how = arg(argc, argv, 1, "segv");
    struct rlimit r;
    guest_deadline(20);
    getrlimit(RLIMIT_CORE, &r);
    say("core_soft", "%lld", (long long)r.rlim_cur);
    say("core_hard", "%lld", (long long)r.rlim_max);
    r.rlim_cur = r.rlim_max = RLIM_INFINITY;
    TRY("raise_core", setrlimit(RLIMIT_CORE, &r));
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    if (!strcmp(how, "exit"))
        return (int)argn(argc, argv, 2, 0);
    if (!strcmp(how, "abort"))
        abort();
    if (!strcmp(how, "xcpu"))
        use_cpu();
    if (!strcmp(how, "xfsz")) {
        struct rlimit f = {4096, 4096};
        setrlimit(RLIMIT_FSIZE, &f);
        int fd = open(private_path("xfsz"), O_CREAT | O_WRONLY, 0600);
        char block[8192] = {0};
        for (int i = 0; i < 4; i++)
            if (write(fd, block, sizeof(block)) < 0)
                break;
    }
    if (!strcmp(how, "segv")) {
        char *p = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        *(volatile char *)p = 1;
    }
    int sig = !strcmp(how, "ill")    ? SIGILL
              : !strcmp(how, "fpe")  ? SIGFPE
              : !strcmp(how, "bus")  ? SIGBUS
              : !strcmp(how, "trap") ? SIGTRAP
              : !strcmp(how, "term") ? SIGTERM
              : !strcmp(how, "kill") ? SIGKILL
                                     : SIGSEGV;
    kill(getpid(), sig);
    return 99;
}
