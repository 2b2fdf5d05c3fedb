/* The launcher beside a running gVisor: takes pid 1's words from the file that only the two share,
 * hands signals on, and ends the sandbox as soon as the last word is there. Same process as
 * launch.c: it allocates nothing. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/oci/oci.h"
#include "base/clock.h"
#include "base/util.h"

#define GVISOR_GLANCE_MS 5 /* where nobody tells us of a word */

struct gvisor {
    struct native_child *c;
    pid_t runtime;
    int report_fd;
    struct oci_report report;
};

void oci_gvisor_prepare(struct native_child *c)
{
    int fd = open(PLAN_OCI_REPORT, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        native_child_fail(c, "bundle", errno, PLAN_OCI_REPORT);
    close(fd);
    if (mknod(PLAN_OCI_ROOT OCI_REPORT, S_IFREG | 0600, 0) < 0)
        native_child_fail(c, "bundle", errno, OCI_REPORT);
}

/* Whatever the file holds: only whole words count. */
static bool gvisor_hears(struct gvisor *g)
{
    struct oci_report r;
    if (pread(g->report_fd, &r, sizeof(r), 0) != (ssize_t)sizeof(r))
        return false;
    r.stage[sizeof(r.stage) - 1] = '\0';
    r.what[sizeof(r.what) - 1] = '\0';
    g->report = r;
    return true;
}

/* The first word is the start of the guest; every word has what was seen so far. */
static void gvisor_note(struct gvisor *g)
{
    struct native_status *s = g->c->status;
    s->inner.memory_peak = g->report.memory_peak;
    s->inner.tasks_peak = g->report.tasks_peak;
    if (atomic_load(&s->state) != NATIVE_SETUP)
        return;
    s->started_ns = clock_ns();
    atomic_store(&s->state, NATIVE_STARTED);
}

static _Noreturn void gvisor_ended(struct gvisor *g)
{
    struct native_status *s = g->c->status;
    const struct oci_report *r = &g->report;
    kill(-1, SIGKILL);
    while (waitpid(-1, NULL, __WALL) > 0 || errno == EINTR)
        ;
    if (r->state == NATIVE_FAILED)
        native_child_fail(g->c, r->stage, r->fail_errno, r->what);
    s->exited_ns = s->started_ns + r->wall_ns;
    s->wstatus = r->wstatus;
    s->exec_errno = r->exec_errno;
    s->scratch_full = r->scratch_full;
    s->static_bytes = r->static_bytes;
    s->inner.told = true;
    s->inner.hit = (enum native_hit)r->hit;
    s->inner.cpu_user_ns = r->cpu_user_ns;
    s->inner.cpu_sys_ns = r->cpu_sys_ns;
    s->inner.throttled_ns = r->throttled_ns;
    atomic_store(&s->state, r->state == NATIVE_EXEC_FAILED ? NATIVE_EXEC_FAILED : NATIVE_EXITED);
    native_child_note_end(g->c);
    _exit(0);
}

static void gvisor_listen(struct gvisor *g)
{
    if (!gvisor_hears(g))
        return;
    gvisor_note(g);
    if (g->report.state != NATIVE_STARTED)
        gvisor_ended(g);
}

/* The runtime ended by itself: with a last word, before the first one, or in between, which means
 * that its kernel fell; the state then says that it ran. */
static _Noreturn void gvisor_fell(struct gvisor *g)
{
    gvisor_listen(g);
    if (atomic_load(&g->c->status->state) == NATIVE_SETUP)
        oci_runtime_failed(g->c);
    /* its tasks are bounded for what the guest may have, many times over: the guest's burst came
     * between two looks of pid 1 */
    if (g->c->plan->limits.processes && oci_runtime_lacked_task())
        g->c->status->inner.hit = NATIVE_HIT_PROCESSES;
    g->c->status->exited_ns = clock_ns();
    _exit(1);
}

static void gvisor_signal(struct gvisor *g)
{
    char sig;
    if (read(g->c->go_fd, &sig, 1) <= 0)
        _exit(1); /* the supervisor is gone */
    kill(g->runtime, sig);
}

/* A write into the report sends SIGCHLD, which we wait for anyway. Not inotify: the end of its
 * instance, and with it ours, waits 15 to 30 ms for the kernel. The folder stays open. */
static bool gvisor_is_told(void)
{
    int folder = open(PLAN_OCI_PLACE, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return folder >= 0 && fcntl(folder, F_SETSIG, SIGCHLD) == 0 &&
           fcntl(folder, F_NOTIFY, DN_MODIFY | DN_MULTISHOT) == 0;
}

_Noreturn void oci_gvisor_watch(struct native_child *c, pid_t runtime, int sig_fd)
{
    struct gvisor g = {.c = c, .runtime = runtime};
    int pace = gvisor_is_told() ? -1 : GVISOR_GLANCE_MS;
    g.report_fd = open(PLAN_OCI_REPORT, O_RDONLY | O_CLOEXEC);
    if (g.report_fd < 0)
        native_child_fail(c, "bundle", errno, PLAN_OCI_REPORT);
    for (;;) {
        int status;
        pid_t pid;
        while ((pid = waitpid(-1, &status, __WALL | WNOHANG)) > 0)
            if (pid == runtime)
                gvisor_fell(&g);
        gvisor_listen(&g); /* also what was said before anybody told us of words */
        struct pollfd fds[2] = {{.fd = sig_fd, .events = POLLIN},
                                {.fd = c->go_fd, .events = POLLIN}};
        if (poll(fds, 2, pace) < 0 && errno != EINTR)
            native_child_fail(c, "init", errno, "poll");
        char drop[512];
        if (fds[0].revents)
            (void)!read(sig_fd, drop, sizeof(drop));
        if (fds[1].revents)
            gvisor_signal(&g);
    }
}
