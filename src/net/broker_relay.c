/* Bytes of an open connection: judged where they must be, spliced where they may. Runs in the
 * broker.
 *
 * Towards the guest nothing is held back, so that protocols in which the server speaks first work.
 * The client's first bytes wait until they show what they are: TLS must name the host that was
 * dialled, HTTP must name it in every request, anything else passes. */
#include "net/broker_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/util.h"
#include "net/tlshello.h"

#define RELAY_CHUNK (1024u << 10)
#define RELAY_ROUNDS 16 /* then the others have their turn */

/* ---- pipes ------------------------------------------------------------------------------------
 */

static int relay_take_pipe(struct broker *b, struct broker_flow *f)
{
    if (f->pipe[0] >= 0)
        return 0;
    if (b->n_pool > 0) {
        b->n_pool--;
        memcpy(f->pipe, b->pool[b->n_pool].fds, sizeof(f->pipe));
        f->is_big = b->pool[b->n_pool].is_big;
        return 0;
    }
    if (pipe2(f->pipe, O_CLOEXEC | O_NONBLOCK) < 0)
        return -1;
    /* What waits in a pipe is the host's memory, not the guest's: a few large ones for speed; a
     * guest that lets thousands of connections wait gets the kernel's small ones. */
    f->is_big = b->n_big < BROKER_BIG_PIPES && fcntl(f->pipe[1], F_SETPIPE_SZ, RELAY_CHUNK) > 0;
    b->n_big += f->is_big;
    return 0;
}

static void relay_give_pipe(struct broker *b, struct broker_flow *f)
{
    if (f->pipe[0] < 0)
        return;
    if (f->in_pipe == 0 && b->n_pool < BROKER_POOL_MAX) {
        memcpy(b->pool[b->n_pool].fds, f->pipe, sizeof(f->pipe));
        b->pool[b->n_pool++].is_big = f->is_big;
    } else {
        close(f->pipe[0]);
        close(f->pipe[1]);
        b->n_big -= f->is_big;
    }
    f->pipe[0] = f->pipe[1] = -1;
}

void broker_relay_count(struct broker_conn *c)
{
    uint64_t moved = c->upward.bytes + c->downward.bytes;
    broker_limits_count(c->broker, moved - c->counted);
    c->counted = moved;
}

void broker_relay_done(struct broker_conn *c)
{
    relay_give_pipe(c->broker, &c->upward);
    relay_give_pipe(c->broker, &c->downward);
}

int broker_relay_prepend(struct broker_conn *c, struct broker_flow *f, const char *data, size_t len)
{
    if (relay_take_pipe(c->broker, f) < 0 || write(f->pipe[1], data, len) != (ssize_t)len)
        return -1;
    f->in_pipe += len;
    f->bytes += len;
    return 0;
}

/* ---- moving -----------------------------------------------------------------------------------
 */

/* 0: nothing more to do now; -1: one of the two sides is broken. max: at most so many bytes. */
static int relay_splice(struct broker *b, struct broker_flow *f, int from, int to, size_t max)
{
    if (relay_take_pipe(b, f) < 0)
        return -1;
    size_t moved = 0;
    for (int round = 0; round < RELAY_ROUNDS; round++) {
        if (f->in_pipe == 0 && !f->eof && moved < max) {
            ssize_t n = splice(from, NULL, f->pipe[1], NULL, MIN(max - moved, RELAY_CHUNK),
                               SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
            if (n < 0 && errno != EAGAIN && errno != EINTR)
                return -1;
            if (n < 0)
                break;
            f->eof = n == 0;
            f->in_pipe = (size_t)n;
            f->bytes += (size_t)n;
            moved += (size_t)n;
        }
        if (f->in_pipe == 0)
            break;
        ssize_t n =
            splice(f->pipe[0], NULL, to, NULL, f->in_pipe, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return -1;
        if (n <= 0)
            break;
        f->in_pipe -= (size_t)n;
    }
    if (f->in_pipe == 0)
        relay_give_pipe(b, f);
    return (int)MIN(moved, (size_t)INT32_MAX);
}

static void relay_shut(struct broker_flow *f, int to)
{
    if (f->eof && f->in_pipe == 0 && !f->shut) {
        f->shut = true;
        shutdown(to, SHUT_WR);
    }
}

/* What the policy still lets through. Others' bytes are counted when their turn ends. */
static size_t relay_left(const struct broker_conn *c)
{
    const struct broker *b = c->broker;
    uint64_t used = b->traffic + c->upward.bytes + c->downward.bytes - c->counted;
    if (!b->max_traffic)
        return SIZE_MAX;
    return used > b->max_traffic ? 0 : (size_t)MIN(b->max_traffic - used, (uint64_t)SIZE_MAX);
}

/* Nothing is left, and there is something to move: the connection is over, before a byte of it
 * passes. True: gone. */
static bool relay_is_spent(struct broker_conn *c, const struct broker_flow *f, int from)
{
    char byte;
    if (relay_left(c) > 0 || f->eof || f->in_pipe > 0 ||
        recv(from, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 1)
        return false;
    broker_conn_close(c, NETWIRE_REFUSED, c->broker->traffic_rule);
    return true;
}

/* Behind relay_is_spent: where nothing is left, an end of the stream must be found all the same. */
static size_t relay_splice_max(const struct broker_conn *c)
{
    size_t left = relay_left(c);
    return left > 0 ? left : 1;
}

/* ---- judging ----------------------------------------------------------------------------------
 */

static bool judge_tls_name(const struct broker_conn *c, const char *name)
{
    struct nethost said;
    return c->verdict.host_loopback ||
           (nethost_parse(name, strlen(name), &said) && nethost_equal(&said, &c->host));
}

/* What the first bytes are. False: the connection was refused and is gone. */
static bool judge_first(struct broker_conn *c)
{
    char name[TLSHELLO_NAME_MAX + 1];
    size_t need;
    switch (tlshello_read((const uint8_t *)c->held, c->n_held, name, &need)) {
    case TLSHELLO_MORE: return true;
    case TLSHELLO_NO_NAME:
        if (c->verdict.host_loopback) {
            c->judge = JUDGE_RAW;
            return true;
        }
        broker_conn_close(c, NETWIRE_REFUSED, "name mismatch: TLS without a server name");
        return false;
    case TLSHELLO_BAD:
        broker_conn_close(c, NETWIRE_REFUSED, "name mismatch: bad TLS");
        return false;
    case TLSHELLO_NAME:
        if (judge_tls_name(c, name)) {
            c->judge = JUDGE_RAW;
            c->watches_answer = false;
            return true;
        }
        broker_conn_close(c, NETWIRE_REFUSED, "name mismatch");
        return false;
    case TLSHELLO_OTHER: break;
    }
    switch (httpfirst_read(c->held, c->n_held, c->upward.eof, &c->n_passed)) {
    case HTTPFIRST_UNSURE:
        /* No server acts on the beginning of a line, and a client may well wait for an answer to a
         * few letters: they pass, and are kept for when the line goes on. */
        return true;
    case HTTPFIRST_NO: c->judge = JUDGE_RAW; return true;
    case HTTPFIRST_YES: break;
    }
    c->n_passed = 0;
    c->watches_answer = false;
    c->http = malloc(sizeof(*c->http));
    if (!c->http) {
        broker_conn_close(c, NETWIRE_FAILED, "out of memory");
        return false;
    }
    *c->http = (struct httpwatch){.host = c->host, .any_host = c->verdict.host_loopback};
    c->judge = JUDGE_HTTP;
    return true;
}

static bool judge_http(struct broker_conn *c)
{
    while (c->n_passed < c->n_held) {
        size_t pass = 0;
        switch (httpwatch_step(c->http, c->held + c->n_passed, c->n_held - c->n_passed, &pass)) {
        case HTTPWATCH_MISMATCH:
            broker_conn_close(c, NETWIRE_REFUSED, "name mismatch");
            return false;
        case HTTPWATCH_REFUSED:
            broker_conn_close(c, NETWIRE_REFUSED, "name mismatch: ambiguous HTTP");
            return false;
        case HTTPWATCH_PASS: break;
        }
        if (pass == 0)
            break;
        c->n_passed += pass;
    }
    if (c->http->state == HTTPWATCH_RAW)
        c->judge = JUDGE_RAW;
    return true;
}

static bool judge_held(struct broker_conn *c)
{
    if (c->judge == JUDGE_FIRST && c->n_held > 0 && !judge_first(c))
        return false;
    if (c->judge == JUDGE_HTTP && !judge_http(c))
        return false;
    /* a client that ends before it has said what it is, is none of the two that must say more;
     * half a request is not passed on, nor what follows a wish that the server has not granted */
    if (c->upward.eof && c->judge == JUDGE_FIRST)
        c->judge = JUDGE_RAW;
    if (c->judge == JUDGE_RAW)
        c->n_passed = c->n_held;
    if (c->upward.eof && c->judge == JUDGE_HTTP && !c->http->has_request && c->n_held > 0) {
        /* Its beginning may have passed, and for some servers the end of the stream ends a line. */
        broker_conn_close(c, NETWIRE_REFUSED, "name mismatch: half a request");
        return false;
    }
    if (c->upward.eof && c->judge == JUDGE_HTTP) {
        c->n_held = c->n_passed;
        c->n_sent = MIN(c->n_sent, c->n_held);
    }
    if (c->n_passed == 0 && c->n_held == BROKER_HELD_MAX) {
        broker_conn_close(c, NETWIRE_REFUSED, "name mismatch: head too long");
        return false;
    }
    return true;
}

/* Reads into the held bytes. False: gone. */
static bool relay_hold(struct broker_conn *c)
{
    if (!c->held && !(c->held = malloc(BROKER_HELD_MAX))) {
        broker_conn_close(c, NETWIRE_FAILED, "out of memory");
        return false;
    }
    if (c->n_held < BROKER_HELD_MAX && !c->upward.eof) {
        ssize_t n = recv(c->guest.fd, c->held + c->n_held, BROKER_HELD_MAX - c->n_held, 0);
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            broker_conn_end(c);
            return false;
        }
        if (n == 0)
            c->upward.eof = true;
        if (n > 0)
            c->n_held += (size_t)n;
    }
    return judge_held(c);
}

/* Sends what of the held bytes may pass. False: gone. */
static bool relay_pass(struct broker_conn *c)
{
    while (c->n_sent < c->n_passed) {
        size_t max = MIN(c->n_passed - c->n_sent, relay_left(c));
        if (max == 0) {
            broker_conn_close(c, NETWIRE_REFUSED, c->broker->traffic_rule);
            return false;
        }
        ssize_t n = send(c->up.fd, c->held + c->n_sent, max, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (n < 0) {
            broker_conn_end(c);
            return false;
        }
        c->n_sent += (size_t)n;
        c->upward.bytes += (size_t)n;
    }
    size_t done = c->judge == JUDGE_FIRST ? 0 : MIN(c->n_sent, c->n_passed);
    if (c->judge == JUDGE_FIRST && c->n_sent == BROKER_HELD_MAX)
        /* a first word that does not end: there are servers that take methods of any length */
        c->n_held = c->n_passed = c->n_sent = BROKER_WORD_KEPT;
    if (done > 0) {
        memmove(c->held, c->held + done, c->n_held - done);
        c->n_held -= done;
        c->n_passed -= done;
        c->n_sent -= done;
    }
    if (c->judge == JUDGE_RAW && c->n_held == 0) {
        free(c->held);
        c->held = NULL;
    }
    return true;
}

/* ---- turns ------------------------------------------------------------------------------------
 */

/* The client asked for another protocol: the server's answer is read on its way, byte for byte what
 * the client gets. Returns how many bytes may be moved now. */
static size_t relay_watch_answer(struct broker_conn *c)
{
    if (!c->http || c->http->state != HTTPWATCH_UPGRADE)
        return SIZE_MAX;
    if (c->n_seen_in_queue == 0 && !c->downward.eof) {
        char bytes[4096];
        ssize_t n = recv(c->up.fd, bytes, sizeof(bytes), MSG_PEEK);
        if (n <= 0 || buf_add(&c->seen, bytes, (size_t)n) < 0)
            return n == 0 ? SIZE_MAX : 0;
        c->n_seen_in_queue = (size_t)n;
        if (httpwatch_answer(c->http, c->seen.data, c->seen.len))
            buf_done(&c->seen);
    }
    return c->n_seen_in_queue;
}

/* A client was let through as neither TLS nor HTTP, and the server answers in one of them: then it
 * took for a request or a hello what nobody here has read. Nothing of the answer passes, nor what
 * the client sends from now on. Where the server speaks first there is nothing to answer yet.
 * False: gone. */
static bool relay_check_answer(struct broker_conn *c)
{
    char *start = c->answer_start;
    if (!c->watches_answer || c->state != CONN_OPEN || c->n_answer_in_queue > 0)
        return true;
    ssize_t n = recv(c->up.fd, start + c->n_answer, sizeof(c->answer_start) - c->n_answer,
                     MSG_PEEK | MSG_DONTWAIT);
    bool came_with_the_proxys = c->downward.in_pipe > 0 && c->n_answer == 0;
    if (n < 0 && (errno == EAGAIN || errno == EINTR) && !came_with_the_proxys)
        return true;
    c->watches_answer = false;
    if (n <= 0 || c->upward.bytes == 0 || came_with_the_proxys)
        return true;
    switch (httpfirst_read_answer(start, c->n_answer + (size_t)n)) {
    case HTTPFIRST_YES:
        broker_conn_close(c, NETWIRE_REFUSED, "name mismatch: an answer to what was no request");
        return false;
    case HTTPFIRST_UNSURE:
        c->watches_answer = true;
        c->n_answer_in_queue = (size_t)n;
        break;
    case HTTPFIRST_NO: break;
    }
    return true;
}

/* What to wait for on each side; a side that nothing is wanted from is not watched at all, or its
 * end would be told over and over. */
static void relay_wait(struct broker_conn *c)
{
    bool open = c->state == CONN_OPEN;
    bool held_room = c->n_held < BROKER_HELD_MAX;
    bool raw = c->judge == JUDGE_RAW && !c->held;
    uint32_t guest = 0, up = 0;
    if (!c->upward.eof && (raw ? open && c->upward.in_pipe == 0 : held_room))
        guest |= EPOLLIN;
    if (c->downward.in_pipe > 0)
        guest |= EPOLLOUT;
    if (open && !c->downward.eof && c->downward.in_pipe == 0)
        up |= EPOLLIN;
    if (open && (c->upward.in_pipe > 0 || c->n_passed > c->n_sent))
        up |= EPOLLOUT;
    if (loop_set(&c->broker->loop, &c->guest, guest) < 0 ||
        (open && loop_set(&c->broker->loop, &c->up, up) < 0))
        broker_conn_close(c, NETWIRE_FAILED, "out of memory");
}

static bool relay_upward(struct broker_conn *c)
{
    if (c->judge != JUDGE_RAW || c->held) {
        if (!relay_hold(c) || (c->state == CONN_OPEN && !relay_pass(c)))
            return false;
        if (c->held || c->judge != JUDGE_RAW) {
            if (c->n_held == 0 && c->state == CONN_OPEN)
                relay_shut(&c->upward, c->up.fd);
            return true;
        }
    }
    if (c->state != CONN_OPEN)
        return true;
    if (relay_is_spent(c, &c->upward, c->guest.fd))
        return false;
    if (!c->upward.eof || c->upward.in_pipe > 0)
        if (relay_splice(c->broker, &c->upward, c->guest.fd, c->up.fd, relay_splice_max(c)) < 0) {
            broker_conn_end(c);
            return false;
        }
    relay_shut(&c->upward, c->up.fd);
    return true;
}

static bool relay_downward(struct broker_conn *c)
{
    if (c->state != CONN_OPEN || c->downward.shut)
        return true;
    if (relay_is_spent(c, &c->downward, c->up.fd))
        return false;
    size_t max = c->watches_answer ? c->n_answer_in_queue : relay_watch_answer(c);
    max = MIN(max, relay_splice_max(c));
    int n = relay_splice(c->broker, &c->downward, c->up.fd, c->guest.fd, max);
    if (n < 0) {
        broker_conn_end(c);
        return false;
    }
    c->n_seen_in_queue -= MIN(c->n_seen_in_queue, (size_t)n);
    if (c->watches_answer) {
        c->n_answer += (size_t)n;
        c->n_answer_in_queue -= (size_t)n;
    }
    relay_shut(&c->downward, c->guest.fd);
    return true;
}

void broker_relay_turn(struct broker_conn *c)
{
    if (!relay_check_answer(c) || !relay_upward(c))
        return;
    bool waited = c->http && c->http->state == HTTPWATCH_UPGRADE;
    if (!relay_downward(c))
        return;
    /* the answer lets the client go on with what is held */
    if (waited && c->http->state != HTTPWATCH_UPGRADE && !relay_upward(c))
        return;
    broker_relay_count(c);
    if (c->upward.shut && c->downward.shut)
        broker_conn_end(c);
    else
        relay_wait(c);
}

bool broker_relay_has_more(struct broker_conn *c)
{
    char byte;
    const struct broker_flow *f = c->is_inward ? &c->downward : &c->upward;
    int from = c->is_inward ? c->up.fd : c->guest.fd;
    if (f->shut)
        return false;
    if (f->in_pipe > 0 || (!c->is_inward && c->n_held > c->n_sent))
        return true;
    ssize_t n = f->eof ? -1 : recv(from, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    /* its end is still to be passed on, too, if there is somebody to pass it to */
    return n > 0 || (n == 0 && c->state == CONN_OPEN);
}

void broker_relay_guest(struct loop_watch *w, uint32_t events)
{
    (void)events;
    broker_relay_turn(w->data);
}

void broker_relay_up(struct loop_watch *w, uint32_t events)
{
    (void)events;
    broker_relay_turn(w->data);
}
