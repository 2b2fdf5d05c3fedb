/* Files of source text. Runs in the command and the supervisor, with the caller's rights. */
#include "lang/load.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/util.h"

static int load_open(const char *path, bool *ret_is_pipe, struct cordon_err *err)
{
    struct stat st;
    /* without waiting for a writer that may never come */
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_set(err, CORDON_ERR_USAGE, "source", errno, "%.300s", path);
    if (!S_ISREG(st.st_mode) && !S_ISFIFO(st.st_mode))
        return err_set(err, CORDON_ERR_USAGE, "source", 0, "%.300s is not a regular file", path);
    *ret_is_pipe = S_ISFIFO(st.st_mode);
    fcntl(fd, F_SETFL, 0);
    return TAKE_FD(fd);
}

/* What may be run may also be a command: `cordon run ls`. */
static int load_no_program(const char *path, struct cordon_err *err)
{
    bool is_word = err->sys_errno == ENOENT && *path && !strpbrk(path, "/.");
    return is_word ? err_hint(err, "a command is given after --: -- %.300s", path) : -1;
}

int lang_load_head(const char *path, char *ret_head, size_t size, size_t *ret_len,
                   struct cordon_err *err)
{
    bool is_pipe = false;
    _cleanup_close_ int fd = load_open(path, &is_pipe, err);
    if (fd < 0)
        return load_no_program(path, err);
    ssize_t n = is_pipe ? 0 : read(fd, ret_head, size);
    if (n < 0)
        return err_set(err, CORDON_ERR_USAGE, "source", errno, "%.300s", path);
    *ret_len = is_pipe ? SIZE_MAX : (size_t)n;
    return 0;
}

int lang_load_file(const char *path, size_t max, char **ret_text, size_t *ret_len,
                   struct cordon_err *err)
{
    bool is_pipe = false, is_stdin = str_eq(path, "-");
    _cleanup_close_ int own = is_stdin ? -1 : load_open(path, &is_pipe, err);
    int fd = is_stdin ? STDIN_FILENO : own;
    if (fd < 0)
        return -1;
    const char *shown = is_stdin ? "standard input" : path;
    _cleanup_buf_ struct buf text = BUF_INIT(max);
    static char chunk[65536];
    for (;;) {
        ssize_t n = read(fd, chunk, sizeof(chunk));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set(err, CORDON_ERR_USAGE, "source", errno, "%.300s", shown);
        if (n == 0)
            break;
        if (buf_add(&text, chunk, (size_t)n) < 0) {
            if (text.len + (size_t)n > max)
                return err_set(err, CORDON_ERR_USAGE, "source", 0,
                               "%.300s: source text is at most %zu MiB", shown, max >> 20);
            return err_nomem(err, "source");
        }
    }
    size_t len = text.len;
    char *data = buf_take(&text);
    if (!data)
        return err_nomem(err, "source");
    *ret_text = data;
    *ret_len = len;
    return 0;
}
