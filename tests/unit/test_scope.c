/* The question to the user's systemd, against a bus made up here: one that answers, and every kind
 * that does not. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "host/bus.h"
#include "host/cgroups.h"

enum mood { GOOD, REFUSES, SILENT, CLOSES, GARBAGE, HUGE, WRONG_SERIAL, NO_AUTH, NEVER_MOVES };

struct fake {
    enum mood mood;
    char folder[64], path[96], cgroup[96];
    int listener;
    uint32_t pid_seen;
    char unit[128];
};

static uint32_t u32(const char *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

static bool take(int fd, char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = read(fd, data, len);
        if (n <= 0)
            return false;
        data += n;
        len -= (size_t)n;
    }
    return true;
}

static bool take_line(int fd, char *line, size_t size)
{
    size_t n = 0;
    while (n < size - 1 && take(fd, line + n, 1))
        if (line[n++] == '\n') {
            line[n] = '\0';
            return true;
        }
    return false;
}

/* A whole message; the length of its head. */
static size_t take_message(int fd, char *msg, size_t size, size_t *ret_len)
{
    if (!take(fd, msg, 16))
        return 0;
    size_t head = 16 + ((u32(msg + 12) + 7) & ~(size_t)7), len = head + u32(msg + 4);
    assert_true(len <= size);
    *ret_len = len;
    return take(fd, msg + 16, len - 16) ? head : 0;
}

static void send_all(int fd, const void *data, size_t len)
{
    (void)!send(fd, data, len, MSG_NOSIGNAL);
}

/* A signal with an array in its header's place first, which must be passed over; then the answer.
 */
static void answer(int fd, unsigned char kind, uint32_t serial)
{
    unsigned char signal[16 + 16] = {'l', 4, 1, 1,   0, 0, 0, 0, 9, 0,   0,   0,   13,  0, 0,
                                     0,   2, 1, 's', 0, 4, 0, 0, 0, 'a', '.', 'b', 'c', 0};
    unsigned char reply[16 + 8] = {'l', kind, 1, 1, 0, 0, 0, 0, 7, 0, 0, 0, 8, 0, 0, 0, 5, 1, 'u'};
    memcpy(reply + 20, &serial, sizeof(serial));
    send_all(fd, signal, sizeof(signal));
    send_all(fd, reply, sizeof(reply));
}

/* Unit name, and the process of PIDs: the last number before the empty list at the end. */
static void read_request(struct fake *f, const char *msg, size_t head, size_t len)
{
    const char *body = msg + head;
    size_t unit_len = u32(body);
    assert_true(unit_len < sizeof(f->unit));
    memcpy(f->unit, body + 4, unit_len + 1);
    assert_non_null(memmem(msg, head, "StartTransientUnit", 18));
    assert_non_null(memmem(body, len - head, "Delegate", 8));
    const char *pids = memmem(body, len - head, "PIDs\0\2au\0", 9);
    assert_non_null(pids);
    size_t at = ((size_t)(pids - body) + 9 + 3) & ~(size_t)3;
    assert_int_equal(u32(body + at), 4);
    f->pid_seen = u32(body + at + 4);
}

static void *fake_main(void *data)
{
    struct fake *f = data;
    char line[256], zero = 1, msg[4096], want[64], uid[16];
    size_t len = 0, head, n = 0;
    int fd = accept(f->listener, NULL, NULL);
    if (fd < 0)
        return NULL;
    if (f->mood == SILENT) {
        while (read(fd, line, sizeof(line)) > 0)
            ;
        goto end;
    }
    if (!take(fd, &zero, 1) || zero != 0 || !take_line(fd, line, sizeof(line)))
        goto end;
    n = (size_t)snprintf(want, sizeof(want), "AUTH EXTERNAL ");
    snprintf(uid, sizeof(uid), "%u", (unsigned)geteuid());
    for (const char *p = uid; *p; p++)
        n += (size_t)snprintf(want + n, sizeof(want) - n, "%02x", (unsigned)*p);
    snprintf(want + n, sizeof(want) - n, "\r\n");
    if (strcmp(line, want) != 0 || f->mood == NO_AUTH) {
        send_all(fd, "REJECTED EXTERNAL\r\n", 19);
        goto end;
    }
    send_all(fd, "OK 0123456789\r\n", 15);
    if (!take_line(fd, line, sizeof(line)) || !take_message(fd, msg, sizeof(msg), &len))
        goto end;
    answer(fd, 2, u32(msg + 8));
    head = take_message(fd, msg, sizeof(msg), &len);
    if (!head || f->mood == CLOSES)
        goto end;
    read_request(f, msg, head, len);
    if (f->mood == GARBAGE)
        send_all(fd, "not a message at all, not at all", 32);
    else if (f->mood == HUGE)
        send_all(fd, "l\2\1\1\377\377\377\177\1\0\0\0\377\377\377\177", 16);
    else if (f->mood == WRONG_SERIAL)
        answer(fd, 2, 4711);
    else
        answer(fd, f->mood == REFUSES ? 3 : 2, u32(msg + 8));
    if (f->mood == GOOD) {
        FILE *file = fopen(f->cgroup, "we");
        fprintf(file, "0::/user.slice/%s\n", f->unit);
        fclose(file);
    }
    while (read(fd, line, sizeof(line)) > 0)
        ;
end:
    close(fd);
    return NULL;
}

static bool ask(enum mood mood, unsigned timeout_ms, struct fake *ret_fake)
{
    struct fake f = {.mood = mood, .folder = "/tmp/cordon-scope-XXXXXX"};
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    pthread_t thread;
    assert_non_null(mkdtemp(f.folder));
    snprintf(f.path, sizeof(f.path), "%s/bus", f.folder);
    snprintf(f.cgroup, sizeof(f.cgroup), "%s/cgroup", f.folder);
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", f.path);
    f.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(f.listener, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(f.listener, 4), 0);
    assert_int_equal(pthread_create(&thread, NULL, fake_main, &f), 0);
    bool joined = host_scope_ask(f.path, f.cgroup, timeout_ms);
    shutdown(f.listener, SHUT_RDWR);
    assert_int_equal(pthread_join(thread, NULL), 0);
    close(f.listener);
    unlink(f.path);
    unlink(f.cgroup);
    rmdir(f.folder);
    *ret_fake = f;
    return joined;
}

static void scope_given(void **state)
{
    (void)state;
    struct fake f;
    assert_true(ask(GOOD, 10000, &f));
    assert_int_equal(f.pid_seen, getpid());
    assert_true(str_starts(f.unit, "cordon-") && strstr(f.unit, ".scope"));
}

static void scope_refused(void **state)
{
    (void)state;
    static const enum mood moods[] = {REFUSES, CLOSES, GARBAGE, HUGE, NO_AUTH};
    struct fake f;
    for (size_t i = 0; i < ARRAY_SIZE(moods); i++)
        assert_false(ask(moods[i], 10000, &f));
}

static void scope_late(void **state)
{
    (void)state;
    static const enum mood moods[] = {SILENT, WRONG_SERIAL, NEVER_MOVES};
    struct fake f;
    for (size_t i = 0; i < ARRAY_SIZE(moods); i++) {
        time_t began = time(NULL);
        assert_false(ask(moods[i], 100, &f));
        assert_true(time(NULL) - began < 8);
    }
}

static void scope_bus_is_ours(void **state)
{
    (void)state;
    char path[108];
    setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus,guid=1", 1);
    assert_false(host_scope_bus(path, sizeof(path)));
    assert_string_equal(path, "/nonexistent/bus");
    setenv("DBUS_SESSION_BUS_ADDRESS", "tcp:host=example", 1);
    setenv("XDG_RUNTIME_DIR", "/nonexistent/run", 1);
    assert_false(host_scope_bus(path, sizeof(path)));
    assert_string_equal(path, "/nonexistent/run/bus");
    assert_false(host_scope_ask("/nonexistent/run/bus", "/proc/self/cgroup", 100));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scope_given),
        cmocka_unit_test(scope_refused),
        cmocka_unit_test(scope_late),
        cmocka_unit_test(scope_bus_is_ours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
