/* The broker's readers: DNS messages, TLS hellos, HTTP requests, a proxy's reply, heads of packets.
 * Every good message is also shown cut at each length, and with each of its bytes changed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/util.h"
#include "net/dnsmsg.h"
#include "net/httpfirst.h"
#include "net/httpwatch.h"
#include "net/netclient.h"
#include "net/packethead.h"
#include "net/proxyconnect.h"
#include "net/tlshello.h"

/* ---- DNS --------------------------------------------------------------------------------------
 */

static const uint8_t v4[16] = {[10] = 0xff, [11] = 0xff, [12] = 203, [14] = 113, [15] = 5};
static const uint8_t v6[16] = {0x20, 0x01, 0x0d, 0xb8, [15] = 1};

static void test_dns_query(void **state)
{
    (void)state;
    uint8_t msg[512], answer[512], changed[512];
    struct dnsmsg_query q;
    size_t len = dnsmsg_write_query(0x1234, "www.ok.test", DNSMSG_A, msg, sizeof(msg));
    assert_int_equal(len, 12 + 13 + 4 + 11);
    msg[13] = 'W'; /* spelling comes back as it was sent */
    assert_int_equal(dnsmsg_read_query(msg, len, &q), DNSMSG_NOERROR);
    assert_string_equal(q.name, "www.ok.test");
    assert_true(q.is_host && q.has_edns && q.type == DNSMSG_A && q.udp_size == 1232);

    uint8_t addrs[2][16];
    memcpy(addrs[0], v4, 16);
    memcpy(addrs[1], v6, 16);
    size_t n = dnsmsg_write_answer(&q, DNSMSG_NOERROR, addrs, 2, 0, answer, sizeof(answer));
    struct dnsmsg_reply reply;
    assert_int_equal(dnsmsg_read_reply(answer, n, 0x1234, "www.ok.test", DNSMSG_A, &reply), 0);
    assert_int_equal(reply.n_addrs, 1);
    assert_memory_equal(reply.addrs[0], v4, 16);
    assert_int_equal(answer[13], 'W');
    assert_int_equal(dnsmsg_read_reply(answer, n, 0x1235, "www.ok.test", DNSMSG_A, &reply), -1);
    assert_int_equal(dnsmsg_read_reply(answer, n, 0x1234, "ww.ok.test", DNSMSG_A, &reply), -1);
    assert_int_equal(dnsmsg_read_reply(answer, n, 0x1234, "www.ok.test", DNSMSG_AAAA, &reply), -1);
    assert_int_equal(dnsmsg_write_answer(&q, DNSMSG_NOERROR, addrs, 2, 0, answer, n - 1), 0);

    for (size_t cut = 0; cut < len; cut++)
        assert_int_not_equal(dnsmsg_read_query(msg, cut, &q), DNSMSG_NOERROR);
    for (size_t i = 0; i < len * 256; i++) {
        memcpy(changed, msg, len);
        changed[i / 256] = (uint8_t)i;
        dnsmsg_read_query(changed, len, &q);
    }
}

/* a question for one label of bytes */
static int ask_label(const char *label, size_t n, struct dnsmsg_query *ret)
{
    uint8_t msg[512] = {[5] = 1};
    size_t at = 12;
    msg[at++] = (uint8_t)n;
    memcpy(msg + at, label, n);
    at += n;
    memcpy(msg + at, "\3com\0\0\1\0\1", 9);
    return dnsmsg_read_query(msg, at + 9, ret);
}

static void test_dns_odd_names(void **state)
{
    (void)state;
    static const struct {
        const char *label;
        size_t n;
    } odd[] = {{"a\0b", 3}, {"a.b", 3}, {"a\rb", 3}, {"a b", 3}, {"_srv", 4}, {"\xc3\xa9", 2},
               {"-a", 2},   {"a-", 2},  {"a%b", 3},  {"a/b", 3}, {"xn--", 4}};
    struct dnsmsg_query q;
    assert_int_equal(ask_label("ok", 2, &q), DNSMSG_NOERROR);
    assert_true(q.is_host && str_eq(q.name, "ok.com"));
    for (size_t i = 0; i < ARRAY_SIZE(odd); i++) {
        assert_int_equal(ask_label(odd[i].label, odd[i].n, &q), DNSMSG_NOERROR);
        assert_false(q.is_host);
        assert_int_equal(strspn(q.name, "abcdefghijklmnopqrstuvwxyz0123456789-_.?"),
                         strlen(q.name));
    }
    /* the root, a pointer in a question, two questions, an answer, another operation */
    static const uint8_t root[] = {0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1};
    static const uint8_t pointer[] = {0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 12, 0, 1, 0, 1};
    uint8_t msg[64];
    assert_int_equal(dnsmsg_read_query(root, sizeof(root), &q), DNSMSG_NOERROR);
    assert_false(q.is_host);
    assert_int_equal(dnsmsg_read_query(pointer, sizeof(pointer), &q), DNSMSG_FORMERR);
    memcpy(msg, root, sizeof(root));
    msg[5] = 2;
    assert_int_equal(dnsmsg_read_query(msg, sizeof(root), &q), DNSMSG_FORMERR);
    msg[5] = 1, msg[2] = 0x81;
    assert_int_equal(dnsmsg_read_query(msg, sizeof(root), &q), -1);
    msg[2] = 0x29;
    assert_int_equal(dnsmsg_read_query(msg, sizeof(root), &q), DNSMSG_NOTIMP);
    uint8_t out[12];
    assert_int_equal(dnsmsg_write_error(msg, sizeof(root), DNSMSG_NOTIMP, out, sizeof(out)), 12);
    assert_int_equal(out[3] & 15, DNSMSG_NOTIMP);
}

/* question www.ok.test A, then what is given */
static size_t reply_with(const void *records, size_t len, uint8_t count, uint8_t *msg)
{
    size_t n = dnsmsg_write_query(7, "www.ok.test", DNSMSG_A, msg, 512) - 11;
    msg[2] = 0x81, msg[3] = 0x80;
    msg[7] = count, msg[11] = 0;
    memcpy(msg + n, records, len);
    return n + len;
}

static void test_dns_aliases(void **state)
{
    (void)state;
    /* www.ok.test CNAME a.ok.test (pointer to ok.test at 16); a.ok.test A 203.0.113.5 */
    static const char chain[] = "\xc0\x0c\0\5\0\1\0\0\0\x1e\0\4\1a\xc0\x10"
                                "\1a\xc0\x10\0\1\0\1\0\0\0\x3c\0\4\xcb\0\x71\5";
    static const char loop[] = "\xc0\x0c\0\5\0\1\0\0\0\0\0\4\1a\xc0\x10"
                               "\1a\xc0\x10\0\5\0\1\0\0\0\0\0\2\xc0\x0c";
    static const char self[] = "\xc0\x1d\0\1\0\1\0\0\0\0\0\4\1\2\3\4";
    static const char stranger[] = "\1b\xc0\x10\0\1\0\1\0\0\0\x3c\0\4\x0a\0\0\1";
    uint8_t msg[600], changed[600];
    struct dnsmsg_reply reply;
    size_t n = reply_with(chain, sizeof(chain) - 1, 2, msg);
    assert_int_equal(dnsmsg_read_reply(msg, n, 7, "www.ok.test", DNSMSG_A, &reply), 0);
    assert_int_equal(reply.n_addrs, 1);
    assert_int_equal(reply.ttl_s, 30);
    for (size_t i = 0; i < n * 256; i++) {
        memcpy(changed, msg, n);
        changed[i / 256] = (uint8_t)i;
        dnsmsg_read_reply(changed, n, 7, "www.ok.test", DNSMSG_A, &reply);
    }
    for (size_t cut = 0; cut < n; cut++)
        assert_int_equal(dnsmsg_read_reply(msg, cut, 7, "www.ok.test", DNSMSG_A, &reply), -1);
    n = reply_with(loop, sizeof(loop) - 1, 2, msg);
    assert_int_equal(dnsmsg_read_reply(msg, n, 7, "www.ok.test", DNSMSG_A, &reply), 0);
    assert_int_equal(reply.n_addrs, 0);
    n = reply_with(self, sizeof(self) - 1, 1, msg); /* a pointer to itself */
    assert_int_equal(dnsmsg_read_reply(msg, n, 7, "www.ok.test", DNSMSG_A, &reply), -1);
    n = reply_with(stranger, sizeof(stranger) - 1, 1, msg);
    assert_int_equal(dnsmsg_read_reply(msg, n, 7, "www.ok.test", DNSMSG_A, &reply), 0);
    assert_int_equal(reply.n_addrs, 0);
    msg[2] |= 2;
    assert_int_equal(dnsmsg_read_reply(msg, n, 7, "www.ok.test", DNSMSG_A, &reply), 0);
    assert_true(reply.truncated);
}

/* ---- TLS --------------------------------------------------------------------------------------
 */

/* A hello with one extension of that type and body, in records of at most `piece` bytes. */
static size_t make_hello(const char *extension, size_t extension_len, size_t piece, uint8_t *ret)
{
    uint8_t hello[1024] = {1, 0, 0, 0, 3, 3};
    size_t n = 38, out = 0;
    hello[n++] = 0;                         /* session */
    memcpy(hello + n, "\0\2\x13\1\1\0", 6); /* ciphers, compression */
    n += 6;
    hello[n++] = (uint8_t)(extension_len >> 8);
    hello[n++] = (uint8_t)extension_len;
    memcpy(hello + n, extension, extension_len);
    n += extension_len;
    hello[2] = (uint8_t)((n - 4) >> 8);
    hello[3] = (uint8_t)(n - 4);
    for (size_t at = 0; at < n; at += piece) {
        size_t here = MIN(piece, n - at);
        uint8_t header[5] = {0x16, 3, 1, (uint8_t)(here >> 8), (uint8_t)here};
        memcpy(ret + out, header, 5);
        memcpy(ret + out + 5, hello + at, here);
        out += 5 + here;
    }
    return out;
}

#define SNI "\0\0\0\x0c\0\x0a\0\0\7ok.test"
#define OTHER "\0\x2b\0\3\2\3\4"

static void test_tls_name(void **state)
{
    (void)state;
    uint8_t msg[8192];
    char name[TLSHELLO_NAME_MAX + 1];
    size_t need;
    for (size_t piece = 1; piece < 200; piece++) {
        size_t n = make_hello(OTHER SNI, sizeof(OTHER SNI) - 1, piece, msg);
        assert_int_equal(tlshello_read(msg, n, name, &need), TLSHELLO_NAME);
        assert_string_equal(name, "ok.test");
        for (size_t cut = 0; cut < n; cut++) {
            assert_int_equal(tlshello_read(msg, cut, name, &need), TLSHELLO_MORE);
            assert_true(need > cut && need <= n);
        }
    }
    size_t n = make_hello(SNI, sizeof(SNI) - 1, 500, msg);
    for (size_t i = 0; i < n * 256; i++) {
        uint8_t old = msg[i / 256];
        msg[i / 256] = (uint8_t)i;
        tlshello_read(msg, n, name, &need);
        msg[i / 256] = old;
    }
}

static void test_tls_refused(void **state)
{
    (void)state;
    uint8_t msg[TLSHELLO_MAX + 100];
    char name[TLSHELLO_NAME_MAX + 1];
    size_t need;
#define HELLO(bytes) tlshello_read(msg, make_hello(bytes, sizeof(bytes) - 1, 500, msg), name, &need)
    assert_int_equal(HELLO(OTHER), TLSHELLO_NO_NAME);
    assert_int_equal(HELLO(""), TLSHELLO_NO_NAME);
    assert_int_equal(HELLO(SNI SNI), TLSHELLO_BAD);
    assert_int_equal(HELLO("\0\0\0\x0e\0\x0c\0\0\1a\0\0\5ok.tt"), TLSHELLO_BAD); /* two names */
    assert_int_equal(HELLO("\0\0\0\x0c\0\x0a\0\0\7ok\0test"), TLSHELLO_BAD);
    assert_int_equal(HELLO("\0\0\0\5\0\3\0\0\0"), TLSHELLO_BAD);
    assert_int_equal(HELLO("\0\0\0\x0c\0\x0a\1\0\7ok.test"), TLSHELLO_BAD); /* another type */
    assert_int_equal(HELLO("\0\0\0\x0c\0\x0a\0\0\x08ok.test"), TLSHELLO_BAD);
    assert_int_equal(tlshello_read((const uint8_t *)"GET / HTTP/1.1\r\n", 16, name, &need),
                     TLSHELLO_OTHER);
    /* what servers would pass over, and a hello behind it: an alert, a change of ciphers, SSL 2 */
    assert_int_equal(tlshello_read((const uint8_t *)"\x15\3\1\0\2\1\0", 7, name, &need),
                     TLSHELLO_BAD);
    assert_int_equal(tlshello_read((const uint8_t *)"\x14\3\1\0\1\1", 6, name, &need),
                     TLSHELLO_BAD);
    assert_int_equal(tlshello_read((const uint8_t *)"\x80\x2e\1\3\1\0", 6, name, &need),
                     TLSHELLO_BAD);
    assert_int_equal(tlshello_read((const uint8_t *)"\x80\x2e\2\3\1\0", 6, name, &need),
                     TLSHELLO_OTHER);
    for (unsigned first = 0x80; first <= 0xc1; first++) {
        uint8_t old[] = {(uint8_t)first, 0x2e, 1, 3, 1, 0}, text[] = {(uint8_t)first, 1, 0};
        assert_int_equal(tlshello_read(old, sizeof(old), name, &need), TLSHELLO_BAD);
        assert_int_equal(tlshello_read(text, sizeof(text), name, &need), TLSHELLO_OTHER);
    }
    /* telnet, UTF-8 */
    assert_int_equal(tlshello_read((const uint8_t *)"\xff\xfd\1", 3, name, &need), TLSHELLO_OTHER);
    assert_int_equal(tlshello_read((const uint8_t *)"\xc3", 1, name, &need), TLSHELLO_OTHER);
    size_t odd = make_hello(SNI, sizeof(SNI) - 1, 500, msg);
    /* major versions that do not exist, which Go's server takes, of every kind of record */
    for (unsigned i = 0; i < 5 * 256; i++) {
        msg[0] = (uint8_t)(0x14 + i / 256), msg[1] = (uint8_t)i;
        assert_int_equal(tlshello_read(msg, odd, name, &need), msg[0] == 0x16 && msg[1] == 3
                                                                   ? TLSHELLO_NAME
                                                               : msg[1] < 0x10 ? TLSHELLO_BAD
                                                                               : TLSHELLO_OTHER);
    }
    msg[0] = 0x16, msg[1] = 3;
    msg[2] = 9; /* a minor version that does not exist, which servers take */
    assert_int_equal(tlshello_read(msg, odd, name, &need), TLSHELLO_NAME);
    /* a hello that never ends, in records that do */
    memset(msg, 0, sizeof(msg));
    for (size_t at = 0; at + 105 < sizeof(msg); at += 105)
        memcpy(msg + at, "\x16\3\1\0\x64", 5);
    memcpy(msg + 5, "\1\0\x3f\xf0", 4);
    assert_int_equal(tlshello_read(msg, TLSHELLO_MAX, name, &need), TLSHELLO_BAD);
    memcpy(msg + 5, "\1\1\0\0", 4);
    assert_int_equal(tlshello_read(msg, 200, name, &need), TLSHELLO_BAD);
}

/* ---- HTTP -------------------------------------------------------------------------------------
 */

static struct httpwatch watch_for(const char *name)
{
    struct httpwatch w = {0};
    assert_true(nethost_parse(name, strlen(name), &w.host));
    return w;
}

/* All of it at once, and byte by byte with what did not pass held: both must say the same. */
static enum httpwatch_verdict show(const char *text, size_t len, enum httpwatch_state *ret_state)
{
    struct httpwatch whole = watch_for("ok.test"), bytes = whole;
    size_t pass = 0, held = 0, n;
    enum httpwatch_verdict a = httpwatch_step(&whole, text, len, &pass), b = HTTPWATCH_PASS;
    for (size_t end = 1; end <= len && b == HTTPWATCH_PASS; end++) {
        b = httpwatch_step(&bytes, text + held, end - held, &n);
        if (b == HTTPWATCH_PASS)
            held += n;
        if (b != HTTPWATCH_PASS && a == HTTPWATCH_PASS)
            fail_msg("byte by byte it is refused: %.60s", text);
    }
    assert_int_equal(a, b);
    if (a == HTTPWATCH_PASS) {
        assert_int_equal(pass, held);
        assert_int_equal(whole.state, bytes.state);
        assert_true(whole.state == HTTPWATCH_UPGRADE || pass == len ||
                    whole.state != HTTPWATCH_BODY);
    }
    if (ret_state)
        *ret_state = whole.state;
    return a;
}

#define SHOW(text) show(text, sizeof(text) - 1, NULL)
#define GET "GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n"
#define EVIL "GET / HTTP/1.1\r\nHost: evil.com\r\n\r\n"

static void test_http_passes(void **state)
{
    (void)state;
    static const char *const good[] = {
        GET,
        GET GET,
        "\r\n" GET,
        "GET / HTTP/1.1\nhost:OK.test\n\n",
        "GET / HTTP/1.0\r\nHost: ok.test:8080\r\n\r\n",
        "GET http://ok.test/x HTTP/1.1\r\nHost: ok.test\r\n\r\n",
        "GET http://ok.test:80 HTTP/1.0\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: ok.test.\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 5\r\n\r\nhello" GET,
        "PUT / HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 27\r\n\r\nlooks a little\r\nlike "
        "HTTP/1\r\n" GET,
        "GET / HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 4\r\n\r\nGET " GET,
        "POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\nHost: ok.test\r\n\r\n5;x=y\r\nhello\r\n"
        "A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n" GET,
        "POST / HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 0\r\n\r\n" GET,
    };
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        enum httpwatch_state end;
        if (show(good[i], strlen(good[i]), &end) != HTTPWATCH_PASS || end != HTTPWATCH_HEAD)
            fail_msg("refused: %s", good[i]);
        size_t pass;
        assert_int_equal(httpfirst_read(good[i], strlen(good[i]), false, &pass), HTTPFIRST_YES);
    }
}

static void test_http_mismatch(void **state)
{
    (void)state;
    assert_int_equal(SHOW(EVIL), HTTPWATCH_MISMATCH);
    assert_int_equal(SHOW(GET EVIL), HTTPWATCH_MISMATCH);
    assert_int_equal(SHOW("GET / HTTP/1.1\r\n\r\n"), HTTPWATCH_MISMATCH);
    assert_int_equal(SHOW("GET / HTTP/1.1\r\nHost:\r\n\r\n"), HTTPWATCH_MISMATCH);
    assert_int_equal(SHOW("GET / HTTP/1.1\r\nHost: x.ok.test\r\n\r\n"), HTTPWATCH_MISMATCH);
    assert_int_equal(SHOW("GET / HTTP/1.1\r\nHost: ok.test@evil.com\r\n\r\n"), HTTPWATCH_MISMATCH);
    assert_int_equal(SHOW("GET http://evil.com/ HTTP/1.1\r\nHost: ok.test\r\n\r\n"),
                     HTTPWATCH_MISMATCH);
    assert_int_equal(SHOW("GET http://ok.test/ HTTP/1.1\r\nHost: evil.com\r\n\r\n"),
                     HTTPWATCH_MISMATCH);
    assert_int_equal(SHOW("GET http://ok.test@evil.com/ HTTP/1.1\r\nHost: ok.test\r\n\r\n"),
                     HTTPWATCH_MISMATCH);
    assert_int_equal(SHOW("POST / HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 1\r\n\r\nx" EVIL),
                     HTTPWATCH_MISMATCH);
    assert_int_equal(
        SHOW("POST / HTTP/1.1\r\nHost: ok.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
             "\r\n" EVIL),
        HTTPWATCH_MISMATCH);
}

static void test_http_refused(void **state)
{
    (void)state;
#define HEAD(fields) "POST / HTTP/1.1\r\nHost: ok.test\r\n" fields "\r\n\r\n"
    static const char *const bad[] = {
        HEAD("Host: ok.test"),
        HEAD("Host: evil.com"),
        HEAD("X: y\r\n folded"),
        HEAD("X : y"),
        HEAD("no colon"),
        HEAD("X: a\rb"),
        HEAD("Content-Length: 1\r\nContent-Length: 1"),
        HEAD("Content-Length: 1, 1"),
        HEAD("Content-Length: +1"),
        HEAD("Content-Length: 0x1"),
        HEAD("Content-Length: 1\r\nTransfer-Encoding: chunked"),
        HEAD("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
        HEAD("Transfer-Encoding: gzip, chunked"),
        HEAD("Transfer-Encoding: xchunked"),
        HEAD("Transfer-Encoding: chunked") "x\r\n",
        HEAD("Transfer-Encoding: chunked") "1\nx\r\n",
        HEAD("Transfer-Encoding: chunked") "1\r\nxy\r\n",
        HEAD("Transfer-Encoding: chunked") "1 \r\nx\r\n",
        HEAD("Transfer-Encoding: chunked") "1111111111111111\r\n",
        HEAD("Transfer-Encoding: chunked") "5;a / HTTP/1.1\r\nHost:\r\n",
        HEAD("Content-Length: 36") EVIL "\r\n" GET,
        HEAD("Content-Length: 36") "\r\n" EVIL GET,
        HEAD("Content-Length: 34") GET GET,
        HEAD("Content-Length: 7") "GET /\r\n" GET,
        HEAD("Content-Length: 15") "GET /x HTTP/1.1\r\n" GET,
        HEAD("Content-Length: 99") "get\tx  http/1.1\nhost: evil.com\n\n",
        "POST / HTTP/1.0\r\nHost: ok.test\r\nTransfer-Encoding: chunked\r\n\r\n",
        "CONNECT ok.test:443 HTTP/1.1\r\nHost: ok.test\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "GET /\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: ok.test\r\n\r\n",
        "GET / HTTP/1.1 \r\nHost: ok.test\r\n\r\n",
        "GET /\tx HTTP/1.1\r\nHost: ok.test\r\n\r\n",
        "GET ftp://ok.test/ HTTP/1.1\r\nHost: ok.test\r\n\r\n",
        "GET ok.test HTTP/1.1\r\nHost: ok.test\r\n\r\n",
        " GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n",
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        if (show(bad[i], strlen(bad[i]), NULL) != HTTPWATCH_REFUSED)
            fail_msg("passed: %s", bad[i]);
    }
    assert_int_equal(SHOW("GET /\0 HTTP/1.1\r\nHost: ok.test\r\n\r\n"), HTTPWATCH_REFUSED);
    char big[HTTPWATCH_HEAD_MAX] = "GET / HTTP/1.1\r\nHost: ok.test\r\nX: ";
    memset(big + strlen(big), 'x', sizeof(big) - strlen(big));
    struct httpwatch w = watch_for("ok.test");
    size_t pass;
    assert_int_equal(httpwatch_step(&w, big, sizeof(big), &pass), HTTPWATCH_REFUSED);
}

static void test_http_upgrade(void **state)
{
    (void)state;
    static const char ask[] = "GET / HTTP/1.1\r\nHost: ok.test\r\nConnection: Upgrade\r\n"
                              "Upgrade: websocket\r\n\r\n";
    static const char h2c[] = "GET / HTTP/1.1\r\nHost: ok.test\r\nUpgrade: h2c\r\n\r\n";
    struct httpwatch w = watch_for("ok.test");
    size_t pass;
    assert_int_equal(httpwatch_step(&w, ask, sizeof(ask) - 1, &pass), HTTPWATCH_PASS);
    assert_int_equal(pass, sizeof(ask) - 1);
    assert_int_equal(httpwatch_step(&w, EVIL, sizeof(EVIL) - 1, &pass), HTTPWATCH_PASS);
    assert_int_equal(pass, 0); /* held until the server has answered */
    assert_false(httpwatch_answer(&w, "HTTP/1.1 1", 10));
    assert_true(httpwatch_answer(&w, "HTTP/1.1 200 OK", 15));
    assert_int_equal(httpwatch_step(&w, EVIL, sizeof(EVIL) - 1, &pass), HTTPWATCH_MISMATCH);

    w = watch_for("ok.test");
    assert_int_equal(httpwatch_step(&w, ask, sizeof(ask) - 1, &pass), HTTPWATCH_PASS);
    assert_true(httpwatch_answer(&w, "HTTP/1.1 101 Switching", 22));
    assert_int_equal(httpwatch_step(&w, "\x81\x80", 2, &pass), HTTPWATCH_PASS);
    assert_int_equal(pass, 2);

    w = watch_for("ok.test");
    assert_int_equal(httpwatch_step(&w, h2c, sizeof(h2c) - 1, &pass), HTTPWATCH_PASS);
    assert_true(httpwatch_answer(&w, "HTTP/1.1 101 Switching", 22));
    assert_int_equal(httpwatch_step(&w, "PRI * HTTP", 10, &pass), HTTPWATCH_REFUSED);
}

/* Behind another request, or behind a body that the server may answer early, the bytes that come
 * next may be the middle of an answer, whose text a guest can often choose. */
static void test_http_late_upgrade(void **state)
{
    (void)state;
    static const char wish[] = "Upgrade: websocket\r\n", h2[] = "Upgrade: h2c\r\n";
    static const char get[] = "GET / HTTP/1.1\r\nHost: ok.test\r\n";
    static const struct {
        const char *before, *ask;
        enum httpwatch_verdict verdict;
    } rows[] = {
        {"", wish, HTTPWATCH_PASS},
        {"\r\n", wish, HTTPWATCH_REFUSED},
        {"Upgrade: h2c\r\n\r\n", wish, HTTPWATCH_REFUSED},
        {"", "Upgrade: websocket\r\nContent-Length: 1\r\n", HTTPWATCH_REFUSED},
        {"", "Upgrade: websocket\r\nTransfer-Encoding: chunked\r\n", HTTPWATCH_REFUSED},
        {"\r\n", h2, HTTPWATCH_PASS},
        {"", "Upgrade: h2c\r\nContent-Length: 1\r\n", HTTPWATCH_PASS},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct httpwatch w = watch_for("ok.test");
        char text[256];
        size_t pass;
        if (rows[i].before[0]) {
            int n = snprintf(text, sizeof(text), "%s%s", get, rows[i].before);
            assert_int_equal(httpwatch_step(&w, text, (size_t)n, &pass), HTTPWATCH_PASS);
            httpwatch_answer(&w, "HTTP/1.1 200 OK", 15);
        }
        int n = snprintf(text, sizeof(text), "%s%s\r\n", get, rows[i].ask);
        assert_int_equal(httpwatch_step(&w, text, (size_t)n, &pass), rows[i].verdict);
        if (i == 0 || rows[i].verdict != HTTPWATCH_PASS)
            continue;
        /* what looks like consent changes nothing */
        if (w.left > 0)
            httpwatch_passed(&w, w.left);
        httpwatch_answer(&w, "HTTP/1.1 101 Switching", 22);
        assert_int_equal(httpwatch_step(&w, EVIL, sizeof(EVIL) - 1, &pass), HTTPWATCH_MISMATCH);
        assert_int_equal(httpwatch_step(&w, "PRI * HTTP/2.0\r\n", 16, &pass), HTTPWATCH_REFUSED);
    }
}

static enum httpfirst is_http(const char *text)
{
    size_t pass = 0;
    return httpfirst_read(text, strlen(text), false, &pass);
}

#define LONG_WORD "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz"

static void test_first_is_another_protocol(void **state)
{
    (void)state;
    static const char *const other[] = {"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n",
                                        "*1\r\n$4\r\nPING\r\n",
                                        "EHLO me.test\r\n",
                                        "SET key value\r\n",
                                        "GET key\r\n",
                                        "get key\r\n",
                                        "delete key\r\n",
                                        "HEAD 17\r\n",
                                        "POST\r\n",
                                        "PING\r\n",
                                        "USER a 0 * :b HTT\r\n",
                                        "INVITE sip:bob@ok.test SIP/2.0\r\n",
                                        "get SERVICE/ICE/7\r\n",
                                        "{\"query\": \"GET / HTTP/1.1\"}\r\n",
                                        "{\"url\": \"http://ok.test/\"}\r\n",
                                        "{\"a\": \"b HTTP/1.1\"}\r\n",
                                        "<34>1 2003-10-11T22:14:15Z a \"GET / HTTP/1.1\" 200\r\n",
                                        LONG_WORD "\r\n"};
    /* no line yet, or none for everybody: it passes, and is looked at again */
    static const char *const unsure[] = {
        "",       "GE",         "\r\n",      "x",       "x y z",  " ",        "hello wor",
        "PING\n", "a b\nc d\n", "GET key\n", LONG_WORD, "\x05\1", "{\"a\":1}"};
    size_t pass;
    for (size_t i = 0; i < ARRAY_SIZE(other); i++) {
        if (is_http(other[i]) != HTTPFIRST_NO)
            fail_msg("taken for HTTP: %s", other[i]);
        assert_int_equal(httpfirst_read(other[i], strlen(other[i]) - 2, true, &pass), HTTPFIRST_NO);
    }
    for (size_t i = 0; i < ARRAY_SIZE(unsure); i++) {
        size_t n = strlen(unsure[i]);
        pass = 99;
        assert_int_equal(httpfirst_read(unsure[i], n, false, &pass), HTTPFIRST_UNSURE);
        assert_int_equal(pass, n);
        assert_int_equal(httpfirst_read(unsure[i], n, true, &pass), HTTPFIRST_NO);
    }
    static const char git[] = "0033git-upload-pack /project.git\0host=ok.test\0"
                              "0032want 7\n";
    static const char postgres[] = "\0\0\0\x08\4\xd2\x16/";
    assert_int_equal(httpfirst_read(git, 46, false, &pass), HTTPFIRST_NO);
    assert_int_equal(httpfirst_read(git, sizeof(git) - 1, false, &pass), HTTPFIRST_NO);
    assert_int_equal(httpfirst_read(postgres, 8, false, &pass), HTTPFIRST_UNSURE);
    assert_int_equal(pass, 8);
}

static void test_first_is_http(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t pass; /* of it, while the line has no end */
    } http[] = {
        {"GET / HTTP/1.1\r\n", 4},
        {"get / HTTP/1.1\r\n", 4},
        {"BREW / http/1.1\r\n", 5},
        {"GET\t/\tHTTP/1.1\n", 4},
        {"GET\v/ HTTP/1.1\r\n", 4},
        {" \r\n GET / HTTP/1.1\r\n", 8},
        {"BREW\xa0/ HTTP/1.1\r\n", 5},
        {"GET /\r\n", 4},
        {"GET http://evil.com/\r\n", 4},
        {"PRI * HTTP/2.0\r\n", 4},
        {"X \x01\x80 HTTP/1.1\n", 99},
        {"GET x HTTP/1.1\n", 99},
        /* methods of any length and any bytes: Go's server, the JDK's */
        {LONG_WORD " / HTTP/1.1\r\n", 44},
        {"G@T / HTTP/1.1\r\n", 99},
        {"\x01 / HTTP/1.1\r\n", 99},
        {"\x01 x HTTP/1.1\r\n", 99},
        {"PO\nST / HTTP/1.1\r\n", 99},
        {"\xef\xbb\xbfGET / HTTP/1.1\r\n", 99},
        /* other versions: Node's, the JDK's, which takes any */
        {"OPTIONS / RTSP/1.1\r\n", 8},
        {"SOURCE x ICE/1.1\r\n", 99},
        {"POST / X\r\n", 5},
        {"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\n", 99},
        {"PROXY UNKNOWN\r\n", 99},
        {"POST /\r\n", 5},
    };
    for (size_t i = 0; i < ARRAY_SIZE(http); i++) {
        const char *text = http[i].text;
        size_t n = strlen(text), pass;
        if (is_http(text) != HTTPFIRST_YES)
            fail_msg("not taken for HTTP: %s", text);
        for (size_t cut = 0; cut < n; cut++) { /* never decided the other way before */
            assert_int_equal(httpfirst_read(text, cut, false, &pass), HTTPFIRST_UNSURE);
            bool is_absolute = strstr(text, "://") && cut < strlen("GET http://");
            assert_int_equal(pass, is_absolute ? cut : MIN(cut, http[i].pass));
        }
        assert_int_equal(httpfirst_read(text, n - (text[n - 2] == '\r' ? 2 : 1), true, &pass),
                         HTTPFIRST_YES);
    }
    static const char mark[] = "\r\n\r\n\0\r\nQUIT\n";
    size_t pass;
    for (size_t cut = 0; cut < sizeof(mark) - 1; cut++)
        assert_int_equal(httpfirst_read(mark, cut, false, &pass), HTTPFIRST_UNSURE);
    assert_int_equal(httpfirst_read(mark, sizeof(mark) - 1, false, &pass), HTTPFIRST_YES);
    char big[HTTPFIRST_MAX];
    memset(big, 'x', sizeof(big));
    assert_int_equal(httpfirst_read(big, sizeof(big), false, &pass), HTTPFIRST_UNSURE);
    assert_int_equal(pass, sizeof(big));
    memcpy(big, "GET /", 5);
    assert_int_equal(httpfirst_read(big, sizeof(big) - 1, false, &pass), HTTPFIRST_UNSURE);
    assert_int_equal(httpfirst_read(big, sizeof(big), false, &pass), HTTPFIRST_YES);
    memcpy(big, "hello xx", 8);
    assert_int_equal(httpfirst_read(big, sizeof(big), false, &pass), HTTPFIRST_NO);
}

static void test_first_of_a_body(void **state)
{
    (void)state;
    static const char *const ordinary[] = {"see http://ok.test/ for more\n",
                                           "see /etc/passwd\n",
                                           "{\"query\": \"GET / HTTP/1.1\"}\n",
                                           "a=1&b=%2F",
                                           "POST / X\n",
                                           "hello",
                                           "GET key\n"};
    for (size_t i = 0; i < ARRAY_SIZE(ordinary); i++)
        if (httpfirst_read_body(ordinary[i], strlen(ordinary[i]), true) != HTTPFIRST_NO)
            fail_msg("taken for HTTP: %s", ordinary[i]);
    assert_int_equal(httpfirst_read_body(LONG_WORD " / HTTP/1.1\n", 55, false), HTTPFIRST_YES);
    assert_int_equal(httpfirst_read_body("GET /x HTTP/1.1", 15, false), HTTPFIRST_UNSURE);
    assert_int_equal(httpfirst_read_body("GET /x HTTP/1.1", 15, true), HTTPFIRST_YES);
    assert_int_equal(httpfirst_read_body("GET http://evil.com/x", 21, true), HTTPFIRST_YES);
}

static void test_first_of_an_answer(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t len;
        enum httpfirst is;
    } rows[] = {
        {"", 0, HTTPFIRST_UNSURE},
        {"HTTP/1", 6, HTTPFIRST_UNSURE},
        {"HTTP/1.1 200", 12, HTTPFIRST_YES},
        {"HTTP/0.9", 8, HTTPFIRST_YES},
        {"HTTP/2", 6, HTTPFIRST_NO},
        {"HELO", 4, HTTPFIRST_NO},
        {"\x15\x03", 2, HTTPFIRST_UNSURE},
        {"\x15\x03\x03\0", 4, HTTPFIRST_YES},
        {"\x16\x03\x01\0", 4, HTTPFIRST_YES},
        {"\x16\x03\x20\0", 4, HTTPFIRST_NO},
        {"S\x16\x03\x01", 4, HTTPFIRST_NO}, /* Postgres agrees to TLS */
        {"220 ok.test", 11, HTTPFIRST_NO},
        {"SSH-2.0-x", 9, HTTPFIRST_NO},
        {"$5\r\nhello\r\n", 11, HTTPFIRST_NO},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (httpfirst_read_answer(rows[i].text, rows[i].len) != rows[i].is)
            fail_msg("row %zu", i);
}

/* ---- proxy ------------------------------------------------------------------------------------
 */

static void test_proxy(void **state)
{
    (void)state;
    struct cordon_err err;
    struct proxyconnect p;
    struct nethost host;
    char text[1024];
    assert_int_equal(proxyconnect_parse_url("http://us%65r:p%40ss@proxy.test:3128/", &p, &err), 0);
    assert_string_equal(p.host.name, "proxy.test");
    assert_int_equal(p.port, 3128);
    assert_string_equal(p.auth, "dXNlcjpwQHNz");
    assert_true(nethost_parse("[2001:db8::1]", 13, &host));
    size_t n = proxyconnect_request(&p, &host, 443, text, sizeof(text));
    assert_int_equal(n, strlen(text));
    assert_string_equal(text, "CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: [2001:db8::1]:443\r\n"
                              "Proxy-Authorization: Basic dXNlcjpwQHNz\r\n\r\n");
    assert_int_equal(proxyconnect_request(&p, &host, 443, text, 50), 0);
    static const char *const bad[] = {"",
                                      "http://",
                                      "https://proxy.test",
                                      "socks5://proxy.test:1080",
                                      "http://pro xy",
                                      "http://proxy:0",
                                      "http://a%zz@proxy"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(proxyconnect_parse_url(bad[i], &p, &err), -1);

    size_t len = 0;
    int status = 0;
    static const char ok[] = "HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\nSSH-2.0";
    for (size_t cut = 0; cut < 45; cut++)
        assert_int_equal(proxyconnect_read(ok, cut, &len, &status), PROXYCONNECT_MORE);
    assert_int_equal(proxyconnect_read(ok, sizeof(ok) - 1, &len, &status), PROXYCONNECT_OPEN);
    assert_string_equal(ok + len, "SSH-2.0");
    assert_int_equal(proxyconnect_read("HTTP/1.0 407 no\r\n\r\n", 19, &len, &status),
                     PROXYCONNECT_REFUSED);
    assert_int_equal(status, 407);
    assert_int_equal(proxyconnect_read("SSH-2.0-x", 9, &len, &status), PROXYCONNECT_BAD);
    assert_int_equal(proxyconnect_read("HTTP/1.1 2x0", 12, &len, &status), PROXYCONNECT_BAD);
    char big[PROXYCONNECT_HEAD_MAX];
    memset(big, 'x', sizeof(big));
    memcpy(big, "HTTP/1.1 200 ", 13);
    assert_int_equal(proxyconnect_read(big, sizeof(big), &len, &status), PROXYCONNECT_BAD);
}

/* ---- heads of packets -------------------------------------------------------------------------
 */

/* An IPv6 packet for 2001:db8::1, behind the headers given. */
static size_t packet6(uint8_t *ret, uint8_t protocol, const uint8_t *rest, size_t len)
{
    memset(ret, 0, 40);
    ret[0] = 0x60;
    ret[6] = protocol;
    memcpy(ret + 24, v6, 16);
    memcpy(ret + 40, rest, len);
    return 40 + len;
}

static void test_packet_heads(void **state)
{
    (void)state;
    /* a fragment's header (first or later), a route of two segments, then UDP for port 53 */
    static const uint8_t udp[] = {0x9c, 0x40, 0, 53, 0, 8, 0, 0};
    static const uint8_t first[] = {17, 0, 0, 1, 0, 0, 0, 9, 0x9c, 0x40, 0, 53, 0, 8, 0, 0};
    static const uint8_t later[] = {17, 0, 5, 0xa9, 0, 0, 0, 9, 0x9c, 0x40, 0, 53, 0, 8, 0, 0};
    static const uint8_t routed[] = {17, 0, 4, 0, 0, 0, 0, 0, 0x9c, 0x40, 0, 53, 0, 8, 0, 0};
    static const uint8_t endless[] = {60, 255, 0, 0, 0, 0, 0, 0, 60, 0, 0, 0, 0, 0, 0, 0};
    static const struct {
        uint8_t protocol;
        const uint8_t *rest;
        size_t len;
        bool good;
    } cases[] = {{17, udp, sizeof(udp), true},          {44, first, sizeof(first), true},
                 {44, later, sizeof(later), false},     {43, routed, sizeof(routed), true},
                 {60, endless, sizeof(endless), false}, {58, udp, sizeof(udp), false}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint8_t packet[PACKETHEAD_MAX], *exact;
        struct packethead head;
        size_t len = packet6(packet, cases[i].protocol, cases[i].rest, cases[i].len);
        assert_int_equal(packethead_read(packet, len, &head), cases[i].good);
        assert_true(!cases[i].good || (head.is_udp && head.is_v6 && head.port == 53 &&
                                       memcmp(head.dst, v6, 16) == 0));
        for (size_t cut = 0; cut < len; cut++) {
            assert_non_null(exact = malloc(cut ? cut : 1));
            memcpy(exact, packet, cut);
            (void)packethead_read(exact, cut, &head);
            free(exact);
        }
    }
    /* TCP: the first packet of a connection and no other */
    uint8_t tcp[20] = {0x9c, 0x40, 0x01, 0xbb, [12] = 0x50}, packet[PACKETHEAD_MAX];
    for (unsigned flags = 0; flags < 256; flags++) {
        struct packethead head;
        tcp[13] = (uint8_t)flags;
        size_t len = packet6(packet, 6, tcp, sizeof(tcp));
        assert_int_equal(packethead_read(packet, len, &head), (flags & 0x12) == 0x02);
        assert_true((flags & 0x12) != 0x02 || (!head.is_udp && head.port == 443));
    }
}

/* A program that is not the command is not started as a broker: `python3 broker` would run a file.
 */
static void test_broker_of_another_program(void **state)
{
    (void)state;
    struct netclient *client = NULL;
    struct cordon_err err = {0};
    assert_int_equal(netclient_start(&client, &err), -1);
    assert_null(client);
    assert_int_equal(err.code, CORDON_ERR_INTERNAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dns_query),
        cmocka_unit_test(test_dns_odd_names),
        cmocka_unit_test(test_dns_aliases),
        cmocka_unit_test(test_tls_name),
        cmocka_unit_test(test_tls_refused),
        cmocka_unit_test(test_http_passes),
        cmocka_unit_test(test_http_mismatch),
        cmocka_unit_test(test_http_refused),
        cmocka_unit_test(test_http_upgrade),
        cmocka_unit_test(test_http_late_upgrade),
        cmocka_unit_test(test_first_is_another_protocol),
        cmocka_unit_test(test_first_is_http),
        cmocka_unit_test(test_first_of_a_body),
        cmocka_unit_test(test_first_of_an_answer),
        cmocka_unit_test(test_proxy),
        cmocka_unit_test(test_packet_heads),
        cmocka_unit_test(test_broker_of_another_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
