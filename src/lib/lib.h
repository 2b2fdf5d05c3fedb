/* What the files of the library share. Everything here runs in the calling program: no printing, no
 * signal handlers, no global state, every descriptor close-on-exec. */
#ifndef LIB_LIB_H
#define LIB_LIB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <cordon.h>

#include "base/buf.h"

/* A supervisor as we see it. Counted: the handle has one reference, each job one. Freed with the
 * last; both descriptors stay valid until then. */
struct peer {
    atomic_uint refs;
    int sock;  /* control */
    int pidfd; /* readable when the supervisor is gone, whoever holds copies of our sockets */
    pid_t pid;
};

/* peer.c */
int peer_start(const char *binary, struct peer **ret_peer, struct cordon_err *err);
struct peer *peer_ref(struct peer *peer);
void peer_unref(struct peer *peer); /* NULL is accepted */
bool peer_is_gone(const struct peer *peer);
/* Waits for its end. false: it lives on. */
bool peer_wait_gone(const struct peer *peer, int timeout_ms);
/* Ends it and waits. */
void peer_stop(struct peer *peer);

/* spawn.c: starts binary as the supervisor at the other end of control_fd; host_fd is a pidfd of
 * ours, -1: none. It is no child of ours afterwards. -1 with errno. */
int spawn_supervisor(const char *binary, int control_fd, int host_fd);

/* locate.c: absolute path of the cordon program, to be freed. */
int locate_binary(const char *wanted, char **ret_path, struct cordon_err *err);

/* handle.c: a reference to a living supervisor, a new one when the old one is known to be gone. */
int handle_peer(struct cordon *handle, const struct peer *gone, struct peer **ret_peer,
                struct cordon_err *err);

/* request.c. The body is append-only: a job that was started reads the bytes that were there then.
 */
struct cordon_request {
    struct buf body; /* while it is small, then */
    int body_fd;     /* a memfd, -1: not yet */
    uint64_t body_len;
    unsigned flags;
    int stdin_fd; /* -1: bytes of the body, or nothing */
    bool has_command, has_places;
};

/* result.c: takes the waiting reply of a job off its socket. -1: *err is what it said, or that
 * there was none; then the stage is RESULT_STAGE_NONE, and the errno ECONNRESET when the other end
 * was closed with something unread in it. */
#define RESULT_STAGE_NONE "supervisor"
int result_receive(int sock, struct cordon_result **ret_result, struct cordon_err *err);

#endif
