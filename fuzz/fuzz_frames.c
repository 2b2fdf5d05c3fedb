/* libFuzzer entry for what a guest sends while grading: frames in any pieces, and the reports in
 * them. Whatever comes, rows are only those that were announced, each written at most once. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "grade/tests_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PIECE 4096

struct desk {
    struct tests_run run;
    struct grade_outcome outcome;
    size_t n_ends;
};

static void check(bool ok)
{
    if (!ok)
        abort();
}

static bool on_frame(struct channel *c, char kind, const char *data, size_t len)
{
    struct desk *d = c->owner;
    struct cordon_err err = {0};
    check(len <= CHANNEL_FRAME_MAX && d->n_ends == 0);
    switch (kind) {
    case 'C': return d->outcome.n_tests == 0 && tests_read_names(&d->outcome, data, len, &err) == 0;
    case 'B': return tests_read_begin(&d->run, data, len);
    case 'R': return tests_read_result(&d->run, data, len);
    case 'S': return tests_read_broken(&d->run, data, len);
    default: return false;
    }
}

static void on_end(struct channel *c, const char *breach)
{
    struct desk *d = c->owner;
    (void)breach;
    d->n_ends++;
}

static void check_rows(struct desk *d)
{
    struct grade_outcome *o = &d->outcome;
    size_t written = 0;
    for (size_t i = 0; i < o->n_tests; i++) {
        check(o->tests[i].name && o->tests[i].message);
        written += o->tests[i].status != GRADE_NOT_RUN;
    }
    grade_count(o);
    check(written <= d->run.n_results && o->passed <= o->n_tests && d->n_ends == 1);
    check(d->run.running == SIZE_MAX || d->run.running < o->n_tests);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct loop loop = {.epoll_fd = -1};
    struct desk d = {.run = {.running = SIZE_MAX}};
    struct channel c = {.on_frame = on_frame, .on_end = on_end, .owner = &d};
    int in[2], out[2];
    d.run.outcome = &d.outcome;
    if (loop.epoll_fd < 0)
        check(loop_init(&loop) == 0);
    check(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
    channel_init(&c, &loop);
    struct guest guest = {.stdio = {in[1], out[0], -1}};
    check(channel_attach(&c, &guest) == 0);
    for (size_t at = 0; at < size && c.in.fd >= 0; at += PIECE) {
        size_t n = MIN(size - at, (size_t)PIECE);
        check(write(out[1], data + at, n) == (ssize_t)n);
        channel_drain(&c);
    }
    close(out[1]);
    channel_drain(&c);
    check_rows(&d);
    channel_done(&c);
    close(in[0]);
    grade_outcome_done(&d.outcome);
    return 0;
}
