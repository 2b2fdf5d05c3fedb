/* What stands around this process, found out from inside with the plainest system calls there are,
 * so that it can tell also where many of them are made to fail. Prints `key: value` lines.
 *
 * usage: witness PATH...    each PATH: may it be read, may it be written?
 *        witness sleep      prints a line and waits */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void say(const char *key, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(const char *key, const char *fmt, ...)
{
    char line[5000];
    int n = snprintf(line, sizeof(line), "%s: ", key);
    va_list ap;
    va_start(ap, fmt);
    n += vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);
    va_end(ap);
    line[n++] = '\n';
    for (int done = 0; done < n;) {
        ssize_t w = write(1, line + done, (size_t)(n - done));
        if (w <= 0)
            _exit(99);
        done += (int)w;
    }
}

static void status(void)
{
    static const char *const wanted[] = {"CapInh", "CapPrm",     "CapEff",  "CapBnd",
                                         "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters",
                                         "Groups", "NSpid"};
    static char text[16384];
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n < 0) {
        say("status", "%s", strerrorname_np(errno));
        return;
    }
    text[n] = '\0';
    close(fd);
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *colon = strchr(line, ':');
        if (!colon)
            continue;
        *colon = '\0';
        for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++)
            if (strcmp(line, wanted[i]) == 0)
                say(line, "%s", colon + 1 + strspn(colon + 1, " \t"));
    }
}

static void namespaces(void)
{
    static const char *const names[] = {"user", "mnt", "pid",    "net",
                                        "ipc",  "uts", "cgroup", "time"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        char path[64], text[64];
        snprintf(path, sizeof(path), "/proc/self/ns/%s", names[i]);
        ssize_t n = readlink(path, text, sizeof(text) - 1);
        say(path + 11, "%.*s", n > 0 ? (int)n : 0, text);
    }
}

static const char *try_open(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK, 0644);
    if (fd < 0)
        return strerrorname_np(errno);
    close(fd);
    return "OK";
}

static void descriptors(void)
{
    struct stat st;
    for (int fd = 3; fd < 1024; fd++)
        if (fstat(fd, &st) == 0)
            say("fd", "%d", fd);
}

static void interfaces(void)
{
    char text[4096];
    int fd = open("/proc/self/net/dev", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    int lines = 0;
    for (ssize_t i = 0; i < n; i++)
        lines += text[i] == '\n';
    if (n >= 0)
        say("interfaces", "%d", lines - 2);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "sleep") == 0) {
        say("asleep", "yes");
        for (int i = 0; i < 30; i++)
            sleep(1);
        return 0;
    }
    uid_t r, e, s;
    getresuid(&r, &e, &s);
    say("uids", "%d %d %d", (int)r, (int)e, (int)s);
    getresgid(&r, &e, &s);
    say("gids", "%d %d %d", (int)r, (int)e, (int)s);
    say("pid", "%d", (int)getpid());
    say("ppid", "%d", (int)getppid());
    say("signal to parent", "%s", kill(getppid(), 0) == 0 ? "OK" : strerrorname_np(errno));
    struct rlimit core = {0, 0};
    getrlimit(RLIMIT_CORE, &core);
    say("core", "%llu", (unsigned long long)core.rlim_max);
    char name[65] = "";
    gethostname(name, sizeof(name));
    say("hostname", "%s", name);
    status();
    namespaces();
    descriptors();
    interfaces();
    say("own tmp", "%s", try_open("own-file", O_RDWR | O_CREAT));
    for (int i = 1; i < argc; i++) {
        say("read", "%s %s", argv[i], try_open(argv[i], O_RDONLY));
        say("write", "%s %s", argv[i], try_open(argv[i], O_WRONLY));
        char inside[5000];
        snprintf(inside, sizeof(inside), "%s/made-by-guest", argv[i]);
        say("create", "%s %s", argv[i], try_open(inside, O_WRONLY | O_CREAT));
    }
    return 0;
}
