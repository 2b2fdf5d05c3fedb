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
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fdsend.h"
#include "base/helpers.h"
#include "base/libexec.h"
#include "base/sys.h"
#include "base/util.h"
#include "net/policywire.h"

#define CLIENT_LEAVING_MAX 128
#define CLIENT_SEND_NS 2000000000u
#define CLIENT_PREPARED_NS 200000000u

/* What a start makes; everything that is not handed on is closed. */
struct client_start {
    int control[2], setup[2];
};

static void start_close(struct client_start *s)
{
    for (int i = 0; i < 2; i++) {
        util_close(&s->control[i]);
        util_close(&s->setup[i]);
    }
}

/* Sockets of published ports; the broker gets copies. */
struct client_ports {
    int fds[NETWIRE_PORTS_MAX];
    size_t n;
};

static void ports_close(struct client_ports *p)
{
    for (size_t i = 0; i < p->n; i++)
        util_close(&p->fds[i]);
}

static int ports_listen(struct client_ports *p, const uint16_t *ports, size_t n,
                        struct cordon_err *err)
{
    if (n > NETWIRE_PORTS_MAX)
        return err_set(err, CORDON_ERR_CONFIG, "network", 0, "publish: at most %d ports",
                       NETWIRE_PORTS_MAX);
    for (size_t i = 0; i < n; i++) {
        struct sockaddr_in addr = {.sin_family = AF_INET,
                                   .sin_port = htons(ports[i]),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd >= 0)
            p->fds[p->n++] = fd;
        /* for TCP this only passes over connections that are closing */
        if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
            bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 || listen(fd, 128) < 0)
            return err_set(err, CORDON_ERR_HOST, "network", errno, "publish: 127.0.0.1:%u",
                           ports[i]);
    }
    return 0;
}

/* The descriptors under the numbers the broker expects. First both go out of the way of those
 * numbers. */
static int child_place(const struct client_start *s)
{
    int control = fcntl(s->control[1], F_DUPFD, NETWIRE_FIRST_FREE_FD);
    int setup = fcntl(s->setup[1], F_DUPFD, NETWIRE_FIRST_FREE_FD);
    if (control < 0 || setup < 0 || dup2(control, NETWIRE_CONTROL_FD) < 0 ||
        dup2(setup, NETWIRE_SETUP_FD) < 0)
        return -1;
    return sys_close_range(NETWIRE_FIRST_FREE_FD, ~0U);
}

/* Between fork and execve: system calls only. */
static _Noreturn void child_main(const struct client_start *s)
{
    static char *const argv[] = {"cordon", "broker", NULL}, *const envp[] = {NULL};
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* a Ctrl-C at the terminal is for the supervisor, who then ends us in order */
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int null = open("/dev/null", O_RDWR);
    if (null >= 0 && dup2(null, 0) == 0 && dup2(null, 1) == 1 && dup2(null, 2) == 2 &&
        child_place(s) == 0)
        execve("/proc/self/exe", argv, envp);
    _exit(1);
}

static int client_not_there(struct cordon_err *err)
{
    return err_set(err, CORDON_ERR_INTERNAL, "network", errno, "the broker did not start");
}

/* It reads as soon as it runs; who waits for it longer has others to look after. */
static int client_send(const struct netclient *c, const char *data, size_t len)
{
    uint64_t until = clock_ns() + (c->is_prepared ? CLIENT_PREPARED_NS : CLIENT_SEND_NS);
    while (len > 0) {
        ssize_t n = send(c->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return -1;
        data += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
        uint64_t now = clock_ns();
        struct pollfd p = {.fd = c->fd, .events = POLLOUT};
        if (n < 0 && now >= until)
            return errno = ETIMEDOUT, -1;
        if (n < 0)
            (void)poll(&p, 1, (int)((until - now) / 1000000u) + 1);
    }
    return 0;
}

int netclient_begin(struct netclient *c, const struct policy *policy, const uint16_t *host_ports,
                    size_t n_host_ports, struct cordon_err *err)
{
    struct client_ports ports __attribute__((cleanup(ports_close))) = {.n = 0};
    _cleanup_buf_ struct buf out = BUF_INIT(POLICYWIRE_MAX);
    if (ports_listen(&ports, host_ports, n_host_ports, err) < 0)
        return -1;
    policywire_write(policy, &out);
    if (out.failed)
        return err_nomem(err, "network");
    struct netwire_begin head = {.len = out.len, .n_ports = ports.n};
    struct iovec iov = {&head, sizeof(head)};
    if (fdsend_fds(c->fd, &iov, 1, ports.fds, ports.n, 0) != (ssize_t)sizeof(head))
        return client_not_there(err);
    return client_send(c, out.data, out.len) < 0 ? client_not_there(err) : 0;
}

int netclient_start(struct netclient **ret_client, struct cordon_err *err)
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
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s.control) < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s.setup) < 0 ||
        (c->pid = fork()) < 0) {
        c->pid = 0;
        client_not_there(err);
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
    *ret_client = c;
    return 0;
fail:
    netclient_free(c);
    return -1;
}

bool netclient_is_there(const struct netclient *c)
{
    struct pollfd p = {.fd = c->fd};
    return poll(&p, 1, 0) == 0;
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
        else if (r->verdict == NETWIRE_END)
            c->has_said_all = true;
        else
            fn(data, r);
    }
    return true;
}

void netclient_end(struct netclient *c)
{
    shutdown(c->fd, SHUT_WR);
}

/* Brokers that are ended and not yet gone: the kernel closes their packet socket when no core can
 * be looking at it any more, which takes some ten milliseconds. No code of theirs runs meanwhile.
 */
static pid_t leaving[CLIENT_LEAVING_MAX];
static size_t n_leaving;

/* False: it is not gone yet. */
static bool client_reap(pid_t pid, int flags)
{
    pid_t r;
    while ((r = waitpid(pid, NULL, flags)) < 0 && errno == EINTR)
        ;
    if (r == 0)
        return false;
    helpers_drop(pid);
    return true;
}

bool netclient_are_leaving(void)
{
    return n_leaving > 0;
}

void netclient_reap(void)
{
    for (size_t i = 0; i < n_leaving;)
        if (client_reap(leaving[i], WNOHANG))
            leaving[i] = leaving[--n_leaving];
        else
            i++;
}

void netclient_settle(void)
{
    while (n_leaving > 0)
        client_reap(leaving[--n_leaving], 0);
}

static void client_end(struct netclient *c, bool waits)
{
    if (!c)
        return;
    util_close(&c->fd);
    util_close(&c->setup_fd);
    netclient_reap();
    if (c->pid > 0) {
        kill(c->pid, SIGKILL);
        if (waits || n_leaving == CLIENT_LEAVING_MAX)
            client_reap(c->pid, 0);
        else
            leaving[n_leaving++] = c->pid;
    }
    free(c);
}

void netclient_leave(struct netclient *c)
{
    client_end(c, false);
}

void netclient_free(struct netclient *c)
{
    client_end(c, true);
}
