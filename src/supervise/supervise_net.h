/* Used by supervise.c only. */
#ifndef SUPERVISE_NET_H
#define SUPERVISE_NET_H

#include "supervise/supervise.h"

int supervise_net_start(struct supervised *s);
/* The guest is gone. True: its broker has last words, supervise_last() follows. */
bool supervise_net_end(struct supervised *s);
/* When to be called again, UINT64_MAX: no need. */
uint64_t supervise_net_tick(struct supervised *s, uint64_t now);
void supervise_net_done(struct supervised *s);

/* supervise.c */
void supervise_arm(struct supervised *s, uint64_t at);
void supervise_last(struct supervised *s);

#endif
