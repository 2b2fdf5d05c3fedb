/* The guest's pid 1 once the guest runs: reaps, answers refused system calls, and ends everything
 * when the guest's main process ends or the supervisor is gone. Runs without capabilities, inside
 * the guest's limits, not dumpable; it touches nothing the guest controls but the call number of a
 * refused call. */
#include "backend/native/native_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fdsend.h"
#include "base/sys.h"
#include "base/util.h"

/* The supervisor ends a guest at its time limit, unless it is busy with what another one left: then
 * pid 1 does, so much later. */
#define INIT_LATE_NS UINT64_C(50000000)

/* Of a guest's disk this much may be left to the kernel. */
#define INIT_LEAVE_BYTES (1u << 20)
#define INIT_LEAVE_FILES 256

/* A guest that storms refused calls makes pid 1 work, and pid 1 is not in every group that holds
 * the guest's limits: past this many answers each further one waits, which bounds our share of a
 * core to about a twentieth. */
#define INIT_ANSWERS_FREE 1000
#define INIT_NOTES_FREE 20000
#define INIT_ANSWER_PAUSE_NS 200000

bool native_is_plain_fork(const struct plan *plan, unsigned nr, uint64_t flags)
{
    const uint64_t namespaces = 0x7e020000;
    if (!plan->filter_options.refuse_fork)
        return false;
    return nr == SYS_fork || nr == SYS_vfork || (nr == SYS_clone && !(flags & namespaces));
}

/* Nothing a guest does gives these: who asked would wait for an answer until its time is over. */
bool native_is_notify_broken(int error)
{
    return error == ENOSYS || error == EPERM || error == ENOTTY || error == EINVAL;
}

static struct {
    unsigned refused, noted;
} init_answers;

void native_pace_begin(void)
{
    init_answers.refused = init_answers.noted = 0;
}

static void init_pace(unsigned *answers, unsigned most)
{
    if (++*answers > most) {
        *answers = most;
        nanosleep(&(struct timespec){.tv_nsec = INIT_ANSWER_PAUSE_NS}, NULL);
    }
}

void native_pace_refusals(void)
{
    init_pace(&init_answers.refused, INIT_ANSWERS_FREE);
}

/* Answers one call. Only the number is read: pointers of a guest are never followed, and a refused
 * call is never let through. */
void native_init_answer(struct native_child *c, int listener)
{
    struct native_status *status = c->status;
    struct seccomp_notif req;
    memset(&req, 0, sizeof(req));
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &req) < 0) {
        if (native_is_notify_broken(errno))
            native_child_fail(c, "init", errno, "seccomp notification");
        return; /* the caller died meanwhile */
    }
    unsigned nr = (unsigned)req.data.nr;
    struct seccomp_notif_resp resp = {.id = req.id, .error = -EPERM};
    enum seccomp_note note = c->notes_calls ? seccomp_note_of(&req.data) : SECCOMP_NOTE_NONE;
    uint32_t verdict = note ? seccomp_eval(&c->plan->filter, &req.data) : 0;
    if (note && verdict == SECCOMP_RET_ALLOW) {
        /* The filter judges by numbers in registers, which nobody can change while the caller waits
         * in the kernel: what it would allow may go on, and is known to have happened. */
        c->noted |= note;
        resp.error = 0;
        resp.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    } else if (note && (verdict & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_ERRNO) {
        resp.error = -(int)(verdict & SECCOMP_RET_DATA);
    } else if (nr == SYS_mmap || nr == SYS_mremap) {
        resp.error = -ENOMEM; /* what the kernel would answer; here it is also known */
        atomic_fetch_add(&status->memory_refused, 1);
    } else if (native_is_plain_fork(c->plan, nr, req.data.args[0])) {
        resp.error = -EAGAIN;
        atomic_fetch_add(&status->processes_refused, 1);
    } else {
        atomic_fetch_add(&status->denials[nr < NATIVE_CALLS ? nr : NATIVE_CALLS - 1], 1);
    }
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &resp);
    if (resp.flags)
        init_pace(&init_answers.noted, INIT_NOTES_FREE);
    else
        native_pace_refusals();
}

void native_init_note_scratch(struct native_status *status)
{
    struct statfs fs;
    if (statfs("/tmp", &fs) == 0 && (fs.f_bfree == 0 || (fs.f_files && fs.f_ffree == 0)))
        status->scratch_full = fs.f_bfree == 0 ? 1 : 2;
}

/* A signal the supervisor forwards to the main process; false when the supervisor is gone. */
bool native_init_forward(int go_fd, pid_t main_pid)
{
    unsigned char sig = 0;
    ssize_t n = read(go_fd, &sig, 1);
    if (n == 1 && sig >= 1 && sig <= 64)
        kill(main_pid, sig);
    return n == 1 || (n < 0 && errno == EINTR);
}

/* Takes every dead child; true when the main process was among them. alone: no other is left, and
 * with no child of ours there is no process at all. */
static bool init_reap(struct native_child *c, pid_t main_pid, bool *ret_alone)
{
    struct native_status *status = c->status;
    bool main_gone = false;
    for (;;) {
        int wstatus;
        pid_t pid = waitpid(-1, &wstatus, WNOHANG | __WALL);
        if (pid < 0 && errno != ECHILD && errno != EINTR)
            native_child_fail(c, "init", errno, "wait");
        *ret_alone = pid < 0 && errno == ECHILD;
        if (pid <= 0)
            return main_gone;
        if (main_gone)
            status->ended_together++;
        /* who asked to be traced by its parent, and stopped, has not ended */
        if (pid == main_pid && (WIFEXITED(wstatus) || WIFSIGNALED(wstatus))) {
            status->wstatus = wstatus;
            status->exited_ns = clock_ns();
            native_init_note_scratch(status);
            if (WIFSIGNALED(wstatus))
                native_command_note_static(c->plan, status);
            status->ended_together++;
            main_gone = true;
        }
    }
}

/* The end of the guest's mounts takes the kernel longer than all the rest of ours, which is waited
 * for. Where nobody needs them gone at once, they are left to its collector of sockets: one that
 * lies in its own queue, with the namespace beside it, belongs to nobody when we are gone, and a
 * worker of the kernel frees both (Linux 6.9; before, our own exit does). Not before the end: the
 * guest would see the sockets, and while one is on its way, each close of another costs a look.
 * What cannot be left goes with us, and so does a guest's disk that is more than a little: one
 * worker would have to keep up with what all cores fill, in nobody's group. */
static void init_leave_mounts(int mounts_fd)
{
    int pair[2];
    struct iovec iov = {"m", 1};
    struct statfs fs;
    if (mounts_fd < 0 || statfs("/tmp", &fs) < 0 ||
        (fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize > INIT_LEAVE_BYTES ||
        fs.f_files - fs.f_ffree > INIT_LEAVE_FILES ||
        socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) < 0)
        return;
    const int fds[] = {mounts_fd, pair[1]};
    (void)!fdsend_fds(pair[0], &iov, 1, fds, ARRAY_SIZE(fds), MSG_DONTWAIT);
    close(pair[1]);
}

/* What the main process left behind dies with it. Killing from inside costs one call; should
 * anything survive it, the end of pid 1 makes the kernel finish the job. */
static _Noreturn void init_end(struct native_child *c, bool alone, int mounts_fd)
{
    if (!alone) {
        kill(-1, SIGKILL);
        pid_t pid;
        while ((pid = waitpid(-1, NULL, __WALL)) > 0 || errno == EINTR)
            c->status->ended_together += pid > 0;
    }
    native_child_note_end(c);
    /* said before the end: at its exit a process takes its namespaces down before the kernel gets
     * to its descriptors, and the supervisor can clean up meanwhile */
    close(c->done_fd);
    init_leave_mounts(mounts_fd);
    _exit(0);
}

/* Milliseconds until then, by our own clock, whatever the guest's shows; -1: for ever. */
int native_init_rest_ms(const struct native_status *status, uint64_t begun_ns)
{
    uint64_t gone = clock_ns() - begun_ns, end = status->wall_ns + INIT_LATE_NS;
    if (!status->wall_ns)
        return -1;
    return gone >= end ? 0 : (int)MIN((end - gone) / 1000000 + 1, 3600000u);
}

_Noreturn void native_init_run(struct native_child *c, pid_t main_pid, struct native_guest *g)
{
    struct native_status *status = c->status;
    int sigfd = g->sig_fd;
    uint64_t begun_ns = clock_ns();

    native_drop_last_capability(c);
    /* The guest holds the pipes now; a copy here would keep them open after its end. */
    close(0);
    close(1);
    close(2);
    for (size_t i = 0; i < c->n_entries; i++)
        close(c->entries[i]);

    if (c->tells_begun)
        native_guest_forget();
    int mounts_fd = g->mounts_fd; /* where the guest had to be told of them, they are open */
    if (!c->leaves_mounts)
        util_close(&mounts_fd);
    else if (mounts_fd < 0)
        mounts_fd = native_own_namespace(SYS_PIDFD_GET_MNT_NAMESPACE, "/proc/self/ns/mnt");
    int listener = atomic_load(&status->listener_fd);
    const char word = NATIVE_WORD_BEGUN;
    if (c->tells_begun)
        (void)!write(c->done_fd, &word, 1);
    struct pollfd fds[3] = {
        {.fd = sigfd, .events = POLLIN},
        {.fd = c->go_fd, .events = POLLIN},
        {.fd = listener, .events = POLLIN},
    };
    for (;;) {
        bool alone;
        if (init_reap(c, main_pid, &alone)) {
            uint32_t started = NATIVE_STARTED;
            /* a failed set-up or execve recorded its own state: the first cause stays */
            atomic_compare_exchange_strong(&status->state, &started, NATIVE_EXITED);
            init_end(c, alone, mounts_fd);
        }
        int rest_ms = native_init_rest_ms(status, begun_ns);
        if (rest_ms == 0) {
            status->time_hit = 1;
            status->exited_ns = clock_ns(); /* whenever the supervisor gets to hear of it */
            init_end(c, false, mounts_fd);
        }
        if (poll(fds, ARRAY_SIZE(fds), rest_ms) < 0 && errno != EINTR)
            native_child_fail(c, "init", errno, "poll");
        if (fds[0].revents) {
            struct signalfd_siginfo drop;
            while (read(sigfd, &drop, sizeof(drop)) == (ssize_t)sizeof(drop))
                ;
        }
        if (fds[1].revents && !native_init_forward(c->go_fd, main_pid))
            _exit(1); /* the supervisor is gone: take the guest along */
        if (fds[2].revents & POLLIN)
            native_init_answer(c, listener);
        else if (fds[2].revents)
            fds[2].fd = -1; /* no filtered process is left */
    }
}
