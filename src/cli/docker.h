/* Verbs of the `cordon-docker` program. */
#ifndef CLI_DOCKER_H
#define CLI_DOCKER_H

#include "backend/docker/image.h"

struct docker_options {
    const char *name, *rootfs;
    bool force, from_host, all, json;
};

/* docker_build.c, docker_status.c: return the exit status. */
int docker_image_build(const struct docker_options *options);
int docker_image_status(const struct docker_options *options);
int docker_image_clean(const struct docker_options *options);

/* docker_build.c: where the image's archive is kept for backends without an engine. */
int docker_store(const char *name, char *ret, size_t size, struct cordon_err *err);

#endif
