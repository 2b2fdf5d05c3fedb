/* Lines on stderr while a guest runs. In the command, which supervises it. */
#include "cli/log_queue.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/util.h"
#include "cli/cli.h"
#include "supervise/stream.h"

#define QUEUE_MAX 65536u

/* As much as fits. What could not be opened anew may block, unless it is a pipe with room for what
 * the kernel writes at once. */
static void queue_push(struct log_queue *q)
{
    while (q->done < q->pending.len) {
        struct pollfd p = {.fd = q->watch.fd, .events = POLLOUT};
        if (poll(&p, 1, 0) <= 0)
            break;
        size_t n = MIN(q->pending.len - q->done, (size_t)PIPE_BUF);
        ssize_t w = write(q->watch.fd, q->pending.data + q->done, n);
        if (w < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        /* a log that cannot be written does not change how a run ends */
        q->done = w < 0 ? q->pending.len : q->done + (size_t)w;
    }
    if (q->done == q->pending.len)
        q->done = q->pending.len = 0;
    loop_set(q->loop, &q->watch, q->pending.len > 0 ? EPOLLOUT : 0);
}

static void queue_writable(struct loop_watch *w, uint32_t events)
{
    (void)events;
    queue_push(w->data);
}

static void queue_start(struct log_queue *q, struct loop *loop)
{
    q->started = true;
    q->loop = loop;
    q->pending = BUF_INIT(QUEUE_MAX);
    q->own_fd = stream_own(STDERR_FILENO, O_WRONLY);
    q->watch = (struct loop_watch){
        .fd = q->own_fd >= 0 ? q->own_fd : STDERR_FILENO, .fn = queue_writable, .data = q};
}

void log_queue_add(struct log_queue *q, struct loop *loop, const char *line, size_t len)
{
    if (!q->started)
        queue_start(q, loop);
    if (q->done > 0) {
        memmove(q->pending.data, q->pending.data + q->done, q->pending.len - q->done);
        q->pending.len -= q->done;
        q->done = 0;
    }
    if (q->pending.len + len > QUEUE_MAX || buf_add(&q->pending, line, len) < 0)
        q->lost++;
    queue_push(q);
}

void log_queue_end(struct log_queue *q)
{
    if (!q->started)
        return;
    loop_set(q->loop, &q->watch, 0);
    (void)cli_write(STDERR_FILENO, q->pending.data + q->done, q->pending.len - q->done);
    if (q->lost > 0)
        fprintf(stderr,
                "Warning: %zu lines of the network log were lost: nobody read them in time\n",
                q->lost);
    buf_done(&q->pending);
    util_close(&q->own_fd);
    q->started = false;
}
