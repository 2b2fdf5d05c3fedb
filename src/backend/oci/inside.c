/* pid 1 of a gVisor container.
 *
 * gVisor lets a guest stop or kill a pid 1 of its own id, so this one is root of gVisor's own
 * kernel, with the few rights it takes to give the guest its id and to end it; the guest is an
 * ordinary user there. No descriptor of ours can be handed in: what there is to tell goes into a
 * file that only root may open, and the launcher outside reads it. The first word says that the
 * guest is about to start, the last one how it ended, when every process of it is gone.
 *
 * That kernel is the guest's alone, so its own count of memory and tasks is the guest's: limits
 * that no control group holds exactly are held here, by looking. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/oci/oci.h"
#include "base/clock.h"
#include "base/sys.h"
#include "base/util.h"
#include "init/look.h"
#include "init/sweep.h"

#define INSIDE_LOOK_MS 10  /* one call of 0.1 ms */
#define INSIDE_SLOW_MS 100 /* where no limit depends on it */
/* What was seen so far is told in between, for the case that nobody is left to tell it. */
#define INSIDE_NEWS_NS 100000000u
#define INSIDE_NEWS_BYTES (4u << 20)

struct inside {
    struct native_child *c;
    int report_fd, signal_fd;
    pid_t main_pid;
    uint64_t began_ns;
    struct look_duty duty;
    uint64_t told_ns, told_bytes;
    unsigned told_tasks;
    struct oci_report report;
};

static void inside_tell(struct inside *in)
{
    if (pwrite(in->report_fd, &in->report, sizeof(in->report), 0) != (ssize_t)sizeof(in->report))
        _exit(OCI_INIT_BROKEN);
}

static _Noreturn void inside_fail(struct inside *in, const char *stage, int error, const char *what)
{
    in->report.state = NATIVE_FAILED;
    in->report.fail_errno = error;
    snprintf(in->report.stage, sizeof(in->report.stage), "%s", stage);
    snprintf(in->report.what, sizeof(in->report.what), "%s", what);
    inside_tell(in);
    _exit(OCI_INIT_BROKEN);
}

/* Everything of the guest dies before the last word. */
static _Noreturn void inside_end(struct inside *in, enum native_hit hit)
{
    struct oci_report *r = &in->report;
    const struct native_status *s = in->c->status;
    struct rusage used = {0};
    if (!r->wall_ns)
        r->wall_ns = clock_ns() - in->began_ns;
    unsigned together = sweep_all(in->main_pid, &r->wstatus);
    getrusage(RUSAGE_CHILDREN, &used);
    r->cpu_user_ns = native_tv_ns(used.ru_utime);
    r->cpu_sys_ns = native_tv_ns(used.ru_stime);
    r->tasks_peak = MAX(r->tasks_peak, together + (hit == NATIVE_HIT_NONE));
    r->throttled_ns = in->duty.stopped_ns;
    r->scratch_full = s->scratch_full;
    r->static_bytes = s->static_bytes;
    r->hit = hit;
    r->state = NATIVE_EXITED;
    if (s->state == NATIVE_EXEC_FAILED) {
        r->state = NATIVE_EXEC_FAILED;
        r->exec_errno = s->exec_errno;
    } else if (s->state == NATIVE_FAILED) {
        inside_fail(in, s->stage, s->fail_errno, s->what);
    }
    if (in->c->plan->writes_host)
        sync(); /* the launcher does not wait for more than this word */
    inside_tell(in);
    _exit(0);
}

static bool inside_reap(struct inside *in)
{
    int wstatus;
    pid_t pid;
    while ((pid = waitpid(-1, &wstatus, WNOHANG | __WALL)) > 0) {
        if (pid != in->main_pid)
            continue;
        in->report.wstatus = wstatus;
        in->report.wall_ns = clock_ns() - in->began_ns;
        native_init_note_scratch(in->c->status);
        if (WIFSIGNALED(wstatus))
            native_command_note_static(in->c->plan, in->c->status);
        return true;
    }
    return false;
}

/* Signals from outside have no sender here; nobody inside may send us one. */
static void inside_forward(struct inside *in)
{
    struct signalfd_siginfo info;
    while (read(in->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        if (info.ssi_signo != SIGCHLD && info.ssi_pid == 0)
            kill(in->main_pid, (int)info.ssi_signo);
}

static void inside_news(struct inside *in)
{
    const struct oci_report *r = &in->report;
    uint64_t now = clock_ns();
    if (now < in->told_ns + INSIDE_NEWS_NS ||
        (r->memory_peak < in->told_bytes + INSIDE_NEWS_BYTES && r->tasks_peak <= in->told_tasks))
        return;
    in->told_ns = now;
    in->told_bytes = r->memory_peak;
    in->told_tasks = r->tasks_peak;
    inside_tell(in);
}

static void inside_look(struct inside *in)
{
    const struct plan_limits *l = &in->c->plan->limits;
    struct look now;
    if (!look_kernel(&now))
        return;
    in->report.memory_peak = MAX(in->report.memory_peak, now.memory_bytes);
    in->report.tasks_peak = MAX(in->report.tasks_peak, now.tasks);
    if (l->memory_bytes && now.memory_bytes > l->memory_bytes)
        inside_end(in, NATIVE_HIT_MEMORY);
    if (l->processes && now.tasks > l->processes)
        inside_end(in, NATIVE_HIT_PROCESSES);
    inside_news(in);
    if (!l->cpu_percent)
        return;
    bool stood = in->duty.since_ns != 0;
    look_tree(&now);
    if (look_duty(&in->duty, l->cpu_percent, clock_ns(), now.cpu_ns) != stood)
        kill(-1, stood ? SIGCONT : SIGSTOP);
}

static _Noreturn void inside_watch(struct inside *in)
{
    const struct plan_limits *l = &in->c->plan->limits;
    int pace = l->memory_bytes || l->processes || l->cpu_percent ? INSIDE_LOOK_MS : INSIDE_SLOW_MS;
    struct pollfd fd = {.fd = in->signal_fd, .events = POLLIN};
    for (;;) {
        int woken = poll(&fd, 1, pace);
        if (inside_reap(in))
            inside_end(in, NATIVE_HIT_NONE);
        if (woken > 0)
            inside_forward(in);
        inside_look(in);
    }
}

int oci_inside_main(struct native_child *c)
{
    static struct inside in = {.report_fd = -1};
    struct native_guest guest = {.child = c, .fence_fd = -1, .mounts_fd = -1, .sig_fd = -1};
    sigset_t all;
    in.c = c;
    in.report_fd = open(OCI_REPORT, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (in.report_fd < 0)
        return OCI_INIT_BROKEN;
    sigfillset(&all);
    if (prctl(PR_SET_DUMPABLE, 0) < 0 || sigprocmask(SIG_BLOCK, &all, NULL) < 0)
        inside_fail(&in, "signals", errno, "sigprocmask");
    in.signal_fd = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    if (in.signal_fd < 0)
        inside_fail(&in, "signals", errno, "signalfd");
    in.report.state = NATIVE_STARTED;
    inside_tell(&in);
    in.began_ns = in.duty.began_ns = in.told_ns = clock_ns();
    in.main_pid = native_guest_clone(&guest);
    if (in.main_pid < 0)
        inside_fail(&in, "fork", errno, "clone");
    native_set_capabilities(c, 1u << CAP_KILL);
    sys_close_range(0, 2); /* the guest's */
    inside_watch(&in);
}
