/* Requests: an encoder. Nothing is judged here but what could not be sent. Runs in the calling
 * program. */
#include "lib/lib.h"

#include <errno.h>
#include <fcntl.h>

#include "base/err.h"
#include "base/util.h"
#include "lib/wire.h"

static const char zeros[8];

static int request_write(struct cordon_request *r, uint64_t at, const void *data, size_t len)
{
    const char *p = data;
    while (len > 0) {
        ssize_t n = pwrite(r->body_fd, p, len, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        p += n;
        at += (uint64_t)n;
        len -= (size_t)n;
    }
    return 0;
}

/* What does not fit into a message moves to a memfd, once. */
static int request_move(struct cordon_request *r)
{
    _cleanup_close_ int fd = wire_memfd("cordon-request");
    if (fd < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0 ||
        wire_write_all(fd, r->body.data, r->body.len) < 0)
        return -1;
    r->body_fd = TAKE_FD(fd);
    buf_done(&r->body);
    return 0;
}

/* Appends all parts or nothing that counts: the length grows last. */
static int request_append(struct cordon_request *r, const struct iovec *parts, size_t n,
                          struct cordon_err *err)
{
    size_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += parts[i].iov_len;
    if (r->body_fd < 0 && total <= WIRE_INLINE_MAX - r->body_len) {
        if (buf_reserve(&r->body, total) < 0)
            return err_nomem(err, "request");
        for (size_t i = 0; i < n; i++)
            buf_add(&r->body, parts[i].iov_base, parts[i].iov_len);
        r->body_len += total;
        return 0;
    }
    if (r->body_fd < 0 && request_move(r) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "request", errno, "memory for the request");
    uint64_t at = r->body_len;
    for (size_t i = 0; i < n; i++) {
        if (request_write(r, at, parts[i].iov_base, parts[i].iov_len) < 0)
            return err_set(err, CORDON_ERR_INTERNAL, "request", errno, "memory for the request");
        at += parts[i].iov_len;
    }
    r->body_len = at;
    return 0;
}

static int request_record(struct cordon_request *r, enum wire_tag tag, const struct iovec *parts,
                          size_t n, struct cordon_err *err)
{
    struct wire_record head = {.tag = (uint32_t)tag};
    struct iovec all[5] = {{&head, sizeof(head)}};
    for (size_t i = 0; i < n; i++) {
        all[i + 1] = parts[i];
        head.len += parts[i].iov_len;
    }
    all[n + 1] = (struct iovec){(void *)zeros, -head.len & 7};
    return request_append(r, all, n + 2, err);
}

static struct iovec part_string(const char *s)
{
    return (struct iovec){(void *)s, strlen(s) + 1};
}

static int request_string(struct cordon_request *r, enum wire_tag tag, const char *s,
                          struct cordon_err *err)
{
    if (!s)
        return err_set(err, CORDON_ERR_USAGE, "request", 0, "a text is missing");
    struct iovec part = part_string(s);
    return request_record(r, tag, &part, 1, err);
}

/* A row of strings in one append: an argument list may have a hundred thousand. */
static int request_strings(struct cordon_request *r, enum wire_tag first, enum wire_tag rest,
                           char *const *list, struct cordon_err *err)
{
    _cleanup_buf_ struct buf all = BUF_INIT(SIZE_MAX / 4);
    for (size_t i = 0; list && list[i]; i++) {
        size_t len = strlen(list[i]) + 1;
        struct wire_record head = {.tag = (uint32_t)(i == 0 ? first : rest), .len = len};
        buf_add(&all, &head, sizeof(head));
        buf_add(&all, list[i], len);
        buf_add(&all, zeros, -len & 7);
    }
    if (all.failed)
        return err_nomem(err, "request");
    struct iovec part = {all.data, all.len};
    return request_append(r, &part, 1, err);
}

struct cordon_request *cordon_request_new(void)
{
    struct cordon_request *r = calloc(1, sizeof(*r));
    if (!r)
        return NULL;
    r->body = BUF_INIT(WIRE_INLINE_MAX);
    r->body_fd = r->stdin_fd = -1;
    _cleanup_free_ char *cwd = getcwd(NULL, 0);
    if (cordon_request_set_cwd(r, cwd && cwd[0] == '/' ? cwd : UTIL_CWD_GONE, NULL) < 0) {
        cordon_request_free(r);
        return NULL;
    }
    return r;
}

void cordon_request_free(struct cordon_request *r)
{
    if (!r)
        return;
    buf_done(&r->body);
    util_close(&r->body_fd);
    util_close(&r->stdin_fd);
    free(r);
}

int cordon_request_set(struct cordon_request *r, const char *name, const char *value,
                       struct cordon_err *err)
{
    if (!name)
        return err_set(err, CORDON_ERR_USAGE, "request", 0, "a setting without a name");
    if (!value)
        return request_string(r, WIRE_TAG_FLAG, name, err);
    /* The supervisor does not know our environment: a bare name gets its value here. */
    _cleanup_free_ char *pair = NULL;
    const char *taken = str_eq(name, "env") && !strchr(value, '=') ? getenv(value) : NULL;
    if (taken && asprintf(&pair, "%s=%s", value, taken) < 0) {
        pair = NULL;
        return err_nomem(err, "request");
    }
    struct iovec parts[2] = {part_string(name), part_string(pair ? pair : value)};
    return request_record(r, WIRE_TAG_SETTING, parts, 2, err);
}

int cordon_request_set_profile(struct cordon_request *r, const char *name, struct cordon_err *err)
{
    return request_string(r, WIRE_TAG_PROFILE, name, err);
}

int cordon_request_set_config(struct cordon_request *r, const char *path, struct cordon_err *err)
{
    return request_string(r, WIRE_TAG_CONFIG, path, err);
}

int cordon_request_set_cwd(struct cordon_request *r, const char *path, struct cordon_err *err)
{
    if (!path || path[0] != '/')
        return err_set(err, CORDON_ERR_USAGE, "request", 0,
                       "working directory: not an absolute path");
    return request_string(r, WIRE_TAG_CWD, path, err);
}

int cordon_request_set_flags(struct cordon_request *r, unsigned flags, struct cordon_err *err)
{
    extern char **environ;
    if (flags &
        ~(unsigned)(CORDON_REQUEST_DISCOVER | CORDON_REQUEST_STREAM | CORDON_REQUEST_BRIEF_JSON))
        return err_set(err, CORDON_ERR_USAGE, "request", 0, "unknown flag in 0x%x", flags);
    if ((flags & CORDON_REQUEST_DISCOVER) && !(r->flags & CORDON_REQUEST_DISCOVER) &&
        request_strings(r, WIRE_TAG_ENVIRON, WIRE_TAG_ENVIRON, environ, err) < 0)
        return -1;
    r->flags = flags;
    return 0;
}

/* Where tools and engines are to be looked for is the caller's to say. */
static int request_places(struct cordon_request *r, struct cordon_err *err)
{
    static const char *const places[] = {"PATH",
                                         "HOME",
                                         "XDG_CACHE_HOME",
                                         "DOCKER_HOST",
                                         "DOCKER_TLS",
                                         "DOCKER_TLS_VERIFY",
                                         "DOCKER_CERT_PATH"};
    for (size_t i = 0; !r->has_places && i < ARRAY_SIZE(places); i++) {
        const char *value = secure_getenv(places[i]);
        struct iovec parts[3] = {{(void *)places[i], strlen(places[i])}, {(void *)"=", 1}};
        if (!value)
            continue;
        parts[2] = part_string(value);
        if (request_record(r, WIRE_TAG_PLACE, parts, 3, err) < 0)
            return -1;
    }
    r->has_places = true;
    return 0;
}

int cordon_request_set_argv(struct cordon_request *r, char *const argv[], struct cordon_err *err)
{
    if (!argv || !argv[0])
        return err_set(err, CORDON_ERR_USAGE, "request", 0, "nothing to run");
    if (request_places(r, err) < 0 ||
        request_strings(r, WIRE_TAG_COMMAND, WIRE_TAG_ARG, argv, err) < 0)
        return -1;
    r->has_command = true;
    return 0;
}

int cordon_request_set_source(struct cordon_request *r, const char *language, const char *name,
                              const void *data, size_t len, char *const args[],
                              struct cordon_err *err)
{
    if (!data && len > 0)
        return err_set(err, CORDON_ERR_USAGE, "request", 0, "source without its text");
    if (!language && !name)
        return err_set(err, CORDON_ERR_USAGE, "request", 0,
                       "source text needs a language, or a name that says it");
    if (request_places(r, err) < 0)
        return -1;
    struct iovec parts[3] = {part_string(language ? language : ""),
                             part_string(name ? name : ""),
                             {(void *)(data ? data : zeros), len}};
    if (request_record(r, WIRE_TAG_SOURCE, parts, 3, err) < 0 ||
        request_strings(r, WIRE_TAG_ARG, WIRE_TAG_ARG, args, err) < 0)
        return -1;
    r->has_command = true;
    return 0;
}

int cordon_request_set_stdin(struct cordon_request *r, const void *data, size_t len,
                             struct cordon_err *err)
{
    struct iovec part = {(void *)(data ? data : zeros), data ? len : 0};
    if (request_record(r, WIRE_TAG_STDIN, &part, 1, err) < 0)
        return -1;
    util_close(&r->stdin_fd);
    return 0;
}

int cordon_request_set_stdin_fd(struct cordon_request *r, int fd, struct cordon_err *err)
{
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (own < 0)
        return err_set(err, CORDON_ERR_USAGE, "request", errno, "standard input: descriptor %d",
                       fd);
    util_close(&r->stdin_fd);
    r->stdin_fd = own;
    return 0;
}

int cordon_request_add_file(struct cordon_request *r, const char *name, const void *data,
                            size_t len, struct cordon_err *err)
{
    if (!name || (!data && len > 0))
        return err_set(err, CORDON_ERR_USAGE, "request", 0, "a file without %s",
                       name ? "contents" : "a name");
    struct iovec parts[2] = {part_string(name), {(void *)(data ? data : zeros), len}};
    return request_record(r, WIRE_TAG_FILE, parts, 2, err);
}
