/* D13, D14, D21: makes as many kernel objects of one kind as it can get, up to a bound.
 *
 * usage: kmem
 * epoll|eventfd|timerfd|inotify|msgq|sem|vma|locks|dentry|scmcycle|unread|timers|sigqueue|files|sockets|ptys
 * N [MS] prints how many it made and why it stopped, and stays for MS. */
#include "guest.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>

static int base;

#define MANY 200

static int send_fds(int sock, const int *fds, size_t n)
{
    char c = 'x', space[CMSG_SPACE(sizeof(int) * MANY)] = {0};
    struct iovec io = {&c, 1};
    struct msghdr m = {.msg_iov = &io,
                       .msg_iovlen = 1,
                       .msg_control = space,
                       .msg_controllen = CMSG_SPACE(sizeof(int) * n)};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof(int) * n);
    memcpy(CMSG_DATA(h), fds, sizeof(int) * n);
    return (int)sendmsg(sock, &m, 0);
}

/* A unix socket sent over itself: a cycle only the kernel's collector can free. */
static int scm_cycle(void)
{
    int s[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, s) < 0)
        return -1;
    int r = send_fds(s[0], s, 2);
    int e = errno;
    close(s[0]);
    close(s[1]);
    errno = e;
    return r;
}

/* Descriptors sent to oneself and not taken out: counted for the user, not for the process. */
static int unread(void)
{
    static int s[2] = {-1, -1};
    static const int many[MANY];
    if (s[0] < 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s) < 0)
        return -1;
    return send_fds(s[0], many, MANY);
}

static int message_queue(void)
{
    static struct {
        long type;
        char text[4096];
    } m = {1, "m"};
    int q = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
    if (q < 0)
        return -1;
    while (msgsnd(q, &m, sizeof(m.text), IPC_NOWAIT) == 0)
        ;
    return 0;
}

static int lock_range(long i)
{
    struct flock f = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = i * 2, .l_len = 1};
    return fcntl(base, F_SETLK, &f);
}

static int missing_name(long i)
{
    char name[64];
    struct stat st;
    snprintf(name, sizeof(name), "/tmp/no-such-name-%ld", i);
    return stat(name, &st) == -1 && errno == ENOENT ? 0 : -1;
}

static int make_timer(void)
{
    timer_t t;
    struct sigevent ev = {.sigev_notify = SIGEV_NONE};
    return timer_create(CLOCK_MONOTONIC, &ev, &t);
}

static int map_one(long i)
{
    /* Alternating protections keep the kernel from merging the areas. */
    return mmap(NULL, 4096, i & 1 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
                   MAP_FAILED
               ? -1
               : 0;
}

static int make(const char *kind, long i)
{
    if (!strcmp(kind, "epoll"))
        return epoll_create1(0);
    if (!strcmp(kind, "eventfd"))
        return eventfd(0, 0);
    if (!strcmp(kind, "timerfd"))
        return timerfd_create(CLOCK_MONOTONIC, 0);
    if (!strcmp(kind, "inotify"))
        return inotify_init1(0);
    if (!strcmp(kind, "msgq"))
        return message_queue();
    if (!strcmp(kind, "sem"))
        return semget(IPC_PRIVATE, 250, IPC_CREAT | 0600);
    if (!strcmp(kind, "vma"))
        return map_one(i);
    if (!strcmp(kind, "locks"))
        return lock_range(i);
    if (!strcmp(kind, "dentry"))
        return missing_name(i);
    if (!strcmp(kind, "scmcycle"))
        return scm_cycle();
    if (!strcmp(kind, "unread"))
        return unread();
    if (!strcmp(kind, "timers"))
        return make_timer();
    if (!strcmp(kind, "sigqueue"))
        return sigqueue(getpid(), SIGRTMIN, (union sigval){0});
    if (!strcmp(kind, "sockets"))
        return socket(AF_UNIX, SOCK_STREAM, 0);
    if (!strcmp(kind, "ptys"))
        return posix_openpt(O_RDWR | O_NOCTTY);
    return open("/dev/null", O_RDONLY);
}

int main(int argc, char **argv)
{
    const char *kind = arg(argc, argv, 1, "files");
    long n = argn(argc, argv, 2, 100000), made = 0;
    guest_deadline(40);
    base = open(private_path("locks"), O_CREAT | O_RDWR, 0600);
    sigset_t rt;
    sigemptyset(&rt);
    sigaddset(&rt, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &rt, NULL);
    const char *why = "bound";
    for (; made < n; made++) {
        if (make(kind, made) < 0) {
            why = errname(errno);
            break;
        }
    }
    say("made", "%ld", made);
    say("stopped", "%s", why);
    sleep_ms(argn(argc, argv, 3, 0));
    return 0;
}
