#include "cli/answer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/util.h"
#include "cli/cli.h"
#include "cli/run.h"
#include "policy/fields.h"

int answer_refuse(const struct options *options, int id, const char *flag, const char *value,
                  int error, const char *why, struct cordon_err *err)
{
    char name[FIELDS_ENV_MAX];
    bool is_variable =
        options_is_variable(options, id) && fields_env_of_flag(flag, name, sizeof(name));
    return err_set(err, is_variable ? CORDON_ERR_CONFIG : CORDON_ERR_USAGE, "options", error,
                   "%s%s %s%s", is_variable ? "" : "--", is_variable ? name : flag, value, why);
}

static int answer_open_file(struct answer *a, const struct options *options, struct cordon_err *err)
{
    const char *path = options_get(options, OPT_RESULT);
    if (!path || place_is_open(&a->file) || (*path && place_open(&a->file, path) == 0))
        return 0;
    if (!*path)
        return answer_refuse(options, OPT_RESULT, "result", path, 0, "needs the name of a file",
                             err);
    int e = errno;
    const char *why = place_why(&e);
    return answer_refuse(options, OPT_RESULT, "result", path, e, why, err);
}

static int answer_open_fd(struct answer *a, const struct options *options, struct cordon_err *err)
{
    const char *text = options_get(options, OPT_STATUS_FD), *why = NULL;
    char *end;
    if (!text)
        return 0;
    errno = 0;
    long fd = strtol(text, &end, 10);
    int flags =
        errno || *end || end == text || fd < 0 || fd > 1 << 20 ? -1 : fcntl((int)fd, F_GETFL);
    if (flags < 0)
        why = ": not an open descriptor";
    else if ((flags & O_ACCMODE) == O_RDONLY)
        why = ": open for reading only";
    if (why)
        return answer_refuse(options, OPT_STATUS_FD, "status-fd", text, 0, why, err);
    a->fd = (int)fd;
    return 0;
}

int answer_open(struct answer *a, const struct options *options, struct cordon_err *err)
{
    a->json = options_has(options, OPT_JSON);
    if (answer_open_file(a, options, err) < 0)
        return -1;
    return answer_open_fd(a, options, err);
}

void answer_open_what_can(struct answer *a, const struct options *options)
{
    struct cordon_err ignored;
    a->json |= options_has(options, OPT_JSON);
    (void)answer_open_file(a, options, &ignored);
    (void)answer_open_fd(a, options, &ignored);
}

void answer_guess(struct answer *a, char **argv)
{
    for (size_t i = 1; argv[i] && !str_eq(argv[i], "--"); i++)
        a->json |= str_eq(argv[i], "--json");
}

void answer_close(struct answer *a)
{
    place_close(&a->file);
}

/* On a descriptor that carries the guest's own output the result has a line of its own, the last
 * one: whatever the guest wrote stands before it. */
static int answer_write_fd(const struct answer *a, const struct result *r, const struct buf *text)
{
    if (a->fd < 0)
        return 0;
    if (!a->json && (a->fd == 1 || a->fd == 2)) {
        const struct result_stream *s = &r->out[a->fd - 1];
        bool at_start = !s->truncated && (s->len == 0 || s->data[s->len - 1] == '\n');
        if (!at_start && cli_write(a->fd, "\n", 1) < 0)
            return -1;
    }
    return cli_write(a->fd, text->data, text->len);
}

int answer_write(const struct answer *a, const struct result *r)
{
    _cleanup_buf_ struct buf text = BUF_INIT(SIZE_MAX / 4);
    if (!answer_is_wanted(a))
        return r->exit_code;
    result_json(r, &text);
    buf_char(&text, '\n');
    if (!text.failed && (!a->json || cli_write(1, text.data, text.len) == 0) &&
        place_write(&a->file, text.data, text.len) == 0 && answer_write_fd(a, r, &text) == 0)
        return r->exit_code;
    fprintf(stderr, "Error: the result could not be written: %s\n", strerror(errno));
    return CORDON_ERR_INTERNAL;
}
