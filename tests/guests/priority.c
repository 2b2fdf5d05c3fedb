/* D17: tries to get more of the processor than its share. */
#include "guest.h"

#include <sched.h>
#include <sys/resource.h>

int main(void)
{
    guest_deadline(10);
    struct sched_param high = {.sched_priority = 50};
    TRY("fifo", sched_setscheduler(0, SCHED_FIFO, &high));
    TRY("rr", sched_setscheduler(0, SCHED_RR, &high));
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t prio;
        uint64_t run, dl, period;
    } dl = {sizeof(dl), 6, 0, 0, 0, 10000000, 20000000, 20000000};
    TRY("deadline", syscall(SYS_sched_setattr, 0, &dl, 0));
    TRY("nice_up", setpriority(PRIO_PROCESS, 0, -20));
    TRY("nice_down", setpriority(PRIO_PROCESS, 0, 5));
    TRY("nice_back", setpriority(PRIO_PROCESS, 0, 0));
    TRY("ionice_rt", syscall(SYS_ioprio_set, 1, 0, (1 << 13) | 0));
    struct rlimit r = {RLIM_INFINITY, RLIM_INFINITY};
    TRY("rlimit_rtprio", setrlimit(RLIMIT_RTPRIO, &r));
    TRY("rlimit_nproc", setrlimit(RLIMIT_NPROC, &r));
    r.rlim_cur = r.rlim_max = 1 << 20;
    TRY("rlimit_nofile", setrlimit(RLIMIT_NOFILE, &r));
    return 0;
}
