/* libFuzzer entry for requests as the supervisor receives them: any message must give records that
 * lie within it, or one error; every descriptor that came along has one owner.
 *
 * First byte: how many descriptors are sent. Second: whether the header is the input's own or a
 * right one with the third byte as flags. The rest: the message or its body. */
#include "serve/message.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/util.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok)
        abort();
}

/* The body's descriptor is a real memfd with the input's bytes; the others are anything. */
static int body_fd(const uint8_t *data, size_t size)
{
    int fd = wire_memfd("fuzz");
    check(fd >= 0 && wire_write_all(fd, data, size) == 0);
    check(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    return fd;
}

static void check_message(const struct message *m)
{
    const char *begin = m->body, *end = begin + m->body_len;
    check(m->argv && (m->argv[0] || m->is_source) && m->cwd);
    for (char **a = m->argv; *a; a++)
        check(*a >= begin && *a + strlen(*a) < end);
    for (char **e = m->environ; *e; e++)
        check(*e >= begin && *e + strlen(*e) < end);
    for (char **p = m->places; *p; p++)
        check(*p >= begin && *p + strlen(*p) < end);
    if (m->is_source)
        check(m->source >= begin && m->source + m->source_len <= end);
    for (size_t i = 0; i < m->n_settings; i++) {
        const struct policy_setting *s = &m->settings[i];
        check(strlen(s->name) > 0 || s->name >= begin);
        if (s->data)
            check((const char *)s->data >= begin && (const char *)s->data + s->data_len <= end);
        else if (s->value)
            check(s->value >= begin && s->value + strlen(s->value) < end);
    }
    if (m->stdin_data)
        check(m->stdin_data >= begin && m->stdin_data + m->stdin_len <= end);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int pair[2] = {-1, -1};
    if (size < 3 || size > WIRE_INLINE_MAX)
        return 0;
    if (pair[0] < 0)
        check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);

    int fds[WIRE_FDS_MAX];
    size_t n_fds = data[0] % (WIRE_FDS_MAX + 1);
    struct wire_run run = {.head = wire_head(WIRE_RUN), .flags = data[2], .body_len = size - 3};
    bool own_header = data[1] & 1;
    for (size_t i = 0; i < n_fds; i++)
        fds[i] = i == 1 ? body_fd(data + 3, size - 3) : open("/dev/null", O_RDONLY | O_CLOEXEC);
    struct iovec parts[2] = {{&run, own_header ? 0 : sizeof(run)}, {(void *)(data + 3), size - 3}};
    if (!own_header && (run.flags & WIRE_RUN_BODY_FD))
        parts[1].iov_len = 0;
    check(parts[0].iov_len + parts[1].iov_len == 0 ||
          wire_send(pair[0], parts, 2, fds, n_fds, MSG_DONTWAIT) == 0);
    for (size_t i = 0; i < n_fds; i++)
        close(fds[i]);

    struct message m;
    struct cordon_err err = {0};
    int r = message_receive(pair[1], &m, &err);
    if (r == 1) {
        if (err.code == 0 && !m.is_stats && message_parse(&m, &err) == 0)
            check_message(&m);
        message_done(&m);
    }
    int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    check(next >= 0 && next < 64); /* a leak would climb */
    close(next);
    return 0;
}
