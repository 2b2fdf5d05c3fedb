/* The `cordon-tls` program: one TLS connection to a container engine for `cordon-docker`, which
 * talks plain HTTP to a socket it holds as standard input. An executable of its own, so that nobody
 * else loads a TLS library, and what speaks to the network is not what holds the caller's secrets
 * longer than it must.
 *
 * usage: cordon-tls HOST PORT      ca.pem, cert.pem and key.pem from DOCKER_CERT_PATH or ~/.docker
 *
 * The first byte it writes says whether the connection stands: 'k', or 'e' and the reason. The
 * engine's certificate is always checked. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/util.h"

#define TLS_CHUNK 16384

struct way {
    char data[TLS_CHUNK];
    size_t len, done;
    bool ended; /* nothing more comes in */
};

struct tls {
    SSL *ssl;
    int fd;              /* the network's */
    struct way up, down; /* to the engine, from it */
    bool up_ended;       /* the engine was told that there is no more */
    bool down_ended;     /* our side was */
    bool answered;       /* the engine has said something */
    bool want_write;     /* a read needs the socket to be writable */
};

_Noreturn static void tls_fail(const char *format, ...)
{
    char text[512] = "e";
    va_list ap;
    va_start(ap, format);
    vsnprintf(text + 1, sizeof(text) - 1, format, ap);
    va_end(ap);
    (void)!write(0, text, strlen(text));
    exit(1);
}

static const char *tls_reason(void)
{
    unsigned long e = ERR_peek_last_error();
    const char *text = e ? ERR_reason_error_string(e) : NULL;
    return text ? text : "the connection was closed";
}

static int tls_connect(const char *host, const char *port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    int fd = -1, e = EHOSTUNREACH;
    if (getaddrinfo(host, port, &hints, &found) != 0)
        tls_fail("connect: %s: no such host", host);
    for (struct addrinfo *a = found; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) < 0) {
            e = errno;
            util_close(&fd);
        }
    }
    freeaddrinfo(found);
    if (fd < 0)
        tls_fail("connect: %s", strerror(e));
    return fd;
}

static void tls_file(char *ret, size_t size, const char *name)
{
    const char *dir = getenv("DOCKER_CERT_PATH"), *home = getenv("HOME");
    if (dir && *dir)
        snprintf(ret, size, "%s/%s", dir, name);
    else
        snprintf(ret, size, "%s/.docker/%s", home ? home : "", name);
}

static SSL_CTX *tls_context(void)
{
    char ca[PATH_MAX], cert[PATH_MAX], key[PATH_MAX];
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    if (!ctx || SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1)
        tls_fail("%s", tls_reason());
    tls_file(ca, sizeof(ca), "ca.pem");
    tls_file(cert, sizeof(cert), "cert.pem");
    tls_file(key, sizeof(key), "key.pem");
    if (SSL_CTX_load_verify_locations(ctx, ca, NULL) != 1)
        tls_fail("%s: %s", ca, access(ca, R_OK) < 0 ? strerror(errno) : tls_reason());
    /* an engine may ask for no certificate of ours */
    if ((access(cert, F_OK) == 0 || access(key, F_OK) == 0) &&
        (SSL_CTX_use_certificate_chain_file(ctx, cert) != 1 ||
         SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1 ||
         SSL_CTX_check_private_key(ctx) != 1))
        tls_fail("%s, %s: %s", cert, key, tls_reason());
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    return ctx;
}

static void tls_handshake(struct tls *t, SSL_CTX *ctx, const char *host)
{
    t->ssl = SSL_new(ctx);
    X509_VERIFY_PARAM *param = t->ssl ? SSL_get0_param(t->ssl) : NULL;
    if (!param || SSL_set_fd(t->ssl, t->fd) != 1)
        tls_fail("%s", tls_reason());
    bool is_address = X509_VERIFY_PARAM_set1_ip_asc(param, host) == 1;
    if (!is_address &&
        (SSL_set1_host(t->ssl, host) != 1 || SSL_set_tlsext_host_name(t->ssl, host) != 1))
        tls_fail("%s: no name for a certificate", host);
    ERR_clear_error();
    if (SSL_connect(t->ssl) != 1) {
        long why = SSL_get_verify_result(t->ssl);
        tls_fail("%s", why != X509_V_OK ? X509_verify_cert_error_string(why) : tls_reason());
    }
}

/* Some of what waits, to our side. */
static void tls_flush_down(struct tls *t)
{
    struct way *w = &t->down;
    while (w->done < w->len) {
        ssize_t n = send(0, w->data + w->done, w->len - w->done, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            exit(0); /* nobody listens any more */
        if (n < 0)
            return;
        w->done += (size_t)n;
    }
    w->len = w->done = 0;
    if (w->ended && !t->down_ended) {
        t->down_ended = true;
        shutdown(0, SHUT_WR);
    }
}

/* Since TLS 1.3 an engine says only behind the handshake that it does not know us: said to our side
 * as an answer, which is what it waits for. */
_Noreturn static void tls_cut(const struct tls *t)
{
    if (!t->answered) {
        char body[256], text[512];
        snprintf(body, sizeof(body), "{\"message\":\"no trusted connection: %.200s\"}",
                 tls_reason());
        snprintf(text, sizeof(text),
                 "HTTP/1.1 495 Certificate\r\nContent-Type: application/json\r\n"
                 "Content-Length: %zu\r\n\r\n%s",
                 strlen(body), body);
        (void)!write(0, text, strlen(text));
    }
    exit(1);
}

static void tls_read(struct tls *t)
{
    struct way *w = &t->down;
    if (w->len > 0 || w->ended)
        return;
    ERR_clear_error();
    int n = SSL_read(t->ssl, w->data, sizeof(w->data));
    int why = n > 0 ? SSL_ERROR_NONE : SSL_get_error(t->ssl, n);
    t->want_write = why == SSL_ERROR_WANT_WRITE;
    t->answered |= n > 0;
    if (n > 0)
        w->len = (size_t)n;
    else if (why == SSL_ERROR_ZERO_RETURN)
        w->ended = true;
    else if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE)
        tls_cut(t);
    tls_flush_down(t);
}

static void tls_write(struct tls *t)
{
    struct way *w = &t->up;
    while (w->done < w->len) {
        ERR_clear_error();
        int n = SSL_write(t->ssl, w->data + w->done, (int)(w->len - w->done));
        int why = n > 0 ? SSL_ERROR_NONE : SSL_get_error(t->ssl, n);
        if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE)
            return;
        if (n <= 0) { /* its reason may have come already */
            w->len = w->done = 0;
            w->ended = t->up_ended = true;
            tls_read(t);
            return;
        }
        w->done += (size_t)n;
    }
    w->len = w->done = 0;
    if (w->ended && !t->up_ended) {
        t->up_ended = true;
        SSL_shutdown(t->ssl); /* our half only */
    }
}

static void tls_take(struct tls *t)
{
    struct way *w = &t->up;
    ssize_t n = recv(0, w->data, sizeof(w->data), MSG_DONTWAIT);
    if (n > 0)
        w->len = (size_t)n;
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        w->ended = true;
    tls_write(t);
}

static void tls_carry(struct tls *t)
{
    fcntl(t->fd, F_SETFL, fcntl(t->fd, F_GETFL) | O_NONBLOCK);
    SSL_set_mode(t->ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    while (!t->down_ended) {
        short inner = (short)((t->up.len == 0 && !t->up.ended ? POLLIN : 0) |
                              (t->down.len > 0 ? POLLOUT : 0));
        short outer = (short)((t->down.len == 0 ? POLLIN : 0) |
                              (t->up.len > 0 || t->want_write ? POLLOUT : 0));
        struct pollfd fds[2] = {{.fd = 0, .events = inner}, {.fd = t->fd, .events = outer}};
        bool pending = t->down.len == 0 && SSL_pending(t->ssl) > 0;
        if (poll(fds, 2, pending ? 0 : -1) < 0 && errno != EINTR)
            exit(1);
        /* the holder of the other end is gone, both ways, and has left nothing to be read */
        if (fds[0].revents & (POLLERR | POLLNVAL) ||
            (fds[0].revents & POLLHUP && !(fds[0].revents & POLLIN)))
            exit(0);
        if (fds[0].revents & POLLIN)
            tls_take(t);
        if (t->down.len > 0)
            tls_flush_down(t);
        if (t->up.len > 0)
            tls_write(t);
        if (fds[1].revents || pending)
            tls_read(t);
    }
}

int main(int argc, char **argv)
{
    static struct tls t;
    signal(SIGPIPE, SIG_IGN);
    if (argc != 3) {
        fputs("cordon-tls is started by cordon-docker\n", stderr);
        return 64;
    }
    SSL_CTX *ctx = tls_context();
    t.fd = tls_connect(argv[1], argv[2]);
    tls_handshake(&t, ctx, argv[1]);
    if (write(0, "k", 1) != 1)
        return 1;
    tls_carry(&t);
    return 0;
}
