/* Who and where the guest is: ids, capabilities, flags, streams, session, environment, limits,
 * namespaces. One `key: value` line per fact. */
#include "guest.h"

#include <dirent.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/utsname.h>

extern char **environ;

static void print_status(void)
{
    static const char *wanted[] = {"CapInh", "CapPrm",     "CapEff",  "CapBnd",
                                   "CapAmb", "NoNewPrivs", "Seccomp", "Groups",
                                   "NSpid",  "TracerPid",  "Uid",     "Gid"};
    FILE *f = fopen("/proc/self/status", "re");
    char line[512];
    if (!f) {
        say("status", "%s", errname(errno));
        return;
    }
    while (fgets(line, sizeof(line), f)) {
        char *colon = strchr(line, ':');
        if (!colon)
            continue;
        *colon = 0;
        for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++)
            if (!strcmp(line, wanted[i]))
                say(line, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
    }
    fclose(f);
}

static void print_ids(void)
{
    gid_t groups[64];
    uid_t r, e, s;
    getresuid(&r, &e, &s);
    say("uids", "%d %d %d", (int)r, (int)e, (int)s);
    getresgid(&r, &e, &s);
    say("gids", "%d %d %d", (int)r, (int)e, (int)s);
    say("ngroups", "%d", getgroups(64, groups));
    say("pid", "%d", (int)getpid());
    say("ppid", "%d", (int)getppid());
    say("sid_is_own", "%s",
        getsid(0) == getpid() || getsid(0) == getppid() || getsid(0) > 0 ? "yes" : "no");
    say("sid", "%d", (int)getsid(0));
    say("pgid", "%d", (int)getpgid(0));
    int tty = open("/dev/tty", O_RDWR | O_CLOEXEC);
    say("tty", "%s", tty < 0 ? errname(errno) : "OK");
    mode_t mask = umask(0);
    umask(mask);
    say("umask", "%03o", mask);
    say("dumpable", "%d", prctl(PR_GET_DUMPABLE, 0, 0, 0, 0));
    say("nnp", "%d", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    say("seccomp", "%d", prctl(PR_GET_SECCOMP, 0, 0, 0, 0));
    int sig = 0;
    prctl(PR_GET_PDEATHSIG, &sig, 0, 0, 0);
    say("pdeathsig", "%d", sig);
}

static void print_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    if (!d) {
        for (int fd = 0; fd < 4096; fd++)
            if (fcntl(fd, F_GETFD) != -1)
                say("fd", "%d", fd);
        return;
    }
    for (struct dirent *e; (e = readdir(d));) {
        char link[4096], path[300];
        int fd = (int)strtol(e->d_name, NULL, 10);
        if (e->d_name[0] == '.' || fd == dirfd(d))
            continue;
        snprintf(path, sizeof(path), "/proc/self/fd/%s", e->d_name);
        ssize_t n = readlink(path, link, sizeof(link) - 1);
        say("fd", "%d", fd);
        char key[32];
        snprintf(key, sizeof(key), "fd %d", fd);
        say(key, "%.*s", n > 0 ? (int)n : 0, link);
    }
    closedir(d);
}

static void print_limits(void)
{
    static const struct {
        const char *name;
        int id;
    } limits[] = {
        {"nofile", RLIMIT_NOFILE}, {"nproc", RLIMIT_NPROC},     {"core", RLIMIT_CORE},
        {"fsize", RLIMIT_FSIZE},   {"as", RLIMIT_AS},           {"data", RLIMIT_DATA},
        {"cpu", RLIMIT_CPU},       {"memlock", RLIMIT_MEMLOCK}, {"msgqueue", RLIMIT_MSGQUEUE},
        {"rtprio", RLIMIT_RTPRIO}, {"nice", RLIMIT_NICE},
    };
    for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++) {
        struct rlimit r;
        char key[32];
        getrlimit((__rlimit_resource_t)limits[i].id, &r);
        snprintf(key, sizeof(key), "rlimit %s", limits[i].name);
        say(key, "%lld %lld", (long long)r.rlim_cur, (long long)r.rlim_max);
    }
}

static void print_place(void)
{
    static const char *spaces[] = {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"};
    char text[4096];
    struct utsname u;
    uname(&u);
    say("hostname", "%s", u.nodename);
    say("domainname", "%s", u.domainname);
    say("cwd", "%s", getcwd(text, sizeof(text)) ? text : errname(errno));
    for (size_t i = 0; i < sizeof(spaces) / sizeof(*spaces); i++) {
        char path[64];
        snprintf(path, sizeof(path), "/proc/self/ns/%s", spaces[i]);
        ssize_t n = readlink(path, text, sizeof(text) - 1);
        say(path + 11, "%.*s", n > 0 ? (int)n : 0, text);
    }
    struct statfs fs;
    static const char *places[] = {"/tmp", "/home/sandbox", "/dev/shm", "/", "/proc", "/dev"};
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        snprintf(text, sizeof(text), "fs %s", places[i]);
        if (statfs(places[i], &fs) == 0)
            say(text, "%llx %llu %llu", (unsigned long long)fs.f_type,
                (unsigned long long)fs.f_blocks * (unsigned long long)fs.f_bsize,
                (unsigned long long)fs.f_files);
        else
            say(text, "%s", errname(errno));
    }
    for (int s = 1; s < NSIG; s++) {
        struct sigaction sa;
        if (sigaction(s, NULL, &sa) == 0 && sa.sa_handler != SIG_DFL)
            say("signal not default", "%d", s);
    }
    sigset_t blocked;
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    for (int s = 1; s < NSIG; s++)
        if (sigismember(&blocked, s) == 1)
            say("signal blocked", "%d", s);
}

int main(int argc, char **argv)
{
    guest_deadline(10);
    for (int i = 0; i < argc; i++)
        say("arg", "%s", argv[i]);
    print_ids();
    print_status();
    print_fds();
    print_limits();
    print_place();
    for (char **e = environ; *e; e++)
        say("env", "%s", *e);
    return 0;
}
