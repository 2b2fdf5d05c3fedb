/* The resolver against a server of our own on the loopback: answers, cuts, silence, forgeries. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#include "base/util.h"
#include "net/resolve.h"

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* ---- a server ---------------------------------------------------------------------------------
 */

enum mood { ANSWER, CUT, SILENT, SERVFAIL, FORGE, NOTHING };

struct server {
    struct loop loop;
    struct loop_watch udp, tcp, client;
    enum mood mood;
    unsigned asked;
    uint32_t ttl_s;
    char dns[64];
    struct resolver *resolver;
};

static size_t answer_to(struct server *s, const uint8_t *msg, size_t len, uint8_t *out, bool tcp)
{
    static const uint8_t addrs[2][16] = {
        {[10] = 0xff, [11] = 0xff, [12] = 203, [14] = 113, [15] = 5},
        {0x20, 0x01, 0x0d, 0xb8, [15] = 9},
    };
    struct dnsmsg_query q;
    assert_int_equal(dnsmsg_read_query(msg, len, &q), DNSMSG_NOERROR);
    s->asked++;
    enum dnsmsg_rcode rcode = s->mood == SERVFAIL  ? DNSMSG_SERVFAIL
                              : s->mood == NOTHING ? DNSMSG_NXDOMAIN
                                                   : DNSMSG_NOERROR;
    size_t n = dnsmsg_write_answer(&q, rcode, addrs, 2, s->ttl_s, out, 512);
    if (s->mood == CUT && !tcp) {
        n = dnsmsg_write_answer(&q, rcode, NULL, 0, 0, out, 512);
        out[2] |= 2;
    }
    return n;
}

static void on_udp(struct loop_watch *w, uint32_t events)
{
    struct server *s = w->data;
    struct sockaddr_in from;
    socklen_t from_len = sizeof(from);
    uint8_t msg[512], out[512];
    (void)events;
    ssize_t n = recvfrom(w->fd, msg, sizeof(msg), 0, (struct sockaddr *)&from, &from_len);
    assert_true(n > 0);
    if (s->mood == SILENT)
        return;
    size_t len = answer_to(s, msg, (size_t)n, out, false);
    if (s->mood == FORGE) { /* first a wrong id, then rubbish, then the truth */
        out[0] ^= 1;
        sendto(w->fd, out, len, 0, (struct sockaddr *)&from, from_len);
        out[0] ^= 1;
        sendto(w->fd, "x", 1, 0, (struct sockaddr *)&from, from_len);
    }
    sendto(w->fd, out, len, 0, (struct sockaddr *)&from, from_len);
}

static void on_client(struct loop_watch *w, uint32_t events)
{
    struct server *s = w->data;
    uint8_t msg[512], out[514];
    (void)events;
    ssize_t n = recv(w->fd, msg, sizeof(msg), 0);
    if (n > 2) {
        size_t len = answer_to(s, msg + 2, (size_t)n - 2, out + 2, true);
        out[0] = 0, out[1] = (uint8_t)len;
        send(w->fd, out, 1, MSG_NOSIGNAL); /* in two pieces */
        send(w->fd, out + 1, len + 1, MSG_NOSIGNAL);
    }
    loop_set(&s->loop, w, 0);
    close(w->fd);
    loop_set(&s->loop, &s->tcp, EPOLLIN);
}

static void on_tcp(struct loop_watch *w, uint32_t events)
{
    struct server *s = w->data;
    (void)events;
    s->client = (struct loop_watch){.fd = accept(w->fd, NULL, NULL), .fn = on_client, .data = s};
    assert_true(s->client.fd >= 0);
    loop_set(&s->loop, &s->tcp, 0); /* one at a time */
    loop_set(&s->loop, &s->client, EPOLLIN);
}

/* A port for both protocols; the one that is free for datagrams may be taken for streams. */
static uint16_t bind_both(struct server *s)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    for (int i = 0; i < 50; i++) {
        addr.sin_port = 0;
        s->udp.fd = socket(AF_INET, SOCK_DGRAM, 0);
        s->tcp.fd = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(bind(s->udp.fd, (struct sockaddr *)&addr, len), 0);
        assert_int_equal(getsockname(s->udp.fd, (struct sockaddr *)&addr, &len), 0);
        if (bind(s->tcp.fd, (struct sockaddr *)&addr, len) == 0)
            return ntohs(addr.sin_port);
        close(s->udp.fd);
        close(s->tcp.fd);
    }
    fail_msg("no port is free for both protocols");
    return 0;
}

static void server_start(struct server *s, const char *hosts)
{
    struct cordon_err err;
    *s = (struct server){.ttl_s = 30, .udp.fn = on_udp, .tcp.fn = on_tcp};
    s->udp.data = s->tcp.data = s;
    assert_int_equal(loop_init(&s->loop), 0);
    uint16_t port = bind_both(s);
    assert_int_equal(listen(s->tcp.fd, 8), 0);
    loop_set(&s->loop, &s->udp, EPOLLIN);
    loop_set(&s->loop, &s->tcp, EPOLLIN);
    snprintf(s->dns, sizeof(s->dns), "127.0.0.1:%u", port);
    struct resolve_config config = {
        .dns = s->dns, .hosts = hosts ? hosts : "/nonexistent", .try_ms = 150, .max_queries = 4};
    if (resolve_new(&s->loop, &config, &s->resolver, &err) < 0)
        fail_msg("%s", err.message);
}

static void server_stop(struct server *s)
{
    resolve_free(s->resolver);
    close(s->udp.fd);
    close(s->tcp.fd);
    loop_done(&s->loop);
}

struct got {
    unsigned calls;
    struct resolve_result result;
};

static void on_result(void *data, const struct resolve_result *result)
{
    struct got *got = data;
    got->calls++;
    got->result = *result;
}

static void run(struct server *s, const struct got *got)
{
    uint64_t end = now_ms() + 10000;
    while (!got->calls && now_ms() < end) {
        int wait = resolve_timeout_ms(s->resolver, now_ms());
        loop_once(&s->loop, wait < 0 || wait > 100 ? 100 : wait);
        resolve_tick(s->resolver, now_ms());
    }
    assert_int_equal(got->calls, 1);
}

static struct resolve_result ask(struct server *s, const char *name)
{
    struct got got = {0};
    assert_non_null(resolve_start(s->resolver, name, now_ms(), on_result, &got));
    assert_int_equal(got.calls, 0);
    run(s, &got);
    return got.result;
}

/* ---- cases ------------------------------------------------------------------------------------
 */

static void test_answers(void **state)
{
    (void)state;
    struct server s;
    server_start(&s, NULL);
    struct resolve_result r = ask(&s, "ok.test");
    assert_int_equal(r.status, RESOLVE_OK);
    assert_int_equal(r.n_addrs, 2);
    assert_int_equal(r.addrs[0][12], 203);
    assert_int_equal(r.addrs[1][0], 0x20);
    assert_int_equal(r.ttl_s, 30);
    assert_int_equal(s.asked, 2);
    ask(&s, "ok.test");
    assert_int_equal(s.asked, 2); /* kept */
    s.mood = FORGE;
    assert_int_equal(ask(&s, "forged.test").status, RESOLVE_OK);
    s.mood = CUT;
    r = ask(&s, "cut.test");
    assert_int_equal(r.status, RESOLVE_OK);
    assert_int_equal(r.n_addrs, 2);
    s.mood = NOTHING;
    assert_int_equal(ask(&s, "none.test").status, RESOLVE_NONE);
    assert_int_equal(resolve_timeout_ms(s.resolver, now_ms()), -1);
    server_stop(&s);
}

static void test_failures(void **state)
{
    (void)state;
    struct server s;
    server_start(&s, NULL);
    s.mood = SERVFAIL;
    assert_int_equal(ask(&s, "fail.test").status, RESOLVE_FAILED);
    assert_int_equal(s.asked, 4); /* both types, twice each */
    s.mood = SILENT;
    uint64_t start = now_ms();
    assert_int_equal(ask(&s, "silent.test").status, RESOLVE_FAILED);
    assert_true(now_ms() - start >= 290);
    s.mood = ANSWER;
    assert_int_equal(ask(&s, "silent.test").status, RESOLVE_OK); /* failures are not kept */
    server_stop(&s);
}

static void test_short_answers_are_asked_again(void **state)
{
    (void)state;
    struct server s;
    server_start(&s, NULL);
    s.ttl_s = 0;
    ask(&s, "zero.test");
    struct timespec wait = {.tv_sec = 1, .tv_nsec = 50000000};
    nanosleep(&wait, NULL);
    ask(&s, "zero.test");
    assert_int_equal(s.asked, 4);
    server_stop(&s);
}

static void test_many_and_cancel(void **state)
{
    (void)state;
    struct server s;
    struct got got[4] = {0};
    struct resolve_query *q[4];
    server_start(&s, NULL);
    for (unsigned i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof(name), "n%u.test", i);
        assert_non_null(q[i] = resolve_start(s.resolver, name, now_ms(), on_result, &got[i]));
    }
    assert_null(resolve_start(s.resolver, "more.test", now_ms(), on_result, &got[0]));
    resolve_cancel(q[1]);
    for (unsigned i = 0; i < 4; i++) {
        if (i != 1)
            run(&s, &got[i]);
    }
    assert_int_equal(got[1].calls, 0);
    assert_non_null(resolve_start(s.resolver, "left.test", now_ms(), on_result, &got[1]));
    server_stop(&s); /* with a question open */
    assert_int_equal(got[1].calls, 0);
}

/* One question for all who ask at once; the next in line takes over from one that leaves. */
static void test_same_name(void **state)
{
    (void)state;
    struct server s;
    struct got got[20] = {0};
    struct resolve_query *q[20];
    server_start(&s, NULL);
    for (unsigned i = 0; i < 20; i++)
        assert_non_null(q[i] =
                            resolve_start(s.resolver, "same.test", now_ms(), on_result, &got[i]));
    resolve_cancel(q[0]);
    resolve_cancel(q[7]);
    for (unsigned i = 1; i < 20; i++) {
        if (i != 7)
            run(&s, &got[i]);
        assert_int_equal(got[i].result.n_addrs, i == 7 ? 0 : 2);
    }
    assert_true(s.asked <= 4);
    assert_int_equal(got[0].calls + got[7].calls, 0);
    assert_int_equal(resolve_timeout_ms(s.resolver, now_ms()), -1);
    server_stop(&s);
}

static void test_hosts(void **state)
{
    (void)state;
    char path[] = "/tmp/test-resolve-XXXXXX";
    int fd = mkstemp(path);
    static const char text[] =
        "# comment\n10.9.8.7 Fixed.Test alias.test # more\n::1 fixed.test\nbad line\n";
    struct server s;
    assert_int_equal(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
    close(fd);
    server_start(&s, path);
    struct resolve_result r = ask(&s, "fixed.test");
    assert_int_equal(r.n_addrs, 2);
    assert_int_equal(r.addrs[0][12], 10);
    assert_int_equal(ask(&s, "alias.test").n_addrs, 1);
    assert_int_equal(s.asked, 0);
    server_stop(&s);
    unlink(path);
}

static void test_dns_values(void **state)
{
    (void)state;
    struct cordon_err err;
    assert_int_equal(resolve_check_dns("192.0.2.53", &err), 0);
    assert_int_equal(resolve_check_dns("192.0.2.53:5353", &err), 0);
    assert_int_equal(resolve_check_dns("2001:db8::1", &err), 0);
    assert_int_equal(resolve_check_dns("[2001:db8::1]:53", &err), 0);
    assert_int_equal(resolve_check_dns("dns.test", &err), -1);
    assert_int_equal(resolve_check_dns("", &err), -1);
    assert_int_equal(resolve_check_dns("1.2.3.4:x", &err), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_short_answers_are_asked_again),
        cmocka_unit_test(test_many_and_cancel),
        cmocka_unit_test(test_same_name),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_dns_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
