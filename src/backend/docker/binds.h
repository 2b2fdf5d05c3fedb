/* Granted host paths as the engine is given them. Used by session.c. */
#ifndef BACKEND_DOCKER_BINDS_H
#define BACKEND_DOCKER_BINDS_H

#include <sys/types.h>

#include "backend/docker/request.h"

struct binds {
    uid_t uid; /* who the guest is, so that the caller's files are its own */
    gid_t gid;
    const char *channel;  /* folder with the socket of a container that is kept, or NULL */
    const char *accounts; /* folder with passwd and group that name that uid, or NULL */
    char dir[96];         /* mapped mounts, until the container has them; empty: none */
    size_t n_mounted;
};

/* The caller's cache folder of ours, made where it is missing; -1: there is none. */
int binds_cache(char *ret, size_t size);
/* The ids alone. */
void binds_ids(struct binds *b, const struct request *request);
/* May replace sources in the request. */
int binds_prepare(struct binds *b, struct request *request, struct cordon_err *err);
/* The container has them, or never will. */
void binds_release(struct binds *b);
/* What killed helpers left. */
void binds_sweep(void);

#endif
