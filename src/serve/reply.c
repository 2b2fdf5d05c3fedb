/* What a run's caller is told. Runs in the supervisor. */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/util.h"
#include "serve/serve.h"

#define REPLY_USUAL 2000 /* bytes of a result without output, in one piece */

_Static_assert((int)VERDICT_OK == (int)CORDON_VERDICT_OK &&
                   (int)VERDICT_NONZERO_EXIT == (int)CORDON_VERDICT_NONZERO_EXIT &&
                   (int)VERDICT_SIGNALED == (int)CORDON_VERDICT_SIGNALED &&
                   (int)VERDICT_TIME_LIMIT == (int)CORDON_VERDICT_TIME_LIMIT &&
                   (int)VERDICT_CPU_TIME_LIMIT == (int)CORDON_VERDICT_CPU_TIME_LIMIT &&
                   (int)VERDICT_MEMORY_LIMIT == (int)CORDON_VERDICT_MEMORY_LIMIT &&
                   (int)VERDICT_OUTPUT_LIMIT == (int)CORDON_VERDICT_OUTPUT_LIMIT &&
                   (int)VERDICT_PROCESS_LIMIT == (int)CORDON_VERDICT_PROCESS_LIMIT &&
                   (int)VERDICT_DISK_LIMIT == (int)CORDON_VERDICT_DISK_LIMIT &&
                   (int)VERDICT_REJECTED == (int)CORDON_VERDICT_REJECTED &&
                   (int)VERDICT_CANCELLED == (int)CORDON_VERDICT_CANCELLED,
               "verdicts travel as the numbers of the public header");

bool reply_error(int sock, const struct cordon_err *err)
{
    struct wire_error msg = {.head = wire_head(WIRE_ERROR), .err = *err};
    struct iovec part = {&msg, sizeof(msg)};
    return wire_send(sock, &part, 1, NULL, 0, MSG_DONTWAIT) == 0;
}

bool reply_stats(int sock, const struct serve *serve)
{
    struct pool_stats p;
    pool_stats(&serve->pool, &p);
    struct wire_stats msg = {.head = wire_head(WIRE_STATS),
                             .runs_now = serve->n_jobs,
                             .hits = p.hits,
                             .spawned = p.spawned,
                             .cold = p.cold,
                             .waiting = p.waiting,
                             .start_p50_ns = p.start_p50_ns,
                             .start_p99_ns = p.start_p99_ns};
    struct iovec part = {&msg, sizeof(msg)};
    return wire_send(sock, &part, 1, NULL, 0, MSG_DONTWAIT) == 0;
}

static void reply_fill(struct wire_result *w, const struct result *r)
{
    *w = (struct wire_result){
        .head = wire_head(WIRE_RESULT),
        .flags = (result_timed_out(r) ? WIRE_RESULT_TIMED_OUT : 0u) |
                 (r->out[0].truncated ? WIRE_RESULT_TRUNCATED_OUT : 0u) |
                 (r->out[1].truncated ? WIRE_RESULT_TRUNCATED_ERR : 0u),
        .verdict = (uint32_t)r->verdict,
        .exit_code = r->exit_code,
        .signal = r->signal,
        .wall_ns = r->wall_ns,
        .cpu_user_ns = r->usage.cpu_user_ns,
        .cpu_sys_ns = r->usage.cpu_sys_ns,
        .throttled_ns = r->usage.throttled_ns,
        .peak_memory_bytes = r->usage.peak_memory_bytes,
        .processes_peak = r->usage.processes_peak,
        .oom_kills = r->usage.oom_kills,
    };
    for (int i = 0; i < 2; i++) {
        w->out_len[i] = r->out[i].data ? r->out[i].len : 0;
        w->out_bytes[i] = r->out[i].bytes;
    }
    snprintf(w->stage, sizeof(w->stage), "%s", r->stage ? r->stage : "");
    snprintf(w->limit_name, sizeof(w->limit_name), "%s", r->limit_name ? r->limit_name : "");
    snprintf(w->limit_value, sizeof(w->limit_value), "%s", r->limit_value);
    snprintf(w->error, sizeof(w->error), "%s", r->error);
}

/* A payload that does not fit into a message, in memory that is the receiver's from then on. */
static int reply_memfd(const struct iovec *parts, size_t n)
{
    _cleanup_close_ int fd = wire_memfd("cordon-result");
    if (fd < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        if (wire_write_all(fd, parts[i].iov_base, parts[i].iov_len) < 0)
            return -1;
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0)
        return -1;
    return TAKE_FD(fd);
}

bool reply_result(int sock, const struct result *result, bool brief_json)
{
    static const char nul[1];
    struct result brief = *result;
    if (brief_json)
        brief.out[0].len = brief.out[1].len = 0;
    _cleanup_buf_ struct buf json = BUF_INIT(SIZE_MAX / 4);
    buf_reserve(&json, REPLY_USUAL);
    result_json(&brief, &json);
    if (json.failed) {
        struct cordon_err err;
        err_nomem(&err, "result");
        return reply_error(sock, &err);
    }

    struct wire_result w;
    reply_fill(&w, result);
    w.json_len = json.len;
    struct iovec parts[6] = {
        {&w, sizeof(w)},  {(void *)result->out[0].data, w.out_len[0]},
        {(void *)nul, 1}, {(void *)result->out[1].data, w.out_len[1]},
        {(void *)nul, 1}, {json.data, json.len + 1},
    };
    if (w.out_len[0] + w.out_len[1] + w.json_len <= WIRE_INLINE_MAX &&
        wire_send(sock, parts, ARRAY_SIZE(parts), NULL, 0, MSG_DONTWAIT) == 0)
        return true;
    if (errno == EPIPE)
        return false;
    _cleanup_close_ int fd = reply_memfd(parts + 1, ARRAY_SIZE(parts) - 1);
    if (fd < 0) {
        struct cordon_err err;
        err_set(&err, CORDON_ERR_INTERNAL, "result", errno, "memory for the output");
        return reply_error(sock, &err);
    }
    w.flags |= WIRE_RESULT_PAYLOAD_FD;
    return wire_send(sock, parts, 1, &fd, 1, MSG_DONTWAIT) == 0;
}
