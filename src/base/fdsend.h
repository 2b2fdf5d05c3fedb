/* Descriptors over a socket, for processes of ours on the way to a guest.
 *
 * The kernel counts the descriptors that a user has under way, and refuses with ETOOMANYREFS to who
 * may open fewer than that. Guests of an ordinary user count as that user: one that leaves
 * descriptors unread in sockets of its own would keep the next from starting. Our limit may be
 * higher than a guest's, so it goes up and stays there; guests get a limit of their own. */
#ifndef BASE_FDSEND_H
#define BASE_FDSEND_H

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>

static inline bool fdsend_raise(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur >= files.rlim_max)
        return false;
    files.rlim_cur = files.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &files) == 0;
}

/* sendmsg(2), without SIGPIPE and past signals. */
static inline ssize_t fdsend(int sock, const struct msghdr *msg, int flags)
{
    for (;;) {
        ssize_t n = sendmsg(sock, msg, MSG_NOSIGNAL | flags);
        if (n >= 0 || (errno != EINTR && errno != ETOOMANYREFS))
            return n;
        if (errno == ETOOMANYREFS && !fdsend_raise()) {
            errno = ETOOMANYREFS;
            return -1;
        }
    }
}

#define FDSEND_MAX 64 /* descriptors in one message of ours */

/* The same with descriptors. */
static inline ssize_t fdsend_fds(int sock, const struct iovec *parts, size_t n_parts,
                                 const int *fds, size_t n_fds, int flags)
{
    union {
        char space[CMSG_SPACE(sizeof(int) * FDSEND_MAX)];
        struct cmsghdr align;
    } control;
    struct msghdr msg = {.msg_iov = (struct iovec *)parts, .msg_iovlen = n_parts};
    if (n_fds > FDSEND_MAX) {
        errno = EINVAL;
        return -1;
    }
    if (n_fds > 0) {
        memset(&control, 0, CMSG_SPACE(n_fds * sizeof(int)));
        msg.msg_control = control.space;
        msg.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(cmsg), fds, n_fds * sizeof(int));
    }
    return fdsend(sock, &msg, flags);
}

#endif
