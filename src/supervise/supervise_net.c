/* The broker of a guest with a way out, seen from the supervisor: its records, its end. */
#include "supervise/supervise_net.h"

#include <sys/epoll.h>

#include "base/clock.h"
#include "base/util.h"

#define NET_LAST_NS 600000000u /* for its last records, longer than it waits itself */
#define NET_LOST_NS 10000000u

static void net_on_record(void *data, const struct netwire_record *record)
{
    struct supervised *s = data;
    netlog_add(&s->netlog, record);
    if (s->options.on_network)
        s->options.on_network(s->options.data, record);
}

static void net_on_ready(struct loop_watch *w, uint32_t events)
{
    struct supervised *s = w->data;
    (void)events;
    if (netclient_read(s->guest.net, net_on_record, s))
        return;
    loop_set(s->loop, w, 0);
    s->net_has_ended = true;
    if (s->net_state == SUPERVISE_NET_ENDING) {
        supervise_last(s);
        return;
    }
    s->net_state = SUPERVISE_NET_LOST;
    supervise_arm(s, clock_ns());
}

int supervise_net_start(struct supervised *s)
{
    s->netlog.begin_ns = s->begin_ns;
    if (!s->guest.net)
        return 0;
    s->net = (struct loop_watch){.fd = s->guest.net->fd, .fn = net_on_ready, .data = s};
    return loop_set(s->loop, &s->net, EPOLLIN);
}

bool supervise_net_end(struct supervised *s)
{
    if (!s->guest.net || s->net_state != SUPERVISE_NET_UP)
        return false;
    s->net_state = SUPERVISE_NET_ENDING;
    netclient_end(s->guest.net);
    supervise_arm(s, clock_ns() + NET_LAST_NS);
    return true;
}

/* A broker that ended without having said all: either the guest's set-up has failed, which will be
 * told by the guest's own end, or the way out is lost and the run with it. */
static bool net_is_lost(struct supervised *s)
{
    return s->net_has_ended && !s->guest.net->has_said_all &&
           (s->guest.backend->started(&s->guest) || s->guest.net->failure[0]);
}

uint64_t supervise_net_tick(struct supervised *s, uint64_t now)
{
    if (s->net_state != SUPERVISE_NET_LOST || s->cause != CAUSE_NONE)
        return UINT64_MAX;
    if (net_is_lost(s))
        supervise_end(s, CAUSE_BROKER);
    return now + NET_LOST_NS;
}

void supervise_net_done(struct supervised *s)
{
    if (!s->guest.net)
        return;
    loop_set(s->loop, &s->net, 0);
    /* The guest may have ended as it did for want of its way out. */
    if (s->cause == CAUSE_NONE && net_is_lost(s))
        s->cause = CAUSE_BROKER;
    s->netlog.is_blind = s->guest.net->is_blind || !s->guest.net->has_said_all;
    s->netlog.dropped += s->guest.net->n_lost;
    snprintf(s->net_failure, sizeof(s->net_failure), "%s", s->guest.net->failure);
    /* it has closed what the next run may want, and who comes after us settles it */
    if (s->net_has_ended && s->guest.net->has_said_all &&
        (s->options.is_last || s->plan->is_handle))
        netclient_leave(s->guest.net);
    else
        netclient_free(s->guest.net);
    s->guest.net = NULL;
}
