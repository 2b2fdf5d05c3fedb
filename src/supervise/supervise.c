/* Starts a guest, watches it, collects its end. Runs in the supervisor. */
#include "supervise/supervise.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "backend/native/warm.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/util.h"
#include "supervise/supervise_net.h"

void supervise_end(struct supervised *s, enum supervise_cause cause)
{
    if (s->finished || s->cause != CAUSE_NONE)
        return;
    s->cause = cause;
    s->cause_ns = clock_ns();
    supervise_watch_last(s);
    s->guest.backend->kill(&s->guest);
}

void supervise_arm(struct supervised *s, uint64_t at)
{
    struct itimerspec t = {
        .it_value = {.tv_sec = (time_t)(at / 1000000000u), .tv_nsec = (long)(at % 1000000000u)}};
    timerfd_settime(s->timer_fd, TFD_TIMER_ABSTIME, &t, NULL);
}

static void supervise_next(struct supervised *s, uint64_t at)
{
    at = MIN(at, supervise_net_tick(s, clock_ns()));
    if (!s->finished && at != UINT64_MAX)
        supervise_arm(s, at);
}

static void supervise_on_timer(struct loop_watch *w, uint32_t events)
{
    (void)events;
    struct supervised *s = w->data;
    uint64_t n;
    if (read(s->timer_fd, &n, sizeof(n)) < 0 && errno == EAGAIN)
        return;
    if (s->net_state == SUPERVISE_NET_ENDING) {
        supervise_last(s); /* its last words did not come */
        return;
    }
    supervise_next(s, supervise_watch_tick(s, clock_ns()));
}

/* The rest of the guest's output, then everything it left in our hands. */
void supervise_last(struct supervised *s)
{
    loop_set(s->loop, &s->timer, 0);
    supervise_net_done(s);
    supervise_watch_stop(s);
    for (int i = 0; i < 2; i++) {
        stream_out_drain(&s->out[i]);
        loop_set(s->loop, &s->out[i].source, 0);
    }
    stream_in_done(&s->in);
    s->guest.backend->finish(&s->guest, &s->outcome, &s->err);
    s->finished = true;
    if (s->outcome.ended_ns == 0)
        s->outcome.ended_ns = s->cause_ns ? s->cause_ns : clock_ns();
    if (s->options.on_done)
        s->options.on_done(s->options.data);
}

/* Every process of the guest is gone; or its program has begun, where that is told. */
static void supervise_on_gone(struct loop_watch *w, uint32_t events)
{
    (void)events;
    struct supervised *s = w->data;
    if (w->fd == s->guest.event_fd && s->guest.tells_begun && s->guest.backend->begun(&s->guest)) {
        supervise_next(s, supervise_watch_begun(s, clock_ns()));
        return;
    }
    loop_set(s->loop, &s->gone, 0);
    s->gone.fd = s->guest.backend->lingers(&s->guest);
    if (s->gone.fd >= 0 && loop_set(s->loop, &s->gone, EPOLLIN) == 0)
        return;
    if (!supervise_net_end(s))
        supervise_last(s);
}

static void supervise_on_output(struct stream_out *o, const char *bytes, size_t len)
{
    struct supervised *s = o->owner;
    s->options.on_output(s->options.data, o == &s->out[0] ? 1 : 2, bytes, len);
}

static void supervise_on_truncated(struct stream_out *o)
{
    struct supervised *s = o->owner;
    if (s->plan->limits.kill_on_output)
        supervise_end(s, CAUSE_OUTPUT);
}

/* Nobody reads any more, and nothing is kept: the guest finds its pipe broken, as without us. */
static void supervise_on_broken(struct stream_out *o)
{
    struct supervised *s = o->owner;
    if (o->sink_errno != EPIPE || o->keep || o->on_data || s->guest.stdio[0] == o->source.fd)
        return;
    o->ended = true;
    loop_set(s->loop, &o->source, 0);
    util_close(&s->guest.stdio[o == &s->out[0] ? 1 : 2]);
}

/* A guest that has ended is not watched: what it wrote lies in its pipes (supervise_last). */
static int supervise_streams(struct supervised *s)
{
    for (int i = 0; i < 2; i++) {
        s->out[i].ended = s->guest.stdio[i + 1] < 0; /* the caller took it */
        if (s->out[i].ended)
            continue;
        s->out[i].on_data = s->options.on_output ? supervise_on_output : NULL;
        s->out[i].on_truncated = supervise_on_truncated;
        s->out[i].on_broken = supervise_on_broken;
        s->out[i].owner = s;
        s->out[i].keep_escapes = s->options.keep_escapes;
        if (stream_out_start(&s->out[i], s->loop, s->guest.stdio[i + 1], s->options.sinks[i],
                             s->options.keep_output, s->plan->limits.max_output) < 0 ||
            (!s->guest.has_ended && stream_out_watch(&s->out[i]) < 0))
            return -1;
    }
    if (s->guest.has_ended)
        util_close(&s->guest.stdio[0]);
    if (s->guest.stdio[0] < 0)
        return 0;
    return stream_in_start(&s->in, s->loop, &s->guest.stdio[0], s->options.stdin_fd,
                           s->options.stdin_data, s->options.stdin_len);
}

static int supervise_watches(struct supervised *s, struct cordon_err *err)
{
    if (s->guest.has_ended && supervise_streams(s) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "supervise", errno, "streams");
    if (s->guest.has_ended)
        return supervise_watch_start(s, err);
    s->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    s->gone = (struct loop_watch){.fd = s->guest.event_fd, .fn = supervise_on_gone, .data = s};
    s->timer = (struct loop_watch){.fd = s->timer_fd, .fn = supervise_on_timer, .data = s};
    if (s->timer_fd < 0 || supervise_streams(s) < 0 || loop_set(s->loop, &s->gone, EPOLLIN) < 0 ||
        loop_set(s->loop, &s->timer, EPOLLIN) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "supervise", errno, "event loop");
    if (supervise_net_start(s) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "supervise", errno, "event loop");
    if (supervise_watch_start(s, err) < 0)
        return -1;
    uint64_t at = supervise_watch_tick(s, s->begin_ns);
    if (at != UINT64_MAX)
        supervise_arm(s, at);
    return 0;
}

void supervise_catch_up(struct supervised *s)
{
    if (s->guest.has_ended && !s->finished)
        supervise_last(s);
}

int supervise_start(struct supervised *s, struct loop *loop, const struct backend *backend,
                    const struct plan *plan, const struct supervise_options *options,
                    bool *ret_host_refused, struct cordon_err *err)
{
    memset(s, 0, sizeof(*s));
    s->loop = loop;
    s->plan = plan;
    s->options = *options;
    s->timer_fd = -1;
    s->begin_ns = clock_ns();
    s->guest.is_last = options->is_last; /* of use to a start, too */
    s->guest.wants_nothing = options->is_brief && options->stdin_len == 0 &&
                             (options->stdin_fd < 0 || stream_is_null(options->stdin_fd));
    *ret_host_refused = false;
    int r = supervise_watch_prepare(s, err);
    /* a prepared guest that cannot be used is no failure: nothing of the run has happened */
    s->was_prepared =
        options->prepared && r == 0 && backend->claim(options->prepared, plan, &s->guest, err) == 0;
    if (r < 0 && options->prepared)
        warm_drop(options->prepared);
    if (r < 0 || (!s->was_prepared && backend->start(plan, &s->guest, ret_host_refused, err) < 0)) {
        supervise_watch_stop(s);
        return -1;
    }
    s->has_guest = true;
    s->guest.is_last = options->is_last;
    if (options->on_start)
        options->on_start(options->data, &s->guest);
    if (supervise_watches(s, err) < 0) {
        supervise_abort(s);
        util_close(&s->timer_fd);
        return -1;
    }
    return 0;
}

void supervise_abort(struct supervised *s)
{
    struct cordon_err drop;
    s->guest.backend->kill(&s->guest);
    supervise_net_done(s);
    supervise_watch_stop(s);
    loop_set(s->loop, &s->gone, 0);
    loop_set(s->loop, &s->timer, 0);
    for (int i = 0; i < 2; i++)
        stream_out_done(&s->out[i]);
    stream_in_done(&s->in);
    s->guest.backend->finish(&s->guest, &s->outcome, &drop);
    util_close(&s->outcome.cwd_fd); /* nobody takes it */
    s->finished = true;
}

void supervise_free(struct supervised *s)
{
    for (int i = 0; i < 2; i++)
        stream_out_done(&s->out[i]);
    netlog_done(&s->netlog);
    util_close(&s->timer_fd);
}
