/* The supervisor process of a handle: started, greeted, watched, ended. Runs in the calling
 * program. */
#include "lib/lib.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/err.h"
#include "base/sys.h"
#include "base/util.h"
#include "lib/wire.h"

#define PEER_HELLO_MS 10000 /* a loaded machine takes its time; a wrong program never answers */
#define PEER_STOP_MS 5000

static int peer_refused(const char *binary, struct cordon_err *err)
{
    return err_set(err, CORDON_ERR_USAGE, "open", 0,
                   "%s is not the cordon program of this library (%s)", binary, cordon_version());
}

static int peer_receive_hello(struct peer *p, const char *binary, struct cordon_err *err)
{
    union {
        struct wire_head head;
        struct wire_hello hello;
        struct wire_error error;
    } msg;
    int fds[WIRE_FDS_MAX];
    size_t n_fds;
    struct pollfd ready = {.fd = p->sock, .events = POLLIN};
    int r;
    do
        r = poll(&ready, 1, PEER_HELLO_MS);
    while (r < 0 && errno == EINTR);
    if (r == 0)
        return err_set(err, CORDON_ERR_INTERNAL, "open", ETIMEDOUT, "%s does not answer", binary);

    ssize_t n = wire_recv(p->sock, &msg, sizeof(msg), fds, &n_fds, MSG_DONTWAIT);
    size_t len = n > 0 ? (size_t)n : 0;
    bool ours =
        len >= sizeof(msg.head) && msg.head.magic == WIRE_MAGIC && msg.head.version == WIRE_VERSION;
    if (ours && msg.head.type == WIRE_HELLO && len == sizeof(msg.hello) && n_fds == 1) {
        p->pid = msg.hello.pid;
        p->pidfd = fds[0];
        return 0;
    }
    for (size_t i = 0; i < n_fds; i++)
        util_close(&fds[i]);
    if (ours && msg.head.type == WIRE_ERROR && len == sizeof(msg.error)) {
        if (err)
            *err = msg.error.err;
        return -1;
    }
    return peer_refused(binary, err);
}

/* Not the program's, which is there: processes, memory or descriptors are short. */
static bool peer_is_hosts_fault(int error)
{
    return error == EAGAIN || error == ENOMEM || error == EMFILE || error == ENFILE ||
           error == EINVAL || error == EBADF; /* a number that the limit does not allow */
}

int peer_start(const char *binary, struct peer **ret_peer, struct cordon_err *err)
{
    struct peer *p = calloc(1, sizeof(*p));
    if (!p)
        return err_nomem(err, "open");
    atomic_init(&p->refs, 1);
    p->sock = p->pidfd = -1;

    int pair[2];
    /* The supervisor watches us by descriptor: a forked child of ours may hold copies of the
     * socket. Where the call is missing (valgrind, an outer filter) the socket's end alone has to
     * do. */
    _cleanup_close_ int self = sys_pidfd_open(getpid());
    if ((self < 0 && errno != ENOSYS && errno != EPERM) ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        err_set(err, CORDON_ERR_INTERNAL, "open", errno, "descriptors");
        peer_unref(p);
        return -1;
    }
    p->sock = pair[0];
    int r = spawn_supervisor(binary, pair[1], self);
    int spawn_errno = errno;
    close(pair[1]);
    if (r < 0)
        err_set(err, peer_is_hosts_fault(spawn_errno) ? CORDON_ERR_INTERNAL : CORDON_ERR_USAGE,
                "open", spawn_errno, "%s", binary);
    else
        r = peer_receive_hello(p, binary, err);
    if (r < 0) {
        peer_unref(p);
        return -1;
    }
    *ret_peer = p;
    return 0;
}

struct peer *peer_ref(struct peer *p)
{
    atomic_fetch_add(&p->refs, 1);
    return p;
}

void peer_unref(struct peer *p)
{
    if (!p || atomic_fetch_sub(&p->refs, 1) != 1)
        return;
    if (p->pidfd >= 0) {
        /* An orphan goes to the nearest subreaper or to pid 1; if that is us, it is ours to bury.
         */
        siginfo_t info;
        (void)!waitid((idtype_t)P_PIDFD, (id_t)p->pidfd, &info, WEXITED | WNOHANG | __WALL);
    }
    util_close(&p->sock);
    util_close(&p->pidfd);
    free(p);
}

bool peer_is_gone(const struct peer *p)
{
    struct pollfd gone = {.fd = p->pidfd, .events = POLLIN};
    return poll(&gone, 1, 0) == 1;
}

bool peer_wait_gone(const struct peer *p, int timeout_ms)
{
    struct pollfd gone = {.fd = p->pidfd, .events = POLLIN};
    int r;
    do
        r = poll(&gone, 1, timeout_ms);
    while (r < 0 && errno == EINTR);
    return r != 0;
}

void peer_stop(struct peer *p)
{
    shutdown(p->sock, SHUT_RDWR); /* unlike close, also where a forked child holds a copy */
    if (!peer_wait_gone(p, PEER_STOP_MS)) {
        sys_pidfd_send_signal(p->pidfd, SIGKILL);
        peer_wait_gone(p, PEER_STOP_MS);
    }
}
