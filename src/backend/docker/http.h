/* The part of HTTP/1.1 that talks to a container engine: one request per connection over a unix or
 * TCP socket, bodies by length, in chunks or to the end, and connections that turn into raw
 * streams. Every call has a deadline; every answer a bound. */
#ifndef BACKEND_DOCKER_HTTP_H
#define BACKEND_DOCKER_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cordon.h>

#include "base/buf.h"

#define HTTP_BODY_MAX ((size_t)64 << 20)

/* Where the engine listens. */
struct http_host {
    bool tcp, tls;
    bool plain;     /* tcp without TLS, to wherever it is: asked for by its name */
    char path[108]; /* unix */
    char name[256]; /* tcp */
    char port[8];
};

struct http {
    int fd;
    pid_t tls_pid;  /* who carries the bytes between fd and the network, 0: fd is the connection */
    struct buf in;  /* received, not yet taken */
    size_t in_done; /* of it, taken */
    uint64_t deadline_ns;
    int status;
    char api_version[16];
    bool chunked, upgraded;
    int64_t length; /* of the body, -1: until the end */
};

#define HTTP_INIT ((struct http){.fd = -1, .in = BUF_INIT(HTTP_BODY_MAX), .length = -1})

/* unix:///path, tcp://host:port, https://host:port, http://host:port; NULL or empty:
 * /var/run/docker.sock. */
int http_parse_host(const char *text, struct http_host *ret_host, struct cordon_err *err);

/* Connects and sends the head and the body. `type` is the body's media type; NULL with upgrade: the
 * connection is to become a raw stream. errno tells why a connection failed. */
int http_open(struct http *h, const struct http_host *host, int timeout_ms, struct cordon_err *err);
int http_send(struct http *h, const char *method, const char *path, const char *type,
              const void *body, size_t len, bool upgrade, struct cordon_err *err);
/* A body whose length is not known before: head now, pieces after it, an empty piece ends it. */
int http_send_chunk(struct http *h, const void *data, size_t len, struct cordon_err *err);
int http_read_head(struct http *h, struct cordon_err *err);
/* The whole body. */
int http_read_body(struct http *h, struct buf *out, struct cordon_err *err);
/* Some of the body as it comes: bytes in *ret_len, 0 at its end. */
int http_read_some(struct http *h, char *data, size_t size, size_t *ret_len,
                   struct cordon_err *err);
void http_close(struct http *h);

/* Waits for the socket; -1 with the error when the time is over. */
int http_wait(struct http *h, short events, struct cordon_err *err);
/* The error of a connection that failed with this errno. */
int http_no_engine(const struct http_host *host, int e, struct cordon_err *err);

/* tls.c: the same over TLS, carried by `cordon-tls`. */
int tls_open(struct http *h, const struct http_host *host, struct cordon_err *err);
void tls_close(struct http *h);

#endif
