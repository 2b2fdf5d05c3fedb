/* The doctor: tries every feature of the host once and judges what a run could have. Runs in the
 * command's own process; each attempt in a child that is given PROBE_MS and then killed. */
#include "host/doctor.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/util.h"
#include "host/explain.h"
#include "host/probes.h"

#define PROBE_MS 2000 /* the kernel may have modules to load for it */
#define REAP_MS                                                                                    \
    200 /* after the kill; a process stuck in the kernel is left behind, not waited for */

struct row {
    const char *name, *title;
    enum host_need need;
    bool required;
    bool in_user_ns;      /* not tried where user namespaces are refused */
    host_probe_fn *probe; /* NULL: nothing to try, facts only */
    host_explain_fn *explain;
    const char *lost;
};

/* user_ns is first: the rest depends on it. */
static const struct row rows[] = {
    {"user_ns", "user namespaces", HOST_NEED_FULL, true, false, host_probe_user_ns,
     host_explain_user_ns, NULL},
    {"id_maps", "id maps", HOST_NEED_FULL, true, true, host_probe_id_maps, host_explain_general,
     NULL},
    {"mount_ns", "mount namespace", HOST_NEED_FULL, true, true, host_probe_mount_ns,
     host_explain_general, NULL},
    {"pid_ns", "pid namespace", HOST_NEED_FULL, true, true, host_probe_pid_ns, host_explain_general,
     NULL},
    {"net_ns", "network namespace", HOST_NEED_FULL, true, true, host_probe_net_ns,
     host_explain_general, NULL},
    {"ipc_ns", "ipc namespace", HOST_NEED_FULL, true, true, host_probe_ipc_ns, host_explain_general,
     NULL},
    {"uts_ns", "uts namespace", HOST_NEED_FULL, true, true, host_probe_uts_ns, host_explain_general,
     NULL},
    {"cgroup_ns", "cgroup namespace", HOST_NEED_FULL, true, true, host_probe_cgroup_ns,
     host_explain_general, NULL},
    {"tmpfs", "tmpfs", HOST_NEED_FULL, true, true, host_probe_tmpfs, host_explain_general, NULL},
    {"proc", "own /proc", HOST_NEED_FULL, true, true, host_probe_proc, host_explain_proc, NULL},
    {"devpts", "own /dev/pts", HOST_NEED_FULL, true, true, host_probe_devpts, host_explain_general,
     NULL},
    {"pivot_root", "pivot_root", HOST_NEED_FULL, true, true, host_probe_pivot_root,
     host_explain_general, NULL},
    {"mount_api", "new mount calls", HOST_NEED_FULL, false, true, host_probe_mount_api,
     host_explain_general, NULL},
    {"clone3", "clone3", HOST_NEED_FULL, false, false, host_probe_clone3, host_explain_general,
     NULL},
    {"seccomp", "seccomp filter", HOST_NEED_ANY, true, false, host_probe_seccomp,
     host_explain_general, NULL},
    {"pidfd", "pidfd", HOST_NEED_ANY, true, false, host_probe_pidfd, host_explain_general, NULL},
    {"openat2", "openat2", HOST_NEED_ANY, false, false, host_probe_openat2, host_explain_general,
     NULL},
    {"close_range", "close_range", HOST_NEED_ANY, true, false, host_probe_close_range,
     host_explain_general, NULL},
    {"landlock", "Landlock", HOST_NEED_LANDLOCK, true, false, host_probe_landlock,
     host_explain_landlock, "the second fence around files"},
    {"guest_id", "an id for the guest", HOST_NEED_LANDLOCK, true, false, host_probe_guest_id,
     host_explain_guest_id, NULL},
    {"cgroup", "cgroups", HOST_NEED_LIMITS, true, false, host_probe_cgroup, host_explain_cgroup,
     "exact limits: rlimits and sampling hold them instead"},
    {"veth", "veth pair", HOST_NEED_NETWORK, true, true, host_probe_veth, host_explain_general,
     "network allowlists"},
    {"tproxy", "TPROXY", HOST_NEED_NETWORK, false, true, host_probe_tproxy, host_explain_general,
     "network rules for any port"},
    {"overlay", "overlay", HOST_NEED_OVERLAY, true, true, host_probe_overlay, host_explain_overlay,
     "overlay mounts: workspaces are copied instead"},
    {"idmap", "identity-mapped mounts", HOST_NEED_EXTRA, false, false, host_probe_idmap,
     host_explain_idmap, "granted files shown as the guest's own"},
    {"time_ns", "time namespace", HOST_NEED_EXTRA, false, true, host_probe_time_ns,
     host_explain_general, "a clock of the guest's own"},
    {"seccomp_notify", "seccomp notification", HOST_NEED_EXTRA, false, false,
     host_probe_seccomp_notify, host_explain_notify, "refused system calls in the result"},
    {"apparmor", "AppArmor", HOST_NEED_EXTRA, false, false, NULL, host_explain_apparmor, NULL},
    {"core_pattern", "core dumps", HOST_NEED_EXTRA, false, false, NULL, host_explain_core, NULL},
    {"yama", "ptrace", HOST_NEED_EXTRA, false, false, NULL, host_explain_yama, NULL},
};

_Static_assert(ARRAY_SIZE(rows) <= HOST_ITEMS_MAX, "the report holds every row");

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Polls, so that it needs none of the calls it is about to test. */
static bool reap(pid_t pid, unsigned ms)
{
    uint64_t end = now_ns() + (uint64_t)ms * 1000000;
    struct timespec pause = {.tv_nsec = 50000};

    for (;;) {
        pid_t got = waitpid(pid, NULL, WNOHANG);
        if (got == pid || (got < 0 && errno != EINTR))
            return true; /* ECHILD: the caller ignores SIGCHLD, the kernel reaped it */
        if (now_ns() >= end)
            return false;
        nanosleep(&pause, NULL);
        pause.tv_nsec = MIN(pause.tv_nsec * 2, 2000000);
    }
}

/* Runs one attempt. False when it did not end: then *out is still shared with a stuck process. */
static bool run_probe(host_probe_fn *probe, const struct host *host, struct host_outcome *out)
{
    memset(out, 0, sizeof(*out));
    pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, 0); /* children of the attempt die with it */
        errno = 0;
        probe(host, out);
        __atomic_store_n(&out->done, 1, __ATOMIC_RELEASE);
        _exit(0);
    }
    if (pid < 0) {
        host_probe_fail(out, "fork");
        return true;
    }
    setpgid(pid, pid);
    bool ended = reap(pid, PROBE_MS);
    if (!ended) {
        kill(-pid, SIGKILL);
        kill(pid, SIGKILL);
        reap(pid, REAP_MS);
    } else if (!__atomic_load_n(&out->done, __ATOMIC_ACQUIRE)) {
        errno = EPERM; /* killed on the way: an outer filter with SIGSYS */
        host_probe_fail(out, "killed while trying");
    }
    return ended;
}

static void examine(const struct row *row, const struct host *host, const struct host_facts *facts,
                    bool user_ns_works, struct host_outcome *shared, struct host_item *ret_item)
{
    struct host_outcome none = {0};
    struct host_item item = {.name = row->name,
                             .title = row->title,
                             .need = row->need,
                             .required = row->required,
                             .full_only = row->in_user_ns || row->probe == host_probe_idmap,
                             .lost = row->lost};

    if (row->in_user_ns && !user_ns_works) {
        item.state = HOST_BLOCKED;
        snprintf(item.detail, sizeof(item.detail), "not tried: needs user namespaces");
    } else if (!row->probe) {
        row->explain(host, facts, &none, &item);
    } else if (run_probe(row->probe, host, shared)) {
        shared->step[sizeof(shared->step) - 1] = '\0';
        shared->note[sizeof(shared->note) - 1] = '\0';
        row->explain(host, facts, shared, &item);
    } else {
        item.state = HOST_TIMED_OUT;
        snprintf(item.detail, sizeof(item.detail), "no answer within %d ms", PROBE_MS);
    }
    *ret_item = item;
}

int host_doctor(struct host_report *ret_report, struct cordon_err *err)
{
    struct host_report report = {0};
    struct host_facts facts;
    uint64_t start = now_ns();

    if (host_probe_quick(&report.host, err) < 0)
        return -1;
    host_cgroups_ask_v2(&report.host.cgroups); /* for the other tier */
    host_facts_read(&report.host, &facts);

    /* One page for each row: a stuck attempt that wakes up late must not write into another's. */
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = page * ARRAY_SIZE(rows);
    char *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return err_set(err, CORDON_ERR_INTERNAL, "doctor", errno, "mmap");
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct host_outcome *out = (struct host_outcome *)(void *)(shared + i * page);
        bool user_ns_works = i > 0 && report.items[0].state == HOST_WORKS;
        examine(&rows[i], &report.host, &facts, user_ns_works, out, &report.items[i]);
    }
    munmap(shared, size);
    report.n_items = ARRAY_SIZE(rows);
    host_doctor_judge(&report);
    report.took_ns = now_ns() - start;
    *ret_report = report;
    return 0;
}
