/* One stream between us and a guest: output is read, counted, kept up to a cap and passed on live;
 * input is copied from a file, a pipe or memory. Nothing here ever blocks. */
#ifndef SUPERVISE_STREAM_H
#define SUPERVISE_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/loop.h"

#define STREAM_CHUNK 65536
#define STREAM_FIRST 8

struct stream_out {
    struct loop *loop;
    struct loop_watch source; /* the guest's pipe */
    struct loop_watch sink;   /* where it is passed on, fd -1: nowhere */
    int own_sink;             /* the sink opened anew for ourselves, -1: it could not be */
    bool sink_open;           /* what the next two and own_sink say is known */
    bool sink_blind;          /* a file that cannot be polled: always ready */
    bool strip;               /* the sink is a terminal: escape sequences are taken out */
    bool keep_escapes;        /* not even then */
    int strip_state;
    struct buf kept; /* for the result */
    bool keep;
    uint64_t total, cap;
    bool truncated, ended;
    bool in_line;  /* what was passed on does not end with a line */
    char *pending; /* read but not yet passed on */
    size_t pending_len, pending_done;
    void (*on_data)(struct stream_out *s, const char *bytes,
                    size_t len); /* as they come, or NULL */
    void (*on_truncated)(struct stream_out *s);
    void (*on_broken)(struct stream_out *s); /* the sink takes no more: sink_errno says why */
    int sink_errno;                          /* 0: it took everything so far */
    void *owner;
};

/* Takes over fd (non-blocking from here on). sink_fd stays the caller's. */
int stream_out_start(struct stream_out *s, struct loop *loop, int fd, int sink_fd, bool keep,
                     uint64_t cap);
/* From here on the loop reads it. */
int stream_out_watch(struct stream_out *s);
/* Reads what is left after the guest is gone; nobody writes any more. */
void stream_out_drain(struct stream_out *s);
/* Waits for a slow sink until everything pending is written. */
void stream_out_flush(struct stream_out *s);
void stream_out_done(struct stream_out *s);

/* The null device, in which there is nothing to wait for. */
bool stream_is_null(int fd);
/* The caller's stream opened anew, for ourselves and without blocking: poll does not promise that a
 * write of ours fits (a terminal takes part of it and waits, another writer may be faster), and a
 * supervisor that waits there keeps no time limit. -1: it cannot be (a socket, somebody else's). */
int stream_own(int fd, int mode);

/* Takes terminal control out of text in place, as done for a sink that is a terminal; the new
 * length. */
size_t stream_plain(char *data, size_t len);

struct stream_in {
    int own_source; /* the source opened anew for ourselves, -1: it could not be */
    struct loop *loop;
    struct loop_watch source; /* fd -1: memory */
    bool source_blind, source_ended;
    struct loop_watch target; /* the guest's pipe */
    const char *memory;
    size_t memory_len, memory_done;
    char *pending;
    size_t pending_len, pending_done;
    int *owner_fd; /* closed and set to -1 at the end of input */
};

/* target_fd points to the guest's stdin pipe, which is closed when the input ends. source_fd -1 and
 * no memory: the guest reads end of file at once. */
int stream_in_start(struct stream_in *s, struct loop *loop, int *target_fd, int source_fd,
                    const char *memory, size_t memory_len);
void stream_in_done(struct stream_in *s);

#endif
