/* Usage of a process tree from /proc, for guests without control groups. Runs in the supervisor.
 *
 * The tree is found by /proc/<pid>/task/<tid>/children from the root down: cost by the size of the
 * guest, not of the host. Processes come and go meanwhile. An orphan moves to the root (pid 1 of
 * its namespace or a subreaper), so the root's list is read again until it shows nothing new: who
 * hops from child to child does not stay unseen. Parents are read before their children: a child
 * reaped in between is missed once, never counted twice.
 *
 * Kernels without CONFIG_PROC_CHILDREN: one pass over all of /proc, by parent.
 *
 * CPU time of the dead is in their parent's cutime, unless the parent ignores SIGCHLD: then the
 * kernel drops it. `ledger` keeps what was last seen of a process that vanished and that no
 * survivor's cutime took over. */
#include "supervise/sample.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/clock.h"
#include "base/err.h"
#include "supervise/sample_shared.h"
#include "supervise/sample_sockets.h"
#include "supervise/sample_walk.h"

#define DETAIL_PERCENT 70
#define DETAIL_BUDGET_NS UINT64_C(20000000)
#define SHARED_PERCENT 25
#define STOP_PASSES 8
#define TABLES_FROM (UINT64_C(2) << 30)
#define NS_PER_TICK UINT64_C(10000000) /* USER_HZ is 100 on x86-64 */
#define KCMP_VM_TYPE 1                 /* KCMP_VM of linux/kcmp.h */

struct ledger {
    uint64_t pending, lost, reported; /* ticks */
};

struct sample_watch {
    struct walk walk;
    struct sample_stat root, beside;  /* as they were at the first look: they, and nobody else */
    uint64_t before_user, before_sys; /* ticks of guests before this one, in beside's cutime */
    struct walk_set now, before;
    struct ledger user, sys;
    struct shared_watch shared;
    struct sockets_watch sockets;
};

int sample_open(pid_t root, const struct backend_beside *beside, struct sample_watch **ret_watch,
                struct cordon_err *err)
{
    struct sample_watch *watch = calloc(1, sizeof(*watch));
    if (!watch)
        return err_nomem(err, "sample");
    watch->walk.root = root;
    watch->walk.beside = beside ? beside->pid : 0;
    watch->walk.proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (watch->walk.proc_fd < 0 || walk_read_stat(&watch->walk, root, &watch->root) < 0 ||
        (watch->walk.beside &&
         walk_read_stat(&watch->walk, watch->walk.beside, &watch->beside) < 0)) {
        err_set(err, CORDON_ERR_INTERNAL, "sample", errno, "/proc");
        util_close(&watch->walk.proc_fd);
        free(watch);
        return -1;
    }
    watch->before_user = beside ? beside->user_ns / NS_PER_TICK : 0;
    watch->before_sys = beside ? beside->sys_ns / NS_PER_TICK : 0;
    shared_start(&watch->shared);
    sockets_start(&watch->sockets);
    *ret_watch = watch;
    return 0;
}

void sample_close(struct sample_watch *watch)
{
    if (!watch)
        return;
    util_close(&watch->walk.proc_fd);
    sockets_done(&watch->sockets);
    walk_set_done(&watch->now);
    walk_set_done(&watch->before);
    free(watch);
}

/* vanished: last seen time of processes that are gone; inherited: growth of the survivors' cutime.
 */
static void ledger_update(struct ledger *ledger, uint64_t vanished, uint64_t inherited)
{
    /* One more look decides: the parent may have been read just before it reaped. Those who went
     * first are taken over first. */
    uint64_t taken = MIN(inherited, ledger->pending);
    ledger->lost += ledger->pending - taken;
    ledger->pending = vanished - MIN(vanished, inherited - taken);
}

static uint64_t ledger_total(struct ledger *ledger, uint64_t living)
{
    ledger->reported = MAX(ledger->reported, living + ledger->lost + ledger->pending);
    return ledger->reported;
}

static void account_cpu(struct sample_watch *watch, struct sample *sample)
{
    uint64_t user = 0, sys = 0;
    uint64_t gone_user = 0, gone_sys = 0, got_user = 0, got_sys = 0;
    for (size_t i = 0; i < watch->now.n; i++) {
        const struct sample_stat *st = &watch->now.list[i].stat;
        bool is_own = walk_is_own(&watch->walk, watch->now.list[i].pid);
        user += st->cutime + (is_own ? 0 : st->utime);
        sys += st->cstime + (is_own ? 0 : st->stime);
    }
    user -= MIN(user, watch->before_user);
    sys -= MIN(sys, watch->before_sys);
    for (size_t i = 0; i < watch->before.n; i++) {
        const struct walk_process *old = &watch->before.list[i];
        const struct walk_process *new = walk_set_find(&watch->now, old->pid);
        if (new &&new->stat.start == old->stat.start) {
            got_user += new->stat.cutime - MIN(new->stat.cutime, old->stat.cutime);
            got_sys += new->stat.cstime - MIN(new->stat.cstime, old->stat.cstime);
        } else {
            gone_user += old->stat.utime + old->stat.cutime;
            gone_sys += old->stat.stime + old->stat.cstime;
        }
    }
    ledger_update(&watch->user, gone_user, got_user);
    ledger_update(&watch->sys, gone_sys, got_sys);
    sample->cpu_user_ns = ledger_total(&watch->user, user) * NS_PER_TICK;
    sample->cpu_sys_ns = ledger_total(&watch->sys, sys) * NS_PER_TICK;
}

/* A vfork child runs in its parent's memory until it executes: count that once. */
static bool is_in_parents_memory(const struct sample_watch *watch,
                                 const struct walk_process *process)
{
    const struct walk_process *parent = walk_set_find(&watch->now, process->stat.ppid);
    if (!parent || walk_is_own(&watch->walk, parent->pid))
        return false;
    long r = syscall(SYS_kcmp, process->memory_pid, parent->memory_pid, KCMP_VM_TYPE, 0, 0);
    if (r >= 0)
        return r == 0;
    /* Cannot ask: a parent that waits in the kernel with exactly as much is taken to be the same.
     */
    return parent->stat.state == 'D' && parent->stat.rss_pages == process->stat.rss_pages;
}

static int read_pss(const struct sample_watch *watch, const struct walk_process *process,
                    uint64_t *ret_bytes, uint64_t *ret_shared)
{
    char path[40], text[2048];
    snprintf(path, sizeof(path), "%d/smaps_rollup", (int)process->memory_pid);
    if (walk_read(watch->walk.proc_fd, path, text, sizeof(text)) <= 0)
        return -1;
    *ret_shared = sample_parse_pss_shared(text);
    return sample_parse_pss(text, ret_bytes);
}

/* Shared pages once. Where one look would take too long, the rest is taken to share as much as what
 * was read; a process that does not let us look counts with its resident set. */
static uint64_t detailed_memory(const struct sample_watch *watch, uint64_t page,
                                uint64_t *ret_shared)
{
    uint64_t end = clock_ns() + DETAIL_BUDGET_NS;
    uint64_t seen_pss = 0, seen_rss = 0, rest_rss = 0;
    for (size_t i = 0; i < watch->now.n; i++) {
        const struct walk_process *process = &watch->now.list[i];
        uint64_t rss = process->stat.rss_pages * page, pss = rss, shared = 0;
        if (walk_is_own(&watch->walk, process->pid) || !rss || is_in_parents_memory(watch, process))
            continue;
        if (clock_ns() > end) {
            rest_rss += rss;
            continue;
        }
        if (read_pss(watch, process, &pss, &shared) < 0 && process->stat.threads > 1) {
            struct walk_process other = *process; /* that thread may have ended since */
            walk_find_memory(&watch->walk, &other);
            read_pss(watch, &other, &pss, &shared);
        }
        *ret_shared += shared;
        seen_pss += pss;
        seen_rss += rss;
    }
    if (!rest_rss || !seen_rss)
        return seen_pss + rest_rss;
    return seen_pss + (uint64_t)((double)rest_rss * (double)seen_pss / (double)seen_rss);
}

/* Page tables are memory that no resident set shows: a page touched every 2 MiB takes as much again
 * in tables. Only with that much address space, over all processes, can there be many. */
static uint64_t table_memory(const struct sample_watch *watch, const struct walk_process *process)
{
    char path[40], text[4096];
    uint64_t bytes = 0;
    if (process->stat.address_bytes < TABLES_FROM / watch->now.n) /* at least the process itself */
        return 0;
    snprintf(path, sizeof(path), "%d/status", (int)process->memory_pid);
    if (walk_read(watch->walk.proc_fd, path, text, sizeof(text)) <= 0 ||
        sample_parse_tables(text, &bytes) < 0)
        return 0;
    return bytes;
}

static void account_memory(struct sample_watch *watch, const struct sample_options *options,
                           struct sample *sample)
{
    uint64_t limit = options->memory_limit;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), kernel = 0, held = 0, shown = 0;
    for (size_t i = 0; i < watch->now.n; i++) {
        const struct walk_process *process = &watch->now.list[i];
        if (walk_is_own(&watch->walk, process->pid))
            continue;
        sample->memory_bytes += process->stat.rss_pages * page;
        sample->tasks += (unsigned)process->stat.threads;
        if (limit)
            kernel += table_memory(watch, process);
    }
    if (!limit)
        return;
    uint64_t growth = shared_growth(&watch->shared);
    if (growth > limit / 100 * SHARED_PERCENT) {
        held = shared_held(&watch->shared, &watch->walk, &watch->now, growth,
                           clock_ns() + DETAIL_BUDGET_NS);
        sample->growing_bytes = held > 0 ? growth : 0;
    }
    if (held > 0 || sample->memory_bytes > limit / 100 * DETAIL_PERCENT) {
        sample->memory_bytes = detailed_memory(watch, page, &shown);
        sample->is_pss = true;
    }
    kernel += sockets_held(&watch->sockets, &watch->walk, &watch->now, limit, options->own_sockets);
    sample->memory_bytes += held - MIN(held, shown) + kernel;
}

/* Their numbers may be somebody else's when they are gone. */
static bool is_same_tree(const struct sample_watch *watch, const struct walk_set *now)
{
    return now->list[0].stat.start == watch->root.start &&
           (!watch->walk.beside || now->list[1].stat.start == watch->beside.start);
}

int sample_tree(struct sample_watch *watch, const struct sample_options *options,
                struct sample *ret_sample)
{
    struct sample sample = {0};
    uint64_t start = clock_ns();
    watch->walk.max = options->max_processes ? options->max_processes : SAMPLE_MAX_PROCESSES;

    struct walk_set swap = watch->before;
    watch->before = watch->now;
    watch->now = swap;
    if (walk_tree(&watch->walk, &watch->now, &sample.truncated) < 0 ||
        !is_same_tree(watch, &watch->now)) {
        watch->now.n = 0;
        return -1;
    }
    walk_recover(&watch->walk, &watch->now, &watch->before);
    account_cpu(watch, &sample);
    account_memory(watch, options, &sample);
    sample.cost_ns = clock_ns() - start;
    *ret_sample = sample;
    return 0;
}

/* Held by descriptor and looked at again, since the pid may be a stranger's by now. */
static void signal_process(const struct walk *walk, const struct walk_process *process, int signo)
{
    struct sample_stat st;
    _cleanup_close_ int fd = (int)syscall(SYS_pidfd_open, process->pid, 0);
    if (fd >= 0 && walk_read_stat(walk, process->pid, &st) == 0 && st.start == process->stat.start)
        syscall(SYS_pidfd_send_signal, fd, signo, NULL, 0);
}

void sample_stop(struct sample_watch *watch, bool stop)
{
    struct walk_set seen = {0}, last = {0};
    watch->walk.max = SAMPLE_MAX_PROCESSES;
    for (int pass = 0; pass < STOP_PASSES; pass++) {
        bool truncated, is_new = false;
        if (walk_tree(&watch->walk, &seen, &truncated) < 0 || !is_same_tree(watch, &seen))
            break;
        for (size_t i = 0; i < seen.n; i++) {
            const struct walk_process *process = &seen.list[i];
            const struct walk_process *known = walk_set_find(&last, process->pid);
            if (walk_is_own(&watch->walk, process->pid) ||
                (known && known->stat.start == process->stat.start))
                continue;
            is_new = true;
            signal_process(&watch->walk, process, stop ? SIGSTOP : SIGCONT);
        }
        if (!is_new)
            break;
        struct walk_set swap = last;
        last = seen;
        seen = swap;
    }
    walk_set_done(&seen);
    walk_set_done(&last);
}

void sample_merge(struct sample *peak, const struct sample *now)
{
    /* An exact number beats a larger upper bound seen before it. */
    if (now->memory_bytes > peak->memory_bytes) {
        peak->memory_bytes = now->memory_bytes;
        peak->is_pss = now->is_pss;
    }
    peak->cpu_user_ns = MAX(peak->cpu_user_ns, now->cpu_user_ns);
    peak->cpu_sys_ns = MAX(peak->cpu_sys_ns, now->cpu_sys_ns);
    peak->tasks = MAX(peak->tasks, now->tasks);
    peak->truncated |= now->truncated;
    peak->cost_ns = MAX(peak->cost_ns, now->cost_ns);
}
