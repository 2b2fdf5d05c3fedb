/*
 * What the figures were measured on. A missing file of /proc or /sys gives an empty or
 * "unknown" field, never a failure: a figure without its governor is still a figure.
 */
#include "bench.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

static void first_line(const char *path, char *buf, size_t size)
{
    FILE *f = fopen(path, "re");

    if (!f)
        return;
    if (fgets(buf, (int)size, f))
        buf[strcspn(buf, "\n")] = '\0';
    fclose(f);
}

static void read_cpuinfo(struct machine *m)
{
    FILE *f = fopen("/proc/cpuinfo", "re");
    char *line = NULL;
    size_t cap = 0;

    if (!f)
        return;
    while (getline(&line, &cap, f) > 0) {
        char *value = strchr(line, ':');

        if (!value)
            continue;
        if (strncmp(line, "model name", 10) == 0 && !m->cpu[0]) {
            value += 1 + strspn(value + 1, " \t");
            value[strcspn(value, "\n")] = '\0';
            snprintf(m->cpu, sizeof(m->cpu), "%s", value);
        } else if (strncmp(line, "flags", 5) == 0) {
            m->is_virtual = strstr(value, " hypervisor") != NULL;
            break;
        }
    }
    free(line);
    fclose(f);
}

void machine_read(struct machine *ret_machine, const char *commit)
{
    struct machine m = {.governor = "none exposed"};
    struct utsname u;
    struct sysinfo si;
    time_t now = time(NULL);
    struct tm tm;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    if (uname(&u) == 0)
        snprintf(m.kernel, sizeof(m.kernel), "%.40s %.60s %.20s", u.sysname, u.release, u.machine);
    read_cpuinfo(&m);
    if (!m.cpu[0])
        snprintf(m.cpu, sizeof(m.cpu), "unknown");
    first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", m.governor,
               sizeof(m.governor));
    first_line("/proc/loadavg", m.load, sizeof(m.load));
    m.cores = cores > 0 ? (unsigned)cores : 0;
    if (sysinfo(&si) == 0)
        m.mem_mib = (unsigned long)((uint64_t)si.totalram * si.mem_unit >> 20);
    if (gmtime_r(&now, &tm))
        strftime(m.date, sizeof(m.date), "%Y-%m-%dT%H:%M:%SZ", &tm);
    snprintf(m.commit, sizeof(m.commit), "%s", commit && commit[0] ? commit : "unknown");
    *ret_machine = m;
}

/* Time taken by the hypervisor is noise that no repetition inside the guest can see. */
void machine_read_ticks(uint64_t *ret_steal, uint64_t *ret_total)
{
    FILE *f = fopen("/proc/stat", "re");
    uint64_t v[8] = {0};

    *ret_steal = 0;
    *ret_total = 0;
    if (!f)
        return;
    if (fscanf(f,
               "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
               " %" SCNu64 " %" SCNu64,
               &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7]) == 8) {
        *ret_steal = v[7];
        for (size_t i = 0; i < 8; i++)
            *ret_total += v[i];
    }
    fclose(f);
}
