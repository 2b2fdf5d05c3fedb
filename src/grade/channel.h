/* Frames between us and a guest over its standard input and output: one letter, four bytes of
 * length, the payload.
 *
 * Runs in the supervisor, on its loop; nothing here blocks. The guest is hostile: a frame longer
 * than the bound, or more of them than its owner takes, ends the channel. Nothing is read while the
 * other side's queue is full: the owner says so by its answer. */
#ifndef GRADE_CHANNEL_H
#define GRADE_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>

#include "backend/backend.h"
#include "base/buf.h"
#include "base/loop.h"

#define CHANNEL_FRAME_MAX ((size_t)16 << 20)
#define CHANNEL_QUEUE_MAX ((size_t)96 << 20)

struct channel {
    struct loop *loop;
    struct loop_watch in, out; /* fds are ours; -1: closed */
    struct buf queue;          /* to the guest; what went out stays until the guest spoke */
    size_t sent;
    struct buf got;
    bool spoke; /* at least one byte came from this guest */
    /* A whole frame; false: it is not in order and the channel is ended. */
    bool (*on_frame)(struct channel *c, char kind, const char *data, size_t len);
    /* No more frames: end of file, or a breach with its reason. Called once. */
    void (*on_end)(struct channel *c, const char *breach);
    void *owner;
};

/* Before the guest exists. */
void channel_init(struct channel *c, struct loop *loop);
/* Takes over the guest's stdin and stdout. A second time: the guest was started anew, and
 * everything queued so far is written again. */
int channel_attach(struct channel *c, struct guest *guest);
/* Queues a frame; kind 0: the bytes as they are. What cannot be queued makes the channel fail at
 * its next step. */
void channel_send(struct channel *c, char kind, const void *data, size_t len);
/* The guest is gone: reads what is left. */
void channel_drain(struct channel *c);
/* Safe to call twice, and from the callbacks. */
void channel_close(struct channel *c);
void channel_done(struct channel *c);

#endif
