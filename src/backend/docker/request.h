/* What the supervisor asked for, read back from its JSON. Used by `cordon-docker`. */
#ifndef BACKEND_DOCKER_REQUEST_H
#define BACKEND_DOCKER_REQUEST_H

#include <stdint.h>

#include <cordon.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/jsonr.h"

struct request_bind {
    const char *src, *dst; /* dst without its leading slash */
    bool write;
};

struct request {
    struct arena arena;
    const struct jsonr_node *root;
    const char *inside; /* name of the container to run in, NULL: one of its own */
    const char *name, *image, *runtime, *network, *dns, *http_proxy, *apparmor;
    bool reuse, block_internal, sends_files;
    bool gvisor; /* the runtime is runsc */
    struct request_bind *binds;
    size_t n_binds;
    const char **masks; /* without leading slashes */
    size_t n_masks;
    uint64_t memory_bytes, cpu_percent, processes, scratch_bytes, scratch_inodes, max_files;
    struct buf seccomp; /* the profile as text */
};

int request_read(int fd, struct request *ret_request, struct cordon_err *err);
void request_done(struct request *request);

/* create.c: the body of POST /containers/create. init_path: our pid 1 on the engine's host. */
struct binds;
int create_body(const struct request *request, const char *init_path, const struct binds *binds,
                struct buf *out, struct cordon_err *err);

#endif
