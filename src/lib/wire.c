/* Messages with descriptors, and memory to pass. Used on both sides: by the library in the calling
 * program and by the supervisor. */
#include "lib/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3; hosts can demand it */
#endif

union wire_control {
    char space[CMSG_SPACE(sizeof(int) * WIRE_FDS_MAX)];
    struct cmsghdr align;
};

int wire_send(int sock, const struct iovec *parts, size_t n_parts, const int *fds, size_t n_fds,
              int flags)
{
    union wire_control control = {0};
    struct msghdr msg = {.msg_iov = (struct iovec *)parts, .msg_iovlen = n_parts};
    if (n_fds > 0) {
        msg.msg_control = control.space;
        msg.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * n_fds);
    }
    ssize_t n;
    do
        n = sendmsg(sock, &msg, MSG_NOSIGNAL | flags);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -1 : 0;
}

/* Takes the descriptors out of the control data; what does not fit is closed, not leaked. */
static size_t wire_take_fds(struct msghdr *msg, int fds[static WIRE_FDS_MAX])
{
    size_t n_fds = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
            if (n_fds < WIRE_FDS_MAX)
                fds[n_fds++] = fd;
            else
                close(fd);
        }
    }
    return n_fds;
}

ssize_t wire_recv(int sock, void *buf, size_t size, int fds[static WIRE_FDS_MAX], size_t *ret_n_fds,
                  int flags)
{
    union wire_control control;
    struct iovec part = {buf, size};
    struct msghdr msg = {.msg_iov = &part,
                         .msg_iovlen = 1,
                         .msg_control = control.space,
                         .msg_controllen = sizeof(control.space)};
    ssize_t n;
    *ret_n_fds = 0;
    do
        n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC | flags);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -1;
    *ret_n_fds = wire_take_fds(&msg, fds);
    if (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
        errno = EMSGSIZE; /* the caller still owns the descriptors that came */
        return -1;
    }
    return n;
}

int wire_memfd(const char *name)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd;
}

int wire_write_all(int fd, const void *data, size_t len)
{
    const char *p = data;
    while (len > 0) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

void *wire_map(int fd, size_t len)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || fstat(fd, &st) < 0)
        return NULL;
    /* A mapping past the end of a file that shrank is a SIGBUS for whoever reads it. */
    if (!(seals & F_SEAL_SHRINK) || st.st_size < 0 || (uint64_t)st.st_size < len) {
        errno = EPROTO;
        return NULL;
    }
    void *p = mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}
