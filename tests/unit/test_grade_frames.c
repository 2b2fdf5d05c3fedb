/* What comes from a guest while grading: frames, and the reports in them. Every breach ends the
 * channel with its reason; nothing is taken for a result that is none. */
#include "grade/channel.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "grade/tests_read.h"

/* ---- frames ---- */

struct peer {
    struct loop loop;
    struct channel channel;
    int to, from; /* the guest's ends: its standard output and input */
    char seen[256];
    size_t n_frames, bytes, n_ends;
    const char *breach;
    char refuse; /* this kind is out of turn */
    bool close_at_first;
};

static bool peer_frame(struct channel *c, char kind, const char *data, size_t len)
{
    struct peer *p = c->owner;
    size_t used = strlen(p->seen);
    snprintf(p->seen + used, sizeof(p->seen) - used, "%c%.*s;", kind, (int)MIN(len, 20), data);
    p->n_frames++;
    p->bytes += len;
    if (p->close_at_first)
        channel_close(c);
    return kind != p->refuse;
}

static void peer_end(struct channel *c, const char *breach)
{
    struct peer *p = c->owner;
    p->n_ends++;
    p->breach = breach;
}

static void peer_attach(struct peer *p)
{
    int in[2], out[2];
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    struct guest guest = {.stdio = {in[1], out[0], -1}};
    p->from = in[0];
    p->to = out[1];
    assert_int_equal(channel_attach(&p->channel, &guest), 0);
}

static void peer_open(struct peer *p)
{
    *p = (struct peer){.to = -1, .from = -1};
    assert_int_equal(loop_init(&p->loop), 0);
    channel_init(&p->channel, &p->loop);
    p->channel.on_frame = peer_frame;
    p->channel.on_end = peer_end;
    p->channel.owner = p;
    peer_attach(p);
}

static void peer_close(struct peer *p)
{
    channel_done(&p->channel);
    util_close(&p->to);
    util_close(&p->from);
    loop_done(&p->loop);
}

static void peer_says(struct peer *p, const void *data, size_t len)
{
    assert_int_equal(write(p->to, data, len), (ssize_t)len);
    while (loop_once(&p->loop, 0) > 0 && p->channel.in.fd >= 0)
        ;
}

static void test_frames_in_parts(void **state)
{
    struct peer p;
    static const char text[] = "A\3\0\0\0onethenB\0\0\0\0A\5\0\0\0three";
    (void)state;
    peer_open(&p);
    for (size_t i = 0; i < 8; i++)
        peer_says(&p, &text[i], 1);
    assert_string_equal(p.seen, "Aone;");
    peer_says(&p, text + 12, sizeof(text) - 1 - 12); /* two at once, one of them empty */
    assert_string_equal(p.seen, "Aone;B;Athree;");
    assert_int_equal(p.n_ends, 0);
    util_close(&p.to);
    loop_once(&p.loop, 100);
    assert_int_equal(p.n_ends, 1);
    assert_null(p.breach);
    peer_close(&p);
}

static void test_frames_too_large(void **state)
{
    struct peer p;
    static const char *const heads[] = {"A\1\0\0\1", "A\377\377\377\377", "A\0\0\0\200"};
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(heads); i++) {
        peer_open(&p);
        peer_says(&p, heads[i], 5);
        assert_int_equal(p.n_frames, 0);
        assert_int_equal(p.n_ends, 1);
        assert_non_null(strstr(p.breach, "16 MiB"));
        peer_close(&p);
    }
}

/* The largest one there may be passes, in however many reads. */
static void test_frames_largest(void **state)
{
    struct peer p;
    static char chunk[65536];
    (void)state;
    peer_open(&p);
    peer_says(&p, "A\0\0\0\1", 5);
    for (size_t i = 0; i < CHANNEL_FRAME_MAX / sizeof(chunk); i++) {
        assert_int_equal(p.n_frames, 0);
        peer_says(&p, chunk, sizeof(chunk));
    }
    assert_int_equal(p.n_frames, 1);
    assert_int_equal(p.bytes, CHANNEL_FRAME_MAX);
    assert_int_equal(p.n_ends, 0);
    peer_close(&p);
}

static void test_frames_truncated(void **state)
{
    static const char *const starts[] = {"", "A", "A\5\0\0", "A\5\0\0\0", "A\5\0\0\0four"};
    static const size_t lens[] = {0, 1, 4, 5, 9};
    struct peer p;
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(starts); i++) {
        peer_open(&p);
        peer_says(&p, starts[i], lens[i]);
        util_close(&p.to);
        channel_drain(&p.channel);
        assert_int_equal(p.n_frames, 0);
        assert_int_equal(p.n_ends, 1);
        assert_null(p.breach);
        peer_close(&p);
    }
}

static void test_frames_out_of_turn(void **state)
{
    struct peer p;
    (void)state;
    peer_open(&p);
    p.refuse = 'R';
    peer_says(&p, "A\0\0\0\0R\0\0\0\0A\0\0\0\0", 15);
    assert_string_equal(p.seen, "A;R;");
    assert_int_equal(p.n_ends, 1);
    assert_string_equal(p.breach, "a message out of turn");
    channel_send(&p.channel, 'Q', "x", 1); /* nobody is there; nothing happens */
    channel_drain(&p.channel);
    assert_int_equal(p.n_ends, 1);
    peer_close(&p);
    /* an owner that closes from its callback gets no more, and no end */
    peer_open(&p);
    p.close_at_first = true;
    peer_says(&p, "A\0\0\0\0A\0\0\0\0", 10);
    assert_int_equal(p.n_frames, 1);
    assert_int_equal(p.n_ends, 0);
    peer_close(&p);
}

/* What was sent to a guest that never spoke is sent to the one that took its place. */
static void test_frames_sent_again(void **state)
{
    struct peer p;
    char got[64];
    (void)state;
    peer_open(&p);
    channel_send(&p.channel, 'T', "job", 3);
    assert_int_equal(read(p.from, got, sizeof(got)), 8);
    util_close(&p.to);
    util_close(&p.from);
    peer_attach(&p);
    assert_int_equal(read(p.from, got, sizeof(got)), 8);
    assert_memory_equal(got, "T\3\0\0\0job", 8);
    peer_says(&p, "A\0\0\0\0", 5);
    channel_send(&p.channel, 'Q', "", 0);
    assert_int_equal(read(p.from, got, sizeof(got)), 5);
    peer_close(&p);
}

static void test_frames_queue_is_bounded(void **state)
{
    struct peer p;
    (void)state;
    peer_open(&p);
    char *big = calloc(1, CHANNEL_FRAME_MAX);
    assert_non_null(big);
    for (int i = 0; i < 8 && p.n_ends == 0; i++)
        channel_send(&p.channel, 'Q', big, CHANNEL_FRAME_MAX);
    free(big);
    assert_int_equal(p.n_ends, 1);
    assert_non_null(p.breach);
    peer_close(&p);
}

/* ---- reports of the tests' side ---- */

static bool names(struct grade_outcome *o, const char *text)
{
    struct cordon_err err = {0};
    return tests_read_names(o, text, strlen(text), &err) == 0;
}

static void test_names_are_fixed(void **state)
{
    static const char *const bad[] = {"",
                                      "{",
                                      "[]",
                                      "3",
                                      "null",
                                      "{}",
                                      "{\"tests\":3}",
                                      "{\"tests\":[]}",
                                      "{\"tests\":\"a\"}",
                                      "{\"tests\":[\"a\"]} x"};
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct grade_outcome o = {0};
        assert_false(names(&o, bad[i]));
        assert_int_equal(o.n_tests, 0);
        grade_outcome_done(&o);
    }
    struct grade_outcome o = {0};
    assert_true(names(&o, "{\"tests\":[\"a\",7]}"));
    assert_int_equal(o.n_tests, 2);
    assert_string_equal(o.tests[1].name, "?");
    assert_int_equal(o.tests[0].status, GRADE_NOT_RUN);
    grade_outcome_done(&o);
}

static bool result(struct tests_run *r, const char *text)
{
    return tests_read_result(r, text, strlen(text));
}

static void test_results(void **state)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"i\":2,\"s\":\"passed\",\"m\":\"\",\"t\":1}",
        "{\"i\":-1,\"s\":\"passed\",\"m\":\"\",\"t\":1}",
        "{\"i\":0.5,\"s\":\"passed\",\"m\":\"\",\"t\":1}",
        "{\"i\":18446744073709551616,\"s\":\"passed\",\"m\":\"\",\"t\":1}",
        "{\"i\":\"0\",\"s\":\"passed\",\"m\":\"\",\"t\":1}",
        "{\"i\":0,\"s\":\"Passed\",\"m\":\"\",\"t\":1}",
        "{\"i\":0,\"s\":true,\"m\":\"\",\"t\":1}",
        "{\"i\":0,\"s\":\"passed\",\"m\":null,\"t\":1}",
        "{\"i\":0,\"s\":\"passed\",\"m\":\"\",\"t\":-1}",
        "{\"i\":0,\"s\":\"passed\",\"m\":\"\"}",
    };
    struct grade_outcome o = {0};
    struct tests_run r = {.outcome = &o, .running = SIZE_MAX};
    (void)state;
    assert_true(names(&o, "{\"tests\":[\"a\",\"b\"]}"));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_false(result(&r, bad[i]));
        assert_int_equal(o.tests[0].status, GRADE_NOT_RUN);
    }
    assert_false(tests_read_begin(&r, "2", 1));
    assert_false(tests_read_begin(&r, "[0]", 3));
    assert_true(tests_read_begin(&r, "0", 1));
    assert_int_equal(r.running, 0);
    assert_true(result(&r, "{\"i\":0,\"s\":\"failed\",\"m\":\"no\",\"t\":1,\"o\":\"words\"}"));
    assert_int_equal(r.running, SIZE_MAX);
    /* written once */
    assert_false(result(&r, "{\"i\":0,\"s\":\"passed\",\"m\":\"\",\"t\":1,\"o\":\"\"}"));
    assert_int_equal(o.tests[0].status, GRADE_FAILED);
    assert_true(result(&r, "{\"i\":1,\"s\":\"passed\",\"m\":\"\",\"t\":1,\"o\":7}"));
    assert_int_equal(r.n_results, 2);
    assert_false(tests_read_broken(&r, "7", 1));
    assert_null(o.error);
    assert_true(tests_read_broken(&r, "\"first\"", 7));
    assert_true(tests_read_broken(&r, "\"second\"", 8));
    assert_string_equal(o.error, "first");
    grade_count(&o);
    assert_false(tests_passed(&o));
    grade_outcome_done(&o);
}

static void test_reports_too_deep(void **state)
{
    struct grade_outcome o = {0};
    struct tests_run r = {.outcome = &o};
    static char text[200001];
    (void)state;
    memset(text, '[', sizeof(text) - 1);
    assert_false(names(&o, text));
    assert_false(result(&r, text));
    assert_false(tests_read_begin(&r, text, sizeof(text) - 1));
    assert_false(tests_read_broken(&r, text, sizeof(text) - 1));
    grade_outcome_done(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames_in_parts),
        cmocka_unit_test(test_frames_too_large),
        cmocka_unit_test(test_frames_largest),
        cmocka_unit_test(test_frames_truncated),
        cmocka_unit_test(test_frames_out_of_turn),
        cmocka_unit_test(test_frames_sent_again),
        cmocka_unit_test(test_frames_queue_is_bounded),
        cmocka_unit_test(test_names_are_fixed),
        cmocka_unit_test(test_results),
        cmocka_unit_test(test_reports_too_deep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
