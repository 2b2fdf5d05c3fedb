/* Which cores the processes of a start and the guest run on. Bare calls: the process that becomes
 * the guest shares pid 1's memory. */
#include "backend/native/native_internal.h"

#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "base/raw.h"

static void cores_check(struct native_child *c, long r, const char *call)
{
    if (r < 0)
        native_child_fail(c, "cores", (int)-r, call);
}

static long cores_set(pid_t pid, const cpu_set_t *set)
{
    return raw_call(SYS_sched_setaffinity, pid, sizeof(*set), set);
}

/* The C library looks at bit by bit. */
static unsigned cores_count(const cpu_set_t *set)
{
    unsigned long words[sizeof(*set) / sizeof(unsigned long)];
    unsigned n = 0;
    memcpy(words, set, sizeof(words));
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        n += words[i] ? (unsigned)__builtin_popcountl(words[i]) : 0;
    return n;
}

/* How many processes of this host run or wait for a core at this moment, we included; 0: unknown.
 * "0.31 0.40 0.37 2/345 6789" */
static unsigned cores_wanted(void)
{
    char text[64] = "";
    long fd = raw_call(SYS_openat, AT_FDCWD, "/proc/loadavg", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    raw_call(SYS_read, fd, text, sizeof(text) - 1);
    raw_call(SYS_close, fd);
    const char *at = text;
    for (int blanks = 0; *at && blanks < 3; at++)
        blanks += *at == ' ';
    unsigned n = 0;
    for (; *at >= '0' && *at <= '9' && n < 100000; at++)
        n = n * 10 + (unsigned)(*at - '0');
    return n;
}

/* Who is sent to a core waits there if it is taken, for a whole slice of somebody who computes: on
 * two cores with one such program a start then takes twice as long. So nobody is sent anywhere
 * unless a core is free. */
void native_cores_note(struct native_child *c)
{
    c->n_cores = 0;
    c->is_crowded = false;
    if (!c->tells_begun || !c->is_alone || !native_child_is_beside(c->plan))
        return;
    CPU_ZERO(&c->cores); /* the kernel fills in as many bytes as it has processors for */
    if (raw_call(SYS_sched_getaffinity, 0, sizeof(c->cores), &c->cores) > 0)
        c->n_cores = cores_count(&c->cores);
    c->is_crowded = c->n_cores > 0 && cores_wanted() >= c->n_cores;
}

static bool cores_here(unsigned *ret_core)
{
    return raw_call(SYS_getcpu, ret_core, NULL, NULL) >= 0 && *ret_core < CPU_SETSIZE;
}

void native_cores_give(const cpu_set_t *cores, pid_t pid)
{
    cores_set(pid, cores);
}

static void cores_leave(const cpu_set_t *cores, unsigned here, pid_t pid)
{
    cpu_set_t others = *cores;
    CPU_CLR(here, &others);
    if (cores_count(&others) > 0)
        cores_set(pid, &others);
}

void native_cores_leave(const cpu_set_t *cores, unsigned n_cores, pid_t pid)
{
    unsigned here;
    if (n_cores > 1 && cores_here(&here))
        cores_leave(cores, here, pid);
}

/* The kernel wakes a new process where its parent runs when the cores have been busy lately, and
 * the parent goes on there: making the groups, a third of a millisecond. So it is sent to another
 * one; by itself if it comes to run first, for it is about to choose a core for the process that
 * becomes the guest, and two on one core and none on the other is what comes of choosing before.
 * Never where the guest would have pid 1's cores from it (native_child_is_beside):
 * native_cores_gather() gives it ours. */
static bool cores_are_parted(const struct native_child *c)
{
    return c->plan->cgroups.kind == HOST_CGROUP_V1 && c->n_cores > 1;
}

/* Who takes down an earlier guest's namespaces for the kernel is gone at the second look. */
void native_cores_before(struct native_child *c)
{
    c->is_crowded = c->is_crowded && cores_wanted() >= c->n_cores;
    if (c->is_crowded)
        c->n_cores = 0;
    if (cores_are_parted(c) && !cores_here(&c->core))
        c->n_cores = 0;
}

void native_cores_begin(struct native_child *c, pid_t pid)
{
    if (cores_are_parted(c))
        native_cores_leave(&c->cores, c->n_cores, pid);
}

void native_cores_born(struct native_child *c)
{
    unsigned here;
    if (cores_are_parted(c) && cores_here(&here) && here == c->core)
        cores_leave(&c->cores, here, 0);
}

/* The kernel likes to put a new process behind its parent when the other cores happen to do a
 * moment's work of its own, the end of an earlier guest's namespaces above all. pid 1 and the
 * process that becomes the guest have the same amount to do: it gets any core but ours. What it
 * takes back are the cores of now: one that comes later is not the guest's. */
void native_cores_spread(struct native_guest *g)
{
    unsigned here;
    if (g->child->is_crowded)
        return;
    CPU_ZERO(&g->cores); /* the kernel fills in as many bytes as it has processors for */
    if (g->child->n_cores)
        g->cores = g->child->cores;
    else if (raw_call(SYS_sched_getaffinity, 0, sizeof(g->cores), &g->cores) < 0)
        return;
    if (!cores_here(&here))
        return;
    cpu_set_t others = g->cores;
    CPU_CLR(here, &others);
    if (cores_count(&others) == 0)
        return;
    /* The core it gets may be the supervisor's, whose groups it will need: it waits its turn there,
     * and is an ordinary process again when it has made its namespaces (plain manners). */
    if (g->child->n_cores > 0 && g->child->plan->cgroups.kind == HOST_CGROUP_V1)
        raw_call(SYS_sched_setscheduler, g->pid, SCHED_BATCH, &(struct sched_param){0});
    atomic_store(&g->is_spread, cores_set(g->pid, &others) >= 0);
}

/* Behind the filter it takes the key, where there is one. */
static long cores_set_keyed(const struct native_child *c, pid_t pid, const cpu_set_t *set)
{
    return native_keyed_call(c, SYS_sched_setaffinity, pid, sizeof(*set), (long)(uintptr_t)set);
}

/* So many of the cores we have ourselves, and first of all the one we run on: the kernel placed us
 * on the idlest at our birth, a moment ago. Another process (one that was born long before) gets
 * its share by chance. False: there are no more than that. */
static bool cores_fence(struct native_child *c, pid_t pid, const cpu_set_t *have)
{
    unsigned cores = c->plan->cores, first = 0, n = cores_count(have);
    cpu_set_t mine;
    if (!cores || n <= cores)
        return false;
    if (pid != 0 || raw_call(SYS_getcpu, &first, NULL, NULL) < 0)
        first = (unsigned)(clock_ns() / 1000 % n);
    CPU_ZERO(&mine);
    for (unsigned cpu = first % CPU_SETSIZE; cores > 0; cpu = (cpu + 1) % CPU_SETSIZE) {
        if (!CPU_ISSET(cpu, have))
            continue;
        CPU_SET(cpu, &mine);
        cores--;
    }
    cores_check(c, cores_set_keyed(c, pid, &mine), "sched_setaffinity");
    return true;
}

void native_fence_cores_of(struct native_child *c, pid_t pid)
{
    cpu_set_t have;
    if (!c->plan->cores)
        return;
    CPU_ZERO(&have); /* the kernel fills in as many bytes as it has processors for */
    cores_check(c, raw_call(SYS_sched_getaffinity, 0, sizeof(have), &have), "sched_getaffinity");
    cores_fence(c, pid, &have);
}

void native_fence_cores(struct native_child *c)
{
    native_fence_cores_of(c, 0);
}

void native_cores_gather(struct native_guest *g)
{
    bool spread = atomic_load(&g->is_spread);
    /* pid 1 may have fewer than the guest is to have; who refuses this has refused that as well */
    if (!spread && g->child->n_cores > 0)
        cores_set(0, &g->child->cores);
    if (!spread)
        native_fence_cores(g->child);
    else if (!cores_fence(g->child, 0, &g->cores))
        cores_check(g->child, cores_set(0, &g->cores), "sched_setaffinity");
}
