/* Framed bytes to and from a guest. Runs in the supervisor. */
#include "grade/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/util.h"

#define CHANNEL_HEAD 5
#define CHANNEL_CHUNK 65536

void channel_init(struct channel *c, struct loop *loop)
{
    c->loop = loop;
    c->in.fd = c->out.fd = -1;
    c->queue = BUF_INIT(CHANNEL_QUEUE_MAX);
    c->got = BUF_INIT(CHANNEL_HEAD + CHANNEL_FRAME_MAX + CHANNEL_CHUNK);
}

void channel_close(struct channel *c)
{
    if (c->in.fd >= 0)
        loop_set(c->loop, &c->in, 0);
    if (c->out.fd >= 0)
        loop_set(c->loop, &c->out, 0);
    util_close(&c->in.fd);
    util_close(&c->out.fd);
}

void channel_done(struct channel *c)
{
    if (!c->loop)
        return;
    channel_close(c);
    buf_done(&c->queue);
    buf_done(&c->got);
    c->loop = NULL;
}

static void channel_end(struct channel *c, const char *breach)
{
    if (c->in.fd < 0)
        return;
    channel_close(c);
    c->on_end(c, breach);
}

/* ---- to the guest ---- */

static void channel_push(struct channel *c)
{
    while (c->out.fd >= 0 && c->sent < c->queue.len) {
        ssize_t n = write(c->out.fd, c->queue.data + c->sent, c->queue.len - c->sent);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) { /* nobody reads any more; what the guest still says is read all the same */
            loop_set(c->loop, &c->out, 0);
            util_close(&c->out.fd);
            return;
        }
        c->sent += (size_t)n;
    }
    if (c->sent == c->queue.len && c->spoke)
        c->sent = c->queue.len = 0;
    if (c->out.fd >= 0)
        loop_set(c->loop, &c->out, c->sent < c->queue.len ? EPOLLOUT : 0);
}

void channel_send(struct channel *c, char kind, const void *data, size_t len)
{
    if (kind) {
        unsigned char head[CHANNEL_HEAD] = {(unsigned char)kind, (unsigned char)len,
                                            (unsigned char)(len >> 8), (unsigned char)(len >> 16),
                                            (unsigned char)(len >> 24)};
        buf_add(&c->queue, head, sizeof(head));
    }
    if (len > 0)
        buf_add(&c->queue, data, len);
    if (c->queue.failed)
        channel_end(c, "more was sent to it than it took");
    else
        channel_push(c);
}

static void channel_on_out(struct loop_watch *w, uint32_t events)
{
    (void)events;
    channel_push(w->data);
}

/* ---- from the guest ---- */

/* Hands out every whole frame; false when the channel was ended. */
static bool channel_frames(struct channel *c)
{
    size_t at = 0;
    while (c->got.len - at >= CHANNEL_HEAD) {
        const unsigned char *head = (const unsigned char *)c->got.data + at;
        size_t len =
            (size_t)head[1] | (size_t)head[2] << 8 | (size_t)head[3] << 16 | (size_t)head[4] << 24;
        if (len > CHANNEL_FRAME_MAX) {
            channel_end(c, "a message larger than 16 MiB");
            return false;
        }
        if (c->got.len - at - CHANNEL_HEAD < len)
            break;
        bool fine = c->on_frame(c, (char)head[0], c->got.data + at + CHANNEL_HEAD, len);
        if (c->in.fd < 0)
            return false;
        if (!fine) {
            channel_end(c, "a message out of turn");
            return false;
        }
        at += CHANNEL_HEAD + len;
    }
    if (at > 0) {
        memmove(c->got.data, c->got.data + at, c->got.len - at);
        c->got.len -= at;
    }
    return true;
}

/* One read; false when there is nothing now or ever. */
static bool channel_read(struct channel *c)
{
    if (buf_reserve(&c->got, CHANNEL_CHUNK) < 0) {
        channel_end(c, "out of memory");
        return false;
    }
    ssize_t n = read(c->in.fd, c->got.data + c->got.len, CHANNEL_CHUNK);
    if (n < 0)
        return errno == EINTR;
    if (n == 0) {
        channel_end(c, NULL);
        return false;
    }
    c->spoke = true;
    c->got.len += (size_t)n;
    return channel_frames(c);
}

static void channel_on_in(struct loop_watch *w, uint32_t events)
{
    (void)events;
    channel_read(w->data);
}

void channel_drain(struct channel *c)
{
    while (c->in.fd >= 0 && channel_read(c))
        ;
}

int channel_attach(struct channel *c, struct guest *guest)
{
    channel_close(c);
    c->got.len = 0;
    c->sent = 0;
    c->in = (struct loop_watch){.fd = TAKE_FD(guest->stdio[1]), .fn = channel_on_in, .data = c};
    c->out = (struct loop_watch){.fd = TAKE_FD(guest->stdio[0]), .fn = channel_on_out, .data = c};
    if (fcntl(c->in.fd, F_SETFL, O_NONBLOCK) < 0 || fcntl(c->out.fd, F_SETFL, O_NONBLOCK) < 0 ||
        loop_set(c->loop, &c->in, EPOLLIN) < 0) {
        channel_close(c);
        return -1;
    }
    channel_push(c);
    return 0;
}
