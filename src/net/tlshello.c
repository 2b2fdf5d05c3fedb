/* Server name of a TLS ClientHello. Pure; runs in the broker on the client's first bytes. */
#include "net/tlshello.h"

#include <stdbool.h>

#include "base/util.h"

#define RECORD_HEADER 5
#define RECORD_MAX (16384 + 256)
#define HELLO_HEADER 4
#define EXTENSION_SERVER_NAME 0

/* A span of bytes that is read from the front; `bad` once anything reached past its end. */
struct span {
    const uint8_t *at, *end;
    bool bad;
};

static unsigned take_int(struct span *s, unsigned bytes)
{
    unsigned v = 0;
    if (s->bad || (size_t)(s->end - s->at) < bytes) {
        s->bad = true;
        return 0;
    }
    while (bytes--)
        v = v << 8 | *s->at++;
    return v;
}

/* A vector with its length in front. */
static struct span take_vector(struct span *s, unsigned length_bytes)
{
    size_t n = take_int(s, length_bytes);
    if (s->bad || (size_t)(s->end - s->at) < n) {
        s->bad = true;
        return (struct span){.bad = true};
    }
    struct span inner = {s->at, s->at + n, false};
    s->at += n;
    return inner;
}

/* What the very first bytes are: MORE, OTHER, BAD, or NAME for "a handshake record". Servers are
 * lenient at this point: they take a warning alert or a hello of SSL 2 first, any minor version,
 * and Go's any major one below 16. No honest client does so, and a hello behind them would not be
 * found.
 *
 * Other protocols may begin with the number of a record too, where it is a length or a kind of
 * packet: those with a text next, or a larger number, pass. What begins with two such control
 * characters is refused; nothing that is widely used does (SOCKS is 04 or 05, MQTT 10, RDP and
 * TPKT 03, Postgres, Kafka and DNS a length that begins with 00 or would be 5,000 bytes). */
static enum tlshello_state read_start(const uint8_t *data, size_t len, size_t *ret_need)
{
    if (len == 0)
        return *ret_need = 1, TLSHELLO_MORE;
    /* SSL 2 has a length of 15 bits first; none is larger than a record, nor text in UTF-8 */
    bool record = data[0] >= 0x14 && data[0] <= 0x18, old = data[0] >= 0x80 && data[0] <= 0xc1;
    if (!record && !old)
        return TLSHELLO_OTHER;
    if (record && len >= 2) {
        if (data[0] == 0x16 && data[1] == 3)
            return TLSHELLO_NAME;
        return data[1] < 0x10 ? TLSHELLO_BAD : TLSHELLO_OTHER;
    }
    /* the length, a hello, the major version */
    if (old && len >= 3 && data[2] != 1)
        return TLSHELLO_OTHER;
    if (old && len >= 4)
        return data[3] == 3 ? TLSHELLO_BAD : TLSHELLO_OTHER;
    *ret_need = record ? 2 : len < 3 ? 3 : 4;
    return TLSHELLO_MORE;
}

/* Joins the payload of the records held so far. MORE, BAD, or NAME for "enough": the hello's own
 * length is there. */
static enum tlshello_state join(const uint8_t *data, size_t len, uint8_t *hello, size_t *ret_len,
                                size_t *ret_need)
{
    size_t at = 0, have = 0, want = HELLO_HEADER;
    while (have < want) {
        static const uint8_t start[] = {0x16, 0x03};
        if (memcmp(data + at, start, MIN(len - at, sizeof(start))) != 0)
            return TLSHELLO_BAD;
        if (len - at < RECORD_HEADER) {
            *ret_need = at + RECORD_HEADER;
            return *ret_need > TLSHELLO_MAX ? TLSHELLO_BAD : TLSHELLO_MORE;
        }
        size_t n = (size_t)data[at + 3] << 8 | data[at + 4];
        if (n == 0 || n > RECORD_MAX)
            return TLSHELLO_BAD;
        size_t here = MIN(n, len - at - RECORD_HEADER);
        memcpy(hello + have, data + at + RECORD_HEADER, here);
        have += here;
        if (have > 0 && hello[0] != 1) /* a handshake that does not begin with a ClientHello */
            return TLSHELLO_BAD;
        if (have >= HELLO_HEADER)
            want = HELLO_HEADER + ((size_t)hello[1] << 16 | (size_t)hello[2] << 8 | hello[3]);
        if (want > TLSHELLO_MAX)
            return TLSHELLO_BAD;
        at += RECORD_HEADER + here;
        if (have < want && here < n) {
            /* the rest of this record, or as much of it as the hello needs */
            *ret_need = at + MIN(n - here, want - have);
            return *ret_need > TLSHELLO_MAX ? TLSHELLO_BAD : TLSHELLO_MORE;
        }
    }
    *ret_len = want;
    return TLSHELLO_NAME;
}

static enum tlshello_state read_name(struct span list, char *ret_name)
{
    struct span names = take_vector(&list, 2);
    unsigned type = take_int(&names, 1);
    struct span name = take_vector(&names, 2);
    size_t n = (size_t)(name.end - name.at);
    /* exactly one name of the only type there is: more would let two readers choose differently */
    if (list.bad || names.bad || name.bad || list.at != list.end || names.at != names.end ||
        type != 0 || n == 0 || n > TLSHELLO_NAME_MAX || memchr(name.at, '\0', n))
        return TLSHELLO_BAD;
    memcpy(ret_name, name.at, n);
    ret_name[n] = '\0';
    return TLSHELLO_NAME;
}

static enum tlshello_state read_hello(const uint8_t *hello, size_t len, char *ret_name)
{
    enum tlshello_state found = TLSHELLO_NO_NAME;
    struct span s = {hello + HELLO_HEADER, hello + len, false};
    take_int(&s, 2); /* version */
    for (int i = 0; i < 32; i++)
        take_int(&s, 1); /* random */
    take_vector(&s, 1);  /* session */
    take_vector(&s, 2);  /* ciphers */
    take_vector(&s, 1);  /* compression */
    if (s.bad)
        return TLSHELLO_BAD;
    if (s.at == s.end)
        return TLSHELLO_NO_NAME; /* before extensions existed */
    struct span extensions = take_vector(&s, 2);
    if (s.bad || s.at != s.end)
        return TLSHELLO_BAD;
    while (extensions.at < extensions.end) {
        unsigned type = take_int(&extensions, 2);
        struct span body = take_vector(&extensions, 2);
        if (extensions.bad)
            return TLSHELLO_BAD;
        if (type != EXTENSION_SERVER_NAME)
            continue;
        if (found != TLSHELLO_NO_NAME)
            return TLSHELLO_BAD;
        found = read_name(body, ret_name);
        if (found == TLSHELLO_BAD)
            return found;
    }
    return found;
}

enum tlshello_state tlshello_read(const uint8_t *data, size_t len,
                                  char ret_name[static TLSHELLO_NAME_MAX + 1], size_t *ret_need)
{
    uint8_t hello[TLSHELLO_MAX];
    size_t hello_len = 0, need = 0;
    if (len > TLSHELLO_MAX)
        len = TLSHELLO_MAX;
    enum tlshello_state state = read_start(data, len, &need);
    if (state == TLSHELLO_NAME)
        state = join(data, len, hello, &hello_len, &need);
    if (state == TLSHELLO_MORE)
        *ret_need = need;
    return state == TLSHELLO_NAME ? read_hello(hello, hello_len, ret_name) : state;
}
