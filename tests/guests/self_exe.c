/* F3: overwrites the binary behind /proc/PID/exe, and the one that was given to run.
 *
 * usage: self_exe PATH... */
#include "guest.h"

static void attack(const char *path)
{
    char key[4300];
    snprintf(key, sizeof(key), "write %s", path);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    report(key, fd);
    snprintf(key, sizeof(key), "truncate %s", path);
    if (fd >= 0)
        say(key, "not tried, it is open for writing");
    else
        TRY(key, truncate(path, 1));
    snprintf(key, sizeof(key), "chmod %s", path);
    TRY(key, chmod(path, 0777));
    snprintf(key, sizeof(key), "chown %s", path);
    TRY(key, chown(path, getuid(), getgid()));
    int o = open(path, O_RDONLY | O_CLOEXEC);
    if (o >= 0) {
        snprintf(key, sizeof(key), "fchmod %s", path);
        TRY(key, fchmod(o, 0777));
        char self[64];
        snprintf(self, sizeof(self), "/proc/self/fd/%d", o);
        snprintf(key, sizeof(key), "reopen %s", path);
        TRY(key, open(self, O_WRONLY | O_CLOEXEC));
    }
}

int main(int argc, char **argv)
{
    guest_deadline(20);
    char init[32];
    attack("/proc/self/exe");
    for (int pid = 1; pid <= 3; pid++) {
        if (pid == getpid())
            continue;
        snprintf(init, sizeof(init), "/proc/%d/exe", pid);
        attack(init);
    }
    for (int i = 1; i < argc; i++)
        attack(argv[i]);
    return 0;
}
