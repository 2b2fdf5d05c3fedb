/* Live output to the caller. Runs in the supervisor. */
#include "serve/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>

#include "base/util.h"

static void relay_writable(struct loop_watch *w, uint32_t events)
{
    (void)events;
    struct relay *r = w->data;
    bool was_done = relay_is_done(r);
    relay_push(r, r->source_ended);
    if (!was_done && relay_is_done(r) && r->on_done)
        r->on_done(r->data);
}

int relay_start(struct relay *r, struct loop *loop, int fd, const struct buf *source)
{
    r->loop = loop;
    r->source = source;
    r->sink = (struct loop_watch){.fd = fd, .fn = relay_writable, .data = r};
    return fcntl(fd, F_SETFL, O_NONBLOCK);
}

void relay_push(struct relay *r, bool ended)
{
    if (relay_is_done(r))
        return;
    r->source_ended = ended;
    while (r->sent < r->source->len) {
        ssize_t n = write(r->sink.fd, r->source->data + r->sent, r->source->len - r->sent);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            if (loop_set(r->loop, &r->sink, EPOLLOUT) < 0)
                relay_stop(r);
            return;
        }
        if (n < 0) {
            relay_stop(r); /* the caller closed it: the result still has everything */
            return;
        }
        r->sent += (size_t)n;
    }
    loop_set(r->loop, &r->sink, 0);
    if (ended)
        relay_stop(r);
}

void relay_stop(struct relay *r)
{
    if (relay_is_done(r))
        return;
    loop_set(r->loop, &r->sink, 0);
    util_close(&r->sink.fd);
}
