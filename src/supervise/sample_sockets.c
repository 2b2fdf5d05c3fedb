/* See sample_sockets.h. Runs in the supervisor; sockets_enter() in a child of it that ends at once.
 */
#include "supervise/sample_sockets.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORTH_BYTES (UINT64_C(16) << 20) /* no socket holds more */
#define WORTH_PERCENT 25
#define ASK_TRIES 4  /* processes; one that hides does not end the search */
#define CLOSED_FEW 4 /* sockets closed with bytes on their way, as ordinary programs have them */
#define DEFAULT_MOST 212992

void sockets_start(struct sockets_watch *watch)
{
    *watch = (struct sockets_watch){.fd = -1};
}

void sockets_done(struct sockets_watch *watch)
{
    util_close(&watch->fd);
}

int sample_parse_sockets(const char *text, uint64_t *ret_used)
{
    static const char key[] = "sockets: used ";
    char *end;
    if (!str_starts(text, key))
        return -1;
    errno = 0;
    uint64_t used = strtoull(text + sizeof(key) - 1, &end, 10);
    if (errno != 0 || end == text + sizeof(key) - 1 || *end != '\n')
        return -1;
    *ret_used = used;
    return 0;
}

/* Sockets of the namespace that some process of the guest is in; its pid. Closed ones count as long
 * as their bytes are on the way. */
static pid_t count_used(const struct walk *walk, const struct walk_set *set, uint64_t *ret_used)
{
    int tries = 0;
    for (size_t i = 0; i < set->n && tries < ASK_TRIES; i++) {
        char path[40], text[512];
        pid_t pid = set->list[i].memory_pid;
        if (walk_is_own(walk, set->list[i].pid) || set->list[i].stat.state == 'Z')
            continue;
        tries++;
        snprintf(path, sizeof(path), "%d/net/sockstat", (int)pid);
        if (walk_read(walk->proc_fd, path, text, sizeof(text)) > 0 &&
            sample_parse_sockets(text, ret_used) == 0)
            return pid;
    }
    return -1;
}

/* The socket appears in the supervisor, whose table of descriptors the child shares. */
static _Noreturn void sockets_enter(int user_ns, int net_ns, int answer)
{
    /* Root may enter the network alone; others have rights there only as the owner of both. */
    if (setns(user_ns, CLONE_NEWUSER) < 0 && errno == EPERM)
        _exit(1);
    if (setns(net_ns, CLONE_NEWNET) < 0)
        _exit(1);
    int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (fd >= 0 && write(answer, &fd, sizeof(fd)) != sizeof(fd))
        close(fd);
    _exit(0);
}

static int open_ns(const struct walk *walk, pid_t pid, const char *kind)
{
    char path[40];
    snprintf(path, sizeof(path), "%d/ns/%s", (int)pid, kind);
    return openat(walk->proc_fd, path, O_RDONLY | O_CLOEXEC);
}

static int ask_from_inside(int user_ns, int net_ns)
{
    int answer[2], fd = -1, got = -1;
    if (pipe2(answer, O_CLOEXEC) < 0)
        return -1;
    pid_t pid = (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, 0UL);
    if (pid == 0)
        sockets_enter(user_ns, net_ns, answer[1]);
    if (pid > 0) {
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
        /* It is gone: either its answer is here or there is none. */
        close(answer[1]);
        answer[1] = -1;
        if (read(answer[0], &got, sizeof(got)) == sizeof(got))
            fd = got;
    }
    util_close(&answer[1]);
    close(answer[0]);
    return fd;
}

static void open_diag(struct sockets_watch *watch, const struct walk *walk, pid_t pid)
{
    struct stat own, theirs;
    char text[32];
    _cleanup_close_ int net_ns = open_ns(walk, pid, "net");
    /* the owner's: a prepared guest's network belongs to the namespace above its own */
    _cleanup_close_ int user_ns = net_ns < 0 ? -1 : ioctl(net_ns, NS_GET_USERNS);
    if (user_ns < 0 || net_ns < 0 || fstat(net_ns, &theirs) < 0)
        return; /* it ended or hides: another look, another process */
    watch->off = true;
    if (stat("/proc/self/ns/net", &own) < 0 || own.st_ino == theirs.st_ino)
        return;
    watch->fd = ask_from_inside(user_ns, net_ns);
    watch->off = watch->fd < 0;
    watch->most_bytes = DEFAULT_MOST;
    if (walk_read(walk->proc_fd, "sys/net/core/wmem_max", text, sizeof(text)) > 0)
        watch->most_bytes = MAX(strtoull(text, NULL, 10), (unsigned long long)DEFAULT_MOST);
    watch->most_bytes *= 2; /* as the kernel counts them */
}

/* Sockets by the number of their inode; those without one are closed, and still shown. */
struct tally {
    uint64_t bytes, nameless;
    uint32_t *inodes;
    size_t n, cap;
    bool failed;
};

static void tally_add(struct tally *tally, uint32_t inode)
{
    if (inode == 0) {
        tally->nameless++;
        return;
    }
    if (tally->n == tally->cap) {
        size_t more = tally->cap ? tally->cap * 2 : 256;
        uint32_t *grown = reallocarray(tally->inodes, more, sizeof(*grown));
        if (!grown) {
            tally->failed = true;
            return;
        }
        tally->inodes = grown;
        tally->cap = more;
    }
    tally->inodes[tally->n++] = inode;
}

static int compare_inodes(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static uint64_t tally_count(struct tally *tally)
{
    uint64_t count = tally->nameless;
    if (tally->n > 0)
        qsort(tally->inodes, tally->n, sizeof(*tally->inodes), compare_inodes);
    for (size_t i = 0; i < tally->n; i++)
        count += i == 0 || tally->inodes[i] != tally->inodes[i - 1];
    return count;
}

/* One answer: a header of the family's own, then attributes; ours is a list of numbers. What has
 * none is the rest of a connection, no socket any more. */
static void memory_of(const struct nlmsghdr *head, size_t skip, unsigned short want, size_t name_at,
                      struct tally *tally)
{
    uint32_t inode = 0;
    if (head->nlmsg_len >= NLMSG_HDRLEN + skip)
        memcpy(&inode, (const char *)head + NLMSG_HDRLEN + name_at, sizeof(inode));
    size_t at = NLMSG_HDRLEN + NLMSG_ALIGN(skip);
    while (at + NLA_HDRLEN <= head->nlmsg_len) {
        const struct nlattr *attr = (const void *)((const char *)head + at);
        const uint32_t *value = (const void *)((const char *)attr + NLA_HDRLEN);
        if (attr->nla_len < NLA_HDRLEN || at + attr->nla_len > head->nlmsg_len)
            return;
        if ((attr->nla_type & NLA_TYPE_MASK) == want &&
            attr->nla_len >= NLA_HDRLEN + (SK_MEMINFO_WMEM_QUEUED + 1) * sizeof(*value)) {
            /* Unix sockets count what they sent in the one number, TCP in the other. */
            tally->bytes += (uint64_t)value[SK_MEMINFO_RMEM_ALLOC] + value[SK_MEMINFO_FWD_ALLOC] +
                            MAX(value[SK_MEMINFO_WMEM_ALLOC], value[SK_MEMINFO_WMEM_QUEUED]);
            tally_add(tally, inode);
            return;
        }
        at += NLA_ALIGN(attr->nla_len);
    }
}

static int dump(int fd, const void *request, size_t len, size_t skip, unsigned short want,
                size_t name_at, struct tally *tally)
{
    _Alignas(struct nlmsghdr) char text[16384];
    if (send(fd, request, len, 0) != (ssize_t)len)
        return -1;
    for (;;) {
        ssize_t n = recv(fd, text, sizeof(text), 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        size_t left = (size_t)n;
        for (struct nlmsghdr *head = (void *)text; NLMSG_OK(head, left);
             head = NLMSG_NEXT(head, left)) {
            if (head->nlmsg_type == NLMSG_DONE)
                return 0;
            if (head->nlmsg_type == NLMSG_ERROR)
                return -1; /* a kernel without this kind */
            memory_of(head, skip, want, name_at, tally);
        }
    }
}

static void dump_unix(int fd, struct tally *tally)
{
    struct {
        struct nlmsghdr head;
        struct unix_diag_req body;
    } request = {
        .head = {.nlmsg_len = sizeof(request),
                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
        .body = {.sdiag_family = AF_UNIX, .udiag_states = ~0U, .udiag_show = UDIAG_SHOW_MEMINFO},
    };
    dump(fd, &request, sizeof(request), sizeof(struct unix_diag_msg), UNIX_DIAG_MEMINFO,
         offsetof(struct unix_diag_msg, udiag_ino), tally);
}

static void dump_inet(int fd, struct tally *tally)
{
    static const unsigned char kinds[][2] = {{AF_INET, IPPROTO_TCP},
                                             {AF_INET6, IPPROTO_TCP},
                                             {AF_INET, IPPROTO_UDP},
                                             {AF_INET6, IPPROTO_UDP}};
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        struct {
            struct nlmsghdr head;
            struct inet_diag_req_v2 body;
        } request = {
            .head = {.nlmsg_len = sizeof(request),
                     .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                     .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
            .body = {.sdiag_family = kinds[i][0],
                     .sdiag_protocol = kinds[i][1],
                     .idiag_ext = 1 << (INET_DIAG_SKMEMINFO - 1),
                     .idiag_states = ~0U},
        };
        dump(fd, &request, sizeof(request), sizeof(struct inet_diag_msg), INET_DIAG_SKMEMINFO,
             offsetof(struct inet_diag_msg, idiag_inode), tally);
    }
}

/* Sockets that are open and bound to nothing are not shown either: descriptors tell. What hides its
 * descriptors has none, and counts as closed. */
static void add_open(const struct walk *walk, pid_t pid, struct tally *tally)
{
    char path[40], link[40];
    snprintf(path, sizeof(path), "%d/fd", (int)pid);
    int fd = openat(walk->proc_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        util_close(&fd);
        return;
    }
    for (const struct dirent *entry; (entry = readdir(dir));) {
        ssize_t n = readlinkat(dirfd(dir), entry->d_name, link, sizeof(link) - 1);
        if (n <= 0)
            continue;
        link[n] = '\0';
        if (str_starts(link, "socket:["))
            tally_add(tally, (uint32_t)strtoul(link + strlen("socket:["), NULL, 10));
    }
    closedir(dir);
}

/* Closed, but alive for the bytes it sent: the kernel counts it and shows it no more. */
static uint64_t count_closed(const struct walk *walk, const struct walk_set *set, uint64_t used,
                             unsigned own, struct tally *tally)
{
    uint64_t known = tally_count(tally) + own + CLOSED_FEW + 1; /* the one that asks */
    if (used <= known)
        return 0;
    for (size_t i = 0; i < set->n; i++)
        if (!walk_is_own(walk, set->list[i].pid))
            add_open(walk, set->list[i].memory_pid, tally);
    known = tally_count(tally) + own + CLOSED_FEW + 1;
    return tally->failed ? 0 : used - MIN(used, known);
}

uint64_t sockets_held(struct sockets_watch *watch, const struct walk *walk,
                      const struct walk_set *set, uint64_t limit, unsigned own)
{
    uint64_t used = 0;
    struct tally tally = {0};
    if (watch->off)
        return 0;
    pid_t pid = count_used(walk, set, &used);
    used -= MIN(used, own);
    if (pid < 0 || used * WORTH_BYTES <= limit / 100 * WORTH_PERCENT)
        return 0;
    if (watch->fd < 0)
        open_diag(watch, walk, pid);
    if (watch->fd < 0)
        return 0;
    dump_unix(watch->fd, &tally);
    dump_inet(watch->fd, &tally);
    /* Others are closed and opened while we look: only what two looks agree on is taken for such.
     */
    uint64_t after = used + own, both = 0;
    if (count_used(walk, set, &after) >= 0) {
        uint64_t closed = count_closed(walk, set, MIN(used + own, after), own, &tally);
        both = MIN(closed, watch->closed);
        watch->closed = closed;
    }
    free(tally.inodes);
    return tally.bytes + both * watch->most_bytes;
}
