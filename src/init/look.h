/* Limits by looking, where no control group of the container holds them: gVisor shows none inside,
 * and may run in none. Used by init.c only. */
#ifndef INIT_LOOK_H
#define INIT_LOOK_H

#include <stdbool.h>
#include <stdint.h>

struct look {
    uint64_t memory_bytes, cpu_ns;
    unsigned tasks; /* of the guest */
};

/* Sums over every process of the container but ourselves and pid 1, which may be another of ours.
 */
void look_tree(struct look *ret_look);

/* Memory and tasks as a kernel counts them that is wholly the container's own, in one call. */
bool look_kernel(struct look *ret_look);

/* CPU percent by standing still when ahead: arithmetic only. True: the guest must stand. */
struct look_duty {
    uint64_t began_ns, stopped_ns; /* stopped_ns: in all */
    uint64_t since_ns;             /* of the present stop, 0: it runs */
};
bool look_duty(struct look_duty *d, unsigned percent, uint64_t now_ns, uint64_t cpu_ns);

#endif
