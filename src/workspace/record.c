/* The record of a kept workspace: what it stands over and since when. Text, one value a line, the
 * path last because it may hold anything but NUL. Runs on our side. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/util.h"
#include "workspace/workspace_internal.h"

#define RECORD_MAX 8192
#define RECORD_HEAD "cordon-workspace 1\n"

static void record_name(const struct workspace *ws, char *name, size_t size, const char *suffix)
{
    snprintf(name, size, WORKSPACE_META "/%s%s", ws->id, suffix);
}

int record_write(const struct workspace *ws, struct cordon_err *err)
{
    char name[160], temp[160];
    record_name(ws, name, sizeof(name), "");
    record_name(ws, temp, sizeof(temp), "~");
    _cleanup_buf_ struct buf text = BUF_INIT(RECORD_MAX);
    buf_printf(&text, RECORD_HEAD "mode %s\nmade %lld %ld\nbase ", ws->is_copy ? "copy" : "overlay",
               (long long)ws->made_at.tv_sec, ws->made_at.tv_nsec);
    buf_str(&text, ws->base);
    buf_char(&text, '\n');
    if (text.failed)
        return err_set(err, CORDON_ERR_USAGE, "workspace", ENAMETOOLONG, "%s", ws->base);
    if (mkdirat(ws->place_fd, WORKSPACE_META, 0700) < 0 && errno != EEXIST)
        return err_set(err, CORDON_ERR_INTERNAL, "workspace", errno, "%s/" WORKSPACE_META,
                       ws->place);
    unlinkat(ws->place_fd, temp, 0);
    _cleanup_close_ int fd =
        openat(ws->place_fd, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, text.data, text.len) != (ssize_t)text.len ||
        renameat(ws->place_fd, temp, ws->place_fd, name) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "workspace", errno, "%s/%s", ws->place, name);
    return 0;
}

/* Fills made_at, is_copy and base from the text. */
static bool record_parse(char *text, struct workspace *ws)
{
    long long sec;
    long nsec;
    int at = 0;
    char mode[16];
    size_t len = strlen(text);
    if (!str_starts(text, RECORD_HEAD) || len == 0 || text[len - 1] != '\n')
        return false;
    text[len - 1] = '\0';
    if (sscanf(text + strlen(RECORD_HEAD), "mode %15s\nmade %lld %ld\nbase %n", mode, &sec, &nsec,
               &at) != 3 ||
        at == 0 || text[strlen(RECORD_HEAD) + (size_t)at] != '/')
        return false;
    char *base = strdup(text + strlen(RECORD_HEAD) + (size_t)at);
    if (!base)
        return false;
    ws->is_copy = str_eq(mode, "copy");
    ws->made_at = (struct timespec){.tv_sec = (time_t)sec, .tv_nsec = nsec};
    ws->base = base;
    return true;
}

int record_read(struct workspace *ws, struct cordon_err *err)
{
    char name[160], text[RECORD_MAX + 1];
    record_name(ws, name, sizeof(name), "");
    _cleanup_close_ int fd =
        openat(ws->place_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return 0;
    struct stat st;
    ssize_t n = fd < 0 ? -1 : read(fd, text, RECORD_MAX);
    if (n < 0 || fstat(fd, &st) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "workspace", errno, "%s/%s", ws->place, name);
    text[n] = '\0';
    if (!S_ISREG(st.st_mode) || (st.st_uid != geteuid() && st.st_uid != 0) || (st.st_mode & 022) ||
        !record_parse(text, ws))
        return err_set(err, CORDON_ERR_CONFIG, "workspace", 0, "%s/%s: not a record of a workspace",
                       ws->place, name);
    return 1;
}

void record_forget_base(const struct workspace *ws)
{
    char name[160];
    record_name(ws, name, sizeof(name), ".base");
    unlinkat(ws->place_fd, name, 0);
}

void record_remove(const struct workspace *ws)
{
    char name[160];
    static const char *const suffixes[] = {"", ".base", "~"};
    for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
        record_name(ws, name, sizeof(name), suffixes[i]);
        unlinkat(ws->place_fd, name, 0);
    }
}
