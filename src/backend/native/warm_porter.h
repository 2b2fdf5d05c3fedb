/* Shared by warm_porter.c and warm_porter_way.c only. */
#ifndef NATIVE_WARM_PORTER_H
#define NATIVE_WARM_PORTER_H

#include "backend/native/warm_internal.h"

struct porter {
    struct native_child *c;
    const struct plan *plan; /* without an order */
    struct warm_porter at;
    int user_fd;     /* the user namespace of the guests */
    int clocks_fd;   /* where offsets of their clocks go, -1: nowhere */
    int last_fd;     /* where the last number of a process is set, -1: one guest only */
    int listener_fd; /* -1: nobody is told of refusals */
    bool serves_more;
    uint64_t key[2];
    struct native_guest guest;
    pid_t guest_pid; /* in our own namespace */
    int group_fd;    /* the v2 group that the guest is born in, -1: none */
    int sig_fd;      /* tells of whoever we have to wait for */
    bool had_others; /* somebody but the guest's first process was among them */
};

/* warm_porter_way.c: from the spawner's child to a process behind the guests' walls, in this order.
 * await: until the room's pid 1 is so far; without it there is nothing to wait for. */
void porter_keep_only_ours(struct porter *p);
void porter_become_user(struct porter *p);
void porter_await(struct porter *p, uint32_t stand);
void porter_enter(struct porter *p);
void porter_fence(struct porter *p);

#endif
