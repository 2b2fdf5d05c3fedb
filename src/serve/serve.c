/* The supervisor of a handle: its life. Runs as a process of its own, `cordon supervise`.
 *
 * It ends when the handle is closed (end of file on the control socket) or when the program it
 * serves ends (its pidfd; a forked child of that program may keep the socket open). Either way
 * every guest is ended first; should we be killed instead, each guest's pid 1 notices and does the
 * same. */
#include "serve/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/sys.h"
#include "base/util.h"
#include "net/netclient.h"

#define SERVE_BATCH 16      /* requests taken before guests get a look */
#define SERVE_CLOSE_MS 2000 /* longest the guests may take to be gone when we end */

static void serve_close(struct serve *s)
{
    if (s->closing)
        return;
    s->closing = true;
    loop_set(&s->loop, &s->control, 0);
    loop_set(&s->loop, &s->host_gone, 0);
    for (struct serve_job *job = s->jobs; job; job = job->next)
        job_end(job);
}

static void serve_on_control(struct loop_watch *w, uint32_t events)
{
    (void)events;
    struct serve *s = w->data;
    for (int i = 0; i < SERVE_BATCH; i++) {
        struct message message;
        struct cordon_err err;
        int r = message_receive(w->fd, &message, &err);
        if (r < 0)
            serve_close(s);
        if (r <= 0)
            return;
        job_take_ticket(message.job_fd);
        struct memo *memo = err.code == 0 && !message.is_stats ? memo_find(s, &message) : NULL;
        if (err.code == 0 && !message.is_stats && (memo || message_parse(&message, &err) == 0)) {
            job_new(s, &message, memo);
            continue;
        }
        if (err.code == 0)
            reply_stats(message.job_fd, s);
        else if (message.job_fd >= 0)
            reply_error(message.job_fd, &err);
        message_done(&message);
    }
}

static void serve_on_host_gone(struct loop_watch *w, uint32_t events)
{
    (void)events;
    serve_close(w->data);
}

/* Ours from here on: signals of the caller's terminal and its odd dispositions are not for us. */
static void serve_become_own(void)
{
    sigset_t none;
    struct rlimit files;
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    (void)!chdir("/");
    /* secrets of callers pass through our memory */
    prctl(PR_SET_DUMPABLE, 0);
    prctl(PR_SET_NAME, "cordon-super");
    sys_brief_slices(getpriority(PRIO_PROCESS, 0));
    /* a guest takes about a dozen descriptors; guests get a limit of their own */
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

static int serve_start(struct serve *s, struct cordon_err *err)
{
    bool has_host =
        fcntl(WIRE_HOST_FD, F_GETFD) >= 0; /* before anything of ours takes the number */
    s->control = (struct loop_watch){.fd = WIRE_CONTROL_FD, .fn = serve_on_control, .data = s};
    s->host_gone = (struct loop_watch){.fd = WIRE_HOST_FD, .fn = serve_on_host_gone, .data = s};
    if (host_probe_quick(&s->host, err) < 0)
        return -1;
    host_scope_join(&s->host.cgroups);
    if (loop_init(&s->loop) < 0 || loop_set(&s->loop, &s->control, EPOLLIN) < 0 ||
        (has_host && loop_set(&s->loop, &s->host_gone, EPOLLIN) < 0))
        return err_set(err, CORDON_ERR_INTERNAL, "open", errno, "event loop");
    return 0;
}

static int serve_greet(struct cordon_err *err)
{
    struct wire_hello hello = {.head = wire_head(WIRE_HELLO), .pid = getpid()};
    struct iovec part = {&hello, sizeof(hello)};
    _cleanup_close_ int self = sys_pidfd_open(getpid());
    if (self < 0 || wire_send(WIRE_CONTROL_FD, &part, 1, &self, 1, 0) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "open", errno, "greeting");
    return 0;
}

static void serve_bury(struct serve *s)
{
    bool was_large = false;
    while (s->over) {
        struct serve_job *job = s->over;
        s->over = job->next_over;
        was_large = was_large || job->run.supervised.out[0].kept.cap > 65536 ||
                    job->run.supervised.out[1].kept.cap > 65536;
        job_free(job);
    }
#ifdef __GLIBC__
    if (was_large && s->n_jobs == 0)
        malloc_trim(
            0); /* an idle supervisor is small; other libraries give memory back by themselves */
#endif
}

int serve_main(void)
{
    struct serve s = {.loop.epoll_fd = -1};
    struct cordon_err err;
    serve_become_own();
    if (serve_start(&s, &err) < 0 || serve_greet(&err) < 0) {
        reply_error(WIRE_CONTROL_FD, &err);
        loop_done(&s.loop);
        return err.code;
    }
    pool_init(&s.pool, &s.loop);
    uint64_t deadline = UINT64_MAX;
    while (!s.closing || (s.n_jobs > 0 && clock_ns() < deadline)) {
        int n = loop_once(&s.loop, s.closing ? 100 : pool_timeout_ms(&s.pool));
        if (n < 0)
            return CORDON_ERR_INTERNAL;
        if (n == 0 && !s.closing) {
            pool_idle(&s.pool);
            memo_sweep(&s, false);
        }
        if (s.closing && deadline == UINT64_MAX)
            deadline = clock_ns() + SERVE_CLOSE_MS * 1000000ull;
        serve_bury(&s);
    }
    while (s.jobs) {
        /* only streams nobody reads are left, or a guest that would not die: it goes with us */
        if (s.jobs->run.running) {
            netclient_settle();
            _exit(0);
        }
        job_free(s.jobs);
    }
    memo_sweep(&s, true);
    for (size_t i = 0; i < SERVE_SPARE; i++)
        free(s.spare[i]);
    pool_done(&s.pool);
    loop_done(&s.loop);
    return 0;
}
