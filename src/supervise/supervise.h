/* One guest under watch: its streams, its limits, its end. Runs in the supervisor; many can share
 * one loop. */
#ifndef SUPERVISE_SUPERVISE_H
#define SUPERVISE_SUPERVISE_H

#include <stdbool.h>
#include <stdint.h>

#include <cordon.h>

#include "backend/backend.h"
#include "base/loop.h"
#include "net/netclient.h"
#include "net/netlog.h"
#include "supervise/sample.h"
#include "supervise/stream.h"

/* Why we ended the guest. The first cause wins. */
enum supervise_cause {
    CAUSE_NONE,
    CAUSE_TIME,
    CAUSE_CPU_TIME,
    CAUSE_CPU_SHARE, /* it runs on while it is paused */
    CAUSE_MEMORY,
    CAUSE_OUTPUT,
    CAUSE_DISK,
    CAUSE_FILES,
    CAUSE_CANCELLED,
    CAUSE_STUCK,  /* the wall was not up in time: our failure */
    CAUSE_BROKER, /* the network broker ended before the guest: our failure */
};

struct supervise_options {
    int sinks[2];      /* where stdout and stderr are passed on live, -1: nowhere */
    bool keep_output;  /* keep it for the result */
    bool keep_escapes; /* terminal control passes to a sink that is a terminal */
    bool is_last;      /* see struct guest */
    bool is_brief;     /* the guest may have ended when its start returns: supervise_catch_up() */
    int stdin_fd;      /* source of the guest's stdin, -1: none or stdin_data */
    const char *stdin_data;
    size_t stdin_len;
    void (*on_output)(void *data, int stream, const char *bytes,
                      size_t len); /* 1 or 2; may be NULL */
    /* The guest is there and nothing was read or written yet: the caller may take its stdin and
     * stdout (setting them to -1) and serve them itself. Called again when the start is tried
     * again; what was written before is then lost. May be NULL. */
    void (*on_start)(void *data, struct guest *guest);
    /* each attempt on the network, as it ends; may be NULL */
    void (*on_network)(void *data, const struct netwire_record *record);
    struct warm_guest *prepared; /* used up by the start, NULL: start from nothing */
    void (*on_done)(void *data);
    void *data;
};

struct supervised {
    struct loop *loop;
    const struct plan *plan;
    struct guest guest;
    struct supervise_options options;
    struct stream_out out[2];
    struct stream_in in;
    struct loop_watch gone, timer;
    int timer_fd;
    enum supervise_cause cause;
    struct loop_watch net; /* of a guest with a way out: its broker speaks */
    struct netlog netlog;
    enum { SUPERVISE_NET_UP, SUPERVISE_NET_ENDING, SUPERVISE_NET_LOST } net_state;
    bool net_has_ended;    /* the broker is gone */
    char net_failure[160]; /* why the broker could not go on, if it said so */
    uint64_t begin_ns;     /* when the start was asked for */
    bool was_prepared, has_guest;
    uint64_t cause_ns;

    /* limits by looking */
    struct sample_watch *sampler;
    struct sample peak;
    struct sample_duty duty;
    struct sample_disk *disk_base; /* per writable host path */
    struct sample_disk *disk_fs;   /* and of the whole file system it is on */
    int *disk_fds;
    size_t n_disks;
    uint64_t next_look_ns, next_disk_ns, disk_used, files_made;
    uint64_t look_cpu_ns, processes_peak;
    struct sample kernel_cpu; /* of a kernel of the guest's own, before it */
    uint64_t last_memory, last_memory_ns;
    bool finished;

    /* how it ended, valid after on_done */
    struct backend_outcome outcome;
    struct cordon_err err;
};

/* On failure nothing runs and nothing is left. host_refused: another tier may work. */
int supervise_start(struct supervised *s, struct loop *loop, const struct backend *backend,
                    const struct plan *plan, const struct supervise_options *options,
                    bool *ret_host_refused, struct cordon_err *err);
/* After a start with options.is_brief, when whatever on_done needs is in its place. */
void supervise_catch_up(struct supervised *s);
/* Ends the guest for a reason of ours; the first reason stays. */
void supervise_end(struct supervised *s, enum supervise_cause cause);
/* Ends a guest without the loop: nothing of it is left when this returns. Before supervise_free. */
void supervise_abort(struct supervised *s);
void supervise_free(struct supervised *s);

/* watch.c: what must be looked at while the guest runs. supervise_watch_tick() does what is due and
 * returns when to be called again. */
/* Before the guest exists: what is there already is not its doing. */
int supervise_watch_prepare(struct supervised *s, struct cordon_err *err);
int supervise_watch_start(struct supervised *s, struct cordon_err *err);
/* Just before we end it. */
void supervise_watch_last(struct supervised *s);
uint64_t supervise_watch_tick(struct supervised *s, uint64_t now);
/* The same when its program has begun. */
uint64_t supervise_watch_begun(struct supervised *s, uint64_t now);
void supervise_watch_stop(struct supervised *s);

#endif
