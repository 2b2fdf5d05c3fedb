/* Reads the supervisor's request. Runs in `cordon-docker`. */
#include "backend/docker/request.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "backend/docker/engine.h"
#include "base/err.h"
#include "base/jsonw.h"
#include "base/util.h"

#define REQUEST_MAX ((size_t)64 << 20)

static int request_text(int fd, struct buf *text, struct cordon_err *err)
{
    char chunk[65536];
    ssize_t n;
    while ((n = read(fd, chunk, sizeof(chunk))) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set(err, CORDON_ERR_INTERNAL, "docker", errno, "request");
        if (buf_add(text, chunk, (size_t)n) < 0)
            return err_nomem(err, "docker");
    }
    return 0;
}

/* The profile goes to the engine as text inside text: written again from the tree. */
static void request_copy(struct jsonw *j, const struct jsonr_node *node)
{
    int64_t number;
    switch ((enum jsonr_type)node->type) {
    case JSONR_OBJECT:
    case JSONR_ARRAY: {
        bool object = node->type == JSONR_OBJECT;
        jsonw_open(j, node->key, object ? '{' : '[');
        for (const struct jsonr_node *n = jsonr_first(node); n; n = n->next)
            request_copy(j, n);
        jsonw_close(j, object ? '}' : ']');
        break;
    }
    case JSONR_STRING: jsonw_str(j, node->key, jsonr_cstr(node)); break;
    case JSONR_INTEGER:
        if (jsonr_int64(node, &number))
            jsonw_int(j, node->key, number);
        break;
    case JSONR_BOOL: jsonw_bool(j, node->key, node->u.boolean); break;
    case JSONR_NULL:
    case JSONR_REAL: jsonw_null(j, node->key); break;
    }
}

static bool request_bool(const struct jsonr_node *object, const char *key)
{
    const struct jsonr_node *n = jsonr_get(object, key);
    return n && n->type == JSONR_BOOL && n->u.boolean;
}

static int request_lists(struct request *r)
{
    const struct jsonr_node *binds = jsonr_get(r->root, "binds"),
                            *masks = jsonr_get(r->root, "masks");
    r->binds = arena_alloc(&r->arena, (jsonr_count(binds) + 1) * sizeof(*r->binds));
    r->masks = arena_alloc(&r->arena, (jsonr_count(masks) + 1) * sizeof(*r->masks));
    if (!r->binds || !r->masks)
        return -1;
    for (const struct jsonr_node *n = jsonr_first(binds); n; n = n->next) {
        struct request_bind b = {jsonr_cstr(jsonr_get(n, "src")), jsonr_cstr(jsonr_get(n, "dst")),
                                 request_bool(n, "write")};
        if (!b.src || !b.dst)
            return -1;
        r->binds[r->n_binds++] = b;
    }
    for (const struct jsonr_node *n = jsonr_first(masks); n; n = n->next)
        if (!(r->masks[r->n_masks++] = jsonr_cstr(jsonr_get(n, "dst"))))
            return -1;
    return 0;
}

static int request_fill(struct request *r, struct cordon_err *err)
{
    const struct jsonr_node *limits = jsonr_get(r->root, "limits");
    r->name = jsonr_cstr(jsonr_get(r->root, "name"));
    r->inside = jsonr_cstr(jsonr_get(r->root, "inside"));
    r->image = jsonr_cstr(jsonr_get(r->root, "image"));
    r->runtime = jsonr_cstr(jsonr_get(r->root, "runtime"));
    r->network = jsonr_cstr(jsonr_get(r->root, "network"));
    r->dns = jsonr_cstr(jsonr_get(r->root, "dns"));
    r->http_proxy = jsonr_cstr(jsonr_get(r->root, "http_proxy"));
    r->apparmor = jsonr_cstr(jsonr_get(r->root, "apparmor"));
    r->reuse = request_bool(r->root, "reuse");
    r->block_internal = request_bool(r->root, "block_internal");
    r->sends_files = request_bool(r->root, "sends_files");
    r->gvisor = r->runtime && str_eq(r->runtime, "runsc");
    const struct jsonr_node *seccomp = jsonr_get(r->root, "seccomp");
    bool ok = r->name && r->network && seccomp &&
              jsonr_uint64(jsonr_get(limits, "memory_bytes"), &r->memory_bytes) &&
              jsonr_uint64(jsonr_get(limits, "cpu_percent"), &r->cpu_percent) &&
              jsonr_uint64(jsonr_get(limits, "processes"), &r->processes) &&
              jsonr_uint64(jsonr_get(limits, "scratch_bytes"), &r->scratch_bytes) &&
              jsonr_uint64(jsonr_get(limits, "scratch_inodes"), &r->scratch_inodes) &&
              jsonr_uint64(jsonr_get(limits, "max_files"), &r->max_files) && request_lists(r) == 0;
    if (!ok)
        return err_set(err, CORDON_ERR_INTERNAL, "docker", 0, "request: something is missing");
    if (!r->image)
        r->image = ENGINE_IMAGE;
    struct jsonw j = {.out = &r->seccomp};
    jsonw_open(&j, NULL, '{');
    for (const struct jsonr_node *n = jsonr_first(seccomp); n; n = n->next)
        request_copy(&j, n);
    jsonw_close(&j, '}');
    return r->seccomp.failed ? err_nomem(err, "docker") : 0;
}

int request_read(int fd, struct request *ret_request, struct cordon_err *err)
{
    _cleanup_buf_ struct buf text = BUF_INIT(REQUEST_MAX);
    struct request r = {.seccomp = BUF_INIT(1 << 20)};
    if (request_text(fd, &text, err) < 0)
        return -1;
    struct jsonr_source source = {.name = "request",
                                  .text = text.data ? text.data : "",
                                  .len = text.len,
                                  .max_bytes = REQUEST_MAX,
                                  .code = CORDON_ERR_INTERNAL,
                                  .stage = "docker"};
    if (jsonr_parse(&source, &r.arena, &r.root, err) < 0 || request_fill(&r, err) < 0) {
        request_done(&r);
        return -1;
    }
    *ret_request = r;
    return 0;
}

void request_done(struct request *request)
{
    buf_done(&request->seccomp);
    arena_done(&request->arena);
}
