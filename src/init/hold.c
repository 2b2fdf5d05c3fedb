/* The pid 1 of a container that serves a sequence of commands: it runs nothing itself, reaps, and
 * keeps the container until its standard input ends. Commands come beside it through the engine,
 * or, which takes a tenth of the time, as a socket on a channel: each gets a process of its own
 * that goes on as a pid 1 started by the engine would.
 *
 * The channel is connected before any guest exists, to a socket that is gone from its folder then;
 * guests cannot reach it, as nobody can look into pid 1. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"
#include "init/init_internal.h"

union hold_rights {
    char space[CMSG_SPACE(3 * sizeof(int))];
    struct cmsghdr align;
};

/* -1: there is none, or it cannot be reached from here (gVisor). */
static int hold_connect(void)
{
    struct sockaddr_un to = {AF_UNIX, INIT_CHANNEL_DIR "/" INIT_CHANNEL_NAME};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
        util_close(&fd);
    return fd;
}

/* The socket of a command, -1: none came. */
static int hold_receive(int channel, bool *ret_ended)
{
    union hold_rights control;
    char byte;
    int fd = -1;
    struct iovec iov = {&byte, 1};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.space,
                         .msg_controllen = CMSG_SPACE(sizeof(int))};
    ssize_t n = recvmsg(channel, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    *ret_ended = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    struct cmsghdr *cmsg = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;
    if (cmsg && cmsg->cmsg_type == SCM_RIGHTS && cmsg->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(&fd, CMSG_DATA(cmsg), sizeof(int));
    return fd;
}

/* Pipes as a runtime would make them: the guest may open its /dev/stdin again. */
static bool hold_streams(int command)
{
    union hold_rights control = {0};
    int in[2], out[2], err[2];
    if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0)
        return false;
    int theirs[3] = {in[1], out[0], err[0]}, ours[3] = {in[0], out[1], err[1]};
    struct iovec iov = {"s", 1};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.space,
                         .msg_controllen = sizeof(control.space)};
    struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
    cmsg->cmsg_level = SOL_SOCKET;
    cmsg->cmsg_type = SCM_RIGHTS;
    cmsg->cmsg_len = CMSG_LEN(sizeof(theirs));
    memcpy(CMSG_DATA(cmsg), theirs, sizeof(theirs));
    if (sendmsg(command, &msg, MSG_NOSIGNAL) != 1)
        return false;
    for (int i = 0; i < 3; i++) {
        close(theirs[i]);
        if (dup2(ours[i], i) < 0)
            return false;
        close(ours[i]);
    }
    return true;
}

/* True in the command's own process. */
static bool hold_command(struct init *in, int *channel)
{
    bool ended;
    int command = hold_receive(*channel, &ended);
    if (command < 0) {
        if (ended)
            util_close(channel);
        return false;
    }
    pid_t pid = fork();
    if (pid == 0) {
        close(*channel);
        close(in->signal_fd);
        if (!hold_streams(command))
            _exit(70);
        return true; /* the socket stays open for as long as we live */
    }
    close(command);
    return false;
}

static void hold_signals(struct init *in)
{
    struct signalfd_siginfo info;
    while (read(in->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_pid != 0 || info.ssi_code != SI_USER) /* see init_forward() */
            continue;
        if (info.ssi_signo == INIT_END_SIGNAL)
            _exit(0);
        if (info.ssi_signo == INIT_CLEAR_SIGNAL)
            kill(-1, SIGKILL);
    }
}

void hold_container(struct init *in, const sigset_t *all)
{
    in->signal_fd = signalfd(-1, all, SFD_CLOEXEC | SFD_NONBLOCK);
    if (in->signal_fd < 0)
        init_fail(in, "signals", errno);
    int channel = hold_connect();
    in->report.kind = INIT_STARTED;
    init_report(in, in->order->start_secret);
    for (;;) {
        while (waitpid(-1, NULL, WNOHANG | __WALL) > 0)
            ;
        struct pollfd fds[3] = {{.fd = in->signal_fd, .events = POLLIN},
                                {.fd = 0, .events = POLLIN},
                                {.fd = channel, .events = POLLIN}};
        poll(fds, 3, -1);
        char drop;
        if (fds[1].revents && read(0, &drop, 1) <= 0)
            _exit(0);
        hold_signals(in);
        if (fds[2].revents && hold_command(in, &channel))
            return;
    }
}
