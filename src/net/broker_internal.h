/* Shared by the files of the broker only. All of it runs in the broker's one thread. */
#ifndef BROKER_INTERNAL_H
#define BROKER_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/loop.h"
#include "net/httpfirst.h"
#include "net/httpwatch.h"
#include "net/netwire.h"
#include "net/packethead.h"
#include "net/proxyconnect.h"
#include "net/resolve.h"
#include "policy/netset.h"

#define BROKER_CONNS_MAX 2048
#define BROKER_NAMES_MAX 4096     /* different allowed names a guest may look up in one run */
#define BROKER_HELD_MAX 16384     /* first bytes of a client that are held until judged */
#define BROKER_OUT_MAX (1u << 20) /* records that the supervisor has not taken yet */
#define BROKER_WORD_KEPT 1024     /* of a first word that does not end */
#define BROKER_POOL_MAX 32        /* empty pipes kept for the next transfer */
#define BROKER_BIG_PIPES 16
#define BROKER_BIG_QUEUES 4             /* connections whose queue the kernel may let grow */
#define BROKER_QUEUE_BYTES (256u << 10) /* of one of the next */
#define BROKER_QUEUES 64                /* which are so many */
#define BROKER_SMALL_QUEUE (64u << 10)
#define BROKER_DIAL_MS 30000     /* for the last address of a name */
#define BROKER_DIAL_NEXT_MS 3000 /* for one with others behind it */
#define BROKER_LINGER_MS 250     /* after the guest's end, for what it has sent */
#define BROKER_DNS_BURST 2000
#define BROKER_DNS_PER_S 500
#define BROKER_UDP_FLOWS_MAX 256
#define BROKER_UDP_IDLE_MS 60000
#define BROKER_INNER_MAX 256
#define BROKER_SEEN_MAX 64

struct broker;

struct broker_listener {
    struct broker *broker;
    struct broker_listener *next;
    struct loop_watch watch;
    struct netwire_socket row; /* of a published port: the guest's */
};

/* A name the guest has asked for; its place in the table is its address. */
struct broker_name {
    char text[NETRULE_NAME_MAX + 1];
};

/* One direction of a connection. */
struct broker_flow {
    int pipe[2];    /* -1 while nothing is under way */
    bool is_big;    /* of the pipe */
    size_t in_pipe; /* read and not yet written */
    bool eof;       /* the source has ended */
    bool shut;      /* and the destination was told */
    uint64_t bytes;
};

enum broker_state { CONN_RESOLVING, CONN_DIALLING, CONN_PROXY, CONN_OPEN };
enum broker_judge {
    JUDGE_FIRST, /* nothing seen that tells what it is */
    JUDGE_HTTP,  /* every request is looked at */
    JUDGE_RAW,   /* nothing (more) to look at */
};

struct broker_conn {
    struct broker *broker;
    struct broker_conn *prev, *next;
    struct loop_watch guest, up; /* the two sockets */
    struct broker_flow upward, downward;
    enum broker_state state;
    enum broker_judge judge;
    struct netset_verdict verdict;
    struct nethost host; /* what the guest dialled */
    uint16_t port;
    bool has_big_queue;
    bool is_inward; /* from a published port; `up` is then the guest */
    uint64_t begin_ns, deadline_ms;
    uint64_t counted; /* of its bytes, by the policy's cap */
    /* the client's bytes that are not judged yet; the first n_passed of them may pass, the first
     * n_sent have (more than n_passed where the beginning of a line was let through) */
    char *held;
    size_t n_held, n_passed, n_sent;
    struct httpwatch *http;
    /* The client speaks neither TLS nor HTTP as far as is known: the first bytes of the server's
     * answer are looked at, in case it knows better. */
    bool watches_answer;
    char answer_start[HTTPFIRST_ANSWER_MAX];
    size_t n_answer, n_answer_in_queue; /* passed on; seen, but not yet taken from the socket */
    struct buf seen;        /* HTTP upgrade: the server's answer, looked at on its way */
    size_t n_seen_in_queue; /* of it, not yet taken from the socket */
    struct resolve_query *query;
    bool query_is_proxy; /* the proxy's own name is being resolved */
    uint8_t addrs[RESOLVE_ADDRS_MAX][16];
    size_t n_addrs, next_addr;
    uint8_t dialled[16];
    bool has_dialled;
    struct buf answer; /* of the proxy */
};

struct broker_dns_conn;
struct broker_udp;

struct broker {
    struct loop loop;
    struct arena arena;
    struct policy policy;
    struct netset set;
    struct resolver *resolver;
    bool has_proxy;
    struct proxyconnect proxy;
    bool has_v6;
    bool sees_all; /* also what nobody allowed */

    uint64_t traffic, max_traffic; /* bytes in all; max 0: no limit */
    char traffic_rule[64], conns_rule[64];
    struct loop_watch control;
    int last_socket; /* of the gate */
    struct buf out;  /* records on their way */
    uint32_t lost;   /* since the last record */
    bool has_lost;   /* at any time */
    bool ending;
    uint64_t end_ms;
    struct broker_listener *listeners;

    int published[NETWIRE_PORTS_MAX]; /* listeners, in the policy's order */
    size_t n_published;
    bool any_port;
    uint8_t ports[65536]; /* who listens: bits of BROKER_PORT_* */
    struct broker_seen {
        uint8_t dst[16];
        uint16_t port;
        uint8_t is_udp;
        uint64_t last_ms;
    } seen[BROKER_SEEN_MAX]; /* what was refused a moment ago */
    size_t next_seen;
    struct loop_watch *seen_watch; /* of the packet socket */
    struct broker_inner {
        int fds[BROKER_INNER_MAX];
        size_t n;
        int draining[BROKER_INNER_MAX]; /* used, and not all is delivered yet */
        size_t n_draining;
    } inner[2]; /* sockets that dial the guest: IPv4, IPv6 */

    struct broker_name *names;
    size_t n_names, cap_names;
    uint16_t *name_slots; /* hash: number of the name plus one */

    struct broker_conn *conns, *closed;
    size_t n_conns, max_conns, n_dialling, n_big_queues;
    struct {
        int fds[2];
        bool is_big;
    } pool[BROKER_POOL_MAX];
    size_t n_pool, n_big;

    struct broker_dns_conn *dns_conns;
    size_t n_dns_conns;
    uint64_t dns_tokens_at_ms;
    double dns_tokens;
    char refused_name[NETRULE_NAME_MAX + 1]; /* the last one, and the types it was asked for */
    unsigned refused_types;
    uint64_t refused_ms;

    struct broker_udp *udp;
    size_t n_udp;
};

uint64_t broker_now_ms(void);

/* broker_lock.c: gives up everything but what serving needs. Sockets are used from then on, no file
 * is opened any more. */
int broker_lock_files(size_t *ret_max_conns);
/* What is not needed to read the policy and the resolver's files; for the time of waiting. */
int broker_lock_first(void);
int broker_lock_down(void);

/* broker_record.c */
void broker_record(struct broker *b, struct netwire_record *record);
/* Attempts that nobody could write down. */
void broker_record_lost(struct broker *b, uint32_t n);
/* The last records: that all was said, or that some is missing. */
void broker_record_end(struct broker *b);
void broker_record_broken(struct broker *b, const char *why);
/* Sends what the supervisor takes. Returns false when it is gone. */
bool broker_record_flush(struct broker *b);

/* broker_last.c: after the guest's end */
/* Judges, passes on and writes down what the guest had sent. */
void broker_last_look(struct broker *b);
/* Is all of it under way? Then the last records are made. */
bool broker_last_is_over(struct broker *b, uint64_t now_ms);

/* broker_names.c */
/* The number of a name, made if it is new; -1: no room. */
int broker_name_number(struct broker *b, const char *name);
void broker_name_addr(size_t number, bool v6, uint8_t ret_addr[static 16]);
/* The name an address stands for, or NULL. *ret_synthetic: it is in our ranges. */
const char *broker_name_of(const struct broker *b, const uint8_t addr[static 16],
                           bool *ret_synthetic);
bool broker_is_dns_addr(const uint8_t addr[static 16]);
/* A socket address in the 16-byte form. */
void broker_addr_of(const struct sockaddr_storage *sa, uint8_t ret_addr[static 16],
                    uint16_t *ret_port);
socklen_t broker_sockaddr(const uint8_t addr[static 16], uint16_t port,
                          struct sockaddr_storage *ret_sa);

/* broker_dns.c */
/* to: whom to answer and from where. */
void broker_dns_datagram(struct broker *b, int fd, const uint8_t *msg, size_t len,
                         const struct msghdr *to);
void broker_dns_accepted(struct broker *b, int fd);
void broker_dns_tick(struct broker *b, uint64_t now_ms);
/* Questions that were asked and not read. */
void broker_dns_last_look(struct broker *b);

/* broker_udp.c */
void broker_udp_readable(struct loop_watch *w, uint32_t events);
/* Datagrams wait for the address of a name. */
bool broker_udp_has_more(const struct broker *b);
/* What came faster than it was read, as the kernel counted it. */
void broker_udp_count_lost(struct broker_listener *l);
/* The last records. */
void broker_udp_end(struct broker *b);
void broker_udp_tick(struct broker *b, uint64_t now_ms);

/* broker_conn.c: from accept to an open connection */
void broker_accept(struct loop_watch *w, uint32_t events);
/* Ends it: with a reset towards both sides unless all was delivered. */
void broker_conn_close(struct broker_conn *c, enum netwire_verdict verdict, const char *rule);
/* The same where nothing was refused: allowed if it ever was open, else failed. */
void broker_conn_end(struct broker_conn *c);
void broker_conn_tick(struct broker *b, uint64_t now_ms);
void broker_conn_free_closed(struct broker *b);
void broker_conn_opened(struct broker_conn *c);
/* Takes the descriptor, also when it fails. */
struct broker_conn *broker_conn_new(struct broker *b, int guest_fd);
void broker_conn_dial(struct broker_conn *c);

/* broker_relay.c: open connections, and the judgement on a client's first bytes */
void broker_relay_guest(struct loop_watch *w, uint32_t events);
void broker_relay_up(struct loop_watch *w, uint32_t events);
/* Moves what can be moved and says what to wait for. */
void broker_relay_turn(struct broker_conn *c);
void broker_relay_done(struct broker_conn *c);
/* What it moved, for the policy's cap: at the end of a turn and of the connection. */
void broker_relay_count(struct broker_conn *c);
/* The guest has sent bytes that are not delivered yet. */
bool broker_relay_has_more(struct broker_conn *c);
/* Puts bytes that were read too early in front of a flow. */
int broker_relay_prepend(struct broker_conn *c, struct broker_flow *f, const char *data,
                         size_t len);

/* broker_seen.c: what no listener takes */
void broker_seen_port(struct broker *b, const struct netwire_socket *row);
void broker_seen_readable(struct loop_watch *w, uint32_t events);
/* Writes it down, datagrams of a kind once. rule: NULL: what the policy says. */
void broker_seen_refused(struct broker *b, const struct packethead *p, const char *rule);
/* What the guest tried in its last moments. */
void broker_seen_end(struct broker *b);

/* broker_limits.c: the policy's own caps */
void broker_limits_init(struct broker *b);
/* Counts bytes that a connection or flow moved. False: that was too much. */
bool broker_limits_count(struct broker *b, uint64_t bytes);
bool broker_limits_spent(const struct broker *b);

/* broker_publish.c */
/* A dial from a port to itself succeeds where nobody listens, and takes the port from whom it
 * belongs to. */
bool broker_met_itself(int fd);
void broker_publish_accept(struct loop_watch *w, uint32_t events);
/* Takes a socket of the guest's namespace into the store, also one that was used. */
int broker_publish_keep(struct broker *b, int fd);
/* The same after a connection that ended well: what the guest's end has not taken yet is not lost.
 */
void broker_publish_ended(struct broker *b, int fd);

#endif
