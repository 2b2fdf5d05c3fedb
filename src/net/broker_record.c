/* Attempts, on their way to the supervisor. Runs in the broker. */
#include "net/broker_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/utf8.h"

bool broker_record_flush(struct broker *b)
{
    while (b->out.len > 0) {
        ssize_t n = send(b->control.fd, b->out.data, b->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            return false;
        if (n < 0)
            break;
        memmove(b->out.data, b->out.data + n, b->out.len - (size_t)n);
        b->out.len -= (size_t)n;
    }
    uint32_t wants = (b->ending ? 0 : EPOLLIN) | (b->out.len ? EPOLLOUT : 0);
    return loop_set(&b->loop, &b->control, wants) == 0;
}

/* Text that came from the guest ends up on terminals: printable ASCII only. */
static void record_clean(char *text, size_t size)
{
    text[size - 1] = '\0';
    for (char *c = text; *c; c++)
        if (*c < 0x20 || *c >= 0x7f)
            *c = '?';
}

/* A rule is shown as it was written, in any script. */
static void record_clean_rule(char *text, size_t size)
{
    text[size - 1] = '\0';
    for (char *c = text, *end = text + strlen(text); c < end;) {
        uint32_t code;
        size_t n = utf8_decode(c, end, &code);
        if (n == 0 && end == text + size - 1 && end - c < 4) {
            *c = '\0'; /* cut in the middle of a letter */
            return;
        }
        if (n == 0 || !utf8_is_harmless(code))
            memset(c, '?', n ? n : 1);
        c += n ? n : 1;
    }
}

void broker_record(struct broker *b, struct netwire_record *r)
{
    record_clean(r->name, sizeof(r->name));
    record_clean(r->address, sizeof(r->address));
    record_clean_rule(r->rule, sizeof(r->rule));
    r->lost = b->lost;
    if (b->out.len + sizeof(*r) > BROKER_OUT_MAX || buf_add(&b->out, r, sizeof(*r)) < 0) {
        b->out.failed = false;
        broker_record_lost(b, 1);
        return;
    }
    b->lost = 0;
    broker_record_flush(b);
}

void broker_record_lost(struct broker *b, uint32_t n)
{
    b->lost = UINT32_MAX - b->lost < n ? UINT32_MAX : b->lost + n;
    b->has_lost |= n > 0;
}

void broker_record_end(struct broker *b)
{
    /* there is room for two more */
    const struct netwire_record blind = {.verdict = NETWIRE_BLIND, .lost = b->lost};
    const struct netwire_record last = {.verdict = NETWIRE_END};
    if (!b->has_lost || buf_add(&b->out, &blind, sizeof(blind)) == 0)
        buf_add(&b->out, &last, sizeof(last));
}

void broker_record_broken(struct broker *b, const char *why)
{
    struct netwire_record r = {.verdict = NETWIRE_BROKEN};
    snprintf(r.rule, sizeof(r.rule), "%s", why);
    broker_record(b, &r);
}
