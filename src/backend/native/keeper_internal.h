/* Shared by the keeper_*.c files only. */
#ifndef NATIVE_KEEPER_INTERNAL_H
#define NATIVE_KEEPER_INTERNAL_H

#include "backend/native/native_internal.h"

#define KEEPER_ROOTS_MAX 64

/* A folder the guest may write to. */
struct keeper_root {
    int fd;
    char path[512]; /* as the kernel names it */
};

struct keeper {
    struct native_child *c;
    pid_t main_pid;
    bool scoped; /* this process's signals reach the guest's processes only */
    struct keeper_root roots[KEEPER_ROOTS_MAX];
    size_t n_roots;
};

/* keeper_serve.c: answers one call that the filter handed over. -1: no call can be answered any
 * more. */
void keeper_serve_open_roots(struct keeper *k);
int keeper_serve(struct keeper *k, int listener);

#endif
