/* K20: out of its control groups. Mounts them, looks for their files, moves itself, writes a
 * release agent, switches controllers off.
 *
 * usage: cgroup_escape [FOLDER]    FOLDER: where the host's groups lie (default /sys/fs/cgroup) */
#include "guest.h"

#include <dirent.h>
#include <sys/mount.h>

static void poke(const char *folder, const char *file, const char *text)
{
    char path[512], key[600];
    snprintf(path, sizeof(path), "%s/%s", folder, file);
    snprintf(key, sizeof(key), "write %s", file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        report(key, -1);
        return;
    }
    TRY(key, write(fd, text, strlen(text)));
    close(fd);
}

static void try_mount(const char *type, const char *options)
{
    char key[64], place[] = "/tmp/groups-XXXXXX";
    snprintf(key, sizeof(key), "mount %s %s", type, options ? options : "-");
    if (!mkdtemp(place)) {
        report(key, -1);
        return;
    }
    TRY(key, mount("none", place, type, 0, options));
    poke(place, "release_agent", "/tmp/agent");
    poke(place, "cgroup.procs", "0");
}

int main(int argc, char **argv)
{
    const char *top = argc > 1 ? argv[1] : "/sys/fs/cgroup";
    guest_deadline(30);
    try_mount("cgroup2", NULL);
    try_mount("cgroup", "memory");
    try_mount("cgroup", "pids");
    TRY("mkdir", mkdir("/sys/fs/cgroup/mine", 0755));
    poke(top, "cgroup.procs", "0");
    poke(top, "cgroup.subtree_control", "-memory -pids -cpu");
    poke(top, "memory/cgroup.procs", "0");
    poke(top, "memory/memory.limit_in_bytes", "-1");
    poke(top, "pids/tasks", "0");
    poke("/proc/self", "cgroup", "0");
    DIR *d = opendir(top);
    say("list", "%s", d ? "OK" : errname(errno));
    char text[4096];
    int fd = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    for (char *line = n > 0 ? (text[n] = '\0', strtok(text, "\n")) : NULL; line;
         line = strtok(NULL, "\n"))
        say("group", "%s", line);
    return 0;
}
