/* F24, I10: marks every place that might outlive a run, and looks for the mark of an earlier one;
 * reads fresh memory and fresh files for bytes that are not zero.
 *
 * usage: reuse MARK */
#include "guest.h"

#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>

static void place(const char *dir)
{
    char path[256], key[300];
    struct stat st;
    snprintf(path, sizeof(path), "%s/left-by-a-guest", dir);
    snprintf(key, sizeof(key), "found %s", dir);
    say(key, "%s", stat(path, &st) == 0 ? "yes" : "no");
    snprintf(key, sizeof(key), "left %s", dir);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    report(key, fd < 0 ? -1 : write(fd, "mark", 4));
}

static long nonzero(const unsigned char *p, size_t n)
{
    long count = 0;
    for (size_t i = 0; i < n; i++)
        count += p[i] != 0;
    return count;
}

int main(void)
{
    static const char *dirs[] = {"/tmp",      "/var/tmp",      "/dev/shm", "/run",
                                 "/run/lock", "/home/sandbox", "/dev",     "/"};
    guest_deadline(20);
    for (size_t i = 0; i < sizeof(dirs) / sizeof(*dirs); i++)
        place(dirs[i]);
    int id = shmget(0x434f5244, 4096, 0600);
    say("found sysv", "%s", id >= 0 ? "yes" : "no");
    report("left sysv", shmget(0x434f5244, 4096, IPC_CREAT | 0600));
    size_t n = 1 << 20;
    unsigned char *p = mmap(NULL, n, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    say("nonzero memory", "%ld", p == MAP_FAILED ? -1 : nonzero(p, n));
    int fd = open("/tmp/hole", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 && ftruncate(fd, (off_t)n) == 0) {
        p = mmap(NULL, n, PROT_READ, MAP_SHARED, fd, 0);
        say("nonzero file", "%ld", p == MAP_FAILED ? -1 : nonzero(p, n));
    }
    return 0;
}
