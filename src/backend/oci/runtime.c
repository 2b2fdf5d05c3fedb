/* The runtime: what it is called with, which descriptors it gets, and how its end is read. Same
 * process as launch.c, and the one that becomes the runtime. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/oci/oci.h"
#include "base/sys.h"
#include "base/util.h"

#define RUNTIME_SAYS PLAN_OCI_PLACE "/says"   /* what the runtime prints */
#define RUNTIME_PANIC PLAN_OCI_PLACE "/panic" /* last words of gVisor's kernel */
#define RUNTIME_HIGH 64                       /* descriptors are put in order above this */

bool oci_is_gvisor(const struct native_child *c)
{
    return c->plan->oci->runtime == PLAN_RUNTIME_RUNSC;
}

/* In the process that becomes the runtime: the descriptors of oci.h, in their order, and no other.
 */
static int runtime_descriptors(struct native_child *c)
{
    int fds[OCI_FD_ENTRIES + CGROUP_ENTRIES_MAX], n = 0;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int says = open(RUNTIME_SAYS, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (null < 0 || says < 0)
        return -1;
    if (oci_is_gvisor(c))
        return sys_close_range(3, ~0U) < 0 ? -1 : 0; /* the streams are the guest's */
    fds[n++] = c->oci->status_fd;
    fds[n++] = c->go_fd;
    for (int i = 0; i < 3; i++)
        fds[n++] = i;
    fds[n++] = c->oci->v2_fd >= 0 ? c->oci->v2_fd : null;
    for (size_t i = 0; i < c->n_entries; i++)
        fds[n++] = c->entries[i];
    for (int i = 0; i < n; i++)
        if ((fds[i] = fcntl(fds[i], F_DUPFD, RUNTIME_HIGH)) < 0)
            return -1;
    if (dup2(null, 0) < 0 || dup2(says, 1) < 0 || dup2(says, 2) < 0)
        return -1;
    for (int i = 0; i < n; i++)
        if (dup2(fds[i], OCI_FD_STATUS + i) < 0)
            return -1;
    return sys_close_range((unsigned)(OCI_FD_STATUS + n), ~0U) < 0 ? -1 : n;
}

/* Where no group bounds gVisor's own tasks: counted per user namespace, which is this run's. The
 * caller's own limit may be tighter. */
static void runtime_limit_tasks(struct native_child *c)
{
    rlim_t n = c->plan->limits.processes;
    struct rlimit limit;
    if (!n || c->plan->by_group.pids)
        return;
    if (getrlimit(RLIMIT_NPROC, &limit) == 0) {
        limit.rlim_max = MIN(limit.rlim_max, n);
        limit.rlim_cur = limit.rlim_max;
        if (setrlimit(RLIMIT_NPROC, &limit) == 0)
            return;
    }
    native_child_fail(c, "rlimit", errno, "setrlimit");
}

/* The guest's memory is the sandbox's: all of it is inside. */
static void runtime_enter_limits(struct native_child *c)
{
    int r = cgroup_enter(c->entries, c->n_entries);
    if (r == 0 && c->oci->v2_fd >= 0)
        r = cgroup_enter(&c->oci->v2_fd, 1);
    if (r < 0)
        native_child_fail(c, "cgroup", -r, "enter");
    native_fence_cores(c);
    runtime_limit_tasks(c);
}

/* runsc reaches its sandbox by an abstract socket of this name, and of these there is one per
 * network: in the host's it must not be that of another run. */
static void runtime_name(const struct native_child *c, char *ret_name, size_t size)
{
    uint64_t own = 0;
    snprintf(ret_name, size, "cordon");
    if (c->plan->host_network && syscall(SYS_getrandom, &own, sizeof(own), 0) == sizeof(own))
        snprintf(ret_name, size, "cordon-%016llx", (unsigned long long)own);
}

_Noreturn void oci_runtime_exec(struct native_child *c)
{
    static char *const env[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/",
                                "XDG_RUNTIME_DIR=" PLAN_OCI_PLACE, NULL};
    const struct plan *p = c->plan;
    static char state[] = PLAN_OCI_STATE, bundle[] = PLAN_OCI_BUNDLE, says[] = RUNTIME_SAYS;
    static char panic[] = RUNTIME_PANIC;
    /* a way out is sockets of the host in the namespace of the gate, which is all they reach */
    static char none_net[] = "--network=none", own_net[] = "--network=host";
    char *path = (char *)p->oci->path, keep[16], name[32];
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (oci_is_gvisor(c))
        runtime_enter_limits(c);
    int n = runtime_descriptors(c);
    if (n < 0)
        native_child_fail(c, "descriptors", errno, "runtime");
    snprintf(keep, sizeof(keep), "%d", n);
    runtime_name(c, name, sizeof(name));
    char *const runc[] = {path, "--root",   state,  "run", "--detach", "--preserve-fds",
                          keep, "--bundle", bundle, name,  NULL};
    char *const crun[] = {path,
                          "--root",
                          state,
                          "--cgroup-manager=disabled",
                          "run",
                          "--detach",
                          "--preserve-fds",
                          keep,
                          "--bundle",
                          bundle,
                          name,
                          NULL};
    char *const runsc[] = {path,
                           "--root",
                           state,
                           "--log",
                           says,
                           "--panic-log",
                           panic,
                           "--rootless",
                           "--ignore-cgroups",
                           "--overlay2=none", /* newer ones lay a memory over a root by default */
                           p->net || p->host_network ? own_net : none_net,
                           "run",
                           "--bundle",
                           bundle,
                           name,
                           NULL};
    char *const *const all[] = {
        [PLAN_RUNTIME_RUNC] = runc, [PLAN_RUNTIME_CRUN] = crun, [PLAN_RUNTIME_RUNSC] = runsc};
    execve(path, all[p->oci->runtime], env);
    native_child_fail(c, "runtime", errno, path);
}

/* The last line the runtime printed: its reason. */
_Noreturn void oci_runtime_failed(struct native_child *c)
{
    static char text[4096];
    int fd = open(RUNTIME_SAYS, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' '))
        n--;
    text[n > 0 ? n : 0] = '\0';
    char *line = strrchr(text, '\n');
    line = line ? line + 1 : text;
    native_child_fail(c, "runtime", 0, *line ? line : "the runtime failed without a word");
}

bool oci_runtime_lacked_task(void)
{
    static char text[8192];
    int fd = open(RUNTIME_PANIC, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    return strstr(text, "failed to create new OS thread") ||
           strstr(text, "resource temporarily unavailable");
}

/* Reaps until the container's init is gone: it is the only child that is left then. */
_Noreturn void oci_runtime_reap(struct native_child *c, pid_t runtime)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, __WALL)) > 0 || errno == EINTR)
        if (pid == runtime && (!WIFEXITED(status) || WEXITSTATUS(status) != 0)) {
            if (atomic_load(&c->status->state) == NATIVE_SETUP)
                oci_runtime_failed(c);
            _exit(1); /* init told its own reason */
        }
    _exit(0);
}
