/* The three streams of a container over one connection: frames apart, pid 1's reports out of
 * standard error, input in. Runs in `cordon-docker`; nothing here blocks. */
#ifndef BACKEND_DOCKER_STDIO_H
#define BACKEND_DOCKER_STDIO_H

#include <poll.h>
#include <stdbool.h>

#include "backend/docker/files.h"
#include "base/buf.h"
#include "init/init.h"

#define STDIO_CHUNK 65536

struct stdio_out {
    int fd; /* -1: nobody reads any more */
    struct buf pending;
    size_t done;
};

struct stdio {
    int attach_fd;  /* both ways; of a raw one, to the guest only */
    bool is_raw;    /* streams of their own in the place of frames */
    int raw_fds[2]; /* its output, -1: ended */
    int raw_alive;  /* ends with the command's pid 1, whoever else holds its streams */
    /* from the container */
    unsigned char head[8];
    size_t head_len;
    uint32_t rest; /* of the frame */
    int stream;    /* 1 or 2 */
    struct stdio_out out[2];
    struct buf scan; /* end of standard error that may be the beginning of a report */
    uint8_t start_secret[INIT_SECRET], end_secret[INIT_SECRET];
    bool started, ended;              /* the report is there */
    struct files *files;              /* what follows the last report, NULL: nothing */
    struct init_report begin, report; /* the first, the last */
    bool attach_ended;
    /* to the container */
    struct buf order; /* sent first */
    size_t order_done;
    int in_fd; /* the guest's input, -1: at its end */
    char *in;
    size_t in_len, in_done;
    bool in_closed; /* the container knows that there is no more */
};

/* The connection and the bytes that came with its head. */
int stdio_begin(struct stdio *s, int attach_fd, const char *early, size_t len);
/* The same with pipes of the guest's own, which are ours from now on. */
int stdio_begin_raw(struct stdio *s, const int fds[static 3], int alive_fd);
/* Fills the poll set: attach, in, out, err, raw out, raw err, its pid 1. */
void stdio_poll(const struct stdio *s, struct pollfd *fds);
/* Does what is possible. -1: memory is out. */
int stdio_step(struct stdio *s, const struct pollfd *fds);
bool stdio_is_drained(const struct stdio *s);
void stdio_done(struct stdio *s);

#define STDIO_FDS 7

#endif
