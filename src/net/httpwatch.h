/* Follows the requests of one HTTP/1 connection: every one of them must name the host that was
 * dialled. Pure; runs in the broker, on what the client sends.
 *
 * The caller holds bytes that may not pass yet and shows them from their beginning each time. Where
 * two readers could disagree about a message (two Hosts, both kinds of length, folded lines) it is
 * refused, so that nothing can be smuggled past. */
#ifndef NET_HTTPWATCH_H
#define NET_HTTPWATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/nethost.h"

#define HTTPWATCH_HEAD_MAX 16384 /* bytes a caller must be able to hold */

enum httpwatch_state {
    HTTPWATCH_HEAD,
    HTTPWATCH_BODY_BEGIN, /* `left` bytes of a body of known length, the first line not seen yet */
    HTTPWATCH_BODY,       /* `left` bytes of a body */
    HTTPWATCH_CHUNK_SIZE, /* a chunked body: at a line with a size */
    HTTPWATCH_CHUNK,      /* `left` bytes of a chunk */
    HTTPWATCH_CHUNK_END,  /* at the line end behind a chunk */
    HTTPWATCH_TRAILER,
    HTTPWATCH_UPGRADE, /* the server decides what comes next: httpwatch_answer; only behind the
                          first request */
    HTTPWATCH_RAW,     /* it agreed to another protocol: no requests any more */
    HTTPWATCH_H2,      /* it agreed to HTTP/2, whose names cannot be followed: nothing passes */
};

struct httpwatch {
    struct nethost host; /* that was dialled */
    bool any_host;       /* the host's loopback has many names: they are not compared, the rest is
                            checked all the same */
    enum httpwatch_state state;
    uint64_t left;
    bool has_request; /* one has passed */
    bool has_h2;      /* asked for by the request at hand */
};

enum httpwatch_verdict {
    HTTPWATCH_PASS,     /* forward *ret_pass bytes; what is left needs more behind it */
    HTTPWATCH_MISMATCH, /* another host: refuse, forward nothing of it */
    HTTPWATCH_REFUSED,  /* broken or ambiguous: the same */
};

/* data: everything that has not been forwarded. *ret_pass may be 0: wait for more. In state BODY
 * and CHUNK the next `left` bytes may pass without being shown (httpwatch_passed). In state
 * UPGRADE nothing passes until httpwatch_answer. */
enum httpwatch_verdict httpwatch_step(struct httpwatch *w, const char *data, size_t len,
                                      size_t *ret_pass);

/* n bytes of a body passed unseen; n <= left. */
void httpwatch_passed(struct httpwatch *w, uint64_t n);

/* State UPGRADE: the first bytes the server sent after it. False: show more. */
bool httpwatch_answer(struct httpwatch *w, const char *data, size_t len);

#endif
