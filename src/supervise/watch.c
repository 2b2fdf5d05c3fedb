/* Limits that must be looked at while the guest runs: the wall clock always; CPU time; and, where
 * no control group does it, memory, CPU percent, and bytes on writable host paths. Runs in the
 * supervisor on one timer per guest. */
#include "supervise/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/sys.h"
#include "base/util.h"

#define WATCH_SETUP_NS (10 * 1000000000ull) /* longest the wall may take to stand */
#define WATCH_SLOW_NS 25000000ull           /* pace of looks that decide nothing */
#define WATCH_FAST_NS 1000000ull
#define WATCH_DISK_BUDGET_NS 200000000ull /* of one look; the first one has sample_disk()'s own */
#define WATCH_DISK_FASTEST (UINT64_C(1) << 30) /* bytes a guest can write in a second */

/* Whole cores are given by affinity where no group shares them out; a part of one is held by us. */
static bool watch_holds_share(const struct plan *p)
{
    return p->cores && p->limits.cpu_percent % 100 != 0 && !p->own_kernel;
}

/* What no group measures is read from /proc; and whoever must stand still is found there, should
 * there be nothing that freezes a group. */
static bool watch_needs_tree(const struct plan *p)
{
    return !p->by_group.memory || !p->by_group.pids || watch_holds_share(p);
}

/* Folders and files the guest can fill, as far as they exist by now: the guest's own one in tier
 * landlock is made by the start. */
static bool watch_is_disk(const struct plan *p, const struct plan_op *op, bool started)
{
    bool own = p->private_dir && str_eq(op->src ? op->src : "", p->private_dir);
    return op->kind == PLAN_OP_BIND && (op->flags & PLAN_BIND_GRANT) &&
           (op->flags & PLAN_BIND_RW) && !(op->flags & (PLAN_BIND_PINNED | PLAN_BIND_DEV)) &&
           own == started;
}

/* What is in use on the file system of a folder, whoever uses it. */
static struct sample_disk watch_fs(int fd)
{
    struct statfs fs;
    if (fstatfs(fd, &fs) < 0)
        return (struct sample_disk){0};
    return (struct sample_disk){
        .bytes = (uint64_t)(fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize,
        .files = (uint64_t)(fs.f_files - fs.f_ffree),
    };
}

/* Of an overlay's layer only what the guest wrote: the kernel's work folder beside it is closed to
 * everyone, which would look like something hidden. */
static int watch_open_disk(const struct plan_op *op)
{
    int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    if (op->flags & PLAN_BIND_FILE)
        return open(op->src, O_PATH | O_CLOEXEC);
    int fd = open(op->src, flags);
    if (fd < 0 || !str_eq(op->dst, PLAN_LAYER))
        return fd;
    int upper = openat(fd, "upper", flags | O_NOFOLLOW);
    close(fd);
    return upper;
}

/* The baseline of one writable host path. A tree that cannot be looked at in time is not watched at
 * all, which a caller who asked for a limit must know before anything runs. */
static int watch_add_disk(struct supervised *s, const struct plan_op *op, struct cordon_err *err)
{
    const char *path = op->src;
    int fd = watch_open_disk(op);
    if (fd < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "supervise", errno, "%s", path);
    struct sample_disk *base = &s->disk_base[s->n_disks];
    s->disk_fs[s->n_disks] = watch_fs(fd);
    s->disk_fds[s->n_disks++] = fd;
    if (sample_disk(fd, NULL, base) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "supervise", errno, "%s", path);
    if (!base->truncated)
        return 0;
    if (s->plan->scratch_exact) {
        err_set(err, CORDON_ERR_HOST, "supervise", 0,
                "%s: too large for disk_limit and max_files to be held on it", path);
        return err_hint(err, "grant a smaller folder, or leave the two limits out");
    }
    util_close(&s->disk_fds[--s->n_disks]);
    *base = (struct sample_disk){0};
    return 0;
}

/* Is one place part of another one, as far as a look at that gets? */
static bool watch_is_within(int fd, int top_fd)
{
    char link[32], path[PATH_MAX], top[PATH_MAX];
    struct statx here, there;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof(path) - 1);
    snprintf(link, sizeof(link), "/proc/self/fd/%d", top_fd);
    ssize_t n_top = readlink(link, top, sizeof(top) - 1);
    if (n < 0 || n_top < 0 || n < n_top || memcmp(path, top, (size_t)n_top) != 0)
        return false;
    path[n] = '\0';
    return (path[n_top] == '\0' || path[n_top] == '/' || n_top == 1) &&
           sys_statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &here) == 0 &&
           sys_statx(top_fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &there) == 0 &&
           here.stx_mnt_id == there.stx_mnt_id;
}

/* What is granted twice, by itself and with a folder above it, counts once. */
static void watch_drop_inner(struct supervised *s)
{
    for (size_t i = 0; i < s->n_disks;) {
        bool within = false;
        for (size_t k = 0; k < s->n_disks && !within; k++)
            within = k != i && watch_is_within(s->disk_fds[i], s->disk_fds[k]);
        if (!within) {
            i++;
            continue;
        }
        util_close(&s->disk_fds[i]);
        s->n_disks--;
        s->disk_fds[i] = s->disk_fds[s->n_disks];
        s->disk_base[i] = s->disk_base[s->n_disks];
        s->disk_fs[i] = s->disk_fs[s->n_disks];
        s->disk_base[s->n_disks] = (struct sample_disk){0}; /* its next owner adds to it */
    }
}

static int watch_disks(struct supervised *s, bool started, struct cordon_err *err)
{
    const struct plan *p = s->plan;
    if (!p->writes_host || (!p->limits.disk_bytes && !p->limits.max_files))
        return 0;
    if (!s->disk_fds)
        s->disk_fds = calloc(p->n_ops + 1, sizeof(int));
    if (!s->disk_base)
        s->disk_base = calloc(p->n_ops + 1, sizeof(*s->disk_base));
    if (!s->disk_fs)
        s->disk_fs = calloc(p->n_ops + 1, sizeof(*s->disk_fs));
    if (!s->disk_fds || !s->disk_base || !s->disk_fs)
        return err_nomem(err, "supervise");
    for (size_t i = 0; i < p->n_ops; i++)
        if (watch_is_disk(p, &p->ops[i], started) && watch_add_disk(s, &p->ops[i], err) < 0)
            return -1;
    watch_drop_inner(s);
    return 0;
}

int supervise_watch_prepare(struct supervised *s, struct cordon_err *err)
{
    return watch_disks(s, false, err);
}

/* CPU time can grow as fast as there are cores: how long until the rest could be used up. */
static uint64_t watch_cpu_rest(const struct supervised *s)
{
    static long cores;
    if (!s->plan->limits.cpu_ns)
        return UINT64_MAX;
    if (cores < 1)
        cores = MAX(sysconf(_SC_NPROCESSORS_ONLN), 1);
    return (s->plan->limits.cpu_ns - s->look_cpu_ns) / (uint64_t)cores;
}

int supervise_watch_start(struct supervised *s, struct cordon_err *err)
{
    if (watch_disks(s, true, err) < 0)
        return -1;
    s->next_look_ns = s->begin_ns;
    /* what groups hold and count needs no look before the CPU time could be used up */
    if (!watch_needs_tree(s->plan) && !s->plan->cores)
        s->next_look_ns += MIN(watch_cpu_rest(s), WATCH_SLOW_NS);
    return 0;
}

/* Of a guest with a kernel of its own pid 1 holds the limit, and we that kernel. */
static uint64_t watch_memory_limit(const struct plan *p)
{
    uint64_t limit = p->by_group.memory ? 0 : p->limits.memory_bytes;
    return limit && p->own_kernel ? limit + PLAN_KERNEL_BYTES : limit;
}

static void watch_memory(struct supervised *s, const struct sample *now, uint64_t now_ns)
{
    uint64_t limit = watch_memory_limit(s->plan);
    uint64_t growth = 0;
    if (s->last_memory_ns && now_ns > s->last_memory_ns && now->memory_bytes > s->last_memory)
        growth = (now->memory_bytes - s->last_memory) * 1000000000u / (now_ns - s->last_memory_ns);
    s->last_memory = now->memory_bytes;
    s->last_memory_ns = now_ns;
    if (limit && now->memory_bytes > limit)
        supervise_end(s, CAUSE_MEMORY);
    /* Shared memory that grows is looked at as if all of it were the guest's: an object has to be
     * seen before most of it is cut off. */
    uint64_t near = MAX(now->memory_bytes, now->growing_bytes);
    s->next_look_ns = now_ns + (limit ? sample_interval_ns(near, limit, growth,
                                                           SAMPLE_MEMORY_FASTEST, now->cost_ns)
                                      : WATCH_SLOW_NS);
}

/* By standing still when ahead of it. */
static void watch_duty(struct supervised *s, uint64_t now_ns)
{
    unsigned percent = s->plan->limits.cpu_percent;
    bool stop, was = s->duty.stopped;
    if (!watch_holds_share(s->plan))
        return;
    if (s->duty.percent == 0)
        sample_duty_start(&s->duty, percent, now_ns);
    uint64_t at = sample_duty_step(&s->duty, now_ns, s->look_cpu_ns, &stop);
    if ((stop != was || (stop && s->duty.runs_on)) &&
        s->guest.backend->pause(&s->guest, stop) < 0 && s->sampler)
        sample_stop(s->sampler, stop);
    if (s->duty.stolen_ns > SAMPLE_DUTY_STOLEN_NS)
        supervise_end(s, CAUSE_CPU_SHARE);
    s->next_look_ns = MIN(s->next_look_ns, at);
}

/* Of a guest with a kernel of its own: what that kernel used before is not the guest's, its tasks
 * and its memory are not either, and pid 1 tells those. */
static void watch_without_kernel(struct supervised *s, struct sample *now)
{
    if (!s->kernel_cpu.cpu_user_ns && !s->kernel_cpu.cpu_sys_ns)
        s->kernel_cpu = *now;
    now->cpu_user_ns -= MIN(now->cpu_user_ns, s->kernel_cpu.cpu_user_ns);
    now->cpu_sys_ns -= MIN(now->cpu_sys_ns, s->kernel_cpu.cpu_sys_ns);
    now->memory_bytes = 0;
    now->tasks = 0;
}

static void watch_tree(struct supervised *s, uint64_t now_ns)
{
    struct sample now;
    bool holds = !s->plan->by_group.memory;
    struct sample_options options = {.memory_limit = watch_memory_limit(s->plan),
                                     .own_sockets =
                                         s->plan->net ? plan_net_inner(s->plan->net) : 0};
    s->next_look_ns = now_ns + WATCH_FAST_NS;
    if (!s->sampler && sample_open(s->guest.pid, s->guest.beside, &s->sampler, NULL) < 0)
        return;
    if (sample_tree(s->sampler, &options, &now) < 0)
        return;
    s->next_look_ns = now_ns + WATCH_SLOW_NS;
    if (holds)
        watch_memory(s, &now, now_ns);
    if (s->plan->own_kernel)
        watch_without_kernel(s, &now);
    s->look_cpu_ns = MAX(s->look_cpu_ns, now.cpu_user_ns + now.cpu_sys_ns);
    sample_merge(&s->peak, &now);
}

/* What the groups measure; costs a few reads, and says nothing where there is none. */
static void watch_groups(struct supervised *s, uint64_t now_ns)
{
    struct backend_usage u;
    s->next_look_ns = now_ns + WATCH_SLOW_NS;
    if (s->guest.backend->measure(&s->guest, &u) < 0)
        return;
    s->look_cpu_ns = MAX(s->look_cpu_ns, u.cpu_user_ns + u.cpu_sys_ns);
    s->processes_peak = MAX(s->processes_peak, u.processes_peak);
}

/* The kernel forgets what the processes of a killed pid namespace used: looked at just before. */
void supervise_watch_last(struct supervised *s)
{
    struct sample now;
    struct sample_options options = {0};
    if (!watch_needs_tree(s->plan) || s->plan->own_kernel || !s->sampler ||
        sample_tree(s->sampler, &options, &now) < 0)
        return;
    now.memory_bytes = 0; /* an upper bound only, without the detail */
    sample_merge(&s->peak, &now);
}

static void watch_cpu_time(struct supervised *s, uint64_t now_ns)
{
    uint64_t limit = s->plan->limits.cpu_ns;
    if (!limit)
        return;
    if (s->look_cpu_ns >= limit) {
        supervise_end(s, CAUSE_CPU_TIME);
        return;
    }
    s->next_look_ns = MIN(s->next_look_ns, now_ns + MAX(watch_cpu_rest(s), WATCH_FAST_NS));
}

/* By how much the file systems of all writable folders have become fuller, each once. */
static struct sample_disk watch_growth(const struct supervised *s)
{
    struct sample_disk sum = {0};
    for (size_t i = 0; i < s->n_disks; i++) {
        struct stat st, other;
        bool is_first = fstat(s->disk_fds[i], &st) == 0;
        for (size_t k = 0; k < i && is_first; k++)
            is_first = fstat(s->disk_fds[k], &other) < 0 || other.st_dev != st.st_dev;
        struct sample_disk now = watch_fs(s->disk_fds[i]);
        const struct sample_disk *base = &s->disk_fs[i];
        if (is_first && now.bytes > base->bytes)
            sum.bytes += now.bytes - base->bytes;
        if (is_first && now.files > base->files)
            sum.files += now.files - base->files;
    }
    return sum;
}

/* Files without a name are in no folder. They are looked for only when the file systems have become
 * fuller by more than the limit: others write there, too. */
static void watch_nameless(struct supervised *s, uint64_t *bytes, uint64_t *files, uint64_t *cost)
{
    const struct plan_limits *l = &s->plan->limits;
    struct sample_disk more = watch_growth(s), open = {0};
    bool hides = (l->disk_bytes && *bytes <= l->disk_bytes && more.bytes > l->disk_bytes) ||
                 (l->max_files && *files <= l->max_files && more.files > l->max_files);
    if (!hides || sample_unlinked(s->guest.pid, s->disk_fds, s->n_disks, &open) < 0)
        return;
    *cost += open.cost_ns;
    *bytes = open.truncated ? MAX(*bytes, more.bytes) : *bytes + open.bytes;
    *files = open.truncated ? MAX(*files, more.files) : *files + open.files;
}

static void watch_disk_use(struct supervised *s, uint64_t now_ns)
{
    uint64_t bytes = 0, files = 0, cost = 0;
    for (size_t i = 0; i < s->n_disks; i++) {
        struct sample_disk now = {0};
        struct sample_disk_options options = {.budget_ns = WATCH_DISK_BUDGET_NS};
        if (sample_disk(s->disk_fds[i], &options, &now) < 0)
            now.truncated = true;
        const struct sample_disk *base = &s->disk_base[i];
        cost += now.cost_ns;
        /* What the guest put out of our sight (too deep, closed to us, too many entries for one
         * look) cannot be counted: what the whole file system gained counts in its place. */
        if (now.truncated && !base->truncated) {
            now = watch_fs(s->disk_fds[i]);
            base = &s->disk_fs[i];
        }
        bytes += now.bytes > base->bytes ? now.bytes - base->bytes : 0;
        files += now.files > base->files ? now.files - base->files : 0;
    }
    watch_nameless(s, &bytes, &files, &cost);
    s->disk_used = MAX(s->disk_used, bytes);
    s->files_made = MAX(s->files_made, files);
    if (s->plan->limits.disk_bytes && bytes > s->plan->limits.disk_bytes)
        supervise_end(s, CAUSE_DISK);
    if (s->plan->limits.max_files && files > s->plan->limits.max_files)
        supervise_end(s, CAUSE_FILES);
    s->next_disk_ns =
        now_ns + sample_interval_ns(bytes, s->plan->limits.disk_bytes, 0, WATCH_DISK_FASTEST, cost);
}

uint64_t supervise_watch_tick(struct supervised *s, uint64_t now)
{
    uint64_t started = s->guest.backend->started(&s->guest);
    if (s->cause != CAUSE_NONE || s->finished)
        return UINT64_MAX;
    if (!started) {
        if (now >= s->begin_ns + (s->plan->setup_ns ? s->plan->setup_ns : WATCH_SETUP_NS)) {
            supervise_end(s, CAUSE_STUCK);
            return UINT64_MAX;
        }
        /* another kernel takes its time, and needs the cores for it */
        return now + (s->plan->own_kernel ? 10 : 3) * WATCH_FAST_NS;
    }
    uint64_t deadline = s->plan->limits.wall_ns ? started + s->plan->limits.wall_ns : UINT64_MAX;
    if (now >= deadline) {
        supervise_end(s, CAUSE_TIME);
        return UINT64_MAX;
    }
    if (now >= s->next_look_ns) {
        watch_groups(s, now);
        if (watch_needs_tree(s->plan))
            watch_tree(s, now);
        watch_duty(s, now);
        watch_cpu_time(s, now);
    }
    if (s->n_disks > 0 && now >= s->next_disk_ns)
        watch_disk_use(s, now);
    uint64_t next = MIN(deadline, s->next_look_ns);
    return s->n_disks > 0 ? MIN(next, s->next_disk_ns) : next;
}

uint64_t supervise_watch_begun(struct supervised *s, uint64_t now)
{
    if (s->next_look_ns <= s->begin_ns) /* nobody looked yet */
        s->next_look_ns = now + 2 * WATCH_FAST_NS;
    return supervise_watch_tick(s, now);
}

void supervise_watch_stop(struct supervised *s)
{
    /* the last state counts too: a fast guest is not missed */
    if (s->n_disks > 0 && s->cause == CAUSE_NONE && s->has_guest)
        watch_disk_use(s, clock_ns());
    sample_close(s->sampler);
    s->sampler = NULL;
    for (size_t i = 0; i < s->n_disks; i++)
        util_close(&s->disk_fds[i]);
    s->n_disks = 0;
    free(s->disk_fds);
    free(s->disk_base);
    free(s->disk_fs);
    s->disk_fds = NULL;
    s->disk_base = NULL;
    s->disk_fs = NULL;
}
