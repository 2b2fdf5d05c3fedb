/* Connections to an engine over TLS: a pair of sockets with `cordon-tls` at the other end. Runs in
 * `cordon-docker`. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/docker/http.h"
#include "base/err.h"
#include "base/libexec.h"
#include "base/sys.h"
#include "base/util.h"

#define TLS_PROGRAM "cordon-tls"

static int tls_refused(const struct http_host *host, const char *why, struct cordon_err *err)
{
    if (str_starts(why, "connect: "))
        return http_no_engine(host, ECONNREFUSED, err);
    err_set(err, CORDON_ERR_HOST, "docker", 0, "no trusted connection to Docker at %.200s: %.400s",
            host->name, why);
    return err_hint(err, "DOCKER_CERT_PATH is the folder with ca.pem, cert.pem and key.pem");
}

/* Its first byte says whether the connection stands; behind 'e' is why not. */
static int tls_answer(struct http *h, const struct http_host *host, struct cordon_err *err)
{
    char text[512];
    size_t len = 0;
    ssize_t n = 1;
    while (n > 0 && len < sizeof(text) - 1 && !(len > 0 && text[0] == 'k')) {
        if (http_wait(h, POLLIN, err) < 0)
            return -1;
        n = recv(h->fd, text + len, len == 0 ? 1 : sizeof(text) - 1 - len, 0);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            n = 1;
        else if (n > 0)
            len += (size_t)n;
    }
    text[len] = '\0';
    if (len > 0 && text[0] == 'k')
        return 0;
    return tls_refused(host, len > 1 ? text + 1 : TLS_PROGRAM " ended unexpectedly", err);
}

/* What speaks to the network holds nothing of ours but its socket, and does not outlive us. */
_Noreturn static void tls_exec(const char *program, const struct http_host *host, int fd)
{
    int null = open("/dev/null", O_RDWR);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (null >= 0 && dup2(fd, 0) == 0 && dup2(null, 1) == 1 && dup2(null, 2) == 2) {
        sys_close_range(3, ~0u);
        execl(program, TLS_PROGRAM, host->name, host->port, (char *)NULL);
    }
    _exit(70);
}

int tls_open(struct http *h, const struct http_host *host, struct cordon_err *err)
{
    char program[4096];
    int pair[2];
    if (libexec_find(TLS_PROGRAM, program, sizeof(program)) < 0) {
        err_set(err, CORDON_ERR_HOST, "docker", 0, TLS_PROGRAM " is not installed");
        return err_hint(err, "it is built where OpenSSL's headers are there (libssl-dev)");
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "docker", errno, "socket");
    pid_t pid = fork();
    if (pid == 0)
        tls_exec(program, host, pair[1]);
    close(pair[1]);
    h->fd = pair[0];
    if (pid < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "docker", errno, "fork");
    h->tls_pid = pid;
    if (tls_answer(h, host, err) == 0)
        return 0;
    http_close(h);
    return -1;
}

void tls_close(struct http *h)
{
    if (h->tls_pid <= 0)
        return;
    kill(h->tls_pid, SIGKILL); /* everything that was to be said has been answered */
    while (waitpid(h->tls_pid, NULL, 0) < 0 && errno == EINTR)
        ;
    h->tls_pid = 0;
}
