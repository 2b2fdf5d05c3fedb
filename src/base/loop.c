/* The supervisor's event loop. */
#include "base/loop.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/util.h"

void loop_init_late(struct loop *l)
{
    l->n_pending = 0;
    l->epoll_fd = -1;
}

static int loop_open(struct loop *l)
{
    if (l->epoll_fd < 0)
        l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    return l->epoll_fd < 0 ? -1 : 0;
}

int loop_init(struct loop *l)
{
    loop_init_late(l);
    return loop_open(l);
}

void loop_done(struct loop *l)
{
    util_close(&l->epoll_fd);
}

int loop_set(struct loop *l, struct loop_watch *w, uint32_t events)
{
    if (events == 0) {
        if (!w->added)
            return 0;
        w->added = false;
        w->events = 0;
        for (int i = 0; i < l->n_pending; i++)
            if (l->pending[i] == w)
                l->pending[i] = NULL;
        return epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, w->fd, NULL);
    }
    if (w->added && w->events == events)
        return 0;
    struct epoll_event ev = {.events = events, .data.ptr = w};
    if (loop_open(l) < 0 ||
        epoll_ctl(l->epoll_fd, w->added ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, w->fd, &ev) < 0)
        return -1;
    w->added = true;
    w->events = events;
    return 0;
}

int loop_once(struct loop *l, int timeout_ms)
{
    struct epoll_event events[ARRAY_SIZE(l->pending)];
    if (loop_open(l) < 0)
        return -1;
    int n = epoll_wait(l->epoll_fd, events, ARRAY_SIZE(events), timeout_ms);
    if (n < 0)
        return errno == EINTR ? 1 : -1;
    for (int i = 0; i < n; i++)
        l->pending[i] = events[i].data.ptr;
    l->n_pending = n;
    for (int i = 0; i < n; i++) {
        struct loop_watch *w = l->pending[i];
        if (w)
            w->fn(w, events[i].events);
    }
    l->n_pending = 0;
    return n;
}
