/* Who answers for a container: written into its label, looked at by `image clean`. Runs in
 * `cordon-docker`. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/docker/image.h"
#include "base/nsnum.h"
#include "base/util.h"

/* Field 22 of /proc/PID/stat, behind a name that may hold anything. 0: there is no such process, or
 * only its status, which nobody has asked for yet. */
static unsigned long long owner_start(long pid)
{
    char path[40], text[1024];
    snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    char *at = strrchr(text, ')');
    if (at && (at[2] == 'Z' || at[2] == 'X'))
        return 0;
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at, NULL, 10) : 0;
}

/* The host and what its process ids mean: boot and pid namespace. */
static void owner_place(char *ret, size_t size)
{
    char boot[40] = "";
    _cleanup_close_ int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, boot, sizeof(boot) - 1);
    boot[n > 0 ? strcspn(boot, "\n") : 0] = '\0';
    snprintf(ret, size, "%s/%llu", boot, (unsigned long long)namespace_number("/proc/self/ns/pid"));
}

void owner_text(char *ret, size_t size)
{
    char place[80];
    owner_place(place, sizeof(place));
    snprintf(ret, size, "%s/%d/%llu", place, (int)getpid(), owner_start(getpid()));
}

bool owner_is_alive(const char *text)
{
    char place[80];
    owner_place(place, sizeof(place));
    size_t len = strlen(place);
    if (!*text)
        return false; /* not from a run of this version */
    if (strncmp(text, place, len) != 0 || text[len] != '/') {
        /* another boot of this host ended every process of it; another namespace may be alive */
        return strncmp(text, place, strcspn(place, "/")) == 0;
    }
    char *slash;
    long pid = strtol(text + len + 1, &slash, 10);
    return *slash == '/' && owner_start(pid) == strtoull(slash + 1, NULL, 10) && pid > 0;
}
