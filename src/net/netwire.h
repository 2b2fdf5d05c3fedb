/* What the three processes of a networked run say to each other, and the addresses they agree on.
 *
 *   who makes the gate --sockets--> broker      made in the gate's namespace (those that dial the
 *                                               guest in its own), sent before the guest runs
 *   supervisor ----------policy---> broker      its network part, once, before the guest runs; of a
 *                                               prepared guest when it is known
 *   broker -------------records---> supervisor  one per attempt, the last one when it is done
 *
 * Both ends are the same build: plain structs. */
#ifndef NET_NETWIRE_H
#define NET_NETWIRE_H

#include <stdint.h>

/* Descriptors of a fresh broker. */
#define NETWIRE_CONTROL_FD 3 /* stream socket to the supervisor */
#define NETWIRE_SETUP_FD 4   /* packet socket from who makes the gate */
#define NETWIRE_FIRST_FREE_FD 5

/* In front of the policy; with it come the listeners of published ports, in the policy's order. */
struct netwire_begin {
    uint64_t len;
    uint64_t n_ports;
};
#define NETWIRE_PORTS_MAX 64

/* Addresses that stand for names (RFC 2544's range, and a local one), never used by hosts. The
 * first of them answers DNS. */
#define NETWIRE_SYNTH4 0xc6120000u /* 198.18.0.0/15 */
#define NETWIRE_SYNTH4_BITS 15
#define NETWIRE_DNS4 0xc6120001u
#define NETWIRE_DNS_TEXT "198.18.0.1"
#define NETWIRE_SYNTH6                                                                             \
    {                                                                                              \
        0xfd, 0x63, 0x6f, 0x72, 0x64, 0x6f, 0x6e, 0x00                                             \
    }
#define NETWIRE_SYNTH6_BITS 64
/* The link between guest and gate (RFC 7335's range: no host of the Internet has one of these). */
#define NETWIRE_GATE4 0xc0000001u  /* 192.0.0.1 */
#define NETWIRE_GUEST4 0xc0000002u /* 192.0.0.2 */
#define NETWIRE_LINK4_BITS 29
#define NETWIRE_ANY_PORT 1 /* where every port is redirected to */
#define NETWIRE_LINK6                                                                              \
    {                                                                                              \
        0xfd, 0x63, 0x6f, 0x72, 0x64, 0x6f, 0x6e, 0x01                                             \
    }
#define NETWIRE_LINK6_BITS 64

enum netwire_kind {
    NETWIRE_TCP,       /* listener of one port */
    NETWIRE_UDP,       /* receives datagrams for one port, tells their destination */
    NETWIRE_ANY,       /* TCP listener of every port (redirected) */
    NETWIRE_INNER,     /* unconnected, beside the guest: dials it for a published port */
    NETWIRE_SEEN,      /* packet socket: the first packets of what the guest tries */
    NETWIRE_PUBLISHED, /* not of the gate: listener on the host's loopback */
};

struct netwire_socket {
    uint8_t kind;
    uint8_t family; /* 4 or 6 */
    uint16_t port;
};

#define NETWIRE_BATCH 32
/* One packet; its descriptors come with it, in the order of the rows. */
struct netwire_sockets {
    uint16_t n;
    uint8_t is_last;
    uint8_t has_v6;   /* in the last packet: the guest has IPv6 */
    uint8_t sees_all; /* and what nobody allowed comes to the gate too, to be seen and refused */
    struct netwire_socket rows[NETWIRE_BATCH];
};

/* FAILED: allowed, and nobody answered. The others are no attempts. BROKEN: the broker itself
 * cannot go on. BLIND: attempts without a route will not be seen, or some (`lost`) were not. END:
 * the guest is gone, and all that it tried was said; who ends without it has not ended in order. */
enum netwire_verdict {
    NETWIRE_ALLOWED,
    NETWIRE_REFUSED,
    NETWIRE_FAILED,
    NETWIRE_BROKEN,
    NETWIRE_BLIND,
    NETWIRE_END,
};
enum netwire_protocol { NETWIRE_P_TCP, NETWIRE_P_UDP, NETWIRE_P_DNS, NETWIRE_P_OTHER };

/* One attempt. Names and rules are text without control characters. */
struct netwire_record {
    uint64_t time_ns; /* CLOCK_MONOTONIC when it began */
    uint64_t duration_ns;
    uint64_t bytes_up, bytes_down;
    uint32_t lost; /* records dropped before this one: the supervisor was too slow */
    uint16_t port; /* 0: a lookup */
    uint8_t verdict, protocol;
    uint8_t is_inward; /* a published port */
    char name[256];    /* empty: the guest named an address */
    char address[48];  /* dialled, or named by the guest; empty: none */
    char rule[128];
};

#endif
