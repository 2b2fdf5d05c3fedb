/* Streams between a guest and its caller, with pipes and a pseudo terminal made here: caps, slow
 * and broken readers, escape sequences, input from memory, files and pipes. */
#include "supervise/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <termios.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"

#define ROUNDS 10000

static struct loop loop;

static void make_pipe(int fds[2])
{
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
}

static void put(int fd, const char *text)
{
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

static void spin(int rounds)
{
    for (int i = 0; i < rounds; i++)
        assert_true(loop_once(&loop, 0) >= 0);
}

static int set_up(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    return loop_init(&loop);
}

static int tear_down(void **state)
{
    (void)state;
    loop_done(&loop);
    return 0;
}

/* ---- output ---- */

static int truncations;

static void count_truncation(struct stream_out *s)
{
    (void)s;
    truncations++;
}

static void output_is_capped_and_counted(void **state)
{
    (void)state;
    int guest[2], sink[2];
    make_pipe(guest);
    make_pipe(sink);
    struct stream_out s = {.on_truncated = count_truncation};
    truncations = 0;
    assert_int_equal(stream_out_start(&s, &loop, guest[0], sink[1], true, 10), 0);
    assert_int_equal(stream_out_watch(&s), 0);
    put(guest[1], "12345678");
    spin(3);
    assert_false(s.truncated);
    put(guest[1], "abcdef");
    spin(3);
    put(guest[1], "more");
    spin(3);
    assert_true(s.truncated);
    assert_int_equal(truncations, 1);
    assert_int_equal(s.total, 18);
    assert_string_equal(s.kept.data, "12345678ab");
    char got[64] = {0};
    assert_int_equal(read(sink[0], got, sizeof(got)), 10); /* the cap holds for both */
    assert_string_equal(got, "12345678ab");
    close(guest[1]);
    spin(3);
    assert_true(s.ended);
    stream_out_done(&s);
    stream_out_done(&s);
    close(guest[0]);
    close(sink[0]);
    close(sink[1]);
}

static void exactly_the_cap_is_not_truncated(void **state)
{
    (void)state;
    int guest[2];
    make_pipe(guest);
    struct stream_out s = {0};
    assert_int_equal(stream_out_start(&s, &loop, guest[0], -1, true, 4), 0);
    put(guest[1], "1234");
    close(guest[1]);
    stream_out_drain(&s);
    assert_false(s.truncated);
    assert_int_equal(s.total, 4);
    assert_string_equal(s.kept.data, "1234");
    stream_out_done(&s);
    close(guest[0]);
}

static void nothing_is_kept_unless_asked(void **state)
{
    (void)state;
    int guest[2];
    make_pipe(guest);
    struct stream_out s = {0};
    assert_int_equal(stream_out_start(&s, &loop, guest[0], -1, false, 100), 0);
    put(guest[1], "text");
    close(guest[1]);
    stream_out_drain(&s);
    assert_int_equal(s.total, 4);
    assert_int_equal(s.kept.len, 0);
    stream_out_done(&s);
    close(guest[0]);
}

/* A reader that does not read holds the guest back; it does not fill our memory. */
static void slow_reader_holds_the_guest_back(void **state)
{
    (void)state;
    int guest[2], sink[2];
    make_pipe(guest);
    make_pipe(sink);
    fcntl(guest[1], F_SETFL, O_NONBLOCK);
    struct stream_out s = {0};
    assert_int_equal(stream_out_start(&s, &loop, guest[0], sink[1], false, UINT64_MAX), 0);
    assert_int_equal(stream_out_watch(&s), 0);
    static char block[65536];
    memset(block, 'x', sizeof(block));
    uint64_t written = 0;
    for (int i = 0; i < 100; i++) {
        ssize_t n = write(guest[1], block, sizeof(block));
        written += n > 0 ? (uint64_t)n : 0;
        spin(2);
    }
    assert_true(s.total <= 3 * sizeof(block));
    assert_true(written <= 4 * sizeof(block));
    /* the sink's own mode was not changed: others may share it */
    assert_int_equal(fcntl(sink[1], F_GETFL) & O_NONBLOCK, 0);
    /* once somebody reads, everything comes */
    close(guest[1]);
    fcntl(sink[0], F_SETFL, O_NONBLOCK);
    uint64_t got = 0;
    for (int i = 0; i < ROUNDS && got < written; i++) {
        ssize_t n = read(sink[0], block, sizeof(block));
        got += n > 0 ? (uint64_t)n : 0;
        spin(1);
    }
    assert_int_equal(got, written);
    stream_out_done(&s);
    close(guest[0]);
    close(sink[0]);
    close(sink[1]);
}

static void broken_reader_does_not_stop_the_guest(void **state)
{
    (void)state;
    int guest[2], sink[2];
    make_pipe(guest);
    make_pipe(sink);
    struct stream_out s = {0};
    assert_int_equal(stream_out_start(&s, &loop, guest[0], sink[1], true, 1000), 0);
    assert_int_equal(stream_out_watch(&s), 0);
    close(sink[0]);
    for (int i = 0; i < 5; i++) {
        put(guest[1], "line\n");
        spin(3);
    }
    close(guest[1]);
    stream_out_drain(&s);
    assert_int_equal(s.total, 25);
    assert_int_equal(s.kept.len, 25);
    stream_out_done(&s);
    close(guest[0]);
    close(sink[1]);
}

/* A regular file cannot be polled. */
static void file_as_reader(void **state)
{
    (void)state;
    int guest[2], file = memfd_create("sink", MFD_CLOEXEC);
    make_pipe(guest);
    struct stream_out s = {0};
    assert_int_equal(stream_out_start(&s, &loop, guest[0], file, false, 1000), 0);
    assert_int_equal(stream_out_watch(&s), 0);
    put(guest[1], "into a file");
    spin(3);
    char got[64] = {0};
    assert_int_equal(pread(file, got, sizeof(got), 0), 11);
    assert_string_equal(got, "into a file");
    close(guest[1]);
    stream_out_drain(&s);
    stream_out_done(&s);
    close(guest[0]);
    close(file);
}

/* What was written before the end is not lost, even if nobody looked in between. */
static void drained_after_the_end(void **state)
{
    (void)state;
    int guest[2];
    make_pipe(guest);
    struct stream_out s = {0};
    assert_int_equal(stream_out_start(&s, &loop, guest[0], -1, true, 1 << 20), 0);
    assert_int_equal(stream_out_watch(&s), 0);
    static char block[60000];
    memset(block, 'y', sizeof(block));
    assert_int_equal(write(guest[1], block, sizeof(block)), (ssize_t)sizeof(block));
    /* a process left behind holds the pipe open: the drain does not wait for it */
    stream_out_drain(&s);
    assert_int_equal(s.total, sizeof(block));
    assert_int_equal(s.kept.len, sizeof(block));
    close(guest[1]);
    stream_out_done(&s);
    close(guest[0]);
}

static void terminal_gets_no_escape_sequences(void **state)
{
    (void)state;
    static const struct {
        const char *guest, *shown;
    } rows[] = {
        {"plain\ttext\r\n", "plain\ttext\r\n"},
        {"\x1b[31mred\x1b[0m", "red"},
        {"\x1b]0;title\x07 after", " after"},
        {"\x1b]0;title\x1b\\ after", " after"},
        {"\x1bP1$r\x1b\\dcs", "dcs"},
        {"\x1b_apc\x1b\\x", "x"},
        {"\x1b[6n\x1b[2J\x1b[H", ""},
        {"bell\x07 back\x08 del\x7f nul", "bell back del nul"},
        {"\x1b\x1b[1mx", "x"},
        {"\x1b(0q", "0q"},
        {"caf\xc3\xa9", "caf\xc3\xa9"},
        {"\xc3\x80 \xe2\x80\x9c \xf0\x9f\x98\x80", "\xc3\x80 \xe2\x80\x9c \xf0\x9f\x98\x80"},
        {"a\x9b"
         "31mb",
         "ab"},
        {"a\x9d"
         "0;title\x07"
         "b",
         "ab"},
        {"a\xc2\x9b"
         "31mb",
         "a\xc2"
         "b"},
        {"a\x84\x85\x8d"
         "b\xa9",
         "ab\xa9"},
        {"\xe2\x9b"
         "31mx",
         "\xe2\x9b"
         "31mx"},
        {"\xc3\x9b"
         "31mx",
         "\xc3\x9b"
         "31mx"},
        {"\xe0\x82\x9b"
         "31mx",
         "\xe0x"},
        {"\xf0\x80\x82\x9b"
         "31mx",
         "\xf0x"},
        {"\xf5\x9b"
         "31mx",
         "\xf5x"},
        {"\xe2\x1b[31mx", "\xe2x"},
    };
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    int terminal = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(terminal >= 0);
    struct termios raw;
    tcgetattr(terminal, &raw);
    cfmakeraw(&raw);
    tcsetattr(terminal, TCSANOW, &raw);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        int guest[2];
        make_pipe(guest);
        struct stream_out s = {0};
        assert_int_equal(stream_out_start(&s, &loop, guest[0], terminal, true, 1000), 0);
        assert_int_equal(stream_out_watch(&s), 0);
        /* byte by byte: a sequence may be cut anywhere */
        for (const char *p = rows[i].guest; *p; p++) {
            assert_int_equal(write(guest[1], p, 1), 1);
            spin(2);
        }
        close(guest[1]);
        stream_out_drain(&s);
        put(terminal, "|");
        char got[256] = {0};
        size_t n = 0;
        while (!strchr(got, '|') && n < sizeof(got) - 1) {
            ssize_t more = read(master, got + n, sizeof(got) - 1 - n);
            assert_true(more > 0);
            n += (size_t)more;
        }
        *strchr(got, '|') = '\0';
        assert_string_equal(got, rows[i].shown);
        /* the result has what the guest wrote */
        assert_string_equal(s.kept.data, rows[i].guest);
        stream_out_done(&s);
        close(guest[0]);
    }
    close(terminal);
    close(master);
}

/* ---- input ---- */

static size_t read_all(int fd, struct buf *out)
{
    char block[4096];
    fcntl(fd, F_SETFL, O_NONBLOCK);
    for (int i = 0; i < ROUNDS; i++) {
        ssize_t n = read(fd, block, sizeof(block));
        if (n == 0)
            return out->len;
        if (n > 0)
            buf_add(out, block, (size_t)n);
        spin(1);
    }
    fail_msg("no end of input after %zu bytes", out->len);
    return 0;
}

static void input_from_memory(void **state)
{
    (void)state;
    static char text[300000];
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (char)('a' + i % 23);
    int guest[2];
    make_pipe(guest);
    struct stream_in s;
    assert_int_equal(stream_in_start(&s, &loop, &guest[1], -1, text, sizeof(text)), 0);
    _cleanup_buf_ struct buf got = BUF_INIT(1 << 20);
    assert_int_equal(read_all(guest[0], &got), sizeof(text));
    assert_memory_equal(got.data, text, sizeof(text));
    assert_int_equal(guest[1], -1);
    stream_in_done(&s);
    stream_in_done(&s);
    close(guest[0]);
}

static void no_input_is_end_of_file(void **state)
{
    (void)state;
    int guest[2];
    make_pipe(guest);
    struct stream_in s;
    assert_int_equal(stream_in_start(&s, &loop, &guest[1], -1, NULL, 0), 0);
    char byte;
    assert_int_equal(read(guest[0], &byte, 1), 0);
    assert_int_equal(guest[1], -1);
    stream_in_done(&s);
    close(guest[0]);
}

static void input_from_a_file(void **state)
{
    (void)state;
    int guest[2], file = memfd_create("source", MFD_CLOEXEC);
    make_pipe(guest);
    static char text[200000];
    memset(text, 'f', sizeof(text));
    assert_int_equal(write(file, text, sizeof(text)), (ssize_t)sizeof(text));
    lseek(file, 0, SEEK_SET);
    struct stream_in s;
    assert_int_equal(stream_in_start(&s, &loop, &guest[1], file, NULL, 0), 0);
    _cleanup_buf_ struct buf got = BUF_INIT(1 << 20);
    assert_int_equal(read_all(guest[0], &got), sizeof(text));
    stream_in_done(&s);
    close(guest[0]);
    close(file);
}

static void input_from_a_pipe(void **state)
{
    (void)state;
    int guest[2], source[2];
    make_pipe(guest);
    make_pipe(source);
    struct stream_in s;
    assert_int_equal(stream_in_start(&s, &loop, &guest[1], source[0], NULL, 0), 0);
    spin(5);
    put(source[1], "first ");
    spin(5);
    char got[64] = {0};
    assert_int_equal(read(guest[0], got, sizeof(got)), 6);
    assert_true(guest[1] >= 0); /* more may come */
    put(source[1], "second");
    close(source[1]);
    spin(10);
    memset(got, 0, sizeof(got));
    assert_int_equal(read(guest[0], got, sizeof(got)), 6);
    assert_string_equal(got, "second");
    spin(5);
    assert_int_equal(read(guest[0], got, sizeof(got)), 0);
    assert_int_equal(guest[1], -1);
    stream_in_done(&s);
    close(guest[0]);
    close(source[0]);
}

static void guest_closes_its_input(void **state)
{
    (void)state;
    int guest[2], source[2];
    make_pipe(guest);
    make_pipe(source);
    struct stream_in s;
    assert_int_equal(stream_in_start(&s, &loop, &guest[1], source[0], NULL, 0), 0);
    spin(2);
    close(guest[0]);
    spin(5);
    assert_int_equal(guest[1], -1); /* noticed without a byte to write */
    stream_in_done(&s);
    close(source[0]);
    close(source[1]);

    static char text[300000];
    make_pipe(guest);
    assert_int_equal(stream_in_start(&s, &loop, &guest[1], -1, text, sizeof(text)), 0);
    spin(2);
    close(guest[0]);
    spin(5);
    assert_int_equal(guest[1], -1);
    stream_in_done(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_is_capped_and_counted),
        cmocka_unit_test(exactly_the_cap_is_not_truncated),
        cmocka_unit_test(nothing_is_kept_unless_asked),
        cmocka_unit_test(slow_reader_holds_the_guest_back),
        cmocka_unit_test(broken_reader_does_not_stop_the_guest),
        cmocka_unit_test(file_as_reader),
        cmocka_unit_test(drained_after_the_end),
        cmocka_unit_test(terminal_gets_no_escape_sequences),
        cmocka_unit_test(input_from_memory),
        cmocka_unit_test(no_input_is_end_of_file),
        cmocka_unit_test(input_from_a_file),
        cmocka_unit_test(input_from_a_pipe),
        cmocka_unit_test(guest_closes_its_input),
    };
    return cmocka_run_group_tests_name("stream", tests, set_up, tear_down);
}
