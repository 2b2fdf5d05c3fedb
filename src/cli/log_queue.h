/* Lines on stderr while a guest runs. A reader that is slow, or none, must not stop the loop that
 * holds the guest's limits: what does not fit now is written later, and what is too much is counted
 * and dropped. */
#ifndef CLI_LOG_QUEUE_H
#define CLI_LOG_QUEUE_H

#include "base/buf.h"
#include "base/loop.h"

struct log_queue {
    struct loop *loop;
    struct loop_watch watch; /* stderr, opened anew where it can be */
    int own_fd;              /* -1: it cannot */
    bool started;
    struct buf pending;
    size_t done;
    size_t lost; /* lines */
};

#define LOG_QUEUE_INIT                                                                             \
    {                                                                                              \
        .own_fd = -1                                                                               \
    }

void log_queue_add(struct log_queue *q, struct loop *loop, const char *line, size_t len);
/* The guest is gone: waits until everything is written. */
void log_queue_end(struct log_queue *q);

#endif
