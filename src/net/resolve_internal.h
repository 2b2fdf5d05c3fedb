/* What the parts of the resolver share: its files (resolve_conf.c), its questions (resolve.c), one
 * exchange with a server (resolve_ask.c). */
#ifndef NET_RESOLVE_INTERNAL_H
#define NET_RESOLVE_INTERNAL_H

#include <sys/socket.h>

#include "net/resolve.h"

#define RESOLVE_SERVERS_MAX 3
#define RESOLVE_CACHE_MAX 128

struct resolve_server {
    struct sockaddr_storage addr;
    socklen_t len;
};

struct resolve_host {
    char *name; /* owned */
    uint8_t addr[16];
};

struct resolve_conf {
    struct resolve_server servers[RESOLVE_SERVERS_MAX];
    size_t n_servers;
    struct resolve_host *hosts;
    size_t n_hosts;
};

int resolve_conf_load(const struct resolve_config *config, struct resolve_conf *ret_conf,
                      struct cordon_err *err);
void resolve_conf_done(struct resolve_conf *conf);

/* One exchange: a question of one type to one server after the other. */
struct resolve_ask {
    struct resolve_query *query;
    enum dnsmsg_type type;
    uint16_t id;
    unsigned attempt;
    bool is_tcp, is_done, has_failed;
    uint64_t deadline_ms;
    int fd;
    struct loop_watch watch;
    uint8_t *tcp; /* owned; both directions one after the other, length prefix included */
    size_t tcp_len, tcp_at;
    struct dnsmsg_reply reply;
};

struct resolve_query {
    struct resolver *resolver;
    struct resolve_query *next, **link;
    char name[DNSMSG_NAME_MAX + 1];
    resolve_fn *fn;
    void *data;
    bool is_ready;
    bool is_follower; /* waits for another one of the same name */
    struct resolve_result result;
    struct resolve_ask asks[2];
};

struct resolve_cached {
    char name[DNSMSG_NAME_MAX + 1];
    uint64_t until_ms;
    struct resolve_result result;
};

struct resolver {
    struct loop *loop;
    struct resolve_conf conf;
    unsigned try_ms, max_queries, n_asking; /* followers do not count */
    struct resolve_query *queries;
    struct resolve_cached *cache; /* RESOLVE_CACHE_MAX of them, filled as needed */
    size_t n_cached, next_cached;
};

uint64_t resolve_ask_now_ms(void);
void resolve_ask_start(struct resolve_ask *ask, uint64_t now_ms);
void resolve_ask_stop(struct resolve_ask *ask);
/* The deadline passed: another server, or the end. */
void resolve_ask_next(struct resolve_ask *ask, uint64_t now_ms);
/* resolve.c's: called when an ask is done. */
void resolve_ask_done(struct resolve_query *query);

#endif
