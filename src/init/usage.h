/* What the container's control groups say. Used by init.c only. */
#ifndef INIT_USAGE_H
#define INIT_USAGE_H

#include <stdbool.h>

#include "init/init.h"

/* Looks where the container's groups are; before the guest exists. */
void usage_open(void);
/* Which limits of the order the groups hold; enum init_held. */
uint32_t usage_held(const struct init_order *order);
/* Notes how many processes there are now. */
void usage_look(void);
/* CPU time of the whole container since usage_open(), 0 where nothing tells. */
uint64_t usage_cpu_ns(void);
bool usage_has_cpu(void);
/* Fills the numbers that only groups know. */
void usage_fill(struct init_report *report);

#endif
