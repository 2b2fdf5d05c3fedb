/* Standard streams of a container. Runs in `cordon-docker`. */
#include "backend/docker/stdio.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/util.h"

#define STDIO_PIPE_MAX (2u << 20)
#define STDIO_PENDING_MAX (4 * STDIO_CHUNK) /* read no more while this much waits */

static int out_add(struct stdio_out *o, const char *data, size_t len)
{
    if (o->fd < 0)
        return 0;
    if (o->done > 0) {
        memmove(o->pending.data, o->pending.data + o->done, o->pending.len - o->done);
        o->pending.len -= o->done;
        o->done = 0;
    }
    return buf_add(&o->pending, data, len);
}

static void out_flush(struct stdio_out *o)
{
    while (o->fd >= 0 && o->done < o->pending.len) {
        ssize_t n = write(o->fd, o->pending.data + o->done, o->pending.len - o->done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0) {
            o->fd = -1;
            return;
        }
        o->done += (size_t)n;
    }
}

static bool out_is_busy(const struct stdio_out *o)
{
    return o->fd >= 0 && o->pending.len - o->done > 0;
}

/* The engine carries each stream by itself: a guest's output may come before the report that went
 * before it. Nobody is to see it, and end the guest for it, while nothing is known of its wall. */
static bool stdio_holds_back(const struct stdio *s)
{
    return !s->started && !s->ended && !s->attach_ended;
}

/* How much of the end could be the beginning of the secret. */
static size_t scan_partial(const struct buf *scan, const uint8_t *secret)
{
    for (size_t n = MIN(scan->len, INIT_SECRET - 1); n > 0; n--)
        if (memcmp(scan->data + scan->len - n, secret, n) == 0)
            return n;
    return 0;
}

static void scan_drop(struct buf *scan, size_t n)
{
    memmove(scan->data, scan->data + n, scan->len - n);
    scan->len -= n;
}

/* Reports come behind secrets of their own: the first, then the last, or the last alone when pid 1
 * failed before it began. All else is the guest's. */
static char *scan_find(struct stdio *s, bool *ret_first)
{
    char *last = s->scan.len ? memmem(s->scan.data, s->scan.len, s->end_secret, INIT_SECRET) : NULL;
    char *first = s->scan.len && !s->started
                      ? memmem(s->scan.data, s->scan.len, s->start_secret, INIT_SECRET)
                      : NULL;
    *ret_first = first && (!last || first < last);
    return *ret_first ? first : last;
}

static int scan_step(struct stdio *s, bool *ret_again)
{
    bool is_first = false;
    *ret_again = false;
    char *at = s->ended ? NULL : scan_find(s, &is_first);
    size_t plain = at ? (size_t)(at - s->scan.data) : s->scan.len;
    if (!at && !s->ended) {
        size_t first = s->started ? 0 : scan_partial(&s->scan, s->start_secret);
        size_t last = scan_partial(&s->scan, s->end_secret);
        plain -= MAX(first, last);
    }
    if (plain > 0) {
        if (s->ended && s->files)
            files_feed(s->files, s->scan.data, plain);
        else if (out_add(&s->out[1], s->scan.data, plain) < 0)
            return -1;
        scan_drop(&s->scan, plain);
    }
    if (!at || s->scan.len < INIT_SECRET + sizeof(s->report))
        return 0;
    memcpy(is_first ? &s->begin : &s->report, s->scan.data + INIT_SECRET, sizeof(s->report));
    scan_drop(&s->scan, INIT_SECRET + sizeof(s->report));
    if (is_first)
        s->started = true;
    else
        s->ended = true;
    *ret_again = true;
    return 0;
}

static int stdio_take(struct stdio *s, int stream, const char *data, size_t len)
{
    if (stream == 1)
        return out_add(&s->out[0], data, len);
    if (buf_add(&s->scan, data, len) < 0)
        return -1;
    bool again;
    do {
        if (scan_step(s, &again) < 0)
            return -1;
    } while (again);
    return 0;
}

/* Frames: one byte for the stream, three of nothing, four of length (big endian), the bytes. */
static int stdio_parse(struct stdio *s, const char *data, size_t len)
{
    while (len > 0) {
        if (s->rest == 0) {
            size_t n = MIN(sizeof(s->head) - s->head_len, len);
            memcpy(s->head + s->head_len, data, n);
            s->head_len += n;
            data += n;
            len -= n;
            if (s->head_len < sizeof(s->head))
                return 0;
            s->head_len = 0;
            s->stream = s->head[0] == 2 ? 2 : 1;
            s->rest = (uint32_t)s->head[4] << 24 | (uint32_t)s->head[5] << 16 |
                      (uint32_t)s->head[6] << 8 | s->head[7];
            continue;
        }
        size_t n = MIN(s->rest, len);
        if (stdio_take(s, s->stream, data, n) < 0)
            return -1;
        s->rest -= (uint32_t)n;
        data += n;
        len -= n;
    }
    return 0;
}

int stdio_begin_raw(struct stdio *s, const int fds[static 3], int alive_fd)
{
    s->is_raw = true;
    s->raw_alive = alive_fd;
    for (int i = 0; i < 2; i++) {
        s->raw_fds[i] = fds[1 + i];
        fcntl(s->raw_fds[i], F_SETFL, O_NONBLOCK);
    }
    return stdio_begin(s, fds[0], "", 0);
}

int stdio_begin(struct stdio *s, int attach_fd, const char *early, size_t len)
{
    s->attach_fd = attach_fd;
    fcntl(attach_fd, F_SETFL, fcntl(attach_fd, F_GETFL) | O_NONBLOCK);
    s->in = malloc(STDIO_CHUNK);
    for (int i = 0; i < 2; i++)
        s->out[i].pending.max = (size_t)1 << 30;
    s->scan.max = (size_t)1 << 30;
    for (int fd = 0; fd < 3; fd++)
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); /* pipes of ours alone */
    s->in_fd = 0;
    s->out[0].fd = 1;
    s->out[1].fd = 2;
    return s->in ? stdio_parse(s, early, len) : -1;
}

static bool stdio_has_input(const struct stdio *s)
{
    return s->order_done < s->order.len || s->in_done < s->in_len;
}

void stdio_poll(const struct stdio *s, struct pollfd *fds)
{
    bool held = stdio_holds_back(s);
    bool room = held || (s->out[0].pending.len - s->out[0].done < STDIO_PENDING_MAX &&
                         s->out[1].pending.len - s->out[1].done < STDIO_PENDING_MAX);
    short attach = (short)((room && !s->is_raw ? POLLIN : 0) | (stdio_has_input(s) ? POLLOUT : 0));
    fds[0] =
        (struct pollfd){.fd = s->attach_ended || !attach ? -1 : s->attach_fd, .events = attach};
    fds[1] = (struct pollfd){
        .fd = s->in_fd >= 0 && !stdio_has_input(s) && !s->attach_ended ? s->in_fd : -1,
        .events = POLLIN};
    for (int i = 0; i < 2; i++) {
        bool busy = out_is_busy(&s->out[i]) && !held;
        fds[2 + i] = (struct pollfd){.fd = busy ? s->out[i].fd : -1, .events = POLLOUT};
        fds[4 + i] =
            (struct pollfd){.fd = s->is_raw && room ? s->raw_fds[i] : -1, .events = POLLIN};
    }
    fds[6] = (struct pollfd){.fd = s->is_raw ? s->raw_alive : -1, .events = POLLIN};
}

/* what looked like the beginning of a report was the guest's own */
static int stdio_end(struct stdio *s)
{
    s->attach_ended = true;
    if (!s->ended && s->scan.len > 0 && out_add(&s->out[1], s->scan.data, s->scan.len) < 0)
        return -1;
    s->scan.len = 0;
    return 0;
}

/* 1: there may be more at once. */
static int stdio_receive_raw(struct stdio *s, int i)
{
    char chunk[STDIO_CHUNK];
    ssize_t n = read(s->raw_fds[i], chunk, sizeof(chunk));
    if (n > 0)
        return stdio_take(s, i + 1, chunk, (size_t)n) < 0 ? -1 : 1;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return errno == EINTR;
    util_close(&s->raw_fds[i]);
    return 0;
}

/* The command's pid 1 has ended everything and is gone: what lies in the pipes is all there is. */
static int stdio_end_raw(struct stdio *s)
{
    for (int i = 0; i < 2; i++) {
        int r = 1; /* no more than a pipe can hold: somebody may still be writing */
        for (size_t got = 0; s->raw_fds[i] >= 0 && r > 0 && got <= STDIO_PIPE_MAX;
             got += STDIO_CHUNK)
            r = stdio_receive_raw(s, i);
        if (r < 0)
            return -1;
        util_close(&s->raw_fds[i]);
    }
    util_close(&s->raw_alive);
    return stdio_end(s);
}

static int stdio_receive(struct stdio *s)
{
    char chunk[STDIO_CHUNK];
    ssize_t n = recv(s->attach_fd, chunk, sizeof(chunk), MSG_DONTWAIT);
    if (n > 0)
        return stdio_parse(s, chunk, (size_t)n);
    return n == 0 || (errno != EAGAIN && errno != EINTR) ? stdio_end(s) : 0;
}

static void stdio_send(struct stdio *s)
{
    while (stdio_has_input(s)) {
        bool order = s->order_done < s->order.len;
        const char *from = order ? s->order.data + s->order_done : s->in + s->in_done;
        size_t len = order ? s->order.len - s->order_done : s->in_len - s->in_done;
        ssize_t n = write(s->attach_fd, from, len); /* SIGPIPE is ignored here */
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            if (errno != EAGAIN) { /* the container is gone; its end is told elsewhere */
                s->order_done = s->order.len;
                s->in_len = s->in_done = 0;
                s->in_fd = -1;
            }
            return;
        }
        *(order ? &s->order_done : &s->in_done) += (size_t)n;
    }
    if (s->in_fd < 0 && !s->in_closed) {
        s->in_closed = true;
        if (s->is_raw)
            util_close(&s->attach_fd);
        else
            shutdown(s->attach_fd, SHUT_WR);
    }
}

int stdio_step(struct stdio *s, const struct pollfd *fds)
{
    if (!s->is_raw && fds[0].revents & (POLLIN | POLLHUP | POLLERR) && stdio_receive(s) < 0)
        return -1;
    for (int i = 0; i < 2; i++)
        if (fds[4 + i].revents && stdio_receive_raw(s, i) < 0)
            return -1;
    if (fds[6].revents && stdio_end_raw(s) < 0)
        return -1;
    if (fds[1].revents) {
        ssize_t n = read(s->in_fd, s->in, STDIO_CHUNK);
        s->in_done = 0;
        s->in_len = n > 0 ? (size_t)n : 0;
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            close(s->in_fd);
            s->in_fd = -1;
        }
    }
    if (!s->attach_ended)
        stdio_send(s);
    for (int i = 0; i < 2 && !stdio_holds_back(s); i++)
        out_flush(&s->out[i]);
    return 0;
}

bool stdio_is_drained(const struct stdio *s)
{
    return s->attach_ended && !out_is_busy(&s->out[0]) && !out_is_busy(&s->out[1]);
}

void stdio_done(struct stdio *s)
{
    for (int i = 0; i < 2; i++)
        buf_done(&s->out[i].pending);
    buf_done(&s->scan);
    buf_done(&s->order);
    free(s->in);
}
