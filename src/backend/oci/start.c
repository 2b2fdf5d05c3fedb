/* What the supervisor does for this wall before and after the clone of the launcher. */
#include "backend/oci/oci.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/err.h"
#include "base/libexec.h"
#include "base/sys.h"
#include "base/util.h"

/* The end of the last loaded part: what follows is for debuggers. */
static int start_exe_size(int fd, size_t *ret)
{
    Elf64_Ehdr head;
    Elf64_Phdr part[32];
    size_t end = 0;
    if (pread(fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head) ||
        memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_phnum > ARRAY_SIZE(part) ||
        head.e_phentsize != sizeof(part[0]))
        return -1;
    ssize_t size = (ssize_t)(head.e_phnum * sizeof(part[0]));
    if (pread(fd, part, (size_t)size, (off_t)head.e_phoff) != size)
        return -1;
    for (int i = 0; i < head.e_phnum; i++) {
        if (part[i].p_type == PT_INTERP)
            return -1; /* it would need a loader inside */
        if (part[i].p_type == PT_LOAD)
            end = MAX(end, (size_t)(part[i].p_offset + part[i].p_filesz));
    }
    *ret = end;
    return 0;
}

void oci_free(struct oci_start *o)
{
    if (!o)
        return;
    util_close(&o->status_fd);
    util_close(&o->exe_fd);
    util_close(&o->v2_fd);
    free(o->job);
    free(o);
}

int oci_prepare(const struct plan *p, struct oci_start **ret, struct native_status **ret_status,
                struct cordon_err *err)
{
    struct oci_start *o = calloc(1, sizeof(*o));
    if (!o)
        return err_nomem(err, "start");
    o->status_fd = o->v2_fd = -1;
    o->exe_fd = libexec_is_command ? open("/proc/self/exe", O_RDONLY | O_CLOEXEC) : -1;
    if (o->exe_fd < 0 || start_exe_size(o->exe_fd, &o->exe_len) < 0) {
        oci_free(o);
        return err_set(err, CORDON_ERR_HOST, "start", 0,
                       "this build of Cordon is not static: it cannot be a container's pid 1");
    }
    o->status_fd = memfd_create("cordon-status", MFD_CLOEXEC);
    void *page = MAP_FAILED;
    if (o->status_fd >= 0 && ftruncate(o->status_fd, sizeof(struct native_status)) == 0)
        page = mmap(NULL, sizeof(struct native_status), PROT_READ | PROT_WRITE, MAP_SHARED,
                    o->status_fd, 0);
    if (page == MAP_FAILED) {
        err_set(err, CORDON_ERR_INTERNAL, "start", errno, "status page");
        oci_free(o);
        return -1;
    }
    if (oci_job_make(p, &o->job, &o->job_len, err) < 0) {
        munmap(page, sizeof(struct native_status));
        oci_free(o);
        return -1;
    }
    /* an id of nobody: taken like a guest's, so that no guest has it meanwhile */
    o->root_id = p->own_host_ids ? native_id_take() : 0;
    *ret = o;
    *ret_status = page;
    return 0;
}

/* What its groups say without what that kernel had used before the guest. */
static void start_own_cpu(const struct native *n, struct backend_usage *u)
{
    u->cpu_user_ns -= MIN(u->cpu_user_ns, n->kernel_user_ns);
    u->cpu_sys_ns -= MIN(u->cpu_sys_ns, n->kernel_sys_ns);
}

void oci_usage(struct native *n, struct backend_usage *u)
{
    if (!n->kernel_user_ns && !n->kernel_sys_ns) {
        n->kernel_user_ns = u->cpu_user_ns;
        n->kernel_sys_ns = u->cpu_sys_ns;
    }
    start_own_cpu(n, u);
    u->processes_peak = 0; /* that kernel's, not the guest's */
}

void oci_outcome(const struct plan *p, const struct native *n, struct backend_outcome *o)
{
    const struct native_inner *in = &n->status->inner;
    struct backend_usage *u = &o->usage;
    o->memory_hit = in->hit == NATIVE_HIT_MEMORY;
    o->processes_hit = in->hit == NATIVE_HIT_PROCESSES;
    u->processes_peak = in->tasks_peak;
    u->throttled_ns = MAX(u->throttled_ns, in->throttled_ns);
    if (!p->by_group.memory)
        u->peak_memory_bytes = in->memory_peak;
    start_own_cpu(n, u);
    /* a guest that was over before anybody looked, or no groups: as its own kernel counted */
    bool known = n->cgroup && (n->kernel_user_ns || n->kernel_sys_ns);
    if (in->told && !known) {
        u->cpu_user_ns = in->cpu_user_ns;
        u->cpu_sys_ns = in->cpu_sys_ns;
    } else if (!known) {
        u->cpu_user_ns = u->cpu_sys_ns = 0; /* who looked from outside knows */
    }
    /* that kernel fell, and it had been refused a task: the burst came between two looks */
    if (o->end == BACKEND_KILLED && u->processes_refused > 0 && u->oom_kills == 0)
        o->processes_hit = true;
}

static int start_run_helper(const char *path, pid_t pid, unsigned root, unsigned guest)
{
    char who[16], zero[16], own[16], inner[16];
    snprintf(who, sizeof(who), "%d", (int)pid);
    snprintf(zero, sizeof(zero), "%u", root);
    snprintf(own, sizeof(own), "%u", guest);
    snprintf(inner, sizeof(inner), "%u", PLAN_GUEST_UID);
    char *const argv[] = {(char *)path, who, "0", zero, "1", inner, own, "1", NULL};
    char *const env[] = {NULL};
    pid_t child = fork();
    if (child == 0) {
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        for (int i = 0; i < 3; i++)
            if (null < 0 || dup2(null, i) < 0)
                _exit(126);
        execve(path, argv, env);
        _exit(127);
    }
    int status = -1;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

static int start_write(pid_t pid, const char *name, const char *text)
{
    char path[48];
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    _cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -1;
}

static int start_map_user(const struct plan *p, pid_t pid, struct cordon_err *err)
{
    if (start_run_helper("/usr/bin/newuidmap", pid, p->oci->sub_uid, p->host_uid) == 0 &&
        start_run_helper("/usr/bin/newgidmap", pid, p->oci->sub_gid, p->host_gid) == 0)
        return 0;
    err_set(err, CORDON_ERR_HOST, "start", 0, "newuidmap does not give the ids of /etc/subuid");
    return err_hint(err, "look at /etc/subuid and /etc/subgid, or use --backend native");
}

int oci_write_maps(const struct plan *p, const struct oci_start *o, pid_t pid, unsigned id,
                   bool *ret_refused, struct cordon_err *err)
{
    char map[96];
    if (!p->own_host_ids)
        return p->oci->alone ? 0 : start_map_user(p, pid, err);
    snprintf(map, sizeof(map), "0 %u 1\n%u %u 1\n", o->root_id, PLAN_GUEST_UID, id);
    if (start_write(pid, "uid_map", map) == 0 && start_write(pid, "gid_map", map) == 0)
        return 0;
    *ret_refused = errno == EPERM || errno == EACCES;
    return err_set(err, CORDON_ERR_HOST, "ids", errno, "id map of the launcher's user namespace");
}
