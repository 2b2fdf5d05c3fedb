/* The container's pid 1: the native wall's pid 1 after its root, in a container that a runtime
 * made. It starts with nothing but what was handed in: no capability, the guest's own id, the
 * descriptors of oci.h. Before the guest exists it is not dumpable, so the guest can take none of
 * them. */
#include "backend/oci/oci.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"

#define INIT_JOB "/.cordon/job"

static int init_load(struct plan *ret)
{
    struct stat st;
    _cleanup_close_ int fd = open(INIT_JOB, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_size <= 0 || (size_t)st.st_size > OCI_JOB_MAX)
        return -1;
    char *text = malloc((size_t)st.st_size);
    for (off_t done = 0; text && done < st.st_size;) {
        ssize_t n = read(fd, text + done, (size_t)(st.st_size - done));
        if (n <= 0)
            return -1;
        done += n;
    }
    return text ? oci_job_read(text, (size_t)st.st_size, ret) : -1;
}

/* The streams of the guest take the place of the runtime's. */
static void init_descriptors(struct native_child *c)
{
    c->go_fd = OCI_FD_GO;
    for (int i = 0; i < 3; i++) {
        if (dup2(OCI_FD_STDIN + i, i) < 0)
            native_child_fail(c, "descriptors", errno, "dup2");
        close(OCI_FD_STDIN + i);
    }
    for (int fd = OCI_FD_STATUS; fd < OCI_FD_ENTRIES + CGROUP_ENTRIES_MAX; fd++) {
        if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
            continue;
        if (fd >= OCI_FD_ENTRIES)
            c->entries[c->n_entries++] = fd;
    }
}

static _Noreturn void init_guarded(struct native_child *c)
{
    init_descriptors(c);
    int v2 = OCI_FD_V2;
    int r = c->plan->cgroups.v2[0] ? cgroup_enter(&v2, 1) : 0;
    if (r < 0)
        native_child_fail(c, "cgroup", -r, "enter");
    close(OCI_FD_V2);
    close(OCI_FD_STATUS);
    int sig_fd = native_child_signals(c, false);
    if (prctl(PR_SET_DUMPABLE, 0) < 0)
        native_child_fail(c, "dumpable", errno, "prctl");
    struct native_guest guest = {
        .child = c, .fence_fd = native_fence_make(c, -1), .mounts_fd = -1, .sig_fd = sig_fd};
    native_child_note_usage(c);
    pid_t pid = native_guest_clone(&guest);
    if (pid < 0)
        native_child_fail(c, "fork", errno, "clone");
    native_init_run(c, pid, &guest);
}

int oci_init_main(void)
{
    static struct plan plan;
    static struct native_child c = {.plan = &plan, .go_fd = -1, .done_fd = -1};
    if (init_load(&plan) < 0)
        return OCI_INIT_BROKEN;
    bool gvisor = plan.oci->runtime == PLAN_RUNTIME_RUNSC;
    c.status = mmap(NULL, sizeof(*c.status), PROT_READ | PROT_WRITE,
                    MAP_SHARED | (gvisor ? MAP_ANONYMOUS : 0), gvisor ? -1 : OCI_FD_STATUS, 0);
    if (c.status == MAP_FAILED)
        return OCI_INIT_BROKEN;
    umask(022);
    if (gvisor)
        return oci_inside_main(&c);
    if (chdir(plan.cwd) < 0)
        native_child_fail(&c, "working directory", errno, plan.cwd);
    init_guarded(&c);
}
