/* Reads the container's process tree from /proc. Runs in a container's pid 1. */
#include "init/look.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/util.h"

#define LOOK_BURST_NS 100000000u /* CPU time a guest may be ahead */

static uint64_t look_time(const struct timeval *t)
{
    return (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_usec * 1000u;
}

/* Fields 14 to 17 (times), 20 (threads) and 24 (resident pages), behind a name that may hold
 * anything.
 */
static void look_process(const char *pid, struct look *l)
{
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return;
    text[n] = '\0';
    char *at = strrchr(text, ')');
    uint64_t ticks = 0, hz = (uint64_t)sysconf(_SC_CLK_TCK);
    for (int field = 2; at && field <= 24; field++) {
        if (field >= 14 && field <= 17)
            ticks += strtoull(at + 1, NULL, 10);
        if (field == 20)
            l->tasks += (unsigned)strtoul(at + 1, NULL, 10);
        if (field == 24)
            l->memory_bytes += strtoull(at + 1, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
        at = strchr(at + 1, ' ');
    }
    l->cpu_ns += ticks * (1000000000u / (hz ? hz : 100));
}

void look_tree(struct look *ret_look)
{
    struct look l = {0};
    struct rusage gone;
    char own[16];
    DIR *proc = opendir("/proc");
    snprintf(own, sizeof(own), "%d", (int)getpid());
    for (struct dirent *e = proc ? readdir(proc) : NULL; e; e = readdir(proc))
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && !str_eq(e->d_name, "1") &&
            !str_eq(e->d_name, own))
            look_process(e->d_name, &l);
    if (proc)
        closedir(proc);
    if (getrusage(RUSAGE_CHILDREN, &gone) == 0)
        l.cpu_ns += look_time(&gone.ru_utime) + look_time(&gone.ru_stime);
    *ret_look = l;
}

bool look_kernel(struct look *ret_look)
{
    struct sysinfo all;
    if (sysinfo(&all) < 0)
        return false;
    *ret_look = (struct look){.memory_bytes = (uint64_t)(all.totalram - all.freeram) * all.mem_unit,
                              .tasks = all.procs > 0 ? all.procs - 1u : 0};
    return true;
}

bool look_duty(struct look_duty *d, unsigned percent, uint64_t now_ns, uint64_t cpu_ns)
{
    uint64_t allowed = (now_ns - d->began_ns) / 100 * percent + LOOK_BURST_NS;
    bool stop = cpu_ns > allowed;
    if (stop && !d->since_ns) {
        d->since_ns = now_ns;
    } else if (!stop && d->since_ns) {
        d->stopped_ns += now_ns - d->since_ns;
        d->since_ns = 0;
    }
    return stop;
}
