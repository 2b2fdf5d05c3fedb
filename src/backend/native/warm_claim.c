/* Prepared guests as the supervisor holds them: asked for, given their order, let go. */
#include "backend/native/warm_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/sys.h"
#include "base/util.h"
#include "net/netclient.h"

#define CLAIM_REPLY_MS 2000 /* longest a spawner may take for a clone */
#define CLAIM_REST_NS UINT64_C(1000000000)
#define CLAIM_BODY_MAX ((size_t)1 << 30)

/* The lowest ones first: pages that were never used take no memory. */
static int claim_slot(struct warm *w)
{
    for (unsigned slot = 1; slot < WARM_SLOTS; slot++) {
        if (w->slots[slot] == WARM_USED ||
            (w->slots[slot] == WARM_ENDING && !atomic_load(&w->pages[slot].status.reaped)))
            continue;
        memset(&w->pages[slot], 0, sizeof(w->pages[slot]));
        w->pages[slot].status.listener_fd = -1;
        w->slots[slot] = WARM_USED;
        return (int)slot;
    }
    return -1;
}

static void claim_unlink(struct warm_guest *g)
{
    struct warm_guest **at = &g->warm->guests;
    while (*at && *at != g)
        at = &(*at)->next;
    if (*at)
        *at = g->next;
}

/* The page is the spawner's to give back: it is used again when the guest's pid 1 was reaped. */
void warm_release(struct warm_guest *g)
{
    struct warm *w = g->warm;
    if (g->returns) {
        warm_room_return(g);
        return;
    }
    if (g->is_room)
        warm_room_note_end(g);
    claim_unlink(g);
    w->slots[g->slot] = g->error ? WARM_FREE : WARM_ENDING;
    native_id_give(g->id);
    free(g);
    warm_unref_guest(w);
}

void warm_drop(struct warm_guest *g)
{
    util_close(&g->go_fd); /* its lifeline */
    if (g->pidfd >= 0)
        sys_pidfd_send_signal(g->pidfd, SIGKILL);
    util_close(&g->done_fd);
    for (int i = 0; i < 3; i++)
        util_close(&g->stdio[i]);
    util_close(&g->pidfd);
    if (g->net_has_begun)
        netclient_free(g->net); /* whoever starts in its place wants the same ports of the host */
    else
        netclient_leave(g->net);
    cgroup_destroy(g->cgroup);
    warm_release(g);
}

bool warm_keep_groups(struct warm_guest *g, struct cgroup *cgroup)
{
    struct warm *w = g->warm;
    if (w->n_idle == WARM_GROUPS || w->sock < 0)
        return false;
    bool rests = w->n_resting < WARM_RESTING && !cgroup_is_drained(cgroup, &g->limits);
    if (!rests && !cgroup_again(cgroup, &g->limits))
        return false;
    w->n_resting += rests;
    w->idle[w->n_idle++] = (struct warm_groups){cgroup, g->limits, rests ? clock_ns() : 0};
    return true;
}

static struct warm_groups claim_remove(struct warm *w, size_t i)
{
    struct warm_groups taken = w->idle[i];
    w->idle[i] = w->idle[--w->n_idle];
    w->n_resting -= taken.rests_since_ns != 0;
    return taken;
}

/* The last ones that were used, or some that have rested. What rests for too long goes. */
static bool claim_idle(struct warm *w, struct warm_groups *ret)
{
    for (size_t i = w->n_idle; i-- > 0;) {
        struct warm_groups *idle = &w->idle[i];
        if (idle->rests_since_ns && !cgroup_is_drained(idle->cgroup, &idle->limits)) {
            if (clock_ns() - idle->rests_since_ns > CLAIM_REST_NS)
                cgroup_destroy(claim_remove(w, i).cgroup);
            continue;
        }
        bool rested = idle->rests_since_ns != 0;
        *ret = claim_remove(w, i);
        if (!rested || cgroup_again(ret->cgroup, &ret->limits))
            return true;
        cgroup_destroy(ret->cgroup);
    }
    return false;
}

static int claim_groups(struct warm_guest *g, struct cordon_err *err)
{
    struct warm *w = g->warm;
    const struct host_cgroups *where = &w->cgroups;
    if (where->kind == HOST_CGROUP_NONE && !where->v2[0])
        return 0;
    struct warm_groups idle;
    if (claim_idle(w, &idle)) {
        g->cgroup = idle.cgroup;
        g->limits = idle.limits;
        return 0;
    }
    if (cgroup_create(where, &g->limits, g->is_room ? 0 : CGROUP_OWN_TASKS, &g->cgroup, err) < 0 ||
        (w->group && cgroup_pool_admit(w->group, g->cgroup, err) < 0))
        return -1;
    return where->kind == HOST_CGROUP_V1 ? cgroup_create_v1(g->cgroup, where, &g->limits, err) : 0;
}

/* fds: the guest's ends of its standard streams. */
static int claim_streams(struct warm_guest *g, int *fds, struct cordon_err *err)
{
    int pair[2];
    for (int i = 0; i < 3; i++) {
        if (pipe2(pair, O_CLOEXEC) < 0)
            return err_set(err, CORDON_ERR_INTERNAL, "pool", errno, "pipe");
        g->stdio[i] = pair[i == 0];
        fds[i] = pair[i != 0];
        /* the guest may open its streams again by /dev/stdout: they must be its own */
        if (g->warm->own_host_ids && fchown(fds[i], g->id, g->id) < 0)
            return err_set(err, CORDON_ERR_INTERNAL, "pool", errno, "owner of a pipe");
    }
    return 0;
}

/* fds: what goes to the guest, closed by the caller but for those that belong to the groups.
 * Streams and groups of a room come with each guest. */
static int claim_open(struct warm_guest *g, int *fds, struct cordon_err *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "pool", errno, "socketpair");
    g->go_fd = pair[0];
    fds[0] = pair[1];
    if (pipe2(pair, O_CLOEXEC) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "pool", errno, "pipe");
    g->done_fd = pair[0];
    fds[1] = pair[1];
    return g->is_room ? 0 : claim_streams(g, fds + WARM_ROOM_FDS, err);
}

static int claim_spawn(struct warm_guest *g, struct cordon_err *err)
{
    struct warm *w = g->warm;
    if (w->own_host_ids)
        do
            g->id = native_id_take();
        while (g->id == w->own_id); /* only if all are taken */
    int fds[WARM_SPAWN_FDS + 1 + CGROUP_ENTRIES_MAX + PLAN_PARKED_GRANTS + 1];
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        fds[i] = -1;
    struct warm_spawn m = {.slot = g->slot,
                           .serial = g->serial,
                           .is_room = g->is_room,
                           .looks_at_network = g->looks_at_network};
    m.id = g->id ? warm_id_inside(w, g->id) : 0;
    int r = claim_open(g, fds, err);
    if (r == 0 && !g->is_room)
        r = claim_groups(g, err);
    size_t n = g->is_room ? WARM_ROOM_FDS : WARM_SPAWN_FDS;
    if (r == 0 && g->cgroup) {
        int group = cgroup_clone_fd(g->cgroup);
        m.has_group = group >= 0;
        if (m.has_group)
            fds[n++] = group;
        m.n_entries = (uint32_t)cgroup_entries(g->cgroup, fds + n);
        /* only pid 1 is born in the v2 group, not who is forked from the interpreter */
        if (w->has_zygote && m.has_group)
            fds[n + m.n_entries++] = cgroup_entry_v2(g->cgroup);
        n += m.n_entries;
    }
    size_t first_grant = n;
    if (r == 0)
        r = warm_grants_open(g, &m, fds, &n, err);
    if (r == 0 && w->has_net && (r = netclient_start(&g->net, err)) == 0) {
        m.has_broker = g->net->is_prepared = true;
        fds[n++] = TAKE_FD(g->net->setup_fd);
    }
    struct iovec part = {&m, sizeof(m)};
    if (r == 0 && warm_send(w->sock, &part, 1, fds, n, MSG_DONTWAIT) < 0)
        r = err_set(err, CORDON_ERR_INTERNAL, "pool", errno, "request to the spawner");
    for (size_t i = 0; i < n; i++)
        if (i < WARM_SPAWN_FDS || i >= first_grant) /* in between they are the groups' */
            util_close(&fds[i]);
    return r;
}

int warm_park(struct warm *w, struct warm_guest **ret, struct cordon_err *err)
{
    struct warm_guest *g = calloc(1, sizeof(*g));
    int slot = g ? claim_slot(w) : -1;
    if (slot < 0) {
        free(g);
        return err_set(err, CORDON_ERR_INTERNAL, "pool", ENOSPC, "no room for another guest");
    }
    *g = (struct warm_guest){.warm = w,
                             .next = w->guests,
                             .slot = (unsigned)slot,
                             .serial = ++w->serials,
                             .status = &w->pages[slot].status,
                             .limits = w->limits,
                             .go_fd = -1,
                             .done_fd = -1,
                             .pidfd = -1,
                             .stdio = {-1, -1, -1},
                             .is_room = warm_wants_room(w),
                             .looks_at_network = w->looks_at_network,
                             .born_ns = clock_ns()};
    w->guests = g;
    w->refs++;
    if (claim_spawn(g, err) < 0) {
        g->error = EIO; /* it was never asked for: its page is free */
        warm_drop(g);
        return -1;
    }
    *ret = g;
    return 0;
}

bool warm_is_ready(const struct warm_guest *g)
{
    return g->pidfd >= 0 && !g->is_unseen && atomic_load(&g->status->ready) &&
           atomic_load(&g->status->state) == NATIVE_SETUP;
}

bool warm_has_failed(const struct warm_guest *g)
{
    return g->error || g->is_unseen || atomic_load(&g->status->state) != NATIVE_SETUP ||
           atomic_load(&g->status->reaped) || (g->net && !netclient_is_there(g->net));
}

uint64_t warm_born_ns(const struct warm_guest *g)
{
    return g->born_ns;
}

/* The spawner answers within a clone's time; a guest we could not kill is not given out. */
static int claim_await(struct warm_guest *g, struct cordon_err *err)
{
    struct pollfd p = {.fd = g->warm->sock, .events = POLLIN};
    while (g->pidfd < 0 && !g->error) {
        int r = poll(&p, 1, CLAIM_REPLY_MS);
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            return err_set(err, CORDON_ERR_INTERNAL, "pool", r < 0 ? errno : ETIMEDOUT, "spawner");
        if (warm_read(g->warm, err) < 0)
            return -1;
    }
    if (g->error)
        return err_set(err, CORDON_ERR_INTERNAL, "pool", g->error, "clone");
    if (g->is_unseen)
        return err_set(err, CORDON_ERR_INTERNAL, "pool", ESRCH, "number of a process");
    return 0;
}

static int claim_limits(struct warm_guest *g, const struct plan_limits *l, struct cordon_err *err)
{
    if (!g->cgroup ||
        (l->memory_bytes == g->limits.memory_bytes && l->processes == g->limits.processes &&
         l->cpu_percent == g->limits.cpu_percent))
        return 0;
    g->limits = *l;
    return cgroup_relimit(g->cgroup, l, err);
}

/* What a room gets with each guest, behind the order's other descriptors. */
static int claim_room(struct warm_guest *g, struct warm_order *order, int *streams, int *fds,
                      size_t *n, struct cordon_err *err)
{
    if (!g->is_room)
        return 0;
    if (claim_streams(g, streams, err) < 0)
        return -1;
    for (int i = 0; i < 3; i++)
        fds[(*n)++] = streams[i];
    order->n_streams = 3;
    if (!g->cgroup)
        return 0;
    int group = cgroup_clone_fd(g->cgroup);
    order->has_group = group >= 0;
    if (order->has_group)
        fds[(*n)++] = group;
    order->n_entries = (uint32_t)cgroup_entries(g->cgroup, fds + *n);
    *n += order->n_entries;
    return 0;
}

static int claim_order(struct warm_guest *g, const struct plan *plan, struct cordon_err *err)
{
    _cleanup_buf_ struct buf body = BUF_INIT(CLAIM_BODY_MAX);
    int fds[WARM_FDS_MAX], files[WARM_FDS_MAX], streams[3] = {-1, -1, -1};
    size_t n = 0;
    if (warm_order_encode(plan, &body) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "pool", E2BIG, "order");
    for (size_t i = 0; i < plan->n_files; i++)
        files[i] = -1;
    struct warm_order order = {.len = body.len, .is_memfd = body.len > WARM_INLINE_MAX};
    int memfd = -1, r = native_open_files(plan, files, err);
    if (r == 0 && order.is_memfd) {
        memfd = fds[n++] = memfd_create("cordon-order", MFD_CLOEXEC);
        size_t done = 0;
        ssize_t w = 0;
        while (memfd >= 0 && done < body.len &&
               (w = write(memfd, body.data + done, body.len - done)) > 0)
            done += (size_t)w;
        if (done < body.len)
            r = err_set(err, CORDON_ERR_INTERNAL, "pool", errno, "order");
    }
    for (size_t i = 0; i < plan->n_files; i++)
        if (files[i] >= 0) {
            fds[n++] = files[i];
            order.n_files++;
        }
    if (r == 0)
        r = claim_room(g, &order, streams, fds, &n, err);
    struct iovec parts[2] = {{&order, sizeof(order)}, {body.data, body.len}};
    if (r == 0 && warm_send(g->go_fd, parts, order.is_memfd ? 1 : 2, fds, n, 0) < 0)
        r = err_set(err, CORDON_ERR_INTERNAL, "pool", errno, "order");
    util_close(&memfd);
    for (size_t i = 0; i < plan->n_files; i++)
        util_close(&files[i]);
    for (int i = 0; i < 3; i++)
        util_close(&streams[i]);
    return r;
}

static int claim_network(struct warm_guest *g, const struct plan_net *net, struct cordon_err *err)
{
    g->net_has_begun = g->net != NULL;
    return g->net ? native_broker_begin(net, g->net, err) : 0;
}

int warm_claim(struct warm_guest *g, const struct plan *plan, struct guest *ret_guest,
               struct cordon_err *err)
{
    struct native *n = calloc(1, sizeof(*n));
    g->status->wall_ns = plan->limits.wall_ns;
    if (!n || claim_await(g, err) < 0 || (g->is_room && claim_groups(g, err) < 0) ||
        claim_limits(g, &plan->limits, err) < 0 || claim_network(g, plan->net, err) < 0 ||
        claim_order(g, plan, err) < 0) {
        if (!n)
            err_nomem(err, "pool");
        free(n);
        warm_drop(g);
        return -1;
    }
    g->is_claimed = true;
    if (++g->runs > 1)
        g->warm->spoilt = 0;
    *n = (struct native){.status = g->status,
                         .cgroup = TAKE_PTR(g->cgroup),
                         .go_fd = TAKE_FD(g->go_fd),
                         .pidfd = g->pidfd,
                         .dir_fd = -1,
                         .warm = g};
    *ret_guest = (struct guest){
        .backend = &backend_native,
        .plan = plan,
        .event_fd = TAKE_FD(g->done_fd),
        .stdio = {TAKE_FD(g->stdio[0]), TAKE_FD(g->stdio[1]), TAKE_FD(g->stdio[2])},
        .pid = g->pid,
        .beside = g->is_room ? &g->status->porter : NULL,
        .net = TAKE_PTR(g->net),
        .priv = n,
    };
    return 0;
}

/* Until its pid 1 is gone and the spawner has said what it used. */
void warm_wait(struct warm_guest *g, struct rusage *ru)
{
    const struct native_status *st = g->status;
    struct pollfd p = {.fd = g->pidfd, .events = POLLIN};
    while (poll(&p, 1, -1) < 0 && errno == EINTR)
        ;
    for (int i = 0; i < 1000 && !atomic_load(&st->reaped); i++)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    *ru = (struct rusage){
        .ru_utime = {.tv_sec = (time_t)(st->reaped_user_ns / 1000000000u),
                     .tv_usec = (suseconds_t)(st->reaped_user_ns % 1000000000u / 1000u)},
        .ru_stime = {.tv_sec = (time_t)(st->reaped_sys_ns / 1000000000u),
                     .tv_usec = (suseconds_t)(st->reaped_sys_ns % 1000000000u / 1000u)},
        .ru_maxrss = (long)(st->reaped_rss_bytes / 1024),
    };
}
