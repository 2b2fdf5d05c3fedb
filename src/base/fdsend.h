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
#include <sys/resource.h>
#include <sys/socket.h>

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

#endif
