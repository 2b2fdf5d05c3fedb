/* Network namespaces that are used again. Runs in the spawner, in the pool's user namespace, or in
 * a zygote of root's (again.c).
 *
 * Making one costs more than everything else of a prepared guest together, and most guests leave
 * theirs as they found it. A namespace of the store goes to one guest at a time and comes back when
 * the spawner has reaped its pid 1, and with it every process. It is given out again only if
 *
 *   - no socket is left in it (a cycle of sockets in flight outlives its processes for a while),
 *   - every counter that a packet or a refused connection moves, the flow labels, which linger,
 *     and the routes of IPv6 with their numbers of users read byte by byte as in one that nobody
 * used.
 *
 * What these files do not show no guest can ask for, and nothing of it moves anything later: the
 * filter refuses netlink (it tells the age of remembered routes) and membership in groups (whose
 * reports are sent seconds later), and knows no protocols but TCP and UDP.
 *
 * Settings, addresses and routes take rights in the user namespace of who made it, which no guest
 * has.
 * Never across spawners, so neither across handles nor keys; never for guests with a way out. */
#include "backend/native/warm_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"

#define NETNS_KEPT 32   /* most in the store, those in use included */
#define NETNS_TOUCHED 4 /* so many in a row were not left alone: guests make their own again */
#define NETNS_RETRY 64  /* requests after which the next one is tried nevertheless */
#define NETNS_REST_NS 1000000000u
#define NETNS_TEXT 16384

static const char *const netns_files[] = {"sockstat", "dev",           "snmp",       "netstat",
                                          "snmp6",    "ip6_flowlabel", "ipv6_route", "rt6_stats"};
#define NETNS_FILES ARRAY_SIZE(netns_files)
#define NETNS_FILES_IPV4 4 /* the others are missing where the kernel has no IPv6 */

struct netns {
    int fd; /* -1: free place */
    int files[NETNS_FILES];
    unsigned slot; /* of the guest that has it, 0: it rests */
    uint64_t rests_since_ns;
};

/* Not copied into guests. */
struct netns_text {
    size_t len;
    char bytes[NETNS_TEXT];
};

static struct netns kept[NETNS_KEPT];
static struct netns_text *reference, *now; /* of one that nobody used, and of the one in question */
static int own_fd = -1;
static unsigned touched, asked;
static bool refused;

static void netns_drop(struct netns *n)
{
    util_close(&n->fd);
    for (size_t i = 0; i < NETNS_FILES; i++)
        util_close(&n->files[i]);
    n->slot = 0;
}

static bool netns_read(const struct netns *n, struct netns_text *ret)
{
    ret->len = 0;
    for (size_t i = 1; i < NETNS_FILES; i++) {
        size_t room = NETNS_TEXT - ret->len;
        if (n->files[i] < 0)
            continue;
        ssize_t len = pread(n->files[i], ret->bytes + ret->len, room, 0);
        if (len <= 0 || (size_t)len == room)
            return false;
        ret->len += (size_t)len;
    }
    return true;
}

static bool netns_is_empty(const struct netns *n)
{
    static const char none[] = "sockets: used 0\n"; /* what follows counts the whole host */
    char text[sizeof(none) - 1];
    return pread(n->files[0], text, sizeof(text), 0) == (ssize_t)sizeof(text) &&
           memcmp(text, none, sizeof(text)) == 0;
}

static bool netns_is_untouched(const struct netns *n)
{
    return netns_is_empty(n) && netns_read(n, now) && now->len == reference->len &&
           memcmp(now->bytes, reference->bytes, now->len) == 0;
}

/* Of the namespace we are in. */
static bool netns_open_files(struct netns *n)
{
    char path[64];
    for (size_t i = 0; i < NETNS_FILES; i++) {
        snprintf(path, sizeof(path), "/proc/self/net/%s", netns_files[i]);
        n->files[i] = open(path, O_RDONLY | O_CLOEXEC);
        if (i < NETNS_FILES_IPV4 && n->files[i] < 0)
            return false;
    }
    return true;
}

/* In the new namespace. */
static bool netns_fill(struct netns *n)
{
    if (!netns_open_files(n))
        return false;
    n->fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    return n->fd >= 0 && native_netns_loopback_up() >= 0;
}

/* Who cannot get back must not go on among namespaces of guests. */
void warm_netns_leave(void)
{
    if (setns(own_fd, CLONE_NEWNET) < 0)
        _exit(1);
}

static bool netns_make(struct netns *n)
{
    if (unshare(CLONE_NEWNET) < 0) {
        refused = errno == EPERM; /* not with these rights: no store */
        return false;
    }
    bool ok = netns_fill(n);
    warm_netns_leave();
    if (ok && reference->len == 0)
        ok = netns_read(n, reference);
    n->rests_since_ns = clock_ns();
    if (!ok)
        netns_drop(n);
    return ok;
}

/* Room for two texts; false: there is none. */
static bool netns_make_texts(void)
{
    size_t size = 2 * sizeof(struct netns_text);
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || madvise(memory, size, MADV_DONTFORK) < 0)
        return false;
    reference = memory;
    now = reference + 1;
    return true;
}

void warm_netns_init(void)
{
    for (size_t i = 0; i < NETNS_KEPT; i++) {
        kept[i].fd = -1;
        for (size_t j = 0; j < NETNS_FILES; j++)
            kept[i].files[j] = -1;
    }
    own_fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (own_fd >= 0)
        netns_make_texts(); /* without a store, if not */
}

/* ---- in a porter, which has none of the store's descriptors ---- */

bool warm_netns_own_open(void)
{
    return netns_make_texts() && netns_open_files(&kept[0]);
}

bool warm_netns_own_begin(void)
{
    return netns_read(&kept[0], reference);
}

bool warm_netns_own_is_untouched(bool had_sockets)
{
    return had_sockets ? netns_is_untouched(&kept[0]) : netns_is_empty(&kept[0]);
}

/* After a request that found none: for the next one. */
void warm_netns_refill(void)
{
    if (!reference || refused || (touched >= NETNS_TOUCHED && ++asked % NETNS_RETRY != 0))
        return;
    for (size_t i = 0; i < NETNS_KEPT; i++)
        if (kept[i].fd < 0) {
            netns_make(&kept[i]);
            return;
        }
}

/* What rested for a while is looked at once more: whatever came late has come by then. */
int warm_netns_take(unsigned slot)
{
    for (size_t i = 0; i < NETNS_KEPT; i++) {
        struct netns *n = &kept[i];
        if (n->fd < 0 || n->slot)
            continue;
        if (clock_ns() - n->rests_since_ns > NETNS_REST_NS && !netns_is_untouched(n)) {
            netns_drop(n);
            continue;
        }
        n->slot = slot;
        return n->fd;
    }
    return -1;
}

void warm_netns_return(unsigned slot)
{
    for (size_t i = 0; i < NETNS_KEPT; i++) {
        struct netns *n = &kept[i];
        if (n->fd < 0 || n->slot != slot)
            continue;
        if (netns_is_untouched(n)) {
            n->slot = 0;
            n->rests_since_ns = clock_ns();
            touched = 0;
        } else {
            netns_drop(n);
            touched++;
        }
        return;
    }
}
