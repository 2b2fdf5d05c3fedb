/* The streams of a container: frames apart, reports out of standard error at every possible cut;
 * and the filter as a profile for engines, against the filter itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/docker/stdio.h"
#include "base/jsonw.h"
#include "base/util.h"
#include "plan/seccomp.h"

static void frame(struct buf *b, int stream, const void *data, size_t len)
{
    unsigned char head[8] = {(unsigned char)stream,
                             0,
                             0,
                             0,
                             (unsigned char)(len >> 24),
                             (unsigned char)(len >> 16),
                             (unsigned char)(len >> 8),
                             (unsigned char)len};
    buf_add(b, head, sizeof(head));
    buf_add(b, data, len);
}

static void report(struct buf *b, const uint8_t *secret, uint32_t kind)
{
    struct init_report r = {.kind = kind, .wstatus = 7};
    buf_add(b, secret, INIT_SECRET);
    buf_add(b, &r, sizeof(r));
}

/* Feeds the bytes in pieces of `step` and gives what came out on standard error. */
static void feed(struct stdio *s, const struct buf *bytes, size_t step, struct buf *ret_err)
{
    int attach[2], out[2], err[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, attach), 0);
    assert_int_equal(pipe2(out, O_NONBLOCK), 0);
    assert_int_equal(pipe2(err, O_NONBLOCK), 0);
    assert_int_equal(stdio_begin(s, attach[0], "", 0), 0);
    s->in_fd = -1;
    s->out[0].fd = out[1];
    s->out[1].fd = err[1];
    for (size_t at = 0; at < bytes->len; at += step) {
        size_t n = MIN(step, bytes->len - at);
        assert_int_equal(write(attach[1], bytes->data + at, n), n);
        struct pollfd fds[STDIO_FDS] = {{.revents = POLLIN}};
        assert_int_equal(stdio_step(s, fds), 0);
    }
    close(attach[1]);
    struct pollfd fds[STDIO_FDS] = {{.revents = POLLIN}};
    while (!s->attach_ended)
        assert_int_equal(stdio_step(s, fds), 0);
    char chunk[65536];
    ssize_t n;
    while ((n = read(err[0], chunk, sizeof(chunk))) > 0)
        buf_add(ret_err, chunk, (size_t)n);
    for (int i = 0; i < 2; i++) {
        close(out[i]);
        close(err[i]);
    }
    close(attach[0]);
}

static struct stdio fresh(void)
{
    struct stdio s = {0};
    memset(s.start_secret, 'S', INIT_SECRET);
    memset(s.end_secret, 'E', INIT_SECRET);
    s.end_secret[INIT_SECRET - 1] = 'x';
    return s;
}

/* The guest's bytes hold beginnings of both secrets, right before the real ones too. */
static void test_reports_at_every_cut(void **state)
{
    (void)state;
    for (size_t step = 1; step < 120; step++) {
        struct stdio s = fresh();
        _cleanup_buf_ struct buf text = BUF_INIT(1 << 20), bytes = BUF_INIT(1 << 20),
                                 err = BUF_INIT(1 << 20);
        report(&text, s.start_secret, INIT_STARTED);
        buf_str(&text, "EEEE one SSSSSSSSSSSSSSSSSSSS two EEEEEEEEEEEEEEE");
        report(&text, s.end_secret, INIT_EXITED);
        for (size_t at = 0; at < text.len; at += 97)
            frame(&bytes, 2, text.data + at, MIN(97u, text.len - at));
        feed(&s, &bytes, step, &err);
        assert_true(s.started && s.ended);
        assert_int_equal(s.report.kind, INIT_EXITED);
        assert_int_equal(s.report.wstatus, 7);
        const char *want = "EEEE one SSSSSSSSSSSSSSSSSSSS two EEEEEEEEEEEEEEE";
        assert_int_equal(err.len, strlen(want));
        assert_memory_equal(err.data, want, err.len);
        stdio_done(&s);
    }
}

static void test_no_report_loses_nothing(void **state)
{
    (void)state;
    struct stdio s = fresh();
    _cleanup_buf_ struct buf bytes = BUF_INIT(1 << 20), err = BUF_INIT(1 << 20);
    frame(&bytes, 2, "text SSSSSSS", 12);
    frame(&bytes, 1, "out", 3);
    feed(&s, &bytes, 5, &err);
    assert_false(s.started || s.ended);
    assert_int_equal(err.len, 12);
    stdio_done(&s);
}

/* The engine carries both streams by themselves: output that overtook the first report waits for
 * it, however much it is, and then goes out whole. */
static void test_output_waits_for_the_start(void **state)
{
    (void)state;
    struct stdio s = fresh();
    _cleanup_buf_ struct buf out_bytes = BUF_INIT(1 << 20), text = BUF_INIT(1 << 20),
                             err_bytes = BUF_INIT(1 << 20);
    char chunk[4096];
    int attach[2], out[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, attach), 0);
    assert_int_equal(pipe2(out, O_NONBLOCK), 0);
    assert_int_equal(stdio_begin(&s, attach[0], "", 0), 0);
    s.in_fd = -1;
    s.out[0].fd = out[1];
    s.out[1].fd = -1;
    memset(chunk, 'y', sizeof(chunk));
    frame(&out_bytes, 1, chunk, sizeof(chunk));
    struct pollfd fds[STDIO_FDS];
    for (int i = 0; i < 100; i++) { /* more than is read ahead of a slow reader */
        assert_int_equal(write(attach[1], out_bytes.data, out_bytes.len), out_bytes.len);
        stdio_poll(&s, fds);
        assert_int_equal(fds[0].fd, attach[0]);
        assert_int_equal(fds[2].fd, -1);
        fds[0].revents = POLLIN;
        assert_int_equal(stdio_step(&s, fds), 0);
    }
    assert_int_equal(read(out[0], chunk, 1), -1);
    report(&text, s.start_secret, INIT_STARTED);
    frame(&err_bytes, 2, text.data, text.len);
    assert_int_equal(write(attach[1], err_bytes.data, err_bytes.len), err_bytes.len);
    size_t got = 0;
    for (int i = 0; i < 1000 && got < 100 * sizeof(chunk); i++) {
        fds[0].revents = POLLIN;
        assert_int_equal(stdio_step(&s, fds), 0);
        ssize_t n;
        while ((n = read(out[0], chunk, sizeof(chunk))) > 0)
            got += (size_t)n;
    }
    assert_true(s.started);
    assert_int_equal(got, 100 * sizeof(chunk));
    for (int i = 0; i < 2; i++) {
        close(out[i]);
        close(attach[i]);
    }
    stdio_done(&s);
}

static void test_failure_before_the_start(void **state)
{
    (void)state;
    struct stdio s = fresh();
    _cleanup_buf_ struct buf text = BUF_INIT(1 << 20), bytes = BUF_INIT(1 << 20),
                             err = BUF_INIT(1 << 20);
    report(&text, s.end_secret, INIT_FAILED);
    frame(&bytes, 2, text.data, text.len);
    feed(&s, &bytes, 50, &err);
    assert_true(!s.started && s.ended);
    assert_int_equal(err.len, 0);
    stdio_done(&s);
}

/* What the profile allows and refuses is what the filter does, number by number: combined with our
 * own profile the built-in filter must not change. */
static void test_profile_is_the_filter(void **state)
{
    (void)state;
    struct seccomp_options options = {0};
    struct seccomp_prog plain, both;
    struct cordon_err err = {0};
    _cleanup_buf_ struct buf text = BUF_INIT(1 << 20);
    struct jsonw j = {.out = &text};
    seccomp_oci_write(&j, NULL, &options);
    assert_int_equal(seccomp_build(&options, &plain, &err), 0);
    if (seccomp_profile_build(&options, "own", text.data, text.len, &both, NULL, &err) < 0)
        fail_msg("%s", err.message);
    for (int nr = 0; nr < 600; nr++) {
        struct seccomp_data data = {.nr = nr, .arch = AUDIT_ARCH_X86_64};
        if (nr == 41) /* socket: a family the profile names */
            data.args[0] = AF_UNIX, data.args[1] = SOCK_STREAM;
        uint32_t a = seccomp_eval(&plain, &data), b = seccomp_eval(&both, &data);
        if ((a == SECCOMP_RET_ALLOW) != (b == SECCOMP_RET_ALLOW))
            fail_msg("call %d: %#x by itself, %#x with its profile", nr, a, b);
    }
    seccomp_done(&plain);
    seccomp_done(&both);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reports_at_every_cut),
        cmocka_unit_test(test_no_report_loses_nothing),
        cmocka_unit_test(test_output_waits_for_the_start),
        cmocka_unit_test(test_failure_before_the_start),
        cmocka_unit_test(test_profile_is_the_filter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
