/* Rooms as the supervisor holds them: which guests may follow each other in one, and what becomes
 * of it between two of them. */
#include "backend/native/warm_internal.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"

#define ROOMS_SPOILT 4  /* so many in a row served but one guest: guests have none for a while */
#define ROOMS_RETRY 512 /* requests after which the next one is tried nevertheless */
#define ROOMS_RUNS 5000 /* most guests of one room */
#define ROOMS_QUIET 64  /* guests that left their room as it was before sockets are told of */
/* So many at once, or two for each core: the kernel keeps a megabyte of each. */
#define ROOMS_FEW 8u
#define ROOMS_AGE_NS (20 * 1000000000ull)

/* Groups of version 1 that hold every limit and count all time, which a guest enters by itself; one
 * of version 2 that it is born in; or none at all. */
static bool rooms_fit_groups(const struct plan *p)
{
    const struct host_cgroups *groups = &p->cgroups;
    switch (groups->kind) {
    case HOST_CGROUP_NONE: return !groups->v2[0];
    case HOST_CGROUP_V1:
        return groups->cpuacct[0] && p->by_group.memory && p->by_group.pids && p->by_group.cpu;
    case HOST_CGROUP_V2: return true;
    }
    return false;
}

/* Nothing of the caller's in it, no way out, nothing to be handed back, no folder in the scratch
 * that nobody looks at; and a kernel where a process enters its clocks at its execve. */
bool warm_may_have_rooms(const struct plan *p, bool interpreter)
{
    if (interpreter || p->net || p->hands_back_cwd || p->writes_host || plan_count_grants(p) > 0 ||
        !p->filter_options.notify || (p->time_ns && !p->time_at_exec) || !rooms_fit_groups(p))
        return false;
    for (size_t i = 0; i < p->n_ops; i++)
        if (p->ops[i].kind == PLAN_OP_SCRATCH && (p->ops[i].flags & PLAN_SCRATCH_FOLDER))
            return false;
    return true;
}

bool warm_wants_room(struct warm *w)
{
    static unsigned most;
    if (most == 0)
        most = MAX(ROOMS_FEW, 2 * (unsigned)MAX(sysconf(_SC_NPROCESSORS_ONLN), 1));
    if (!w->has_rooms || w->n_rooms >= most ||
        (w->spoilt >= ROOMS_SPOILT && ++w->asked % ROOMS_RETRY != 0))
        return false;
    w->n_rooms++;
    return true;
}

static void rooms_note_sockets(struct warm *w, const struct native_status *s)
{
    w->has_sockets = w->has_sockets || s->had_sockets;
    w->n_quiet += w->n_quiet < ROOMS_QUIET;
    w->looks_at_network = w->has_sockets || w->n_quiet < ROOMS_QUIET;
}

void warm_room_note_end(struct warm_guest *g)
{
    struct warm *w = g->warm;
    w->n_rooms--;
    w->has_sockets = w->has_sockets || g->status->had_sockets;
    bool failed = atomic_load(&g->status->state) == NATIVE_FAILED;
    if (g->runs <= 1 && failed)
        w->has_rooms = false; /* not on this host */
    else if (g->runs == 1 && atomic_load(&g->status->over))
        w->spoilt++;
}

bool warm_is_over(const struct warm_guest *g)
{
    const struct native_status *s = g->status;
    if (!g->is_room)
        return false;
    if (atomic_load(&s->over) || g->looks_at_network != g->warm->looks_at_network)
        return true;
    /* one that could not be made is none of the pool's failures: guests are made without */
    return warm_has_failed(g) && (g->runs > 0 || atomic_load(&s->state) == NATIVE_FAILED);
}

bool warm_is_room(const struct warm_guest *g)
{
    return g->is_room;
}

bool warm_has_served(const struct warm_guest *g)
{
    return g->runs > 0;
}

bool warm_keep_room(struct warm_guest *g, int *go_fd, int *done_fd)
{
    char word;
    uint32_t state = atomic_load(&g->status->state);
    if (!g->is_room || (state != NATIVE_EXITED && state != NATIVE_EXEC_FAILED) ||
        !g->warm->has_rooms || g->runs >= ROOMS_RUNS || clock_ns() - g->born_ns > ROOMS_AGE_NS ||
        atomic_load(&g->status->over) || read(*done_fd, &word, 1) != 1)
        return false;
    g->go_fd = TAKE_FD(*go_fd);
    g->done_fd = TAKE_FD(*done_fd);
    g->returns = true;
    return true;
}

/* Of the page only what a run leaves on it: the porter may be about to say that the room is ready,
 * or over, and the spawner that it is gone. */
static void rooms_clear_page(struct native_status *s)
{
    s->fail_errno = s->exec_errno = s->wstatus = 0;
    s->started_ns = s->exited_ns = 0;
    s->setup_user_ns = s->setup_sys_ns = 0;
    s->guest_user_ns = s->guest_sys_ns = s->guest_rss_bytes = 0;
    atomic_store(&s->all_dead, 0);
    s->ended_together = 0;
    s->static_bytes = 0;
    atomic_store(&s->memory_refused, 0);
    atomic_store(&s->processes_refused, 0);
    s->time_hit = s->scratch_full = s->had_sockets = 0;
    for (size_t i = 0; i < NATIVE_CALLS; i++)
        if (s->denials[i])
            atomic_store(&s->denials[i], 0);
    atomic_store(&s->state, NATIVE_SETUP);
}

void warm_room_return(struct warm_guest *g)
{
    rooms_note_sockets(g->warm, g->status);
    rooms_clear_page(g->status);
    g->returns = g->is_claimed = false;
    g->next_returned = g->warm->returned;
    g->warm->returned = g;
}

struct warm_guest *warm_take_back(struct warm *w)
{
    struct warm_guest *g = w->returned;
    if (g)
        w->returned = g->next_returned;
    return g;
}
