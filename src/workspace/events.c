/* The JSONL log of workspaces. Runs on our side. */
#include "workspace/events.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/err.h"
#include "base/jsonw.h"
#include "base/util.h"

#define EVENTS_LINE_MAX ((size_t)64 << 20)

static void events_line(const char *id, const struct events_row *row, struct buf *out)
{
    struct jsonw j = {.out = out};
    struct timespec now;
    struct tm tm;
    char stamp[64];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    size_t n = strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(stamp + n, sizeof(stamp) - n, ".%06ld+00:00", now.tv_nsec / 1000);
    jsonw_open(&j, NULL, '{');
    jsonw_str(&j, "event", row->event);
    jsonw_str(&j, "timestamp", stamp);
    jsonw_str(&j, "task_id", id);
    if (row->cmd) {
        jsonw_open(&j, "cmd", '[');
        for (char *const *word = row->cmd; *word; word++)
            jsonw_str(&j, NULL, *word);
        jsonw_close(&j, ']');
    } else {
        jsonw_null(&j, "cmd");
    }
    if (row->has_result) {
        jsonw_int(&j, "exit_code", row->exit_code);
        uint64_t us = row->duration_ns / 1000;
        buf_printf(out, ",\"duration_sec\":%llu.%06llu", (unsigned long long)(us / 1000000),
                   (unsigned long long)(us % 1000000));
    } else {
        jsonw_null(&j, "exit_code");
        jsonw_null(&j, "duration_sec");
    }
    jsonw_str(&j, "error", row->error);
    jsonw_open(&j, "changed_files", '[');
    for (size_t i = 0; row->changes && i < row->changes->n; i++)
        jsonw_str(&j, NULL, row->changes->list[i].path);
    for (size_t i = 0; i < row->n_paths; i++)
        jsonw_str(&j, NULL, row->paths[i]);
    jsonw_close(&j, ']');
    jsonw_uint(&j, "diff_len", row->diff_len);
    jsonw_close(&j, '}');
    buf_char(out, '\n');
}

int events_append(const char *dir, const char *id, const struct events_row *row,
                  struct cordon_err *err)
{
    _cleanup_buf_ struct buf line = BUF_INIT(EVENTS_LINE_MAX);
    char name[128];
    events_line(id, row, &line);
    snprintf(name, sizeof(name), "%s.jsonl", id);
    if (line.failed)
        return err_nomem(err, "log");
    _cleanup_close_ int at = tree_open_own(dir, EVENTS_DIR, TREE_MAKE | TREE_MAKE_ABOVE, 0777);
    _cleanup_close_ int fd =
        at < 0 ? -1
               : openat(at, name,
                        O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
    /* one write: lines of several runs at once do not mix */
    if (fd < 0 || write(fd, line.data, line.len) != (ssize_t)line.len)
        return err_set(err, CORDON_ERR_INTERNAL, "log", errno, "%s/%s", dir, name);
    return 0;
}
