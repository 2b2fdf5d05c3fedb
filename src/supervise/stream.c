/* Streams of a guest. Runs in the supervisor. */
#include "supervise/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/sys.h"
#include "base/utf8.h"
#include "base/util.h"

/* Writes of at most PIPE_BUF never block on a pipe that poll calls writable, so the caller's own
 * stdout keeps its blocking mode: it may be shared with other processes. */
#define STREAM_SINK_CHUNK 4096
#define STREAM_FLUSH_MS 100

/* STRIP_TAIL1 to 3: so many bytes of a character are to come. After C2, E0 and F0 not every byte
 * can come: U+0080 to U+009F are controls, also in a longer spelling than they have. */
enum {
    STRIP_TEXT,
    STRIP_TAIL1,
    STRIP_TAIL2,
    STRIP_TAIL3,
    STRIP_C2,
    STRIP_E0,
    STRIP_F0,
    STRIP_ESC,
    STRIP_CSI,
    STRIP_OSC,
    STRIP_OSC_ESC,
};

/* After a control of U+0080 to U+009F, whether spelled as one byte or two. */
static int strip_after_c1(unsigned char c)
{
    if (c == 0x9b)
        return STRIP_CSI;
    return c == 0x90 || c == 0x98 || (c >= 0x9d && c <= 0x9f) ? STRIP_OSC : STRIP_TEXT;
}

/* What a byte of text leads to; it stays unless it is a control. */
static int strip_text(unsigned char c, bool *ret_keep)
{
    *ret_keep =
        c >= 0x20 ? c != 0x7f && !(c >= 0x80 && c <= 0x9f) : c == '\n' || c == '\t' || c == '\r';
    if (c == 0x1b)
        return STRIP_ESC;
    if (c >= 0x80 && c <= 0x9f)
        return strip_after_c1(c);
    if (c < 0xc2 || c > 0xf4)
        return STRIP_TEXT;
    if (c == 0xc2 || c == 0xe0 || c == 0xf0)
        return c == 0xc2 ? STRIP_C2 : c == 0xe0 ? STRIP_E0 : STRIP_F0;
    return c < 0xe0 ? STRIP_TAIL1 : c < 0xf0 ? STRIP_TAIL2 : STRIP_TAIL3;
}

/* The second byte of a character after which it is a plain one; else it is judged as text. */
static bool strip_goes_on(int state, unsigned char c)
{
    unsigned char least = state == STRIP_C2 || state == STRIP_E0 ? 0xa0
                          : state == STRIP_F0                    ? 0x90
                                                                 : 0x80;
    return c >= least && c <= 0xbf;
}

/* Takes terminal control out of text in place: a guest must not retitle, clear or answer on the
 * caller's terminal. Newline, tab and carriage return stay. */
static size_t stream_strip(int *state, char *data, size_t len)
{
    size_t out = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)data[i];
        bool keep;
        switch (*state) {
        case STRIP_TEXT:
            *state = strip_text(c, &keep);
            if (keep)
                data[out++] = (char)c;
            break;
        case STRIP_TAIL1:
        case STRIP_TAIL2:
        case STRIP_TAIL3:
        case STRIP_C2: /* of a control a lone C2 is left, which shows as a box */
        case STRIP_E0:
        case STRIP_F0:
            if (strip_goes_on(*state, c)) {
                data[out++] = (char)c;
                *state = *state == STRIP_F0                            ? STRIP_TAIL2
                         : *state == STRIP_E0                          ? STRIP_TAIL1
                         : *state == STRIP_C2 || *state == STRIP_TAIL1 ? STRIP_TEXT
                                                                       : *state - 1;
                break;
            }
            *state = STRIP_TEXT;
            i--;
            break;
        case STRIP_ESC:
            if (c == '[')
                *state = STRIP_CSI;
            else if (c == ']' || c == 'P' || c == '_' || c == '^' || c == 'X')
                *state = STRIP_OSC;
            else
                *state = c == 0x1b ? STRIP_ESC : STRIP_TEXT;
            break;
        case STRIP_CSI:
            if (c >= 0x40 && c <= 0x7e)
                *state = STRIP_TEXT;
            break;
        case STRIP_OSC:
            if (c == 0x07)
                *state = STRIP_TEXT;
            else if (c == 0x1b)
                *state = STRIP_OSC_ESC;
            break;
        default: *state = STRIP_TEXT; break;
        }
    }
    return out;
}

size_t stream_plain(char *data, size_t len)
{
    int state = STRIP_TEXT;
    return stream_strip(&state, data, len);
}

int stream_own(int fd, int mode)
{
    char path[32];
    struct stat st;
    if (fstat(fd, &st) < 0 || !(S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode)))
        return -1;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return sys_open(path, mode | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

/* Before the first bytes, not before: most guests write to one of two streams, many to none. */
static void out_open_sink(struct stream_out *s)
{
    s->strip = !s->keep_escapes && isatty(s->sink.fd);
    s->own_sink = stream_own(s->sink.fd, O_WRONLY);
    if (s->own_sink >= 0)
        s->sink.fd = s->own_sink;
    s->sink_blind = loop_set(s->loop, &s->sink, EPOLLOUT) < 0;
    loop_set(s->loop, &s->sink, 0);
    s->sink_open = true;
}

static void out_sink_broken(struct stream_out *s)
{
    loop_set(s->loop, &s->sink, 0);
    s->sink.fd = -1; /* what still comes is counted and dropped */
    s->pending_len = s->pending_done = 0;
}

/* Writes pending bytes while the sink takes them. */
static void out_push(struct stream_out *s)
{
    while (s->pending_done < s->pending_len && s->sink.fd >= 0) {
        struct pollfd p = {.fd = s->sink.fd, .events = POLLOUT};
        if (!s->sink_blind && (poll(&p, 1, 0) <= 0 || !(p.revents & (POLLOUT | POLLERR | POLLHUP))))
            break;
        size_t n = MIN(s->pending_len - s->pending_done, (size_t)STREAM_SINK_CHUNK);
        ssize_t w = write(s->sink.fd, s->pending + s->pending_done, n);
        if (w < 0 && (errno == EINTR || errno == EAGAIN))
            break;
        if (w < 0) {
            s->sink_errno = errno;
            out_sink_broken(s);
            if (s->on_broken)
                s->on_broken(s);
            break;
        }
        s->pending_done += (size_t)w;
        if (w > 0)
            s->in_line = s->pending[s->pending_done - 1] != '\n';
    }
    if (s->pending_done == s->pending_len)
        s->pending_len = s->pending_done = 0;
    if (s->sink.fd >= 0 && !s->sink_blind)
        loop_set(s->loop, &s->sink, s->pending_len ? EPOLLOUT : 0);
    if (!s->ended)
        loop_set(s->loop, &s->source, s->pending_len ? 0 : EPOLLIN);
}

/* The first n bytes, but not a part of a character that the cap would cut in two. */
static size_t out_whole(const char *data, size_t n, size_t len)
{
    uint32_t code;
    for (size_t back = 1; n < len && back <= MIN(n, (size_t)3); back++)
        if (utf8_decode(data + n - back, data + len, &code) > back)
            return n - back;
    return n;
}

static void out_take(struct stream_out *s, char *data, size_t len)
{
    uint64_t room = s->total < s->cap ? s->cap - s->total : 0;
    s->total += len;
    size_t n = (size_t)MIN((uint64_t)len, room);
    if (n < len && !s->truncated) {
        s->truncated = true;
        if (s->on_truncated)
            s->on_truncated(s);
    }
    if (n == 0)
        return;
    if (s->keep)
        buf_add(&s->kept, data, n);
    n = out_whole(data, n, len);
    if (s->on_data && n > 0)
        s->on_data(s, data, n);
    if (s->sink.fd >= 0 && n > 0) {
        if (!s->sink_open)
            out_open_sink(s);
        s->pending_len = s->strip ? stream_strip(&s->strip_state, data, n) : n;
        s->pending_done = 0;
        out_push(s);
    }
}

/* One read; false when there is nothing (now or ever). */
static bool out_read(struct stream_out *s)
{
    ssize_t n = read(s->source.fd, s->pending, STREAM_CHUNK);
    if (n > 0) {
        out_take(s, s->pending, (size_t)n);
        return true;
    }
    if (n < 0 && errno == EINTR)
        return true;
    if (n < 0 && errno == EAGAIN)
        return false;
    s->ended = true;
    loop_set(s->loop, &s->source, 0);
    return false;
}

static void out_readable(struct loop_watch *w, uint32_t events)
{
    (void)events;
    struct stream_out *s = w->data;
    if (s->pending_len == 0)
        out_read(s);
}

static void out_writable(struct loop_watch *w, uint32_t events)
{
    (void)events;
    out_push(w->data);
}

/* Of the first streams of a process: from its own memory, so that a short run maps nothing. What
 * says who has them lies elsewhere: a stream that carries nothing touches none of it. */
static char stream_first[STREAM_FIRST][STREAM_CHUNK];
static bool stream_first_used[STREAM_FIRST];

static char *stream_chunk_new(void)
{
    for (size_t i = 0; i < STREAM_FIRST; i++)
        if (!stream_first_used[i]) {
            stream_first_used[i] = true;
            return stream_first[i];
        }
    return malloc(STREAM_CHUNK);
}

static void stream_chunk_free(char *chunk)
{
    for (size_t i = 0; i < STREAM_FIRST; i++)
        if (chunk == stream_first[i]) {
            stream_first_used[i] = false;
            return;
        }
    free(chunk);
}

int stream_out_start(struct stream_out *s, struct loop *loop, int fd, int sink_fd, bool keep,
                     uint64_t cap)
{
    s->loop = loop;
    s->source = (struct loop_watch){.fd = fd, .fn = out_readable, .data = s};
    s->sink = (struct loop_watch){.fd = sink_fd, .fn = out_writable, .data = s};
    s->own_sink = -1;
    s->sink_open = false;
    s->keep = keep;
    s->cap = cap;
    s->kept = BUF_INIT(cap < SIZE_MAX - 1 ? (size_t)cap : SIZE_MAX - 1);
    s->pending = stream_chunk_new();
    return !s->pending || fcntl(fd, F_SETFL, O_NONBLOCK) < 0 ? -1 : 0;
}

int stream_out_watch(struct stream_out *s)
{
    return loop_set(s->loop, &s->source, EPOLLIN);
}

/* The guest is gone and only a slow reader is waited for: the loop does not run, so a signal that
 * the supervisor takes by signalfd is seen here. */
static bool flush_is_cancelled(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    sigset_t set;
    if (sigpending(&set) < 0)
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
        if (sigismember(&set, signals[i]))
            return true;
    return false;
}

void stream_out_flush(struct stream_out *s)
{
    while (s->pending_len > 0 && s->sink.fd >= 0) {
        struct pollfd p = {.fd = s->sink.fd, .events = POLLOUT};
        if (!s->sink_blind && poll(&p, 1, STREAM_FLUSH_MS) < 0 && errno != EINTR)
            return;
        if (flush_is_cancelled()) {
            out_sink_broken(s);
            return;
        }
        out_push(s);
    }
}

void stream_out_drain(struct stream_out *s)
{
    do
        stream_out_flush(s);
    while (!s->ended && out_read(s));
    stream_out_flush(s);
}

void stream_out_done(struct stream_out *s)
{
    if (!s->loop)
        return;
    loop_set(s->loop, &s->source, 0);
    if (s->sink.fd >= 0)
        loop_set(s->loop, &s->sink, 0);
    util_close(&s->own_sink);
    stream_chunk_free(s->pending);
    s->pending = NULL;
    buf_done(&s->kept);
    s->loop = NULL;
}

static void in_end(struct stream_in *s)
{
    if (s->source.fd >= 0)
        loop_set(s->loop, &s->source, 0);
    loop_set(s->loop, &s->target, 0);
    util_close(s->owner_fd);
    s->target.fd = -1;
}

/* Gets the next bytes to write: from memory, or by one read of the source. */
static bool in_fill(struct stream_in *s)
{
    if (s->pending_done < s->pending_len)
        return true;
    s->pending_len = s->pending_done = 0;
    if (s->source.fd < 0) {
        s->pending_len = MIN(s->memory_len - s->memory_done, (size_t)STREAM_CHUNK);
        memcpy(s->pending, s->memory + s->memory_done, s->pending_len);
        s->memory_done += s->pending_len;
        s->source_ended = s->pending_len == 0;
        return s->pending_len > 0;
    }
    ssize_t n = read(s->source.fd, s->pending, STREAM_CHUNK);
    if (n > 0)
        s->pending_len = (size_t)n;
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        s->source_ended = true;
    return n > 0;
}

static void in_pump(struct stream_in *s)
{
    if (s->pending_done == s->pending_len && s->source_ended) {
        in_end(s);
        return;
    }
    ssize_t n = write(s->target.fd, s->pending + s->pending_done, s->pending_len - s->pending_done);
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
        in_end(s); /* the guest closed its input; that is its business */
        return;
    }
    if (n > 0)
        s->pending_done += (size_t)n;
}

/* Either side moved: read when empty, write when full, and watch only the side we wait for. A
 * source that can be polled is read only when poll says so: it may be a terminal or a pipe in
 * blocking mode. */
static void in_step(struct stream_in *s, bool source_ready)
{
    bool empty = s->pending_done == s->pending_len;
    if (empty && !s->source_ended && (source_ready || s->source_blind || s->source.fd < 0))
        in_fill(s);
    if (s->pending_done < s->pending_len || s->source_ended)
        in_pump(s);
    if (s->target.fd < 0)
        return;
    empty = s->pending_done == s->pending_len;
    bool wait_source = empty && !s->source_ended && s->source.fd >= 0 && !s->source_blind;
    if (s->source.fd >= 0 && !s->source_blind)
        loop_set(s->loop, &s->source, wait_source ? EPOLLIN : 0);
    /* while waiting for the source, only a hang-up of the guest is of interest */
    loop_set(s->loop, &s->target, wait_source ? (uint32_t)EPOLLERR : (uint32_t)EPOLLOUT);
}

static void in_source_ready(struct loop_watch *w, uint32_t events)
{
    (void)events;
    in_step(w->data, true);
}

static void in_target_ready(struct loop_watch *w, uint32_t events)
{
    struct stream_in *s = w->data;
    if (events & (EPOLLERR | EPOLLHUP))
        in_end(s); /* no reader is left; a terminal says so in its own way */
    else
        in_step(s, false);
}

bool stream_is_null(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3);
}

int stream_in_start(struct stream_in *s, struct loop *loop, int *target_fd, int source_fd,
                    const char *memory, size_t memory_len)
{
    *s = (struct stream_in){
        .loop = loop, .owner_fd = target_fd, .memory = memory, .memory_len = memory_len};
    if (source_fd >= 0 && stream_is_null(source_fd))
        source_fd = -1;
    s->own_source = source_fd >= 0 ? stream_own(source_fd, O_RDONLY) : -1;
    if (s->own_source >= 0)
        source_fd = s->own_source;
    s->source = (struct loop_watch){.fd = source_fd, .fn = in_source_ready, .data = s};
    s->target = (struct loop_watch){.fd = *target_fd, .fn = in_target_ready, .data = s};
    if (source_fd < 0 && memory_len == 0) {
        in_end(s);
        return 0;
    }
    s->pending = stream_chunk_new();
    if (!s->pending || fcntl(*target_fd, F_SETFL, O_NONBLOCK) < 0)
        return -1;
    if (source_fd >= 0 && loop_set(loop, &s->source, EPOLLIN) < 0)
        s->source_blind = true;
    return loop_set(loop, &s->target,
                    s->source_blind || source_fd < 0 ? (uint32_t)EPOLLOUT : (uint32_t)EPOLLERR);
}

void stream_in_done(struct stream_in *s)
{
    if (!s->loop)
        return;
    if (s->target.fd >= 0)
        in_end(s);
    util_close(&s->own_source);
    stream_chunk_free(s->pending);
    s->pending = NULL;
    s->loop = NULL;
}
