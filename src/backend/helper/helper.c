/* The backend whose wall is built by another executable: its outer half, in the supervisor.
 *
 * One helper process per guest. What happens to a guest is told by messages on a socket; the end of
 * the helper itself is the end of the run, whether it reported or not. A helper that died without a
 * word may have left a container: the same executable is then asked to remove it by its name. */
#include "backend/helper/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/libexec.h"
#include "base/sys.h"
#include "base/util.h"

#define HELPER_REMOVE_MS 20000 /* longest to wait for the removal after a helper's death */

struct helper {
    int control_fd;
    int workspace_fd; /* the host's own folder the guest works in, -1: none, or nobody asks */
    char program[PATH_MAX];
    char name[HELPER_NAME_MAX];
    uint64_t started_ns;
    char inside[HELPER_NAME_MAX]; /* the kept container it runs in, empty: none */
    bool reported;
    struct helper_message last; /* DONE or FAILED */
};

static void helper_free(struct helper *h)
{
    if (!h)
        return;
    if (h->inside[0])
        holder_give_back(h->inside);
    if (h->reported)
        util_close(&h->last.outcome.cwd_fd);
    util_close(&h->control_fd);
    util_close(&h->workspace_fd);
    free(h);
}

/* "cordon-" and 96 random bits: nobody else's container is ever meant. */
int helper_name(char *name, struct cordon_err *err)
{
    unsigned char bits[12];
    if (getrandom(bits, sizeof(bits), 0) != (ssize_t)sizeof(bits))
        return err_set(err, CORDON_ERR_INTERNAL, "start", errno, "getrandom");
    strcpy(name, "cordon-");
    for (size_t i = 0; i < sizeof(bits); i++)
        sprintf(name + 7 + 2 * i, "%02x", bits[i]);
    return 0;
}

static int helper_locate(struct helper *h, struct cordon_err *err)
{
    if (libexec_find(HELPER_PROGRAM, h->program, sizeof(h->program)) == 0)
        return 0;
    err_set(err, CORDON_ERR_HOST, "start", errno, HELPER_PROGRAM " is not installed");
    return err_hint(err, "install it, or use the native backend");
}

/* Descriptors in the helper's order; those that are low already move out of the way first. */
_Noreturn void helper_exec(const char *program, const int *fds, size_t n, char *const *argv,
                           char *const *vars)
{
    int moved[8];
    for (size_t i = 0; i < n; i++)
        if ((moved[i] = fcntl(fds[i], F_DUPFD, 16)) < 0)
            _exit(70);
    for (size_t i = 0; i < n; i++)
        if (dup2(moved[i], (int)i) < 0)
            _exit(70);
    sys_close_range((unsigned)n, ~0u);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    execve(program, argv, vars);
    _exit(70);
}

struct helper_start {
    int pipes[3][2];
    int control[2];
    int request, order;
};

static void start_close(struct helper_start *s)
{
    for (int i = 0; i < 3; i++) {
        util_close(&s->pipes[i][0]);
        util_close(&s->pipes[i][1]);
    }
    util_close(&s->control[0]);
    util_close(&s->control[1]);
    util_close(&s->request);
    util_close(&s->order);
}

/* A workspace is the host's own folder, as the guest leaves it. Opened before there is a guest: who
 * may write to a folder above it can put another one, or a link, in its place. */
static int helper_workspace(const struct plan *p)
{
    if (!p->hands_back_cwd || helper_sends_files(p))
        return -1;
    for (size_t i = 0; i < p->n_ops; i++)
        if (p->ops[i].kind == PLAN_OP_BIND && str_eq(p->ops[i].dst, "workspace"))
            return open(p->ops[i].src, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return -1;
}

static int start_prepare(struct helper_start *s, const struct plan *plan, struct helper *h,
                         struct cordon_err *err)
{
    if (helper_locate(h, err) < 0)
        return -1;
    h->workspace_fd = helper_workspace(plan);
    const char *inside = plan->container.reuse ? holder_take(plan, h->program) : NULL;
    if (inside)
        strcpy(h->inside, inside);
    if (helper_name(h->name, err) < 0 ||
        helper_request_fd(plan, h->name, inside, &s->request, err) < 0 ||
        helper_order_fd(plan, &s->order, err) < 0)
        return -1;
    for (int i = 0; i < 3; i++)
        if (pipe2(s->pipes[i], O_CLOEXEC) < 0)
            return err_set(err, CORDON_ERR_INTERNAL, "start", errno, "pipe");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s->control) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "start", errno, "socket");
    return 0;
}

static int start_process(struct helper_start *s, struct helper *h, struct guest *g,
                         struct cordon_err *err)
{
    char *argv[] = {h->program, "run", NULL};
    _cleanup_close_ int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int channel = h->inside[0] ? holder_channel() : -1;
    int fds[] = {s->pipes[0][0],
                 s->pipes[1][1],
                 s->pipes[2][1],
                 s->control[1],
                 s->request,
                 s->order,
                 channel >= 0 ? channel : null};
    pid_t pid = fork();
    if (pid == 0)
        helper_exec(h->program, fds, ARRAY_SIZE(fds), argv, g->plan->container.vars);
    if (pid < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "start", errno, "fork");
    g->event_fd = sys_pidfd_open(pid);
    if (g->event_fd < 0) {
        int e = errno;
        kill(pid, SIGKILL);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
        return err_set(err, CORDON_ERR_HOST, "start", e, "pidfd_open");
    }
    g->pid = pid;
    g->stdio[0] = TAKE_FD(s->pipes[0][1]);
    g->stdio[1] = TAKE_FD(s->pipes[1][0]);
    g->stdio[2] = TAKE_FD(s->pipes[2][0]);
    h->control_fd = TAKE_FD(s->control[0]);
    return 0;
}

static int helper_start(const struct plan *plan, struct guest *ret_guest, bool *ret_host_refused,
                        struct cordon_err *err)
{
    struct helper_start s = {{{-1, -1}, {-1, -1}, {-1, -1}}, {-1, -1}, -1, -1};
    struct guest g = {.backend = &backend_helper, .plan = plan, .event_fd = -1};
    struct helper *h = calloc(1, sizeof(*h));
    *ret_host_refused = false;
    if (!h)
        return err_nomem(err, "start");
    h->control_fd = h->workspace_fd = -1;
    int r = start_prepare(&s, plan, h, err);
    if (r == 0)
        r = start_process(&s, h, &g, err);
    start_close(&s);
    if (r < 0) {
        helper_free(h);
        return -1;
    }
    g.priv = h;
    *ret_guest = g;
    return 0;
}

ssize_t helper_receive(int control_fd, struct helper_message *m, int *ret_fd)
{
    union helper_rights rights;
    struct iovec iov = {m, sizeof(*m)};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = rights.space,
                         .msg_controllen = sizeof(rights.space)};
    ssize_t n = recvmsg(control_fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    struct cmsghdr *cmsg = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;
    *ret_fd = -1;
    if (cmsg && cmsg->cmsg_type == SCM_RIGHTS && cmsg->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(ret_fd, CMSG_DATA(cmsg), sizeof(int));
    return n;
}

/* Takes what the helper said so far; never waits. */
static void helper_listen(struct helper *h)
{
    struct helper_message m;
    ssize_t n;
    int fd;
    while (h->control_fd >= 0 && (n = helper_receive(h->control_fd, &m, &fd)) > 0) {
        _cleanup_close_ int right = fd;
        if (n != (ssize_t)sizeof(m) || m.magic != HELPER_MAGIC)
            continue;
        if (m.type == HELPER_STARTED)
            h->started_ns = m.time_ns;
        if ((m.type == HELPER_DONE || m.type == HELPER_FAILED) && !h->reported) {
            h->reported = true;
            h->last = m;
            h->last.outcome.cwd_fd = TAKE_FD(right);
        }
    }
}

static int helper_say(struct helper *h, enum helper_type type, int sig)
{
    struct helper_message m = {.magic = HELPER_MAGIC, .type = type, .signal = sig};
    return send(h->control_fd, &m, sizeof(m), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -1 : 0;
}

static void helper_kill(struct guest *guest)
{
    helper_say(guest->priv, HELPER_KILL, 0);
}

static int helper_signal(struct guest *guest, int sig)
{
    return helper_say(guest->priv, HELPER_SIGNAL, sig);
}

static uint64_t helper_started(struct guest *guest)
{
    struct helper *h = guest->priv;
    if (!h->started_ns)
        helper_listen(h);
    return h->started_ns;
}

static int helper_measure(struct guest *guest, struct backend_usage *ret_usage)
{
    (void)guest;
    (void)ret_usage;
    return -1;
}

static int helper_pause(struct guest *guest, bool pause)
{
    (void)guest;
    (void)pause;
    return -1;
}

/* The helper is gone, and with it everything it watched over, or helper_finish() sees to it. */
static int helper_lingers(struct guest *guest)
{
    (void)guest;
    return -1;
}

/* A helper that was killed: what it made is removed by its name. */
static void helper_remove(struct helper *h, char *const *vars)
{
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);
        int fds[] = {null, null, null};
        char *argv[] = {h->program, "remove", h->name, NULL};
        helper_exec(h->program, fds, ARRAY_SIZE(fds), argv, vars);
    }
    if (pid < 0)
        return;
    _cleanup_close_ int fd = sys_pidfd_open(pid);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (poll(&p, 1, HELPER_REMOVE_MS) < 0 && errno == EINTR)
        ;
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

static void helper_outcome(struct helper *h, const struct plan *plan, struct backend_outcome *o,
                           struct cordon_err *err)
{
    if (h->reported && h->last.type == HELPER_DONE) {
        *o = h->last.outcome;
        h->last.outcome.cwd_fd = -1;
        if (plan->hands_back_cwd && !helper_sends_files(plan))
            o->cwd_fd = TAKE_FD(h->workspace_fd);
        return;
    }
    o->end = BACKEND_SETUP_FAILED;
    o->started_ns = h->started_ns;
    if (h->reported) {
        *err = h->last.err;
        return;
    }
    err_set(err, CORDON_ERR_INTERNAL, "supervise", 0, HELPER_PROGRAM " ended unexpectedly");
    if (h->inside[0]) /* and with it what still runs there */
        holder_discard(h->inside);
    helper_remove(h, plan->container.vars);
}

static void helper_finish(struct guest *guest, struct backend_outcome *ret_outcome,
                          struct cordon_err *err)
{
    struct helper *h = guest->priv;
    memset(ret_outcome, 0, sizeof(*ret_outcome));
    ret_outcome->cwd_fd = -1;
    while (waitpid(guest->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    helper_listen(h);
    helper_outcome(h, guest->plan, ret_outcome, err);
    for (int i = 0; i < 3; i++)
        util_close(&guest->stdio[i]);
    util_close(&guest->event_fd);
    helper_free(h);
    guest->priv = NULL;
}

const struct backend backend_helper = {
    .name = "helper",
    .start = helper_start,
    .kill = helper_kill,
    .signal = helper_signal,
    .started = helper_started,
    .measure = helper_measure,
    .pause = helper_pause,
    .lingers = helper_lingers,
    .finish = helper_finish,
};
