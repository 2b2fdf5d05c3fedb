/* The short way into a container that is kept: a socket its pid 1 connects to, over which commands
 * hand it their streams. Runs in `cordon-docker hold`, which makes it, and in `cordon-docker run`,
 * which uses it. Where it cannot be made commands go through the engine. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "backend/docker/session.h"
#include "base/fdsend.h"
#include "base/util.h"

#define CHANNEL_ANSWER_MS 5000

/* Nobody but the caller gets through `top`; the folder inside is what the container sees. */
static int channel_listen(const char *dir)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    _cleanup_close_ int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    snprintf(at.sun_path, sizeof(at.sun_path), "/proc/self/fd/%d/" INIT_CHANNEL_NAME, dir_fd);
    if (dir_fd < 0 || fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 ||
        fchmodat(dir_fd, INIT_CHANNEL_NAME, 0777, 0) < 0 || listen(fd, 1) < 0)
        return -1;
    return TAKE_FD(fd);
}

/* Holds `path`, which is a folder of ours, until the descriptor is closed; -1: it is another's. */
static int channel_lock(const char *path)
{
    struct stat st;
    _cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != geteuid() || flock(fd, LOCK_EX | LOCK_NB) < 0)
        return -1;
    return TAKE_FD(fd);
}

static void channel_remove(const char *top)
{
    char path[PATH_MAX + 32];
    snprintf(path, sizeof(path), "%s/d/" INIT_CHANNEL_NAME, top);
    (void)unlink(path);
    *strrchr(path, '/') = '\0';
    (void)rmdir(path);
    (void)rmdir(top);
}

/* Folders of those who were killed before they could remove them. One that is not locked yet may go
 * too: its commands are left to the engine. */
static void channel_collect(const char *cache)
{
    DIR *dir = opendir(cache);
    const struct dirent *e;
    while (dir && (e = readdir(dir))) {
        char top[PATH_MAX + 280];
        if (!str_starts(e->d_name, "hold-"))
            continue;
        int n = snprintf(top, sizeof(top), "%s/%s", cache, e->d_name);
        _cleanup_close_ int lock = n > 0 && n < PATH_MAX ? channel_lock(top) : -1;
        if (lock >= 0)
            channel_remove(top);
    }
    if (dir)
        closedir(dir);
}

void channel_open(struct channel *c)
{
    char cache[PATH_MAX];
    if (binds_cache(cache, sizeof(cache)) < 0)
        return;
    channel_collect(cache);
    int n = snprintf(c->top, sizeof(c->top), "%s/hold-XXXXXX", cache);
    if (n < 0 || (size_t)n >= sizeof(c->top) || !mkdtemp(c->top)) {
        c->top[0] = '\0';
        return;
    }
    snprintf(c->dir, sizeof(c->dir), "%s/d", c->top);
    c->lock_fd = channel_lock(c->top);
    if (c->lock_fd >= 0 && mkdir(c->dir, 0755) == 0)
        c->listen_fd = channel_listen(c->dir);
    if (c->listen_fd < 0)
        channel_hide(c);
}

/* The container has the folder, under whatever name; nobody else is to find it. */
void channel_hide(struct channel *c)
{
    if (!c->top[0])
        return;
    channel_remove(c->top);
    util_close(&c->lock_fd);
    c->top[0] = c->dir[0] = '\0';
}

int channel_accept(struct channel *c)
{
    struct sockaddr_un peer;
    socklen_t len = sizeof(peer);
    int fd =
        c->listen_fd < 0 ? -1 : accept4(c->listen_fd, (struct sockaddr *)&peer, &len, SOCK_CLOEXEC);
    util_close(&c->listen_fd);
    channel_hide(c);
    return fd;
}

union channel_rights {
    char space[CMSG_SPACE(3 * sizeof(int))];
    struct cmsghdr align;
};

static int channel_send(int fd)
{
    union channel_rights control = {0};
    struct iovec iov = {"c", 1};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.space,
                         .msg_controllen = CMSG_SPACE(sizeof(int))};
    struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
    *cmsg = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(cmsg), &fd, sizeof(int));
    return fdsend(HELPER_CHANNEL_FD, &msg, MSG_DONTWAIT) == 1 ? 0 : -1;
}

/* The ends of the command's streams; a pid 1 that does not answer leaves it to the engine. */
static int channel_receive(int fd, int ret_fds[static 3])
{
    union channel_rights control;
    char byte;
    struct iovec iov = {&byte, 1};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.space,
                         .msg_controllen = sizeof(control.space)};
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (poll(&p, 1, CHANNEL_ANSWER_MS) != 1 || recvmsg(fd, &msg, MSG_CMSG_CLOEXEC) != 1)
        return -1;
    struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
    if (!cmsg || cmsg->cmsg_type != SCM_RIGHTS || cmsg->cmsg_len != CMSG_LEN(3 * sizeof(int)))
        return -1;
    memcpy(ret_fds, CMSG_DATA(cmsg), 3 * sizeof(int));
    return 0;
}

int channel_begin(struct stdio *io)
{
    int pair[2], fds[3];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    int r = channel_send(pair[1]);
    close(pair[1]);
    if (r < 0 || channel_receive(pair[0], fds) < 0) {
        close(pair[0]);
        return -1;
    }
    return stdio_begin_raw(io, fds, pair[0]);
}
