/* The doctor's attempts at namespaces, filters, processes and groups. Runs in throw-away children
 * of the doctor (and their children): no allocation, no output, results only through *out. */
#include "host/probes.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sys.h"
#include "base/util.h"
#include "host/read.h"
#include "host/text.h"

int host_probe_fail(struct host_outcome *out, const char *step)
{
    out->error = errno ? errno : EINVAL;
    snprintf(out->step, sizeof(out->step), "%s", step);
    return -1;
}

static int write_text(const char *path, const char *text)
{
    _cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t len = (ssize_t)strlen(text);
    return write(fd, text, (size_t)len) == len ? 0 : -1;
}

int host_probe_enter(const struct host *host, int flags, struct host_outcome *out)
{
    char map[64];

    if (unshare(CLONE_NEWUSER) < 0)
        return host_probe_fail(out, "unshare");
    snprintf(map, sizeof(map), "0 %u 1\n", (unsigned)host->uid);
    if (write_text("/proc/self/setgroups", "deny") < 0)
        return host_probe_fail(out, "write setgroups");
    if (write_text("/proc/self/uid_map", map) < 0)
        return host_probe_fail(out, "write uid_map");
    snprintf(map, sizeof(map), "0 %u 1\n", (unsigned)host->gid);
    if (write_text("/proc/self/gid_map", map) < 0)
        return host_probe_fail(out, "write gid_map");
    if (flags && unshare(flags) < 0)
        return host_probe_fail(out, "unshare");
    if ((flags & CLONE_NEWNS) && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return host_probe_fail(out, "make mounts private");
    return 0;
}

void host_probe_user_ns(const struct host *host, struct host_outcome *out)
{
    /* A security module may let the namespace be made and then refuse its capabilities: only using
     * one tells. */
    if (host_probe_enter(host, 0, out) == 0 && unshare(CLONE_NEWUTS) < 0)
        host_probe_fail(out, "use its capabilities");
}

static int wait_for(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return -1;
    }
    return status;
}

/* As root the parent maps a foreign id for the guest; that needs rights in the outer namespace
 * which a container may have withheld. */
void host_probe_id_maps(const struct host *host, struct host_outcome *out)
{
    int ready[2], release[2];
    char path[64], byte = 0;

    if (!host->is_root) {
        host_probe_enter(host, 0, out);
        return;
    }
    if (pipe2(ready, O_CLOEXEC) < 0 || pipe2(release, O_CLOEXEC) < 0) {
        host_probe_fail(out, "pipe");
        return;
    }
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        byte = unshare(CLONE_NEWUSER) == 0;
        if (write(ready[1], &byte, 1) == 1)
            (void)!read(release[0], &byte, 1);
        _exit(0);
    }
    if (pid < 0 || read(ready[0], &byte, 1) != 1 || !byte) {
        host_probe_fail(out, "unshare");
        return;
    }
    snprintf(path, sizeof(path), "/proc/%d/uid_map", pid);
    if (write_text(path, "1000 65534 1\n") < 0)
        host_probe_fail(out, "write uid_map of a child");
    snprintf(path, sizeof(path), "/proc/%d/gid_map", pid);
    if (!out->error && write_text(path, "1000 65534 1\n") < 0)
        host_probe_fail(out, "write gid_map of a child");
    kill(pid, SIGKILL);
    wait_for(pid);
}

void host_probe_mount_ns(const struct host *host, struct host_outcome *out)
{
    host_probe_enter(host, CLONE_NEWNS, out);
}

void host_probe_pid_ns(const struct host *host, struct host_outcome *out)
{
    if (host_probe_enter(host, CLONE_NEWPID, out) < 0)
        return;
    pid_t pid = fork();
    if (pid == 0)
        _exit(getpid() == 1 ? 0 : 1);
    int status = pid < 0 ? -1 : wait_for(pid);
    if (status != 0)
        host_probe_fail(out, "fork");
}

void host_probe_net_ns(const struct host *host, struct host_outcome *out)
{
    host_probe_enter(host, CLONE_NEWNET, out);
}

void host_probe_ipc_ns(const struct host *host, struct host_outcome *out)
{
    host_probe_enter(host, CLONE_NEWIPC, out);
}

void host_probe_uts_ns(const struct host *host, struct host_outcome *out)
{
    if (host_probe_enter(host, CLONE_NEWUTS, out) == 0 && sethostname("cordon", 6) < 0)
        host_probe_fail(out, "sethostname");
}

void host_probe_cgroup_ns(const struct host *host, struct host_outcome *out)
{
    host_probe_enter(host, CLONE_NEWCGROUP, out);
}

void host_probe_time_ns(const struct host *host, struct host_outcome *out)
{
    if (host_probe_enter(host, CLONE_NEWTIME, out) == 0 &&
        write_text("/proc/self/timens_offsets", "monotonic 0 0\n") < 0)
        host_probe_fail(out, "write timens_offsets");
}

void host_probe_landlock(const struct host *host, struct host_outcome *out)
{
    struct sys_landlock_ruleset_attr attr = {.handled_access_fs = SYS_LANDLOCK_FS_EXECUTE};
    int abi = host->landlock_abi;

    errno = ENOSYS;
    if (abi == 0) {
        sys_landlock_create_ruleset(NULL, 0, SYS_LANDLOCK_CREATE_RULESET_VERSION);
        host_probe_fail(out, "landlock_create_ruleset");
        return;
    }
    int fd = sys_landlock_create_ruleset(&attr, sizeof(attr.handled_access_fs), 0);
    if (fd < 0)
        host_probe_fail(out, "landlock_create_ruleset");
    else if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        host_probe_fail(out, "no_new_privs");
    else if (sys_landlock_restrict_self(fd) < 0)
        host_probe_fail(out, "landlock_restrict_self");
    snprintf(out->note, sizeof(out->note), "abi %d: files%s%s%s", abi, abi >= 4 ? ", TCP" : "",
             abi >= 5 ? ", device ioctls" : "", abi >= 6 ? ", signals, abstract sockets" : "");
}

/* Root's guests have another id than root. Where few are mapped, one of those services get for a
 * moment. */
void host_probe_guest_id(const struct host *host, struct host_outcome *out)
{
    static const uid_t ids[] = {2000000000, 61184};
    for (size_t i = 0; host->uid == 0 && i < ARRAY_SIZE(ids); i++) {
        if (setresgid(ids[i], ids[i], ids[i]) == 0 && setresuid(ids[i], ids[i], ids[i]) == 0)
            return;
        if (errno != EINVAL || i + 1 == ARRAY_SIZE(ids))
            host_probe_fail(out, "setresuid");
    }
}

static int install_filter(unsigned flags)
{
    struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog prog = {.len = 1, .filter = &allow};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -1;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog);
}

void host_probe_seccomp(const struct host *host, struct host_outcome *out)
{
    (void)host;
    if (install_filter(0) < 0)
        host_probe_fail(out, "seccomp");
}

void host_probe_seccomp_notify(const struct host *host, struct host_outcome *out)
{
    (void)host;
    if (install_filter(SECCOMP_FILTER_FLAG_NEW_LISTENER) < 0)
        host_probe_fail(out, "seccomp");
}

void host_probe_clone3(const struct host *host, struct host_outcome *out)
{
    (void)host;
    struct clone_args args = {.exit_signal = SIGCHLD};
    pid_t pid = sys_clone3(&args);
    if (pid == 0)
        _exit(0);
    if (pid < 0)
        host_probe_fail(out, "clone3");
    else
        wait_for(pid);
}

void host_probe_pidfd(const struct host *host, struct host_outcome *out)
{
    (void)host;
    int fd = sys_pidfd_open(getpid());
    if (fd < 0)
        host_probe_fail(out, "pidfd_open");
    else if (sys_pidfd_send_signal(fd, 0) < 0)
        host_probe_fail(out, "pidfd_send_signal");
}

void host_probe_close_range(const struct host *host, struct host_outcome *out)
{
    (void)host;
    if (sys_close_range(~0U, ~0U) < 0)
        host_probe_fail(out, "close_range");
}

void host_probe_openat2(const struct host *host, struct host_outcome *out)
{
    (void)host;
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_BENEATH};
    int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (sys_openat2(root, "proc", &how) < 0)
        host_probe_fail(out, "openat2");
}

/* Makes a group, puts a process into it, removes it. The name is of the form that the clean-up of
 * leftovers knows, should this child be killed in between. */
static int try_group(const char *parent, struct host_outcome *out)
{
    char dir[HOST_PATH_MAX + 64], procs[HOST_PATH_MAX + 96], stat_text[1024];

    if (host_read("/proc/self/stat", stat_text, sizeof(stat_text)) < 0)
        return host_probe_fail(out, "read /proc/self/stat");
    snprintf(dir, sizeof(dir), "%s/cordon-%d-%llu-0", parent, getpid(),
             (unsigned long long)host_text_start_time(stat_text));
    snprintf(procs, sizeof(procs), "%s/cgroup.procs", dir);
    if (mkdir(dir, 0755) < 0) {
        host_probe_fail(out, "mkdir in ");
        strncat(out->step, parent, sizeof(out->step) - strlen(out->step) - 1);
        return -1;
    }
    pid_t pid = fork();
    if (pid == 0)
        _exit(write_text(procs, "0\n") < 0 ? errno : 0);
    int status = pid < 0 ? -1 : wait_for(pid);
    if (status != 0) {
        errno = status > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : EAGAIN;
        host_probe_fail(out, "move a process into a group");
    }
    /* The dead process leaves its group a moment after it was reaped. */
    for (int i = 0; rmdir(dir) < 0 && errno == EBUSY && i < 100; i++)
        usleep(1000);
    return status == 0 ? 0 : -1;
}

void host_probe_cgroup(const struct host *host, struct host_outcome *out)
{
    const struct host_cgroups *c = &host->cgroups;
    const char *dirs[] = {c->memory, c->pids, c->cpu, c->v2};

    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
        if (dirs[i][0] && try_group(dirs[i], out) < 0)
            return;
    }
}
