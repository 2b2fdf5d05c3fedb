/* One run of the library's: from its message to its reply. Runs in the supervisor.
 *
 * A job is over when its guest is gone, its reply is sent and its streams are delivered or nobody
 * wants them. It is then put on a list and freed by the loop, never by a callback of its own. */
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/util.h"
#include "serve/serve.h"

static void job_is_over(struct serve_job *job)
{
    if (job->is_over || job->run.running || !job->replied || !relay_is_done(&job->relays[0]) ||
        !relay_is_done(&job->relays[1]))
        return;
    job->is_over = true;
    job->next_over = job->serve->over;
    job->serve->over = job;
}

static void job_relay_done(void *data)
{
    job_is_over(data);
}

static void job_cancel(struct serve_job *job)
{
    if (job->message.is_source)
        lang_cancel(&job->lang);
    else
        run_cancel(&job->run);
}

void job_end(struct serve_job *job)
{
    loop_set(&job->serve->loop, &job->client, 0);
    relay_stop(&job->relays[0]);
    relay_stop(&job->relays[1]);
    job_cancel(job);
    job_is_over(job);
}

static void job_on_client(struct loop_watch *w, uint32_t events)
{
    (void)events;
    struct serve_job *job = w->data;
    union {
        struct wire_head head;
        struct wire_signal signal;
    } msg;
    int fds[WIRE_FDS_MAX];
    size_t n_fds;
    ssize_t n = wire_recv(w->fd, &msg, sizeof(msg), fds, &n_fds, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN)
        return;
    for (size_t i = 0; i < n_fds; i++)
        util_close(&fds[i]);
    if (n < (ssize_t)sizeof(msg.head) || msg.head.magic != WIRE_MAGIC) {
        job_end(job);
        return;
    }
    if (msg.head.type == WIRE_CANCEL)
        job_cancel(job);
    else if (msg.head.type == WIRE_SIGNAL && n == sizeof(msg.signal) && job->run.running)
        job->run.supervised.guest.backend->signal(&job->run.supervised.guest, msg.signal.sig);
}

void job_take_ticket(int fd)
{
    struct wire_head ticket;
    int fds[WIRE_FDS_MAX];
    size_t n_fds;
    if (fd < 0)
        return;
    (void)wire_recv(fd, &ticket, sizeof(ticket), fds, &n_fds, MSG_DONTWAIT);
    for (size_t i = 0; i < n_fds; i++)
        util_close(&fds[i]);
}

static void job_reply(struct serve_job *job, const struct cordon_err *err)
{
    bool brief = job->message.flags & WIRE_RUN_BRIEF_JSON;
    job->replied = true;
    if (err && err->code != CORDON_ERR_REJECTED)
        reply_error(job->client.fd, err);
    else
        reply_result(job->client.fd, &job->run.result, brief);
}

static void job_on_output(void *data, int stream, const char *bytes, size_t len)
{
    struct serve_job *job = ((struct run_job *)data)->data;
    (void)bytes;
    (void)len;
    relay_push(&job->relays[stream - 1], false);
}

/* Cordon's own failure is an error, never a result. */
static void job_on_done(struct run_job *run)
{
    struct serve_job *job = run->data;
    struct cordon_err err = {0};
    if (run->result.verdict == VERDICT_SANDBOX_ERROR) {
        if (run->supervised.cause == CAUSE_NONE) /* else it tells of our own kill */
            err = run->supervised.err;
        if (err.code == 0)
            err_set(&err, CORDON_ERR_INTERNAL, "supervise", 0, "%s", run->result.error);
    } else if (run->supervised.out[0].kept.failed || run->supervised.out[1].kept.failed) {
        err_set(&err, CORDON_ERR_INTERNAL, "supervise", ENOMEM, "the guest's output");
    }
    for (int i = 0; i < 2; i++)
        relay_push(&job->relays[i], true);
    job_reply(job, err.code ? &err : NULL);
    job_is_over(job);
}

/* A pipe is opened anew, for ourselves: another reader that empties it between poll and read would
 * otherwise block every guest of this loop. */
static void job_own_stdin(struct message *m)
{
    struct stat st;
    char path[32];
    if (m->stdin_fd < 0 || fstat(m->stdin_fd, &st) < 0 || !S_ISFIFO(st.st_mode))
        return;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", m->stdin_fd);
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return;
    close(m->stdin_fd);
    m->stdin_fd = fd;
}

static int job_policy(struct serve_job *job, struct cordon_err *err)
{
    const struct message *m = &job->message;
    struct policy_input input = {
        .settings = m->settings,
        .n_settings = m->n_settings,
        .profile = m->profile,
        .config_file = m->config_file,
        .no_discovery = !(m->flags & WIRE_RUN_DISCOVER),
        .environ = m->environ,
        .cwd = m->cwd,
    };
    return policy_resolve(&input, &job->policy, err);
}

static int job_start(struct serve_job *job, struct cordon_err *err)
{
    job->begun_ns = clock_ns();
    const struct message *m = job->memo ? &job->memo->message : &job->message;
    if (!job->memo && job_policy(job, err) < 0)
        return -1;
    job_own_stdin(&job->message);
    int stdin_fd = job->message.stdin_fd;
    struct run_job *run = &job->run;
    run->given = job->memo ? job->memo->plan : NULL;
    run->loop = &job->serve->loop;
    run->host = job->serve->host;
    run->pool = &job->serve->pool;
    run->policy = job->memo ? job->memo->policy : job->policy;
    run->argv = m->argv;
    run->cwd = m->cwd;
    run->vars = m->places;
    run->is_handle = true;
    run->on_done = job_on_done;
    run->data = job;
    run->options = (struct supervise_options){
        .sinks = {-1, -1},
        .keep_output = true,
        .on_output = m->flags & WIRE_RUN_STREAM ? job_on_output : NULL,
        .stdin_fd = stdin_fd,
        .stdin_data = stdin_fd < 0 ? m->stdin_data : NULL,
        .stdin_len = stdin_fd < 0 ? m->stdin_len : 0,
    };
    job->started = true;
    if (m->is_source) {
        job->source = (struct lang_source){.language = m->language,
                                           .name = m->source_name,
                                           .text = m->source,
                                           .len = m->source_len,
                                           .args = m->argv,
                                           .vars = m->places};
        return lang_start(&job->lang, &job->source, run, err);
    }
    if (policy_has(run->policy, FIELD_VENV)) {
        if (lang_venv(run->policy, m->environ, &job->arena, &job->venv_policy, err) < 0)
            return -1;
        run->policy = &job->venv_policy;
    }
    return run_start(run, err);
}

static int job_streams(struct serve_job *job, struct cordon_err *err)
{
    for (int i = 0; i < 2; i++) {
        struct relay *r = &job->relays[i];
        r->sink.fd = -1;
        r->on_done = job_relay_done;
        r->data = job;
        if (job->message.stream_fds[i] >= 0 &&
            relay_start(r, &job->serve->loop, TAKE_FD(job->message.stream_fds[i]),
                        &job->run.supervised.out[i].kept) < 0)
            return err_set(err, CORDON_ERR_INTERNAL, "start", errno, "streams");
    }
    return 0;
}

static void job_link(struct serve_job *job)
{
    struct serve *serve = job->serve;
    job->next = serve->jobs;
    if (job->next)
        job->next->prev = job;
    serve->jobs = job;
    serve->n_jobs++;
}

/* The C library gives memory of this size back to the kernel, and asks for it again. */
static struct serve_job *job_alloc(struct serve *serve)
{
    for (size_t i = 0; i < SERVE_SPARE; i++) {
        struct serve_job *job = serve->spare[i];
        if (!job)
            continue;
        serve->spare[i] = NULL;
        return memset(job, 0, sizeof(*job));
    }
    return calloc(1, sizeof(struct serve_job));
}

static void job_dealloc(struct serve *serve, struct serve_job *job)
{
    for (size_t i = 0; i < SERVE_SPARE; i++)
        if (!serve->spare[i]) {
            serve->spare[i] = job;
            return;
        }
    free(job);
}

void job_new(struct serve *serve, struct message *message, struct memo *memo)
{
    struct cordon_err err;
    struct serve_job *job = job_alloc(serve);
    if (!job) {
        err_nomem(&err, "start");
        reply_error(message->job_fd, &err);
        message_done(message);
        return;
    }
    job->serve = serve;
    job->message = *message;
    job->memo = memo;
    if (memo)
        memo->refs++;
    job->client = (struct loop_watch){.fd = job->message.job_fd, .fn = job_on_client, .data = job};
    job_link(job);
    if (job_streams(job, &err) < 0 || job_start(job, &err) < 0) {
        relay_stop(&job->relays[0]);
        relay_stop(&job->relays[1]);
        result_from_error(&job->run.result, &err);
        job_reply(job, &err);
        job_is_over(job);
    } else if (loop_set(&serve->loop, &job->client, EPOLLIN) < 0) {
        job_cancel(job); /* nobody could cancel it any more */
    }
}

void job_free(struct serve_job *job)
{
    struct serve *serve = job->serve;
    if (job->prev)
        job->prev->next = job->next;
    else
        serve->jobs = job->next;
    if (job->next)
        job->next->prev = job->prev;
    serve->n_jobs--;
    loop_set(&serve->loop, &job->client, 0);
    relay_stop(&job->relays[0]);
    relay_stop(&job->relays[1]);
    memo_keep(job);
    if (job->started)
        run_done(&job->run);
    lang_done(&job->lang);
    arena_done(&job->arena);
    policy_free(job->policy);
    message_done(&job->message);
    memo_unref(job->memo);
    job_dealloc(serve, job);
}
