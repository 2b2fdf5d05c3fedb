/* F1, F2, F4: every old way out of a root directory. Looks for the file named by the test, which
 * lies outside, and prints `found` with the road that led there.
 *
 * usage: escape /absolute/path/of/a/host/file */
#include "guest.h"

#include <dirent.h>
#include <linux/openat2.h>

static const char *target;

static void look(const char *road, int dirfd)
{
    char dots[4200];
    int n =
        snprintf(dots, sizeof(dots), "../../../../../../../../../../../../../../../..%s", target);
    (void)n;
    int fd = openat(dirfd, dots, O_RDONLY | O_CLOEXEC);
    say(road, "%s", fd >= 0 ? "found" : errname(errno));
    if (fd >= 0)
        close(fd);
}

static void look_via(const char *prefix)
{
    char path[4200], key[4300];
    snprintf(path, sizeof(path), "%s%s", prefix, target);
    snprintf(key, sizeof(key), "via %s", prefix);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    say(key, "%s", fd >= 0 ? "found" : errname(errno));
    if (fd >= 0)
        close(fd);
}

static void chroot_trick(void)
{
    int fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    mkdir("/tmp/jail", 0755);
    TRY("chroot", chroot("/tmp/jail"));
    TRY("fchdir", fchdir(fd));
    for (int i = 0; i < 64; i++)
        if (chdir("..") < 0)
            break;
    look("after chroot", AT_FDCWD);
}

static void inherited_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    if (!d) {
        say("fds", "%s", errname(errno));
        return;
    }
    for (struct dirent *e; (e = readdir(d));) {
        int fd = (int)strtol(e->d_name, NULL, 10);
        if (e->d_name[0] == '.' || fd == dirfd(d))
            continue;
        say("fd", "%d", fd);
        if (fd > 2)
            look("inherited", fd);
    }
    closedir(d);
}

int main(int argc, char **argv)
{
    target = arg(argc, argv, 1, "/nonexistent");
    guest_deadline(20);
    char cwd[4096];
    say("cwd", "%s", getcwd(cwd, sizeof(cwd)) ? cwd : errname(errno));
    look("dots", AT_FDCWD);
    look_via("");
    look_via("/proc/self/cwd/../../../../../..");
    look_via("/proc/self/root");
    look_via("/proc/1/root");
    look_via("/proc/1/cwd");
    look_via("/proc/self/fd/0/../..");
    look_via("/proc/self/task/1/root");
    char pid_root[64];
    for (int pid = 2; pid <= 5; pid++) {
        snprintf(pid_root, sizeof(pid_root), "/proc/%d/root", pid);
        look_via(pid_root);
    }
    struct open_how how = {.flags = O_RDONLY, .resolve = 0};
    long fd = syscall(SYS_openat2, AT_FDCWD, target, &how, sizeof(how));
    say("openat2", "%s", fd >= 0 ? "found" : errname(errno));
    inherited_fds();
    chroot_trick();
    return 0;
}
