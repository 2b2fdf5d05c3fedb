/* D9, D11, D17: what a guest asks for beyond its limits, and what it gets.
 *
 * usage: ask malloc MIB       one malloc of so much, untouched; exits 3 when it is NULL
 *        ask cope MIB         the same, but goes on with less and exits 0
 *        ask reserve MIB      address space nobody may write to, as managed runtimes take it
 *        ask unwaited MS N    N processes burn MS/N ms of CPU each; nobody waits for them (SIGCHLD
 * ignored) ask cores            how many it runs on, before and after asking for all ask sparse MIB
 * touches a page per 2 MiB, so that page tables take MIB ask fail MIB         touches so much and
 * exits 5: an ordinary failure ask stopped          says whether a child was seen stopped while it
 * worked for 300 ms */
#include "guest.h"

#include <sched.h>
#include <sys/mman.h>

#define MIB (1024UL * 1024UL)

static int ask_malloc(unsigned long mib, int otherwise)
{
    char *volatile p = malloc(mib * MIB);
    say("malloc", "%s", p ? "OK" : errname(errno));
    return p ? 0 : otherwise;
}

static int ask_reserve(unsigned long mib)
{
    void *p = mmap(NULL, mib * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    say("reserve", "%s", p == MAP_FAILED ? errname(errno) : "OK");
    return p == MAP_FAILED ? 3 : 0;
}

static void burn_ms(long ms)
{
    struct timespec ts;
    long used;
    volatile unsigned long sink = 0;
    do {
        for (int i = 0; i < 20000; i++)
            sink += (unsigned long)i;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
        used = ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
    } while (used < ms);
}

static int ask_unwaited(long ms, long n)
{
    int gate[2];
    char c;
    signal(SIGCHLD, SIG_IGN);
    if (pipe(gate) < 0)
        return 1;
    for (long i = 0; i < n; i++) {
        if (fork() == 0) {
            burn_ms(ms / n);
            _exit(0);
        }
    }
    close(gate[1]);
    while (read(gate[0], &c, 1) > 0)
        ;
    say("burnt_ms", "%ld", ms / n * n);
    return 0;
}

static int count_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) < 0 ? -1 : CPU_COUNT(&set);
}

static int ask_cores(void)
{
    cpu_set_t all;
    memset(&all, 0xff, sizeof(all));
    say("cores", "%d", count_cores());
    TRY("setaffinity", sched_setaffinity(0, sizeof(all), &all));
    say("cores_after", "%d", count_cores());
    return 0;
}

static int ask_sparse(unsigned long mib)
{
    unsigned long tables = mib * MIB / 4096, step = 2 * MIB;
    char *p = mmap(NULL, tables * step, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return 3;
    madvise(p, tables * step, MADV_NOHUGEPAGE);
    for (unsigned long i = 0; i < tables; i++)
        (void)*(volatile char *)(p + i * step);
    sleep_ms(300);
    say("sparse", "done");
    return 0;
}

static int ask_fail(unsigned long mib)
{
    char *p = malloc(mib * MIB);
    if (!p)
        return 3;
    memset(p, 1, mib * MIB);
    sleep_ms(100);
    return p[mib] == 1 ? 5 : 0;
}

static int ask_stopped(void)
{
    int status, seen = 0;
    pid_t pid = fork();
    if (pid == 0) {
        burn_ms(300);
        _exit(0);
    }
    while (waitpid(pid, &status, WUNTRACED) == pid && !WIFEXITED(status))
        seen += WIFSTOPPED(status);
    say("stopped", "%s", seen ? "yes" : "no");
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = arg(argc, argv, 1, "cores");
    long n = argn(argc, argv, 2, 0);
    guest_deadline(60);
    if (!strcmp(what, "malloc"))
        return ask_malloc((unsigned long)n, 3);
    if (!strcmp(what, "cope"))
        return ask_malloc((unsigned long)n, 0);
    if (!strcmp(what, "reserve"))
        return ask_reserve((unsigned long)n);
    if (!strcmp(what, "unwaited"))
        return ask_unwaited(n, argn(argc, argv, 3, 4));
    if (!strcmp(what, "sparse"))
        return ask_sparse((unsigned long)n);
    if (!strcmp(what, "fail"))
        return ask_fail((unsigned long)n);
    if (!strcmp(what, "stopped"))
        return ask_stopped();
    return ask_cores();
}
