/* See bus.h. Runs in the supervisor, before any guest exists. */
#include "host/bus.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"

enum { BUS_CALL = 1, BUS_RETURN = 2, BUS_ERROR = 3 };
enum { FIELD_PATH = 1, FIELD_INTERFACE = 2, FIELD_MEMBER = 3, FIELD_REPLY = 5, FIELD_TO = 6 };
#define FIELD_SIGNATURE 8
#define BUS_HEAD 16 /* up to and with the length of the header's fields */

/* A message being written. Positions are from its start, which is what alignment counts from. */
struct bus_text {
    char data[BUS_MESSAGE_MAX];
    size_t len;
    bool overflow;
};

static void put(struct bus_text *t, const void *data, size_t len)
{
    if (len > sizeof(t->data) - t->len) {
        t->overflow = true;
        return;
    }
    memcpy(t->data + t->len, data, len);
    t->len += len;
}

static void put_align(struct bus_text *t, size_t to)
{
    static const char zeros[8];
    put(t, zeros, (to - t->len % to) % to);
}

static void put_u32(struct bus_text *t, uint32_t value)
{
    put_align(t, 4);
    put(t, &value, sizeof(value));
}

static void put_string(struct bus_text *t, const char *s)
{
    put_u32(t, (uint32_t)strlen(s));
    put(t, s, strlen(s) + 1);
}

static void put_signature(struct bus_text *t, const char *s)
{
    unsigned char len = (unsigned char)strlen(s);
    put(t, &len, 1);
    put(t, s, (size_t)len + 1);
}

/* A length that is written when what it counts is there; gives its place. */
static size_t put_array(struct bus_text *t, size_t align, size_t *ret_start)
{
    put_u32(t, 0);
    size_t at = t->len - 4;
    put_align(t, align);
    *ret_start = t->len;
    return at;
}

static void end_array(struct bus_text *t, size_t at, size_t start)
{
    uint32_t len = (uint32_t)(t->len - start);
    if (!t->overflow)
        memcpy(t->data + at, &len, sizeof(len));
}

static void put_field(struct bus_text *t, unsigned char code, const char *type, const char *value)
{
    put_align(t, 8);
    put(t, &code, 1);
    put_signature(t, type);
    if (type[0] == 'g')
        put_signature(t, value);
    else
        put_string(t, value);
}

static void put_property(struct bus_text *t, const char *name, const char *type)
{
    put_align(t, 8);
    put_string(t, name);
    put_signature(t, type);
}

/* The head of a call; the body follows, then bus_call(). */
static void begin_call(struct bus *bus, struct bus_text *t, const char *to, const char *path,
                       const char *interface, const char *member, const char *signature)
{
    const unsigned char head[4] = {'l', BUS_CALL, 0, 1};
    *t = (struct bus_text){0};
    put(t, head, sizeof(head));
    put_u32(t, 0); /* length of the body */
    put_u32(t, ++bus->serial);
    size_t start, at = put_array(t, 8, &start);
    put_field(t, FIELD_PATH, "o", path);
    put_field(t, FIELD_INTERFACE, "s", interface);
    put_field(t, FIELD_MEMBER, "s", member);
    put_field(t, FIELD_TO, "s", to);
    if (signature[0])
        put_field(t, FIELD_SIGNATURE, "g", signature);
    end_array(t, at, start);
    put_align(t, 8);
}

/* Waits until the socket can be used; false when the time is over or the other side is gone. */
static bool bus_wait(const struct bus *bus, short events)
{
    for (;;) {
        uint64_t now = clock_ns();
        if (now >= bus->deadline_ns)
            return false;
        struct pollfd p = {.fd = bus->fd, .events = events};
        int r = poll(&p, 1, (int)((bus->deadline_ns - now) / 1000000u) + 1);
        if (r > 0)
            return true;
        if (r < 0 && errno != EINTR)
            return false;
    }
}

static int bus_write(const struct bus *bus, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = send(bus->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return -1;
        if (n < 0 && !bus_wait(bus, POLLOUT))
            return -1;
        if (n > 0) {
            data += n;
            len -= (size_t)n;
        }
    }
    return 0;
}

static int bus_read(const struct bus *bus, char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = recv(bus->fd, data, len, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return -1;
        if (n < 0 && !bus_wait(bus, POLLIN))
            return -1;
        if (n > 0) {
            data += n;
            len -= (size_t)n;
        }
    }
    return 0;
}

static uint32_t get_u32(const char *data)
{
    uint32_t value;
    memcpy(&value, data, sizeof(value));
    return value;
}

/* The serial the message answers, 0: none. Walks over fields whose types we know; an answer has its
 * serial among them. */
static uint32_t reply_serial(const char *msg, size_t end)
{
    size_t at = BUS_HEAD;
    while (at + 8 <= end) {
        unsigned char code = (unsigned char)msg[at], n = (unsigned char)msg[at + 1];
        if (n != 1 || msg[at + 3] != '\0')
            return 0;
        char type = msg[at + 2];
        at += 4;
        if (type == 'u' && code == FIELD_REPLY)
            return get_u32(msg + at);
        if (type == 'u')
            at += 4;
        else if (type == 'g')
            at += (size_t)(unsigned char)msg[at] + 2;
        else if (type == 's' || type == 'o')
            at += 4 + (size_t)MIN(get_u32(msg + at), (uint32_t)BUS_MESSAGE_MAX) + 1;
        else
            return 0;
        at = (at + 7) & ~(size_t)7;
    }
    return 0;
}

/* One message; its kind, and which call it answers. Longer ones than ours are no answer to us. */
static int bus_receive(const struct bus *bus, unsigned *ret_kind, uint32_t *ret_serial)
{
    char msg[BUS_MESSAGE_MAX];
    if (bus_read(bus, msg, BUS_HEAD) < 0 || msg[0] != 'l' || msg[3] != 1)
        return -1;
    uint32_t body = get_u32(msg + 4), fields = get_u32(msg + 12);
    if (body > sizeof(msg) || fields > sizeof(msg))
        return -1;
    size_t head = BUS_HEAD + ((fields + 7u) & ~7u);
    if (head + body > sizeof(msg) || bus_read(bus, msg + BUS_HEAD, head + body - BUS_HEAD) < 0)
        return -1;
    *ret_kind = (unsigned char)msg[1];
    *ret_serial = reply_serial(msg, BUS_HEAD + fields);
    return 0;
}

static int bus_call(struct bus *bus, struct bus_text *t, size_t body_start)
{
    uint32_t body = (uint32_t)(t->len - body_start);
    if (t->overflow)
        return -1;
    memcpy(t->data + 4, &body, sizeof(body));
    if (bus_write(bus, t->data, t->len) < 0)
        return -1;
    for (;;) { /* signals and answers to nobody may lie between */
        unsigned kind;
        uint32_t serial;
        if (bus_receive(bus, &kind, &serial) < 0)
            return -1;
        if (serial == bus->serial && (kind == BUS_RETURN || kind == BUS_ERROR))
            return kind == BUS_RETURN ? 0 : -1;
    }
}

/* "\0AUTH EXTERNAL <uid in hex>", "OK <id>", "BEGIN". */
static int bus_authenticate(struct bus *bus)
{
    char uid[16], line[128] = "", c = 0;
    size_t n = 0;
    snprintf(uid, sizeof(uid), "%u", (unsigned)geteuid());
    n = 1 + (size_t)snprintf(line + 1, sizeof(line) - 1, "AUTH EXTERNAL ");
    for (const char *p = uid; *p; p++)
        n += (size_t)snprintf(line + n, sizeof(line) - n, "%02x", (unsigned)*p);
    n += (size_t)snprintf(line + n, sizeof(line) - n, "\r\n");
    if (bus_write(bus, line, n) < 0)
        return -1;
    for (n = 0; c != '\n' && n < sizeof(line) - 1; line[n++] = c)
        if (bus_read(bus, &c, 1) < 0)
            return -1;
    line[n] = '\0';
    return c == '\n' && str_starts(line, "OK ") ? bus_write(bus, "BEGIN\r\n", 7) : -1;
}

int bus_open(const char *path, unsigned timeout_ms, struct bus *ret_bus)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(addr.sun_path))
        return -1;
    memcpy(addr.sun_path, path, strlen(path) + 1);
    struct bus bus = {.deadline_ns = clock_ns() + timeout_ms * UINT64_C(1000000)};
    bus.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (bus.fd < 0)
        return -1;
    struct bus_text hello;
    if (connect(bus.fd, (const struct sockaddr *)&addr, sizeof(addr)) == 0 &&
        bus_authenticate(&bus) == 0) {
        begin_call(&bus, &hello, "org.freedesktop.DBus", "/org/freedesktop/DBus",
                   "org.freedesktop.DBus", "Hello", "");
        if (bus_call(&bus, &hello, hello.len) == 0) {
            *ret_bus = bus;
            return 0;
        }
    }
    bus_close(&bus);
    return -1;
}

void bus_close(struct bus *bus)
{
    util_close(&bus->fd);
}

int bus_start_scope(struct bus *bus, const char *unit, pid_t pid)
{
    struct bus_text t;
    begin_call(bus, &t, "org.freedesktop.systemd1", "/org/freedesktop/systemd1",
               "org.freedesktop.systemd1.Manager", "StartTransientUnit", "ssa(sv)a(sa(sv))");
    size_t body = t.len, start, inner;
    put_string(&t, unit);
    put_string(&t, "fail");
    size_t at = put_array(&t, 8, &start);
    put_property(&t, "Description", "s");
    put_string(&t, "Cordon and its guests");
    put_property(&t, "CollectMode", "s"); /* forgotten when it is empty, however it ended */
    put_string(&t, "inactive-or-failed");
    put_property(&t, "Delegate", "b");
    put_u32(&t, 1);
    put_property(&t, "PIDs", "au");
    size_t pids = put_array(&t, 4, &inner);
    put_u32(&t, (uint32_t)pid);
    end_array(&t, pids, inner);
    end_array(&t, at, start);
    at = put_array(&t, 8, &start); /* no units beside it */
    end_array(&t, at, start);
    return bus_call(bus, &t, body);
}
