/* DNS messages: the guest's queries, our answers to them, our queries to a real server and its
 * answers. Pure; runs in the broker.
 *
 * Both readers take hostile bytes: no allocation, no recursion, every loop bounded. */
#ifndef NET_DNSMSG_H
#define NET_DNSMSG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DNSMSG_UDP_MAX 1232  /* what we offer and send over UDP */
#define DNSMSG_TCP_MAX 16384 /* enough for any answer we have a use for */
#define DNSMSG_NAME_MAX 253
#define DNSMSG_ADDRS_MAX 16

enum dnsmsg_type { DNSMSG_A = 1, DNSMSG_CNAME = 5, DNSMSG_AAAA = 28, DNSMSG_OPT = 41 };
enum dnsmsg_rcode {
    DNSMSG_NOERROR = 0,
    DNSMSG_FORMERR = 1,
    DNSMSG_SERVFAIL = 2,
    DNSMSG_NXDOMAIN = 3,
    DNSMSG_NOTIMP = 4,
    DNSMSG_REFUSED = 5,
};

struct dnsmsg_query {
    uint16_t id, flags, type, class;
    uint16_t udp_size; /* what the asker takes over UDP; 512 without EDNS */
    bool has_edns;
    bool is_host; /* name is a host name in canonical form; else it is only for the log */
    char name[DNSMSG_NAME_MAX + 1];
    /* the question as it came (spelling kept: some askers compare it), for the answer */
    uint8_t question[260];
    size_t question_len;
};

/* DNSMSG_NOERROR; FORMERR or NOTIMP (answer with dnsmsg_write_error); or -1: not a query, say
 * nothing. *ret_query is set for NOERROR only. */
int dnsmsg_read_query(const uint8_t *msg, size_t len, struct dnsmsg_query *ret_query);

/* Answers: addrs are 16 bytes each, mapped ones as A and others as AAAA; only those of the asked
 * type are written. Returns the length, 0 if it does not fit. */
size_t dnsmsg_write_answer(const struct dnsmsg_query *query, enum dnsmsg_rcode rcode,
                           const uint8_t (*addrs)[16], size_t n_addrs, uint32_t ttl_s, uint8_t *ret,
                           size_t max);

/* An error without a question, for messages that could not be read. len >= 12. */
size_t dnsmsg_write_error(const uint8_t *msg, size_t len, enum dnsmsg_rcode rcode, uint8_t *ret,
                          size_t max);

/* A query of ours, recursion desired, with EDNS. name canonical. Returns the length, 0 on failure.
 */
size_t dnsmsg_write_query(uint16_t id, const char *name, enum dnsmsg_type type, uint8_t *ret,
                          size_t max);

struct dnsmsg_reply {
    enum dnsmsg_rcode rcode;
    bool truncated; /* ask again over TCP */
    uint8_t addrs[DNSMSG_ADDRS_MAX][16];
    size_t n_addrs; /* 0 with NOERROR: the name has none of that type */
    uint32_t ttl_s; /* the least of those used */
};

/* A server's answer to our query: 0; or -1 for anything that does not answer this very question.
 * CNAMEs are followed within the message only. */
int dnsmsg_read_reply(const uint8_t *msg, size_t len, uint16_t id, const char *name,
                      enum dnsmsg_type type, struct dnsmsg_reply *ret_reply);

#endif
