/* One container from its creation to its removal. Runs in `cordon-docker run`. */
#ifndef BACKEND_DOCKER_SESSION_H
#define BACKEND_DOCKER_SESSION_H

#include <limits.h>
#include <time.h>

#include "backend/docker/binds.h"
#include "backend/docker/engine.h"
#include "backend/docker/files.h"
#include "backend/docker/request.h"
#include "backend/docker/stdio.h"
#include "backend/helper/helper.h"
#include "init/init.h"

/* channel.c: see there. */
struct channel {
    int listen_fd;
    int lock_fd;                            /* of `top`: somebody lives who will remove it */
    char top[PATH_MAX], dir[PATH_MAX + 16]; /* empty: there is none, or it is hidden again */
};

struct session {
    struct engine engine;
    struct request request;
    struct binds binds;
    struct channel channel; /* of one that holds */
    char id[72];
    struct http attach; /* raw stream of the container's standard streams */
    struct http wait;   /* answers when the container is gone */
    struct stdio stdio;
    struct files files;    /* of the guest's working directory */
    bool control_open;     /* the supervisor is there */
    bool killed;           /* somebody wanted the end */
    bool gone;             /* the container was removed */
    bool inside;           /* it is somebody's to keep: we run a command in it */
    bool holds;            /* it is ours to keep for commands of others */
    bool forced;           /* the engine was told to kill it */
    struct timespec began; /* by the clock of the engine's events */
    uint64_t started_ns, killed_ns, ended_ns;
    int exit_code; /* of pid 1, -1: not known */
};

/* order.c: reads the supervisor's order; makes that of a container that holds; says who a pid 1
 * that begins as root becomes; adds the packet rules where they are asked for. */
int order_take(struct session *s, struct cordon_err *err);
int order_hold(struct session *s, struct cordon_err *err);
void order_user(struct session *s, const struct binds *binds);
int order_guard(struct session *s, struct cordon_err *err);

/* channel.c: makes the socket and its folder, or not; takes pid 1's connection, -1: there is none;
 * removes the folder. channel_begin(): a command's streams to the pid 1 that keeps the container.
 */
void channel_open(struct channel *c);
int channel_accept(struct channel *c);
void channel_hide(struct channel *c);
int channel_begin(struct stdio *io);

/* outcome.c: the last message to the supervisor. */
void outcome_fill(struct session *s, struct helper_message *m);

/* The whole of it; the outcome goes to the supervisor. Returns the exit status of the process. */
int session_run(void);
/* A container that waits for commands of others, until the supervisor is gone. */
int session_hold(void);

#endif
