/* Runs: started by one message, ended by one reply on a socket of their own. Runs in the calling
 * program. */
#include "lib/lib.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

#include "base/err.h"
#include "base/util.h"
#include "lib/wire.h"

#define SEND_PATIENCE_MS 20
#define JOB_BURY_MS 1000 /* from the end of a killed supervisor's sockets to its own */

enum job_state { JOB_RUNNING, JOB_ENDED, JOB_FAILED, JOB_TAKEN };

struct cordon_job {
    pid_t owner;
    struct peer *peer;
    enum job_state state;
    bool was_told;                /* a cancel or a signal was sent */
    struct cordon_result *result; /* JOB_ENDED */
    struct cordon_err failure;    /* JOB_FAILED */
    int sock;
    int event_fd; /* socket and supervisor in one, for the caller's loop; -1: not asked for yet */
    int streams[2];
};

/* The ends that travel with the request. */
struct job_send {
    int sock;
    int streams[2];
};

static void job_send_done(struct job_send *s)
{
    util_close(&s->sock);
    util_close(&s->streams[0]);
    util_close(&s->streams[1]);
}

static int job_open(struct cordon_job *job, bool stream, struct job_send *far,
                    struct cordon_err *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "start", errno, "socketpair");
    job->sock = pair[0];
    far->sock = pair[1];
    struct wire_head ticket = wire_head(WIRE_TICKET);
    struct iovec part = {&ticket, sizeof(ticket)};
    if (wire_send(job->sock, &part, 1, NULL, 0, MSG_DONTWAIT) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "start", errno, "ticket");
    for (int i = 0; stream && i < 2; i++) {
        if (pipe2(pair, O_CLOEXEC) < 0)
            return err_set(err, CORDON_ERR_INTERNAL, "start", errno, "pipe");
        job->streams[i] = pair[0];
        far->streams[i] = pair[1];
        if (fcntl(pair[0], F_SETFL, O_NONBLOCK) < 0)
            return err_set(err, CORDON_ERR_INTERNAL, "start", errno, "pipe");
    }
    return 0;
}

/* The kernel bounds the descriptors a user has under way by the sender's own limit of descriptors.
 * The supervisor is about to take those of other threads; but a guest of the same user can keep its
 * own unread for as long as it runs. So after a moment the limit of this process is raised for one
 * attempt. */
static int job_send_parts(const struct peer *peer, const struct iovec *parts, size_t n_parts,
                          const int *fds, size_t n_fds, bool may_raise)
{
    struct rlimit files, raised;
    if (!may_raise || getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur >= files.rlim_max)
        return wire_send(peer->sock, parts, n_parts, fds, n_fds, 0);
    raised = (struct rlimit){files.rlim_max, files.rlim_max};
    (void)setrlimit(RLIMIT_NOFILE, &raised);
    int r = wire_send(peer->sock, parts, n_parts, fds, n_fds, 0), e = errno;
    (void)setrlimit(RLIMIT_NOFILE, &files);
    errno = e;
    return r;
}

/* 0, or errno. Waits while the supervisor's queue is full. */
static int job_send(const struct peer *peer, const struct cordon_request *request,
                    const struct job_send *far)
{
    struct wire_run run = {.head = wire_head(WIRE_RUN), .body_len = request->body_len};
    struct iovec parts[2] = {{&run, sizeof(run)}, {request->body.data, request->body.len}};
    int fds[WIRE_FDS_MAX];
    size_t n = 0;
    fds[n++] = far->sock;
    if (request->body_fd >= 0) {
        run.flags |= WIRE_RUN_BODY_FD;
        fds[n++] = request->body_fd;
    }
    if (request->stdin_fd >= 0) {
        run.flags |= WIRE_RUN_STDIN_FD;
        fds[n++] = request->stdin_fd;
    }
    if (request->flags & CORDON_REQUEST_STREAM) {
        run.flags |= WIRE_RUN_STREAM;
        fds[n++] = far->streams[0];
        fds[n++] = far->streams[1];
    }
    if (request->flags & CORDON_REQUEST_DISCOVER)
        run.flags |= WIRE_RUN_DISCOVER;
    if (request->flags & CORDON_REQUEST_BRIEF_JSON)
        run.flags |= WIRE_RUN_BRIEF_JSON;
    for (int waited_ms = 0; job_send_parts(peer, parts, request->body_fd < 0 ? 2 : 1, fds, n,
                                           waited_ms >= SEND_PATIENCE_MS) < 0;
         waited_ms++) {
        if (errno != ETOOMANYREFS)
            return errno;
        if (peer_is_gone(peer))
            return EPIPE;
        poll(NULL, 0, 1);
    }
    return 0;
}

/* A supervisor that was killed is replaced, once: what killed it may kill the next one too. */
static int job_submit(struct cordon_job *job, struct cordon *handle,
                      const struct cordon_request *request, const struct job_send *far,
                      struct cordon_err *err)
{
    for (int attempt = 0;; attempt++) {
        struct peer *gone = job->peer;
        struct peer *peer;
        int r = handle_peer(handle, gone, &peer, err);
        peer_unref(gone);
        job->peer = r < 0 ? NULL : peer;
        if (r < 0)
            return -1;
        int error = job_send(peer, request, far);
        if (error == 0)
            return 0;
        bool is_gone = error == EPIPE || error == ECONNRESET || error == ENOTCONN;
        if (!is_gone || attempt == 1)
            return err_set(err, CORDON_ERR_INTERNAL, "start", error, "request to the supervisor");
    }
}

int cordon_start(struct cordon *handle, const struct cordon_request *request,
                 struct cordon_job **ret_job, struct cordon_err *err)
{
    if (!handle || !request)
        return err_set(err, CORDON_ERR_USAGE, "start", 0, "no %s", handle ? "request" : "handle");
    if (!request->has_command)
        return err_set(err, CORDON_ERR_USAGE, "start", 0, "nothing to run");
    struct cordon_job *job = calloc(1, sizeof(*job));
    if (!job)
        return err_nomem(err, "start");
    struct job_send far __attribute__((cleanup(job_send_done))) = {-1, {-1, -1}};
    job->owner = getpid();
    job->sock = job->event_fd = job->streams[0] = job->streams[1] = -1;
    if (job_open(job, request->flags & CORDON_REQUEST_STREAM, &far, err) < 0 ||
        job_submit(job, handle, request, &far, err) < 0) {
        cordon_job_free(job);
        return -1;
    }
    *ret_job = job;
    return 0;
}

static int job_foreign(const struct cordon_job *job, struct cordon_err *err)
{
    if (job->owner == getpid())
        return 0;
    return err_set(err, CORDON_ERR_USAGE, "job", 0, "this job belongs to process %d",
                   (int)job->owner);
}

static int64_t now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* The supervisor closed the job's socket without a reply, so it is dying. Its sockets end a moment
 * before it does: whoever comes next must not take it for alive. */
static void job_lost(struct cordon_job *job)
{
    bool unread = job->failure.sys_errno == ECONNRESET;
    job->failure.sys_errno = 0;
    if (!peer_wait_gone(job->peer, JOB_BURY_MS) || !unread || job->was_told)
        return;
    err_set(&job->failure, CORDON_ERR_INTERNAL, RESULT_STAGE_NONE, 0,
            "the supervisor ended before it took the request");
    job->failure.sys_errno = ECONNRESET;
}

/* Moves on from JOB_RUNNING if the reply, or the supervisor's end, comes within the time. */
static void job_advance(struct cordon_job *job, int timeout_ms)
{
    struct pollfd fds[2] = {{.fd = job->sock, .events = POLLIN},
                            {.fd = job->peer->pidfd, .events = POLLIN}};
    int64_t end = timeout_ms > 0 ? now_ms() + timeout_ms : 0;
    int n;
    while ((n = poll(fds, 2, timeout_ms)) < 0 && errno == EINTR)
        if (timeout_ms > 0)
            timeout_ms = (int)MAX(end - now_ms(), 0);
    if (n == 0)
        return;
    int r;
    if (n < 0)
        r = err_set(&job->failure, CORDON_ERR_INTERNAL, "job", errno, "poll");
    else
        /* A supervisor that ended may have replied before: only an empty socket is a failure. */
        r = result_receive(job->sock, &job->result, &job->failure);
    if (n > 0 && r < 0 && strcmp(job->failure.stage, RESULT_STAGE_NONE) == 0)
        job_lost(job);
    job->state = r < 0 ? JOB_FAILED : JOB_ENDED;
    /* cordon_job_fd() stays readable; only this direction, or live output would end here */
    shutdown(job->sock, SHUT_RD);
}

static int job_check(struct cordon_job *job, int timeout_ms, struct cordon_err *err)
{
    if (job_foreign(job, err) < 0)
        return -1;
    if (job->state == JOB_RUNNING)
        job_advance(job, timeout_ms);
    if (job->state != JOB_FAILED)
        return 0;
    if (err)
        *err = job->failure;
    return -1;
}

int cordon_job_poll(struct cordon_job *job, int *ret_done, struct cordon_err *err)
{
    if (job_check(job, 0, err) < 0)
        return -1;
    *ret_done = job->state != JOB_RUNNING;
    return 0;
}

int cordon_job_wait(struct cordon_job *job, int timeout_ms, struct cordon_result **ret_result,
                    struct cordon_err *err)
{
    if (job_check(job, timeout_ms < 0 ? -1 : timeout_ms, err) < 0)
        return -1;
    if (job->state == JOB_TAKEN)
        return err_set(err, CORDON_ERR_USAGE, "job", 0, "the result was taken before");
    *ret_result = NULL;
    if (job->state == JOB_ENDED) {
        *ret_result = TAKE_PTR(job->result);
        job->state = JOB_TAKEN;
    }
    return 0;
}

int cordon_run(struct cordon *handle, const struct cordon_request *request,
               struct cordon_result **ret_result, struct cordon_err *err)
{
    for (int attempt = 0;; attempt++) {
        struct cordon_job *job;
        if (cordon_start(handle, request, &job, err) < 0)
            return -1;
        int r = cordon_job_wait(job, -1, ret_result, err);
        bool again = r < 0 && attempt == 0 && job->failure.sys_errno == ECONNRESET;
        cordon_job_free(job);
        if (!again)
            return r;
    }
}

int cordon_job_fd(struct cordon_job *job)
{
    if (job->event_fd >= 0)
        return job->event_fd;
    _cleanup_close_ int fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event ev = {.events = EPOLLIN};
    if (fd < 0 || epoll_ctl(fd, EPOLL_CTL_ADD, job->sock, &ev) < 0 ||
        epoll_ctl(fd, EPOLL_CTL_ADD, job->peer->pidfd, &ev) < 0)
        return -1;
    return job->event_fd = TAKE_FD(fd);
}

int cordon_job_stream_fd(struct cordon_job *job, enum cordon_stream stream)
{
    return job->streams[stream == CORDON_STDERR];
}

static ssize_t job_read(int fd, void *buf, size_t len)
{
    ssize_t n;
    do
        n = read(fd, buf, len);
    while (n < 0 && errno == EINTR);
    return n;
}

ssize_t cordon_job_read(struct cordon_job *job, enum cordon_stream stream, void *buf, size_t len)
{
    int fd = cordon_job_stream_fd(job, stream);
    if (fd < 0 || job->owner != getpid()) {
        errno = EINVAL;
        return -1;
    }
    ssize_t n = job_read(fd, buf, len);
    /* A copy of the pipe in a forked child hides the end; the supervisor's own end is the end too,
     * but for what it wrote between our look and its end. */
    if (n < 0 && errno == EAGAIN && peer_is_gone(job->peer)) {
        n = job_read(fd, buf, len);
        return n < 0 && errno == EAGAIN ? 0 : n;
    }
    return n;
}

/* A message to a run that has ended has no receiver; that is no failure. */
static int job_tell(struct cordon_job *job, const void *msg, size_t len, struct cordon_err *err)
{
    struct iovec part = {(void *)msg, len};
    if (job_foreign(job, err) < 0)
        return -1;
    job->was_told = true;
    if (job->state != JOB_RUNNING || wire_send(job->sock, &part, 1, NULL, 0, MSG_DONTWAIT) == 0 ||
        errno == EPIPE || errno == ECONNRESET)
        return 0;
    return err_set(err, CORDON_ERR_INTERNAL, "job", errno, "message to the supervisor");
}

int cordon_job_signal(struct cordon_job *job, int sig, struct cordon_err *err)
{
    if (sig < 1 || sig > 64)
        return err_set(err, CORDON_ERR_USAGE, "job", 0, "%d is not a signal", sig);
    struct wire_signal msg = {.head = wire_head(WIRE_SIGNAL), .sig = sig};
    return job_tell(job, &msg, sizeof(msg), err);
}

int cordon_job_cancel(struct cordon_job *job, struct cordon_err *err)
{
    struct wire_head msg = wire_head(WIRE_CANCEL);
    if (job_tell(job, &msg, sizeof(msg), err) == 0)
        return 0;
    /* The way is full of signals: its end means the same. */
    return job_foreign(job, err) < 0 ? -1 : shutdown(job->sock, SHUT_WR);
}

void cordon_job_free(struct cordon_job *job)
{
    if (!job)
        return;
    if (job->sock >= 0 && job->owner == getpid())
        shutdown(job->sock, SHUT_RDWR); /* also where a forked child holds a copy */
    util_close(&job->event_fd);
    util_close(&job->sock);
    util_close(&job->streams[0]);
    util_close(&job->streams[1]);
    cordon_result_free(job->result);
    peer_unref(job->peer);
    free(job);
}
