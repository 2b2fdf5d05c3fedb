/* Output on its way to a caller who reads it live.
 *
 * The bytes are those kept for the result, so the cap is the same and nothing is stored twice; a
 * caller who does not read holds up neither the guest nor the other guests of this loop. */
#ifndef SERVE_RELAY_H
#define SERVE_RELAY_H

#include <stddef.h>

#include "base/buf.h"
#include "base/loop.h"

struct relay {
    struct loop *loop;
    struct loop_watch sink; /* the caller's pipe; fd -1: none, or done */
    const struct buf *source;
    size_t sent;
    bool source_ended;
    void (*on_done)(void *data);
    void *data;
};

/* Takes fd over. source is looked at in relay_push() and later. */
int relay_start(struct relay *relay, struct loop *loop, int fd, const struct buf *source);
/* There is more, or (ended) there will be no more; on_done follows when the rest is delivered. */
void relay_push(struct relay *relay, bool ended);
void relay_stop(struct relay *relay);

static inline bool relay_is_done(const struct relay *relay)
{
    return relay->sink.fd < 0;
}

#endif
