/* The supervisor's end of a broker: starts it, hears of every attempt, ends it. */
#ifndef NET_NETCLIENT_H
#define NET_NETCLIENT_H

#include <stdbool.h>
#include <sys/types.h>

#include <cordon.h>

#include "net/netwire.h"
#include "policy/policy.h"

struct netclient {
    pid_t pid;
    int fd;       /* readable: records, then end of file */
    int setup_fd; /* for the set-up helper; closed by whoever started the guest */
    size_t n_partial;
    struct netwire_record partial;
    bool is_blind;     /* attempts without a route are not seen, or others were lost */
    uint64_t n_lost;   /* of those, behind the last record */
    bool is_prepared;  /* it waited, and somebody else can take its place */
    char failure[160]; /* the broker's last words, when it could not go on */
    bool has_said_all; /* it ends in order */
};

/* One that allows nothing yet, and takes the gate's sockets. */
int netclient_start(struct netclient **ret_client, struct cordon_err *err);
/* Once, before the guest runs: whom it lets the guest reach. host_ports: listened on at the host's
 * loopback and handed to the broker, in this order. */
int netclient_begin(struct netclient *c, const struct policy *policy, const uint16_t *host_ports,
                    size_t n_host_ports, struct cordon_err *err);

/* Of one that waits: it has not ended. */
bool netclient_is_there(const struct netclient *c);

/* Reads what is there; fn is called for each record. False: the broker is gone. */
bool netclient_read(struct netclient *c, void (*fn)(void *data, const struct netwire_record *),
                    void *data);

/* The guest is gone: the broker sends the rest of its records and ends. */
void netclient_end(struct netclient *c);
/* Whatever it does: ends it now, waits for it, frees all. NULL is accepted. */
void netclient_free(struct netclient *c);
/* The same, but who is ended is waited for later: by _reap, which takes those that are gone, or by
 * _settle, which waits for all. Every process that uses this calls the last one before it ends. */
void netclient_leave(struct netclient *c);
bool netclient_are_leaving(void);
void netclient_reap(void);
void netclient_settle(void);

#endif
