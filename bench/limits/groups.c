/* Cost of a guest's control groups: made, filled, entered, read, removed, with every limit set.
 * Prints the nanoseconds of each round. Linked with the engine's own sources by bench/run.
 *
 * usage: groups [ROUNDS]     ROUNDS 0: only says by its status whether there are groups to use */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backend/native/cgroup.h"
#include "host/host.h"

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* The v1 groups are entered by the guest itself, timed there; the v2 group by the clone, which
 * costs nothing of its own. */
static void enter(const struct cgroup *cg, uint64_t *ret_ns)
{
    int fds[CGROUP_ENTRIES_MAX];
    size_t n = cgroup_entries(cg, fds);
    pid_t pid = fork();
    if (pid == 0) {
        uint64_t start = now_ns();
        int r = cgroup_enter(fds, n);
        *ret_ns = now_ns() - start;
        _exit(r < 0 ? 1 : 0);
    }
    int status = 1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
        fprintf(stderr, "groups: cannot enter\n");
        exit(1);
    }
}

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? strtol(argv[1], NULL, 10) : 40;
    struct host_cgroups where;
    host_cgroups_find(&where);
    if (where.kind == HOST_CGROUP_NONE) {
        fprintf(stderr, "groups: none that this user can use\n");
        return 3;
    }
    uint64_t *inside =
        mmap(NULL, sizeof(*inside), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (inside == MAP_FAILED)
        return 1;
    const struct plan_limits limits = {
        .memory_bytes = 64 << 20, .processes = 64, .cpu_percent = 50};
    for (long i = 0; i < rounds; i++) {
        struct cordon_err err = {0};
        struct cgroup *cg;
        struct cgroup_usage usage;
        uint64_t start = now_ns();
        if (cgroup_create(&where, &limits, CGROUP_OWN_TASKS, &cg, &err) < 0 ||
            (where.kind == HOST_CGROUP_V1 && cgroup_create_v1(cg, &where, &limits, &err) < 0)) {
            fprintf(stderr, "groups: %s\n", err.message);
            return 1;
        }
        uint64_t cost = now_ns() - start;
        enter(cg, inside);
        start = now_ns();
        cgroup_usage(cg, &usage);
        cgroup_remove_v1(cg);
        cgroup_destroy(cg);
        printf("%" PRIu64 "\n", cost + *inside + now_ns() - start);
    }
    return 0;
}
