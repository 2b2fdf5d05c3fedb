/* Results: received whole, read by accessors. Runs in the calling program. */
#include "lib/lib.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/util.h"
#include "lib/wire.h"

struct cordon_result {
    void *map; /* of a large payload, else NULL */
    size_t map_len;
    const char *out[2];
    const char *json;
    struct wire_result w;
    char payload[]; /* a small one arrives behind the message */
};

_Static_assert(offsetof(struct cordon_result, payload) ==
                   offsetof(struct cordon_result, w) + sizeof(struct wire_result),
               "a message is received into w and payload at once");

static const char *const verdict_names[] = {
    [CORDON_VERDICT_OK] = "ok",
    [CORDON_VERDICT_NONZERO_EXIT] = "nonzero_exit",
    [CORDON_VERDICT_SIGNALED] = "signaled",
    [CORDON_VERDICT_TIME_LIMIT] = "time_limit",
    [CORDON_VERDICT_CPU_TIME_LIMIT] = "cpu_time_limit",
    [CORDON_VERDICT_MEMORY_LIMIT] = "memory_limit",
    [CORDON_VERDICT_OUTPUT_LIMIT] = "output_limit",
    [CORDON_VERDICT_PROCESS_LIMIT] = "process_limit",
    [CORDON_VERDICT_DISK_LIMIT] = "disk_limit",
    [CORDON_VERDICT_REJECTED] = "rejected",
    [CORDON_VERDICT_CANCELLED] = "cancelled",
};

const char *cordon_verdict_name(enum cordon_verdict verdict)
{
    return (size_t)verdict < ARRAY_SIZE(verdict_names) ? verdict_names[verdict] : "unknown";
}

static int result_broken(struct cordon_err *err)
{
    return err_set(err, CORDON_ERR_INTERNAL, "result", EPROTO, "the supervisor's reply");
}

/* Finds the three parts in the payload. len is what really came. */
static bool result_lay_out(struct cordon_result *r, const char *payload, size_t len)
{
    const uint64_t lens[3] = {r->w.out_len[0], r->w.out_len[1], r->w.json_len};
    const char *parts[3];
    size_t at = 0;
    for (int i = 0; i < 3; i++) {
        if (lens[i] >= len - at || payload[at + lens[i]] != '\0')
            return false;
        parts[i] = payload + at;
        at += (size_t)lens[i] + 1;
        if (i < 2 && at >= len)
            return false;
    }
    r->out[0] = parts[0];
    r->out[1] = parts[1];
    r->json = parts[2];
    r->w.stage[sizeof(r->w.stage) - 1] = '\0';
    r->w.limit_name[sizeof(r->w.limit_name) - 1] = '\0';
    r->w.limit_value[sizeof(r->w.limit_value) - 1] = '\0';
    r->w.error[sizeof(r->w.error) - 1] = '\0';
    return true;
}

static int result_accept(struct cordon_result *r, size_t len, const int *fds, size_t n_fds,
                         struct cordon_err *err)
{
    bool ours = len >= sizeof(r->w.head) && r->w.head.magic == WIRE_MAGIC &&
                r->w.head.version == WIRE_VERSION;
    if (ours && r->w.head.type == WIRE_ERROR && len == sizeof(struct wire_error)) {
        if (err)
            memcpy(err, (const char *)&r->w + offsetof(struct wire_error, err), sizeof(*err));
        return -1;
    }
    if (!ours || r->w.head.type != WIRE_RESULT || len < sizeof(r->w))
        return result_broken(err);
    bool by_fd = r->w.flags & WIRE_RESULT_PAYLOAD_FD;
    if (n_fds != (by_fd ? 1 : 0))
        return result_broken(err);
    if (!by_fd)
        return result_lay_out(r, r->payload, len - sizeof(r->w)) ? 0 : result_broken(err);

    uint64_t total = 3;
    if (__builtin_add_overflow(total, r->w.out_len[0], &total) ||
        __builtin_add_overflow(total, r->w.out_len[1], &total) ||
        __builtin_add_overflow(total, r->w.json_len, &total))
        return result_broken(err);
    r->map = wire_map(fds[0], (size_t)total);
    if (!r->map)
        return err_set(err, CORDON_ERR_INTERNAL, "result", errno, "memory for the output");
    r->map_len = (size_t)total;
    return result_lay_out(r, r->map, r->map_len) ? 0 : result_broken(err);
}

static ssize_t result_peek(int sock)
{
    ssize_t n;
    do
        n = recv(sock, NULL, 0, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    return n;
}

/* Nothing came. The reset may have been set between the kernel's look for it and its look for the
 * end, so it is asked for once more. */
static int result_none(int sock, bool reset, struct cordon_err *err)
{
    int pending = 0;
    socklen_t len = sizeof(pending);
    if (!reset && getsockopt(sock, SOL_SOCKET, SO_ERROR, &pending, &len) == 0)
        reset = pending == ECONNRESET;
    err_set(err, CORDON_ERR_INTERNAL, RESULT_STAGE_NONE, 0,
            "the supervisor ended, or was out of descriptors, before the run was over");
    if (err && reset)
        err->sys_errno = ECONNRESET;
    return -1;
}

int result_receive(int sock, struct cordon_result **ret_result, struct cordon_err *err)
{
    ssize_t n = result_peek(sock);
    /* A reset is told before what still waits: a cancel that crossed the reply is one. */
    bool reset = n < 0 && errno == ECONNRESET;
    if (reset)
        n = result_peek(sock);
    if (n <= 0)
        return result_none(sock, reset, err);
    size_t room = MAX((size_t)n, sizeof(struct wire_result));
    struct cordon_result *r = calloc(1, offsetof(struct cordon_result, w) + room);
    if (!r)
        return err_nomem(err, "result");

    int fds[WIRE_FDS_MAX];
    size_t n_fds;
    n = wire_recv(sock, &r->w, room, fds, &n_fds, MSG_DONTWAIT);
    int result = n < 0 ? result_broken(err) : result_accept(r, (size_t)n, fds, n_fds, err);
    for (size_t i = 0; i < n_fds; i++)
        util_close(&fds[i]);
    if (result < 0) {
        cordon_result_free(r);
        return -1;
    }
    *ret_result = r;
    return 0;
}

void cordon_result_free(struct cordon_result *r)
{
    if (!r)
        return;
    if (r->map)
        munmap(r->map, r->map_len);
    free(r);
}

enum cordon_verdict cordon_result_verdict(const struct cordon_result *r)
{
    return (enum cordon_verdict)r->w.verdict;
}

int cordon_result_exit_code(const struct cordon_result *r)
{
    return r->w.exit_code;
}

int cordon_result_signal(const struct cordon_result *r)
{
    return r->w.signal;
}

int cordon_result_timed_out(const struct cordon_result *r)
{
    return (r->w.flags & WIRE_RESULT_TIMED_OUT) != 0;
}

const char *cordon_result_output(const struct cordon_result *r, enum cordon_stream stream,
                                 size_t *ret_len)
{
    int i = stream == CORDON_STDERR;
    if (ret_len)
        *ret_len = (size_t)r->w.out_len[i];
    return r->out[i];
}

int cordon_result_truncated(const struct cordon_result *r, enum cordon_stream stream)
{
    unsigned flag = stream == CORDON_STDERR ? WIRE_RESULT_TRUNCATED_ERR : WIRE_RESULT_TRUNCATED_OUT;
    return (r->w.flags & flag) != 0;
}

uint64_t cordon_result_bytes(const struct cordon_result *r, enum cordon_stream stream)
{
    return r->w.out_bytes[stream == CORDON_STDERR];
}

uint64_t cordon_result_wall_ns(const struct cordon_result *r)
{
    return r->w.wall_ns;
}

uint64_t cordon_result_cpu_user_ns(const struct cordon_result *r)
{
    return r->w.cpu_user_ns;
}

uint64_t cordon_result_cpu_sys_ns(const struct cordon_result *r)
{
    return r->w.cpu_sys_ns;
}

uint64_t cordon_result_throttled_ns(const struct cordon_result *r)
{
    return r->w.throttled_ns;
}

uint64_t cordon_result_peak_memory_bytes(const struct cordon_result *r)
{
    return r->w.peak_memory_bytes;
}

uint64_t cordon_result_processes_peak(const struct cordon_result *r)
{
    return r->w.processes_peak;
}

uint64_t cordon_result_oom_kills(const struct cordon_result *r)
{
    return r->w.oom_kills;
}

const char *cordon_result_error(const struct cordon_result *r)
{
    return r->w.error[0] ? r->w.error : NULL;
}

const char *cordon_result_stage(const struct cordon_result *r)
{
    return r->w.stage[0] ? r->w.stage : NULL;
}

const char *cordon_result_limit_name(const struct cordon_result *r)
{
    return r->w.limit_name[0] ? r->w.limit_name : NULL;
}

const char *cordon_result_limit_value(const struct cordon_result *r)
{
    return r->w.limit_name[0] ? r->w.limit_value : NULL;
}

const char *cordon_result_json(const struct cordon_result *r, size_t *ret_len)
{
    if (ret_len)
        *ret_len = (size_t)r->w.json_len;
    return r->json;
}
