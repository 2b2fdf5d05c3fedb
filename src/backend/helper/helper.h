/* Walls that another executable builds: `cordon-docker`.
 *
 * The supervisor stays what it is for the native backend: streams, clocks, cancel, judgement. It
 * starts the helper with the guest's three pipes as standard streams and three descriptors more;
 * the helper makes the container, carries bytes, and reports. Both come from one build, so
 * messages are plain structs; a helper of another build is refused by the magic. */
#ifndef BACKEND_HELPER_HELPER_H
#define BACKEND_HELPER_HELPER_H

#include <sys/socket.h>

#include "backend/backend.h"

#define HELPER_CONTROL_FD 3 /* SOCK_SEQPACKET; its end of file says that the supervisor is gone */
#define HELPER_REQUEST_FD 4 /* the request, one JSON object */
#define HELPER_CHANNEL_FD 6 /* way to the pid 1 of the container that is shared, or /dev/null */
#define HELPER_ORDER_FD 5   /* what pid 1 of the container is told: init/init.h, secrets unset */
#define HELPER_MAGIC (0xc0d00001u + (uint32_t)sizeof(struct helper_message))
#define HELPER_NAME_MAX 48

enum helper_type {
    /* from the helper */
    HELPER_STARTED =
        1,         /* the guest's own code begins: time_ns; of one that holds, with its channel */
    HELPER_DONE,   /* outcome, with its cwd_fd as a right; nothing of the guest is left */
    HELPER_FAILED, /* err: the wall could not be built, or was lost */
    /* to the helper */
    HELPER_KILL,
    HELPER_SIGNAL, /* signal */
};

struct helper_message {
    uint32_t magic, type;
    uint64_t time_ns; /* CLOCK_MONOTONIC */
    int32_t signal;
    bool lost; /* FAILED: the wall stood and was lost while the guest ran */
    struct backend_outcome outcome;
    struct cordon_err err;
};

/* One descriptor beside a message. */
union helper_rights {
    char space[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
};

extern const struct backend backend_helper;

/* holder.c: one container kept for the commands of this process. Name of it when it is free and
 * made from the same request, else NULL (and one is started for later, where none is there). */
const char *holder_take(const struct plan *plan, char *program);
/* The way to its pid 1, the holder's own; -1: through the engine. */
int holder_channel(void);
void holder_give_back(const char *name);
/* The same when nobody knows what the command has left there: the container goes. */
void holder_discard(const char *name);

/* helper.c: starts the program with these descriptors as 0, 1, 2 ... in a child; never returns. */
_Noreturn void helper_exec(const char *program, const int *fds, size_t n, char *const *argv,
                           char *const *vars);
int helper_name(char *name, struct cordon_err *err);
/* One message without waiting, and the descriptor that came with it, -1: none. */
ssize_t helper_receive(int control_fd, struct helper_message *ret_message, int *ret_fd);

/* helper_request.c: both descriptors are sealed memory files positioned at their start. */
int helper_request_fd(const struct plan *plan, const char *name, const char *inside, int *ret_fd,
                      struct cordon_err *err);
/* The same as text with no name in it: equal texts can share a container. The caller frees it. */
char *helper_request_key(const struct plan *plan);
int helper_order_fd(const struct plan *plan, int *ret_fd, struct cordon_err *err);
/* Does pid 1 send the guest's working directory when the guest is gone? */
bool helper_sends_files(const struct plan *plan);

#define HELPER_PROGRAM "cordon-docker"

#endif
