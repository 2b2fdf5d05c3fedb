/* Starts and ends a broker. Runs in the supervisor.
 *
 * The broker is the same program started anew, not a copy of this process: it reads what the guest
 * sends, so it must not have the caller's environment, other guests' data or our descriptors in its
 * memory. */
#include "net/netclient.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/helpers.h"
#include "base/libexec.h"
#include "base/sys.h"
#include "base/util.h"
#include "net/policywire.h"

#define CLIENT_PORTS_MAX 64

/* What a start makes; everything that is not handed on is closed. */
struct client_start {
    int control[2], setup[2];
    int listeners[CLIENT_PORTS_MAX];
    size_t n_listeners;
};

static void start_close(struct client_start *s)
{
    for (int i = 0; i < 2; i++) {
        util_close(&s->control[i]);
        util_close(&s->setup[i]);
    }
    for (size_t i = 0; i < s->n_listeners; i++)
        util_close(&s->listeners[i]);
}

static int start_listen(struct client_start *s, const uint16_t *ports, size_t n,
                        struct cordon_err *err)
{
    if (n > CLIENT_PORTS_MAX)
        return err_set(err, CORDON_ERR_CONFIG, "network", 0, "publish: at most %d ports",
                       CLIENT_PORTS_MAX);
    for (size_t i = 0; i < n; i++) {
        struct sockaddr_in addr = {.sin_family = AF_INET,
                                   .sin_port = htons(ports[i]),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd >= 0)
            s->listeners[s->n_listeners++] = fd;
        /* for TCP this only passes over connections that are closing */
        if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
            bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 || listen(fd, 128) < 0)
            return err_set(err, CORDON_ERR_HOST, "network", errno, "publish: 127.0.0.1:%u",
                           ports[i]);
    }
    return 0;
}

/* The descriptor under the number the broker expects. First they all go out of the way of those
 * numbers. */
static int child_place(const int *fds, size_t n)
{
    int high[CLIENT_PORTS_MAX + 2];
    for (size_t i = 0; i < n; i++)
        if ((high[i] = fcntl(fds[i], F_DUPFD, NETWIRE_LISTEN_FD + CLIENT_PORTS_MAX)) < 0)
            return -1;
    for (size_t i = 0; i < n; i++)
        if (dup2(high[i], NETWIRE_CONTROL_FD + (int)i) < 0)
            return -1;
    return sys_close_range((unsigned)(NETWIRE_CONTROL_FD + n), ~0U);
}

/* Between fork and execve: system calls only. */
static _Noreturn void child_main(const struct client_start *s)
{
    static char *const argv[] = {"cordon", "broker", NULL}, *const envp[] = {NULL};
    int fds[CLIENT_PORTS_MAX + 2] = {s->control[1], s->setup[1]};
    for (size_t i = 0; i < s->n_listeners; i++)
        fds[2 + i] = s->listeners[i];
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* a Ctrl-C at the terminal is for the supervisor, who then ends us in order */
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int null = open("/dev/null", O_RDWR);
    if (null >= 0 && dup2(null, 0) == 0 && dup2(null, 1) == 1 && dup2(null, 2) == 2 &&
        child_place(fds, 2 + s->n_listeners) == 0)
        execve("/proc/self/exe", argv, envp);
    _exit(1);
}

static int client_send_policy(int fd, const struct policy *policy, struct cordon_err *err)
{
    _cleanup_buf_ struct buf out = BUF_INIT(POLICYWIRE_MAX);
    uint64_t len = 0;
    buf_add(&out, &len, sizeof(len));
    policywire_write(policy, &out);
    if (out.failed)
        return err_nomem(err, "network");
    len = out.len - sizeof(len);
    memcpy(out.data, &len, sizeof(len));
    for (size_t done = 0; done < out.len;) {
        ssize_t n = send(fd, out.data + done, out.len - done, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set(err, CORDON_ERR_INTERNAL, "network", errno, "the broker did not start");
        done += (size_t)n;
    }
    return 0;
}

int netclient_start(const struct policy *policy, const uint16_t *host_ports, size_t n_host_ports,
                    struct netclient **ret_client, struct cordon_err *err)
{
    struct client_start s
        __attribute__((cleanup(start_close))) = {.control = {-1, -1}, .setup = {-1, -1}};
    if (!libexec_is_command)
        return err_set(err, CORDON_ERR_INTERNAL, "network", 0,
                       "a broker is started by the command only");
    struct netclient *c = calloc(1, sizeof(*c));
    if (!c)
        return err_nomem(err, "network");
    c->fd = c->setup_fd = -1;
    if (start_listen(&s, host_ports, n_host_ports, err) < 0)
        goto fail;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s.control) < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s.setup) < 0 ||
        (c->pid = fork()) < 0) {
        c->pid = 0;
        err_set(err, CORDON_ERR_INTERNAL, "network", errno, "the broker did not start");
        goto fail;
    }
    if (c->pid == 0)
        child_main(&s);
    if (helpers_add(c->pid) < 0) {
        err_set(err, CORDON_ERR_INTERNAL, "network", 0, "too many brokers at once");
        goto fail;
    }
    c->fd = TAKE_FD(s.control[0]);
    c->setup_fd = TAKE_FD(s.setup[0]);
    util_close(&s.control[1]);
    if (client_send_policy(c->fd, policy, err) < 0)
        goto fail;
    *ret_client = c;
    return 0;
fail:
    netclient_free(c);
    return -1;
}

bool netclient_read(struct netclient *c, void (*fn)(void *data, const struct netwire_record *),
                    void *data)
{
    /* a bounded number: the guest must not keep the loop from its other work */
    for (int i = 0; i < 256; i++) {
        ssize_t n = recv(c->fd, (char *)&c->partial + c->n_partial,
                         sizeof(c->partial) - c->n_partial, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return true;
        if (n <= 0)
            return false;
        c->n_partial += (size_t)n;
        if (c->n_partial < sizeof(c->partial))
            continue;
        c->n_partial = 0;
        struct netwire_record *r = &c->partial;
        r->name[sizeof(r->name) - 1] = r->address[sizeof(r->address) - 1] = '\0';
        r->rule[sizeof(r->rule) - 1] = '\0';
        if (r->verdict == NETWIRE_BROKEN)
            snprintf(c->failure, sizeof(c->failure), "%s", r->rule);
        else if (r->verdict == NETWIRE_BLIND)
            c->is_blind = true, c->n_lost += r->lost;
        else
            fn(data, r);
    }
    return true;
}

void netclient_end(struct netclient *c)
{
    shutdown(c->fd, SHUT_WR);
}

void netclient_free(struct netclient *c)
{
    if (!c)
        return;
    util_close(&c->fd);
    util_close(&c->setup_fd);
    if (c->pid > 0) {
        helpers_drop(c->pid);
        kill(c->pid, SIGKILL);
        while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    free(c);
}
