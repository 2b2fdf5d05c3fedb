/* An upstream HTTP proxy: its URL, the CONNECT request, the reply. Pure; runs in the broker (and
 * the URL's check in whoever reads a policy). */
#ifndef NET_PROXYCONNECT_H
#define NET_PROXYCONNECT_H

#include <stddef.h>

#include <cordon.h>

#include "policy/nethost.h"

#define PROXYCONNECT_HEAD_MAX 8192
#define PROXYCONNECT_AUTH_MAX 512

struct proxyconnect {
    struct nethost host;
    uint16_t port;                    /* 80 where the URL names none */
    char auth[PROXYCONNECT_AUTH_MAX]; /* base64 of user:password, or empty */
};

/* http://[USER:PASSWORD@]HOST[:PORT][/] */
int proxyconnect_parse_url(const char *url, struct proxyconnect *ret_proxy, struct cordon_err *err);

/* The request for a tunnel. Returns its length, 0 if it does not fit. */
size_t proxyconnect_request(const struct proxyconnect *proxy, const struct nethost *host,
                            uint16_t port, char *ret, size_t max);

enum proxyconnect_state {
    PROXYCONNECT_MORE,
    PROXYCONNECT_OPEN,    /* *ret_len bytes were the proxy's; what follows is the peer's */
    PROXYCONNECT_REFUSED, /* *ret_status says how */
    PROXYCONNECT_BAD,
};

enum proxyconnect_state proxyconnect_read(const char *data, size_t len, size_t *ret_len,
                                          int *ret_status);

#endif
