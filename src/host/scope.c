/* A group of our own from the user's systemd, where none was delegated to us (a shell that came in
 * by ssh sits in a group of the system's). Called by `run` and by the library's supervisor before
 * anything else is started; moves only the calling process.
 *
 * The group ends with us: systemd takes a scope away when its last process is gone. What goes wrong
 * here leaves everything as it was, and limits are held by their fallbacks. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "host/bus.h"
#include "host/cgroups.h"
#include "host/read.h"

#define SCOPE_TIMEOUT_MS 1000 /* a busy systemd takes tens of milliseconds; a hung one for ever */

bool host_scope_bus(char *ret_path, size_t size)
{
    const char *address = getenv("DBUS_SESSION_BUS_ADDRESS"), *dir = getenv("XDG_RUNTIME_DIR");
    struct stat st;
    int n;
    if (address && str_starts(address, "unix:path="))
        n = snprintf(ret_path, size, "%.*s", (int)strcspn(address + 10, ",;"), address + 10);
    else if (dir && dir[0] == '/')
        n = snprintf(ret_path, size, "%s/bus", dir);
    else
        n = snprintf(ret_path, size, "/run/user/%u/bus", (unsigned)geteuid());
    /* Somebody else's bus would learn only our pid, but has nothing to give us. */
    return n > 0 && (size_t)n < size && stat(ret_path, &st) == 0 && S_ISSOCK(st.st_mode) &&
           st.st_uid == geteuid();
}

/* The answer comes when the work begins; it is done when we are somewhere else. */
static bool scope_arrived(const char *cgroup_file, const char *unit, uint64_t deadline_ns)
{
    for (;;) {
        char text[4096];
        struct timespec now, pause = {.tv_nsec = 500000};
        if (host_read(cgroup_file, text, sizeof(text)) > 0 && strstr(text, unit))
            return true;
        clock_gettime(CLOCK_MONOTONIC, &now);
        if ((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec >= deadline_ns)
            return false;
        nanosleep(&pause, NULL);
    }
}

bool host_scope_ask(const char *bus_path, const char *cgroup_file, unsigned timeout_ms)
{
    struct bus bus;
    char unit[64];
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    snprintf(unit, sizeof(unit), "cordon-%d-%llu.scope", (int)getpid(),
             (unsigned long long)now.tv_sec * 1000000000u + (unsigned long long)now.tv_nsec);
    if (bus_open(bus_path, timeout_ms, &bus) < 0)
        return false;
    bool begun = bus_start_scope(&bus, unit, getpid()) == 0;
    bus_close(&bus);
    return begun && scope_arrived(cgroup_file, unit, bus.deadline_ns);
}

void host_scope_join(struct host_cgroups *cgroups)
{
    char path[108];
    if (cgroups->may_ask_scope && host_scope_bus(path, sizeof(path)) &&
        host_scope_ask(path, "/proc/self/cgroup", SCOPE_TIMEOUT_MS))
        host_cgroups_find(cgroups);
    cgroups->may_ask_scope = false;
}
