/* A small HTTP/1.1 client for a container engine's socket. Runs in `cordon-docker`. */
#include "backend/docker/http.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/util.h"

#define HTTP_HEAD_MAX 65536
#define HTTP_DEFAULT "/var/run/docker.sock"
#define HTTP_BUSY_NS 5000000 /* between two tries to connect */

static int http_wrong_host(const char *text, struct cordon_err *err)
{
    err_set(err, CORDON_ERR_USAGE, "docker", 0, "DOCKER_HOST: %.200s", text);
    return err_hint(err, "unix:///path/to/docker.sock, tcp://host:port or https://host:port");
}

int http_parse_host(const char *text, struct http_host *ret_host, struct cordon_err *err)
{
    struct http_host h = {0};
    if (!text || !*text)
        text = "unix://" HTTP_DEFAULT;
    if (str_starts(text, "unix://")) {
        if (text[7] != '/' || strlen(text + 7) >= sizeof(h.path))
            return http_wrong_host(text, err);
        strcpy(h.path, text + 7);
    } else if (str_starts(text, "tcp://") || str_starts(text, "http://") ||
               str_starts(text, "https://")) {
        const char *name = strchr(text, '/') + 2, *colon = strrchr(name, ':');
        size_t len = colon ? (size_t)(colon - name) : 0;
        size_t port = colon ? strcspn(colon + 1, "/") : 0;
        if (len == 0 || len >= sizeof(h.name) || port == 0 || port >= sizeof(h.port))
            return http_wrong_host(text, err);
        if (name[0] == '[' && name[len - 1] == ']') {
            name++;
            len -= 2;
        }
        h.tcp = true;
        h.tls = str_starts(text, "https://");
        h.plain = str_starts(text, "http://");
        memcpy(h.name, name, len);
        memcpy(h.port, colon + 1, port);
    } else {
        return http_wrong_host(text, err);
    }
    *ret_host = h;
    return 0;
}

int http_wait(struct http *h, short events, struct cordon_err *err)
{
    for (;;) {
        uint64_t now = clock_ns();
        int64_t rest = (int64_t)(h->deadline_ns - now) / 1000000;
        struct pollfd p = {.fd = h->fd, .events = events};
        int n = now >= h->deadline_ns ? 0 : poll(&p, 1, (int)MIN(rest + 1, 1000000));
        if (n > 0)
            return 0;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set(err, CORDON_ERR_INTERNAL, "docker", errno, "poll");
        if (clock_ns() >= h->deadline_ns)
            return err_set(err, CORDON_ERR_INTERNAL, "docker", 0,
                           "the Docker engine does not answer");
    }
}

static int http_connect_fd(struct http *h, const struct sockaddr *address, socklen_t len)
{
    h->fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (h->fd < 0)
        return -1;
    int e = 0;
    /* EAGAIN of a unix socket: too many wait before us, and nothing tells when they are fewer */
    while (connect(h->fd, address, len) < 0 && (e = errno) == EAGAIN &&
           clock_ns() < h->deadline_ns) {
        nanosleep(&(struct timespec){.tv_nsec = HTTP_BUSY_NS}, NULL);
        e = 0;
    }
    if (e == EINPROGRESS) {
        struct cordon_err drop;
        socklen_t size = sizeof(e);
        if (http_wait(h, POLLOUT, &drop) < 0)
            e = ETIMEDOUT;
        else
            getsockopt(h->fd, SOL_SOCKET, SO_ERROR, &e, &size);
    }
    if (e != 0)
        util_close(&h->fd);
    errno = e;
    return e ? -1 : 0;
}

static bool http_is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
    return address->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

/* Whoever can read or change the bytes on their way owns the engine, and what a guest did: plain
 * connections stay on this host unless they were asked for by the name of what they are. */
static int http_connect_tcp(struct http *h, const struct http_host *host, bool *ret_refused)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    if (getaddrinfo(host->name, host->port, &hints, &found) != 0) {
        errno = EHOSTUNREACH;
        return -1;
    }
    int r = -1, e = EHOSTUNREACH;
    for (struct addrinfo *a = found; a && r < 0; a = a->ai_next) {
        if (!host->plain && !http_is_loopback(a->ai_addr)) {
            *ret_refused = true;
            continue;
        }
        r = http_connect_fd(h, a->ai_addr, a->ai_addrlen);
        e = errno;
    }
    freeaddrinfo(found);
    errno = e;
    return r;
}

int http_no_engine(const struct http_host *host, int e, struct cordon_err *err)
{
    const char *where = host->tcp ? host->name : host->path;
    if (e == EACCES || e == EPERM) {
        err_set(err, CORDON_ERR_HOST, "docker", 0, "no permission to talk to Docker at %s", where);
        return err_hint(err, "become a member of the group that owns the socket (often `docker`)");
    }
    err_set(err, CORDON_ERR_HOST, "docker", 0, "Docker is not running");
    return err_hint(err, "nothing answers at %s (%s); DOCKER_HOST says where else to look", where,
                    strerror(e));
}

int http_open(struct http *h, const struct http_host *host, int timeout_ms, struct cordon_err *err)
{
    *h = HTTP_INIT;
    h->deadline_ns = clock_ns() + (uint64_t)timeout_ms * 1000000u;
    int r;
    bool refused = false;
    if (host->tls)
        return tls_open(h, host, err);
    if (host->tcp) {
        r = http_connect_tcp(h, host, &refused);
        if (r < 0 && refused) {
            err_set(err, CORDON_ERR_HOST, "docker", 0,
                    "DOCKER_HOST: a plain connection to %.200s would let anybody between own the "
                    "engine",
                    host->name);
            return err_hint(err,
                            "set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH; http:// in the place "
                            "of tcp:// says that it is meant");
        }
    } else {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        memcpy(address.sun_path, host->path, sizeof(address.sun_path));
        address.sun_path[sizeof(address.sun_path) - 1] = '\0';
        r = http_connect_fd(h, (struct sockaddr *)&address, sizeof(address));
    }
    return r < 0 ? http_no_engine(host, errno, err) : 0;
}

static int http_write(struct http *h, const void *data, size_t len, struct cordon_err *err)
{
    const char *p = data;
    while (len > 0) {
        ssize_t n = send(h->fd, p, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            if (http_wait(h, POLLOUT, err) < 0)
                return -1;
            continue;
        }
        if (n < 0)
            return err_set(err, CORDON_ERR_INTERNAL, "docker", errno,
                           "the connection to the Docker engine was lost");
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

int http_send(struct http *h, const char *method, const char *path, const char *type,
              const void *body, size_t len, bool upgrade, struct cordon_err *err)
{
    _cleanup_buf_ struct buf head = BUF_INIT(HTTP_HEAD_MAX);
    buf_printf(&head, "%s %s HTTP/1.1\r\nHost: docker\r\nUser-Agent: cordon\r\n", method, path);
    if (type)
        buf_printf(&head, "Content-Type: %s\r\n", type);
    if (type && !body)
        buf_str(&head, "Transfer-Encoding: chunked\r\n");
    else
        buf_printf(&head, "Content-Length: %zu\r\n", len);
    buf_str(&head,
            upgrade ? "Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n" : "Connection: close\r\n\r\n");
    if (head.failed)
        return err_nomem(err, "docker");
    if (http_write(h, head.data, head.len, err) < 0)
        return -1;
    return len > 0 ? http_write(h, body, len, err) : 0;
}

int http_send_chunk(struct http *h, const void *data, size_t len, struct cordon_err *err)
{
    char size[24];
    int n = snprintf(size, sizeof(size), "%zx\r\n", len);
    if (http_write(h, size, (size_t)n, err) < 0 || http_write(h, data, len, err) < 0)
        return -1;
    return http_write(h, "\r\n", 2, err);
}

/* More bytes into the buffer; *ret_end: there are none any more. */
static int http_fill(struct http *h, bool *ret_end, struct cordon_err *err)
{
    char chunk[32768];
    *ret_end = false;
    if (h->in_done == h->in.len)
        h->in_done = h->in.len = 0;
    for (;;) {
        ssize_t n = recv(h->fd, chunk, sizeof(chunk), 0);
        if (n > 0)
            return buf_add(&h->in, chunk, (size_t)n) < 0 ? err_nomem(err, "docker") : 0;
        *ret_end = n == 0;
        if (n == 0)
            return 0;
        if (errno == EAGAIN) {
            if (http_wait(h, POLLIN, err) < 0)
                return -1;
        } else if (errno != EINTR) {
            return err_set(err, CORDON_ERR_INTERNAL, "docker", errno,
                           "the connection to the Docker engine was lost");
        }
    }
}

static int http_lost(struct cordon_err *err)
{
    return err_set(err, CORDON_ERR_INTERNAL, "docker", 0,
                   "the connection to the Docker engine was lost");
}

/* One line without its end, into a buffer of the caller's. */
static int http_line(struct http *h, char *line, size_t size, struct cordon_err *err)
{
    for (;;) {
        const char *from = h->in.data ? h->in.data + h->in_done : "";
        size_t len = h->in.len - h->in_done;
        const char *end = memchr(from, '\n', len);
        if (end) {
            size_t n = (size_t)(end - from);
            h->in_done += n + 1;
            n -= n > 0 && from[n - 1] == '\r';
            if (n >= size)
                n = size - 1;
            memcpy(line, from, n);
            line[n] = '\0';
            return 0;
        }
        bool ended;
        if (len > HTTP_HEAD_MAX)
            return err_set(err, CORDON_ERR_INTERNAL, "docker", 0,
                           "the Docker engine's answer is not HTTP");
        if (http_fill(h, &ended, err) < 0)
            return -1;
        if (ended)
            return http_lost(err);
    }
}

static void http_header(struct http *h, char *line)
{
    char *value = strchr(line, ':');
    if (!value)
        return;
    *value++ = '\0';
    value += strspn(value, " \t");
    if (strcasecmp(line, "Content-Length") == 0)
        h->length = strtoll(value, NULL, 10);
    else if (strcasecmp(line, "Transfer-Encoding") == 0)
        h->chunked = strcasecmp(value, "chunked") == 0;
    else if (strcasecmp(line, "Api-Version") == 0)
        snprintf(h->api_version, sizeof(h->api_version), "%.15s", value);
}

int http_read_head(struct http *h, struct cordon_err *err)
{
    char line[4096];
    do {
        if (http_line(h, line, sizeof(line), err) < 0)
            return -1;
        if (!str_starts(line, "HTTP/1.") || strlen(line) < 12)
            return err_set(err, CORDON_ERR_INTERNAL, "docker", 0,
                           "the Docker engine's answer is not HTTP");
        h->status = atoi(line + 9);
        h->length = -1;
        h->chunked = false;
        for (;;) {
            if (http_line(h, line, sizeof(line), err) < 0)
                return -1;
            if (!*line)
                break;
            http_header(h, line);
        }
    } while (h->status == 100);
    h->upgraded = h->status == 101;
    if (h->status == 204 || h->status == 304)
        h->length = 0;
    return 0;
}

/* The next piece's length, for a body in chunks. */
static int http_next_chunk(struct http *h, struct cordon_err *err)
{
    char line[64];
    do {
        if (http_line(h, line, sizeof(line), err) < 0)
            return -1;
    } while (!*line); /* the end of the piece before */
    char *end;
    unsigned long long n = strtoull(line, &end, 16);
    if (end == line || n > HTTP_BODY_MAX)
        return err_set(err, CORDON_ERR_INTERNAL, "docker", 0,
                       "the Docker engine's answer is not HTTP");
    h->length = (int64_t)n;
    return 0;
}

int http_read_some(struct http *h, char *data, size_t size, size_t *ret_len, struct cordon_err *err)
{
    *ret_len = 0;
    if (h->chunked && h->length <= 0) {
        if (h->length == 0) /* the last piece was taken */
            return 0;
        if (http_next_chunk(h, err) < 0)
            return -1;
    }
    if (h->length == 0)
        return 0;
    if (h->in_done == h->in.len) {
        bool ended;
        if (http_fill(h, &ended, err) < 0)
            return -1;
        if (ended)
            return h->length > 0 || h->chunked ? http_lost(err) : 0;
    }
    size_t n = MIN(size, h->in.len - h->in_done);
    if (h->length > 0)
        n = MIN(n, (uint64_t)h->length);
    memcpy(data, h->in.data + h->in_done, n);
    h->in_done += n;
    if (h->length > 0) {
        h->length -= (int64_t)n;
        if (h->length == 0 && h->chunked)
            h->length = -1; /* another piece follows */
    }
    *ret_len = n;
    return 0;
}

int http_read_body(struct http *h, struct buf *out, struct cordon_err *err)
{
    char chunk[16384];
    size_t n;
    do {
        if (http_read_some(h, chunk, sizeof(chunk), &n, err) < 0)
            return -1;
        if (buf_add(out, chunk, n) < 0)
            return err_nomem(err, "docker");
    } while (n > 0);
    return 0;
}

void http_close(struct http *h)
{
    util_close(&h->fd);
    tls_close(h);
    buf_done(&h->in);
}
