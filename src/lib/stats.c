/* Numbers of a handle's supervisor. Runs in the calling program. */
#include "lib/lib.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/util.h"
#include "lib/wire.h"

#define STATS_MS 5000

static int stats_ask(const struct peer *peer, struct wire_stats *ret, struct cordon_err *err)
{
    int pair[2];
    struct wire_head head = wire_head(WIRE_STATS);
    struct iovec part = {&head, sizeof(head)};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "stats", errno, "socketpair");
    _cleanup_close_ int near = pair[0];
    int r = wire_send(peer->sock, &part, 1, &pair[1], 1, 0);
    int sent = errno;
    close(pair[1]);
    if (r < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "stats", sent, "request to the supervisor");
    struct pollfd p = {.fd = near, .events = POLLIN};
    while ((r = poll(&p, 1, STATS_MS)) < 0 && errno == EINTR)
        ;
    int fds[WIRE_FDS_MAX];
    size_t n_fds;
    ssize_t n = r == 1 ? wire_recv(near, ret, sizeof(*ret), fds, &n_fds, MSG_DONTWAIT) : -1;
    if (n != (ssize_t)sizeof(*ret) || ret->head.type != WIRE_STATS)
        return err_set(err, CORDON_ERR_INTERNAL, "stats", r == 0 ? ETIMEDOUT : 0,
                       "the supervisor does not answer");
    return 0;
}

int cordon_stats(struct cordon *handle, struct cordon_stats *ret_stats, struct cordon_err *err)
{
    if (!ret_stats || ret_stats->size < sizeof(size_t))
        return err_set(err, CORDON_ERR_USAGE, "stats", 0, "cordon_stats: size is not set");
    struct peer *peer;
    struct wire_stats w;
    if (handle_peer(handle, NULL, &peer, err) < 0)
        return -1;
    int r = stats_ask(peer, &w, err);
    peer_unref(peer);
    if (r < 0)
        return -1;
    struct cordon_stats full = {.size = ret_stats->size,
                                .runs_now = w.runs_now,
                                .hits = w.hits,
                                .spawned = w.spawned,
                                .cold = w.cold,
                                .waiting = w.waiting,
                                .start_p50_ns = w.start_p50_ns,
                                .start_p99_ns = w.start_p99_ns};
    memcpy(ret_stats, &full, MIN(full.size, sizeof(full)));
    return 0;
}
