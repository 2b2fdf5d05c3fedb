/* Limits that must be looked at while the guest runs: the wall clock always; CPU time; and, where no
 * control group does it, memory, CPU percent, and bytes on writable host paths. Runs in the
 * supervisor on one timer per guest. */
#include "supervise/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/err.h"
#include "base/util.h"

#define WATCH_SETUP_NS (10 * 1000000000ull) /* longest the wall may take to stand */
#define WATCH_SLOW_NS 25000000ull           /* pace of looks that decide nothing */
#define WATCH_FAST_NS 1000000ull
#define WATCH_DISK_NS 50000000ull /* SPEC section 5: stopped within 100 ms */

static bool watch_needs_tree(const struct plan *p)
{
    return p->cgroups.kind == HOST_CGROUP_NONE;
}

/* The baseline of every writable host path, taken before the guest writes. */
static int watch_disks(struct supervised *s, struct cordon_err *err)
{
    const struct plan *p = s->plan;
    if (!p->limits.disk_bytes && !p->limits.max_files)
        return 0;
    s->disk_fds = calloc(p->n_ops + 1, sizeof(int));
    s->disk_base = calloc(p->n_ops + 1, sizeof(*s->disk_base));
    if (!s->disk_fds || !s->disk_base)
        return err_nomem(err, "supervise");
    for (size_t i = 0; i < p->n_ops; i++) {
        const struct plan_op *op = &p->ops[i];
        if (op->kind != PLAN_OP_BIND || !(op->flags & PLAN_BIND_GRANT) || !(op->flags & PLAN_BIND_RW) ||
            (op->flags & PLAN_BIND_FILE))
            continue;
        int fd = open(op->src, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
            return err_set(err, CORDON_ERR_INTERNAL, "supervise", errno, "%s", op->src);
        s->disk_fds[s->n_disks] = fd;
        if (sample_disk(fd, NULL, &s->disk_base[s->n_disks]) < 0) {
            s->n_disks++;
            return err_set(err, CORDON_ERR_INTERNAL, "supervise", errno, "%s", op->src);
        }
        s->n_disks++;
    }
    return 0;
}

int supervise_watch_start(struct supervised *s, struct cordon_err *err)
{
    if (s->plan->writes_host && watch_disks(s, err) < 0)
        return -1;
    s->next_look_ns = s->begin_ns;
    return 0;
}

static void watch_memory(struct supervised *s, const struct sample *now, uint64_t now_ns)
{
    uint64_t limit = s->plan->limits.memory_bytes;
    uint64_t growth = 0;
    if (s->last_memory_ns && now_ns > s->last_memory_ns && now->memory_bytes > s->last_memory)
        growth = (now->memory_bytes - s->last_memory) * 1000000000u / (now_ns - s->last_memory_ns);
    s->last_memory = now->memory_bytes;
    s->last_memory_ns = now_ns;
    if (limit && now->memory_bytes > limit)
        supervise_end(s, CAUSE_MEMORY);
    s->next_look_ns = now_ns + (limit ? sample_interval_ns(now->memory_bytes, limit, growth,
                                                           SAMPLE_MEMORY_FASTEST, now->cost_ns)
                                      : WATCH_SLOW_NS);
}

/* Without control groups everything is read from /proc. */
static void watch_tree(struct supervised *s, uint64_t now_ns)
{
    struct sample now;
    struct sample_options options = {.memory_limit = s->plan->limits.memory_bytes};
    s->next_look_ns = now_ns + WATCH_FAST_NS;
    if (!s->sampler && sample_open(s->guest.pid, &s->sampler, NULL) < 0)
        return;
    if (sample_tree(s->sampler, &options, &now) < 0)
        return;
    sample_merge(&s->peak, &now);
    s->look_cpu_ns = now.cpu_user_ns + now.cpu_sys_ns;
    watch_memory(s, &now, now_ns);
    if (s->plan->limits.cpu_percent && s->plan->limits.cpu_percent % 100 != 0) {
        bool stop, was = s->duty.stopped;
        if (s->duty.percent == 0)
            sample_duty_start(&s->duty, s->plan->limits.cpu_percent, now_ns);
        uint64_t at = sample_duty_step(&s->duty, now_ns, s->look_cpu_ns, &stop);
        if (stop != was)
            sample_stop(s->sampler, stop);
        s->next_look_ns = MIN(s->next_look_ns, at);
    }
}

static void watch_groups(struct supervised *s, uint64_t now_ns)
{
    struct backend_usage u;
    s->next_look_ns = now_ns + WATCH_SLOW_NS;
    if (s->guest.backend->measure(&s->guest, &u) < 0)
        return;
    s->look_cpu_ns = u.cpu_user_ns + u.cpu_sys_ns;
    s->processes_peak = MAX(s->processes_peak, MAX(u.processes_now, u.processes_peak));
}

/* CPU time can grow as fast as there are cores: look again when the rest could be used up. */
static void watch_cpu_time(struct supervised *s, uint64_t now_ns)
{
    uint64_t limit = s->plan->limits.cpu_ns;
    if (!limit)
        return;
    if (s->look_cpu_ns >= limit) {
        supervise_end(s, CAUSE_CPU_TIME);
        return;
    }
    static long cores;
    if (cores < 1)
        cores = MAX(sysconf(_SC_NPROCESSORS_ONLN), 1);
    uint64_t rest = (limit - s->look_cpu_ns) / (uint64_t)cores;
    s->next_look_ns = MIN(s->next_look_ns, now_ns + MAX(rest, WATCH_FAST_NS));
}

static void watch_disk_use(struct supervised *s, uint64_t now_ns)
{
    uint64_t bytes = 0, files = 0, cost = 0;
    for (size_t i = 0; i < s->n_disks; i++) {
        struct sample_disk now = {0};
        if (sample_disk(s->disk_fds[i], NULL, &now) < 0)
            continue;
        bytes += now.bytes > s->disk_base[i].bytes ? now.bytes - s->disk_base[i].bytes : 0;
        files += now.files > s->disk_base[i].files ? now.files - s->disk_base[i].files : 0;
        cost += now.cost_ns;
    }
    s->disk_used = MAX(s->disk_used, bytes);
    s->files_made = MAX(s->files_made, files);
    if (s->plan->limits.disk_bytes && bytes > s->plan->limits.disk_bytes)
        supervise_end(s, CAUSE_DISK);
    if (s->plan->limits.max_files && files > s->plan->limits.max_files)
        supervise_end(s, CAUSE_FILES);
    s->next_disk_ns = now_ns + MAX(WATCH_DISK_NS, cost * 4);
}

uint64_t supervise_watch_tick(struct supervised *s, uint64_t now)
{
    uint64_t started = s->guest.backend->started(&s->guest);
    if (s->cause != CAUSE_NONE || s->finished)
        return UINT64_MAX;
    if (!started) {
        if (now >= s->begin_ns + WATCH_SETUP_NS) {
            supervise_end(s, CAUSE_STUCK);
            return UINT64_MAX;
        }
        return now + 3 * WATCH_FAST_NS;
    }
    uint64_t deadline = s->plan->limits.wall_ns ? started + s->plan->limits.wall_ns : UINT64_MAX;
    if (now >= deadline) {
        supervise_end(s, CAUSE_TIME);
        return UINT64_MAX;
    }
    if (now >= s->next_look_ns) {
        if (watch_needs_tree(s->plan))
            watch_tree(s, now);
        else
            watch_groups(s, now);
        watch_cpu_time(s, now);
    }
    if (s->n_disks > 0 && now >= s->next_disk_ns)
        watch_disk_use(s, now);
    uint64_t next = MIN(deadline, s->next_look_ns);
    return s->n_disks > 0 ? MIN(next, s->next_disk_ns) : next;
}

void supervise_watch_stop(struct supervised *s)
{
    if (s->n_disks > 0 && s->cause == CAUSE_NONE)
        watch_disk_use(s, supervise_now_ns()); /* the last state counts too: a fast guest is not missed */
    sample_close(s->sampler);
    s->sampler = NULL;
    for (size_t i = 0; i < s->n_disks; i++)
        util_close(&s->disk_fds[i]);
    s->n_disks = 0;
    free(s->disk_fds);
    free(s->disk_base);
    s->disk_fds = NULL;
    s->disk_base = NULL;
}
