/* Hands the guest's working directory to the supervisor, for what is collected from it afterwards.
 * The sending half runs in the guest's pid 1 before the guest exists, the receiving half in the
 * supervisor when it is gone: the message waits in the socket. */
#include "backend/native/native_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fdsend.h"

union collect_control {
    char space[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
};

void native_collect_send(struct native_child *c)
{
    struct iovec iov = {"d", 1};
    int fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        native_child_fail(c, "working directory", errno, c->plan->cwd);
    if (fdsend_fds(c->go_fd, &iov, 1, &fd, 1, 0) < 0)
        native_child_fail(c, "working directory", errno, "hand over");
    close(fd);
}

int native_collect_receive(int go_fd)
{
    union collect_control control;
    char byte;
    int fd = -1;
    struct iovec iov = {&byte, 1};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.space,
                         .msg_controllen = sizeof(control.space)};
    ssize_t n;
    do
        n = recvmsg(go_fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    struct cmsghdr *cmsg = n == 1 ? CMSG_FIRSTHDR(&msg) : NULL;
    if (cmsg && cmsg->cmsg_type == SCM_RIGHTS && cmsg->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(&fd, CMSG_DATA(cmsg), sizeof(int));
    return fd;
}
